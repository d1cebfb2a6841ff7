//! `O` and `C` of evented profiles → calls, in the order of time over all profiles.

use std::borrow::Cow;

use perfquet_events::Error;
use perfquet_events::event::{Call, Common, Context, Event, Function, Leave, Sink};

use super::frames::Frame;
use crate::placeholder::without_placeholder;

const EXIT_NOT_SEEN: &[u8] = b" (exit not seen)";
const ENTRY_NOT_SEEN: &[u8] = b" (entry not seen)";
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
    /// Of two calls that begin at the same time, the longer one encloses the other.
    rank: i64,
    order: u64,
    depth: u32,
    frame: u32,
    caller: u32,
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
    pub(super) fn enter(&mut self, frame: u32, time: i64, thread: u32) {
        let caller = self.open.last().and_then(|place| self.entries.get(*place));
        self.entries.push(Entry {
            time,
            rank: 0,
            order: self.entries.len() as u64,
            depth: u32::try_from(self.open.len()).unwrap_or(NONE),
            frame,
            caller: caller.map_or(NONE, |entry| entry.frame),
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
        entry.rank = entry.time.saturating_sub(time);
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
        self.entries.sort_unstable();
        for entry in &self.entries {
            let Some(thread) = threads.get(entry.thread as usize) else {
                continue;
            };
            let frame = |index: u32| frames.get(index as usize);
            let function =
                |index| frame(index).map_or(Function::Unknown, |frame| function(frame).0);
            let common = Common {
                time: thread.has_times.then_some(entry.time),
                cpu: thread.cpu,
                pid: thread.pid,
                tid: thread.tid,
                comm: thread.comm(),
                ..Common::default()
            };
            let (called, is_entry_seen, is_exit_seen) = match frame(entry.frame) {
                Some(frame) => self::function(frame),
                None => (Function::Unknown, true, true),
            };
            let is_known = thread.has_times && entry.is_closed && is_exit_seen;
            let duration = is_known.then_some(entry.rank.saturating_neg());
            if !is_entry_seen {
                sink.event(Event::Leave(&Leave {
                    common: Common {
                        time: common
                            .time
                            .zip(duration)
                            .map(|(time, duration)| time.saturating_add(duration)),
                        ..common
                    },
                    function: called,
                    context: thread.context,
                    ..Leave::default()
                }))?;
                continue;
            }
            sink.event(Event::Call(&Call {
                common,
                function: called,
                caller: match thread.tid {
                    Some(_) => Function::Unknown,
                    None => function(entry.caller),
                },
                depth: thread.tid.is_none().then_some(entry.depth),
                context: thread.context,
                args: &[],
                duration,
                retval: None,
                may_nest: thread.tid.is_some(),
            }))?;
        }
        Ok(())
    }
}

/// The function, and whether its entry and exit were seen: `--to speedscope` adds to the name if not.
fn function<'f>(frame: &'f Frame<'_>) -> (Function<'f>, bool, bool) {
    let name: &[u8] = &frame.name;
    let (name, is_entry_seen, is_exit_seen) = match (
        name.strip_suffix(ENTRY_NOT_SEEN),
        name.strip_suffix(EXIT_NOT_SEEN),
    ) {
        (Some(name), _) => (name, false, true),
        (None, Some(name)) => (name, true, false),
        (None, None) => (name, true, true),
    };
    let module = frame.module();
    let name = without_placeholder(name, module);
    let function = match (name, module) {
        (b"", b"") => Function::Unknown,
        (name, module) => Function::Named { name, module },
    };
    (function, is_entry_seen, is_exit_seen)
}
