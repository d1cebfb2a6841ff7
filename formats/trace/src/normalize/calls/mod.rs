//! Entry and exit become calls: who was called, by whom, how long, how much of it in others.
//!
//! ```text
//! Enter ksys_write           lane of thread 220: ksys_write
//!   Enter vfs_write                              ksys_write, vfs_write
//!   Leave                    a row: vfs_write, 5 µs, inside of ksys_write
//! Leave                      a row: ksys_write, 9 µs, of which 4 µs itself
//! ```
//! Rules, each with its test:
//! - A *lane* is a unit of nesting: a thread with its interrupts; the idle task of each CPU; a CPU where
//!   the input has no thread ([`Switch`] supplies it afterwards).
//! - A leave belongs to the call of its depth if depths are recorded; otherwise to the innermost open call of its
//!   function, or of its event pair; without either, to the innermost one. Calls still open inside have no exit.
//! - A leave without an enter is a call whose entry was not seen; a call never left is one without an exit.
//! - Nothing is paired across a loss, unless the leave itself proves it: its duration leads back to the entry.
//! - If a thread's ID is reused, the open calls of the first thread end.
//! - A system call recorded by number and by name is one call, that of the name if its exits are known to be
//!   recorded. One whose entry was not seen is two.
//! - If the recorder declares an event as an edge of a function, that decides, and recursion shows as nesting.
//! - A call outside the selection (too short, in another context) is not a row, but counts for enclosing calls.
//! - Complete calls ([`Call`]) nest by their times; a recorded caller that is open decides.
//!
//! PendingRows are written in the order of the entries, as `calls.time` is; those that stay open for very long are
//! written when they end.

mod args;
mod edges;
mod keep;
mod names;
mod pairs;
mod pending;
#[cfg(test)]
mod tests;

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::event::{Context, Selection};

use super::output::Output;
use super::selected::Selected;
use super::texts::{TextId, Texts};
use super::threads::Threads;

pub(crate) use edges::Hit;
pub(crate) use names::Names;
use pairs::{ENTRY_BYTES, MARKER, PROBE, SystemCall, TOLD};
pub(crate) use pairs::{Pairs, Role};
use pending::{CallId, Pending, PendingRows, Place};

/// Calls that one lane may have open: deeper than any kernel stack; user code may recurse deeper.
const DEEPEST: usize = 8192;
/// Lanes kept: threads and CPUs.
const LANES: usize = 1 << 18;
/// Bytes of distinct names of functions, callers and arguments.
const TEXT_BYTES: usize = 64 << 20;
/// Maximum number of calls awaited after a nested one.
const EXPECTED: usize = 1 << 16;
/// Maximum number of cached names of numbers.
const NUMBERED: usize = 1 << 14;
/// Durations and times of text formats have microseconds: so far may they be apart and still be the same.
const SLACK_NS: i64 = 1_500;

/// What nests in itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Lane {
    Thread(i32),
    /// The idle tasks of all CPUs share the number 0.
    Idle(u32),
    /// The thread is unknown.
    Cpu(u32),
    Unknown,
}

impl Lane {
    fn of(tid: Option<i32>, cpu: Option<u32>) -> Lane {
        match (tid, cpu) {
            (Some(0), Some(cpu)) => Lane::Idle(cpu),
            (Some(tid), _) => Lane::Thread(tid),
            (None, Some(cpu)) => Lane::Cpu(cpu),
            (None, None) => Lane::Unknown,
        }
    }
}

/// A call that is not over.
#[derive(Debug, Clone, Copy)]
struct Open {
    id: CallId,
    function: Option<TextId>,
    time: Option<i64>,
    /// As recorded by the input.
    depth: Option<u32>,
    /// For those that events of two types make.
    pair: Option<Pair>,
    /// The type of the entry, for those.
    event: u32,
    /// The exit may not be recorded at all: not known to be a call.
    is_provisional: bool,
    end: End,
    /// How many losses there had been.
    losses: u64,
    /// Of a system call: which events are its edges,
    system_call: Option<SystemCall>,
    /// and its number.
    number: Option<u64>,
    /// For one that other events report too.
    twin: Twin,
}

