//! Options for the kernel: which hits it records, and what it aggregates instead of recording.

use clap::Args;

use super::{FILTERS, SUMS};
use crate::bpf;

/// Filters and aggregations.
#[derive(Debug, Clone, Args)]
#[allow(
    rustdoc::broken_intra_doc_links,
    reason = "the texts are those of --help"
)]
pub(crate) struct InKernelOptions {
    /// Record only hits matching this kernel filter
    ///
    /// Applies to the preceding event or probe. Aggregated calls are filtered by their arguments, retval and duration.
    #[arg(long = "filter", visible_alias = "where", value_name = "EXPR", help_heading = FILTERS)]
    pub(crate) filters: Vec<String>,
    /// Aggregate the time from START to END with the same KEY; repeatable
    ///
    /// START and END are tracepoints followed by [KEY,...], where KEY is a field, cpu or tid: 'block:block_rq_issue[dev,sector] ->
    /// block:block_rq_complete[dev,sector]'. Separate several STARTs by commas; each may have a /FILTER/. In --agg, NAME is a
    /// field of END, start.NAME a field of START. [default aggregation: 'quantize(duration)']
    #[arg(long = "latency", value_name = "START -> END", help_heading = SUMS)]
    pub(crate) latencies: Vec<String>,
    #[command(flatten, next_help_heading = SUMS)]
    pub(crate) bpf: bpf::Options,
}
