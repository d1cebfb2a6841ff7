//! The texts in the sections of version 7, also of those without a head.
//!
//! ```text
//! …ield:int prev_prio;…  u64 size  "name: sched_wakeup\nID: …"      the rest of a section whose head is lost
//! ```

use perfquet_events::Error;
use perfquet_events::bytes::Cursor;
use perfquet_events::event::Place;
use perfquet_events::scan::find_text;

use super::{Body, PACKED, Sections, TEXT_BYTES_MAX};
use crate::trace_dat::budget::either_way;
use crate::trace_dat::head::{Opened, Report};
use crate::trace_dat::options::{id, section_head, section_name};
use crate::trace_dat::regions::DRIFT_MAX;
use crate::trace_dat::reporter::Reporter;
use crate::trace_dat::unpack::{Packing, Unpacker, chunks};
use crate::tracing_data::{FRONT_BYTES, HEADER_EVENT, TracingData};

/// Sections of one kind that are tried instead of a damaged one.
const OTHERS_MAX: usize = 4;

impl<'m> Sections<'m> {
    /// The texts of all sections: format files, symbols, names of threads.
    pub(super) fn texts(&self, reporter: &mut Reporter<'_>) -> Result<TracingData<'_>, Error> {
        let mut texts = TracingData {
            endian: self.endian,
            page_size: self.page_size,
            long_size: 8,
            version: b"7",
            lacks_formats: self.lacks_formats,
            ..TracingData::default()
        };
        for body in &self.bodies {
            let mut cursor = Cursor::new(&body.bytes, body.offset, self.endian);
            let cursor = &mut cursor;
            let mut sized = |long: bool| {
                let size = match long {
                    true => cursor.u64()?,
                    false => cursor.u32()?.into(),
                };
                // The part before the damage is usable.
                Ok(match cursor.bytes(size) {
                    Ok(text) => text,
                    Err(_) => cursor.rest(),
                })
            };
            let result = match body.id {
                id::KALLSYMS => sized(false).map(|text| texts.kallsyms = text),
                id::PRINTK => sized(false).map(|text| texts.printk_formats = text),
                id::CMDLINES => sized(true).map(|text| texts.saved_cmdlines = text),
                id::HEADER_INFO => texts.read_header_info(cursor),
                id::FTRACE_EVENTS => texts.read_ftrace_formats(cursor),
                id::EVENT_FORMATS => texts.read_event_formats(cursor),
                _ => Ok(()),
            };
            let is_formats = matches!(body.id, id::FTRACE_EVENTS | id::EVENT_FORMATS);
            if is_formats && (result.is_err() || !texts.are_formats()) {
                texts.lacks_formats = true;
                texts.search_section(&body.bytes, body.id == id::FTRACE_EVENTS);
            }
            if let Err(short) = result {
                reporter.problem(Place::Offset(body.offset), "section", || {
                    format!("section {} ({}): {short}", body.id, section_name(body.id))
                })?;
            }
        }
        self.add_front(&mut texts);
        // An uncompressed text with a damaged beginning may have readable lines.
        let front = self.bytes.get(..FRONT_BYTES).unwrap_or(self.bytes);
        if texts.header_page.is_empty()
            && let Some(place) = find_text(front, HEADER_EVENT)
        {
            texts.header_page = front.get(..place).unwrap_or_default();
        }
        Ok(texts)
    }

    /// The text of a latency tracer.
    pub(super) fn report<'s>(
        &'s self,
        section: u64,
        opened: &mut Opened<'s>,
        reporter: &mut Reporter<'_>,
    ) -> Result<(), Error> {
        let mut cursor = self.section(section, id::BUFFER_TEXT);
        let head = match section_head(&mut cursor) {
            Ok(head) => head,
            Err(short) => {
                return reporter.problem(Place::Offset(section), "section", || {
                    format!("section {} (text): {short}", id::BUFFER_TEXT)
                });
            }
        };
        let offset = cursor.offset();
        if head.flags & PACKED == 0 {
            let text = cursor.bytes(head.size.min(cursor.left()));
            let text = text.unwrap_or_default().into();
            opened.reports.push(Report { offset, text });
            return Ok(());
        }
        let mut unpacker = Unpacker::new(Packing::named(self.packed_by));
        let mut text = Vec::new();
        let damage = chunks(cursor, |data, size| {
            if text.len() as u64 > TEXT_BYTES_MAX {
                return Err(format!("text: expected at most {TEXT_BYTES_MAX} bytes"));
            }
            let mut chunk = Vec::new();
            let result = unpacker.unpack(data, size, &mut chunk);
            text.extend(chunk);
            result
        });
        opened.reports.push(Report {
            offset,
            text: text.into(),
        });
        match damage {
            Ok(()) => Ok(()),
            Err(message) => reporter.problem(Place::Offset(section), "section", || message),
        }
    }

    /// The format files of sections whose heads are lost with the front of the file.
    fn add_front(&self, texts: &mut TracingData<'m>) {
        if self.front.is_empty() {
            return;
        }
        let has = |id: u16| self.bodies.iter().any(|body| body.id == id);
        let mut found = TracingData {
            endian: self.endian,
            ..TracingData::default()
        };
        found.search(self.front);
        if !has(id::FTRACE_EVENTS) {
            texts.lacks_formats = true;
            texts.ftrace.append(&mut found.ftrace);
        }
        if !has(id::EVENT_FORMATS) {
            texts.lacks_formats = true;
            texts.events.append(&mut found.events);
        }
    }

    /// Whether the body of a section is what its kind says.
    pub(super) fn is_sound(&self, id: u16, bytes: &[u8]) -> bool {
        let mut texts = TracingData::default();
        let mut cursor = Cursor::new(bytes, 0, self.endian);
        let result = match id {
            id::HEADER_INFO => texts.read_header_info(&mut cursor),
            id::FTRACE_EVENTS => texts.read_ftrace_formats(&mut cursor),
            id::EVENT_FORMATS => texts.read_event_formats(&mut cursor),
            _ => Ok(()),
        };
        result.is_ok() && texts.are_whole()
    }

    /// A sound section of this kind elsewhere: of two copies of a doubled piece, one is whole.
    pub(super) fn other_section(
        &self,
        id: u16,
        offset: u64,
        unpacker: &mut Unpacker,
    ) -> Option<Body<'m>> {
        let places = either_way(1..=DRIFT_MAX).filter_map(|shift| offset.checked_add_signed(shift));
        let heads = places.filter_map(|place| {
            let (head, body) = self.section_at(place)?;
            let is_it = head.id == id && head.size > 0 && self.is_section(place);
            is_it.then_some((head, body))
        });
        for (head, body) in heads.take(OTHERS_MAX) {
            let Ok(body) = self.at(body).part(head.size) else {
                continue;
            };
            let offset = body.offset();
            let (bytes, damage) = unpacker.section(body, head.flags & PACKED != 0);
            if damage.is_none() && self.is_sound(id, &bytes) {
                return Some(Body { id, offset, bytes });
            }
        }
        None
    }
}
