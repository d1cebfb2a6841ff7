//! `syscalls`: number, errors and durations of system calls.
//!
//! ```text
//! name    calls  errors     total       avg       p99       max  histogram
//! openat     31      13  82.01 us  2.645 us  6.112 us  6.112 us  ▅█▂
//! ```

use clap::Args;

use super::view_summary::{Summary, SummaryOptions, summary_report};
use crate::commands::Subcommand;
use crate::report;

pub(super) const REPORT: Subcommand = report::subcommand::<Syscalls>();

/// Summarize system calls: count, errors, total, percentiles
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # List the system calls with the longest total time
  perfquet-query syscalls a.pqt
  # List the failed ones by error
  perfquet-query syscalls a.pqt --where 'error IS NOT NULL' --by name,error --sort calls
  # List the slowest reads by file
  perfquet-query syscalls a.pqt --where \"name = 'read'\" --by path --sort p99")]
struct Syscalls {
    #[command(flatten)]
    options: SummaryOptions,
}

const SUMMARY: Summary = Summary {
    view: "syscalls",
    sql: include_str!("syscalls.sql"),
    keys: &["name"],
    noun: "system call",
};

summary_report!(Syscalls, "syscalls", SUMMARY);
