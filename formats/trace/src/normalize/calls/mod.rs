//! Entries and exits become calls: function, caller, duration, self time.
//!
//! ```text
//! Enter ksys_write           lane of thread 220: ksys_write
//!   Enter vfs_write                              ksys_write, vfs_write
//!   Leave                    a row: vfs_write, 5 µs, inside ksys_write
//! Leave                      a row: ksys_write, 9 µs, 4 µs of them self time
//! ```
//! Rules, each with its test:
//! - A *lane* is a unit of nesting: a thread with its interrupts; the idle task of each CPU; a CPU where
//!   the input has no thread ([`Switch`] supplies it afterwards).
//! - Entries and exits of unknown threads are not paired, and such calls have no caller ([`Threadless`]).
//! - A leave belongs to the call of its depth if depths are recorded; otherwise to the innermost open call of its
//!   function, or of its event pair; without either, to the innermost one. Calls still open inside have no exit.
//! - A leave without an enter is a call whose entry was not seen; a call never left is one without an exit.
//! - No pair spans a loss, except if the leave proves it, because it has the duration since the entry.
//! - Returns of probes belong to the innermost open call of their function. More open calls than the kernel awaits returns of
//!   (64 in a thread) end without an exit: nobody knows which of them returns.
//! - If a thread's ID is reused, the open calls of the first thread end.
//! - A system call recorded by number and by name is one call, that of the name if its exits are known to be
//!   recorded. One whose entry was not seen is two.
//! - If the recorder declares an event as an edge of a function, that decides, and recursion shows as nesting.
//! - The exit of a system call whose registers were replaced has no number: it ends the open one. The child's return from clone
//!   is no call.
//! - Of events that several buffers of a trace have, those of one buffer are paired.
//! - A call outside the selection (too short, in another context) is not a row, but counts for enclosing calls.
//! - Complete calls ([`Call`]) nest by their times; a recorded caller that is open decides. A call that outlives another is not
//!   inside of it, and the self time of the other is unknown.
//! - A complete call whose duration is unknown encloses later ones until a call around it has ended, or a recorded depth says so.
//!
//! Pending rows are written in the order of their entries, the order of `calls.time`. Calls that stay open for very long
//! are written when they end, so that they do not hold back all later rows.

mod args;
mod batch;
mod buffers;
mod edges;
mod ends;
mod keep;
mod lanes;
mod names;
mod ordered;
mod pairs;
mod pending;
mod proof;
mod system_calls;
#[cfg(test)]
mod tests;
mod threadless;
mod waiting;

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::event::{Context, Selection};

use super::heads::Head;
use super::output::Output;
use super::selected::Selected;
use super::texts::{SharedTexts, TextId};
use super::threads::Threads;
use crate::store;

use batch::CallNames;
use buffers::Buffers;
pub(crate) use edges::EdgeHit;
use ends::{enclosing, end_before, inside, outlive, without_ended};
use lanes::{Lane, Lanes};
pub(crate) use names::Names;
use pairs::{DECLARED, ENTRY_BYTES, PROBE, SystemCall};
pub(crate) use pairs::{Pairs, Recorded, Role};
use pending::{CallId, Extra, Pending};
use system_calls::Children;
use threadless::{Threadless, is_interrupt};
use waiting::{Extent, PendingRows};

/// Maximum number of open calls in one lane: above any kernel stack, but user code may recurse deeper.
const DEEPEST: usize = 8192;
/// Maximum number of lanes: threads and CPUs.
const LANES: usize = 1 << 18;
/// Maximum size of the distinct names of functions, callers and arguments, in bytes.
const TEXT_BYTES: usize = 32 << 20;
/// Maximum number of calls awaited after a nested one.
const EXPECTED: usize = 1 << 16;
/// Maximum number of cached names of numbers.
const NUMBERED: usize = 1 << 14;
/// Durations and times of text formats have microseconds: equal times may differ by this much.
const SLACK_NS: i64 = 1_500;

