//! Options shared by many commands.

use std::path::PathBuf;

use clap::Args;

use crate::render::{Form, Format, Shape};

/// Output format of results.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct Output {
    /// Output format
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
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
    #[arg(short = 'o', long, value_name = "PATH")]
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
    /// Trace directories or patterns, such as 'runs/*.pqt'
    #[arg(value_name = "TRACE", required = true)]
    pub(crate) traces: Vec<PathBuf>,
}
