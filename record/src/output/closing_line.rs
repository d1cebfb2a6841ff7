//! Completes the output and prints the closing line.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use perfquet_trace::Report;
use perfquet_trace::count::counted;
use perfquet_trace::normalize::Counts;
use perfquet_trace::symbols;

use crate::failure::failed;
use crate::output::Output;
use crate::output::progress::{self, Count};
use crate::probe::stacks;
use crate::{ftrace, journal};
use perfquet_cli::terminal;

/// The most useful first query of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Time or event counts.
    Top,
    /// Durations of calls.
    Durations,
    /// Aggregates, with the command that shows them.
    Aggregates(&'static str),
}

/// Completes `--format perf.data`: the journal becomes a perf.data in perf's file format.
/// `lost` are the losses that the kernel counted, otherwise those in the file; `is_counted` says whether these are all.
pub(crate) fn file(output: &Output, lost: Option<u64>, is_counted: bool) -> Result<()> {
    let path = output.path();
    let completed = journal::complete_file(path).map_err(|error| {
        output.give_to_caller();
        failed(format!("{}: cannot write its header: {error}", path.display())).hint(
            "read the file with perf script or perfquet-convert; its records are in perf's pipe format",
        )
    })?;
    output.complete(true)?;
    let counts = Counts {
        events: completed.samples,
        lost: lost.unwrap_or(completed.lost),
        uncounted_losses: u64::from(!is_counted),
        ..Counts::default()
    };
    say(
        path,
        Count::Events(completed.samples),
        &counts,
        "perf report -i",
    )
}

/// Completes a trace directory, whether or not its tables were completed.
pub(crate) fn trace(
    output: &Output,
    report: Result<Report>,
    keeps_journal: bool,
    next: Next,
) -> Result<()> {
    if report.is_err() {
        output.give_to_caller();
    }
    let report = report?;
    let counts = &report.counts;
    if keeps_journal {
        let journal = output.journal_path();
        ftrace::join(&journal.with_file_name(""))
            .context("cannot append the function trace to the journal")?;
    }
    output.complete(keeps_journal)?;
    let (count, next) = best_question(next, &report);
    say(output.path(), count, counts, next)?;
    for sentence in report
        .unwound
        .iter()
        .filter_map(|counts| stacks::cut_sentence("copied", counts, 0))
    {
        terminal::say(sentence);
    }
    if let Some(sentence) = symbols::unverified_sentence(&report.symbols) {
        terminal::say(sentence);
    }
    if counts.problems > 0 {
        terminal::say(format_args!(
            "{} could not be read; see table problems",
            counted(counts.problems, "place")
        ));
    }
    Ok(())
}

/// Returns the number of recorded items and the command that summarizes them.
fn best_question(next: Next, report: &Report) -> (Count, &'static str) {
    let counts = &report.counts;
    // Side-band events do not count as recorded events.
    let events = counts.events.saturating_sub(counts.of_recorder);
    if events + counts.calls + counts.aggregates == 0 {
        let count = match counts.counter_values {
            0 => Count::Events(0),
            values => Count::Counts(values),
        };
        return (count, "perfquet-query info");
    }
    match next {
        Next::Durations if counts.calls > 0 => {
            (Count::Calls(counts.calls), "perfquet-query durations")
        }
        Next::Aggregates(report) if counts.aggregates > 0 => {
            (Count::Aggregates(counts.aggregates), report)
        }
        // Calls paired from events are fewer than these; calls of function tracing have no events.
        _ if counts.calls > events => (Count::Calls(counts.calls), "perfquet-query calls"),
        _ if counts.aggregates > events => {
            (Count::Aggregates(counts.aggregates), "perfquet-query agg")
        }
        // Functions are known by stacks, or by the addresses that samples have.
        _ if counts.stacks > 0 => (Count::Events(events), "perfquet-query top"),
        _ => (Count::Events(events), "perfquet-query top --by event"),
    }
}

fn say(path: &Path, count: Count, counts: &Counts, next: &str) -> Result<()> {
    let bytes = size_of(path).with_context(|| format!("cannot read {}", path.display()))?;
    let summary = progress::summary(count, counts, bytes);
    let path = path.display();
    terminal::say(format_args!("{path}: {summary}; next: {next} {path}"));
    Ok(())
}

/// Returns the size of a file, or of all files in a directory.
pub(crate) fn size_of(path: &Path) -> std::io::Result<u64> {
    let metadata = path.symlink_metadata()?;
    if !metadata.is_dir() {
        return Ok(metadata.len());
    }
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        bytes += size_of(&entry?.path())?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_command_prints_a_result() {
        let check = |next, (events, calls, aggregates, stacks), expected: (Count, &str)| {
            let counts = Counts {
                events,
                calls,
                aggregates,
                stacks,
                ..Counts::default()
            };
            let report = Report {
                counts,
                ..Report::default()
            };
            assert_eq!(best_question(next, &report), expected);
        };
        let sums = "perfquet-query agg --name off-cpu";
        check(
            Next::Top,
            (9, 0, 0, 4),
            (Count::Events(9), "perfquet-query top"),
        );
        check(
            Next::Top,
            (9, 3, 0, 0),
            (Count::Events(9), "perfquet-query top --by event"),
        );
        check(
            Next::Top,
            (2, 9, 0, 0),
            (Count::Calls(9), "perfquet-query calls"),
        );
        check(
            Next::Top,
            (2, 0, 9, 0),
            (Count::Aggregates(9), "perfquet-query agg"),
        );
        check(
            Next::Durations,
            (0, 4, 0, 0),
            (Count::Calls(4), "perfquet-query durations"),
        );
        check(
            Next::Aggregates(sums),
            (0, 0, 4, 2),
            (Count::Aggregates(4), sums),
        );
        for next in [Next::Top, Next::Durations, Next::Aggregates(sums)] {
            check(
                next,
                (0, 0, 0, 0),
                (Count::Events(0), "perfquet-query info"),
            );
        }
    }
}
