//! `align`: puts several traces on one timeline, that of the first, and writes the maps of their times to a file.
//!
//! ```text
//! trace  method      shift     drift_ppm  error     pairs  note
//! host   reference   0 ns            0.0  0 ns             
//! guest  events      -3.120 s        1.2  1.100 us    412  sched_switch
//! ```
//! `aligned(time)` is a time on that timeline. Messages limit the shift where two hosts have no event in common.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use clap::{Args, ValueEnum};
use perfquet::align::events::{self, Keys};
use perfquet::align::messages::{self, Messages, Times};
use perfquet::align::{Method, Placement, by_facts, by_wall, file};
use perfquet::failure::Misuse;
use perfquet::stacks::strings;
use perfquet::unit::{DURATION, UNIT};
use perfquet::{Session, Trace};
use perfquet_cli::quantity::nanoseconds;
use perfquet_trace::count::counted;

use crate::commands::Subcommand;
use crate::limits::Limits;
use crate::render::{Answered, Destination, Form, Section};
use crate::report::{self, Report};
use crate::settings::{Output, Overwriting};

pub(super) const REPORT: Subcommand = report::subcommand::<Align>();

/// Align the clocks of several traces: shift, drift and error of each
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Show how the clocks of two recordings relate
  perfquet-query align a.pqt b.pqt
  # Align by context switches or system calls that both recorded, and query both by time
  perfquet-query align a.pqt b.pqt --by events -o ab.align.json
  perfquet-query sql ab.align.json \"SELECT aligned(time), trace, comm FROM sched_process_exec ORDER BY 1\"
  # Align by an event of your own: rows with the same values after the time are the same event
  perfquet-query align a.pqt b.pqt --on 'SELECT time, buf FROM ftrace.print'
  # Align two hosts by messages
  perfquet-query align a.pqt b.pqt --sent 'SELECT time, id FROM app.sent' --received 'SELECT time, id FROM app.received'
  # Let all begin at the same time
  perfquet-query align 'runs/*.pqt' --by start -o runs.align.json")]
struct Align {
    /// Traces, the one whose clock is the timeline first
    #[arg(value_name = "TRACE", required = true)]
    traces: Vec<PathBuf>,
    /// How to find the shifts
    #[arg(long, value_enum, value_name = "METHOD", default_value_t = By::Auto)]
    by: By,
    /// Query of common events: their time, and columns that identify them
    ///
    /// It is run on each trace. Events whose columns occur once in each trace are the same, and so are those that end a sequence of
    /// eight which occurs once.
    #[arg(long, value_name = "QUERY", conflicts_with_all = ["by", "sent"])]
    on: Option<String>,
    /// Query of sent messages: their time, and columns that identify them
    #[arg(
        long,
        value_name = "QUERY",
        requires = "received",
        conflicts_with = "by"
    )]
    sent: Option<String>,
    /// Query of received messages, with the same columns as --sent
    #[arg(long, value_name = "QUERY", requires = "sent")]
    received: Option<String>,
    /// Add TIME to the times of a trace, such as guest=-1.25s
    #[arg(long, value_name = "TRACE=TIME", value_parser = shift)]
    shift: Vec<(String, i64)>,
    /// Write the alignment to PATH, which ends with .align.json and can be opened like a trace
    #[arg(short = 'o', long = "output", help_heading = "Output", value_name = "PATH", value_parser = path)]
    file: Option<PathBuf>,
    #[command(flatten)]
    overwriting: Overwriting,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    limits: Limits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// The same clock, else events, else wall-clock time
    Auto,
    /// The same clock, or trace-cmd's shift
    Clock,
    /// Wall-clock time
    Wall,
    /// Context switches or system calls that both traces contain
    Events,
    /// The first event of each trace
    Start,
}

fn shift(text: &str) -> Result<(String, i64), String> {
    let expected = || "expected TRACE=TIME, such as guest=-1.25s".to_owned();
    let (trace, time) = text.rsplit_once('=').ok_or_else(expected)?;
    let (sign, size) = match time.as_bytes().first() {
        Some(b'-') => (-1, &time[1..]),
        Some(b'+') => (1, &time[1..]),
        _ => (1, time),
    };
    let ns = nanoseconds(size).ok_or_else(expected)?;
    Ok((trace.to_owned(), sign * ns))
}

fn path(text: &str) -> Result<PathBuf, String> {
    match text.ends_with(file::ENDING) {
        true => Ok(PathBuf::from(text)),
        false => Err(format!("expected a name that ends with {}", file::ENDING)),
    }
}

