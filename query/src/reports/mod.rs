//! The reports: one file each, its SQL beside it. A report is a subcommand.

mod flamegraph;
mod folding;
mod subject;
mod top;

use crate::commands::Subcommand;

/// All of them, in the order of `--help`.
pub(crate) const REPORTS: &[&Subcommand] = &[&top::REPORT, &flamegraph::REPORT];
