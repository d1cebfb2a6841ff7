//! `pass_wakeups()`: who wakes whom.

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
    name: "pass_wakeups",
    create: |arguments| match arguments {
        [] => Some(Arc::new(Wakeups)),
        _ => None,
    },
};

#[derive(Debug)]
struct Wakeups;

emitted! {
    TIME "time" Int64,
    WAKER_CPU "waker_cpu" Int32,
    WAKER_TID "waker_tid" Int32,
    WAKER_COMM "waker_comm" Text,
    WAKER_CONTEXT "waker_context" Text,
    INTERRUPT "interrupt" Text,
    INTERRUPTED_TID "interrupted_tid" Int32,
    INTERRUPTED_COMM "interrupted_comm" Text,
    TARGET_CPU "target_cpu" Int32,
    PID "pid" Int32,
    TID "tid" Int32,
    COMM "comm" Text,
    IS_NEW "is_new" Flag,
    SLEPT "slept" Int64,
    LATENCY "latency" Int64,
    KERNEL_STACK "kernel_stack" Stack,
    USER_STACK "user_stack" Stack,
}

impl Pass for Wakeups {
    fn name(&self) -> &'static str {
        FUNCTION.name
    }

    fn columns(&self, id: &DataType) -> Vec<Field> {
        fields(id)
    }

    fn plan(&self, selection: &Selection, tables: &Tables<'_>) -> PassPlan {
        let has_waking = has_waking(tables);
        let needs = Needs {
            waker_stacks: selection.wants_any(&[KERNEL_STACK, USER_STACK]),
            wakers: true,
            names: ThreadNames::if_wanted(selection.wants(COMM)),
            threads: selection.values(TID),
            ..Needs::default()
        };
        let (sources, times) = (sources(&needs), selection.times);
        PassPlan::new(sources, move || {
            SchedulerMachine::new(has_waking, Woken(times))
                .following(needs.threads.clone(), times.last)
        })
    }
}

/// Emits rows of these times.
struct Woken(Times);

impl Observer for Woken {
    fn back(&mut self, thread: &Thread, end: Option<i64>, names: &Names, rows: &mut Rows) {
        let Some(wake) = (thread.wake.as_ref()).filter(|wake| self.0.contains(wake.time)) else {
            return;
        };
        if thread.is_denied {
            return;
        }
        let waker = &wake.waker;
        rows.integer(TIME, Some(wake.time));
        rows.id(WAKER_CPU, waker.cpu);
        rows.id(WAKER_TID, waker.tid);
        rows.text(WAKER_COMM, names.text(waker.comm));
        rows.text(WAKER_CONTEXT, waker.context.map(Context::name));
        rows.text(INTERRUPT, names.text(waker.interrupt));
        rows.id(INTERRUPTED_TID, waker.interrupted_tid);
        rows.text(INTERRUPTED_COMM, names.text(waker.interrupted_comm));
        rows.id(TARGET_CPU, thread.queue);
        rows.id(PID, thread.pid);
        rows.id(TID, Some(thread.tid));
        rows.text(COMM, names.text(wake.comm.or(thread.comm())));
        rows.flag(IS_NEW, Some(wake.is_new));
        rows.integer(SLEPT, wake.slept);
        rows.integer(LATENCY, end.map(|end| end - wake.time));
        rows.integer(KERNEL_STACK, waker.kernel_stack);
        rows.integer(USER_STACK, waker.user_stack);
        rows.end_row();
    }
}
