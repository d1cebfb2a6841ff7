//! What the kernel and its tools print after an event's name, as values of columns: shared by the readers of
//! ftrace's and of perf's text.
//!
//! ```text
//! sched_wakeup: comm=dd pid=12 prio=120 target_cpu=003       →  comm "dd", pid 12, prio 120, target_cpu 3
//! sched_wakeup: dd:12 [120] CPU:003                          →  the same
//! sys_write(fd: 1, buf: 0x55afc4d7e000, count: 0x1000)       →  syscalls:sys_enter_write: fd 1, buf …, count 4096
//! notifier_run: hw_breakpoint_exceptions_notify              →  cb "hw_breakpoint_exceptions_notify"
//! ```
//! An event's columns are those of the form that it is known to be printed in ([`known`]), else its keys, else one:
//! `message`. Text before the first key is `message` too.
//!
//! A text does not say what types its values have. The rule: a column has the narrowest type ([`class::Class`]) that
//! takes every value seen while the beginning of the input was read once beforehand ([`Payloads::learn`]). When later
//! a value does not fit, or a key is new, the event is declared again, with that column wider or with the new one, and
//! its further rows go to another table (`NAME_2`). After eight declarations all further payloads of the event are one
//! `message`. A key that a line lacks is NULL.

mod class;
mod event;
mod keys;
mod known;
mod syscall;
mod template;
#[cfg(test)]
mod tests;

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use perfquet_events::Error;
use perfquet_events::event::{Event, EventId, EventKind, EventType, Fields, Sample, Sink, Value};

use self::class::{Arena, Class, Notation, Raw};
use self::event::{Scratch, State};

/// More events than a kernel has; a hostile input must not fill the memory with names.
const MAX_EVENTS: usize = 8192;

/// How an event is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Style {
    /// `name: payload`
    Event,
    /// `sys_write(fd: 1, …)`
    SyscallEnter,
    /// `sys_write -> 0x1`
    SyscallExit,
}

/// An event of which a line was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot(usize);

/// All events of an input, and the ids of their declarations.
pub(crate) struct Payloads<'a> {
    hasher: DefaultHashBuilder,
    by_name: HashTable<Key<'a>>,
    states: Vec<State<'a>>,
    scratch: Scratch<'a>,
    arena: Arena,
    raws: Vec<Raw<'a>>,
    values: Vec<Value<'static>>,
    next_id: u32,
    /// Only the columns are wanted: nothing is declared or handed over.
    is_learning: bool,
}

#[derive(Clone, Copy)]
struct Key<'a> {
    style: Style,
    system: &'a [u8],
    name: &'a [u8],
    slot: usize,
}

/// Values that the reader adds after those of the payload.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Added<'a> {
    /// Column and text; empty: none.
    pub(crate) columns: [(&'a [u8], &'a [u8]); 2],
}

