//! The usual hit of a tracepoint, or sample of a counter: with nothing but the members that nearly all of them have.
//!
//! A [`Sample`] has thirty members, most of them absent; a `Hit` is a quarter of its size. Readers pass one where they can
//! ([`Sink::hit`](super::Sink::hit)), and a sink that does not distinguish them sees the same sample.

use super::{EventId, Fields, Payload, Sample, Space, Stack};

/// One hit or sample.
#[derive(Debug, Clone, Copy)]
pub struct Hit<'a> {
    /// The event type.
    pub event: EventId,
    /// Time in nanoseconds on the trace's clock.
    pub time: i64,
    /// CPU number.
    pub cpu: Option<u32>,
    /// Process ID.
    pub pid: Option<i32>,
    /// Thread ID.
    pub tid: Option<i32>,
    /// Kernel stack.
    pub kernel_stack: Stack<'a>,
    /// User stack.
    pub user_stack: Stack<'a>,
    /// Address space of `ip`.
    pub space: Space,
    /// Instruction pointer.
    pub ip: Option<u64>,
    /// Number of events that the hit represents.
    pub period: Option<u64>,
    /// Values of the event type's fields.
    pub payload: Option<Payload<'a>>,
}

impl<'a> Hit<'a> {
    /// The same as a sample.
    #[inline]
    pub fn sample(&self) -> Sample<'a> {
        Sample {
            time: Some(self.time),
            cpu: self.cpu,
            pid: self.pid,
            tid: self.tid,
            kernel_stack: self.kernel_stack,
            user_stack: self.user_stack,
            space: self.space,
            ip: self.ip,
            period: self.period,
            fields: self.payload.map_or(Fields::None, Fields::Raw),
            ..Sample::of(self.event)
        }
    }
}
