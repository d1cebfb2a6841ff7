//! Options of the output, and of the rings before it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use perfquet_cli::paths;
use perfquet_cli::quantity::duration;

use super::OUTPUT;
use crate::limit;
use crate::output::{self, Form, Format};

/// Where the recording goes, and when it ends.
#[derive(Debug, Clone, Args)]
pub(crate) struct OutputOptions {
    /// Ring buffer size per CPU (512K, 64M); a bare number counts pages
    ///
    /// [default: 32M as root, at most 1/32 of memory for all rings; otherwise the locked-memory limit]
    #[arg(short = 'm', long = "ring-size", alias = "mmap-pages", value_name = "SIZE", value_parser = limit::ring_bytes, help_heading = OUTPUT)]
    pub(crate) ring_bytes: Option<usize>,
    /// Output path [default: trace.pqt; perf.data with --format perf.data]
    #[arg(id = "output", short = 'o', long = "output", value_name = "PATH", value_parser = paths::written(), help_heading = OUTPUT)]
    pub(crate) path: Option<PathBuf>,
    /// Overwrite an existing trace
    ///
    /// The old trace is kept as PATH.perfquet-old until the new one is complete.
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) force: bool,
    /// Permissions of the complete trace, in octal [default: 0600]
    ///
    /// Directories are searchable by those who may read them. A recording exposes the activity of the whole system, so it is
    /// always private until it is complete. Imports by perfquet-convert follow the umask instead.
    #[arg(long, value_name = "MODE", value_parser = output::mode, help_heading = OUTPUT)]
    pub(crate) mode: Option<u32>,
    /// Stop after TIME (10s, 500ms, 2m)
    ///
    /// [default: stop when the command or all targets end, or on Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = OUTPUT)]
    pub(crate) duration: Option<Duration>,
    /// Keep the journal, which perf can read, in PATH/journal
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) keep_raw: bool,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "pqt", help_heading = OUTPUT)]
    pub(crate) format: Format,
}

impl OutputOptions {
    /// Returns the form of the output.
    pub(crate) fn form(&self) -> Form {
        Form {
            format: self.format,
            mode: self.mode,
        }
    }
}
