//! Samples, and the stacks of samples and calls.
//!
//! ```text
//! "stackFrames":{"1":{"name":"main","category":"app"},"2":{"name":"read","category":"libc.so","parent":"1"}},
//! "samples":[{"cpu":0,"tid":7,"ts":1000.0,"name":"cycles","sf":"2","weight":100}]
//! ```

use std::borrow::Cow;
use std::cell::Cell;
use std::ops::Range;

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::event::{
    Common, Event, EventId, EventKind, EventType, NamedFrame, Sample, Sink, Stack,
};

use super::members::Members;
use crate::json::{integer, members, text};

/// Frames of a stack, and events of samples.
const DEEPEST: usize = 1024;
const EVENTS_MAX: usize = 1000;

/// A frame: function, module, and the ID of its caller.
struct Frame<'a> {
    function: Cow<'a, [u8]>,
    module: Cow<'a, [u8]>,
    caller: Option<Cow<'a, [u8]>>,
}

/// The samples of a file, and its frames.
#[derive(Default)]
pub(super) struct Samples<'a> {
    /// Where they are in the text.
    pub(super) place: Range<u64>,
    frames: HashMap<Cow<'a, [u8]>, Frame<'a>>,
    /// Their events, and the ID of the first.
    events: Vec<Cow<'a, [u8]>>,
    first: u32,
    /// Samples of events beyond the limit.
    pub(super) dropped: u64,
    /// Stacks with a frame that is not there, or that calls itself.
    pub(super) broken: Cell<u64>,
}

impl<'a> Samples<'a> {
    /// Takes the member `stackFrames`.
    pub(super) fn frames(&mut self, value: &'a [u8]) {
        for (id, frame) in members(value) {
            let of = |name: &[u8]| members(frame).find(|(key, _)| *key == name);
            let part = |name: &[u8]| of(name).map(|(_, value)| text(value));
            self.frames.insert(
                Cow::Borrowed(id),
                Frame {
                    function: part(b"name").unwrap_or_default(),
                    module: part(b"category").unwrap_or_default(),
                    caller: part(b"parent"),
                },
            );
        }
    }

    /// Notes the event of a sample.
    pub(super) fn note(&mut self, event: &Members<'a>) {
        if !self.events.contains(&event.name) && self.events.len() < EVENTS_MAX {
            self.events.push(event.name.clone());
        }
    }

    /// Declares the events, of which the first has this ID.
    pub(super) fn declare(&mut self, first: EventId, sink: &mut dyn Sink) -> Result<(), Error> {
        self.first = first.0;
        for name in &self.events {
            sink.event(Event::Type(&EventType {
                system: "chrome".to_owned(),
                name: String::from_utf8_lossy(name).into_owned(),
                kind: EventKind::Counter,
                ..EventType::default()
            }))?;
        }
        Ok(())
    }

    /// The stack that ends with a frame, innermost first.
    pub(super) fn stack(&self, frame: Option<&'a [u8]>) -> Vec<NamedFrame<'_>> {
        let mut stack = Vec::new();
        let mut next = frame.map(text);
        while let Some(id) = next {
            let found = self.frames.get(&id).filter(|_| stack.len() < DEEPEST);
            let Some(frame) = found else {
                self.broken.set(self.broken.get() + 1);
                if stack.len() == DEEPEST {
                    // Most likely, a frame is its own caller.
                    stack.truncate(1);
                }
                break;
            };
            stack.push(NamedFrame {
                function: &frame.function,
                module: &frame.module,
                ..NamedFrame::default()
            });
            next = frame.caller.clone();
        }
        stack
    }

    /// Emits a sample.
    pub(super) fn emit(
        &mut self,
        event: &Members<'a>,
        common: Common<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let place = self.events.iter().position(|name| *name == event.name);
        let Some(place) = place.and_then(|place| u32::try_from(place).ok()) else {
            self.dropped += 1;
            return Ok(());
        };
        let id = EventId(self.first.saturating_add(place));
        let cpu = event.cpu.and_then(integer);
        let weight = event.weight.and_then(integer);
        let stack = self.stack(event.frame);
        sink.event(Event::Sample(&Sample {
            time: common.time,
            cpu: cpu.and_then(|cpu| u32::try_from(cpu).ok()),
            pid: common.pid,
            tid: common.tid,
            // Without a weight, it counts as one.
            period: match event.weight {
                None => Some(1),
                Some(_) => weight.and_then(|weight| u64::try_from(weight).ok()),
            },
            user_stack: match stack.as_slice() {
                [] => Stack::None,
                stack => Stack::Named(stack),
            },
            ..Sample::of(id)
        }))
    }
}
