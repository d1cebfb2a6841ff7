//! Exporters: a trace directory becomes another tool's file. One file per exporter, one line in [`EXPORTERS`].
//!
//! ```text
//! Source (--time, --event, --where) ─► rows (table by table, or merged by time) ─┐
//!                                   ─► losses, threads, event types, mappings    ├─► folded, perf_script, … ─► bytes
//!                                   ─► stacks (the prefix tree and its frames)   ┘                          ─► Tally
//! ```
//! Rows are streamed; only stacks, frames, threads and mappings are kept in memory. An exporter counts in the [`Tally`]
//! what it wrote and what the format cannot represent; the [`Source`] counts rows that are not selected.

mod aggregates;
mod batch;
mod calls;
mod chrome;
mod condition;
mod counted;
mod ctf;
mod ddl;
mod event_types;
mod firefox;
mod folded;
mod json;
pub(crate) mod lake;
mod lanes;
mod losses;
mod mappings;
mod merged;
mod paths;
mod perf_script;
mod perfetto;
mod pprof;
pub(crate) mod pqtz;
mod protobuf;
#[cfg(test)]
mod reimport_tests;
mod source;
mod speedscope;
mod spool;
mod stacks;
mod tables;
mod tally;
#[cfg(test)]
mod tests;
mod threads;
mod values;
mod weights;

use std::io::Write;
use std::path::Path;

use anyhow::Result;

pub(crate) use condition::Condition;
pub(crate) use ddl::Catalog;
pub(crate) use source::{Excluded, Selection, Source, first_time};
pub(crate) use tally::Tally;

/// An exporter as listed on the command line.
#[derive(Debug)]
pub(crate) struct Exporter {
    /// The value of `--to`: "folded".
    pub(crate) name: &'static str,
    /// One line for `--list`.
    pub(crate) about: &'static str,
    /// The kind of output and the function that writes it.
    pub(crate) output: Output,
}

/// Writes the selected rows as a stream of bytes.
pub(crate) type WriteFile = fn(&Source<'_>, &mut dyn Write, &mut Tally) -> Result<()>;

/// Writes the selected rows of traces on one timeline.
pub(crate) type WriteTraces = fn(&[Source<'_>], &mut dyn Write, &mut Tally) -> Result<()>;

/// Writes the selected rows into an empty directory.
pub(crate) type WriteDirectory = fn(&Source<'_>, &Path, &mut Tally) -> Result<()>;

/// Writes statements about the tables of a lake.
pub(crate) type WriteStatements = fn(&Catalog, &mut dyn Write, &mut Tally) -> Result<()>;

/// Kinds of outputs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Output {
    /// Text for pipes: stdout by default.
    Text { write: WriteFile },
    /// Text that refers to the files of a trace or lake, and to all of their rows.
    Reference {
        write: WriteFile,
        write_lake: WriteStatements,
    },
    /// A file for a viewer: by default in the current directory, named after the input.
    File {
        /// `.pftrace`. With an ending of `.gz`, output to stdout is compressed, too.
        ending: &'static str,
        /// How to open it, for the closing line.
        next: &'static str,
        write: WriteFile,
    },
    /// The same, of one trace or of several on one timeline.
    Timeline {
        ending: &'static str,
        /// How to open it, for the closing line.
        next: &'static str,
        write: WriteTraces,
    },
    /// Several files, in a directory named after the input.
    Directory {
        ending: &'static str,
        /// How to open it, for the closing line.
        next: &'static str,
        write: WriteDirectory,
    },
    /// A file with the whole trace.
    Archive {
        ending: &'static str,
        /// How to open it, for the closing line.
        next: &'static str,
        write: WriteFile,
    },
    /// A directory for many traces, which is added to.
    Lake,
}

/// All exporters.
pub(crate) const EXPORTERS: &[&Exporter] = &[
    &perfetto::EXPORTER,
    &firefox::EXPORTER,
    &pprof::EXPORTER,
    &speedscope::EXPORTER,
    &chrome::EXPORTER,
    &ctf::EXPORTER,
    &folded::EXPORTER,
    &perf_script::EXPORTER,
    &tables::CSV,
    &tables::CSV_EXACT,
    &tables::ARROW,
    &lake::EXPORTER,
    &pqtz::EXPORTER,
    &ddl::duckdb::EXPORTER,
    &ddl::spark::EXPORTER,
    &ddl::clickhouse::EXPORTER,
    &ddl::datafusion::EXPORTER,
    &ddl::trino::EXPORTER,
    &ddl::polars::EXPORTER,
    &ddl::delta::EXPORTER,
];

/// With more nested slices on a track, Perfetto's importer misreads the track without an error (`slice_tracker.cc`).
const SLICES_DEEPEST: usize = 512;

/// Returns `text` without control characters and newlines.
fn printable(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_control() { '?' } else { letter })
        .collect()
}
