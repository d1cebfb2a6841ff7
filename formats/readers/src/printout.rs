//! What tools print, as events: aggregates by printing, rows of tables, and all other lines as messages.
//!
//! ```text
//! 15:48:37                                          a printing at this time
//!      usecs               : count    distribution  an aggregate: its buckets
//!          4 -> 7          : 77       |*****|
//! Tracing... Hit Ctrl-C to end.                     a row of SYSTEM.message
//! ```

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use perfquet_events::Error;
use perfquet_events::event::{
    Action, Aggregate, AggregateValue, Bucket, Event, EventId, EventType, Fact, FieldType, Fields,
    NamedFrame, Sample, Sink, Space, Stack, Value,
};

use crate::columns::event_type;
use crate::lines::{Counts, Line, LineProblems};

/// Maximum number of keys remembered in a printing.
const REMEMBERED_MAX: usize = 1 << 20;

/// One key of an aggregation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sum<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) action: Option<Action>,
    pub(crate) keys: &'a [&'a [u8]],
    pub(crate) value: Option<AggregateValue>,
    pub(crate) buckets: &'a [Bucket],
    /// Leaf first: of the kernel, of the user.
    pub(crate) stacks: Stacks<'a>,
}

/// The frames of a kernel stack and a user stack; `None`: no stack was printed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stacks<'a> {
    pub(crate) kernel: Option<&'a [NamedFrame<'a>]>,
    pub(crate) user: Option<&'a [NamedFrame<'a>]>,
}

impl<'a> Stacks<'a> {
    /// The stacks of frames that run from the leaf to the root, the kernel's first.
    pub(crate) fn of(frames: &'a [NamedFrame<'a>]) -> Stacks<'a> {
        let is_kernel = |frame: &NamedFrame<'_>| frame.space == Space::Kernel;
        let count = frames.iter().take_while(|frame| is_kernel(frame)).count();
        let (kernel, user) = frames.split_at_checked(count).unwrap_or_default();
        Stacks {
            kernel: (!kernel.is_empty()).then_some(kernel),
            user: (!user.is_empty() || kernel.is_empty()).then_some(user),
        }
    }

    pub(crate) fn kernel(self) -> Stack<'a> {
        self.kernel.map_or(Stack::None, Stack::Named)
    }

    pub(crate) fn user(self) -> Stack<'a> {
        self.user.map_or(Stack::None, Stack::Named)
    }
}

/// Passes the contents of a text to a sink.
pub(crate) struct Printout<'s> {
    pub(crate) sink: &'s mut dyn Sink,
    pub(crate) counts: Counts,
    system: &'static str,
    types: u32,
    message: Option<EventId>,
    problems: LineProblems,
    /// Number of the current printing, its keys, and its time.
    snapshot: u32,
    seen: HashSet<u64>,
    hasher: RandomState,
    time: Option<i64>,
    has_clock: bool,
}

impl<'s> Printout<'s> {
    pub(crate) fn new(system: &'static str, sink: &'s mut dyn Sink) -> Result<Printout<'s>, Error> {
        sink.event(Event::Fact(Fact::Recorder(system)))?;
        Ok(Printout {
            sink,
            counts: Counts::default(),
            system,
            types: 0,
            message: None,
            problems: LineProblems::default(),
            snapshot: 0,
            seen: HashSet::new(),
            hasher: RandomState::new(),
            time: None,
            has_clock: false,
        })
    }

    /// Names the clock of all times, once.
    pub(crate) fn clock(&mut self, name: &str) -> Result<(), Error> {
        match self.has_clock {
            true => Ok(()),
            false => {
                self.has_clock = true;
                self.sink.event(Event::Fact(Fact::Clock(name)))
            }
        }
    }

    pub(crate) fn declare(&mut self, event_type: &EventType) -> Result<EventId, Error> {
        let id = EventId(self.types);
        self.types += 1;
        self.sink.event(Event::Type(event_type))?;
        Ok(id)
    }

    /// A line that is nothing else, with the stack printed below it.
    pub(crate) fn message(&mut self, line: Line<'_>, stacks: Stacks<'_>) -> Result<(), Error> {
        self.counts.data += 1;
        let event = match self.message {
            Some(event) => event,
            None => {
                let fields = [("line", FieldType::UInt(8)), ("message", FieldType::Text)];
                let event = self.declare(&event_type(self.system, "message", &fields))?;
                *self.message.insert(event)
            }
        };
        let text = line.text.trim_ascii_end();
        self.sink.event(Event::Sample(&Sample {
            time: self.time,
            kernel_stack: stacks.kernel(),
            user_stack: stacks.user(),
            fields: Fields::Values(&[Value::UInt(line.number), Value::Bytes(text)]),
            ..Sample::of(event)
        }))
    }

    /// A line that should have been something else.
    pub(crate) fn problem(&mut self, line: Line<'_>, expected: &str) -> Result<(), Error> {
        self.counts.problem += 1;
        self.problems.line(line, expected, self.sink)
    }

    /// Begins another printing, whose values must not be added to those before.
    pub(crate) fn printing(&mut self, time: Option<i64>) {
        self.time = time.or(self.time);
        if !self.seen.is_empty() {
            self.snapshot = self.snapshot.saturating_add(1);
            self.seen.clear();
        }
    }

    /// Emits a key. A repeated one begins another printing.
    pub(crate) fn sum(&mut self, sum: Sum<'_>) -> Result<(), Error> {
        let names = |frames: Option<&[NamedFrame<'_>]>| {
            let frames = frames.unwrap_or_default().iter();
            let frames = frames.map(|frame| {
                self.hasher
                    .hash_one((frame.function, frame.function_offset, frame.address))
            });
            frames.collect::<Vec<u64>>()
        };
        let stacks = (names(sum.stacks.kernel), names(sum.stacks.user));
        let hash = self
            .hasher
            .hash_one((sum.name, sum.action, sum.keys, stacks));
        if self.seen.contains(&hash) || self.seen.len() >= REMEMBERED_MAX {
            self.printing(None);
        }
        self.seen.insert(hash);
        self.sink.event(Event::Aggregate(&Aggregate {
            name: sum.name,
            action: sum.action,
            keys: sum.keys,
            value: sum.value,
            kernel_stack: sum.stacks.kernel(),
            user_stack: sum.stacks.user(),
            snapshot: self.snapshot,
            since: None,
            time: self.time,
            buckets: sum.buckets,
        }))
    }

    /// Reports the problems beyond those reported individually, and the number of lines of each kind.
    pub(crate) fn finish(self) -> Result<(), Error> {
        self.problems.finish(self.sink)?;
        self.counts
            .report(&format!("{}.lines", self.system), self.sink)
    }
}
