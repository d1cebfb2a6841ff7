//! Options of samples: their rate, their stacks, and what else they have.

use clap::Args;

use super::SAMPLING;
use crate::cpu_limit::CpuLimitOptions;
use crate::probe::extras::ExtraOptions;
use crate::probe::stacks::StackOptions;
use crate::runtimes;

/// Rate and contents of samples.
#[derive(Debug, Clone, Args)]
pub(crate) struct SamplingOptions {
    /// Samples per second of counters and clocks, or max [default: 997]
    ///
    /// max is the kernel's limit (kernel.perf_event_max_sample_rate). Adds cycles if only tracepoints are given.
    #[arg(
        short = 'F',
        long = "freq",
        value_name = "HZ",
        conflicts_with = "count", help_heading = SAMPLING)]
    pub(crate) frequency: Option<String>,
    /// Sample every N events of counters and clocks
    #[arg(short = 'c', long = "count", value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = SAMPLING)]
    pub(crate) count: Option<u64>,
    #[command(flatten, next_help_heading = SAMPLING)]
    pub(crate) cpu_limit: CpuLimitOptions,
    #[command(flatten, next_help_heading = SAMPLING)]
    pub(crate) stacks: StackOptions,
    /// Keep the code of sampled functions that will be gone later, for annotate
    ///
    /// Code generated at run time, that of files that were removed or replaced, and the running kernel's (as root, if
    /// /proc/kcore is readable). Generated code is read when a function is first sampled, again while recording, and at the end.
    #[arg(long, help_heading = SAMPLING)]
    pub(crate) keep_code: bool,
    #[command(flatten, next_help_heading = SAMPLING)]
    pub(crate) extras: ExtraOptions,
    #[command(flatten, next_help_heading = SAMPLING)]
    pub(crate) runtimes: runtimes::Options,
}
