//! `wakers`: who woke whom, and how long the woken threads then waited for a CPU.
//!
//! ```text
//! waker_comm  interrupt    comm  wakeups     slept     total       avg       p99       max  histogram
//! kworker/1                dd         49  512.3 us  241.0 us  4.918 us  18.20 us  28.01 us  ▁█▅▁
//!             irq:virtio0  dd         12  702.1 us  80.12 us  6.677 us  16.01 us  16.40 us  ▁█▁
//! ```

use clap::Args;

use super::view_summary::{Summary, SummaryOptions, summary_report};
use crate::commands::Subcommand;
use crate::report;

pub(super) const REPORT: Subcommand = report::subcommand::<Wakers>();

/// Summarize who wakes whom: count, sleep, latency
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # List the wakers of a thread
  perfquet-query wakers a.pqt --comm java
  # List the interrupts that wake threads
  perfquet-query wakers a.pqt --where 'interrupt IS NOT NULL' --by interrupt,comm
  # List wake-ups to another CPU
  perfquet-query wakers a.pqt --where 'waker_cpu <> target_cpu' --sort wakeups")]
struct Wakers {
    #[command(flatten)]
    options: SummaryOptions,
}

const SUMMARY: Summary = Summary {
    view: "wakeups",
    sql: include_str!("wakers.sql"),
    keys: &["waker_comm", "interrupt", "comm"],
    noun: "wake-up",
};

summary_report!(Wakers, "wakers", SUMMARY);
