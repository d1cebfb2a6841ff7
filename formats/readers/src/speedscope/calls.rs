//! `O` and `C` of evented profiles → calls, in the order of time over all profiles.

use std::borrow::Cow;

use perfquet_events::Error;
use perfquet_events::event::{Call, Common, Context, Event, Function, Leave, Sink};

use super::frames::Frame;
use crate::exported::{CallName, function};
use crate::placeholder::without_placeholder;

/// No index.
const NONE: u32 = u32::MAX;

/// The thread or CPU of a profile.
#[derive(Debug, Default, Clone)]
pub(super) struct Thread<'a> {
    pub(super) comm: Cow<'a, [u8]>,
    pub(super) pid: Option<i32>,
    pub(super) tid: Option<i32>,
    pub(super) cpu: Option<u32>,
    pub(super) context: Option<Context>,
    pub(super) has_times: bool,
    /// Whether its events are those of one thread, in their order. Profiles of `--to speedscope` divide overlapping calls.
    pub(super) is_in_order: bool,
}

impl Thread<'_> {
    pub(super) fn comm(&self) -> Option<&[u8]> {
        Some(&*self.comm).filter(|comm| !comm.is_empty())
    }
}

/// A call, with indices of frames and profiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    time: i64,
    /// Where profiles divide a thread: of two calls that begin at the same time, the longer one encloses the other.
    rank: i64,
    order: u64,
    duration: i64,
    depth: u32,
    /// As written, where times do not tell it.
    written_depth: Option<u32>,
    frame: u32,
    thread: u32,
    is_closed: bool,
}

/// All calls so far.
#[derive(Debug, Default)]
pub(super) struct Calls {
    entries: Vec<Entry>,
    /// Indices of the open calls of the current profile.
    open: Vec<usize>,
}

impl Calls {
    /// A call begins.
    pub(super) fn enter(&mut self, frame: u32, time: i64, thread: u32, written_depth: Option<u32>) {
        self.entries.push(Entry {
            time,
            rank: 0,
            order: self.entries.len() as u64,
            duration: 0,
            depth: u32::try_from(self.open.len()).unwrap_or(NONE),
            written_depth,
            frame,
            thread,
            is_closed: false,
        });
        self.open.push(self.entries.len() - 1);
    }

    /// A call ends. Returns false if another one, or none, is innermost.
    pub(super) fn leave(&mut self, frame: u32, time: i64) -> bool {
        let entries = &mut self.entries;
        let Some(entry) = self.open.last().and_then(|place| entries.get_mut(*place)) else {
            return false;
        };
        if entry.frame != frame || time < entry.time {
            return false;
        }
        entry.duration = time.saturating_sub(entry.time);
        entry.is_closed = true;
        self.open.pop();
        true
    }

    /// A profile ends. Returns the number of calls that are still open.
    pub(super) fn end(&mut self) -> u64 {
        let count = self.open.len() as u64;
        self.open.clear();
        count
    }

    /// Emits all calls. Without times, only their order is known.
    pub(super) fn emit(
        &mut self,
        frames: &[Frame<'_>],
        threads: &[Thread<'_>],
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        for entry in &mut self.entries {
            let thread = threads.get(entry.thread as usize);
            if thread.is_some_and(|thread| !thread.is_in_order) {
                entry.rank = entry.duration.saturating_neg();
            }
        }
        self.entries.sort_unstable();
        for entry in &self.entries {
            let Some(thread) = threads.get(entry.thread as usize) else {
                continue;
            };
            let frame = |index: u32| frames.get(index as usize);
            let common = Common {
                time: thread.has_times.then_some(entry.time),
                cpu: thread.cpu,
                pid: thread.pid,
                tid: thread.tid,
                comm: thread.comm(),
                ..Common::default()
            };
            let (called, name) = match frame(entry.frame) {
                Some(frame) => named(frame),
                None => (Function::Unknown, CallName::of(b"")),
            };
            let is_known = thread.has_times && entry.is_closed && name.is_exit_seen;
            let duration = is_known.then_some(entry.duration);
            if !name.is_entry_seen {
                sink.event(Event::Leave(&Leave {
                    common: Common {
                        time: common
                            .time
                            .zip(duration)
                            .map(|(time, duration)| time.saturating_add(duration)),
                        ..common
                    },
                    function: called,
                    depth: entry.written_depth,
                    context: thread.context,
                    ..Leave::default()
                }))?;
                continue;
            }
            sink.event(Event::Call(&Call {
                common,
                function: called,
                caller: Function::Unknown,
                depth: match thread.is_in_order {
                    true => Some(entry.depth),
                    false => entry.written_depth,
                },
                context: thread.context,
                args: &[],
                duration,
                retval: None,
                may_nest: true,
            }))?;
        }
        Ok(())
    }
}

/// The function of a call, and what its name says.
fn named<'f>(frame: &'f Frame<'_>) -> (Function<'f>, CallName<'f>) {
    let name = CallName::of(&frame.name);
    let module = frame.module();
    (
        function(without_placeholder(name.function, module), module),
        name,
    )
}
