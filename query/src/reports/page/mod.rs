//! `report`: one HTML file with pictures and tables of a trace, of several on one timeline, or of the difference between two.
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
mod code;
mod contents;
mod facts;
mod lines;
mod off_cpu;
mod profiles;
mod sides;
mod since;
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
use self::profiles::Profile;
use self::sides::{Axis, Side};
use perfquet::Session;
use perfquet::failure::{Interrupted, Misuse};

use super::findings;
use crate::commands::Subcommand;
use crate::filter::Filters;
use crate::limits::Limits;
use crate::render::flame;
use crate::render::grid::{Grid, ROWS};
use crate::render::page::{Page, PageData};
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
  # Show several traces on one time axis
  perfquet-query report host.pqt guest.pqt --timeline -o both.html
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
    /// Show several traces on one time axis instead of comparing two
    ///
    /// Traces are placed as by `align`; one whose place is not known has a time axis of its own.
    #[arg(long)]
    timeline: bool,
    /// Title of the page
    #[arg(long, help_heading = "Output", value_name = "TEXT")]
    title: Option<String>,
    /// A note to the readers, at the top of the page
    #[arg(long, help_heading = "Output", value_name = "TEXT")]
    note: Option<String>,
    /// Output file [default: stdout]
    #[arg(short = 'o', long, help_heading = "Output", value_name = "PATH", value_parser = paths::written())]
    output: Option<PathBuf>,
    /// Number of the hottest functions of each event whose code to show; 0 for none
    #[arg(long, help_heading = "Output", value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(0..=100))]
    code: u16,
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
        let traces = session.traces();
        let title = match traces {
            [one] => one.name.clone(),
            all if self.timeline => {
                let names: Vec<&str> = all.iter().map(|trace| trace.name.as_str()).collect();
                names.join(" + ")
            }
            [before, after] => format!("{} → {}", before.name, after.name),
            all => bail!(Misuse(format!(
                "expected one trace, or two to compare, found {}\nhint: --timeline shows several traces on one time axis",
                all.len()
            ))),
        };
        let title = self.title.clone().unwrap_or(title);
        let data = match traces.len() {
            1 => {
                let axis = Axis::own(0, lines::own_range(session, &traces[0])?);
                let sides = vec![Side {
                    session,
                    name: &traces[0].name,
                    since: axis.since(),
                }];
                let mut head = self.head(&title);
                head["traces"] = facts::traces(session, &self.filters)?;
                vec![self.of_axis(&axis, sides, head, 1)?]
            }
            _ if self.timeline => self.on_timeline(session, &title)?,
            _ => {
                let mut omitted = Vec::new();
                let (filters, events) = (&self.filters, &self.events);
                let mut contents = Contents::of_difference(session, filters, events, &mut omitted)?;
                let mut head = self.head(&title);
                head["traces"] = facts::traces(session, &self.filters)?;
                vec![contents.fitted(&head, &omitted, 1)?]
            }
        };
        Ok(Answered::new(Section::Page(Page { title, data })).with_summary("report".to_owned()))
    }
}

impl PageReport {
    fn head(&self, title: &str) -> Value {
        json!({
            "title": title,
            "version": env!("CARGO_PKG_VERSION"),
            "filters": self.filters.arguments(),
            "condition": self.filters.words(),
            "note": self.note,
            "colors": flame::colors(),
            "findings": null,
        })
    }

    /// The data of each time axis: one for the traces that are placed on the timeline of the first, one for each of the others.
    fn on_timeline(&self, session: &Session, title: &str) -> Result<Vec<PageData>> {
        let traces = session.traces();
        let alone: Result<Vec<Session>> =
            (traces.iter().map(|trace| session.alone_on_timeline(trace))).collect();
        let alone = alone?;
        let ranges: Result<Vec<(i64, i64)>> = (traces.iter().zip(&alone))
            .map(|(trace, alone)| lines::own_range(alone, trace))
            .collect();
        let axes = Axis::all(traces, &ranges?)?;
        let names = axes.iter().map(|axis| {
            let names = axis
                .traces
                .iter()
                .map(|&number| traces[number].name.as_str());
            names.collect::<Vec<_>>().join(" + ")
        });
        let names: Vec<String> = names.collect();
        let mut all = Vec::new();
        for (place, axis) in axes.iter().enumerate() {
            let mut head = self.head(title);
            head["axes"] = json!(names);
            head["axis"] = json!(place);
            let mut facts = Vec::new();
            for &number in &axis.traces {
                let (trace, own) = (&traces[number], &alone[number]);
                let mut of = facts::of_trace(own, trace, &self.filters)?;
                of["name"] = json!(trace.name);
                of["placement"] = json!(sides::words(&traces[0].name, trace));
                of["place"] = axis.place_of(trace);
                facts.push(of);
            }
            head["traces"] = json!(facts);
            let sides = axis.traces.iter().map(|&number| Side {
                session: &alone[number],
                name: &traces[number].name,
                since: axis.since(),
            });
            all.push(self.of_axis(axis, sides.collect(), head, axes.len())?);
        }
        Ok(all)
    }

