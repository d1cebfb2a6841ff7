//! Options that list, clean up or print a plan instead of recording.

use clap::Args;

use super::LISTS;

/// What to do instead of recording.
#[derive(Debug, Clone, Args)]
#[allow(
    rustdoc::broken_intra_doc_links,
    reason = "the texts are those of --help"
)]
pub(crate) struct ListingOptions {
    /// List events matching PATTERN, all without it; or presets
    #[arg(long, value_name = "PATTERN", num_args = 0..=1, default_missing_value = "*", help_heading = LISTS)]
    pub(crate) list: Option<String>,
    /// List functions that can be probed
    ///
    /// PATTERN lists functions of the kernel, OBJECT:PATTERN those of a program or library.
    #[arg(long, value_name = "PATTERN", help_heading = LISTS)]
    pub(crate) functions: Option<String>,
    /// List the lines of a function that can be probed
    ///
    /// FUNC is a kernel function, OBJECT:FUNC a function of a program or library.
    #[arg(long, value_name = "FUNC", help_heading = LISTS)]
    pub(crate) lines: Option<String>,
    /// List the variables that can be recorded
    ///
    /// FUNC[:LINE] is a kernel function, OBJECT:FUNC[:LINE] a function of a program or library.
    #[arg(long, value_name = "FUNC", help_heading = LISTS)]
    pub(crate) vars: Option<String>,
    /// Clean up after killed recorders
    ///
    /// Removes their probes and tracefs instances, and restores function tracer settings.
    #[arg(long, help_heading = LISTS)]
    pub(crate) cleanup: bool,
    /// Print what would be recorded, and change nothing
    ///
    /// Events, definitions of probes, filters, aggregations, stacks, output, and the required privileges.
    #[arg(long = "dry-run", help_heading = LISTS)]
    pub(crate) is_dry_run: bool,
}
