//! Declaration of event types: those with attrs in the file, and perf's own.
//!
//! A type is declared when the first event of it, or of its system, is emitted, or at the end. By then, names (EVENT_DESC, EVENT_UPDATE,
//! simpleperf's meta information) and formats (tracing data), which follow the attrs in a pipe, are known.

use std::cell::Cell;

use perfquet_events::Error;
use perfquet_events::event::{
    Event, EventId, EventKind, EventType, Extras, Field, FieldPlace, FieldType, Layout, Plan,
};
use perfquet_events::event_format::EventFormat;

use crate::perf_data::attr::{Attr, event_type, sample_type};
use crate::perf_data::catalog::{Catalog, CatalogEvent, Declared};
use crate::perf_data::names;
use crate::perf_data::output::Output;
use crate::perf_data::recorder::RecorderEvent;

impl Catalog {
    /// Returns the ID of an event in the stream; declares it if necessary.
    #[inline]
    pub(super) fn event_of(
        &mut self,
        index: usize,
        out: &mut Output<'_>,
    ) -> Result<EventId, Error> {
        match self.get(index).and_then(|event| event.id) {
            Some(id) => Ok(id),
            None => self.declare(index, out),
        }
    }

    /// Returns the same for the event with this ID; `None` if it is unknown.
    pub(super) fn event_of_id(
        &mut self,
        id: Option<u64>,
        out: &mut Output<'_>,
    ) -> Result<Option<EventId>, Error> {
        match self.index_of_id(id) {
            Some(index) => self.event_of(index, out).map(Some),
            None => Ok(None),
        }
    }

    /// Declares an event, and the other tracepoints of its system: both edges of a call are known from the first hit on, also if a
    /// filter holds back the hits of one of them.
    #[cold]
    fn declare(&mut self, index: usize, out: &mut Output<'_>) -> Result<EventId, Error> {
        let id = self.declare_one(index, out)?;
        if let Some(system) = self.system_of(index) {
            for other in 0..self.len() {
                let is_new = self.get(other).is_some_and(|event| event.id.is_none());
                if is_new && self.system_of(other).as_ref() == Some(&system) {
                    self.declare_one(other, out)?;
                }
            }
        }
        Ok(id)
    }

    /// Returns the system of a tracepoint.
    fn system_of(&self, index: usize) -> Option<String> {
        let event = self.get(index)?;
        if event.attr.kind != event_type::TRACEPOINT {
            return None;
        }
        let name = self.name_of(index);
        name.split_once(':').map(|(system, _)| system.to_owned())
    }

    fn declare_one(&mut self, index: usize, out: &mut Output<'_>) -> Result<EventId, Error> {
        let id = self.declared.next();
        let declared = match self.get(index) {
            Some(event) => self.event_type(index, event),
            None => EventType::default(),
        };
        if let Some(event) = self.get_mut(index) {
            event.id = Some(id);
            event.plan = Plan::new(&declared.fields, declared.big_endian);
            let is_thinned = event.attr.kind == event_type::TRACEPOINT
                && event.attr.freq()
                && !counts_itself(&declared.system, &declared.name);
            event.unsampled = is_thinned.then(Cell::default);
        }
        out.event(Event::Type(&declared))?;
        Ok(id)
    }

    /// Returns the name of the event with this ID, for perf's own tables; empty if unknown.
    pub(super) fn name_of_id(&self, id: Option<u64>) -> String {
        match self.index_of_id(id) {
            Some(index) => self.name_of(index),
            None => String::new(),
        }
    }

    /// Returns the name of the event: "cycles:u", "sched:sched_switch".
    pub(super) fn name_of(&self, index: usize) -> String {
        let Some(CatalogEvent { attr, name, .. }) = self.get(index) else {
            return String::new();
        };
        if let Some(name) = name.as_ref().or_else(|| self.described_name(index)) {
            return name.clone();
        }
        if let Some(name) = self.names.simpleperf.get(&(attr.kind, attr.config)) {
            return name.clone();
        }
        if attr.kind == event_type::TRACEPOINT
            && let Some((system, format)) = self.formats.get(attr.config)
        {
            return format!("{system}:{}", format.name);
        }
        // The old table has only the config, which is unique for these two types.
        if matches!(attr.kind, event_type::TRACEPOINT | event_type::RAW)
            && let Some(name) = self.names.event_types.get(&attr.config)
        {
            return name.clone();
        }
        names::synthesize(attr, self.pmu_of(attr))
    }

