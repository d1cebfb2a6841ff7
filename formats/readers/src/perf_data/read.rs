//! The way of a record: found, put in order, handed over as events.
//!
//! A [`Session`] is one reading of one input. [`Session::walk`] goes through a mapped file (the pipe's way is in
//! `pipe.rs`) and gives each record to [`Session::record`], which lets it wait in the [`Queue`] if it has a time, or
//! handles it at once. What leaves the queue becomes events in `emit.rs`; perf's own records are in `tool.rs`.

use std::sync::Arc;

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::bytes::{Endian, Short};
use perfquet_events::event::{
    Bucket, CallFunction, Event, EventId, Loss, Place, Problem, Progress, Sink,
};
use perfquet_events::event_format::EventFormat;
use perfquet_events::input::Map;

use crate::perf_data::attr::Attr;
use crate::perf_data::compressed::Unpacker;
use crate::perf_data::ids::Ids;
use crate::perf_data::losses::Losses;
use crate::perf_data::order::{Location, Queue};
use crate::perf_data::record::{HEADER_BYTES, RecordHeader, kind, written_bytes};
use crate::perf_data::recorder;
use crate::perf_data::resync::{Look, Search, plausible};
use crate::perf_data::sample::Lists;
use crate::perf_data::simpleperf::Simpleperf;
use crate::perf_data::tool::StatValue;
use crate::problems::Problems;

/// Bytes read between two reports of progress.
const PROGRESS_BYTES: u64 = 4 << 20;
/// Bytes of mapped files that are kept in memory.
const RESIDENT_BYTES_MAX: u64 = 64 << 20;
/// Longest thing that may follow a record (tracing data); more is damage.
pub(super) const EXTRA_BYTES_MAX: u64 = 256 << 20;

/// One reading of one input.
pub(super) struct Session<'m, 's> {
    pub(super) sink: &'s mut dyn Sink,
    pub(super) endian: Endian,
    pub(super) attrs: Vec<Attr>,
    /// Which attr an id belongs to.
    pub(super) ids: Ids,
    pub(super) queue: Queue<'m>,
    /// In a directory the rounds of one file say nothing about the others.
    pub(super) has_rounds: bool,
    /// The last flush: nothing more will come that a record could wait for.
    pub(super) is_ending: bool,
    /// How many records waited when the last flush began.
    pub(super) waiting: u64,
    pub(super) lists: Lists,
    /// Bars of an aggregation that has more in the next record.
    pub(super) bars: Vec<Bucket>,
    /// Addresses of a stack that a program told; kept from one to the next.
    pub(super) told_addresses: Vec<u64>,
    pub(super) unpacker: Option<Unpacker>,
    /// Formats of tracepoints by id, with their system.
    pub(super) formats: HashMap<u64, (String, EventFormat)>,
    /// Byte order of raw payloads.
    pub(super) is_payload_big: bool,
    /// Event types declared so far.
    pub(super) event_count: u32,
    pub(super) recorder_events: [Option<EventId>; recorder::COUNT],
    pub(super) pmus: HashMap<u32, String>,
    /// EVENT_DESC: name and ids, in the order of the attrs.
    pub(super) descriptions: Vec<(String, Vec<u64>)>,
    /// Obsolete table of config → name.
    pub(super) type_names: HashMap<u64, String>,
    pub(super) simpleperf: Simpleperf,
    /// User stacks that came after their samples, by tid and cookie.
    pub(super) deferred: HashMap<(i32, u64), Vec<u64>>,
    pub(super) losses: Losses,
    pub(super) stat_values: Vec<StatValue>,
    /// Functions whose calls a program tells.
    pub(super) call_functions: HashMap<u32, CallFunction>,
    pub(super) undecoded: Undecoded,
    pub(super) problems: Problems,
    /// Time of a record that was taken: others are near it.
    pub(super) near: Option<u64>,
    /// The last search past damage.
    pub(super) search: Search,
    /// Its first bytes are others: events may be missing, too.
    pub(super) is_head_damaged: bool,
    /// Records are missing that packed ones after them refer to.
    pub(super) is_unpacking_broken: bool,
    /// Unpacked bytes used so far, counted apart from those of files.
    unpacked_position: u64,
    pub(super) total_bytes: Option<u64>,
    next_progress: u64,
    /// The mapped files, to give their pages back.
    pub(super) maps: Vec<Arc<Map>>,
    /// Bytes of them that may be in memory.
    resident_bytes: u64,
}

