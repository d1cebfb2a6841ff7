//! `pass_longest_waits()`: the longest wait for a CPU, and the longest uninterruptible sleep: what `findings` shows of views with a
//! row for each of millions of waits.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};

use super::super::Function;
use super::super::names::{Name, Names};
use super::super::pass::{Pass, PassPlan, Tables};
use super::super::rows::{Rows, emitted};
use super::super::selection::Selection;
use super::input::{Needs, SchedulerMachine, ThreadNames, sources};
use super::thread::{Observer, Thread};
use crate::linux::task_state::State;

pub(in super::super) const FUNCTION: Function = Function {
    name: "pass_longest_waits",
    create: |arguments| match arguments {
        [] => Some(Arc::new(LongestWaits)),
        _ => None,
    },
};

#[derive(Debug)]
struct LongestWaits;

emitted! {
    KIND "kind" Text,
    TIME "time" Int64,
    DURATION "duration" Int64,
    CPU "cpu" Int32,
    TID "tid" Int32,
    COMM "comm" Text,
    WHY "why" Text,
    KERNEL_STACK "kernel_stack" Stack,
}

impl Pass for LongestWaits {
    fn name(&self) -> &'static str {
        FUNCTION.name
    }

    fn columns(&self, id: &DataType) -> Vec<Field> {
        fields(id)
    }

    fn plan(&self, selection: &Selection, tables: &Tables<'_>) -> PassPlan {
        let needs = Needs {
            stacks: selection.wants(KERNEL_STACK),
            // A wait ends with a switch; only perf's own records may lack the name.
            names: match tables.has("perf:context_switch") {
                true => ThreadNames::All,
                false => ThreadNames::OfSwitches,
            },
            ..Needs::default()
        };
        // Without wake-ups, only the waits of preempted threads are known.
        let has_waits = tables.has("sched:sched_waking") || tables.has("sched:sched_wakeup");
        PassPlan::new(sources(&needs), move || {
            SchedulerMachine::new(Longest {
                has_waits,
                wait: None,
                block: None,
            })
        })
    }
}

/// A wait whose end is known.
#[derive(Debug, Clone, Copy)]
struct Wait {
    time: i64,
    duration: i64,
    cpu: Option<i32>,
    tid: i32,
    comm: Name,
    why: &'static str,
    kernel_stack: Option<i64>,
}

impl Wait {
    /// Of equally long ones, the first.
    fn is_longer(&self, than: &Option<Wait>) -> bool {
        than.is_none_or(|than| (self.duration, -self.time) > (than.duration, -than.time))
    }
}

struct Longest {
    has_waits: bool,
    /// For a CPU.
    wait: Option<Wait>,
    /// Without being interruptible, until running again.
    block: Option<Wait>,
}

impl Observer for Longest {
    fn end(&mut self, thread: &Thread, end: Option<i64>, _: &Names, _: &mut Rows) {
        let Some(end) = end.filter(|_| self.has_waits && thread.state.is_waiting()) else {
            return;
        };
        let is_new = thread.wake.as_ref().is_some_and(|wake| wake.is_new);
        let wait = Wait {
            time: thread.since,
            duration: end - thread.since,
            cpu: thread.queue,
            tid: thread.tid,
            comm: thread.comm,
            why: match thread.state {
                State::Preempted => "preempted",
                _ if is_new => "new",
                _ => "woken",
            },
            kernel_stack: None,
        };
        if wait.is_longer(&self.wait) {
            self.wait = Some(wait);
        }
    }

    fn back(&mut self, thread: &Thread, end: Option<i64>, _: &Names, _: &mut Rows) {
        let left = thread
            .left
            .filter(|left| left.state == State::Uninterruptible);
        let Some((left, end)) = left.zip(end) else {
            return;
        };
        let block = Wait {
            time: left.time,
            duration: end - left.time,
            cpu: thread.cpu,
            tid: thread.tid,
            comm: thread.comm,
            why: "blocked",
            kernel_stack: left.kernel_stack,
        };
        if block.is_longer(&self.block) {
            self.block = Some(block);
        }
    }

    fn finish(&mut self, names: &Names, rows: &mut Rows) -> bool {
        for (kind, wait) in [("wait", self.wait), ("block", self.block)] {
            let Some(wait) = wait else {
                continue;
            };
            rows.text(KIND, Some(kind));
            rows.integer(TIME, Some(wait.time));
            rows.integer(DURATION, Some(wait.duration));
            rows.id(CPU, wait.cpu);
            rows.id(TID, Some(wait.tid));
            rows.text(COMM, names.text(wait.comm));
            rows.text(WHY, Some(wait.why));
            rows.integer(KERNEL_STACK, wait.kernel_stack);
            rows.end_row();
        }
        false
    }
}
