//! Event types: one for each category and name of hits, with the columns of their arguments.

use std::borrow::Cow;

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::event::{
    Event, EventId, EventKind, EventType, Field, FieldType, Purpose, Sink,
};

use crate::json::{inside, members};

/// Events with a table each.
const TYPES_MAX: usize = 1000;
/// Columns of arguments.
const COLUMNS_MAX: usize = 64;

/// Category and name.
pub(super) type Key<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// An event with its columns.
#[derive(Debug, Default)]
pub(super) struct Type {
    pub(super) columns: Vec<(Vec<u8>, FieldType)>,
    /// Whether a column for the phase and the ID is needed.
    pub(super) has_phase: bool,
}

/// All events.
#[derive(Debug, Default)]
pub(super) struct Types<'a> {
    by_key: HashMap<Key<'a>, usize>,
    types: Vec<(Key<'a>, Type)>,
    /// Whether a hit has no separate table.
    pub(super) has_other: bool,
    /// Arguments that have no column, since their event has too many.
    pub(super) dropped: u64,
}

/// Columns of hits without a separate table.
pub(super) const OTHER: [&str; 5] = ["phase", "category", "name", "id", "args"];

impl<'a> Types<'a> {
    /// Notes a hit and its arguments; `is_cpu`: the first is no column.
    pub(super) fn note(&mut self, key: Key<'a>, has_phase: bool, (args, is_cpu): (&[u8], bool)) {
        let place = match self.by_key.get(&key) {
            Some(&place) => place,
            None if self.types.len() >= TYPES_MAX => {
                self.has_other = true;
                return;
            }
            None => {
                let place = self.types.len();
                self.by_key.insert(key.clone(), place);
                self.types.push((key, Type::default()));
                place
            }
        };
        let Some((_, found)) = self.types.get_mut(place) else {
            return;
        };
        found.has_phase |= has_phase;
        let columns = &mut found.columns;
        for (name, value) in members(args).skip(usize::from(is_cpu)) {
            let kind = kind_of(value);
            let is_full = columns.len() >= COLUMNS_MAX;
            match columns.iter_mut().find(|(other, _)| other == name) {
                Some((_, known)) => *known = both(*known, kind),
                None if is_full => self.dropped += 1,
                None => columns.push((name.to_vec(), kind)),
            }
        }
    }

    /// The event of a hit; `None` if it has no separate table.
    pub(super) fn of(&self, key: Key<'a>) -> Option<(EventId, &Type)> {
        let place = *self.by_key.get(&key)?;
        let (_, found) = self.types.get(place)?;
        Some((EventId(u32::try_from(place).ok()?), found))
    }

    /// The event of all other hits.
    pub(super) fn other(&self) -> EventId {
        EventId(u32::try_from(self.types.len()).unwrap_or(u32::MAX))
    }

    /// The ID of the next event after all of them.
    pub(super) fn next(&self) -> EventId {
        EventId(self.other().0.saturating_add(u32::from(self.has_other)))
    }

    /// `is_ours`: calls that follow from other events are in the file, too.
    pub(super) fn declare(&self, is_ours: bool, sink: &mut dyn Sink) -> Result<(), Error> {
        for ((category, name), of_type) in &self.types {
            let mut fields = Vec::new();
            if of_type.has_phase {
                fields.push(field("phase", FieldType::Text));
                fields.push(field("id", FieldType::Text));
            }
            for (name, kind) in &of_type.columns {
                fields.push(field(&String::from_utf8_lossy(name), *kind));
            }
            // The first of several categories: `node,node.bootstrap`.
            let first = category.split(|&byte| byte == b',').next();
            let system = match first.unwrap_or_default() {
                b"" => "chrome".into(),
                first => String::from_utf8_lossy(first),
            };
            let name = &String::from_utf8_lossy(name);
            declare(sink, (&system, name), fields, is_ours)?;
        }
        if self.has_other {
            let fields = OTHER.map(|name| field(name, FieldType::Text));
            declare(sink, ("chrome", "other"), fields.to_vec(), is_ours)?;
        }
        Ok(())
    }
}

fn declare(
    sink: &mut dyn Sink,
    (system, name): (&str, &str),
    fields: Vec<Field>,
    is_ours: bool,
) -> Result<(), Error> {
    sink.event(Event::Type(&EventType {
        system: system.to_owned(),
        name: name.to_owned(),
        kind: EventKind::Marker,
        fields,
        purpose: match is_ours {
            true => Purpose::RowsOnly,
            false => Purpose::Rows,
        },
        ..EventType::default()
    }))
}

fn field(name: &str, kind: FieldType) -> Field {
    Field {
        name: name.to_owned(),
        kind,
        layout: None,
        declaration: String::new(),
    }
}

/// The type of a value; objects and arrays stay JSON.
fn kind_of(value: &[u8]) -> FieldType {
    match value.first() {
        Some(b't' | b'f') => FieldType::Bool,
        Some(b'-' | b'0'..=b'9') if crate::lines::signed(value).is_some() => FieldType::Int(8),
        Some(b'-' | b'0'..=b'9') => FieldType::Float,
        _ => FieldType::Text,
    }
}

/// The type of a column with values of both types.
fn both(one: FieldType, other: FieldType) -> FieldType {
    match (one, other) {
        (one, other) if one == other => one,
        (FieldType::Int(_), FieldType::Float) | (FieldType::Float, FieldType::Int(_)) => {
            FieldType::Float
        }
        _ => FieldType::Text,
    }
}

/// Whether a value is missing.
pub(super) fn is_null(value: &[u8]) -> bool {
    value == b"null" && inside(value).is_none()
}
