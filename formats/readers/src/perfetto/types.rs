//! Event types that are declared when they are first needed.

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::event::{
    Event, EventId, EventKind, EventType, Field, FieldType, Purpose, Sink,
};

/// Event types; more have one table without columns.
const TYPES_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Declared {
    ids: HashMap<Key, EventId>,
    other: Option<EventId>,
    count: u32,
    /// Whether events are edges of calls, too.
    pub(super) purpose: Purpose,
}

/// System, name, columns.
type Key = (String, String, Vec<(String, FieldType)>);

impl Declared {
    pub(super) fn declare(
        &mut self,
        event_type: &EventType,
        sink: &mut dyn Sink,
    ) -> Result<EventId, Error> {
        let id = EventId(self.count);
        self.count += 1;
        sink.event(Event::Type(&EventType {
            purpose: self.purpose.clone(),
            ..event_type.clone()
        }))?;
        Ok(id)
    }

    /// The type with this name and these columns.
    pub(super) fn of(
        &mut self,
        (system, name): (&str, &str),
        kind: EventKind,
        columns: Vec<(String, FieldType)>,
        sink: &mut dyn Sink,
    ) -> Result<EventId, Error> {
        let key = (system.to_owned(), name.to_owned(), columns);
        if let Some(id) = self.ids.get(&key) {
            return Ok(*id);
        }
        if self.ids.len() >= TYPES_MAX {
            return match self.other {
                Some(id) => Ok(id),
                None => {
                    let id = self.declare(&of("perfetto", "other", kind, &[]), sink)?;
                    Ok(*self.other.insert(id))
                }
            };
        }
        let id = self.declare(&of(system, name, kind, &key.2), sink)?;
        self.ids.insert(key, id);
        Ok(id)
    }
}

fn of(system: &str, name: &str, kind: EventKind, columns: &[(String, FieldType)]) -> EventType {
    let fields = columns.iter().map(|(name, kind)| Field {
        name: name.clone(),
        kind: *kind,
        layout: None,
        declaration: String::new(),
    });
    EventType {
        system: system.to_owned(),
        name: name.to_owned(),
        kind,
        fields: fields.collect(),
        ..EventType::default()
    }
}