/// Events that many traces contain: name, table or view, and query. The second column is the stream in whose order they come.
const COMMON: [(&str, &str, &str); 2] = [
    (
        "sched_switch",
        "events/sched/sched_switch",
        "SELECT time, cpu, next_pid FROM sched.sched_switch WHERE time IS NOT NULL ORDER BY time",
    ),
    (
        "syscalls",
        "calls",
        "SELECT time, tid, name FROM syscalls WHERE time IS NOT NULL ORDER BY time",
    ),
];

/// A placement with a note, or why there is none.
type Found = Result<(Placement, String), String>;

impl Report for Align {
    const NAME: &'static str = "align";

    fn traces(&self) -> Vec<PathBuf> {
        self.traces.clone()
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn form(&self) -> Result<Form> {
        Ok(Form::rows(self.output.format))
    }

    fn answer<'s>(&self, session: &'s Session) -> Result<Answered<'s>> {
        let [reference, others @ ..] = session.traces() else {
            bail!(Misuse("expected a trace".to_owned()));
        };
        if others.is_empty() {
            bail!(Misuse(
                "expected at least two traces: one alone is its own timeline".to_owned()
            ));
        }
        let mut given = self.given(session.traces())?;
        for query in [&self.on, &self.sent, &self.received].into_iter().flatten() {
            session.whole_query(query)?;
        }
        let mut sides = Sides::new(session, reference);
        let own = Placement::shifted(0, Method::Reference, Some(0));
        let mut all: Vec<(&Trace, Found)> = vec![(reference, Ok((own, String::new())))];
        for trace in others {
            let found = match given.remove(trace.name.as_str()) {
                Some(ns) => {
                    let placement = Placement::shifted(ns, Method::Given, None);
                    Ok((placement, String::new()))
                }
                None => self.found(reference, trace, &mut sides)?,
            };
            all.push((trace, found));
        }
        let placed = all[1..].iter().filter(|(_, found)| found.is_ok()).count();
        if let (0, Some((trace, Err(reason)))) = (placed, all.get(1)) {
            bail!(
                "cannot align {} with {}: {reason}{}",
                trace.name,
                reference.name,
                self.hint()
            );
        }
        for (trace, found) in &all {
            if let Err(reason) = found {
                log::warn!("cannot align {}: {reason}{}", trace.name, self.hint());
            }
        }
        if let Some(path) = &self.file {
            write(path, &all, self.overwriting.force)?;
        }
        let mut summary = format!(
            "{} on the timeline of {}",
            counted((placed + 1) as u64, "trace"),
            reference.name
        );
        if let Some(path) = &self.file {
            let path = path.display();
            summary = format!(
                "{path}: {summary}; next: perfquet-query sql {path} \"SELECT aligned(time), trace, event FROM events ORDER BY 1\""
            );
        }
        Ok(Answered::new(Section::Table(rows(&all)?)).with_summary(summary))
    }
}

impl Align {
    /// The given shifts by trace.
    fn given<'t>(&self, traces: &'t [Trace]) -> Result<HashMap<&'t str, i64>> {
        let mut given = HashMap::new();
        for (name, ns) in &self.shift {
            let is_named = |trace: &&Trace| trace.name == *name || trace.path == Path::new(name);
            let Some(place) = traces.iter().position(|trace| is_named(&trace)) else {
                let names: Vec<&str> = traces.iter().map(|trace| trace.name.as_str()).collect();
                bail!(Misuse(format!(
                    "--shift {name}=…: no such trace\nhint: the traces are {}",
                    names.join(", ")
                )));
            };
            if place == 0 {
                bail!(Misuse(format!(
                    "--shift {name}=…: its clock is the timeline\nhint: shift the others, or name another trace first"
                )));
            }
            given.insert(traces[place].name.as_str(), *ns);
        }
        Ok(given)
    }

    fn hint(&self) -> &'static str {
        match self.by {
            _ if self.on.is_some() || self.sent.is_some() => "",
            By::Start => "",
            By::Events => {
                "\nhint: name common events with --on, or messages with --sent and --received"
            }
            By::Auto | By::Clock | By::Wall => {
                "\nhint: name common events with --on, or give a shift with --shift TRACE=TIME"
            }
        }
    }

    fn found(&self, reference: &Trace, trace: &Trace, sides: &mut Sides<'_>) -> Result<Found> {
        if let Some(query) = &self.on {
            return sides.by_query(query, trace);
        }
        if let (Some(sent), Some(received)) = (&self.sent, &self.received) {
            return sides.by_messages([sent, received], trace);
        }
        let is_one_host = trace.clock().has_wall_clock_of(&reference.clock());
        let plain = |placement: Placement| (placement, note(&placement, is_one_host).to_owned());
        let by_clock = || {
            by_facts(&reference.clock(), &trace.clock()).and_then(|placement| {
                match placement.method {
                    Method::WallClock => Err("they have different clocks".to_owned()),
                    _ => Ok(plain(placement)),
                }
            })
        };
        let by_wall = || by_wall(&reference.clock(), &trace.clock()).map(plain);
        Ok(match self.by {
            By::Clock => by_clock(),
            By::Wall => by_wall(),
            By::Events => sides.by_common(trace)?,
            By::Start => by_start(reference, trace),
            By::Auto => match by_clock() {
                Ok(found) => Ok(found),
                Err(_) => match sides.by_common(trace)? {
                    Ok(found) => Ok(found),
                    Err(events) => by_wall().map_err(|wall| format!("{events}; {wall}")),
                },
            },
        })
    }
}