    /// What the report `findings` lists, as objects.
    fn findings(&self, sides: &[Side<'_>], omitted: &mut Vec<String>) -> Result<Value> {
        let mut all = Vec::new();
        for (number, side) in sides.iter().enumerate() {
            let found = findings::find(side.session, self.filters.scope());
            let Some(found) = unless_failed(found, "findings", omitted)? else {
                continue;
            };
            for [severity, title, detail, why, sql] in found.rows {
                let mut row = json!({"severity": severity, "title": title, "detail": detail, "why": why, "sql": sql});
                if sides.len() > 1 {
                    row["title"] = json!(format!("{}: {title}", side.name));
                    row["trace"] = json!(number);
                }
                all.push(row);
            }
        }
        Ok(Value::Array(all))
    }

    /// The data of a time axis; there are `axes` of them on the page.
    fn of_axis(
        &self,
        axis: &Axis,
        sides: Vec<Side<'_>>,
        mut head: Value,
        axes: usize,
    ) -> Result<PageData> {
        let mut omitted = Vec::new();
        head["findings"] = self.findings(&sides, &mut omitted)?;
        let mut contents = self.contents(axis, sides, &mut omitted)?;
        contents.fitted(&head, &omitted, axes)
    }

    fn contents<'s>(
        &self,
        axis: &Axis,
        sides: Vec<Side<'s>>,
        omitted: &mut Vec<String>,
    ) -> Result<Contents<'s>> {
        let length = axis.length();
        let column = Grid::fitting_column(length);
        let shortest = column / ROWS;
        let filters = &self.filters;
        let mut threads = Threads::default();
        let (mut profiles, mut of_profiles) = (Vec::new(), Vec::new());
        for (number, side) in sides.iter().enumerate() {
            threads.enter(side.session, number)?;
            let found = self.profiles(side, shortest, &mut threads, omitted);
            // An event may be in one of several traces only.
            let found = match sides.len() {
                1 => Some(found?),
                _ => unless_failed(found, side.name, omitted)?,
            };
            of_profiles.extend(found.iter().flatten().map(|_| number));
            profiles.extend(found.into_iter().flatten());
        }
        let mut pruned = Pruned::of(&profiles, 1);
        let steps = pruned.rows_of_slot(length / shortest / LEAST_SLOTS);
        pruned.coarsen(steps, shortest);
        for profile in &mut profiles {
            profile.coarsen(steps, shortest);
        }
        let slot = shortest * steps;
        let (mut untimed, mut of_untimed) = (Vec::new(), Vec::new());
        let (mut summaries, mut all_calls, mut all_tracks) = (Vec::new(), Vec::new(), Vec::new());
        let mut lines = Vec::new();
        for (number, side) in sides.iter().enumerate() {
            let (session, since) = (side.session, side.since);
            threads.enter(session, number)?;
            let found = profiles::without_time(session, filters, &self.events, omitted)?;
            of_untimed.extend(found.iter().map(|_| number));
            untimed.extend(found);
            summaries.push((side.name, summaries::of(session, filters, omitted)?));
            let calls = calls::of(session, filters, since, slot, &mut threads, omitted)?;
            all_calls.push((side, number, calls));
            lines.extend(lines::of(side, sides.len() > 1, filters, length, omitted)?);
            let tracks = tracks::of(session, filters, since, slot, &mut threads, omitted)?;
            all_tracks.extend(tracks.map(|tracks| (number, tracks)));
        }
        let is_one = sides.len() == 1;
        let calls = match is_one {
            true => all_calls.pop().and_then(|(_, _, calls)| calls),
            false => calls::joined(all_calls),
        };
        let summaries = match is_one {
            true => summaries.pop().map_or(Value::Null, |(_, found)| found),
            false => summaries::joined(summaries),
        };
        let functions = usize::from(self.code);
        let code = match sides.as_slice() {
            [one] => code::of(one.session, filters, &self.events, functions, omitted)?,
            _ => Value::Null,
        };
        Ok(Contents {
            time: Some(Time {
                length,
                shortest,
                slot,
                column,
            }),
            profiles,
            of_profiles,
            changes: Vec::new(),
            pruned: Some(pruned),
            untimed,
            of_untimed,
            summaries,
            lines: match lines.is_empty() {
                true => Value::Null,
                false => Value::Array(lines),
            },
            code,
            calls,
            tracks: all_tracks,
            threads,
            sides,
        })
    }

    fn profiles(
        &self,
        side: &Side<'_>,
        slot: i64,
        threads: &mut Threads,
        omitted: &mut Vec<String>,
    ) -> Result<Vec<Profile>> {
        let (session, since, filters) = (side.session, side.since, &self.filters);
        let off_cpu = match self.events.as_slice() {
            [] => off_cpu::of(session, filters, since, slot, threads, omitted)?,
            _ => None,
        };
        profiles::of_events(
            session,
            filters,
            &self.events,
            since,
            slot,
            threads,
            off_cpu,
        )
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