    /// Returns the name from EVENT_DESC, which lists the events with their IDs or, without IDs, in the order of the
    /// attrs.
    fn described_name(&self, index: usize) -> Option<&String> {
        let descriptions = &self.names.descriptions;
        let is_own = |ids: &[u64]| ids.iter().any(|id| self.is_id_of(*id, index));
        let by_id = descriptions.iter().find(|(_, ids)| is_own(ids));
        let by_order = descriptions
            .get(index)
            .filter(|_| descriptions.len() == self.len());
        by_id
            .or(by_order)
            .map(|(name, _)| name)
            .filter(|name| !name.is_empty())
    }

    fn pmu_of(&self, attr: &Attr) -> Option<&str> {
        self.names.pmus.get(&attr.kind).map(String::as_str)
    }

    fn event_type(&self, index: usize, event: &CatalogEvent) -> EventType {
        let attr = &event.attr;
        let name = self.name_of(index);
        let period = (attr.sample_period > 0).then_some(attr.sample_period);
        let mut declared = EventType {
            big_endian: self.formats.is_big_endian,
            period: period.filter(|_| !attr.freq()),
            frequency: period.filter(|_| attr.freq()),
            filter: event.filter.clone(),
            purpose: event.purpose.clone(),
            extras: extras(attr),
            is_inherited: attr.inherit() && attr.has(sample_type::TID),
            ..EventType::default()
        };
        let is_tracepoint = attr.kind == event_type::TRACEPOINT;
        let format = self.formats.get(attr.config).filter(|_| is_tracepoint);
        if is_tracepoint {
            describe_tracepoint(attr, name, format, &mut declared);
        } else {
            let pmu = self.pmu_of(attr);
            declared.system = names::system(attr, pmu);
            declared.kind = names::kind(attr, pmu);
            declared.name = name;
        }
        if attr.has(sample_type::RAW) && format.is_none() {
            declared.fields = vec![raw_field()];
        }
        declared
    }
}

impl Declared {
    fn next(&mut self) -> EventId {
        let id = EventId(self.count);
        self.count += 1;
        id
    }

    /// Returns one of perf's own events; declares it if necessary.
    pub(super) fn recorder_event(
        &mut self,
        event: RecorderEvent,
        out: &mut Output<'_>,
    ) -> Result<EventId, Error> {
        if let Some(Some(id)) = self.recorder.get(event.index()) {
            return Ok(*id);
        }
        let id = self.next();
        if let Some(slot) = self.recorder.get_mut(event.index()) {
            *slot = Some(id);
        }
        out.event(Event::Type(&event.event_type()))?;
        Ok(id)
    }
}

fn describe_tracepoint(
    attr: &Attr,
    name: String,
    format: Option<&(String, EventFormat)>,
    declared: &mut EventType,
) {
    (declared.system, declared.name) = match (name.split_once(':'), format) {
        (Some((system, name)), _) => (system.to_owned(), name.to_owned()),
        (None, Some((system, _))) => (system.clone(), name),
        (None, None) => (String::new(), name),
    };
    declared.extras.period |= counts_itself(&declared.system, &declared.name);
    match format {
        Some((_, format)) => {
            declared.kind = format.kind(&declared.system);
            declared.print_format = format.print_format.clone();
            if attr.has(sample_type::RAW) {
                declared.fields = format.fields.clone();
                declared.fields.extend(format.flags());
            }
        }
        None => declared.kind = kind_by_name(&declared.system, &declared.name),
    }
}

/// Without a format, the payload is stored as bytes.
fn raw_field() -> Field {
    Field {
        name: "raw".into(),
        kind: FieldType::Binary,
        layout: Some(Layout {
            offset: 0,
            size: 0,
            place: FieldPlace::Rest,
        }),
        declaration: "payload without a known format".into(),
    }
}

/// Derives the kind from perf's naming of probes, if the format is missing.
fn kind_by_name(system: &str, name: &str) -> EventKind {
    let at_return = name.contains("__return");
    match system {
        "probe" if at_return => EventKind::Kretprobe,
        "probe" => EventKind::Kprobe,
        _ if system.starts_with("probe_") && at_return => EventKind::Uretprobe,
        _ if system.starts_with("probe_") => EventKind::Uprobe,
        _ if system.starts_with("sdt_") => EventKind::Usdt,
        _ => EventKind::Tracepoint,
    }
}

/// Whether a hit of the tracepoint counts more than one regardless of the period: nanoseconds of running or waiting
/// (`__perf_count` in include/trace/events/sched.h).
fn counts_itself(system: &str, name: &str) -> bool {
    system == "sched" && name.starts_with("sched_stat_")
}

fn extras(attr: &Attr) -> Extras {
    use sample_type::*;
    Extras {
        period: attr.freq() || attr.sample_period > 1,
        addr: attr.has(ADDR),
        weight: attr.has(WEIGHT | WEIGHT_STRUCT),
        data_src: attr.has(DATA_SRC),
        phys_addr: attr.has(PHYS_ADDR),
        cgroup: attr.has(CGROUP),
    }
}
