//! The result of writing a trace directory: rows, sizes, and frames without names.

use std::collections::BTreeMap;

use crate::normalize::Counts;
use crate::symbols;

/// Result of an import.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Rows of each table.
    pub rows: BTreeMap<String, u64>,
    /// Counts for the closing line.
    pub counts: Counts,
    /// Name of the format of each input.
    pub formats: Vec<&'static str>,
    /// Size of the inputs in bytes: on disk, or as read from a pipe.
    pub input_bytes: u64,
    /// Size of the trace's parts in bytes.
    pub output_bytes: u64,
    /// Frames without names and the reasons, per input.
    pub symbols: Vec<symbols::Report>,
    /// Results of unwinding copied user stacks, if any, per input.
    pub unwound: Vec<symbols::UnwindCounts>,
}
