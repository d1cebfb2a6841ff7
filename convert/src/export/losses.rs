//! Losses and read errors of a trace, which viewers should show.

use anyhow::Result;
use perfquet_trace::count::{counted, grouped};
use perfquet_trace::tables;

use super::Tally;
use super::batch::BatchRow;
use super::source::Source;

/// A row of `losses`.
#[derive(Debug, Clone)]
pub(super) struct Loss {
    pub(super) time: Option<i64>,
    pub(super) cpu: Option<i32>,
    pub(super) event: Option<String>,
    pub(super) count: Option<i64>,
    pub(super) reason: String,
}

impl Loss {
    /// Returns whether a filter excluded these rows, so that they are missing on purpose.
    pub(super) fn is_filtered(&self) -> bool {
        self.reason == "filtered"
    }

    /// Formats the loss: "7 events lost on CPU 1: ring full"
    pub(super) fn sentence(&self) -> String {
        let count = match self.count {
            Some(count) => counted(count.unsigned_abs(), "event"),
            None => "events".to_owned(),
        };
        let word = if self.is_filtered() {
            "filtered"
        } else {
            "lost"
        };
        let cpu = self
            .cpu
            .map_or(String::new(), |cpu| format!(" on CPU {cpu}"));
        match self.is_filtered() {
            true => format!("{count} {word}{cpu}"),
            false => format!("{count} {word}{cpu}: {}", self.reason),
        }
    }
}

/// Sums of the losses in the selection.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct LossCounts {
    pub(super) rows: u64,
    /// Number of lost events, without losses of unknown size.
    pub(super) events: u64,
}

/// Calls `pass` for each loss in `--time`, and for those without a timestamp; notes their sum.
pub(super) fn each_loss(
    source: &Source<'_>,
    tally: &mut Tally,
    mut pass: impl FnMut(&Loss) -> Result<()>,
) -> Result<LossCounts> {
    let mut counts = LossCounts::default();
    for batch in source.trace.read(tables::losses::NAME)? {
        let batch = batch?;
        for row in BatchRow::all(&batch) {
            let loss = Loss {
                time: row.i64("time"),
                cpu: row.i32("cpu"),
                event: row.text("event").map(str::to_owned),
                count: row.i64("count"),
                reason: row.text("reason").unwrap_or_default().to_owned(),
            };
            if loss.time.is_some() && !source.is_in_time(loss.time) {
                continue;
            }
            if !loss.is_filtered() {
                counts.rows += 1;
                let count = loss.count.unwrap_or(0).unsigned_abs();
                counts.events = counts.events.saturating_add(count);
            }
            pass(&Loss {
                time: loss.time.map(|time| source.at(time)),
                ..loss
            })?;
        }
    }
    if counts.rows > 0 {
        let lost = match counts.events {
            0 => "events".to_owned(),
            lost => counted(lost, "event"),
        };
        tally.note(format!("{lost} lost while recording; see table losses"));
    }
    Ok(counts)
}

/// Returns the number of read errors of the import, and notes it.
pub(super) fn problems(source: &Source<'_>, tally: &mut Tally) -> Result<u64> {
    let mut problems = 0_u64;
    for batch in source.trace.read(tables::problems::NAME)? {
        let batch = batch?;
        let counts = BatchRow::all(&batch).filter_map(|row| row.i64("count"));
        let counts = counts.map(i64::unsigned_abs);
        problems = counts.fold(problems, u64::saturating_add);
    }
    if problems > 0 {
        tally.note(format!(
            "the trace had {} read error{}; see table problems",
            grouped(problems),
            if problems == 1 { "" } else { "s" }
        ));
    }
    Ok(problems)
}
