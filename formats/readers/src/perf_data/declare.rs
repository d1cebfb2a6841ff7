//! Declares event types: the events that the file has attrs for, and perf's own.
//!
//! A type is declared when its first event is handed over, or at the end. By then names (EVENT_DESC, EVENT_UPDATE,
//! simpleperf's meta information) and formats (tracing data) are known, which in a pipe come after the attrs.

use perfquet_events::Error;
use perfquet_events::event::{
    Event, EventId, EventKind, EventType, Extras, Field, FieldPlace, FieldType, Layout, Plan,
};

use crate::perf_data::attr::{Attr, event_type, sample_type};
use crate::perf_data::names;
use crate::perf_data::read::Session;
use crate::perf_data::recorder::RecorderEvent;

impl Session<'_, '_> {
    /// The event of an attr; declares it if need be.
    #[inline]
    pub(super) fn event_of(&mut self, index: usize) -> Result<EventId, Error> {
        match self.attrs.get(index).and_then(|attr| attr.event) {
            Some(event) => Ok(event),
            None => self.declare(index),
        }
    }

    #[cold]
    fn declare(&mut self, index: usize) -> Result<EventId, Error> {
        let event = self.next_event();
        let event_type = self.event_type(index);
        if let Some(attr) = self.attrs.get_mut(index) {
            attr.event = Some(event);
            attr.plan = Plan::new(&event_type.fields, event_type.big_endian);
        }
        self.sink.event(Event::Type(&event_type))?;
        Ok(event)
    }

    /// One of perf's own events; declares it if need be.
    pub(super) fn recorder_event(&mut self, event: RecorderEvent) -> Result<EventId, Error> {
        if let Some(Some(id)) = self.recorder_events.get(event.index()) {
            return Ok(*id);
        }
        let id = self.next_event();
        if let Some(slot) = self.recorder_events.get_mut(event.index()) {
            *slot = Some(id);
        }
        self.sink.event(Event::Type(&event.event_type()))?;
        Ok(id)
    }

    fn next_event(&mut self) -> EventId {
        let event = EventId(self.event_count);
        self.event_count += 1;
        event
    }

    /// Name of the event with this id, for perf's own tables; empty if there is none.
    pub(super) fn name_of_id(&mut self, id: Option<u64>) -> Result<String, Error> {
        Ok(match self.attr_of_id(id) {
            Some(index) => self.name_of(index),
            None => String::new(),
        })
    }

    /// What the event is called: "cycles:u", "sched:sched_switch".
    pub(super) fn name_of(&self, index: usize) -> String {
        let Some(attr) = self.attrs.get(index) else {
            return String::new();
        };
        if let Some(name) = attr.name.as_ref().or_else(|| self.described_name(index)) {
            return name.clone();
        }
        if let Some(name) = self.simpleperf.name(attr.kind, attr.config) {
            return name.to_owned();
        }
        if attr.kind == event_type::TRACEPOINT
            && let Some((system, format)) = self.formats.get(&attr.config)
        {
            return format!("{system}:{}", format.name);
        }
        // The old table knows only the config, which is unique for these two.
        if matches!(attr.kind, event_type::TRACEPOINT | event_type::RAW)
            && let Some(name) = self.type_names.get(&attr.config)
        {
            return name.clone();
        }
        names::synthesize(attr, self.pmu_of(attr))
    }

    /// EVENT_DESC lists the events with their ids, or, where there are none, in the order of the attrs.
    fn described_name(&self, index: usize) -> Option<&String> {
        let is_own = |ids: &[u64]| ids.iter().any(|id| self.ids.get(*id) == Some(index));
        let by_id = self.descriptions.iter().find(|(_, ids)| is_own(ids));
        let by_order = self
            .descriptions
            .get(index)
            .filter(|_| self.descriptions.len() == self.attrs.len());
        by_id
            .or(by_order)
            .map(|(name, _)| name)
            .filter(|name| !name.is_empty())
    }

    fn pmu_of(&self, attr: &Attr) -> Option<&str> {
        self.pmus.get(&attr.kind).map(String::as_str)
    }

    fn event_type(&self, index: usize) -> EventType {
        let Some(attr) = self.attrs.get(index) else {
            return EventType::default();
        };
        let name = self.name_of(index);
        let period = (attr.sample_period > 0).then_some(attr.sample_period);
        let mut declared = EventType {
            big_endian: self.is_payload_big,
            period: period.filter(|_| !attr.freq()),
            frequency: period.filter(|_| attr.freq()),
            filter: attr.filter.clone(),
            purpose: attr.purpose.clone(),
            extras: extras(attr),
            is_inherited: attr.inherit() && attr.has(sample_type::TID),
            ..EventType::default()
        };
        if attr.kind == event_type::TRACEPOINT {
            self.describe_tracepoint(attr, name, &mut declared);
        } else {
            let pmu = self.pmu_of(attr);
            declared.system = names::system(attr, pmu);
            declared.kind = names::kind(attr, pmu);
            declared.name = name;
        }
        let has_format =
            attr.kind == event_type::TRACEPOINT && self.formats.contains_key(&attr.config);
        if attr.has(sample_type::RAW) && !has_format {
            declared.fields = vec![raw_field()];
        }
        declared
    }

    fn describe_tracepoint(&self, attr: &Attr, name: String, declared: &mut EventType) {
        let known = self.formats.get(&attr.config);
        (declared.system, declared.name) = match (name.split_once(':'), known) {
            (Some((system, name)), _) => (system.to_owned(), name.to_owned()),
            (None, Some((system, _))) => (system.clone(), name),
            (None, None) => (String::new(), name),
        };
        declared.extras.period |= counts_itself(&declared.system, &declared.name);
        match known {
            Some((_, format)) => {
                declared.kind = format.kind(&declared.system);
                declared.print_format = format.print_format.clone();
                if attr.has(sample_type::RAW) {
                    declared.fields = format.fields.clone();
                }
            }
            None => declared.kind = kind_by_name(&declared.system, &declared.name),
        }
    }
}

/// Without its format the payload is kept as it is.
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

/// perf's own naming of probes, where the format is missing.
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

/// Tracepoints whose hit counts for more than one, whatever period was requested: nanoseconds of running or waiting
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
