//! `waits`: what threads waited for: a CPU, a lock, a disk, other threads.
//!
//! ```text
//! comm  state            reason         waits     total       avg       p99       max  histogram
//! dd    uninterruptible  folio_wait_bit    49  41.20 ms  840.8 us  3.619 ms  3.619 ms  ▁▂█▅▁
//! ```

use clap::Args;

use super::view_summary::{Summary, SummaryOptions, summary_report};
use crate::commands::Subcommand;
use crate::report;

pub(super) const REPORT: Subcommand = report::subcommand::<Waits>();

/// Summarize what threads wait for, by thread name, state and function
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # List what threads of a program wait for
  perfquet-query waits a.pqt --comm dd
  # List the longest waits for a CPU
  perfquet-query waits a.pqt --where \"state IN ('runnable', 'preempted')\" --sort max
  # List who ends the sleeps of a thread
  perfquet-query waits a.pqt --tid 4711 --by state,waker_comm,waker_context")]
struct Waits {
    #[command(flatten)]
    options: SummaryOptions,
}

const SUMMARY: Summary = Summary {
    view: "thread_states",
    sql: include_str!("waits.sql"),
    keys: &["comm", "state", "reason"],
    noun: "wait",
};

summary_report!(Waits, "waits", SUMMARY);
