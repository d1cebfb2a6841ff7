//! `report`: one HTML file with pictures and tables of a trace, or of the difference between two.
//!
//! ```text
//! trace ─► profiles (stacks by time and thread), calls, tracks, facts ─► JSON ─► one HTML file
//! ```
//! Stacks are merged as in `flamegraph`; data without a time comes from other reports. The page computes its panels from the
//! selected cells, so all panels show the same part of the trace.

mod busy;
mod calls;
mod cells;
mod changes;
mod contents;
mod facts;
mod lines;
mod off_cpu;
mod profiles;
mod stretches;
mod summaries;
mod tracks;
mod trees;
mod wakes;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use perfquet_cli::paths;
use serde_json::{Value, json};

use self::cells::Threads;
use self::contents::{Contents, Pruned, Time};
use perfquet::Session;
use perfquet::failure::{Interrupted, Misuse};

use super::findings;
use crate::commands::Subcommand;
use crate::counters;
use crate::filter::Filters;
use crate::limits::Limits;
use crate::render::flame;
use crate::render::grid::{Grid, ROWS};
use crate::render::page::Page;
use crate::render::{Answered, Form, Section, Shape};
use crate::report::{self, Report};
use crate::settings::{Overwriting, Traces};

pub(super) const REPORT: Subcommand = report::subcommand::<PageReport>();

/// Write a report: one HTML file with linked pictures and tables
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Write a page of a trace
  perfquet-query report a.pqt -o a.html
  # Write a page of the difference between two traces
  perfquet-query report before.pqt after.pqt -o difference.html
  # Say what to look at
  perfquet-query report a.pqt --note 'See the second from 3.2 s on' -o a.html
  # Select a part of the trace
  perfquet-query report a.pqt --comm dd --time 1s..20s -o dd.html")]
struct PageReport {
    #[command(flatten)]
    traces: Traces,
    /// Event whose stacks to show; repeatable [default: up to 4 events, sampled ones first]
    #[arg(short = 'e', long = "event", value_name = "EVENT")]
    events: Vec<String>,
    /// Title of the page
    #[arg(long, help_heading = "Output", value_name = "TEXT")]
    title: Option<String>,
    /// A note to the readers, at the top of the page
    #[arg(long, help_heading = "Output", value_name = "TEXT")]
    note: Option<String>,
    /// Output file [default: stdout]
    #[arg(short = 'o', long, help_heading = "Output", value_name = "PATH", value_parser = paths::written())]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwriting: Overwriting,
    #[command(flatten)]
    filters: Filters,
    #[command(flatten)]
    limits: Limits,
}

impl Report for PageReport {
    const NAME: &'static str = "report";
    const SHOWS_LOSSES: bool = true;

    fn traces(&self) -> Vec<PathBuf> {
        self.traces.traces.clone()
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn form(&self) -> Result<Form> {
        Ok(Form {
            shape: Shape::Html,
            path: self.output.clone(),
            force: self.overwriting.force,
        })
    }

    fn answer<'s>(&self, session: &'s Session) -> Result<Answered<'s>> {
        let traces: Vec<&str> = session.traces().iter().map(|t| t.name.as_str()).collect();
        let usual = match traces.as_slice() {
            [one] => (*one).to_owned(),
            [before, after] => format!("{before} → {after}"),
            _ => bail!(Misuse(format!(
                "expected one trace, or two to compare, found {}",
                traces.len()
            ))),
        };
        let title = self.title.clone().unwrap_or(usual);
        let mut omitted = Vec::new();
        let found = self.findings(session, &mut omitted)?;
        let head = json!({
            "title": title,
            "version": env!("CARGO_PKG_VERSION"),
            "traces": facts::traces(session)?,
            "filters": self.filters.arguments(),
            "condition": self.filters.words(),
            "note": self.note,
            "colors": flame::colors(),
            "findings": found,
        });
        let mut contents = match session.traces().len() {
            1 => self.one(session, &mut omitted)?,
            _ => Contents::of_difference(session, &self.filters, &self.events, &mut omitted)?,
        };
        let data = contents.fitted(session, &head, &omitted)?;
        Ok(Answered::new(Section::Page(Page { title, data })).with_summary("report".to_owned()))
    }
}

