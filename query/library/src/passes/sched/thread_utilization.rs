//! `pass_thread_utilization(step)`: how each thread spent its time, step by step.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use hashbrown::HashMap;

use super::super::Function;
use super::super::names::{Name, Names};
use super::super::pass::{Pass, PassPlan, Tables};
use super::super::rows::{Rows, emitted};
use super::super::selection::Selection;
use super::ending::Ending;
use super::input::{Needs, SchedulerMachine, ThreadNames, has_waking, sources};
use super::steps::Steps;
use super::thread::{Observer, Thread};
use crate::linux::task_state::State;

pub(in super::super) const FUNCTION: Function = Function {
    name: "pass_thread_utilization",
    create: |arguments| {
        let steps = Steps::of_arguments(arguments)?;
        Some(Arc::new(ThreadUtilization { steps }))
    },
};

#[derive(Debug)]
struct ThreadUtilization {
    steps: Steps,
}

emitted! {
    TIME "time" Int64,
    DURATION "duration" Int64,
    PID "pid" Int32,
    TID "tid" Int32,
    COMM "comm" Text,
    BUSY "busy" Float,
    WAITING "waiting" Float,
    BLOCKED "blocked" Float,
}

impl Pass for ThreadUtilization {
    fn name(&self) -> &'static str {
        FUNCTION.name
    }

    fn columns(&self, id: &DataType) -> Vec<Field> {
        fields(id)
    }

    fn plan(&self, selection: &Selection, tables: &Tables<'_>) -> PassPlan {
        let has_waking = has_waking(tables);
        let needs = Needs {
            names: ThreadNames::if_wanted(selection.wants(COMM)),
            ..Needs::default()
        };
        let steps = self.steps;
        PassPlan::new(sources(&needs), move || {
            SchedulerMachine::new(
                has_waking,
                Threads {
                    steps,
                    threads: HashMap::new(),
                    ending: Ending::default(),
                    failure: None,
                },
            )
        })
    }
}

/// Times of a thread within one step, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    step: i64,
    pid: Option<i32>,
    comm: Name,
    busy: i64,
    waiting: i64,
    blocked: i64,
}

struct Threads {
    steps: Steps,
    threads: HashMap<i32, Spent>,
    ending: Ending,
    failure: Option<String>,
}

fn emit(tid: i32, spent: &Spent, steps: Steps, has_waits: bool, names: &Names, rows: &mut Rows) {
    let share = |time: i64| Some(time as f64 / steps.length() as f64);
    let share_of_wait = |time| share(time).filter(|_| has_waits);
    rows.integer(TIME, Some(steps.begin(spent.step)));
    rows.integer(DURATION, Some(steps.length()));
    rows.id(PID, spent.pid);
    rows.id(TID, Some(tid));
    rows.text(COMM, names.text(spent.comm));
    rows.float(BUSY, share(spent.busy));
    rows.float(WAITING, share_of_wait(spent.waiting));
    rows.float(BLOCKED, share_of_wait(spent.blocked));
    rows.end_row();
}

impl Observer for Threads {
    fn end(&mut self, thread: &Thread, end: Option<i64>, names: &Names, rows: &mut Rows) {
        let add: fn(&mut Spent, i64) = match thread.state {
            State::Running => |spent, length| spent.busy += length,
            State::Runnable | State::Preempted => |spent, length| spent.waiting += length,
            State::Uninterruptible => |spent, length| spent.blocked += length,
            // Asleep on purpose.
            State::Interruptible
            | State::Stopped
            | State::Idle
            | State::Parked
            | State::Blocked
            | State::Dead
            | State::Unknown => return,
        };
        let has_waits = !self.ending.is_of_some_cpus;
        let end = self.ending.of(thread.state, end);
        let Some(end) = end.filter(|&end| end > thread.since && self.failure.is_none()) else {
            return;
        };
        self.failure = self.steps.why_not(end - thread.since);
        if self.failure.is_some() {
            return;
        }
        let steps = self.steps;
        for (step, length) in steps
            .parts(thread.since, end)
            .filter(|(_, length)| *length > 0)
        {
            let spent = self.threads.entry(thread.tid).or_default();
            // A thread ID that is used again is another thread.
            let is_other = spent
                .pid
                .zip(thread.pid)
                .is_some_and(|(pid, own)| pid != own);
            if spent.step != step || is_other {
                if spent.busy + spent.waiting + spent.blocked > 0 {
                    emit(thread.tid, spent, steps, has_waits, names, rows);
                }
                *spent = Spent {
                    step,
                    ..Spent::default()
                };
            }
            spent.pid = thread.pid.or(spent.pid);
            // That of the first state in the step.
            spent.comm = spent.comm.or(thread.comm());
            add(spent, length);
        }
        if self.ending.is_closing()
            && let Some(spent) = self.threads.remove(&thread.tid)
        {
            emit(thread.tid, &spent, steps, has_waits, names, rows);
        }
    }

    fn ending(&mut self) -> Option<&mut Ending> {
        Some(&mut self.ending)
    }

    fn finish(&mut self, names: &Names, rows: &mut Rows) -> bool {
        let has_waits = !self.ending.is_of_some_cpus;
        let mut threads: Vec<(i32, Spent)> = self.threads.drain().collect();
        threads.retain(|(_, spent)| spent.busy + spent.waiting + spent.blocked > 0);
        threads.sort_unstable_by_key(|(tid, _)| *tid);
        for (tid, spent) in threads {
            emit(tid, &spent, self.steps, has_waits, names, rows);
        }
        false
    }

    fn failure(&self) -> Option<String> {
        self.failure.clone()
    }

    fn bytes(&self) -> usize {
        self.threads.capacity() * 2 * size_of::<(i32, Spent)>()
    }
}
