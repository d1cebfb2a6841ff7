//! Raw values of records, converted for events: unknown values are `None`, whichever number perf writes for them.

use perfquet_events::Error;
use perfquet_events::event::{Event, Fields, Sample, Value, time_of};

use crate::perf_data::catalog::Declared;
use crate::perf_data::output::Output;
use crate::perf_data::record::Trailer;
use crate::perf_data::recorder::RecorderEvent;

pub(super) fn signed(time: u64) -> Option<i64> {
    i64::try_from(time).ok()
}

/// Returns the time of a record other than a sample; those synthesized at the start have 0.
pub(super) fn when(trailer: &Trailer) -> Option<i64> {
    let known = trailer.time.filter(|&time| !matches!(time, 0 | u64::MAX));
    known.map(time_of)
}

/// Returns a CPU; perf writes -1 for an unknown one.
pub(super) fn known_cpu(cpu: Option<u32>) -> Option<u32> {
    cpu.filter(|&cpu| cpu != u32::MAX)
}

/// Emits one of perf's own events.
pub(super) fn emit_values(
    event: RecorderEvent,
    trailer: &Trailer,
    values: &[Value<'_>],
    declared: &mut Declared,
    out: &mut Output<'_>,
) -> Result<(), Error> {
    let id = declared.recorder_event(event, out)?;
    let sample = Sample {
        time: when(trailer),
        cpu: known_cpu(trailer.cpu),
        pid: trailer.pid,
        tid: trailer.tid,
        fields: Fields::Values(values),
        ..Sample::of(id)
    };
    out.event(Event::Sample(&sample))
}
