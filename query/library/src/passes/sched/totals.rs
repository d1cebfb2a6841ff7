//! `pass_thread_totals(from, to)`: what each thread did in an interval, and its longest waits: what `findings` needs of views with a
//! row for each of millions of periods.

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
use super::thread::{Observer, Thread};
use crate::linux::task_state::State;

pub(in super::super) const FUNCTION: Function = Function {
    name: "pass_thread_totals",
    create: |arguments| match arguments {
        [from, to] => Some(Arc::new(ThreadTotals {
            from: integer(from)?,
            to: integer(to)?,
        })),
        _ => None,
    },
};

#[derive(Debug, Clone, Copy)]
struct ThreadTotals {
    from: i64,
    to: i64,
}

impl ThreadTotals {
    fn has(self, time: i64) -> bool {
        (self.from..=self.to).contains(&time)
    }
}

emitted! {
    PID "pid" Int32,
    TID "tid" Int32,
    COMM "comm" Text,
    RUNNING "running" Int64,
    WAITING "waiting" Int64,
    BLOCKED "blocked" Int64,
    WAIT "wait" Int64,
    WAIT_TIME "wait_time" Int64,
    WAIT_CPU "wait_cpu" Int32,
    BLOCK "block" Int64,
    BLOCK_TIME "block_time" Int64,
    BLOCK_STACK "block_stack" Stack,
    SWITCHES "switches" Int64,
    UNRECORDED "unrecorded" Int64,
}

impl Pass for ThreadTotals {
    fn name(&self) -> &'static str {
        FUNCTION.name
    }

    fn columns(&self, id: &DataType) -> Vec<Field> {
        fields(id)
    }

    fn plan(&self, selection: &Selection, tables: &Tables<'_>) -> PassPlan {
        let has_waking = has_waking(tables);
        let needs = Needs {
            stacks: selection.wants(BLOCK_STACK),
            // A period ends with a switch; only perf's own records may lack the name.
            names: match tables.has("perf:context_switch") {
                true => ThreadNames::All,
                false => ThreadNames::OfSwitches,
            },
            ..Needs::default()
        };
        // Without wake-ups, only the waits of preempted threads are known.
        let has_waits = tables.has("sched:sched_waking") || tables.has("sched:sched_wakeup");
        let interval = *self;
        PassPlan::new(sources(&needs), move || {
            SchedulerMachine::new(
                has_waking,
                Totals {
                    interval,
                    has_waits,
                    threads: HashMap::new(),
                    ending: Ending::default(),
                },
            )
        })
    }
}

/// A wait whose end is known.
#[derive(Debug, Clone, Copy)]
struct Wait {
    time: i64,
    duration: i64,
    cpu: Option<i32>,
    kernel_stack: Option<i64>,
}

/// Of equally long ones, the first.
fn keep_longer(longest: &mut Option<Wait>, wait: Wait) {
    if longest.is_none_or(|longest| wait.duration > longest.duration) {
        *longest = Some(wait);
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    pid: Option<i32>,
    comm: Name,
    running: i64,
    waiting: i64,
    blocked: i64,
    /// For a CPU.
    wait: Option<Wait>,
    /// Uninterruptible, until it can run again.
    block: Option<Wait>,
    /// Times that it left a CPU, and those without a record.
    switches: i64,
    unrecorded: i64,
}

struct Totals {
    interval: ThreadTotals,
    has_waits: bool,
    threads: HashMap<i32, Spent>,
    ending: Ending,
}

impl Observer for Totals {
    fn end(&mut self, thread: &Thread, end: Option<i64>, _: &Names, _: &mut Rows) {
        // A thread that runs or waits at the end of the recording does so until then.
        let end = self.ending.of(thread.state, end);
        let start = thread.since.max(self.interval.from);
        let Some(duration) = end.map(|end| end.min(self.interval.to) - start) else {
            return;
        };
        if duration <= 0 {
            return;
        }
        let mut wait = Wait {
            time: start,
            duration,
            cpu: thread.queue,
            kernel_stack: None,
        };
        let spent = self.threads.entry(thread.tid).or_default();
        spent.pid = thread.pid.or(spent.pid);
        spent.comm = thread.comm().or(spent.comm);
        match thread.state {
            State::Running => {
                spent.running += duration;
                spent.switches += 1;
            }
            State::Runnable | State::Preempted if self.has_waits => {
                spent.waiting += duration;
                keep_longer(&mut spent.wait, wait);
            }
            State::Uninterruptible => {
                spent.blocked += duration;
                wait.kernel_stack = thread.left.and_then(|left| left.kernel_stack);
                keep_longer(&mut spent.block, wait);
            }
            State::Runnable
            | State::Preempted
            | State::Interruptible
            | State::Stopped
            | State::Idle
            | State::Parked
            | State::Blocked
            | State::Dead
            | State::Unknown => {}
        }
    }

    fn idle_ends(&mut self, _: i32, time: Option<i64>, _: &mut Rows) {
        if time.is_some_and(|time| self.interval.has(time)) {
            self.threads.entry(0).or_default().switches += 1;
        }
    }

    fn left_unrecorded(&mut self, thread: Option<&Thread>, time: i64) {
        if self.interval.has(time) {
            let tid = thread.map_or(0, |thread| thread.tid);
            let spent = self.threads.entry(tid).or_default();
            spent.unrecorded += 1;
            if let Some(thread) = thread {
                spent.comm = thread.comm().or(spent.comm);
                spent.pid = thread.pid.or(spent.pid);
            }
        }
    }

    fn ending(&mut self) -> Option<&mut Ending> {
        Some(&mut self.ending)
    }

    fn finish(&mut self, names: &Names, rows: &mut Rows) -> bool {
        let mut threads: Vec<(i32, Spent)> = self.threads.drain().collect();
        threads.sort_unstable_by_key(|(tid, _)| *tid);
        for (tid, spent) in threads {
            rows.id(PID, spent.pid);
            rows.id(TID, Some(tid));
            rows.text(COMM, names.text(spent.comm));
            rows.integer(RUNNING, Some(spent.running));
            rows.integer(WAITING, Some(spent.waiting));
            rows.integer(BLOCKED, Some(spent.blocked));
            rows.integer(WAIT, spent.wait.map(|wait| wait.duration));
            rows.integer(WAIT_TIME, spent.wait.map(|wait| wait.time));
            rows.id(WAIT_CPU, spent.wait.and_then(|wait| wait.cpu));
            rows.integer(BLOCK, spent.block.map(|block| block.duration));
            rows.integer(BLOCK_TIME, spent.block.map(|block| block.time));
            rows.integer(
                BLOCK_STACK,
                spent.block.and_then(|block| block.kernel_stack),
            );
            rows.integer(SWITCHES, Some(spent.switches));
            rows.integer(UNRECORDED, Some(spent.unrecorded));
            rows.end_row();
        }
        false
    }

    fn bytes(&self) -> usize {
        self.threads.capacity() * size_of::<(i32, Spent)>()
    }
}
