//! The reports: one file each, with its SQL. A report is a subcommand.

mod agg;
mod align;
mod annotate;
mod boxes;
mod call_tree;
mod calls;
mod critical_path;
mod diff;
mod durations;
mod event_weight;
mod findings;
mod flamegraph;
mod folding;
mod frame_groups;
mod function_stats;
mod heatmap;
mod hist;
mod io;
mod kd;
mod kd_log;
mod kd_tree;
mod locks;
mod page;
mod paths;
mod plot;
mod recursion;
mod row_source;
mod stored_aggregates;
mod syscalls;
mod top;
mod utilization;
mod view_summary;
mod waits;
mod wakers;

use crate::commands::Subcommand;

/// All reports, in the order of `--help`.
pub(crate) const REPORTS: &[&Subcommand] = &[
    &findings::REPORT,
    &top::REPORT,
    &annotate::REPORT,
    &flamegraph::REPORT,
    &durations::REPORT,
    &diff::REPORT,
    &calls::REPORT,
    &hist::REPORT,
    &agg::REPORT,
    &heatmap::REPORT,
    &plot::REPORT,
    &waits::REPORT,
    &wakers::REPORT,
    &syscalls::REPORT,
    &locks::REPORT,
    &io::REPORT,
    &utilization::REPORT,
    &critical_path::REPORT,
    &align::REPORT,
    &page::REPORT,
];
