//! `pass_off_cpu()`: from leaving the CPU until the thread runs again.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};

use super::super::Function;
use super::super::names::Names;
use super::super::pass::{Pass, PassPlan, Tables};
use super::super::rows::{Rows, emitted};
use super::super::selection::Selection;
use super::super::source::Times;
use super::input::{Needs, SchedulerMachine, ThreadNames, has_waking, sources};
use super::thread::{Context, Observer, Thread};

pub(in super::super) const FUNCTION: Function = Function {
    name: "pass_off_cpu",
    create: |arguments| match arguments {
        [] => Some(Arc::new(OffCpu)),
        _ => None,
    },
};

#[derive(Debug)]
struct OffCpu;

emitted! {
    TIME "time" Int64,
    DURATION "duration" Int64,
    CPU "cpu" Int32,
    PID "pid" Int32,
    TID "tid" Int32,
    COMM "comm" Text,
    STATE "state" Text,
    WAKE_TIME "wake_time" Int64,
    WAKER_TID "waker_tid" Int32,
    WAKER_COMM "waker_comm" Text,
    WAKER_CONTEXT "waker_context" Text,
    INTERRUPT "interrupt" Text,
    KERNEL_STACK "kernel_stack" Stack,
    USER_STACK "user_stack" Stack,
    WAKER_KERNEL_STACK "waker_kernel_stack" Stack,
    WAKER_USER_STACK "waker_user_stack" Stack,
}

impl Pass for OffCpu {
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
            waker_stacks: selection.wants_any(&[WAKER_KERNEL_STACK, WAKER_USER_STACK]),
            wakers: selection.wants_any(&[WAKER_TID, WAKER_COMM, WAKER_CONTEXT, INTERRUPT]),
            names: ThreadNames::if_wanted(selection.wants(COMM)),
            threads: selection.values(TID),
            ..Needs::default()
        };
        let (sources, times) = (sources(&needs), selection.times);
        PassPlan::new(sources, move || {
            SchedulerMachine::new(has_waking, Absences(times))
                .following(needs.threads.clone(), times.last)
        })
    }
}

/// Emits rows of these times.
struct Absences(Times);

impl Observer for Absences {
    fn back(&mut self, thread: &Thread, end: Option<i64>, names: &Names, rows: &mut Rows) {
        let Some(left) = thread.left.filter(|left| self.0.contains(left.time)) else {
            return;
        };
        rows.integer(TIME, Some(left.time));
        rows.integer(DURATION, end.map(|end| end - left.time));
        rows.id(CPU, thread.cpu);
        rows.id(PID, thread.pid);
        rows.id(TID, Some(thread.tid));
        rows.text(COMM, names.text(left.comm.or(thread.comm())));
        rows.text(STATE, left.state.name());
        let wake = thread.wake.as_ref();
        let waker = wake.map(|wake| wake.waker);
        rows.integer(WAKE_TIME, wake.map(|wake| wake.time));
        rows.id(WAKER_TID, waker.and_then(|waker| waker.tid));
        rows.text(WAKER_COMM, waker.and_then(|waker| names.text(waker.comm)));
        rows.text(
            WAKER_CONTEXT,
            waker.and_then(|waker| waker.context.map(Context::name)),
        );
        rows.text(
            INTERRUPT,
            waker.and_then(|waker| names.text(waker.interrupt)),
        );
        rows.integer(KERNEL_STACK, left.kernel_stack);
        rows.integer(USER_STACK, left.user_stack);
        rows.integer(
            WAKER_KERNEL_STACK,
            waker.and_then(|waker| waker.kernel_stack),
        );
        rows.integer(WAKER_USER_STACK, waker.and_then(|waker| waker.user_stack));
        rows.end_row();
    }
}