/// An open call.
#[derive(Debug, Clone, Copy, Default)]
struct Open {
    id: CallId,
    function: Option<TextId>,
    time: Option<i64>,
    /// As recorded by the input.
    depth: Option<u32>,
    /// Of calls made from events of two types.
    pair: Option<Pair>,
    /// The event type of the entry, for such calls.
    event: u32,
    /// The exit may not be recorded at all: not known to be a call.
    is_provisional: bool,
    end: End,
    /// Number of losses at the entry.
    losses: u64,
    /// Of a system call: the events of its edges,
    system_call: Option<SystemCall>,
    /// and its number.
    number: Option<u64>,
    /// Of a call that other events report too.
    twin: Twin,
}

/// A system call reported by two kinds of events, and the state of the other report.
#[derive(Debug, Clone, Copy, Default)]
struct Twin {
    /// The other report is directly below.
    is_upper: bool,
    /// The other report becomes the row.
    is_reported_elsewhere: bool,
    /// Whether the other report has ended; this one then ends too.
    is_over: bool,
}

/// The end of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum End {
    /// Its leave.
    #[default]
    ByLeave,
    /// At this time; the call is complete, and waits for calls inside it.
    At(i64),
    /// Not stated in its line.
    Unknown,
}

/// Identifies two events as edges of one call: the pair of event types, and a key in both payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Pair {
    pub(crate) class: u32,
    pub(crate) key: u64,
}

impl Pair {
    /// Whether an exit belongs to this entry. A probe at an entry may be a few bytes past it.
    fn is_of(self, exit: Pair) -> bool {
        let distance = self.key.wrapping_sub(exit.key);
        let slack = if self.class == PROBE { ENTRY_BYTES } else { 0 };
        self.class == exit.class && distance <= slack
    }
}

/// A call that begins, with its lane and names resolved.
#[derive(Debug, Clone, Default)]
struct Entry {
    head: Head,
    function: Option<TextId>,
    module: Option<TextId>,
    caller: Option<TextId>,
    depth: Option<u32>,
    context: Option<Context>,
    extra: Option<Box<Extra>>,
    pair: Option<Pair>,
    event: u32,
    is_provisional: bool,
    system_call: Option<SystemCall>,
    number: Option<u64>,
}

/// A call that ends, with its lane and names resolved.
#[derive(Debug, Clone, Default)]
struct Exit {
    head: Head,
    function: Option<TextId>,
    module: Option<TextId>,
    depth: Option<u32>,
    context: Option<Context>,
    duration: Option<i64>,
    retval: Option<i64>,
    fetched: Vec<Box<[u8]>>,
    pair: Option<Pair>,
    system_call: Option<SystemCall>,
    number: Option<u64>,
}

/// A call with a nested call that came first.
struct Awaited {
    id: CallId,
    /// Calls inside it that wait for it.
    inside: Vec<CallId>,
}

/// All calls of one input.
pub(crate) struct Calls {
    lanes: Lanes,
    /// The running thread per CPU, if lines do not have it.
    running: HashMap<u32, i32>,
    texts: SharedTexts,
    contexts: store::Names,
    /// Names made of a number in the events of a type.
    numbered: HashMap<(u32, i64), TextId>,
    /// Number of resets of the strings.
    generation: u32,
    losses: u64,
    rows: PendingRows,
    /// Number of calls given up at the limits of depth or lanes.
    given_up: u64,
    /// Calls that enclose calls recorded before them, by entry time.
    expected: HashMap<(Lane, i64), Awaited>,
    /// Finished and selected calls of declared functions.
    ended: u64,
    buffers: Buffers,
    threadless: Threadless,
    children: Children,
}

