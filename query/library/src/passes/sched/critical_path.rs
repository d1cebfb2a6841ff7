//! `pass_critical_path(tid, from, to)`: what a thread's time depended on.
//!
//! ```text
//! T  ██████ sleeps ─────────────── ██████      T runs, then waits for W
//! W           sleeps ── ██████████             W runs before it wakes T; before, it waits for the disk
//! →  T      W, woken by irq   W    T
//! ```
//! The path is followed backward: while a thread sleeps, the path is that of the thread that wakes it; where an interrupt wakes it,
//! or nobody known, the sleep itself is on the path. The parts add up to the whole interval.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use hashbrown::HashMap;

use super::super::names::{Name, Names};
use super::super::pass::{Pass, PassPlan, Tables};
use super::super::rows::{Rows, emitted};
use super::super::selection::Selection;
use super::super::{Function, integer};
use super::ending::Ending;
use super::input::{Needs, SchedulerMachine, ThreadNames, has_waking, sources};
use super::thread::{Context, Observer, Thread, Waker};
use crate::linux::task_state::State;

pub(in super::super) const FUNCTION: Function = Function {
    name: "pass_critical_path",
    create: |arguments| match arguments {
        [tid, from, to] => {
            let bound = |argument: &datafusion::scalar::ScalarValue, none: i64| {
                let is_null = argument.is_null();
                if is_null {
                    Some(none)
                } else {
                    integer(argument)
                }
            };
            Some(Arc::new(CriticalPath {
                tid: i32::try_from(integer(tid)?).ok()?,
                from: bound(from, i64::MIN)?,
                to: bound(to, i64::MAX)?,
            }))
        }
        _ => None,
    },
};

#[derive(Debug, Clone, Copy)]
struct CriticalPath {
    tid: i32,
    from: i64,
    to: i64,
}

emitted! {
    TIME "time" Int64,
    DURATION "duration" Int64,
    PID "pid" Int32,
    TID "tid" Int32,
    COMM "comm" Text,
    STATE "state" Text,
    DEPTH "depth" Int32,
    WAKER_TID "waker_tid" Int32,
    WAKER_COMM "waker_comm" Text,
    WAKER_CONTEXT "waker_context" Text,
    INTERRUPT "interrupt" Text,
    KERNEL_STACK "kernel_stack" Stack,
    USER_STACK "user_stack" Stack,
}

impl Pass for CriticalPath {
    fn name(&self) -> &'static str {
        FUNCTION.name
    }

    fn columns(&self, id: &DataType) -> Vec<Field> {
        fields(id)
    }

    fn is_in_order(&self) -> bool {
        true
    }

    fn plan(&self, selection: &Selection, tables: &Tables<'_>) -> PassPlan {
        let has_waking = has_waking(tables);
        let has_stacks = selection.wants_any(&[KERNEL_STACK, USER_STACK]);
        let needs = Needs {
            stacks: has_stacks,
            wakers: true,
            names: ThreadNames::All,
            ..Needs::default()
        };
        let path = *self;
        PassPlan::new(sources(&needs), move || {
            SchedulerMachine::new(
                has_waking,
                Stretches {
                    path,
                    has_stacks,
                    threads: HashMap::new(),
                    lives: HashMap::new(),
                    count: 0,
                    first: i64::MAX,
                    ending: Ending::default(),
                },
            )
        })
    }
}

/// A stretch of a thread. All those of the interval wait in memory until its end, so it is small.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    begin: i64,
    end: i64,
    state: State,
    comm: Name,
    pid: Option<i32>,
    /// Who ended a sleep, or began a wait for a CPU.
    waker: Option<WokenBy>,
}

/// The parts of a waker that are shown.
#[derive(Debug, Clone, Copy)]
struct WokenBy {
    tid: Option<i32>,
    comm: Name,
    context: Option<Context>,
    interrupt: Name,
}

impl WokenBy {
    fn new(waker: &Waker) -> WokenBy {
        WokenBy {
            tid: waker.tid,
            comm: waker.comm,
            context: waker.context,
            interrupt: waker.interrupt,
        }
    }
}

/// The kernel and the user stack with which a thread left its CPU.
type Stacks = [Option<i64>; 2];

/// The stretches of a thread, in order of time.
#[derive(Debug, Default)]
struct Stretched {
    stretches: Vec<Stretch>,
    /// Of each stretch; empty if stacks are not wanted.
    stacks: Vec<Stacks>,
}