/// A system call that is told twice, and the other telling of it beside it.
#[derive(Debug, Clone, Copy, Default)]
struct Twin {
    /// The other one is below.
    is_upper: bool,
    /// The other one becomes the row.
    is_told_elsewhere: bool,
    /// The other one has ended: so will this.
    is_over: bool,
}

/// When a call is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// When its leave comes.
    ByLeave,
    /// At this time; it is whole, and waits for those inside of it.
    At(i64),
    /// Missing in its line.
    Untold,
}

/// What makes two events edges of one call: the pair of event types, and a key in both payloads.
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

/// A call that begins, with everything looked up.
#[derive(Debug, Clone, Default)]
struct Entry {
    place: Place,
    function: Option<TextId>,
    module: Option<TextId>,
    caller: Option<TextId>,
    depth: Option<u32>,
    context: Option<Context>,
    args: Box<[TextId]>,
    fetched: Vec<Box<[u8]>>,
    pair: Option<Pair>,
    event: u32,
    is_provisional: bool,
    system_call: Option<SystemCall>,
    number: Option<u64>,
}

/// A call that ends, with everything looked up.
#[derive(Debug, Clone, Default)]
struct Exit {
    place: Place,
    function: Option<TextId>,
    module: Option<TextId>,
    depth: Option<u32>,
    context: Option<Context>,
    duration: Option<i64>,
    retval: Option<i64>,
    fetched: Vec<Box<[u8]>>,
    pair: Option<Pair>,
}

/// A call with a nested call that came first.
struct Awaited {
    id: CallId,
    /// Calls inside of it that wait for it.
    inside: Vec<CallId>,
}

/// All calls of one input.
pub(crate) struct Calls {
    lanes: HashMap<Lane, Vec<Open>>,
    /// The running thread per CPU, if lines do not have it.
    running: HashMap<u32, i32>,
    texts: Texts,
    /// Names made of a number in the events of a type.
    numbered: HashMap<(u32, i64), TextId>,
    /// Number of resets of the strings.
    generation: u32,
    losses: u64,
    rows: PendingRows,
    /// Calls whose exit could not be waited for: too deep, too many threads.
    given_up: u64,
    /// Calls that enclose calls recorded before them, by entry time.
    expected: HashMap<(Lane, i64), Awaited>,
    /// Finished and selected calls of declared functions.
    ended: u64,
}

impl Calls {
    /// Calls are numbered from `first`.
    pub(crate) fn starting_at(first: i64) -> Calls {
        Calls {
            lanes: HashMap::new(),
            running: HashMap::new(),
            texts: Texts::default(),
            numbered: HashMap::new(),
            generation: 0,
            losses: 0,
            rows: PendingRows::starting_at(first),
            given_up: 0,
            expected: HashMap::new(),
            ended: 0,
        }
    }

    /// The input is a separate file of a function recording: all its calls were requested.
    pub(crate) fn count_all(&mut self) {
        self.rows.keep.counts_all = true;
    }

    /// Sets the recorder's selection.
    pub(crate) fn select(&mut self, selection: &Selection) {
        self.rows.keep.tell(selection);
    }

    /// Returns the number of excluded calls per reason.
    pub(crate) fn left_out(&self) -> Vec<(u64, String)> {
        self.rows.keep.left_out()
    }

    /// The number of the next call.
    pub(crate) fn next_id(&self) -> i64 {
        self.rows.next_id()
    }

    /// Calls whose exit could not be waited for.
    pub(crate) fn given_up(&self) -> u64 {
        self.given_up + self.rows.given_up
    }

    /// Events are lost: from here on, a leave must prove that it belongs to an open call.
    pub(crate) fn loss(&mut self) {
        self.losses += 1;
        let rows = &mut self.rows;
        self.lanes.retain(|_, lane| {
            // Without a depth nobody would ever come to end them.
            let cut = lane
                .iter()
                .position(|open| open.depth.is_none() && open.end == End::ByLeave);
            if let Some(cut) = cut {
                abandon(rows, lane, cut);
            }
            !lane.is_empty()
        });
    }

