//! Options shared by many commands.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use perfquet_cli::paths;
use perfquet_cli::quantity::nanoseconds;

use crate::render::{Form, Format, Shape};

/// Output format of results.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct Output {
    /// Output format
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

/// Repetition of a report on a recording that is still running.
#[derive(Debug, Clone, Args)]
pub(crate) struct Watching {
    /// Repeat every TIME until the recording is complete
    ///
    /// Each run covers the parts written so far.
    #[arg(long, help_heading = "Output", value_name = "TIME", value_parser = interval)]
    pub(crate) watch: Option<Duration>,
}

fn interval(text: &str) -> Result<Duration, String> {
    match nanoseconds(text) {
        Some(ns) if ns >= 100_000_000 => Ok(Duration::from_nanos(ns.unsigned_abs())),
        Some(_) => Err("expected at least 100ms".to_owned()),
        None => Err("expected a time such as 2s".to_owned()),
    }
}

/// Whether an existing image may be overwritten.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Overwriting {
    /// Overwrite an existing output file
    ///
    /// The old file stays until the new one is complete.
    #[arg(long)]
    pub(crate) force: bool,
}

/// Output of a report that is an image.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct Image {
    /// Output file [default: stdout]
    #[arg(short = 'o', long, value_name = "PATH", value_parser = paths::written())]
    pub(crate) output: Option<PathBuf>,
    /// Write rows in FORMAT instead of an SVG image
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub(crate) format: Option<Format>,
    #[command(flatten)]
    pub(crate) overwriting: Overwriting,
}

impl Image {
    /// Returns the selected form.
    pub(crate) fn form(&self) -> Form {
        Form {
            shape: self.format.map_or(Shape::Svg, Shape::Rows),
            path: self.output.clone(),
            force: self.overwriting.force,
        }
    }
}

/// The traces of a command without other positional arguments.
#[derive(Debug, Clone, Args)]
pub(crate) struct Traces {
    /// Traces, patterns such as 'runs/*.pqt', or lakes: 'lake:DIR?host=h0*'
    #[arg(value_name = "TRACE", required = true)]
    pub(crate) traces: Vec<PathBuf>,
}
