//! The last steps of an output: it is whole, and the closing line says what is in it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use perfquet_formats::import::{Counts, Report};
use perfquet_formats::symbols;

use crate::output::Output;
use crate::progress::{self, Count};
use crate::recording::stacks;
use crate::{ftrace, journal};

/// What the trace is best asked first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Where the time went, or which events there are.
    Top,
    /// How long the calls took.
    Durations,
    /// What was summed up, by the report that shows it.
    Sums(&'static str),
}

/// The journal is all that was asked for.
pub(crate) fn file(output: &Output, lost: u64) -> Result<()> {
    output.complete(true)?;
    let path = output.path();
    let events = journal::count_samples(path).context("cannot count the events")?;
    let counts = Counts {
        events,
        lost,
        ..Counts::default()
    };
    say(path, Count::Events(events), &counts, "perf report -i")
}

/// The journal is in the tables, or could not be brought there.
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
            .context("cannot join the pages of the journal")?;
    }
    output.complete(keeps_journal)?;
    // Calls made of events are fewer than these; those of function tracing have none.
    let events = counts.events.saturating_sub(counts.of_recorder);
    let (count, next) = match next {
        Next::Durations => (Count::Calls(counts.calls), "perfquet-query durations"),
        Next::Sums(report) => (Count::Sums(counts.aggregates), report),
        Next::Top if counts.calls > events => (Count::Calls(counts.calls), "perfquet-query calls"),
        Next::Top if counts.aggregates > events => {
            (Count::Sums(counts.aggregates), "perfquet-query agg")
        }
        Next::Top => (Count::Events(events), "perfquet-query top"),
    };
    say(output.path(), count, counts, next)?;
    for sentence in report.unwound.iter().filter_map(stacks::cut_sentence) {
        eprintln!("{sentence}");
    }
    if let Some(sentence) = symbols::unverified_sentence(&report.symbols) {
        eprintln!("{sentence}");
    }
    if counts.problems > 0 {
        eprintln!(
            "{} places could not be read: see the table problems",
            counts.problems
        );
    }
    Ok(())
}

fn say(path: &Path, count: Count, counts: &Counts, next: &str) -> Result<()> {
    let bytes = size_of(path).with_context(|| format!("cannot read {}", path.display()))?;
    let summary = progress::summary(count, counts, bytes);
    let path = path.display();
    eprintln!("{path}: {summary}; next: {next} {path}");
    Ok(())
}

/// Bytes of a file, or of all files in a folder.
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
