//! Version 7 (trace-cmd since 3.0): sections anywhere in the file, found through options, compressed or not.
//!
//! ```text
//! head, name and version of the compression, u64 offset of the first options
//! section  u16 id, u16 flags (1: packed), u32 name (offset in the string section), u64 size, body
//! ```
//! Options name the sections and the next options; the last options follow the events. A truncated file, or that of a
//! killed recorder, lacks them. Then the sections are found by walking from one to the next, and the pages of the CPUs
//! after the head of their section, each aligned to the page size. Unreachable options are read during the walk, even
//! if the head of their section is damaged: a chain of options ends exactly at the end of its section.

mod texts;

use std::borrow::Cow;
use std::collections::HashSet;

use perfquet_events::Error;
use perfquet_events::bytes::{Cursor, Endian, Short};
use perfquet_events::event::Place;

use crate::trace_dat::budget::either_way;
use crate::trace_dat::head::{Buffer, CpuData, Head, Opened};
use crate::trace_dat::options::{
    Options, SHIFT_MAX, SectionHead, are_options, buffer_option, find_options, id, section_head,
    section_name,
};
use crate::trace_dat::regions::{DRIFT_MAX, drift};
use crate::trace_dat::reporter::Reporter;
use crate::trace_dat::unpack::{CHUNK_BYTES_MAX, Packing, Unpacker, is_packed_by};

const SECTION_HEAD_BYTES: u64 = 16;
const PACKED: u16 = 1;
/// Maximum size of the names of all sections.
const NAMES_BYTES_MAX: u32 = 1 << 20;
/// Maximum size of a latency tracer's text, which is at most one ring buffer.
const TEXT_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of option sections followed: there is one per buffer, and the first.
const OPTIONS_MAX: usize = 1 << 16;

/// The unpacked sections of a file, from which [`Opened`] borrows.
pub(super) struct Sections<'m> {
    bytes: &'m [u8],
    endian: Endian,
    page_size: u32,
    packed_by: &'m [u8],
    bodies: Vec<Body<'m>>,
    options: Options<'m>,
    /// Offsets of the options already taken.
    taken: HashSet<u64>,
    /// Offsets of sections, as listed in the options.
    listed: Vec<u64>,
    /// Whether some of the options are not at their expected offsets.
    is_cut: bool,
    /// Whether format files are damaged.
    lacks_formats: bool,
    /// Sections with events found without options.
    found: Vec<Found>,
    /// Bytes before the first section of a file without its front.
    front: &'m [u8],
}

struct Body<'m> {
    id: u16,
    offset: u64,
    bytes: Cow<'m, [u8]>,
}

#[derive(Clone, Copy)]
struct Found {
    section: u64,
    end: u64,
    packed: bool,
}

