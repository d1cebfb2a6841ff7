//! `locks`: waits for locks of the kernel and for futexes.
//!
//! ```text
//! kind   comm     address             waits     total       avg       p99       max  histogram
//! mutex  starter  0xffffffff82a1b2c0     38  357.5 ms  9.407 ms  280.1 ms  280.1 ms  ▁▂█▅▁  ▁
//! ```

use clap::Args;

use super::view_summary::{Summary, SummaryOptions, summary_report};
use crate::commands::Subcommand;
use crate::report;

pub(super) const REPORT: Subcommand = report::subcommand::<Locks>();

/// Summarize waits for locks and futexes: count, total, percentiles
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # List the most contended locks
  perfquet-query locks a.pqt
  # List where a lock is waited for
  perfquet-query locks a.pqt --where \"kind = 'mutex'\" --by 'stack_leaf(kernel_stack)'
  # List who holds the futexes of a program
  perfquet-query locks a.pqt --comm java --by address,owner_tid")]
struct Locks {
    #[command(flatten)]
    options: SummaryOptions,
}

const SUMMARY: Summary = Summary {
    view: "locks",
    sql: include_str!("locks.sql"),
    keys: &["kind", "comm", "address"],
    noun: "wait",
};

summary_report!(Locks, "locks", SUMMARY);