impl Calls {
    /// Numbers calls from `first`.
    pub(crate) fn starting_at(first: i64) -> Calls {
        Calls {
            lanes: Lanes::default(),
            running: HashMap::new(),
            texts: SharedTexts::default(),
            contexts: CallNames::contexts(),
            numbered: HashMap::new(),
            generation: 0,
            losses: 0,
            rows: PendingRows::starting_at(first),
            given_up: 0,
            expected: HashMap::new(),
            ended: 0,
            buffers: Buffers::default(),
            threadless: Threadless::default(),
            children: Children::default(),
        }
    }

    /// The input is a separate file of a function recording: all its calls were requested.
    pub(crate) fn count_all(&mut self) {
        self.rows.keep.counts_all = true;
    }

    /// Sets the recorder's selection.
    pub(crate) fn select(&mut self, selection: &Selection) {
        self.rows.keep.select(selection);
    }

    /// Returns the number of excluded calls per reason.
    pub(crate) fn left_out(&self) -> Vec<(u64, String)> {
        self.rows.keep.left_out()
    }

    /// The ID of the next call.
    pub(crate) fn next_id(&self) -> i64 {
        self.rows.next_id()
    }

    /// Number of calls given up at the limits.
    pub(crate) fn given_up(&self) -> u64 {
        self.given_up + self.rows.given_up
    }

    /// Names numbers anew: the architecture is known now.
    pub(crate) fn forget_numbers(&mut self) {
        self.numbered.clear();
        self.generation += 1;
    }

    /// Records a loss: from here on, a leave must prove that it belongs to an open call.
    pub(crate) fn loss(&mut self) {
        self.losses += 1;
        self.children.loss();
        let rows = &mut self.rows;
        self.lanes.sweep(|lane| {
            // Without a depth, no event would end them.
            let cut = lane
                .iter()
                .position(|open| open.depth.is_none() && open.end == End::ByLeave);
            if let Some(cut) = cut {
                abandon(rows, lane, cut);
            }
        });
    }

    /// Ends the calls of a thread whose ID was reused.
    pub(crate) fn reused(&mut self, tid: i32) {
        if let Some(mut lane) = self.lanes.remove(Lane::Thread(tid)) {
            abandon(&mut self.rows, &mut lane, 0);
        }
    }

    /// Handles a thread switch: open calls without a thread on this CPU belong to the previous thread.
    fn switch(&mut self, cpu: u32, previous: i32, previous_comm: Option<TextId>, next: i32) {
        self.running.insert(cpu, next);
        let Some(mut lane) = self.lanes.remove(Lane::Cpu(cpu)) else {
            return;
        };
        for open in &lane {
            if let Some(row) = self.rows.get_mut(open.id) {
                row.head = row.head.of(previous, previous_comm);
            }
        }
        if let Some(outermost) = lane.first() {
            let inside = self.rows.since(outermost.id);
            for row in inside.filter(|row| row.head.tid().is_none() && row.head.cpu() == Some(cpu))
            {
                row.head = row.head.of(previous, previous_comm);
            }
        }
        let to = Lane::of(Some(previous), Some(cpu));
        lane.extend(self.lanes.remove(to).unwrap_or_default());
        let excess = lane.len().saturating_sub(DEEPEST);
        self.given_up += excess as u64;
        for outermost in lane.drain(..excess) {
            self.rows.close(outermost.id);
        }
        *self.lanes.of(to) = lane;
    }

    /// The lane of a place; the number of lanes is bounded.
    fn lane(&mut self, head: &Head) -> Lane {
        let lane = Lane::of(head.tid(), head.cpu());
        if self.lanes.len() >= LANES && !self.lanes.contains(lane) {
            let (rows, given_up) = (&mut self.rows, &mut self.given_up);
            self.lanes.sweep(|opens| {
                *given_up += without_end(opens);
                abandon(rows, opens, 0);
            });
        }
        lane
    }

