//! Payloads printed after an event's name, as values of columns: shared by the readers of ftrace's and of perf's text.
//!
//! ```text
//! sched_wakeup: comm=dd pid=12 prio=120 target_cpu=003       →  comm "dd", pid 12, prio 120, target_cpu 3
//! sched_wakeup: dd:12 [120] CPU:003                          →  the same
//! sys_write(fd: 1, buf: 0x55afc4d7e000, count: 0x1000)       →  syscalls:sys_enter_write: fd 1, buf …, count 4096
//! notifier_run: hw_breakpoint_exceptions_notify              →  cb "hw_breakpoint_exceptions_notify"
//! ```
//! An event has the columns of its known form ([`known`]), else of its keys, else one, `message`. Text before the first
//! key is `message` too.
//!
//! Text does not state types. The rule: a column has the narrowest type ([`class::Class`]) for every value in the
//! beginning of the input, which is read once beforehand ([`Payloads::learn`]). If a later value does not fit, or a key
//! is new, the event is declared again with the column widened or added, and further rows go to another table
//! (`NAME_2`). After eight declarations, each payload of the event becomes one `message`. A key missing from a line is
//! NULL.

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
use perfquet_events::event::{
    Event, EventId, EventKind, EventType, Fields, Flags, Sample, Sink, Value,
};
use perfquet_events::scan::same;

use crate::problems::report_totals;

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

/// An event that occurs in the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot(usize);

/// All events of an input, and the IDs of their declarations.
pub(crate) struct Payloads<'a> {
    hasher: DefaultHashBuilder,
    by_name: HashTable<Key<'a>>,
    states: Vec<State<'a>>,
    scratch: Scratch<'a>,
    arena: Arena,
    raws: Vec<Raw<'a>>,
    values: Vec<Value<'static>>,
    next_id: u32,
    /// Whether only the columns are collected: nothing is declared or emitted.
    is_learning: bool,
    /// Number of events whose names no event type has, at the limit.
    unnamed: u64,
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
    /// Column and text; empty if there is none.
    pub(crate) columns: [(&'a [u8], &'a [u8]); 2],
    /// Interrupt context and scheduling state, which follow all other columns.
    pub(crate) flags: Option<Flags>,
}

impl<'a> Payloads<'a> {
    /// Starts empty, and only learns the columns until [`Payloads::learned`].
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
            unnamed: 0,
        }
    }

    /// Ends learning: later events are declared and emitted.
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

    /// The event with this name. `system` is empty if the text does not state it.
    #[inline]
    pub(crate) fn slot(
        &mut self,
        style: Style,
        system: &'a [u8],
        name: &'a [u8],
        kind: EventKind,
    ) -> Slot {
        let hash = self.hasher.hash_one(name);
        let is_it =
            |key: &Key<'_>| same(key.name, name) && key.style == style && same(key.system, system);
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
        // At the limit, the last event takes all later names.
        if self.states.len() + 1 >= MAX_EVENTS {
            self.unnamed += u64::from(!self.is_learning);
        }
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

    /// Reports how many events have lost their names, because there are too many.
    pub(crate) fn report_unnamed(&self, sink: &mut dyn Sink) -> Result<(), Error> {
        let message = format!(
            "events of more than {MAX_EVENTS} types: their names are lost, they are ftrace:further_events"
        );
        report_totals(sink, [(self.unnamed, message)])
    }

    /// Emits `sample` with the values of `payload`.
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

    /// Emits `sample` with values found by the reader.
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
        if added.flags.is_some() {
            state.add_flags();
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
                // Each retry uses a wider type, and Text accepts everything.
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
        if let Some(flags) = added.flags {
            let bytes = [flags.bits, flags.preempt_count];
            values.extend(bytes.map(|byte| Value::UInt(byte.into())));
        }
        let result = sink.event(Event::Sample(&Sample {
            event: id,
            fields: Fields::Values(&values),
            ..*sample
        }));
        values.clear();
        // Clearing the vector through `into_iter` keeps its allocation and drops its borrows.
        self.values = values.into_iter().map(|_| Value::Null).collect();
        result
    }

    /// Declares an event without a payload here: a counter.
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

/// Types of fields that a reader finds itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldKind {
    /// A string
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
