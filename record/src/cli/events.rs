//! Options that name events and probes.

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::WHAT;
use crate::preset::PRESETS;
use crate::probe::vmlinux::KernelOptions;
use crate::stat::StatOptions;

/// What to record or count.
#[derive(Debug, Clone, Args)]
#[allow(
    rustdoc::broken_intra_doc_links,
    reason = "the texts are those of --help"
)]
pub(crate) struct EventOptions {
    /// Event to record; repeatable or comma-separated [default: cycles]
    ///
    /// A tracepoint, with wildcards (sched:*), a counter or clock (cycles:u, cpu-clock), a raw event (rNNN), pmu/term=…/, or a breakpoint
    /// at an address (mem:ADDR[/LEN][:rwx][:u]), which records every access.
    #[arg(id = "events", short = 'e', long = "event", value_name = "EVENT", help_heading = WHAT)]
    pub(crate) names: Vec<String>,
    /// Probe a kernel function or line; repeatable
    ///
    /// PROBE is FUNC[+OFFSET|:LINE] [NAME=]ARG... and FUNC may contain wildcards. ARG is a parameter (size, skb->len), a
    /// register (%di) or $comm.
    #[arg(long = "kprobe", value_name = "PROBE", help_heading = WHAT)]
    pub(crate) kprobes: Vec<String>,
    /// Probe the return of a kernel function; repeatable
    ///
    /// $retval is the return value. Parameters have their values at entry (requires Linux 6.9).
    #[arg(long = "kretprobe", value_name = "PROBE", help_heading = WHAT)]
    pub(crate) kretprobes: Vec<String>,
    /// Probe a function or line of a program or library; repeatable
    ///
    /// PROBE is OBJECT:FUNC[+OFFSET|:LINE] [NAME=]ARG... where OBJECT is a path, a name (libc.so.6) or a PID. ARG is a
    /// variable (requires debug info) or a register.
    #[arg(long = "uprobe", value_name = "PROBE", help_heading = WHAT)]
    pub(crate) uprobes: Vec<String>,
    /// Probe the return of a function of a program or library; repeatable
    ///
    /// $retval is the return value. OBJECT is as for --uprobe.
    #[arg(long = "uretprobe", value_name = "PROBE", help_heading = WHAT)]
    pub(crate) uretprobes: Vec<String>,
    /// Record a USDT probe and its arguments; repeatable
    ///
    /// PROVIDER and NAME may contain wildcards. OBJECT is as for --uprobe.
    #[arg(long = "usdt", value_name = "OBJECT:PROVIDER:NAME", help_heading = WHAT)]
    pub(crate) usdts: Vec<String>,
    /// Add the options of a preset; repeatable
    ///
    /// Without a target, records the whole system. --list presets describes the presets and prints their options.
    #[arg(long = "preset", value_name = "NAME", value_parser = preset_names(), help_heading = WHAT)]
    pub(crate) presets: Vec<String>,
    #[command(flatten, next_help_heading = WHAT)]
    pub(crate) stat: StatOptions,
    #[command(flatten, next_help_heading = WHAT)]
    pub(crate) kernel: KernelOptions,
}

/// Names of the presets, for errors and completions.
fn preset_names() -> PossibleValuesParser {
    PossibleValuesParser::new(PRESETS.iter().map(|preset| preset.name))
}