impl PageReport {
    /// What the report `findings` lists, as objects; null for two traces.
    fn findings(&self, session: &Session, omitted: &mut Vec<String>) -> Result<Value> {
        if session.traces().len() > 1 {
            return Ok(Value::Null);
        }
        let found = findings::find(session, self.filters.scope());
        let Some(found) = unless_failed(found, "findings", omitted)? else {
            return Ok(Value::Null);
        };
        let rows = found.rows.into_iter();
        Ok(rows
            .map(|[severity, title, detail, why, sql]| {
                json!({"severity": severity, "title": title, "detail": detail, "why": why, "sql": sql})
            })
            .collect())
    }

    fn one(&self, session: &Session, omitted: &mut Vec<String>) -> Result<Contents> {
        let counts = counters::time_range(session, &|sql: &str| session.collect(sql))?;
        // As in `--time`, times are relative to the first event; there may be counts long after the last one.
        let range = session.traces()[0].time_range().or(counts);
        let (begin, end) = range.unwrap_or((0, 0));
        let end = end.max(counts.map_or(end, |(_, end)| end));
        let length = end.saturating_sub(begin).max(1);
        let column = Grid::fitting_column(length);
        let mut threads = Threads::read(session)?;
        let shortest = column / ROWS;
        let filters = &self.filters;
        let off_cpu = match self.events.as_slice() {
            [] => off_cpu::of(session, filters, begin, shortest, &mut threads, omitted)?,
            _ => None,
        };
        let mut profiles = profiles::of_events(
            session,
            filters,
            &self.events,
            begin,
            shortest,
            &mut threads,
            off_cpu,
        )?;
        let mut pruned = Pruned::of(&profiles, 1);
        let steps = pruned.rows_of_slot(length / shortest / LEAST_SLOTS);
        pruned.coarsen(steps, shortest);
        for profile in &mut profiles {
            profile.coarsen(steps, shortest);
        }
        let slot = shortest * steps;
        let untimed = profiles::without_time(session, filters, &self.events, omitted)?;
        let summaries = summaries::of(session, filters, omitted)?;
        let lines = lines::of(session, filters, begin, length, omitted)?;
        let calls = calls::of(session, filters, begin, slot, &mut threads, omitted)?;
        let tracks = tracks::of(session, filters, begin, slot, &mut threads, omitted)?;
        Ok(Contents {
            time: Some(Time {
                begin,
                length,
                shortest,
                slot,
                column,
            }),
            profiles,
            changes: Vec::new(),
            pruned: Some(pruned),
            untimed,
            summaries,
            lines,
            calls,
            tracks,
            threads,
        })
    }
}

/// The result of another report, from its command line without the traces.
fn section<'s, R: Report>(session: &'s Session, words: &[String]) -> Result<Section<'s>> {
    Ok(answered::<R>(session, words)?.section)
}

/// The answer of another report.
fn answered<'s, R: Report>(session: &'s Session, words: &[String]) -> Result<Answered<'s>> {
    let paths = session
        .traces()
        .iter()
        .map(|trace| trace.path.clone().into_os_string());
    let words = words.iter().map(std::ffi::OsString::from);
    let name = std::ffi::OsString::from(R::NAME);
    let matches = R::augment_args(clap::Command::new(R::NAME)).try_get_matches_from(
        std::iter::once(name)
            .chain(words)
            .chain(["--".into()])
            .chain(paths),
    )?;
    R::from_arg_matches(&matches)?.answer(session)
}

/// The answer for a part of the page; `None` if it fails, with the reason among the omissions. An interruption ends the report.
fn unless_failed<T>(answer: Result<T>, part: &str, omitted: &mut Vec<String>) -> Result<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.is::<Interrupted>() => Err(error),
        Err(error) => {
            let reason = format!("{error:#}");
            let reason = reason.lines().next().unwrap_or_default();
            omitted.push(format!("{part}: {reason}"));
            Ok(None)
        }
    }
}

/// Slots of a trace, at least, even if they make its page larger.
const LEAST_SLOTS: i64 = 200;
/// Largest integer that a script represents exactly.
const EXACT: u128 = 1 << 53;