/// Things that are known but not decoded, counted.
#[derive(Debug, Default)]
pub(super) struct Undecoded {
    pub(super) aux_buffers: u64,
    pub(super) aux_bytes: u64,
    pub(super) samples_with_aux: u64,
    pub(super) deferred_missing: u64,
    /// Records of types that nothing is known about, by type.
    pub(super) records: Vec<(u32, u64)>,
    /// Those of still more types.
    pub(super) other_records: u64,
}

impl<'m, 's> Session<'m, 's> {
    pub(super) fn new(
        sink: &'s mut dyn Sink,
        endian: Endian,
        sources: Vec<&'m [u8]>,
    ) -> Session<'m, 's> {
        Session {
            sink,
            endian,
            attrs: Vec::new(),
            ids: Ids::default(),
            queue: Queue::new(sources, endian),
            has_rounds: true,
            is_ending: false,
            waiting: 0,
            lists: Lists::default(),
            bars: Vec::new(),
            told_addresses: Vec::new(),
            unpacker: None,
            formats: HashMap::new(),
            is_payload_big: endian == Endian::Big,
            event_count: 0,
            recorder_events: [None; recorder::COUNT],
            pmus: HashMap::new(),
            descriptions: Vec::new(),
            type_names: HashMap::new(),
            simpleperf: Simpleperf::default(),
            deferred: HashMap::new(),
            losses: Losses::default(),
            stat_values: Vec::new(),
            call_functions: HashMap::new(),
            undecoded: Undecoded::default(),
            problems: Problems::default(),
            near: None,
            search: Search::default(),
            is_head_damaged: false,
            is_unpacking_broken: false,
            unpacked_position: 1 << 63,
            total_bytes: None,
            next_progress: PROGRESS_BYTES,
            maps: Vec::new(),
            resident_bytes: 0,
        }
    }

    /// Goes through the records of a mapped file between two offsets.
    pub(super) fn walk(&mut self, source: u16, start: u64, end: u64) -> Result<(), Error> {
        let Some(file) = self.queue.sources.get(usize::from(source)).copied() else {
            return Ok(());
        };
        self.next_progress = start.saturating_add(PROGRESS_BYTES);
        self.search = Search::default();
        let end = end.min(file.len() as u64) as usize;
        let mut offset = start.min(end as u64) as usize;
        while let Some(rest) = file.get(offset..end)
            && !rest.is_empty()
        {
            let (header, wanted) = match self.look(rest, offset as u64, true) {
                Look::Record(header, wanted) => (header, wanted),
                Look::Skip(damage) => {
                    self.report_damage(offset as u64, damage.message)?;
                    offset += damage.bytes;
                    continue;
                }
                Look::More(_) => break,
            };
            let (record, behind) = rest.split_at_checked(header.size).unwrap_or_default();
            let extra = match wanted {
                0 => &[][..],
                wanted => self.extra(behind, wanted, offset as u64)?,
            };
            let location = Location::mapped(source, offset as u64);
            self.record(header, record, offset as u64, Some(location), extra)?;
            offset += header.size + extra.len();
            self.progress(offset as u64)?;
        }
        self.end_of_source(end as u64)
    }