impl<'m> Sections<'m> {
    /// Finds and unpacks all sections except those with events.
    pub(super) fn load(
        bytes: &'m [u8],
        head: &Head<'m>,
        reporter: &mut Reporter<'_>,
    ) -> Result<Sections<'m>, Error> {
        let mut sections = Sections {
            bytes,
            endian: head.endian,
            page_size: head.page_size,
            packed_by: b"",
            bodies: Vec::new(),
            options: Options::default(),
            taken: HashSet::new(),
            listed: Vec::new(),
            is_cut: false,
            lacks_formats: false,
            found: Vec::new(),
            front: b"",
        };
        let mut cursor = sections.at(head.length);
        if !head.is_guessed {
            sections.packed_by = cursor.text_to_nul();
            cursor.text_to_nul();
        }
        if Packing::named(sections.packed_by) == Packing::Other || head.is_guessed {
            let stated = String::from_utf8_lossy(sections.packed_by).into_owned();
            sections.packed_by = sections.packer().unwrap_or(sections.packed_by);
            let found = String::from_utf8_lossy(sections.packed_by);
            if !head.is_guessed && stated != found {
                reporter.problem(Place::Offset(head.length), "head", || {
                    format!("expected none, zlib or zstd, found {stated:?}; its sections are packed by {found}")
                })?;
            }
        }
        let mut unpacker = Unpacker::new(Packing::named(sections.packed_by));
        sections.is_cut = head.is_guessed;
        if !head.is_guessed {
            match cursor.u64() {
                Ok(options) => sections.follow_options(options, &mut unpacker, reporter)?,
                Err(short) => {
                    reporter.problem(Place::Offset(short.offset), "head", || short.to_string())?;
                    return Ok(sections);
                }
            }
        }
        sections.add_listed(&mut unpacker, reporter)?;
        if sections.is_cut {
            let start = match sections.is_section(cursor.offset()) {
                true => cursor.offset(),
                false => head.length,
            };
            sections.walk(start, &mut unpacker, reporter)?;
            sections.add_listed(&mut unpacker, reporter)?;
        }
        Ok(sections)
    }

    /// Unpacks the sections listed in the options.
    fn add_listed(
        &mut self,
        unpacker: &mut Unpacker,
        reporter: &mut Reporter<'_>,
    ) -> Result<(), Error> {
        let sections: Vec<(u16, u64)> = std::mem::take(&mut self.options.sections);
        self.listed
            .extend(sections.iter().map(|(_, offset)| *offset));
        for (id, offset) in sections {
            self.add(id, offset, unpacker, reporter)?;
        }
        Ok(())
    }

    /// The body of a section whose head is damaged, and whether it is packed. Packed data begins with two sizes; other
    /// data ends at the next section listed in the options.
    fn headless(&self, offset: u64, packing: Packing) -> Option<(Cursor<'m>, bool)> {
        let shifts = either_way(1..=SHIFT_MAX);
        let bodies = std::iter::once(0).chain(shifts).filter_map(|shift| {
            let body = (offset + SECTION_HEAD_BYTES).checked_add_signed(shift)?;
            Some(self.at(body))
        });
        let mut packed = bodies.filter_map(|mut body| {
            let mut sizes = body;
            let (packed_bytes, bytes) = (sizes.u32().ok()?, sizes.u32().ok()?);
            let is_packed = bytes > 0 && is_packed_by(sizes.rest(), packing);
            is_packed.then(|| body.part(u64::from(packed_bytes) + 8).ok())?
        });
        if let Some(body) = packed.next() {
            return Some((body, true));
        }
        if packing != Packing::None {
            return None;
        }
        let others = self.listed.iter().chain(&self.taken);
        let end = *others.filter(|other| **other > offset).min()?;
        let mut body = self.at(offset + SECTION_HEAD_BYTES);
        let size = end.checked_sub(body.offset())?;
        Some((body.part(size).ok()?, false))
    }

    /// The compression of a file that does not state it; `None` if unknown.
    fn packer(&self) -> Option<&'static [u8]> {
        let mut packed = (0..self.bytes.len() as u64).filter_map(|offset| {
            let (head, body) = self.section_at(offset)?;
            let is_packed = head.flags & PACKED != 0
                && matches!(head.id, id::HEADER_INFO..=id::CMDLINES)
                && self.is_section(offset);
            // The two sizes precede the data.
            is_packed.then_some(body + 8)
        });
        let Some(data) = packed.next() else {
            return Some(b"none");
        };
        let data = self.at(data).rest();
        let packers = [(Packing::Zstd, &b"zstd"[..]), (Packing::Zlib, b"zlib")];
        let known = packers.into_iter();
        known
            .filter_map(|(packing, name)| is_packed_by(data, packing).then_some(name))
            .next()
    }

    fn at(&self, offset: u64) -> Cursor<'m> {
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|offset| self.bytes.get(offset..));
        Cursor::new(rest.unwrap_or_default(), offset, self.endian)
    }

    /// The section expected at `offset`; possibly a few bytes before or after it, if a byte was lost or duplicated.
    fn section(&self, offset: u64, id: u16) -> Cursor<'m> {
        let head = |cursor: &Cursor<'m>| section_head(&mut { *cursor }).ok();
        let there = self.at(offset);
        // The ID of options is 0, as are many bytes: require a body.
        let is_it = |cursor: &Cursor<'m>| {
            head(cursor).is_some_and(|head| {
                let left = cursor.left().saturating_sub(SECTION_HEAD_BYTES);
                head.id == id && head.flags <= PACKED && (1..=left).contains(&head.size)
            })
        };
        let shifts = either_way(1..=SHIFT_MAX);
        let near = std::iter::once(0)
            .chain(shifts)
            .filter_map(|shift| Some(self.at(offset.checked_add_signed(shift)?)))
            .find(is_it);
        // Options are followed by walking: any of them would be taken for these.
        let far = || {
            if id == id::DONE {
                return None;
            }
            let shifts = either_way(SHIFT_MAX + 1..=DRIFT_MAX);
            let places = shifts.filter_map(|shift| offset.checked_add_signed(shift));
            places
                .filter(|&place| self.is_section(place))
                .map(|place| self.at(place))
                .find(is_it)
        };
        // The section may be truncated or damaged.
        near.or_else(far).unwrap_or(there)
    }

    /// The options expected at `offset`; or others up to [`DRIFT_MAX`] bytes away, if bytes were lost or duplicated. Their ID is 0,
    /// as are many bytes, so those further away must lead to the end of their section.
    fn options_section(&self, offset: u64) -> Cursor<'m> {
        let is_it = |place: &u64| !self.taken.contains(place) && self.are_options_at(*place);
        // Damaged options are where they should be, and so is what follows them.
        let are_damaged = || {
            let is_done = self
                .section_at(offset)
                .is_some_and(|(head, _)| head.id == id::DONE);
            is_done && self.is_section(offset)
        };
        if is_it(&offset) || are_damaged() {
            return self.at(offset);
        }
        let shifts = either_way(1..=DRIFT_MAX);
        let mut places = shifts.filter_map(|shift| offset.checked_add_signed(shift));
        let found = places.find(is_it);
        found.map_or_else(|| self.section(offset, id::DONE), |found| self.at(found))
    }

    /// Distance by which the end of the last events is moved.
    fn drift(&self) -> i64 {
        let options = self.options.buffers.iter();
        let buffers = options
            .filter_map(|(offset, option)| buffer_option(option, *offset, self.endian, false).ok());
        let Some(last) = buffers.max_by_key(|buffer| buffer.section) else {
            return 0;
        };
        let mut cursor = self.section(last.section, id::BUFFER);
        let is_near = cursor.offset().abs_diff(last.section) <= SHIFT_MAX as u64;
        let end = match section_head(&mut cursor) {
            Ok(head) if is_near && head.id == id::BUFFER && head.size > 0 => {
                (last.section + SECTION_HEAD_BYTES).saturating_add(head.size)
            }
            _ => {
                let ends = last
                    .cpus
                    .iter()
                    .map(|cpu| cpu.offset.saturating_add(cpu.size));
                ends.max().unwrap_or(0)
            }
        };
        let lowest = last.section + SECTION_HEAD_BYTES;
        let found = (!self.is_found_section(end, end))
            .then(|| self.last_options(end, lowest))
            .flatten();
        let found = found.or_else(|| self.nearest_section(end, lowest));
        found.map_or(0, |found| drift(found, end))
    }

    /// The options near `offset`, where the last events should end: options follow these. Further sections may be nearer.
    fn last_options(&self, offset: u64, lowest: u64) -> Option<u64> {
        let places = either_way(1..=DRIFT_MAX).filter_map(|shift| offset.checked_add_signed(shift));
        let mut places = places.filter(|&place| place >= lowest);
        places.find(|&place| self.is_section(place) && self.are_options_at(place))
    }

    /// The section nearest to `offset`, not before `lowest`.
    fn nearest_section(&self, offset: u64, lowest: u64) -> Option<u64> {
        let shifts = either_way(1..=DRIFT_MAX);
        std::iter::once(0)
            .chain(shifts)
            .filter_map(|shift| offset.checked_add_signed(shift))
            .find(|&place| place >= lowest && self.is_found_section(offset, place))
    }

    fn follow_options(
        &mut self,
        first: u64,
        unpacker: &mut Unpacker,
        reporter: &mut Reporter<'_>,
    ) -> Result<(), Error> {
        let mut next = first;
        while next != 0 {
            let mut cursor = self.options_section(next);
            // Others than these, if only these have a damaged head.
            self.is_cut |= cursor.offset().abs_diff(next) > SHIFT_MAX as u64;
            if !self.taken.insert(cursor.offset()) || self.taken.len() > OPTIONS_MAX {
                reporter.problem(Place::Offset(next), "options", || {
                    "the options lead back to where they were".into()
                })?;
                break;
            }
            let start = cursor.offset();
            let head = match section_head(&mut cursor) {
                Ok(head) if head.id == id::DONE => head,
                Ok(head) => {
                    self.is_cut = true;
                    self.taken.remove(&start);
                    reporter.problem(Place::Offset(next), "options", || {
                        format!("expected a section of options, found section {}", head.id)
                    })?;
                    break;
                }
                Err(_) => {
                    self.is_cut = true;
                    let length = self.bytes.len();
                    reporter.problem(Place::Offset(length as u64), "options", || {
                        format!(
                            "cut short: expected options at {next:#x}, found the end of the file"
                        )
                    })?;
                    break;
                }
            };
            match self.take_options_at(cursor, head, unpacker, reporter)? {
                Some(offset) => next = offset,
                None => break,
            }
        }
        // A killed recorder has not written options yet.
        self.is_cut |= first == 0;
        Ok(())
    }

    /// Parses the options of the section whose body is at `cursor`. Returns the offset of the next ones; `None` if it
    /// is lost.
    fn take_options_at(
        &mut self,
        cursor: Cursor<'m>,
        head: SectionHead,
        unpacker: &mut Unpacker,
        reporter: &mut Reporter<'_>,
    ) -> Result<Option<u64>, Error> {
        let (body, damage) = unpacker.section(cursor, head.flags & PACKED != 0);
        let size = match &body {
            Cow::Borrowed(_) => head.size,
            Cow::Owned(unpacked) => unpacked.len() as u64,
        };
        let options = Cursor::new(&body, cursor.offset(), self.endian);
        let mut messages = Vec::new();
        let mut note = |offset, message| messages.push((offset, message));
        let done = self.options.take_section(options, size, &mut note);
        for (offset, message) in messages {
            reporter.problem(Place::Offset(offset), "option", || message)?;
        }
        match done {
            Ok(next) => Ok(Some(next)),
            Err(short) => {
                self.is_cut = true;
                let message = damage.unwrap_or_else(|| short.to_string());
                reporter.problem(Place::Offset(short.offset), "options", || message)?;
                Ok(None)
            }
        }
    }

    /// Unpacks one section.
    fn add(
        &mut self,
        id: u16,
        offset: u64,
        unpacker: &mut Unpacker,
        reporter: &mut Reporter<'_>,
    ) -> Result<(), Error> {
        if self.bodies.iter().any(|body| body.id == id) {
            return Ok(());
        }
        let mut cursor = self.section(offset, id);
        let mut message = None;
        let found = match section_head(&mut cursor) {
            Ok(head) if head.id == id => {
                let body = cursor.part(head.size.min(cursor.left()));
                let body = body.unwrap_or(cursor);
                if body.left() < head.size {
                    message = Some(format!("expected {} bytes, found the end", head.size));
                }
                Some((body, head.flags & PACKED != 0))
            }
            Ok(head) => {
                message = Some(format!("expected it, found section {}", head.id));
                self.headless(offset, unpacker.packing())
            }
            Err(short) => {
                message = Some(short.to_string());
                None
            }
        };
        let mut found = found.map(|(body, packed)| {
            let (bytes, damage) = unpacker.section(body, packed);
            let offset = body.offset();
            message = damage.or(message.take());
            Body { id, offset, bytes }
        });
        let is_sound = (found.as_ref()).is_some_and(|body| self.is_sound(id, &body.bytes));
        if (message.is_some() || !is_sound)
            && let Some(other) = self.other_section(id, offset, unpacker)
        {
            let stated = message
                .as_deref()
                .unwrap_or("expected it, found other bytes");
            let further = other.offset as i64 - (offset + SECTION_HEAD_BYTES) as i64;
            let message = format!("{stated}; another one, {further} bytes further on, is whole");
            self.bodies.push(other);
            return reporter.problem(Place::Offset(offset), "section", || {
                format!("section {id} ({}): {message}", section_name(id))
            });
        }
        // Bytes of a lost front are searched for texts: what is at the stated place may be anything.
        let is_in_front = offset < self.front.len() as u64;
        self.bodies
            .extend(found.take_if(|_| is_sound || !is_in_front));
        self.lacks_formats |=
            message.is_some() && matches!(id, id::FTRACE_EVENTS | id::EVENT_FORMATS);
        let Some(message) = message else {
            return Ok(());
        };
        reporter.problem(Place::Offset(offset), "section", || {
            format!("section {id} ({}): {message}", section_name(id))
        })
    }

    /// Offset of the next section: the expected one, the nearest, or one further on. It is not before `lowest`.
    fn section_from(&self, offset: u64, lowest: u64) -> Option<u64> {
        let is_there = |place: &u64| self.is_found_section(offset, *place);
        let length = self.bytes.len() as u64;
        if is_there(&offset) {
            return Some(offset);
        }
        if self.at(offset).left() < SECTION_HEAD_BYTES {
            // Past the end, if bytes are lost: the last options end with the file.
            let is_last = |place: &u64| {
                let section = self.section_at(*place);
                section.is_some_and(|(head, body)| {
                    head.id == id::DONE
                        && head.size > 0
                        && body.checked_add(head.size) == Some(length)
                })
            };
            let from = offset.saturating_sub(DRIFT_MAX as u64).max(lowest);
            let moved = (from..length).find(is_last).filter(|_| offset > length);
            return moved.or(Some(offset));
        }
        // At the expected offset, less is required: the data after it may be truncated. Its size is wrong if it
        // contains others.
        if let Some((head, body)) = self.section_at(offset) {
            let end = body.saturating_add(head.size).min(length);
            return (body..end).find(is_there).or(Some(offset));
        }
        self.nearest_section(offset, lowest)
            .or_else(|| (offset + 1..length).find(is_there))
    }

    /// The head of a section of a known kind, and the offset of its body.
    fn section_at(&self, offset: u64) -> Option<(SectionHead, u64)> {
        let mut cursor = self.at(offset);
        let head = section_head(&mut cursor).ok()?;
        let is_known = matches!(
            head.id,
            id::DONE | id::BUFFER | id::STRINGS..=id::MODULES_FILE
        );
        let is_head = is_known && head.flags <= PACKED && head.name < NAMES_BYTES_MAX;
        is_head.then_some((head, cursor.offset()))
    }

    /// Whether a section begins here: of a known kind, complete, and followed by another one or the end.
    fn is_section(&self, offset: u64) -> bool {
        let Some((head, body)) = self.section_at(offset) else {
            return false;
        };
        let end = body.saturating_add(head.size);
        let length = self.bytes.len() as u64;
        // A killed recorder leaves a section without a size, or one that ends with the file.
        end == length
            || head.id == id::BUFFER && (head.size == 0 || end > length)
            || head.size > 0 && end < length && self.is_begun(end)
    }

    /// Whether a section is here: elsewhere than expected, bytes that look like the head of options must be options.
    fn is_found_section(&self, expected: u64, place: u64) -> bool {
        let is_other = || {
            self.section_at(place)
                .is_some_and(|(head, _)| head.id != id::DONE)
        };
        self.is_section(place) && (place == expected || is_other() || self.are_options_at(place))
    }

    /// Whether a section of options begins here, and they lead to its end.
    fn are_options_at(&self, place: u64) -> bool {
        let section = self
            .section_at(place)
            .filter(|(head, _)| head.id == id::DONE && head.size > 0);
        let body =
            section.and_then(|(head, body)| Some((head, self.at(body).part(head.size).ok()?)));
        body.is_some_and(|(head, mut body)| match head.flags & PACKED {
            0 => are_options(body),
            _ => body.u64().is_ok() && is_packed_by(body.rest(), Packing::named(self.packed_by)),
        })
    }

    /// Whether a section seems to begin here. Runs of zeros do not count.
    fn is_begun(&self, offset: u64) -> bool {
        let head = self.section_at(offset);
        head.is_some_and(|(head, _)| head.size > 0 || head.id == id::BUFFER)
    }

    /// Walks from section to section, and takes those missing from the options.
    fn walk(
        &mut self,
        start: u64,
        unpacker: &mut Unpacker,
        reporter: &mut Reporter<'_>,
    ) -> Result<(), Error> {
        let mut offset = start;
        let mut lowest = start;
        loop {
            let Some(found) = self.section_from(offset, lowest) else {
                return self.take_headless(offset, self.bytes.len() as u64, reporter);
            };
            if found != offset {
                if offset == 0 {
                    let front = usize::try_from(found).ok();
                    self.front = front
                        .and_then(|end| self.bytes.get(..end))
                        .unwrap_or_default();
                }
                reporter.problem(Place::Offset(offset), "section", || {
                    format!(
                        "expected a section, found the next one {} bytes further on",
                        found as i64 - offset as i64
                    )
                })?;
                self.take_headless(offset, found, reporter)?;
            }
            offset = found;
            lowest = found + SECTION_HEAD_BYTES;
            let mut cursor = self.at(offset);
            let Ok(head) = section_head(&mut cursor) else {
                return Ok(());
            };
            let end = cursor.offset().saturating_add(head.size);
            match head.id {
                id::HEADER_INFO..=id::CMDLINES => self.add(head.id, offset, unpacker, reporter)?,
                id::BUFFER => {
                    self.found.push(Found {
                        section: offset,
                        // The size is written when the section is complete.
                        end: match head.size {
                            0 => self.bytes.len() as u64,
                            _ => end.min(self.bytes.len() as u64),
                        },
                        packed: head.flags & PACKED != 0,
                    });
                }
                id::DONE if head.size > 0 && self.taken.insert(offset) => {
                    self.take_options_at(cursor, head, unpacker, reporter)?;
                }
                _ => {}
            }
            if head.size == 0 {
                return Ok(());
            }
            offset = end;
        }
    }

    /// Parses the options between two offsets, in a section whose head is damaged: they lead to its end.
    fn take_headless(
        &mut self,
        from: u64,
        to: u64,
        reporter: &mut Reporter<'_>,
    ) -> Result<(), Error> {
        let gap = self.at(from).bytes(to.saturating_sub(from));
        let gap = gap.unwrap_or_default();
        let Some(skipped) = find_options(gap, self.endian) else {
            return Ok(());
        };
        let mut body = self.at(from);
        if body.bytes(skipped as u64).is_err() {
            return Ok(());
        }
        let offset = body.offset();
        let mut messages = Vec::new();
        let mut note = |offset, message| messages.push((offset, message));
        // They lead to their end, so there is no error.
        let _ = self.options.take_section(body, to - offset, &mut note);
        for (offset, message) in messages {
            reporter.problem(Place::Offset(offset), "option", || message)?;
        }
        Ok(())
    }

    /// Combines the contents of the sections.
    pub(super) fn opened(&self, reporter: &mut Reporter<'_>) -> Result<Opened<'_>, Error> {
        let mut opened = Opened {
            texts: self.texts(reporter)?,
            options: Options::default(),
            buffers: Vec::new(),
            reports: Vec::new(),
            drift: self.drift(),
            packed_by: self.packed_by,
        };
        for (offset, option) in &self.options.buffers {
            match buffer_option(option, *offset, self.endian, false) {
                Ok(buffer) => {
                    let packed = section_head(&mut self.section(buffer.section, id::BUFFER));
                    let packed = packed.is_ok_and(|head| head.flags & PACKED != 0);
                    let cpus = buffer.cpus.iter().map(|cpu| CpuData {
                        cpu: Some(cpu.cpu),
                        file: 0,
                        offset: cpu.offset,
                        size: cpu.size,
                        packed,
                    });
                    opened.buffers.push(Buffer {
                        name: buffer.name.to_vec(),
                        clock: buffer.clock.to_vec(),
                        page_size: buffer.page_size.into(),
                        cpus: cpus.collect(),
                    });
                }
                Err(short) => {
                    reporter.problem(Place::Offset(*offset), "option", || {
                        format!("buffer: {short}")
                    })?;
                }
            }
        }
        for found in &self.found {
            let is_listed = |buffer: &Buffer| {
                let inside = |cpu: &CpuData| (found.section..found.end).contains(&cpu.offset);
                buffer.cpus.iter().any(inside)
            };
            if !opened.buffers.iter().any(is_listed) {
                opened.buffers.push(self.search(*found));
            }
        }
        for (offset, option) in &self.options.texts {
            match buffer_option(option, *offset, self.endian, true) {
                Ok(text) => self.report(text.section, &mut opened, reporter)?,
                Err(short) => {
                    reporter.problem(Place::Offset(*offset), "option", || {
                        format!("text: {short}")
                    })?;
                }
            }
        }
        Ok(opened)
    }

    /// Takes the options out; possible once.
    pub(super) fn take_options(&mut self) -> Options<'m> {
        let kept = |list: &Vec<(u64, Cow<'m, [u8]>)>| list.clone();
        let (buffers, texts) = (kept(&self.options.buffers), kept(&self.options.texts));
        let clock = self.options.clock.clone();
        let taken = std::mem::take(&mut self.options);
        self.options.buffers = buffers;
        self.options.texts = texts;
        self.options.clock = clock;
        taken
    }

    /// Finds the pages of CPUs in a section that no option lists. Packed ones follow each other, aligned to the page
    /// size; unpacked ones are separated only by their times ([`runs`](crate::trace_dat::page::runs)).
    fn search(&self, found: Found) -> Buffer {
        let page_size = u64::from(self.page_size).max(16);
        let mut buffer = Buffer {
            page_size,
            clock: self.options.clock.clone().unwrap_or_default(),
            ..Buffer::default()
        };
        let aligned = |offset: u64| offset.next_multiple_of(page_size);
        let mut offset = aligned(found.section + SECTION_HEAD_BYTES);
        if found.packed {
            while offset < found.end {
                let mut cursor = self.at(offset);
                let start = offset;
                let Ok(count @ 1..) = cursor.u32() else {
                    break;
                };
                for _ in 0..count {
                    let sizes = (|| Ok::<_, Short>((cursor.u32()?, cursor.u32()?)))();
                    let Ok((packed_bytes, bytes)) = sizes else {
                        break;
                    };
                    if u64::from(bytes) > CHUNK_BYTES_MAX
                        || cursor.bytes(packed_bytes.into()).is_err()
                    {
                        break;
                    }
                }
                let end = cursor.offset();
                buffer.cpus.push(self.unknown_cpu(start, end - start, true));
                offset = aligned(end);
            }
            return buffer;
        }
        if offset < found.end {
            let size = found.end - offset;
            buffer.cpus.push(self.unknown_cpu(offset, size, false));
        }
        buffer
    }

    fn unknown_cpu(&self, offset: u64, size: u64, packed: bool) -> CpuData {
        CpuData {
            cpu: None,
            file: 0,
            offset,
            size,
            packed,
        }
    }
}