fn by_start(reference: &Trace, trace: &Trace) -> Found {
    let start = |trace: &Trace| {
        let range = trace.time_range();
        range
            .map(|(start, _)| start)
            .ok_or_else(|| format!("{}: no event with a time", trace.name))
    };
    let shift = start(reference)?.checked_sub(start(trace)?);
    let shift = shift.ok_or("its times are too far away")?;
    let placement = Placement::shifted(shift, Method::Start, None);
    Ok((placement, note(&placement, true).to_owned()))
}

/// What to know about a placement.
fn note(placement: &Placement, is_one_host: bool) -> &'static str {
    match (placement.method, placement.error) {
        (Method::WallClock, None) if !is_one_host => "wall clocks of two hosts or boots",
        (Method::TimeShift, _) => "by trace-cmd",
        (Method::Start, _) => "for comparison, not the same moment",
        _ => "",
    }
}

/// Reads events of the traces; those of the reference once.
struct Sides<'s> {
    session: &'s Session,
    reference: &'s Trace,
    keys: HashMap<String, Arc<Keys>>,
    messages: Option<Messages>,
}

impl<'s> Sides<'s> {
    fn new(session: &'s Session, reference: &'s Trace) -> Sides<'s> {
        Sides {
            session,
            reference,
            keys: HashMap::new(),
            messages: None,
        }
    }

    /// By the first kind of common events that fits.
    fn by_common(&mut self, trace: &Trace) -> Result<Found> {
        let mut reasons = Vec::new();
        for (name, table, sql) in COMMON {
            let has = |trace: &Trace| trace.table(table).is_some_and(|table| table.rows() > 0);
            if !(has(self.reference) && has(trace)) {
                continue;
            }
            let other = keys(&self.session.alone(trace)?, sql, true)?;
            let own = self.own_keys(sql, true)?;
            match events::placement(&own, &other) {
                Ok(placement) => return Ok(Ok((placement, name.to_owned()))),
                Err(reason) => reasons.push(format!("{name}: {reason}")),
            }
        }
        Ok(Err(match reasons.is_empty() {
            true => "no context switches and no system calls in both".to_owned(),
            false => reasons.join("; "),
        }))
    }

    fn by_query(&mut self, query: &str, trace: &Trace) -> Result<Found> {
        let other = keys(&self.session.alone(trace)?, query, false)?;
        let own = self.own_keys(query, false)?;
        Ok(events::placement(&own, &other).map(|placement| (placement, String::new())))
    }

    fn own_keys(&mut self, sql: &str, has_streams: bool) -> Result<Arc<Keys>> {
        if let Some(known) = self.keys.get(sql) {
            return Ok(Arc::clone(known));
        }
        let own = Arc::new(keys(
            &self.session.alone(self.reference)?,
            sql,
            has_streams,
        )?);
        self.keys.insert(sql.to_owned(), Arc::clone(&own));
        Ok(own)
    }

    fn by_messages(&mut self, queries: [&str; 2], trace: &Trace) -> Result<Found> {
        let other = exchanged(&self.session.alone(trace)?, queries)?;
        if self.messages.is_none() {
            self.messages = Some(exchanged(&self.session.alone(self.reference)?, queries)?);
        }
        let Some(own) = &self.messages else {
            return Ok(Err("no messages".to_owned()));
        };
        Ok(messages::placement(own, &other).map(|placement| (placement, String::new())))
    }
}

