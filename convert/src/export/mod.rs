//! Exporters: a trace directory becomes another tool's file. One file per exporter, one line in [`EXPORTERS`].
//!
//! ```text
//! Directory ─► rows (all tables of events, merged by time) ─┐
//!           ─► stacks (the prefix tree and its frames)      ├─► folded, perf_script, … ─► text
//!           ─► mappings (addresses of modules)              ─┘
//! ```
//! Rows are streamed; only stacks, frames and mappings are kept in memory.

mod aggregates;
mod counted;
mod folded;
mod mappings;
mod merged;
mod perf_script;
mod stacks;
#[cfg(test)]
mod tests;

use std::io::Write;

use anyhow::Result;
use perfquet_trace::normalize::TimeRange;
use perfquet_trace::store::Directory;
use perfquet_trace::symbols;

/// An exporter as listed on the command line.
#[derive(Debug)]
pub(crate) struct Exporter {
    /// The value of `--to`: "folded".
    pub(crate) name: &'static str,
    /// One line for `--list`.
    pub(crate) about: &'static str,
    /// Writes the trace, or a time range of it.
    pub(crate) write: fn(trace: &Directory, options: &Options, out: &mut dyn Write) -> Result<()>,
}

/// Export options from the command line.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// Export only this time range.
    pub(crate) time: Option<TimeRange>,
    /// Sources of names for addresses inside events.
    pub(crate) symbols: symbols::Options,
}

/// All exporters.
pub(crate) const EXPORTERS: &[&Exporter] = &[&folded::EXPORTER, &perf_script::EXPORTER];

/// `text` without control characters and newlines.
fn printable(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_control() { '?' } else { letter })
        .collect()
}
