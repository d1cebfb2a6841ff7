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
use crate::output::progress;
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
    say(path, &counts, "perf report -i")
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
    say(output.path(), counts, best_question(next, counts))?;
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
    if let Some(sentence) = counts.unrecorded_sentence() {
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

/// Returns the command that summarizes most of what was recorded.
fn best_question(next: Next, counts: &Counts) -> &'static str {
    let events = counts.recorded_events();
    if events + counts.calls + counts.aggregates == 0 {
        return "perfquet-query info";
    }
    match next {
        Next::Durations if counts.calls > 0 => "perfquet-query durations",
        Next::Aggregates(report) if counts.aggregates > 0 => report,
        // Calls paired from events are fewer than these; calls of function tracing have no events.
        _ if counts.calls > events => "perfquet-query calls",
        _ if counts.aggregates > events => "perfquet-query agg",
        // Functions are known by stacks, or by the addresses that samples have.
        _ if counts.stacks > 0 => "perfquet-query top",
        _ => "perfquet-query top --by event",
    }
}

fn say(path: &Path, counts: &Counts, next: &str) -> Result<()> {
    let bytes = size_of(path).with_context(|| format!("cannot read {}", path.display()))?;
    let summary = progress::summary(counts, bytes);
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
        let check = |next, (events, calls, aggregates, stacks), expected: &str| {
            let counts = Counts {
                events,
                calls,
                aggregates,
                stacks,
                ..Counts::default()
            };
            assert_eq!(best_question(next, &counts), expected);
        };
        let sums = "perfquet-query agg --name off-cpu";
        check(Next::Top, (9, 0, 0, 4), "perfquet-query top");
        check(Next::Top, (9, 3, 0, 0), "perfquet-query top --by event");
        check(Next::Top, (2, 9, 0, 0), "perfquet-query calls");
        check(Next::Top, (2, 0, 9, 0), "perfquet-query agg");
        check(Next::Durations, (0, 4, 0, 0), "perfquet-query durations");
        check(Next::Aggregates(sums), (0, 0, 4, 2), sums);
        for next in [Next::Top, Next::Durations, Next::Aggregates(sums)] {
            check(next, (0, 0, 0, 0), "perfquet-query info");
        }
    }
}
