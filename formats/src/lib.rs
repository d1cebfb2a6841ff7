//! What the bytes of trace files mean, and the trace directory they become.
//!
//! ```text
//! Input ─► Format::read ─► Event ─► normalize ─► store ─► NAME.pqt/*.parquet
//! ```
//! A reader (one folder per format) turns bytes into [`event::Event`]s. `normalize` keeps what needs memory:
//! threads, mappings, stacks. `store` writes and reads trace directories. `symbols` names addresses.
//! Readers know nothing of Parquet, the store nothing of formats.

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

pub mod bpftrace;
pub mod bytes;
mod console;
pub mod count;
pub mod dtrace;
mod error;
pub mod event;
pub mod event_format;
pub mod folded;
pub mod ftrace_text;
#[cfg(test)]
mod golden;
pub mod import;
pub mod input;
pub mod kfi;
mod lines;
#[cfg(test)]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "shared by the tests of all crates"
)]
#[path = "../../tests/src/needs.rs"]
mod needs;
mod normalize;
pub mod output_file;
mod payload_text;
pub mod perf_data;
pub mod perf_script;
mod problems;
mod scan;
pub mod store;
pub mod symbols;
pub mod tables;
pub mod trace_dat;

pub use error::Error;
pub use input::Input;

use event::Sink;

/// Everything the rest of the program knows about a format.
pub struct Format {
    /// As given to `--from`, and named in the manifest: "kfi".
    pub name: &'static str,
    /// One line for `--list`.
    pub about: &'static str,
    /// Looks at the first 4 KiB only. [`FORMATS`] is in the order of trial; a test lets every golden file
    /// meet every sniffer.
    pub sniff: fn(head: &[u8]) -> Guess,
    /// Hands over events, in the order of time where the format has one. What cannot be read becomes
    /// [`event::Event::Problem`].
    pub read: fn(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error>,
}

/// How sure a sniffer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Guess {
    /// It is something else.
    No,
    /// It looks like it; another format may be surer.
    Likely,
    /// It is.
    Certain,
}

/// All formats, in the order of trial.
pub const FORMATS: &[&Format] = &[
    &perf_data::PERF_DATA,
    &trace_dat::TRACE_DAT,
    &kfi::KFI,
    &dtrace::DTRACE,
    &bpftrace::BPFTRACE,
    &ftrace_text::FTRACE_TEXT,
    &perf_script::PERF_SCRIPT,
    &folded::FOLDED,
];