/// The stretches within the interval, by thread.
struct Stretches {
    path: CriticalPath,
    has_stacks: bool,
    threads: HashMap<i32, Stretched>,
    /// Starts and exits by thread, in order of time.
    lives: HashMap<i32, Vec<(i64, Turn)>>,
    count: usize,
    /// Time of the first event of the scheduler.
    first: i64,
    ending: Ending,
}

/// A change of a thread's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Start,
    Exit,
}

impl Observer for Stretches {
    fn begin(&mut self, thread: &Thread, _: &Names) {
        let is_new = thread.wake.is_some_and(|wake| wake.is_new);
        match thread.state {
            // It exists a little longer, but has not run.
            State::Runnable if is_new => self.turns(thread.tid, thread.since, Turn::Start),
            State::Dead => self.turns(thread.tid, thread.since, Turn::Exit),
            _ => {}
        }
    }

    fn started(&mut self, tid: i32, time: i64) {
        self.turns(tid, time, Turn::Start);
    }

    fn exited(&mut self, tid: i32, time: i64) {
        self.turns(tid, time, Turn::Exit);
    }

    fn end(&mut self, thread: &Thread, end: Option<i64>, _: &Names, _: &mut Rows) {
        let end = self.ending.of(thread.state, end);
        let Some(end) = end.filter(|&end| end > thread.since) else {
            return;
        };
        if end <= self.path.from || thread.since >= self.path.to {
            return;
        }
        self.count += 1;
        let stretched = self.threads.entry(thread.tid).or_default();
        stretched.stretches.push(Stretch {
            begin: thread.since,
            end,
            state: thread.state,
            comm: thread.comm(),
            pid: thread.pid,
            waker: thread.wake.map(|wake| WokenBy::new(&wake.waker)),
        });
        if self.has_stacks {
            let left = thread.left.filter(|_| thread.state != State::Running);
            stretched.stacks.push([
                left.and_then(|left| left.kernel_stack),
                left.and_then(|left| left.user_stack),
            ]);
        }
    }

    fn passed(&mut self, time: i64, _: &mut Rows) {
        self.first = self.first.min(time);
    }

    fn ending(&mut self) -> Option<&mut Ending> {
        Some(&mut self.ending)
    }

    fn finish(&mut self, names: &Names, rows: &mut Rows) -> bool {
        let from = self.path.from.max(self.first);
        let Some(end) = self.ending.time() else {
            return false;
        };
        let to = self.path.to.min(end);
        if from >= to || !self.threads.contains_key(&self.path.tid) {
            return false;
        }
        let mut parts = Vec::new();
        self.follow(self.path.tid, (from, to), 0, &mut parts);
        for part in parts.iter().rev() {
            part.emit(names, rows);
        }
        false
    }

    fn bytes(&self) -> usize {
        let stacks = match self.has_stacks {
            true => size_of::<Stacks>(),
            false => 0,
        };
        let turns: usize = self.lives.values().map(Vec::capacity).sum();
        self.count * 2 * (size_of::<Stretch>() + stacks)
            + turns * size_of::<(i64, Turn)>()
            + self.lives.capacity() * size_of::<(i32, Vec<(i64, Turn)>)>()
    }
}

/// A part of the path.
#[derive(Debug, Clone, Copy)]
struct Part {
    begin: i64,
    end: i64,
    tid: i32,
    depth: i32,
    /// `None` if nothing is known of the thread at that time.
    stretch: Option<Stretch>,
    stacks: Stacks,
    /// What takes the place of a state before the start of the thread, and after its exit.
    absence: Option<&'static str>,
}

/// Maximum number of threads that wait for one another.
const DEEPEST: i32 = 64;

