//! Exporters: a trace directory becomes another tool's file. One file per exporter, one line in [`EXPORTERS`].

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use perfquet_formats::import::TimeRange;

/// Everything the command line knows about an exporter.
#[derive(Debug)]
pub(crate) struct Exporter {
    /// As given to `--to`: "folded".
    pub(crate) name: &'static str,
    /// One line for `--list`.
    pub(crate) about: &'static str,
    /// Writes the trace directory, or what happened in a part of its time.
    pub(crate) write: fn(trace: &Path, time: Option<TimeRange>, out: &mut dyn Write) -> Result<()>,
}

/// All exporters.
pub(crate) const EXPORTERS: &[&Exporter] = &[];