    /// Handles a function entry.
    fn enter(&mut self, entry: Entry) {
        if self
            .threadless
            .is_of(&entry.head, entry.depth, entry.context)
        {
            return self.enter_threadless(entry);
        }
        let lane = self.lane(&entry.head);
        let losses = self.losses;
        let opens = self.lanes.of(lane);
        end_before(&mut self.rows, opens, &entry);
        let is_as_below = is_reported_twice(opens, &entry, losses);
        // The report by name has more information, if its exit is recorded.
        let is_reported_elsewhere = is_as_below
            && match entry.system_call {
                Some(SystemCall::Named) => entry.is_provisional,
                _ => !opens.last().is_some_and(|below| below.is_provisional),
            };
        if let Some(below) = opens
            .last_mut()
            .filter(|_| is_as_below && !is_reported_elsewhere)
        {
            below.is_provisional = true;
            below.twin.is_reported_elsewhere = true;
            if let Some(row) = self.rows.get_mut(below.id) {
                row.is_provisional = true;
            }
        }
        if opens.len() >= DEEPEST {
            // The outermost call has waited longest and is the least likely to end soon.
            self.given_up += 1;
            let outermost = opens.remove(0);
            self.rows.close(outermost.id);
        }
        let parent = around(opens, losses);
        let open = Open {
            id: CallId::default(),
            function: entry.function,
            time: entry.head.time(),
            depth: entry.depth,
            pair: entry.pair,
            event: entry.event,
            is_provisional: entry.is_provisional || is_reported_elsewhere,
            end: End::ByLeave,
            losses,
            system_call: entry.system_call,
            number: entry.number,
            twin: Twin {
                is_upper: is_as_below,
                is_reported_elsewhere,
                is_over: false,
            },
        };
        let mut row = Pending::of(entry, parent.map(|parent| parent.id), calls_in(opens));
        row.caller = row.caller.or(parent.and_then(|parent| parent.function));
        row.is_provisional = open.is_provisional;
        let id = self.rows.add(row);
        opens.push(Open { id, ..open });
    }

    /// Handles a function exit. Returns the event type of the entry.
    fn leave(&mut self, mut exit: Exit) -> Option<u32> {
        if self.threadless.is_of(&exit.head, exit.depth, exit.context) {
            self.leave_threadless();
            return None;
        }
        let lane = self.lane(&exit.head);
        self.returns(lane, &exit);
        self.children.parent(&exit);
        let losses = self.losses;
        let opens = without_ended(&mut self.rows, self.lanes.of(lane), exit.head.time());
        let place = place_of(opens, &exit);
        if let Some(place) = place
            && system_calls::is_trampoline(opens.get(place + 1..), &self.texts)
        {
            for open in opens.drain(place + 1..) {
                if let Some(row) = self.rows.get_mut(open.id) {
                    (row.parent_id, row.caller) = (None, None);
                    row.depth = row.depth.saturating_sub(1);
                }
                self.rows.close(open.id);
            }
        }
        let found = place.and_then(|place| opens.get(place).copied());
        let proven = found.filter(|open| open.losses == losses || is_proven(open, &exit));
        let mut twin = None;
        if let Some(place) = place {
            let above = opens.get(place + 1);
            if proven.is_some() && above.is_some_and(|open| open.twin.is_upper) {
                abandon(&mut self.rows, opens, place + 2);
                twin = opens.pop();
            }
            // Abandon the calls inside, and the call itself if the exit is not its own.
            abandon(&mut self.rows, opens, place + usize::from(proven.is_some()));
        } else if let Some(depth) = exit.depth {
            let inside = |open: &Open| open.depth.is_some_and(|inner| inner >= depth);
            if let Some(place) = opens.iter().position(inside) {
                abandon(&mut self.rows, opens, place);
            }
        }
        let Some(open) = proven else {
            let function = exit.function.map(|function| self.texts.get(function));
            let function = function.unwrap_or_default();
            if system_calls::is_no_call(&exit, function)
                || self.children.is_child(&exit, function, &self.lanes)
            {
                return None;
            }
            let opens = self.lanes.of(lane);
            let around = around(opens, losses);
            let mut row = Pending::without_entry(exit, around.map(|open| open.id), calls_in(opens));
            row.caller = around.and_then(|around| around.function);
            let (parent, duration) = (row.parent_id, row.duration);
            self.rows.add(row);
            self.rows.add_child(parent, duration);
            return None;
        };
        opens.pop();
        opens.extend(twin.map(|open| Open {
            twin: Twin {
                is_upper: false,
                is_over: true,
                ..open.twin
            },
            ..open
        }));
        if open.twin.is_reported_elsewhere {
            self.rows.close(open.id);
            return Some(open.event);
        }
        self.rows.fetch(open.id, std::mem::take(&mut exit.fetched));
        let measured = match (open.time, exit.head.time()) {
            (Some(start), Some(end)) => end.checked_sub(start).filter(|&duration| duration >= 0),
            _ => None,
        };
        let duration = exit.duration.or(measured);
        let is_declared = exit.pair.is_some_and(|pair| pair.class == DECLARED);
        if let Some(row) = self.rows.get_mut(open.id) {
            row.duration = duration;
            // Restored registers have another call's result.
            row.retval = exit.retval.filter(|_| !system_calls::lacks_number(&exit));
            row.exit_seen = true;
            if is_declared {
                // At a breakpoint the kernel reports interrupt context, so only the exit knows the real one.
                row.context = exit.context.or(row.context);
            }
            row.function = row.function.or(exit.function);
            row.is_provisional = false;
            // Lost calls may have been inside it.
            if open.losses != losses {
                row.in_others = None;
            }
            let parent = row.parent_id;
            let is_wanted = is_declared && self.rows.is_selected(open.id);
            self.ended += u64::from(is_wanted);
            self.rows.close(open.id);
            self.rows.add_child(parent, duration);
        }
        Some(open.event)
    }

