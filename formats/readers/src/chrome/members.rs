//! The members of an event.
//!
//! ```text
//! {"ph":"X","cat":"calls","name":"read","pid":7,"tid":7,"ts":1.5,"dur":20,"args":{"fd":3}}
//! ```

use std::borrow::Cow;

use crate::json::{Scanner, members, nanoseconds, text};

/// An event with the members that are needed of it.
#[derive(Debug, Default, Clone)]
pub(super) struct Members<'a> {
    pub(super) phase: &'a [u8],
    pub(super) name: Cow<'a, [u8]>,
    pub(super) category: Cow<'a, [u8]>,
    pub(super) time: Option<i64>,
    pub(super) duration: Option<i64>,
    pub(super) pid: Option<&'a [u8]>,
    pub(super) tid: Option<&'a [u8]>,
    pub(super) id: Option<&'a [u8]>,
    pub(super) args: &'a [u8],
    /// ID of the stack's frame, innermost.
    pub(super) frame: Option<&'a [u8]>,
    /// Of samples.
    pub(super) cpu: Option<&'a [u8]>,
    pub(super) weight: Option<&'a [u8]>,
}

impl<'a> Members<'a> {
    /// Takes an event; `None` at the end of the text, or if it ends inside of the event. Other values have no members.
    pub(super) fn take(scanner: &mut Scanner<'a>) -> Option<Members<'a>> {
        let mut found = Members::default();
        let mut inside = *scanner;
        if inside.take(b'{') {
            while let Some(key) = inside.next_key() {
                match inside.value() {
                    Some(value) => found.add(key, value),
                    None => break,
                }
            }
            if inside.take(b'}') {
                *scanner = inside;
                return Some(found);
            }
        }
        // Damaged, or none: up to where its brackets close.
        let value = scanner.value()?;
        let mut found = Members::default();
        members(value).for_each(|(key, value)| found.add(key, value));
        Some(found)
    }

    fn add(&mut self, key: &[u8], value: &'a [u8]) {
        match key {
            b"ph" => self.phase = crate::json::inside(value).unwrap_or_default(),
            b"name" => self.name = text(value),
            b"cat" => self.category = text(value),
            b"ts" => self.time = nanoseconds(value),
            b"dur" => self.duration = nanoseconds(value),
            b"pid" => self.pid = Some(value),
            b"tid" => self.tid = Some(value),
            b"id" => self.id = Some(value),
            // Numbers of one process, or of all: {"local": "0x1"}.
            b"id2" => self.id = members(value).next().map(|(_, value)| value),
            b"args" => self.args = value,
            b"sf" => self.frame = Some(value),
            b"cpu" => self.cpu = Some(value),
            b"weight" => self.weight = Some(value),
            _ => {}
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match self.phase {
            b"X" => Kind::Complete,
            b"B" => Kind::Begin,
            b"E" => Kind::End,
            b"C" | b"i" | b"I" | b"R" | b"n" | b"b" | b"e" => Kind::Hit,
            b"M" => Kind::Name,
            _ => Kind::Other,
        }
    }

    /// Whether the phase and the ID tell hits of the same event apart.
    pub(super) fn has_phase(&self) -> bool {
        matches!(self.phase, b"b" | b"n" | b"e") || self.id.is_some()
    }
}

/// What an event is, by its phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Complete,
    Begin,
    End,
    /// Of an event with a table.
    Hit,
    /// Name of a process or thread.
    Name,
    Other,
}

impl Kind {
    /// Whether it is a call, or an end of one.
    pub(super) fn is_call(self) -> bool {
        matches!(self, Kind::Complete | Kind::Begin | Kind::End)
    }
}
