//! The weight of a sample, and its unit: the period, or 1 where the input has no periods.
//!
//! ```text
//! cpu-clock, period 1000000        1 ms
//! cpu-clock, without a period      1 sample, which is no time
//! inuse_space of pprof, 4096       4096 bytes
//! ```

use std::collections::HashMap;

use anyhow::Result;
use arrow_array::Array;
use perfquet_trace::count::{counted, grouped};
use perfquet_trace::unit_fact;

use super::batch::{column, i64_at, i64_column, text_at};
use super::event_types::is_clock;
use super::source::Source;
use super::tally::Tally;

/// Units of pprof, without their plurals.
const UNITS: [&str; 7] = [
    "nanoseconds",
    "microseconds",
    "milliseconds",
    "seconds",
    "bytes",
    "kilobytes",
    "megabytes",
];
pub(super) const COUNT: &str = "count";
pub(super) const NANOSECONDS: &str = "nanoseconds";

/// The weights of all sampled events.
#[derive(Debug, Default)]
pub(super) struct Weights {
    /// Samples without a period, by event.
    missing: HashMap<String, u64>,
    /// Units that the input declares, by event.
    units: HashMap<String, &'static str>,
}

impl Weights {
    /// Looks for samples without a period. Notes events of which only some have none.
    pub(super) fn of(source: &Source<'_>, tally: &mut Tally) -> Result<Weights> {
        let mut weights = Weights::default();
        let mut all: HashMap<String, u64> = HashMap::new();
        // Most traces have all periods: their events need not be read.
        if are_missing(source)? {
            for table in source.samples() {
                for batch in source.rows(table, Some(&["event", "period"]))? {
                    let batch = batch?;
                    let events = column(&batch, "event");
                    let periods = i64_column(&batch, "period");
                    for row in 0..batch.num_rows() {
                        let event = events.and_then(|events| text_at(events, row));
                        count(&mut all, event);
                        if i64_at(periods, row).is_none() {
                            count(&mut weights.missing, event);
                        }
                    }
                }
            }
        }
        let mut mixed: Vec<_> = weights.missing.iter().collect();
        mixed.sort();
        for (event, &missing) in mixed {
            let samples = all.get(event).copied().unwrap_or(missing);
            if missing < samples {
                tally.note(format!(
                    "{event}: {} of {} have no period: samples are counted",
                    grouped(missing),
                    counted(samples, "sample")
                ));
            }
        }
        for (name, unit) in &source.trace.manifest().facts.other {
            let known = UNITS.iter().find(|known| *known == unit);
            if let (Some(event), Some(unit)) = (unit_fact::event(name), known) {
                weights.units.insert(event.to_owned(), unit);
            }
        }
        Ok(weights)
    }

    /// The weight of a sample.
    pub(super) fn of_sample(&self, event: Option<&str>, period: Option<i64>) -> i64 {
        match self.missing.contains_key(event.unwrap_or_default()) {
            true => 1,
            false => period.unwrap_or(1),
        }
    }

    /// The unit of an event's weights, as pprof names it.
    pub(super) fn unit(&self, event: &str) -> &'static str {
        match self.units.get(event) {
            _ if self.missing.contains_key(event) => COUNT,
            Some(unit) => unit,
            None if is_clock(event) => NANOSECONDS,
            None => COUNT,
        }
    }

    /// Whether the weights are nanoseconds.
    pub(super) fn are_time(&self, event: &str) -> bool {
        self.unit(event) == NANOSECONDS
    }
}

/// Whether any sample has no period.
fn are_missing(source: &Source<'_>) -> Result<bool> {
    for table in source.samples() {
        for batch in source.rows(table, Some(&["period"]))? {
            let batch = batch?;
            let periods = i64_column(&batch, "period");
            if periods.is_none_or(|periods| periods.null_count() > 0) && batch.num_rows() > 0 {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn count(counts: &mut HashMap<String, u64>, event: Option<&str>) {
    let event = event.unwrap_or_default();
    // Looked up in two steps, because `entry` would allocate the name of every row.
    match counts.get_mut(event) {
        Some(count) => *count += 1,
        None => {
            counts.insert(event.to_owned(), 1);
        }
    }
}