    /// Handles a complete call, in the order of entries.
    fn call(&mut self, entry: Entry, exit: Exit, may_nest: bool) {
        let is_of_nobody = self
            .threadless
            .is_of(&entry.head, entry.depth, entry.context);
        if is_of_nobody && !is_interrupt(entry.context) {
            return self.call_threadless(entry, &exit, may_nest);
        }
        let lane = self.lane(&entry.head);
        let losses = self.losses;
        let opens = self.lanes.of(lane);
        if may_nest {
            outlive(&mut self.rows, opens, &entry, exit.duration);
        }
        end_before(&mut self.rows, opens, &entry);
        let has_duration = exit.duration.is_some();
        let around_it = opens.get(..enclosing(opens, &entry, exit.duration));
        let around_it = around_it.unwrap_or_default();
        let (parent, calls_around) = (around(around_it, losses), calls_in(around_it));
        let (function, time, depth) = (entry.function, entry.head.time(), entry.depth);
        let own = inside(parent, &entry, exit.duration);
        let mut row = Pending::of(entry, parent.map(|parent| parent.id), calls_around);
        row.caller = row.caller.or(parent.and_then(|parent| parent.function));
        row.duration = exit.duration;
        row.retval = exit.retval;
        row.exit_seen = has_duration;
        let parent = row.parent_id;
        let id = self.rows.add(row);
        // A call without a recorded end (the `function` tracer) takes no self time from its parents.
        if has_duration || may_nest {
            self.rows.add_child(parent, own);
        }
        if !may_nest || opens.len() >= DEEPEST {
            self.rows.close(id);
            return;
        }
        opens.push(Open {
            id,
            function,
            time,
            depth,
            pair: None,
            event: 0,
            is_provisional: false,
            end: match (time, exit.duration) {
                (Some(time), Some(duration)) => End::At(time.saturating_add(duration)),
                _ => End::Unknown,
            },
            losses,
            system_call: None,
            number: None,
            twin: Twin::default(),
        });
    }

