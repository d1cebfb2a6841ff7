//! Losses and read errors of a trace, which viewers should show.

use anyhow::Result;
use perfquet_trace::count::{counted, grouped};
use perfquet_trace::loss::is_lost;
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
    /// Returns whether events are lost; otherwise fewer were recorded, as by a filter or during a pause.
    pub(super) fn is_lost(&self) -> bool {
        is_lost(&self.reason)
    }

    /// Formats the loss: "7 events lost on CPU 1: ring full", "throttled on CPU 1", "3 events filtered: calls shorter than 6ns"
    pub(super) fn sentence(&self) -> String {
        let count = self
            .count
            .map(|count| counted(count.unsigned_abs(), "event"));
        let cpu = self
            .cpu
            .map_or(String::new(), |cpu| format!(" on CPU {cpu}"));
        let reason = &self.reason;
        let events = count.as_deref().unwrap_or("events");
        if self.is_lost() {
            return format!("{events} lost{cpu}: {reason}");
        }
        match (reason.strip_prefix("filtered"), &count) {
            (Some(details), _) => format!("{events} filtered{cpu}{details}"),
            (None, Some(count)) => format!("{count} {reason}{cpu}"),
            (None, None) => format!("{reason}{cpu}"),
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
            if loss.is_lost() {
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

#[cfg(test)]
mod tests {
    use super::Loss;

    #[test]
    fn only_lost_events_are_lost() {
        let of = |reason: &str, count: Option<i64>| {
            let loss = Loss {
                time: None,
                cpu: Some(1),
                event: None,
                count,
                reason: reason.to_owned(),
            };
            (loss.is_lost(), loss.sentence())
        };
        for (reason, count, is_lost, sentence) in [
            (
                "ring full",
                Some(7),
                true,
                "7 events lost on CPU 1: ring full",
            ),
            ("ring full", None, true, "events lost on CPU 1: ring full"),
            ("throttled", None, false, "throttled on CPU 1"),
            ("paused", None, false, "paused on CPU 1"),
            ("filtered", Some(3), false, "3 events filtered on CPU 1"),
            (
                "filtered: calls shorter than 6ns",
                Some(1),
                false,
                "1 event filtered on CPU 1: calls shorter than 6ns",
            ),
        ] {
            assert_eq!(of(reason, count), (is_lost, sentence.to_owned()));
        }
    }
}
