//! Parsed output → events. Declares types when they are first needed, and counts the printings of each map.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use perfquet_events::Error;
use perfquet_events::event::{
    Action, Aggregate, AggregateValue, Bucket, Event, EventId, EventKind, EventType, Fact, Field,
    FieldType, Fields, Loss, Place, Sample, Sink, Space, Stack, Value,
};

use super::key::Key;
use crate::lines::LineProblems;

/// Maximum number of maps distinguished, and of keys remembered per map.
const REMEMBERED_MAX: usize = 1 << 20;

/// The value of a key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Content<'a> {
    Number(AggregateValue),
    Bars(&'a [Bucket], Option<Action>),
    /// Count, average, total.
    Stats(AggregateValue, AggregateValue, AggregateValue),
}

/// The state of a map.
#[derive(Default)]
struct Printed {
    snapshot: u32,
    keys: HashSet<u64>,
    has_stacks: bool,
    /// Whether this printing is that at the end of the program, which prints each map once.
    is_last: bool,
    /// The value of the last key; a printing has them in ascending order.
    value: Option<f64>,
}

/// Turns parsed output into events.
pub(super) struct Output<'s> {
    sink: &'s mut dyn Sink,
    pub(super) problems: LineProblems,
    message: Option<EventId>,
    maps: HashMap<Vec<u8>, Printed>,
    /// The map printed last; `None` after other output.
    current: Option<Vec<u8>>,
    remembered: usize,
    /// Empty lines since other output.
    blank_lines: usize,
    /// Whether the maps since other output are those at the end of the program, before which bpftrace prints two empty lines.
    is_at_end: bool,
    hasher: RandomState,
}

