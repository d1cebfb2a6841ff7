//! The reports: one file each, its SQL beside it. A report is a subcommand.

mod durations;
mod flamegraph;
mod folding;
mod kd;
mod kd_tree;
mod measured;
mod subject;
mod top;

use crate::commands::Subcommand;

/// All of them, in the order of `--help`.
pub(crate) const REPORTS: &[&Subcommand] = &[&top::REPORT, &flamegraph::REPORT, &durations::REPORT];
