//! A report: its options, and what it answers before that has a form.
//!
//! ```text
//! options ─► SQL ─► Answered { summary, section } ─► render: rows (csv, json, Parquet, …), text or image
//! ```
//! A report never writes to stdout and does not know the output format, except where the format decides what to query.

use std::path::PathBuf;

use anyhow::Result;
use arrow::array::RecordBatch;
use clap::{ArgMatches, Args, FromArgMatches};

use crate::commands::{Subcommand, arguments};
use crate::render::distribution::Distributions;
use crate::render::flame::Flame;
use crate::render::heat::Heat;
use crate::render::violins::Durations;
use crate::render::{self, Calls, Form};
use crate::session::{Answer, Session};
use crate::settings::Limits;

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

/// What a report answers.
pub(crate) struct Answered<'s> {
    /// Totals in one line, printed to stderr: `cpu-clock: 1,417 samples`.
    pub(crate) summary: Option<String>,
    /// What the result lacks, printed after the summary: `3 below 0 omitted`.
    pub(crate) omitted: Option<String>,
    pub(crate) section: Section<'s>,
}

impl<'s> Answered<'s> {
    /// An answer without a summary.
    pub(crate) fn new(section: Section<'s>) -> Answered<'s> {
        Answered {
            summary: None,
            omitted: None,
            section,
        }
    }

    /// Adds the summary.
    pub(crate) fn with_summary(self, summary: String) -> Answered<'s> {
        Answered {
            summary: Some(summary),
            ..self
        }
    }

    /// Adds what the result lacks.
    pub(crate) fn with_omitted(self, omitted: Option<String>) -> Answered<'s> {
        Answered { omitted, ..self }
    }
}

/// A kind of result. Every kind has rows; some have a drawing as well.
pub(crate) enum Section<'s> {
    /// Rows while they are computed.
    Stream(Answer<'s>),
    /// Rows. `render::TERMINAL` documents the metadata of fields.
    Table(RecordBatch),
    Calls(Calls<'s>),
    Distributions(Distributions),
    Flame(Flame),
    Heat(Heat),
    /// Rows and a shape per function.
    Durations(Durations),
    /// Text in another tool's layout, which has no rows.
    Text(Vec<u8>),
}
