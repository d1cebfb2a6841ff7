//! Options that name the target.

use clap::Args;

use super::WHOM;
use crate::remote::RemoteOptions;
use crate::target::TargetOptions;

/// The target, before [`crate::plan`] finds it.
#[derive(Debug, Clone, Args)]
pub(crate) struct TargetArguments {
    /// Record the whole system
    #[arg(short = 'a', long = "all-cpus", help_heading = WHOM)]
    pub(crate) all_cpus: bool,
    /// Record only on these CPUs (0-3,8)
    ///
    /// Without another target, records the whole system on these CPUs. [default: all online CPUs]
    #[arg(short = 'C', long = "cpu", value_name = "CPUS", help_heading = WHOM)]
    pub(crate) cpus: Option<String>,
    /// Record these processes, their threads and children; comma-separated
    ///
    /// NAME stands for all running processes with this comm or executable. Processes that start later are recorded only if a
    /// recorded one starts them; -G also records others.
    #[arg(short = 'p', long = "pid", value_name = "PID|NAME", value_delimiter = ',', help_heading = WHOM)]
    pub(crate) pids: Vec<String>,
    /// Record these threads and their children; comma-separated
    #[arg(short = 't', long = "tid", value_name = "TID", value_delimiter = ',', help_heading = WHOM)]
    pub(crate) tids: Vec<i32>,
    #[command(flatten, next_help_heading = WHOM)]
    pub(crate) options: TargetOptions,
    #[command(flatten, next_help_heading = WHOM)]
    pub(crate) remote: RemoteOptions,
}

impl TargetArguments {
    /// Whether running processes, threads, a user or cgroups are given.
    pub(crate) fn names_tasks(&self) -> bool {
        !self.pids.is_empty() || !self.tids.is_empty() || self.options.are_given()
    }
}
