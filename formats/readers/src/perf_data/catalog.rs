//! The events of a recording: their settings, IDs, names and formats.
//!
//! The events come from the attrs of a file, or from the first records of a pipe. Other information is added when it is
//! found: names (EVENT_DESC, EVENT_UPDATE, simpleperf) and formats (tracing data). `declare.rs` combines it when the
//! first sample of an event is emitted.

use std::cell::Cell;

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::bytes::{Cursor, Endian, Short};
use perfquet_events::event::{CallFunction, EventId, Fact, Plan, Purpose};

use crate::perf_data::attr::Attr;
use crate::perf_data::formats::Formats;
use crate::perf_data::ids::Ids;
use crate::perf_data::output::Output;
use crate::perf_data::record::{HEADER_BYTES, RecordHeader, Trailer, kind, written};
use crate::perf_data::recorder;
use crate::perf_data::usual::UsualLayout;

/// The events of one input.
pub(super) struct Catalog {
    pub(super) endian: Endian,
    events: Vec<CatalogEvent>,
    /// The offsets of the timestamp and the ID in all samples; `None` if they differ between events, or if the file is
    /// unusual.
    places: Option<Places>,
    /// Event index of each ID.
    ids: Ids,
    has_build_ids: bool,
    has_mappings: bool,
    /// Whether the list of events is damaged, so that events may be missing.
    pub(super) is_damaged: bool,
    /// Whether the events are described by records, as in a pipe.
    pub(super) is_listed: bool,
    /// Whether `perf record --switch-output` wrote the file, perhaps one of several.
    pub(super) is_switched: bool,
    pub(super) names: Names,
    pub(super) formats: Formats,
    /// Functions whose calls a BPF program reports, by ID.
    pub(super) functions: HashMap<u32, CallFunction>,
    pub(super) declared: Declared,
}

/// One event.
pub(super) struct CatalogEvent {
    pub(super) attr: Attr,
    /// Name given by a record, if any.
    pub(super) name: Option<String>,
    /// Kernel filter, recorded by perfquet-record.
    pub(super) filter: Option<String>,
    /// Purpose of the hits, recorded by perfquet-record.
    pub(super) purpose: Purpose,
    /// ID in the event stream, once declared.
    pub(super) id: Option<EventId>,
    /// Decoders of the fields, once declared.
    pub(super) plan: Plan,
    /// Whether its samples are records of perfquet-record; determined by the first one.
    pub(super) is_wire: Option<bool>,
    /// Whether its samples have only their members; determined by the first one.
    is_exact: Cell<Option<bool>>,
    /// Number of hits without a sample, of a tracepoint that is sampled at a rate; `None`: every hit is recorded.
    pub(super) unsampled: Option<Cell<u64>>,
    /// Where its samples have their members, if these are the usual ones.
    usual: Option<UsualLayout>,
}

/// Offsets of the timestamp and the ID in all samples of a little-endian file, in bytes from the start of the record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    pub(super) time: usize,
    /// `None`: the file has one event.
    pub(super) id: Option<usize>,
}

/// Names that are not in the attrs.
#[derive(Default)]
pub(super) struct Names {
    /// Names of PMUs by type.
    pub(super) pmus: HashMap<u32, String>,
    /// Names and IDs of EVENT_DESC, in the order of the attrs.
    pub(super) descriptions: Vec<(String, Vec<u64>)>,
    /// Names of HEADER_EVENT_TYPE (obsolete), by config.
    pub(super) event_types: HashMap<u64, String>,
    /// Names of simpleperf's meta information, by type and config.
    pub(super) simpleperf: HashMap<(u32, u64), String>,
}

/// Event types declared so far.
#[derive(Default)]
pub(super) struct Declared {
    pub(super) count: u32,
    /// perf's own event types, by index.
    pub(super) recorder: [Option<EventId>; recorder::COUNT],
}

