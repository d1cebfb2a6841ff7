//! `pass_thread_states()`: each stretch of each thread's life.
//!
//! ```text
//! pass_thread_states(FIRST, LAST)      from the events of these times alone, as if nothing had been recorded before
//! ```

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};

use super::super::names::Names;
use super::super::pass::{Pass, PassPlan, Tables};
use super::super::rows::{Rows, emitted};
use super::super::selection::Selection;
use super::super::source::Times;
use super::super::{Function, integer};
use super::input::{Needs, SchedulerMachine, ThreadNames, events_within, has_waking, sources};
use super::thread::{Context, Observer, Thread};
use crate::linux::task_state::State;

pub(in super::super) const FUNCTION: Function = Function {
    name: "pass_thread_states",
    create: |arguments| {
        let events = match arguments {
            [] => Times::default(),
            [first, last] => Times {
                first: Some(integer(first)?),
                last: Some(integer(last)?),
            },
            _ => return None,
        };
        Some(Arc::new(ThreadStates { events }))
    },
};

#[derive(Debug)]
struct ThreadStates {
    /// Times of the events to read.
    events: Times,
}

emitted! {
    TIME "time" Int64,
    DURATION "duration" Int64,
    CPU "cpu" Int32,
    PID "pid" Int32,
    TID "tid" Int32,
    COMM "comm" Text,
    STATE "state" Text,
    WAKER_TID "waker_tid" Int32,
    WAKER_COMM "waker_comm" Text,
    WAKER_CONTEXT "waker_context" Text,
    INTERRUPT "interrupt" Text,
    WAKE_TIME "wake_time" Int64,
    KERNEL_STACK "kernel_stack" Stack,
    USER_STACK "user_stack" Stack,
    FROM_CPU "from_cpu" Int32,
    IS_NEW "is_new" Flag,
}

impl Pass for ThreadStates {
    fn name(&self) -> &'static str {
        FUNCTION.name
    }

    fn columns(&self, id: &DataType) -> Vec<Field> {
        fields(id)
    }

    fn plan(&self, selection: &Selection, tables: &Tables<'_>) -> PassPlan {
        let has_waking = has_waking(tables);
        let needs = Needs {
            stacks: selection.wants_any(&[KERNEL_STACK, USER_STACK]),
            wakers: selection.wants_any(&[WAKER_TID, WAKER_COMM, WAKER_CONTEXT, INTERRUPT]),
            names: ThreadNames::if_wanted(selection.wants(COMM)),
            threads: selection.values(TID),
            ..Needs::default()
        };
        let (sources, times) = (events_within(sources(&needs), self.events), selection.times);
        PassPlan::new(sources, move || {
            SchedulerMachine::new(has_waking, Stretches(times))
                .following(needs.threads.clone(), times.last)
        })
    }
}

/// Emits rows of these times.
struct Stretches(Times);

impl Observer for Stretches {
    fn end(&mut self, thread: &Thread, end: Option<i64>, names: &Names, rows: &mut Rows) {
        if thread.is_denied || !self.0.contains(thread.since) {
            return;
        }
        let state = thread.state;
        rows.integer(TIME, Some(thread.since));
        rows.integer(DURATION, end.map(|end| end - thread.since));
        rows.id(
            CPU,
            if state.is_waiting() {
                thread.queue
            } else {
                thread.cpu
            },
        );
        rows.id(PID, thread.pid);
        rows.id(TID, Some(thread.tid));
        rows.text(COMM, names.text(thread.comm()));
        rows.text(STATE, state.name());
        let wake = thread.wake.as_ref().filter(|_| state != State::Running);
        rows.id(WAKER_TID, wake.and_then(|wake| wake.waker.tid));
        rows.text(
            WAKER_COMM,
            wake.and_then(|wake| names.text(wake.waker.comm)),
        );
        rows.text(
            WAKER_CONTEXT,
            wake.and_then(|wake| wake.waker.context.map(Context::name)),
        );
        rows.text(
            INTERRUPT,
            wake.and_then(|wake| names.text(wake.waker.interrupt)),
        );
        rows.integer(WAKE_TIME, wake.map(|wake| wake.time));
        let left = thread.left.filter(|_| state != State::Running);
        rows.integer(KERNEL_STACK, left.and_then(|left| left.kernel_stack));
        rows.integer(USER_STACK, left.and_then(|left| left.user_stack));
        rows.id(FROM_CPU, thread.cpu);
        rows.flag(IS_NEW, Some(wake.is_some_and(|wake| wake.is_new)));
        rows.end_row();
    }
}