/// Runs a query of times with columns that identify events.
fn each_row(session: &Session, sql: &str, mut add: impl FnMut(i64, &[&str])) -> Result<()> {
    let mut answer = session.query(session.whole_query(sql)?)?;
    let schema = answer.schema();
    let is_time = |field: &Field| *field.data_type() == DataType::Int64;
    if schema.fields().len() < 2 || !is_time(schema.field(0)) {
        bail!(Misuse(format!(
            "expected a query of a time and columns that identify the event, found: {sql}"
        )));
    }
    while let Some(batch) = answer.next_batch()? {
        let times = batch.column(0).as_primitive::<Int64Type>();
        let columns: Result<Vec<_>> = batch.columns()[1..]
            .iter()
            .map(|column| strings(&cast(column, &DataType::Utf8View)?))
            .collect();
        let columns = columns?;
        let mut key = Vec::with_capacity(columns.len());
        for row in 0..batch.num_rows() {
            if times.is_null(row) || columns.iter().any(|column| column.is_null(row)) {
                continue;
            }
            key.clear();
            key.extend(columns.iter().map(|column| column.value(row)));
            add(times.value(row), &key);
        }
    }
    Ok(())
}

fn keys(session: &Session, sql: &str, has_streams: bool) -> Result<Keys> {
    let mut keys = Keys::default();
    each_row(session, sql, |time, columns| match columns {
        [stream, rest @ ..] if has_streams => keys.add(time, stream, rest),
        all => keys.add(time, 0, all),
    })?;
    Ok(keys)
}

fn exchanged(session: &Session, [sent, received]: [&str; 2]) -> Result<Messages> {
    let mut messages = Messages::default();
    let read = |sql: &str, times: &mut Times| {
        each_row(session, sql, |time, key| {
            Messages::add(times, key.join("\0"), time)
        })
    };
    read(sent, &mut messages.sent)?;
    read(received, &mut messages.received)?;
    Ok(messages)
}

fn write(path: &Path, all: &[(&Trace, Found)], force: bool) -> Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let placements = all.iter().map(|(trace, found)| {
        let placement = found.as_ref().ok().map(|(placement, _)| *placement);
        (trace.path.as_path(), placement)
    });
    let text = file::text(placements, folder.unwrap_or(Path::new(".")))?;
    let mut out = Destination::open(Some(path), force)?;
    out.write_all(text.as_bytes())?;
    out.finish()
}

fn rows(all: &[(&Trace, Found)]) -> Result<RecordBatch> {
    let placement = |(_, found): &(&Trace, Found)| found.as_ref().ok().map(|found| found.0);
    let number = |of: fn(&Placement) -> Option<i64>| -> ArrayRef {
        let values = all
            .iter()
            .map(|each| placement(each).and_then(|at| of(&at)));
        Arc::new(values.collect::<Int64Array>())
    };
    let text = |of: &dyn Fn(&(&Trace, Found)) -> Option<String>| -> ArrayRef {
        Arc::new(all.iter().map(of).collect::<StringArray>())
    };
    let drift = all
        .iter()
        .map(|each| placement(each).map(|at| at.drift as f64 / 1e3));
    let drift: ArrayRef = Arc::new(drift.collect::<Float64Array>());
    let unit = HashMap::from([(UNIT.to_owned(), DURATION.to_owned())]);
    let field = |name: &str, kind: DataType| Field::new(name, kind, true);
    let duration = |name: &str| field(name, DataType::Int64).with_metadata(unit.clone());
    let columns = [
        (
            field("trace", DataType::Utf8),
            text(&|(trace, _)| Some(trace.name.clone())),
        ),
        (
            field("method", DataType::Utf8),
            text(&|each| placement(each).map(|at| at.method.name().to_owned())),
        ),
        (duration("shift"), number(|at| Some(at.shift))),
        (field("drift_ppm", DataType::Float64), drift),
        (duration("error"), number(|at| at.error)),
        (
            field("pairs", DataType::Int64),
            number(|at| i64::try_from(at.pairs).ok().filter(|&pairs| pairs > 0)),
        ),
        (
            field("note", DataType::Utf8),
            text(&|(_, found)| {
                let note = match found {
                    Ok((_, note)) => note,
                    Err(reason) => reason,
                };
                Some(note.clone()).filter(|note| !note.is_empty())
            }),
        ),
    ];
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns.into_iter().unzip();
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
}