    /// Handles a call reported at its end, after the calls inside it, which named it by its entry.
    fn paired(&mut self, entry: Entry, exit: Exit, parent_entry: Option<i64>, inside: i64) {
        let lane = self.lane(&entry.head);
        let time = entry.head.time();
        let expected = time.and_then(|time| self.expected.remove(&(lane, time)));
        if self.expected.len() >= EXPECTED {
            for (_, awaited) in self.expected.drain() {
                self.rows.close(awaited.id);
                awaited.inside.iter().for_each(|&id| self.rows.close(id));
            }
        }
        let rows = &mut self.rows;
        let mut parent = parent_entry.map(|time| {
            self.expected.entry((lane, time)).or_insert_with(|| {
                // Not a row until it is reported itself.
                let unknown = Entry {
                    is_provisional: true,
                    ..Entry::default()
                };
                Awaited {
                    id: rows.add(Pending::of(unknown, None, 0)),
                    inside: Vec::new(),
                }
            })
        });
        let parent_id = parent.as_ref().map(|awaited| awaited.id);
        let mut row = Pending::of(entry, parent_id, 0);
        row.duration = exit.duration;
        row.retval = exit.retval;
        row.exit_seen = exit.duration.is_some();
        row.in_others = Some(inside);
        let known = expected.filter(|awaited| rows.get_mut(awaited.id).is_some());
        let id = match known {
            Some(awaited) => {
                awaited.inside.iter().for_each(|&id| rows.close(id));
                rows.replace(awaited.id, row);
                awaited.id
            }
            None => rows.add(row),
        };
        // Whether the enclosing call is a row is known when it is reported.
        match &mut parent {
            Some(awaited) if awaited.inside.len() < DEEPEST => awaited.inside.push(id),
            _ => rows.close(id),
        }
    }

    /// Whether enough calls have ended to write them.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.rows.is_due() || self.is_too_much()
    }

    #[inline]
    fn is_too_much(&self) -> bool {
        self.texts.bytes() > TEXT_BYTES || self.rows.is_too_much()
    }

    /// Writes finished calls; all of them if the input has ended or too many wait.
    pub(crate) fn write(
        &mut self,
        threads: &Threads,
        output: &mut Output,
        selected: &mut Selected,
        all: bool,
    ) -> Result<(), Error> {
        let is_renewed = !all && self.texts.bytes() > TEXT_BYTES && {
            let names = self.names(threads);
            self.rows.write(&names, output, selected, Extent::Ended)?;
            self.rows.hand_over(&names, output)?;
            self.renew_texts()
        };
        let too_much = self.is_too_much();
        if is_renewed && !too_much {
            return Ok(());
        }
        if all || too_much {
            self.close_threadless();
            let (rows, given_up) = (&mut self.rows, &mut self.given_up);
            self.lanes.sweep(|opens| {
                *given_up += if too_much { without_end(opens) } else { 0 };
                abandon(rows, opens, 0);
            });
        }
        let names = self.names(threads);
        let extent = match all || too_much {
            true => Extent::All,
            false => Extent::Front,
        };
        self.rows.write(&names, output, selected, extent)?;
        if too_much {
            self.texts = SharedTexts::default();
            self.numbered.clear();
            self.generation += 1;
        }
        Ok(())
    }

    fn names(&self, threads: &Threads) -> CallNames {
        CallNames {
            comms: threads.comms().clone(),
            functions: self.texts.names().clone(),
            contexts: self.contexts.clone(),
        }
    }

    /// Keeps only the strings of rows that are not written yet: arguments are often distinct, and the calls around them stay
    /// open. Returns true.
    fn renew_texts(&mut self) -> bool {
        let old = std::mem::take(&mut self.texts);
        let new = &mut self.texts;
        let mut renew = |id: &mut TextId| *id = new.intern(old.get(*id));
        self.rows.each(|row| {
            let names = [&mut row.function, &mut row.module, &mut row.caller];
            names.into_iter().flatten().for_each(&mut renew);
            let args = row.extra.iter_mut().flat_map(|extra| &mut extra.args);
            args.for_each(&mut renew);
        });
        self.lanes.sweep(|opens| {
            let functions = opens.iter_mut().filter_map(|open| open.function.as_mut());
            functions.for_each(&mut renew);
        });
        self.numbered.clear();
        self.generation += 1;
        true
    }
}

