//! The events of a recording: how each was opened, whose an id is, what is known of their names and payloads.
//!
//! The events come with the attrs of a file or the first records of a pipe. Everything else is added as it is found:
//! names (EVENT_DESC, EVENT_UPDATE, simpleperf), formats (tracing data). What each is called and declared as is decided
//! in `declare.rs`, when its first sample is handed over.

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
    /// The samples of all events have their times and IDs at the same places.
    is_alike: bool,
    /// Index of the event that an id belongs to.
    ids: Ids,
    /// The list of events is damaged: others may be missing.
    pub(super) is_damaged: bool,
    pub(super) names: Names,
    pub(super) formats: Formats,
    /// Functions whose calls a BPF program reports, by number.
    pub(super) functions: HashMap<u32, CallFunction>,
    pub(super) declared: Declared,
}

/// One event.
pub(super) struct CatalogEvent {
    pub(super) attr: Attr,
    /// Its name, if a record gave it.
    pub(super) name: Option<String>,
    /// The kernel's filter, given by perfquet-record.
    pub(super) filter: Option<String>,
    /// The purpose of its hits, given by perfquet-record.
    pub(super) purpose: Purpose,
    /// Its number in the stream of events, once it is declared there.
    pub(super) id: Option<EventId>,
    /// Decoders of its fields, once it is declared.
    pub(super) plan: Plan,
    /// Its samples are perfquet-record's own records; found out at the first.
    pub(super) is_wire: Option<bool>,
    /// Its samples have no bytes but their members; found out at the first.
    is_exact: Cell<Option<bool>>,
    /// Where its samples have their members, if these are the usual ones.
    usual: Option<UsualLayout>,
}

/// Names that come apart from the attrs.
#[derive(Default)]
pub(super) struct Names {
    /// Of PMUs by type.
    pub(super) pmus: HashMap<u32, String>,
    /// EVENT_DESC: name and ids, in the order of the attrs.
    pub(super) descriptions: Vec<(String, Vec<u64>)>,
    /// HEADER_EVENT_TYPE, obsolete: by config.
    pub(super) event_types: HashMap<u64, String>,
    /// simpleperf's meta information: by type and config.
    pub(super) simpleperf: HashMap<(u32, u64), String>,
}

/// Event types declared so far.
#[derive(Default)]
pub(super) struct Declared {
    pub(super) count: u32,
    /// perf's own, by their place.
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
        }
    }

    /// Where its samples have their members, if these are the usual ones, and the first had no other bytes.
    #[inline]
    pub(super) fn usual(&self) -> Option<&UsualLayout> {
        let is_known = self.is_wire == Some(false) && self.is_exact.get() == Some(true);
        self.usual.as_ref().filter(|_| is_known)
    }

    /// Whether a sample that its members fill, or do not, is like the first of this event. A newer kernel may
    /// write members that are not known here, but then into all of them.
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
            is_alike: true,
            ids: Ids::default(),
            is_damaged: false,
            names: Names::default(),
            formats: Formats::new(endian),
            functions: HashMap::new(),
            declared: Declared::default(),
        }
    }

    /// Adds an event with the ids of its counters. The first says which clock the recording has.
    pub(super) fn add(
        &mut self,
        attr: Attr,
        ids: impl IntoIterator<Item = u64>,
        out: &mut Output<'_>,
    ) -> Result<(), Error> {
        let index = self.events.len();
        for id in ids {
            self.ids.insert(id, index);
        }
        if index == 0 {
            out.fact(Fact::Clock(attr.clock()))?;
        }
        let places = |attr: &Attr| (attr.layout.time, attr.layout.id);
        let first = self.events.first().map(|first| places(&first.attr));
        self.is_alike &= first.is_none_or(|first| first == places(&attr));
        self.events.push(CatalogEvent::new(attr));
        Ok(())
    }

    /// Adds an id of an event that is there.
    pub(super) fn add_id(&mut self, id: u64, index: usize) {
        if index < self.events.len() {
            self.ids.insert(id, index);
        }
    }

    /// Whether the samples of all events have their times and IDs at the same places.
    #[inline]
    pub(super) fn is_alike(&self) -> bool {
        self.is_alike
    }

    /// Whether all records belong to one event, whatever their IDs are.
    #[inline]
    pub(super) fn has_one_event(&self) -> bool {
        self.events.len() == 1 && !self.is_damaged
    }

    /// Whether an event has this id.
    #[inline]
    pub(super) fn has_id(&self, id: u64) -> bool {
        self.ids.get(id).is_some()
    }

    /// Whether this event has this id.
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

    /// Index of the event that a record with this id belongs to. Unknown: `None`.
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

    /// Index of the event of a record. All attrs have their ids at the same place: perf sees to it.
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

    /// Time of a record, if it has one.
    #[inline]
    pub(super) fn time_of(&self, header: RecordHeader, record: &[u8]) -> Option<u64> {
        // What perf writes itself has no trailer.
        if header.kind > kind::KERNEL_LAST {
            return None;
        }
        let layout = &self.get(self.index_of(header, record)?)?.attr.layout;
        if header.kind == kind::SAMPLE {
            return self.endian.u64_at(record, HEADER_BYTES + layout.time?);
        }
        match layout.time_from_end {
            Some(offset) => self.word_from_end(self.written(header, record), offset),
            // Without a trailer these two still have their own.
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

    /// The part of a kernel's record that the kernel has written. All attrs have trailers of the same size.
    #[inline]
    fn written<'r>(&self, header: RecordHeader, record: &'r [u8]) -> &'r [u8] {
        let trailer_bytes = self
            .events
            .first()
            .map_or(0, |event| event.attr.layout.trailer_bytes);
        written(header, record, trailer_bytes, self.endian)
    }

    /// Takes the body of a record of this event that is no sample apart from its trailer. `offset` is that of the body.
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
