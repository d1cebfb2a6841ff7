//! Threads and CPUs as the scheduler's events show them.
//!
//! ```text
//! sched_switch   prev leaves the CPU in its state, next begins to run
//! sched_waking   a thread becomes runnable; its waker, and where the wake-up came from
//! sched_wakeup   the same, on the CPU where it will wait; counts where sched_waking was not recorded
//! context_switch perf's own record: a thread begins or ends to run. In recordings of single tasks, sched_switch shows
//!                only how they leave
//! losses         from here on, nothing is known of threads that do not run
//! ```
//! Rules:
//! - A stretch ends where the next one begins. Its end is unknown if events in between are missing: if another thread than the
//!   one switched in leaves the CPU, or if a loss was noticed on the way. Then it has no duration.
//! - A thread that is switched in without a wake-up slept until then: waiting for the CPU is part of its sleep.
//! - Whether a thread that was switched in, and has no event of its own, is in the recording's scope is unknown unless the recorder
//!   says so: then it is not shown.
//! - What is open at the end lasts at least to the last event of the trace. Its end is unknown: it has no duration.
//! - A thread that waits or sleeps cannot exit: where its exit comes next, events are missing in between.
//! - A wake-up of a thread that runs or waits changes nothing.
//! - The idle tasks are not threads. In a recording of some threads, the others are not shown: they run and wait unseen.
//!   Wake-ups of them and switches to them say nothing about what follows.
//! - In a recording of some threads, a running period ends at the thread's exit: the kernel has removed its events when it
//!   leaves the CPU for the last time.
//! - In a recording of some CPUs, a thread that sleeps, waits or was preempted may run elsewhere: such periods have no duration.
//!   A wake-up to another CPU ends what is known of a thread.

mod coverage;
pub(super) mod cpu_utilization;
pub(super) mod critical_path;
mod ending;
mod id_map;
mod input;
pub(super) mod lengths;
pub(super) mod off_cpu;
pub(super) mod processes;
pub(super) mod states;
mod steps;
mod thread;
pub(super) mod thread_utilization;
pub(super) mod totals;
pub(super) mod wakeups;

/// Whether the events of some threads only were recorded, from the facts of a trace.
pub(crate) fn is_of_threads(facts: &[(String, String)]) -> bool {
    coverage(facts).is_of_threads
}

/// Whether the events of some CPUs only were recorded, from the facts of a trace.
pub(crate) fn is_of_some_cpus(facts: &[(String, String)]) -> bool {
    coverage(facts).is_of_some_cpus()
}

fn coverage(facts: &[(String, String)]) -> coverage::Coverage {
    let mut coverage = coverage::Coverage::default();
    for (name, value) in facts {
        coverage.learn(name, value);
    }
    coverage
}
