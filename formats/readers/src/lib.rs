//! Input formats: one directory per format turns bytes into events.
//!
//! ```text
//! Input ─► sniff ─► FORMATS ─► read ─► Event, Event, …
//! ```
//! A reader keeps no state about processes or stacks. This crate knows only events, not the trace directory, Arrow or
//! Parquet.

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

pub mod bcc;
pub mod bpftrace;
pub mod callgrind;
pub mod chrome;
mod columns;
mod console;
pub mod ctf;
mod distribution;
pub mod dtrace;
mod exported;
mod files;
pub mod firefox;
pub mod folded;
pub mod ftrace_text;
pub mod gcov;
#[cfg(test)]
mod golden;
pub mod gprof;
mod json;
pub mod kfi;
mod lines;
mod payload_text;
pub mod perf_data;
pub mod perf_script;
pub mod perfetto;
mod placeholder;
pub mod pprof;
mod printout;
mod problems;
mod protobuf;
pub mod speedscope;
pub mod strace;
pub mod systemtap;
mod thread_numbers;
pub mod trace_dat;
mod tracing_data;
pub mod uftrace;
mod value_table;

use perfquet_events::Format;

/// All formats, in the order in which they are tried.
pub const FORMATS: &[&Format] = &[
    &perf_data::PERF_DATA,
    &trace_dat::TRACE_DAT,
    &uftrace::UFTRACE,
    &ctf::CTF,
    &speedscope::SPEEDSCOPE,
    &firefox::FIREFOX,
    &chrome::CHROME,
    &callgrind::CALLGRIND,
    &gprof::GPROF,
    &gcov::GCOV,
    &perfetto::PERFETTO,
    &pprof::PPROF,
    &kfi::KFI,
    &bcc::BCC,
    &systemtap::SYSTEMTAP,
    &dtrace::DTRACE,
    &bpftrace::BPFTRACE,
    &ftrace_text::FTRACE_TEXT,
    &perf_script::PERF_SCRIPT,
    &strace::STRACE,
    &folded::FOLDED,
];
