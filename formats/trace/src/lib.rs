//! The trace directory: turns events into tables, names addresses, writes and opens the directory.
//!
//! ```text
//! Event ─► normalize ─► store ─► NAME.pqt/*.parquet ─► store::Directory
//!             └─ symbols
//! ```
//! `normalize` keeps state: threads, mappings, stacks. `store` writes and reads trace directories and knows nothing
//! about traces beyond their schema. `symbols` names addresses. This crate sees events, never a reader.
//!
//! A trace directory is written with a [`store::Writer`] and read with a [`store::Directory`]; [`tables`] has a module with
//! schema and row type for each fixed table:
//!
//! ```
//! use perfquet_trace::store::{Directory, Facts, Writer, WriterOptions};
//! use perfquet_trace::tables::losses;
//!
//! # let scratch = tempfile::tempdir()?;
//! # let path = scratch.path().join("a.pqt");
//! let mut writer = Writer::create(&path, WriterOptions::default())?;
//! let table = writer.add_table(losses::schema())?;
//! losses::Row { time: Some(5), count: Some(2), reason: b"ring full", ..Default::default() }
//!     .push(writer.rows(table));
//! writer.end_row(table)?;
//! writer.finish(Facts::default())?;
//!
//! let trace = Directory::open(&path)?;
//! let mut rows = 0;
//! for batch in trace.read(losses::NAME)? {
//!     rows += batch?.num_rows();
//! }
//! assert_eq!(rows, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! Times are nanoseconds of the trace's own clock; unknown values are NULL. Errors are [`perfquet_events::Error`]: a
//! message with the input's name and, if available, the offset or line.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

pub mod align;
pub mod count;
pub mod function_name;
pub mod lake;
pub mod loss;
#[cfg(test)]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "shared by the tests of all crates"
)]
#[path = "../../../tests/src/needs.rs"]
mod needs;
pub mod normalize;
pub mod output_directory;
pub mod output_file;
pub mod recorded;
pub mod remote;
pub mod reopen;
mod report;
pub mod store;
pub mod symbols;
pub mod system_call;
pub mod tables;
pub mod unit_fact;

pub use report::Report;