    /// The number of a thread was given to another.
    pub(crate) fn reused(&mut self, tid: i32) {
        if let Some(mut lane) = self.lanes.remove(&Lane::Thread(tid)) {
            abandon(&mut self.rows, &mut lane, 0);
        }
    }

    /// Another thread runs on a CPU: what was open there without a thread was the previous one's.
    fn switch(&mut self, cpu: u32, previous: i32, previous_comm: Option<TextId>, next: i32) {
        self.running.insert(cpu, next);
        let Some(mut lane) = self.lanes.remove(&Lane::Cpu(cpu)) else {
            return;
        };
        for open in &lane {
            if let Some(row) = self.rows.get_mut(open.id) {
                row.place.tid = Some(previous);
                row.place.comm = previous_comm;
            }
        }
        if let Some(outermost) = lane.first() {
            let inside = self.rows.since(outermost.id);
            for row in inside.filter(|row| row.place.tid.is_none() && row.place.cpu == Some(cpu)) {
                row.place.tid = Some(previous);
                row.place.comm = previous_comm;
            }
        }
        let to = Lane::of(Some(previous), Some(cpu));
        lane.extend(self.lanes.remove(&to).unwrap_or_default());
        let excess = lane.len().saturating_sub(DEEPEST);
        self.given_up += excess as u64;
        for outermost in lane.drain(..excess) {
            self.rows.close(outermost.id);
        }
        self.lanes.insert(to, lane);
    }

    /// The lane of a place, which must not grow beyond all bounds.
    fn lane(&mut self, place: &Place) -> Lane {
        let lane = Lane::of(place.tid, place.cpu);
        if self.lanes.len() >= LANES && !self.lanes.contains_key(&lane) {
            let (rows, given_up) = (&mut self.rows, &mut self.given_up);
            self.lanes.retain(|_, opens| {
                *given_up += opens.len() as u64;
                abandon(rows, opens, 0);
                false
            });
        }
        lane
    }

    /// A function is entered.
    fn enter(&mut self, entry: Entry) {
        let lane = self.lane(&entry.place);
        let losses = self.losses;
        let opens = self.lanes.entry(lane).or_default();
        end_before(&mut self.rows, opens, &entry);
        let is_as_below = is_told_twice(opens, &entry, losses);
        // The name tells more, if its exit will come.
        let is_told_elsewhere = is_as_below
            && match entry.system_call {
                Some(SystemCall::Named) => entry.is_provisional,
                _ => !opens.last().is_some_and(|below| below.is_provisional),
            };
        if let Some(below) = opens
            .last_mut()
            .filter(|_| is_as_below && !is_told_elsewhere)
        {
            below.is_provisional = true;
            below.twin.is_told_elsewhere = true;
            if let Some(row) = self.rows.get_mut(below.id) {
                row.is_provisional = true;
            }
        }
        if opens.len() >= DEEPEST {
            // The outermost has waited longest and is the least likely to end soon.
            self.given_up += 1;
            let outermost = opens.remove(0);
            self.rows.close(outermost.id);
        }
        let parent = around(opens, losses);
        let open = Open {
            id: CallId::default(),
            function: entry.function,
            time: entry.place.time,
            depth: entry.depth,
            pair: entry.pair,
            event: entry.event,
            is_provisional: entry.is_provisional || is_told_elsewhere,
            end: End::ByLeave,
            losses,
            system_call: entry.system_call,
            number: entry.number,
            twin: Twin {
                is_upper: is_as_below,
                is_told_elsewhere,
                is_over: false,
            },
        };
        let mut row = Pending::of(entry, parent.map(|parent| parent.id), calls_in(opens));
        row.caller = row.caller.or(parent.and_then(|parent| parent.function));
        row.is_provisional = open.is_provisional;
        let id = self.rows.add(row);
        opens.push(Open { id, ..open });
    }