impl Stretches {
    /// Appends the parts of a thread's path, last one first.
    fn follow(&self, tid: i32, (from, to): (i64, i64), depth: i32, parts: &mut Vec<Part>) {
        let stretched = self.threads.get(&tid);
        let stretches = stretched.map_or(&[][..], |stretched| &stretched.stretches);
        let stacks = stretched.map_or(&[][..], |stretched| &stretched.stacks);
        let mut time = to;
        // Stretches of a thread are in order.
        let mut place = stretches.partition_point(|stretch| stretch.begin < to);
        while time > from {
            let stretch = place.checked_sub(1).and_then(|place| stretches.get(place));
            let part = |begin: i64, stretch: Option<Stretch>, stacks: Stacks| Part {
                begin: begin.max(from),
                end: time,
                tid,
                depth,
                stretch,
                stacks,
                absence: None,
            };
            let Some(&stretch) = stretch else {
                self.absent(part(from, None, [None; 2]), parts);
                return;
            };
            if stretch.end < time {
                self.absent(part(stretch.end, None, [None; 2]), parts);
                time = stretch.end.max(from);
                continue;
            }
            place -= 1;
            let begin = stretch.begin.max(from);
            match self.cause(&stretch, tid, depth) {
                Some(waker) => self.follow(waker, (begin, time), depth + 1, parts),
                None => {
                    let stacks = stacks.get(place).copied().unwrap_or_default();
                    parts.push(part(begin, Some(stretch), stacks));
                }
            }
            time = begin;
        }
    }

    /// A thread starts or exits. What two events report of one start, or of one exit, is told by the later one.
    fn turns(&mut self, tid: i32, time: i64, turn: Turn) {
        let stretched = self.threads.get(&tid);
        let last = stretched.and_then(|stretched| stretched.stretches.last());
        let turns = self.lives.entry(tid).or_default();
        let is_again = turns.last().is_some_and(|&(before, known)| {
            known == turn && last.is_none_or(|last| turn == Turn::Exit || last.end <= before)
        });
        match turns.last_mut() {
            Some(known) if is_again => known.0 = known.0.max(time),
            _ => turns.push((time, turn)),
        }
    }

    /// Appends a part of which no state is known, divided where the thread starts and exits, the last piece first.
    fn absent(&self, part: Part, parts: &mut Vec<Part>) {
        let turns = self.lives.get(&part.tid).map_or(&[][..], Vec::as_slice);
        let mut end = part.end;
        // The turns within the part, the latest first, and one before it.
        for place in (0..=turns.len()).rev() {
            let before = place.checked_sub(1).map(|place| turns[place]);
            let begin = before.map_or(part.begin, |(time, _)| time.max(part.begin));
            if begin < end {
                let after = turns.get(place).map(|(_, turn)| *turn);
                parts.push(Part {
                    begin,
                    end,
                    absence: match (before.map(|(_, turn)| turn), after) {
                        (Some(Turn::Exit), _) => Some("exited"),
                        (None, Some(Turn::Start)) => Some("not started"),
                        _ => None,
                    },
                    ..part
                });
                end = begin;
            }
            if begin == part.begin {
                return;
            }
        }
    }

    /// The thread for which a sleeping one waits, if it is known and recorded.
    fn cause(&self, stretch: &Stretch, tid: i32, depth: i32) -> Option<i32> {
        let waker = stretch.waker.filter(|_| stretch.state.is_asleep())?;
        // Where the context is not recorded, it may be that of an interrupt of a bystander.
        let is_thread = waker.context == Some(Context::Task);
        let other = waker.tid.filter(|&other| other != 0 && other != tid)?;
        (is_thread && depth < DEEPEST && self.threads.contains_key(&other)).then_some(other)
    }
}

impl Part {
    fn emit(&self, names: &Names, rows: &mut Rows) {
        let stretch = self.stretch.as_ref();
        let state = stretch.and_then(|stretch| stretch.state.name());
        let state = state.or(self.absence);
        rows.integer(TIME, Some(self.begin));
        rows.integer(DURATION, Some(self.end - self.begin));
        rows.id(PID, stretch.and_then(|stretch| stretch.pid));
        rows.id(TID, Some(self.tid));
        rows.text(COMM, stretch.and_then(|stretch| names.text(stretch.comm)));
        rows.text(STATE, state);
        rows.integer(DEPTH, Some(self.depth.into()));
        let waker = stretch.and_then(|stretch| stretch.waker);
        let waker =
            waker.filter(|_| stretch.is_some_and(|stretch| stretch.state != State::Running));
        rows.id(WAKER_TID, waker.and_then(|waker| waker.tid));
        rows.text(WAKER_COMM, waker.and_then(|waker| names.text(waker.comm)));
        let context = waker.and_then(|waker| waker.context);
        rows.text(WAKER_CONTEXT, context.map(Context::name));
        rows.text(
            INTERRUPT,
            waker.and_then(|waker| names.text(waker.interrupt)),
        );
        let [kernel_stack, user_stack] = self.stacks;
        rows.integer(KERNEL_STACK, kernel_stack);
        rows.integer(USER_STACK, user_stack);
        rows.end_row();
    }
}
