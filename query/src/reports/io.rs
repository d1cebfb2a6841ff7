//! `io`: requests of block devices: number, bytes, time in the queue and in the device.
//!
//! ```text
//! device  op     requests    bytes  queued     total       avg       p99       max  histogram
//! 254:0   write        57  6651904         91.20 ms  1.600 ms  4.812 ms  4.812 ms  ▁▂█▅▁
//! ```

use clap::Args;

use super::view_summary::{Summary, SummaryOptions, summary_report};
use crate::commands::Subcommand;
use crate::report;

pub(super) const REPORT: Subcommand = report::subcommand::<Io>();

/// Summarize block I/O: requests, bytes, queueing and service time
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # List devices and operations
  perfquet-query io a.pqt
  # List who makes the requests
  perfquet-query io a.pqt --by comm,op --sort bytes
  # List the latency by size
  perfquet-query io a.pqt --by bytes --sort p99")]
struct Io {
    #[command(flatten)]
    options: SummaryOptions,
}

const SUMMARY: Summary = Summary {
    view: "block_io",
    sql: include_str!("io.sql"),
    keys: &["device", "op"],
    noun: "request",
};

summary_report!(Io, "io", SUMMARY);
