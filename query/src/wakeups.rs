//! What answers about waits and calls say of a recording of some threads or CPUs. Of some threads, the kernel records a wake-up only
//! with the events of the waker, so those by interrupts, by exiting threads and by threads outside of the recording are missing.
//!
//! ```text
//! 79 of 100 sleeps ended without a recorded wake-up, and contain the wait for a CPU that follows it; -a records all wake-ups
//! ```

use anyhow::Result;
use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use perfquet::Session;
use perfquet_trace::count::{counted, grouped};

use crate::filter::of_traces;

/// What the names of reports and views contain whose answers depend on wake-ups.
const DEPENDENT: [&str; 10] = [
    "critical-path",
    "critical_path",
    "off_cpu",
    "runqueue_waits",
    "thread_states",
    "thread_utilization",
    "utilization",
    "waits",
    "wakers",
    "wakeups",
];

/// The same of answers that depend on the beginning and the end of calls.
const OF_CALLS: [&str; 4] = ["calls", "durations", "locks", "syscalls"];

const CALLS_OF_SOME_CPUS: &str = "some CPUs were recorded: a call that began there and ended on another CPU may have the end of a later one; -a without -C records all";

const OF_SOME_CPUS: &str = "some CPUs were recorded: how long threads waited or slept is unknown, since they may have run on others; -a without -C records all";

/// The sentence for a report or a query; `None` if it does not depend on wake-ups, or if none is missing.
pub(crate) fn note(session: &Session, question: &str) -> Result<Option<String>> {
    let question = question.to_lowercase();
    let has = |names: &[&str]| names.iter().any(|name| question.contains(name));
    let depends = has(&DEPENDENT);
    if session.traces().iter().any(|trace| trace.is_of_some_cpus()) {
        let calls = has(&OF_CALLS).then_some(CALLS_OF_SOME_CPUS);
        return Ok(calls.or(depends.then_some(OF_SOME_CPUS)).map(str::to_owned));
    }
    let of_threads: Vec<&str> = (session.traces().iter())
        .filter(|trace| trace.is_of_threads())
        .map(|trace| trace.name.as_str())
        .collect();
    if of_threads.is_empty() || !depends || !session.is_recorded("wakeups")? {
        return Ok(None);
    }
    let sql = format!(
        "SELECT count(*), count(*) FILTER (WHERE wake_time IS NULL) FROM off_cpu \
         WHERE duration IS NOT NULL AND state NOT IN ('preempted', 'runnable') AND {}",
        of_traces(session, of_threads)
    );
    let (mut all, mut unseen) = (0_u64, 0_u64);
    for batch in session.collect(&sql)? {
        for (place, sum) in [&mut all, &mut unseen].into_iter().enumerate() {
            let column = batch.column(place).as_primitive::<Int64Type>();
            *sum += column.iter().flatten().sum::<i64>().unsigned_abs();
        }
    }
    Ok((unseen > 0).then(|| {
        let contain = if unseen == 1 { "contains" } else { "contain" };
        format!(
            "{} of {} ended without a recorded wake-up, and {contain} the wait for a CPU that follows it; -a records all wake-ups",
            grouped(unseen),
            counted(all, "sleep")
        )
    }))
}
