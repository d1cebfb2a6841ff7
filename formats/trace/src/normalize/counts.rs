//! Counted events, as rows of `counts`. The table exists only if there are some.

use perfquet_events::Error;
use perfquet_events::event::{Counted, CounterValue};

use super::Normalizer;
use super::fixed_tables::added;
use crate::tables;

impl Normalizer<'_> {
    /// Adds the value of a counter.
    pub(super) fn count(&mut self, value: &CounterValue<'_>) -> Result<(), Error> {
        self.age.see_call(value.since);
        self.age.see_call(value.time);
        let output = &mut self.output;
        let table = added(
            &mut output.fixed.counts,
            &mut output.writer,
            tables::counts::schema,
        )?;
        output.counts.counter_values += 1;
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        tables::counts::Row {
            time: value.time,
            since: value.since,
            event: value.event,
            count: value.counted.and_then(Counted::scaled).map(number),
            unit: text(value.unit),
            counted: value.counted.map(|counted| number(counted.value)),
            enabled: value.counted.map(|counted| number(counted.enabled)),
            running: value.counted.map(|counted| number(counted.running)),
            cpu: value.cpu.and_then(|cpu| cpu.try_into().ok()),
            tid: value.tid,
            comm: text(value.comm),
            cgroup: text(value.cgroup),
            error: text(value.error),
        }
        .push(output.writer.rows(table));
        output.writer.end_row(table)?;
        self.make_room()
    }
}

/// NULL for an empty text.
fn text(text: &[u8]) -> Option<&[u8]> {
    (!text.is_empty()).then_some(text)
}