impl<'s> Output<'s> {
    pub(super) fn new(sink: &'s mut dyn Sink) -> Result<Output<'s>, Error> {
        sink.event(Event::Fact(Fact::Recorder("bpftrace")))?;
        Ok(Output {
            sink,
            problems: LineProblems::default(),
            message: None,
            maps: HashMap::new(),
            current: None,
            remembered: 0,
            blank_lines: 0,
            is_at_end: false,
            hasher: RandomState::new(),
        })
    }

    pub(super) fn sink(&mut self) -> &mut dyn Sink {
        self.sink
    }

    pub(super) fn fact(&mut self, name: &str, value: &str) -> Result<(), Error> {
        self.sink.event(Event::Fact(Fact::Other { name, value }))
    }

    pub(super) fn loss(&mut self, count: Option<u64>) -> Result<(), Error> {
        self.sink.event(Event::Loss(Loss {
            time: None,
            cpu: None,
            event: None,
            count,
            in_all: None,
            reason: "lost events",
        }))
    }

    pub(super) fn problem(&mut self, line: u64, message: &str) -> Result<(), Error> {
        self.problems.report(Place::Line(line), message, self.sink)
    }

    /// Text outside a map.
    pub(super) fn message(&mut self, line: u64, text: &[u8]) -> Result<(), Error> {
        self.current = None;
        (self.blank_lines, self.is_at_end) = (0, false);
        let event = match self.message {
            Some(event) => event,
            None => {
                let field = |name: &str, kind| Field {
                    name: name.into(),
                    kind,
                    layout: None,
                    declaration: String::new(),
                };
                self.sink.event(Event::Type(&EventType {
                    system: "bpftrace".into(),
                    name: "message".into(),
                    kind: EventKind::Marker,
                    fields: vec![
                        field("line", FieldType::UInt(8)),
                        field("message", FieldType::Text),
                    ],
                    ..EventType::default()
                }))?;
                *self.message.insert(EventId(0))
            }
        };
        self.sink.event(Event::Sample(&Sample {
            fields: Fields::Values(&[Value::UInt(line), Value::Bytes(text)]),
            ..Sample::of(event)
        }))
    }

    /// A key of a map.
    pub(super) fn entry(
        &mut self,
        name: &[u8],
        mut key: Key<'_>,
        content: Content<'_>,
    ) -> Result<(), Error> {
        let value = match content {
            Content::Number(AggregateValue::Int(value)) => Some(value as f64),
            Content::Number(AggregateValue::Float(value)) => Some(value),
            _ => None,
        };
        let snapshot = self.snapshot(name, &mut key, value);
        let is_kernel = |place: usize, frames: &[perfquet_events::event::NamedFrame<'_>]| {
            match frames.first() {
                Some(frame) => frame.space == Space::Kernel,
                // Of two stacks, the first is the kernel's.
                None => place == 0 && key.stacks.len() == 2,
            }
        };
        let (mut kernel_stack, mut user_stack) = (Stack::None, Stack::None);
        for (place, frames) in key.stacks.iter().enumerate() {
            match is_kernel(place, frames) {
                true => kernel_stack = Stack::Named(frames),
                false => user_stack = Stack::Named(frames),
            }
        }
        let whole = Aggregate {
            name,
            action: None,
            keys: &key.texts,
            value: None,
            kernel_stack,
            user_stack,
            snapshot,
            since: None,
            time: None,
            buckets: &[],
        };
        let rows: &[(Option<AggregateValue>, Option<Action>, &[Bucket])] = &match content {
            Content::Number(value) => vec![(Some(value), None, &[][..])],
            Content::Bars(bars, action) => vec![(None, action, bars)],
            Content::Stats(count, average, total) => vec![
                (Some(count), Some(Action::Count), &[][..]),
                (Some(average), Some(Action::Avg), &[][..]),
                (Some(total), Some(Action::Sum), &[][..]),
            ],
        };
        for (value, action, buckets) in rows {
            self.sink.event(Event::Aggregate(&Aggregate {
                value: *value,
                action: *action,
                buckets,
                ..whole
            }))?;
        }
        Ok(())
    }

    /// An empty line.
    pub(super) fn blank_line(&mut self) {
        self.blank_lines += 1;
    }

    /// The number of the map's printing: a repeated key or a repeated map begins another. Stacks of several processes may look alike: at the end
    /// of the program, where each map is printed once, such keys are of one printing, as long as the values ascend.
    fn snapshot(&mut self, name: &[u8], key: &mut Key<'_>, value: Option<f64>) -> u32 {
        let blank_lines = std::mem::take(&mut self.blank_lines);
        self.is_at_end |= blank_lines >= 2;
        let frames: Vec<_> = key
            .stacks
            .iter()
            .flatten()
            .map(|frame| (frame.function, frame.function_offset, frame.address))
            .collect();
        let hash = self.hasher.hash_one((&key.texts, key.stacks.len(), frames));
        let is_going_on = self.current.as_deref() == Some(name);
        if !is_going_on {
            self.current = Some(name.to_owned());
        }
        if self.remembered >= REMEMBERED_MAX {
            self.maps.clear();
            self.remembered = 0;
        }
        self.remembered += 1;
        let is_new = !self.maps.contains_key(name);
        if is_new {
            self.maps.insert(name.to_owned(), Printed::default());
        }
        let Some(map) = self.maps.get_mut(name) else {
            return 0;
        };
        let looks_alike = map.is_last
            && blank_lines == 0
            && !key.stacks.is_empty()
            && value.is_some()
            && value >= map.value;
        if !is_new && (!is_going_on || map.keys.contains(&hash) && !looks_alike) {
            map.snapshot += 1;
            map.keys.clear();
        }
        if map.keys.is_empty() {
            map.is_last = self.is_at_end;
        }
        map.keys.insert(hash);
        map.value = value;
        map.has_stacks |= !key.stacks.is_empty();
        // `@stacks[]`, among keys that are stacks.
        if map.has_stacks && key.stacks.is_empty() && key.texts == [b""] {
            *key = Key::empty_stack();
        }
        map.snapshot
    }

    pub(super) fn finish(&mut self) -> Result<(), Error> {
        self.problems.finish(self.sink)
    }
}