    /// A function is left. Gives the type of the event that was its entry.
    fn leave(&mut self, mut exit: Exit) -> Option<u32> {
        let lane = self.lane(&exit.place);
        let losses = self.losses;
        let opens = self.lanes.entry(lane).or_default();
        let place = place_of(opens, &exit);
        let found = place.and_then(|place| opens.get(place).copied());
        let proven = found.filter(|open| open.losses == losses || is_proven(open, &exit));
        let mut twin = None;
        if let Some(place) = place {
            let above = opens.get(place + 1);
            if proven.is_some() && above.is_some_and(|open| open.twin.is_upper) {
                abandon(&mut self.rows, opens, place + 2);
                twin = opens.pop();
            }
            // What is inside of it, and it itself if it is another call after all.
            abandon(&mut self.rows, opens, place + usize::from(proven.is_some()));
        } else if let Some(depth) = exit.depth {
            let inside = |open: &Open| open.depth.is_some_and(|inner| inner >= depth);
            if let Some(place) = opens.iter().position(inside) {
                abandon(&mut self.rows, opens, place);
            }
        }
        let Some(open) = proven else {
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
        if open.twin.is_told_elsewhere {
            self.rows.close(open.id);
            return Some(open.event);
        }
        self.rows.fetch(open.id, std::mem::take(&mut exit.fetched));
        let measured = match (open.time, exit.place.time) {
            (Some(start), Some(end)) => end.checked_sub(start).filter(|&duration| duration >= 0),
            _ => None,
        };
        let duration = exit.duration.or(measured);
        let is_told = exit.pair.is_some_and(|pair| pair.class == TOLD);
        if let Some(row) = self.rows.get_mut(open.id) {
            row.duration = duration;
            row.retval = exit.retval;
            row.exit_seen = true;
            if is_told {
                // At an entry by breakpoint the kernel looks as if it were in an interrupt.
                row.context = exit.context.or(row.context);
            }
            row.function = row.function.or(exit.function);
            row.is_provisional = false;
            // What was lost may have been inside of it.
            if open.losses != losses {
                row.in_others = None;
            }
            let parent = row.parent_id;
            let is_wanted = is_told && self.rows.is_asked_for(open.id);
            self.ended += u64::from(is_wanted);
            self.rows.close(open.id);
            self.rows.add_child(parent, duration);
        }
        Some(open.event)
    }

    /// A complete call, in the order of entries.
    fn call(&mut self, entry: Entry, exit: Exit, may_nest: bool) {
        let lane = self.lane(&entry.place);
        let losses = self.losses;
        let opens = self.lanes.entry(lane).or_default();
        end_before(&mut self.rows, opens, &entry);
        let told = exit.duration.is_some();
        let parent = around(opens, losses);
        let (function, time, depth) = (entry.function, entry.place.time, entry.depth);
        let mut row = Pending::of(entry, parent.map(|parent| parent.id), calls_in(opens));
        row.caller = row.caller.or(parent.and_then(|parent| parent.function));
        row.duration = exit.duration;
        row.retval = exit.retval;
        row.exit_seen = told;
        let parent = row.parent_id;
        let id = self.rows.add(row);
        // Of a function whose end nobody records (the `function` tracer), nothing is taken from those around it.
        if told || may_nest {
            self.rows.add_child(parent, exit.duration);
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
                _ => End::Untold,
            },
            losses,
            system_call: None,
            number: None,
            twin: Twin::default(),
        });
    }

    /// A call that comes when it is over, after those inside of it: these named it by its entry.
    fn paired(&mut self, entry: Entry, exit: Exit, parent_entry: Option<i64>, inside: i64) {
        let lane = self.lane(&entry.place);
        let time = entry.place.time;
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
                // No row as long as nothing more is told of it.
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
        // Whether the call around it is a row is known when that is told.
        match &mut parent {
            Some(awaited) if awaited.inside.len() < DEEPEST => awaited.inside.push(id),
            _ => rows.close(id),
        }
    }

    /// Whether enough is over to be written.
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
        let too_much = self.is_too_much();
        if all || too_much {
            for (_, mut opens) in self.lanes.drain() {
                if too_much {
                    self.given_up += opens.len() as u64;
                }
                abandon(&mut self.rows, &mut opens, 0);
            }
        }
        self.rows
            .write(&self.texts, threads, output, selected, all || too_much)?;
        if too_much {
            self.texts = Texts::default();
            self.numbered.clear();
            self.generation += 1;
        }
        Ok(())
    }
}

