//! A report: its options, and its answer before rendering.
//!
//! ```text
//! options ─► SQL ─► Answered { summary, section } ─► render: rows (csv, json, Parquet, …), text or image
//! ```
//! A report never writes to stdout and does not know the output format, except where the format decides what to query.

use perfquet_cli::terminal;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use arrow::array::RecordBatch;
use clap::{ArgMatches, Args, FromArgMatches};

use perfquet::failure::Interrupted;
use perfquet::{Options, Session};

use crate::commands::{Subcommand, arguments};
use crate::limits::Limits;
use crate::losses;
use crate::render::{self, Answered, Form};
use crate::wakeups;

/// A report is a subcommand that answers instead of printing.
pub(crate) trait Report: Args + FromArgMatches {
    const NAME: &'static str;

    /// Returns the traces to open.
    fn traces(&self) -> Vec<PathBuf>;

    fn limits(&self) -> &Limits;

    /// Returns the output format and path. Called before any trace is opened, so that misuse fails at once.
    fn form(&self) -> Result<Form>;

    /// Whether the answer itself says that events were lost.
    const SHOWS_LOSSES: bool = false;

    /// The interval of `--watch`.
    fn watch(&self) -> Option<Duration> {
        None
    }

    /// Queries the traces.
    fn answer<'s>(&self, session: &'s Session) -> Result<Answered<'s>>;
}

/// Returns the subcommand of a report.
pub(crate) const fn subcommand<R: Report>() -> Subcommand {
    Subcommand {
        rows: Some(answered_rows::<R>),
        ..Subcommand::new::<R>(R::NAME, run::<R>)
    }
}

/// Returns the rows of a report.
fn answered_rows<R: Report>(matches: &ArgMatches) -> Result<Vec<RecordBatch>> {
    let report: R = arguments(matches)?;
    report.form()?;
    let session = open(&report)?;
    report.answer(&session)?.section.batches()
}

/// Opens the traces of a report.
fn open<R: Report>(report: &R) -> Result<Session> {
    let options = Options {
        is_report: true,
        ..report.limits().options()
    };
    Session::open(&report.traces(), &options)
}

/// That events were lost, unless the report says it itself, or not recorded. Read before the report, which may restrict the session to a
/// part of the trace.
fn missing<R: Report>(session: &Session) -> Result<Vec<String>> {
    let lost = match R::SHOWS_LOSSES {
        true => None,
        false => losses::note(session)?,
    };
    let unseen = wakeups::note(session, R::NAME)?;
    Ok(lost.into_iter().chain(unseen).collect())
}

/// Says it after the answer.
fn say_all(missing: &[String]) {
    for line in missing {
        say!("{line}");
    }
}

fn run<R: Report>(matches: &ArgMatches) -> Result<()> {
    let report: R = arguments(matches)?;
    let Some(interval) = report.watch() else {
        let output = render::Output::open(report.form()?)?;
        let session = open(&report)?;
        let missing = missing::<R>(&session)?;
        output.write(report.answer(&session)?)?;
        say_all(&missing);
        return Ok(());
    };
    // Repeats the report until the recording is complete.
    loop {
        let output = render::Output::open(report.form()?)?;
        let session = open(&report)?;
        let is_complete = session.is_complete();
        let missing = missing::<R>(&session)?;
        // Queried before the screen is cleared, so that the screen is never empty.
        match report.answer(&session) {
            Ok(answer) => {
                render::clear_screen();
                output.write(answer)?;
                say_all(&missing);
            }
            Err(error) if is_complete || error.is::<Interrupted>() => return Err(error),
            // A recording writes its first parts after a while.
            Err(error) => say!("{}", terminal::sentence(error.chain())),
        }
        if is_complete {
            return Ok(());
        }
        drop(session);
        std::thread::sleep(interval);
    }
}
