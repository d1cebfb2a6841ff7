//! The reports: one file each, with its SQL. A report is a subcommand.

mod agg;
mod boxes;
mod call_tree;
mod calls;
mod diff;
mod durations;
mod event_weight;
mod flamegraph;
mod folding;
mod frame_groups;
mod function_stats;
mod heatmap;
mod hist;
mod kd;
mod kd_log;
mod kd_tree;
mod page;
mod paths;
mod row_source;
mod stored_aggregates;
mod top;

use crate::commands::Subcommand;

/// All reports, in the order of `--help`.
pub(crate) const REPORTS: &[&Subcommand] = &[
    &top::REPORT,
    &flamegraph::REPORT,
    &durations::REPORT,
    &diff::REPORT,
    &calls::REPORT,
    &hist::REPORT,
    &agg::REPORT,
    &heatmap::REPORT,
    &page::REPORT,
];