impl CatalogEvent {
    fn new(attr: Attr) -> CatalogEvent {
        CatalogEvent {
            usual: UsualLayout::of(&attr),
            attr,
            name: None,
            filter: None,
            purpose: Purpose::default(),
            id: None,
            plan: Plan::default(),
            is_wire: None,
            is_exact: Cell::new(None),
            unsampled: None,
        }
    }

    /// Adds the hits that a sample stands for, besides its own.
    #[inline]
    pub(super) fn add_unsampled(&self, period: Option<u64>) {
        if let (Some(sum), Some(period)) = (&self.unsampled, period) {
            sum.set(sum.get().saturating_add(period.saturating_sub(1)));
        }
    }

    /// Where its samples have their members, if these are the usual ones, and the first had no other bytes.
    #[inline]
    pub(super) fn usual(&self) -> Option<&UsualLayout> {
        let is_known = self.is_wire == Some(false) && self.is_exact.get() == Some(true);
        self.usual.as_ref().filter(|_| is_known)
    }

    /// Whether a sample has bytes after its members exactly if the first sample of the event had. A newer kernel may
    /// write unknown members, but then in all samples.
    #[inline]
    pub(super) fn is_filled(&self, is_filled: bool) -> bool {
        match self.is_exact.get() {
            Some(true) => is_filled,
            Some(false) => true,
            None => {
                self.is_exact.set(Some(is_filled));
                true
            }
        }
    }
}

impl Catalog {
    pub(super) fn new(endian: Endian) -> Catalog {
        Catalog {
            endian,
            events: Vec::new(),
            places: None,
            ids: Ids::default(),
            has_build_ids: false,
            has_mappings: false,
            is_damaged: false,
            is_listed: false,
            is_switched: false,
            names: Names::default(),
            formats: Formats::new(endian),
            functions: HashMap::new(),
            declared: Declared::default(),
        }
    }

    /// Adds an event with the IDs of its counters. The first event determines the clock.
    pub(super) fn add(
        &mut self,
        attr: Attr,
        ids: impl IntoIterator<Item = u64>,
        out: &mut Output<'_>,
    ) -> Result<(), Error> {
        let index = self.events.len();
        let mut ids = ids.into_iter().peekable();
        if index == 0 {
            // The kernel never numbers two counters alike, so a new recording has others. Rotated files have the same.
            if let Some(id) = ids.peek() {
                out.fact(Fact::Recording(&format!("perf event {id}")))?;
            }
            out.fact(Fact::Clock(attr.clock()))?;
        }
        for id in ids {
            self.ids.insert(id, index);
        }
        self.has_build_ids |= attr.build_id();
        self.has_mappings |= attr.mmap();
        self.events.push(CatalogEvent::new(attr));
        self.places = self.find_places();
        Ok(())
    }

    /// Adds an ID of an existing event.
    pub(super) fn add_id(&mut self, id: u64, index: usize) {
        if index < self.events.len() {
            self.ids.insert(id, index);
        }
    }

    fn find_places(&self) -> Option<Places> {
        let first = self.events.first()?.attr.layout;
        let latest = self.events.last()?.attr.layout;
        // The others agreed with the first when they were added.
        let is_alike = (latest.time, latest.id) == (first.time, first.id)
            && (self.events.len() <= 2 || self.places.is_some());
        if self.endian != Endian::Little || !is_alike {
            return None;
        }
        let id = match self.has_one_event() {
            true => None,
            false => Some(HEADER_BYTES + first.id?),
        };
        Some(Places {
            time: HEADER_BYTES + first.time?,
            id,
        })
    }

    /// The offsets of the timestamp and the ID in all samples, if they agree.
    #[inline]
    pub(super) fn places(&self) -> Option<Places> {
        self.places.filter(|_| !self.is_damaged)
    }

    /// The event of a sample, if all samples have their IDs at the same place.
    #[inline]
    pub(super) fn usual_event(&self, record: &[u8]) -> Option<&CatalogEvent> {
        let index = match self.places()?.id {
            None => 0,
            Some(at) => self.ids.get(Endian::Little.u64_at(record, at)?)?,
        };
        self.events.get(index)
    }