/// Whether the innermost call is the system call that begins, told by the other events for it: within one there is no other.
fn is_told_twice(opens: &[Open], entry: &Entry, losses: u64) -> bool {
    let Some(innermost) = opens.last() else {
        return false;
    };
    let numbers = innermost.number.zip(entry.number);
    // One whose exits may not be recorded matches no other.
    let is_numbered_known = match (innermost.system_call, entry.system_call) {
        (Some(SystemCall::Numbered), Some(SystemCall::Named)) => !innermost.is_provisional,
        (Some(SystemCall::Named), Some(SystemCall::Numbered)) => !entry.is_provisional,
        _ => false,
    };
    is_numbered_known
        && numbers.is_none_or(|(below, own)| below == own)
        && innermost.losses == losses
        && !(innermost.twin.is_upper || innermost.twin.is_told_elsewhere)
}

/// The call that another begins in; none across a loss.
fn around(opens: &[Open], losses: u64) -> Option<&Open> {
    let known = opens.iter().rev().find(|open| !open.is_provisional);
    known.filter(|open| open.losses == losses)
}

/// How many calls another begins in.
fn calls_in(opens: &[Open]) -> usize {
    opens.iter().filter(|open| !open.is_provisional).count()
}

/// Ends the open calls from `place` inwards: their exit was not seen, or they are whole.
fn abandon(rows: &mut PendingRows, opens: &mut Vec<Open>, place: usize) {
    for open in opens.drain(place.min(opens.len())..).rev() {
        if open.end == End::ByLeave
            && !open.is_provisional
            && let Some(row) = rows.get_mut(open.id)
        {
            let parent = row.parent_id;
            rows.add_child(parent, None);
        }
        rows.close(open.id);
    }
}

/// Ends what cannot be around a call that begins now.
fn end_before(rows: &mut PendingRows, opens: &mut Vec<Open>, entry: &Entry) {
    let place = match (entry.depth, entry.pair) {
        (Some(depth), _) => opens
            .iter()
            .position(|open| open.depth.is_some_and(|other| other >= depth)),
        // Functions and sections may be inside of themselves.
        (None, Some(pair)) if [MARKER, TOLD].contains(&pair.class) => None,
        (None, Some(pair)) if pair.class == PROBE && !entry.is_provisional => None,
        // A system call, an interrupt is not: the exit of the first was missed.
        (None, Some(pair)) => opens.iter().position(|open| open.pair == Some(pair)),
        (None, None) => None,
    };
    let is_over = |open: &Open| open.twin.is_over && entry.system_call.is_some();
    let place = place.or_else(|| opens.iter().position(is_over));
    if let Some(place) = place {
        abandon(rows, opens, place);
    }
    // Whole calls: those that are over, unless the caller is told and just ends (times have microseconds).
    let Some(time) = entry.place.time else {
        return;
    };
    let is_caller = |open: &Open| open.function.is_some() && open.function == entry.caller;
    while let Some(open) = opens.last() {
        let is_over = match open.end {
            End::At(end) => end < time || (end == time && !is_caller(open)),
            // Without its end, only the caller's name can show it.
            End::Untold => !is_caller(open) && opens.iter().any(is_caller),
            End::ByLeave => false,
        };
        if !is_over {
            break;
        }
        abandon(rows, opens, opens.len() - 1);
    }
}

/// Which open call is left.
fn place_of(opens: &[Open], exit: &Exit) -> Option<usize> {
    let by_leave = |open: &Open| open.end == End::ByLeave;
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

/// Whether a leave proves by its own duration that a call is its.
fn is_proven(open: &Open, exit: &Exit) -> bool {
    match (open.time, exit.place.time, exit.duration) {
        (Some(start), Some(end), Some(duration)) => {
            let told = end.saturating_sub(duration);
            start.abs_diff(told) <= SLACK_NS.unsigned_abs()
        }
        _ => false,
    }
}
