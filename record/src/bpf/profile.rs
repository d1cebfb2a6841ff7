//! `--profile`: counts stacks in the kernel. It is meant for permanent use: the output grows with the number of
//! distinct stacks, not with time.
//!
//! ```text
//! perfquet-record -a --profile -F 99 --duration 1h -o p.pqt
//! perfquet-query flamegraph p.pqt
//! ```

use clap::Args;

use super::plan::{Key, Requested};
use crate::failure::Failure;
use crate::probe::{Probe, counter};

/// Command-line options.
#[derive(Debug, Clone, Args)]
#[group(id = "profile")]
pub(crate) struct Options {
    /// Sample with -F and count stacks in the kernel, by thread name and process
    ///
    /// The trace grows with the number of distinct stacks, not with the duration.
    #[arg(long = "profile")]
    is_wanted: bool,
}

impl Options {
    pub(super) fn is_requested(&self) -> bool {
        self.is_wanted
    }
}

/// Returns the aggregation, if requested.
pub(super) fn requested(options: &Options) -> Result<Option<Requested<Probe>>, Failure> {
    if !options.is_wanted {
        return Ok(None);
    }
    let keys = [
        ("comm", Key::Comm),
        ("pid", Key::Process),
        ("kstack", Key::KernelStack),
        ("ustack", Key::UserStack),
    ];
    Ok(Some(Requested::plain(
        "profile",
        &keys,
        counter::default()?,
    )))
}
