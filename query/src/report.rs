//! A report: its options, and its answer before rendering.
//!
//! ```text
//! options ─► SQL ─► Answered { summary, section } ─► render: rows (csv, json, Parquet, …), text or image
//! ```
//! A report never writes to stdout and does not know the output format, except where the format decides what to query.

use std::path::PathBuf;

use anyhow::Result;
use clap::{ArgMatches, Args, FromArgMatches};

use crate::commands::{Subcommand, arguments};
use crate::limits::Limits;
use crate::render::{self, Answered, Form};
use crate::session::Session;

/// A report is a subcommand that answers instead of printing.
pub(crate) trait Report: Args + FromArgMatches {
    const NAME: &'static str;

    /// Returns the traces to open.
    fn traces(&self) -> Vec<PathBuf>;

    fn limits(&self) -> &Limits;

    /// Returns the output format and path. Called before any trace is opened, so that misuse fails at once.
    fn form(&self) -> Result<Form>;

    /// Queries the traces.
    fn answer<'s>(&self, session: &'s Session) -> Result<Answered<'s>>;
}

/// Returns the subcommand of a report.
pub(crate) const fn subcommand<R: Report>() -> Subcommand {
    Subcommand::new::<R>(R::NAME, run::<R>)
}

fn run<R: Report>(matches: &ArgMatches) -> Result<()> {
    let report: R = arguments(matches)?;
    let output = render::Output::open(report.form()?)?;
    let session = Session::open(&report.traces(), report.limits())?;
    output.write(report.answer(&session)?)
}