    /// Whether all records belong to one event, whatever their IDs are.
    #[inline]
    pub(super) fn has_one_event(&self) -> bool {
        self.events.len() == 1 && !self.is_damaged
    }

    /// Whether an event requests build IDs in the records of mappings.
    pub(super) fn has_build_ids(&self) -> bool {
        self.has_build_ids
    }

    /// Whether mappings are recorded.
    pub(super) fn has_mappings(&self) -> bool {
        self.has_mappings
    }

    /// Whether an event has this id.
    #[inline]
    pub(super) fn has_id(&self, id: u64) -> bool {
        self.ids.get(id).is_some()
    }

    /// Whether the event has this ID.
    pub(super) fn is_id_of(&self, id: u64, index: usize) -> bool {
        self.ids.get(id) == Some(index)
    }

    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &CatalogEvent> {
        self.events.iter()
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&CatalogEvent> {
        self.events.get(index)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut CatalogEvent> {
        self.events.get_mut(index)
    }

    /// Returns the index of the event of a record with this ID; `None` if unknown.
    #[inline]
    pub(super) fn index_of_id(&self, id: Option<u64>) -> Option<usize> {
        if self.events.len() <= 1 && !self.is_damaged || self.ids.is_empty() {
            return (!self.events.is_empty()).then_some(0);
        }
        match id {
            None | Some(0) => Some(0),
            Some(id) => self.ids.get(id),
        }
    }

    /// Returns the index of a record's event. perf ensures that all attrs have the ID at the same position.
    #[inline]
    pub(super) fn index_of(&self, header: RecordHeader, record: &[u8]) -> Option<usize> {
        let layout = &self.events.first()?.attr.layout;
        if self.has_one_event() {
            return Some(0);
        }
        let id = if header.kind == kind::SAMPLE {
            layout
                .id
                .and_then(|offset| self.endian.u64_at(record, HEADER_BYTES + offset))
        } else {
            let record = self.written(header, record);
            let offset = layout.id_from_end;
            offset.and_then(|offset| self.word_from_end(record, offset))
        };
        self.index_of_id(id)
    }

    /// Returns the time of a record, if it has one.
    #[inline]
    pub(super) fn time_of(&self, header: RecordHeader, record: &[u8]) -> Option<u64> {
        // Records written by perf itself have no trailer.
        if header.kind > kind::KERNEL_LAST {
            return None;
        }
        let layout = &self.get(self.index_of(header, record)?)?.attr.layout;
        if header.kind == kind::SAMPLE {
            return self.endian.u64_at(record, HEADER_BYTES + layout.time?);
        }
        match layout.time_from_end {
            Some(offset) => self.word_from_end(self.written(header, record), offset),
            // Without a trailer, these two have a time in their body.
            None if matches!(header.kind, kind::FORK | kind::EXIT) => {
                self.endian.u64_at(record, 24)
            }
            None => None,
        }
    }

    #[inline]
    fn word_from_end(&self, record: &[u8], offset: usize) -> Option<u64> {
        let offset = record.len().checked_sub(offset)?;
        self.endian.u64_at(record, offset)
    }

    /// Returns the part of a kernel record that the kernel wrote. All attrs have trailers of the same size.
    #[inline]
    fn written<'r>(&self, header: RecordHeader, record: &'r [u8]) -> &'r [u8] {
        let trailer_bytes = self
            .events
            .first()
            .map_or(0, |event| event.attr.layout.trailer_bytes);
        written(header, record, trailer_bytes, self.endian)
    }

    /// Splits the trailer from the body of a record that is not a sample. `offset` is that of the body.
    pub(super) fn split<'r>(
        &self,
        header: RecordHeader,
        record: &'r [u8],
        offset: u64,
        event: Option<&CatalogEvent>,
    ) -> Result<(Cursor<'r>, Trailer), Short> {
        let body = self.written(header, record).get(HEADER_BYTES..);
        let attr = event.map(|event| &event.attr);
        Trailer::split(body.unwrap_or_default(), offset, self.endian, attr)
    }
}