    /// What follows a record without being part of it, as far as it is there.
    fn extra<'b>(&mut self, behind: &'b [u8], wanted: u64, offset: u64) -> Result<&'b [u8], Error> {
        let left = behind.len() as u64;
        if wanted > left {
            self.problem(
                Place::Offset(offset),
                "truncated data after a record",
                || format!("expected {wanted} bytes after the record, found {left}"),
            )?;
        }
        Ok(behind.get(..wanted.min(left) as usize).unwrap_or_default())
    }

    /// Bytes that follow a record without being counted in its size.
    pub(super) fn extra_bytes(&self, header: RecordHeader, record: &[u8]) -> u64 {
        if header.kind != kind::AUXTRACE && header.kind != kind::TRACING_DATA {
            return 0;
        }
        let mut body = self.body(record, 0);
        match header.kind {
            kind::AUXTRACE => body.u64().unwrap_or(0),
            _ => {
                // simpleperf writes the data inside of the record, perf after it.
                let size = body.u32().map_or(0, u64::from);
                if body.left() >= size { 0 } else { size }
            }
        }
    }

    pub(super) fn body<'b>(
        &self,
        record: &'b [u8],
        offset: u64,
    ) -> perfquet_events::bytes::Cursor<'b> {
        let body = record.get(HEADER_BYTES..).unwrap_or_default();
        perfquet_events::bytes::Cursor::new(body, offset + HEADER_BYTES as u64, self.endian)
    }

    /// Takes one record. `location` is where it stays, if it stays anywhere.
    #[inline]
    pub(super) fn record(
        &mut self,
        header: RecordHeader,
        record: &[u8],
        offset: u64,
        location: Option<Location>,
        extra: &[u8],
    ) -> Result<(), Error> {
        if header.kind > 63 {
            return self.tool_record(header, record, offset, extra);
        }
        if header.kind == kind::CALLCHAIN_DEFERRED {
            self.keep_deferred(record, offset)?;
        }
        match self.time_of(header, record) {
            // What perf made up itself has no time: it was so at the start.
            None | Some(0 | u64::MAX) => {
                self.emit(header, record, Place::Offset(offset))?;
                Ok(())
            }
            Some(time) => match location {
                Some(location) => self.queue.push(time, location, record.len()),
                None => self.queue.push_copy(time, record),
            },
        }
    }

    /// Takes all whole records at the front of unpacked bytes, and says how many bytes that were. `is_all`: no more
    /// can be unpacked.
    pub(super) fn unpacked_records(
        &mut self,
        bytes: &[u8],
        offset: u64,
        is_all: bool,
    ) -> Result<usize, Error> {
        let mut used = 0;
        while let Some(rest) = bytes.get(used..)
            && let Some(header) = RecordHeader::parse(rest, self.endian)
        {
            let record = match self.look(rest, self.unpacked_position + used as u64, is_all) {
                Look::Record(header, _) => rest.get(..header.size),
                Look::Skip(damage) => {
                    self.report_damage(offset, damage.message)?;
                    used += damage.bytes;
                    continue;
                }
                // A packed piece ends with a record, mostly: it is not kept for the next piece, whose round is another.
                Look::More(_) => rest.get(..header.size).filter(|record| {
                    plausible(rest, self.endian).is_some()
                        && rest.len() - record.len() < HEADER_BYTES
                }),
            };
            let Some(record) = record else {
                break;
            };
            used += header.size;
            if matches!(
                header.kind,
                kind::COMPRESSED | kind::COMPRESSED2 | kind::AUXTRACE
            ) {
                self.problem(Place::Offset(offset), "nested", || {
                    format!(
                        "expected uncompressed records inside a compressed one, found type {}",
                        header.kind
                    )
                })?;
                continue;
            }
            self.record(header, record, offset, None, &[])?;
        }
        self.unpacked_position += used as u64;
        Ok(used)
    }

    /// Number of the attr that a record with this id belongs to. Unknown: `None`.
    #[inline]
    pub(super) fn attr_of_id(&self, id: Option<u64>) -> Option<usize> {
        if self.attrs.len() <= 1 && !self.is_head_damaged || self.ids.is_empty() {
            return (!self.attrs.is_empty()).then_some(0);
        }
        match id {
            None | Some(0) => Some(0),
            Some(id) => self.ids.get(id),
        }
    }

    /// Number of the attr of a record. All attrs have their ids at the same place: perf sees to it.
    #[inline]
    pub(super) fn attr_of(&self, header: RecordHeader, record: &[u8]) -> Option<usize> {
        let first = self.attrs.first()?;
        if self.attrs.len() == 1 && !self.is_head_damaged {
            return Some(0);
        }
        let id = if header.kind == kind::SAMPLE {
            first
                .places
                .id
                .and_then(|offset| self.word(record, HEADER_BYTES + offset))
        } else {
            let record = self.written(record);
            let offset = first.places.id_from_end;
            offset.and_then(|offset| self.word(record, record.len().checked_sub(offset)?))
        };
        self.attr_of_id(id)
    }

    #[inline]
    pub(super) fn time_of(&self, header: RecordHeader, record: &[u8]) -> Option<u64> {
        // What perf writes itself has no trailer.
        if header.kind > kind::KERNEL_LAST {
            return None;
        }
        let attr = self.attrs.get(self.attr_of(header, record)?)?;
        if header.kind == kind::SAMPLE {
            return self.word(record, HEADER_BYTES + attr.places.time?);
        }
        let record = self.written(record);
        match attr.places.time_from_end {
            Some(offset) => self.word(record, record.len().checked_sub(offset)?),
            // Without a trailer these two still have their own.
            None if matches!(header.kind, kind::FORK | kind::EXIT) => self.word(record, 24),
            None => None,
        }
    }

    /// The part of a kernel's record that the kernel has written. All attrs have trailers of the same size.
    pub(super) fn written<'r>(&self, record: &'r [u8]) -> &'r [u8] {
        let trailer_bytes = self.attrs.first().map_or(0, Attr::trailer_bytes);
        let end = written_bytes(record, trailer_bytes, self.endian);
        record.get(..end).unwrap_or(record)
    }

    #[inline]
    fn word(&self, record: &[u8], offset: usize) -> Option<u64> {
        self.endian.u64_at(record, offset)
    }

    /// A round has ended.
    pub(super) fn finish_round(&mut self) -> Result<(), Error> {
        if !self.has_rounds {
            return Ok(());
        }
        let mut queue = std::mem::take(&mut self.queue);
        self.waiting = queue.len();
        let result = queue.finish_round(&mut |record, location| self.emit_from(record, location));
        self.queue = queue;
        result
    }

    /// A data file has ended.
    pub(super) fn end_of_source(&mut self, offset: u64) -> Result<(), Error> {
        let Some(mut unpacker) = self.unpacker.take() else {
            return Ok(());
        };
        let pending = unpacker.take_pending();
        let used = self.unpacked_records(&pending, offset, true)?;
        let left = pending.len().saturating_sub(used);
        if left > 0 {
            self.problem(Place::Offset(offset), "truncated compressed record", || {
                format!(
                    "expected the rest of a compressed record, found the end; {left} bytes not read"
                )
            })?;
        }
        Ok(())
    }

    /// The input has ended: hands out all that waits, and tells what was counted.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        self.is_ending = true;
        let mut queue = std::mem::take(&mut self.queue);
        self.waiting = queue.len();
        queue.flush(u64::MAX, &mut |record, location| {
            self.emit_from(record, location)
        })?;
        self.queue = queue;
        self.flush_stat(None)?;
        for index in 0..self.attrs.len() {
            self.event_of(index)?;
        }
        self.tell_losses()?;
        self.tell_undecoded()?;
        let late = self.queue.late();
        if late > 0 {
            let message = "records came later than perf's rounds allow, after newer ones: \
                           rows are out of order there, and calls may lack their entry or exit";
            self.tell(late, message)?;
        }
        self.problems.finish(self.sink)
    }

    fn tell_undecoded(&mut self) -> Result<(), Error> {
        let undecoded = std::mem::take(&mut self.undecoded);
        if undecoded.aux_buffers > 0 || undecoded.samples_with_aux > 0 {
            let count = undecoded.aux_buffers + undecoded.samples_with_aux;
            let bytes = undecoded.aux_bytes;
            let message = format!("{bytes} bytes of hardware trace (AUX area) are not decoded");
            self.tell(count, &message)?;
            self.sink.event(Event::Loss(Loss {
                time: None,
                cpu: None,
                event: None,
                count: None,
                in_all: None,
                reason: "hardware trace (AUX area) not decoded",
            }))?;
        }
        if undecoded.deferred_missing > 0 {
            let message = "deferred user stacks are missing";
            self.tell(undecoded.deferred_missing, message)?;
        }
        for (kind, count) in undecoded.records {
            self.tell(count, &format!("unknown records of type {kind}"))?;
        }
        if undecoded.other_records > 0 {
            let message = "unknown records of many other types";
            self.tell(undecoded.other_records, message)?;
        }
        Ok(())
    }

    fn tell(&mut self, count: u64, message: &str) -> Result<(), Error> {
        self.sink.event(Event::Problem(Problem {
            place: Place::Whole,
            count,
            message,
        }))
    }

    /// Counts a record that nothing is known about.
    pub(super) fn count_unknown(&mut self, kind: u32) {
        // A damaged file may hold any number of types.
        const TYPES_MAX: usize = 64;
        let records = &mut self.undecoded.records;
        if let Some((_, count)) = records.iter_mut().find(|(known, _)| *known == kind) {
            *count += 1;
        } else if records.len() < TYPES_MAX {
            records.push((kind, 1));
        } else {
            self.undecoded.other_records += 1;
        }
    }

    pub(super) fn problem(
        &mut self,
        place: Place,
        kind: &'static str,
        message: impl FnOnce() -> String,
    ) -> Result<(), Error> {
        self.problems.report(self.sink, place, kind, message)
    }

    pub(super) fn short(&mut self, what: &'static str, short: Short) -> Result<(), Error> {
        self.problem(Place::Offset(short.offset), what, || {
            format!("{what}: {short}")
        })
    }

    /// Counts bytes of the mapped files that were looked at. Mapped pages count as this program's memory until
    /// they are given back; what is looked at again comes from the system's cache.
    #[inline]
    pub(super) fn touch(&mut self, bytes: u64) {
        self.resident_bytes += bytes;
        if self.resident_bytes > RESIDENT_BYTES_MAX {
            self.resident_bytes = 0;
            self.maps.iter().for_each(|map| map.release());
        }
    }

    #[inline]
    pub(super) fn progress(&mut self, done: u64) -> Result<(), Error> {
        if done < self.next_progress {
            return Ok(());
        }
        self.next_progress = done + PROGRESS_BYTES;
        self.touch(PROGRESS_BYTES);
        let total = self.total_bytes;
        self.sink.event(Event::Progress(Progress { done, total }))
    }
}