impl<'a> Payloads<'a> {
    /// Knows nothing, and only learns which columns there are, until [`Payloads::learned`].
    pub(crate) fn learn() -> Payloads<'a> {
        Payloads {
            hasher: DefaultHashBuilder::default(),
            by_name: HashTable::new(),
            states: Vec::new(),
            scratch: Scratch::default(),
            arena: Arena::default(),
            raws: Vec::new(),
            values: Vec::new(),
            next_id: 0,
            is_learning: true,
        }
    }

    /// From now on events are declared and handed over.
    pub(crate) fn learned(&mut self) {
        self.is_learning = false;
        self.scratch.is_prefixed = self.scratch.saw_prefix;
        if self.scratch.is_prefixed {
            let columns = self.states.iter_mut().flat_map(|state| &mut state.columns);
            for column in columns.filter(|column| column.notation == Notation::BareArgument) {
                column.notation = Notation::Argument;
            }
        }
    }

    /// The event of this name. `system` is empty where the text does not tell it.
    #[inline]
    pub(crate) fn slot(
        &mut self,
        style: Style,
        system: &'a [u8],
        name: &'a [u8],
        kind: EventKind,
    ) -> Slot {
        let hash = self.hasher.hash_one(name);
        let is_it = |key: &Key<'_>| key.name == name && key.style == style && key.system == system;
        if let Some(key) = self.by_name.find(hash, is_it) {
            return Slot(key.slot);
        }
        self.new_slot(hash, style, system, name, kind)
    }

    #[cold]
    fn new_slot(
        &mut self,
        hash: u64,
        style: Style,
        system: &'a [u8],
        name: &'a [u8],
        kind: EventKind,
    ) -> Slot {
        // The last of them stands for all that come later.
        if self.states.len() >= MAX_EVENTS {
            return Slot(self.states.len() - 1);
        }
        let slot = self.states.len();
        let (system, name) = match slot + 1 < MAX_EVENTS {
            true => (system, name),
            false => (&b"ftrace"[..], &b"further_events"[..]),
        };
        self.states.push(State::new(style, system, name, kind));
        let hasher = &self.hasher;
        self.by_name.insert_unique(
            hash,
            Key {
                style,
                system,
                name,
                slot,
            },
            |key| hasher.hash_one(key.name),
        );
        Slot(slot)
    }

    /// Hands over `sample` with the values of `payload`.
    #[inline]
    pub(crate) fn emit(
        &mut self,
        slot: Slot,
        payload: &'a [u8],
        added: &Added<'a>,
        sample: &Sample<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let Some(state) = self.states.get_mut(slot.0) else {
            return Ok(());
        };
        state.split(payload, &mut self.scratch);
        self.hand_over(slot, added, sample, sink)
    }

    /// Hands over `sample` with values that the reader has found by itself.
    pub(crate) fn emit_fields(
        &mut self,
        slot: Slot,
        fields: &[(&'a [u8], FieldKind, &'a [u8])],
        added: &Added<'a>,
        sample: &Sample<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let Some(state) = self.states.get_mut(slot.0) else {
            return Ok(());
        };
        self.scratch.texts.clear();
        self.scratch.texts.resize(state.columns.len(), &[]);
        for (name, kind, text) in fields {
            let (class, notation) = kind.class();
            state.put(name, class, notation, text, &mut self.scratch);
        }
        self.hand_over(slot, added, sample, sink)
    }

    #[inline]
    fn hand_over(
        &mut self,
        slot: Slot,
        added: &Added<'a>,
        sample: &Sample<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let Some(state) = self.states.get_mut(slot.0) else {
            return Ok(());
        };
        for (name, text) in added.columns {
            if !text.is_empty() {
                state.put(name, Class::Empty, Notation::Plain, text, &mut self.scratch);
            }
        }
        self.arena.clear();
        self.raws.clear();
        let mut index = 0;
        while let (Some(column), Some(text)) =
            (state.columns.get(index), self.scratch.texts.get(index))
        {
            match self.arena.fit(column.class, column.notation, text) {
                Some(raw) => {
                    self.raws.push(raw);
                    index += 1;
                }
                // The wider type takes more at each turn, and Text takes all.
                None => state.widen(index, text),
            }
        }
        if self.is_learning {
            return Ok(());
        }
        let id = match state.id {
            Some(id) => id,
            None => {
                let id = EventId(self.next_id);
                self.next_id += 1;
                sink.event(Event::Type(&state.event_type()))?;
                state.declared(id);
                id
            }
        };
        let mut values: Vec<Value<'_>> = std::mem::take(&mut self.values);
        values.extend(self.raws.iter().map(|raw| self.arena.value(raw)));
        let result = sink.event(Event::Sample(&Sample {
            event: id,
            fields: Fields::Values(&values),
            ..*sample
        }));
        values.clear();
        // An empty vector keeps its room through this, and loses what it borrowed.
        self.values = values.into_iter().map(|_| Value::Null).collect();
        result
    }

    /// Declares an event that has no payload here: a counter.
    pub(crate) fn declare(
        &mut self,
        event: &EventType,
        sink: &mut dyn Sink,
    ) -> Result<EventId, Error> {
        let id = EventId(self.next_id);
        if !self.is_learning {
            self.next_id += 1;
            sink.event(Event::Type(event))?;
        }
        Ok(id)
    }
}

/// Types of fields that a reader finds by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldKind {
    /// Text
    Text,
    /// A decimal number.
    Int,
    /// A number in hexadecimal.
    Hex,
    /// A device: `8,16`.
    Device,
}

impl FieldKind {
    fn class(self) -> (Class, Notation) {
        match self {
            FieldKind::Text => (Class::Text, Notation::Plain),
            FieldKind::Int => (Class::Int, Notation::Plain),
            FieldKind::Hex => (Class::UInt, Notation::Hex),
            FieldKind::Device => (Class::Int, Notation::Device),
        }
    }
}
