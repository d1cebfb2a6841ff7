//! The usual hit of a tracepoint, or sample of a counter: with nothing but the members that nearly all of them have.
//!
//! A [`Sample`] has thirty members, most of them absent; a `Hit` is a third of its size. Readers pass one where they can
//! ([`Sink::hit`](super::Sink::hit)), and a sink that does not distinguish them sees the same sample.

use super::{EventId, Fields, Payload, Sample, Space, Stack};

/// One hit or sample.
#[derive(Debug, Clone, Copy)]
pub struct Hit<'a> {
    /// The event type.
    pub event: EventId,
    /// CPU number.
    pub cpu: Id,
    /// Process ID.
    pub pid: Id,
    /// Thread ID.
    pub tid: Id,
    /// Time in nanoseconds on the trace's clock.
    pub time: i64,
    /// Stacks, if they were recorded.
    pub stacks: Option<Stacks<'a>>,
    /// Address space of `ip`.
    pub space: Space,
    /// Instruction pointer.
    pub ip: Option<u64>,
    /// Number of events that the hit represents.
    pub period: Option<u64>,
    /// Values of the event type's fields.
    pub payload: Option<Payload<'a>>,
}

/// The stacks of a hit.
#[derive(Debug, Clone, Copy)]
pub struct Stacks<'a> {
    /// Kernel stack.
    pub kernel: Stack<'a>,
    /// User stack.
    pub user: Stack<'a>,
}

/// The number of a CPU, process or thread, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id(i32);

impl Id {
    /// Not recorded.
    pub const NONE: Id = Id(i32::MIN);

    /// A number as recorded.
    #[inline]
    pub fn of(number: i32) -> Id {
        Id(number)
    }

    /// A CPU.
    #[inline]
    pub fn of_cpu(cpu: Option<u32>) -> Id {
        let cpu = cpu.and_then(|cpu| i32::try_from(cpu).ok());
        cpu.map_or(Id::NONE, Id)
    }

    /// The number as recorded, which is -1 for a thread that has exited.
    #[inline]
    pub fn recorded(self) -> Option<i32> {
        (self != Id::NONE).then_some(self.0)
    }

    /// The number, if it is known.
    #[inline]
    pub fn known(self) -> Option<i32> {
        (self.0 >= 0).then_some(self.0)
    }
}

impl From<Option<i32>> for Id {
    #[inline]
    fn from(number: Option<i32>) -> Id {
        number.map_or(Id::NONE, Id)
    }
}

impl<'a> Hit<'a> {
    /// The same as a sample.
    pub fn sample(&self) -> Sample<'a> {
        Sample {
            time: Some(self.time),
            cpu: self.cpu.recorded().map(|cpu| cpu as u32),
            pid: self.pid.recorded(),
            tid: self.tid.recorded(),
            kernel_stack: self.stacks.map_or(Stack::None, |stacks| stacks.kernel),
            user_stack: self.stacks.map_or(Stack::None, |stacks| stacks.user),
            space: self.space,
            ip: self.ip,
            period: self.period,
            fields: self.payload.map_or(Fields::None, Fields::Raw),
            ..Sample::of(self.event)
        }
    }
}
