//! Exporters: a trace directory becomes another tool's file. One file per exporter, one line in [`EXPORTERS`].
//!
//! ```text
//! Directory ─► rows (all tables of events, merged by time) ─┐
//!           ─► stacks (the prefix tree and its frames)      ├─► folded, perf_script, … ─► text
//!           ─► mappings (where modules lay)                ─┘
//! ```
//! Rows stream; what is kept are stacks, frames and mappings.

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

/// Everything the command line knows about an exporter.
#[derive(Debug)]
pub(crate) struct Exporter {
    /// As given to `--to`: "folded".
    pub(crate) name: &'static str,
    /// One line for `--list`.
    pub(crate) about: &'static str,
    /// Writes the trace, or what happened in a part of its time.
    pub(crate) write: fn(trace: &Directory, options: &Options, out: &mut dyn Write) -> Result<()>,
}

/// What the command line asks of an export.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// Only what happened in this time.
    pub(crate) time: Option<TimeRange>,
    /// Where names of addresses inside events come from.
    pub(crate) symbols: symbols::Options,
}

/// All exporters.
pub(crate) const EXPORTERS: &[&Exporter] = &[&folded::EXPORTER, &perf_script::EXPORTER];

/// `text` without what would control a terminal or break a line.
fn printable(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_control() { '?' } else { letter })
        .collect()
}