/// The number of open calls that end only by their leave.
fn without_end(opens: &[Open]) -> u64 {
    opens.iter().filter(|open| open.end == End::ByLeave).count() as u64
}

/// Whether the innermost call is the beginning system call, reported by the other events: no system call is inside
/// another.
fn is_reported_twice(opens: &[Open], entry: &Entry, losses: u64) -> bool {
    let Some(innermost) = opens.last() else {
        return false;
    };
    let numbers = innermost.number.zip(entry.number);
    // A call whose exits may not be recorded matches no other.
    let is_numbered_known = match (innermost.system_call, entry.system_call) {
        (Some(SystemCall::Numbered), Some(SystemCall::Named)) => !innermost.is_provisional,
        (Some(SystemCall::Named), Some(SystemCall::Numbered)) => !entry.is_provisional,
        _ => false,
    };
    is_numbered_known
        && numbers.is_none_or(|(below, own)| below == own)
        && innermost.losses == losses
        && !(innermost.twin.is_upper || innermost.twin.is_reported_elsewhere)
}

/// The call that encloses a new one; `None` across a loss.
fn around(opens: &[Open], losses: u64) -> Option<&Open> {
    let known = opens.iter().rev().find(|open| !open.is_provisional);
    known.filter(|open| open.losses == losses)
}

/// The number of calls in which another begins.
fn calls_in(opens: &[Open]) -> usize {
    opens.iter().filter(|open| !open.is_provisional).count()
}

/// Closes the open calls from `place` inwards, as complete or without an exit.
fn abandon(rows: &mut PendingRows, opens: &mut Vec<Open>, place: usize) {
    for open in opens.drain(place.min(opens.len())..).rev() {
        if open.end == End::ByLeave
            && !open.is_provisional
            && let Some(row) = rows.get_mut(open.id)
        {
            let parent = row.parent_id;
            rows.add_child(parent, None);
        }
        rows.drop_unproven(&open);
        rows.close(open.id);
    }
}

/// The index of the open call that an exit belongs to.
fn place_of(opens: &[Open], exit: &Exit) -> Option<usize> {
    let by_leave = |open: &Open| open.end == End::ByLeave;
    if system_calls::lacks_number(exit) {
        return system_calls::innermost(opens);
    }
    if let Some(pair) = exit.pair {
        return opens
            .iter()
            .rposition(|open| open.pair.is_some_and(|other| other.is_of(pair)));
    }
    if let Some(depth) = exit.depth {
        let place = opens.iter().rposition(|open| open.depth == Some(depth))?;
        let open = opens.get(place)?;
        let same = exit.function.is_none() || exit.function == open.function;
        return (same && by_leave(open)).then_some(place);
    }
    match exit.function {
        Some(function) => opens.iter().rposition(|open| {
            open.function == Some(function) && by_leave(open) && open.pair.is_none()
        }),
        None => opens
            .iter()
            .rposition(|open| by_leave(open) && open.pair.is_none()),
    }
}

/// Whether a leave proves by its duration that it belongs to a call.
fn is_proven(open: &Open, exit: &Exit) -> bool {
    match (open.time, exit.head.time(), exit.duration) {
        (Some(start), Some(end), Some(duration)) => {
            let proven_start = end.saturating_sub(duration);
            start.abs_diff(proven_start) <= SLACK_NS.unsigned_abs()
        }
        _ => false,
    }
}
