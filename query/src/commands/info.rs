//! `info`: summary of a trace, from its manifest alone where possible.

use std::fmt::Write as _;
use std::io::Write;

use anyhow::Result;
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use clap::{ArgMatches, Args};
use perfquet::unit::in_fitting_unit;
use perfquet::{Session, Trace, Traces};
use perfquet_trace::count::{counted, grouped};
use perfquet_trace::recorded::KnownBy;

use super::{Subcommand, arguments};
use crate::limits::Limits;
use crate::render::{self, Format};
use crate::settings::{self, Output};
use crate::text::{bytes, columns, harmless, wrapped};
use crate::totals;
use perfquet_trace::store::Source;

pub(super) const COMMAND: Subcommand = Subcommand::new::<Info>("info", run);

/// Summarize a trace: time, host, events, losses and problems
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Summarize one trace
  perfquet-query info a.pqt
  # Summarize several traces
  perfquet-query info 'runs/*.pqt'
  # Print the facts of the view trace_info as JSON
  perfquet-query info a.pqt --format json")]
struct Info {
    #[command(flatten)]
    traces: settings::Traces,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    limits: Limits,
}

fn run(matches: &ArgMatches) -> Result<()> {
    let info: Info = arguments(matches)?;
    if info.output.format != Format::Table {
        let session = Session::open(&info.traces.traces, &info.limits.options())?;
        let mut answer = session.query("SELECT * FROM trace_info")?;
        render::answer(info.output.format, &mut answer)?;
        return Ok(());
    }
    let mut out = render::stdout();
    // One session per trace, because the counts are per trace.
    for (index, trace) in Traces::open(&info.traces.traces)?.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        let session = Session::open(std::slice::from_ref(&trace.path), &info.limits.options())?;
        out.write_all(about(&session, trace)?.as_bytes())?;
    }
    Ok(out.flush()?)
}

/// Name, format and size of an input.
fn described(source: &Source) -> String {
    match source.bytes {
        Some(size) => format!("{}, {}, {}", source.name, source.format, bytes(size)),
        None => format!("{}, {}", source.name, source.format),
    }
}

/// Returns the summary of one trace.
pub(crate) fn about(session: &Session, trace: &Trace) -> Result<String> {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let value = harmless(value);
        let lines = match render::width() {
            Some(width) => hanging(&value, width.saturating_sub(HEADING)),
            None => value.into_owned(),
        };
        let _ = writeln!(text, "{name:<HEADING$}{lines}");
    };
    line("trace", &trace.path.display().to_string());
    line("state", &trace.state);
    if let Some(recorded) = recorded(trace) {
        line("recorded", &recorded);
    }
    for (name, value) in &trace.facts {
        if name != "wall_offset" && !name.contains('.') {
            line(&name.replace('_', " "), value);
        }
    }
    for source in &trace.sources {
        line("source", &described(source));
    }
    let rows = |table: &str| trace.table(table).map_or(0, perfquet::TraceTable::rows);
    line("events", &grouped(recorded_events(session)?));
    line("threads", &grouped(rows("threads")));
    line(
        "stacks",
        &format!(
            "{}, {}",
            counted(rows("stacks"), "node"),
            counted(rows("frames"), "frame")
        ),
    );
    line("calls", &grouped(rows("calls")));
    if rows("aggregates") > 0 {
        line("aggregates", &grouped(rows("aggregates")));
    }
    let total: u64 = trace.tables.iter().map(perfquet::TraceTable::bytes).sum();
    line(
        "size",
        &format!(
            "{} in {}",
            bytes(total),
            counted(trace.tables.len() as u64, "table")
        ),
    );
    text.push('\n');
    text.push_str(&events(session)?);
    text.push_str(&losses_and_problems(session, trace)?);
    Ok(text)
}

/// Returns the number of recorded events, without the recorder's notes about the recording itself: what the recorder's and the
/// converter's closing lines say.
pub(crate) fn recorded_events(session: &Session) -> Result<u64> {
    let sql = "SELECT coalesce(sum(rows), 0) FROM event_types WHERE coalesce(kind, '') <> 'recorder' AND table_name <> ''";
    Ok(u64::try_from(totals::sum(session, sql)?).unwrap_or(u64::MAX))
}

/// Columns before a value.
const HEADING: usize = 16;

/// A value on several lines: between words, and between the parts of lists that are wider than a line.
fn hanging(value: &str, width: usize) -> String {
    // A place where a word may be broken.
    const BREAK: &str = "\u{200b} ";
    let mut words = String::new();
    for word in value.split_inclusive(' ') {
        match columns(word) > width {
            true => words.push_str(&word.replace(',', &format!(",{BREAK}"))),
            false => words.push_str(word),
        }
    }
    let lines = wrapped(&words, width).into_iter();
    let lines = lines.map(|line| line.replace(BREAK, "").replace(BREAK.trim_end(), ""));
    let lines: Vec<String> = lines.collect();
    lines.join(&format!("\n{:HEADING$}", ""))
}

/// Returns the begin and length of a trace, as far as they are known: `2026-05-04T12:00:01 UTC, for 1.204 s`, or
/// `1.204 s from the first to the last event` if the recorder does not say for how long it recorded.
pub(crate) fn recorded(trace: &Trace) -> Option<String> {
    let recorded = trace.recorded();
    let start = match &recorded {
        Some(recorded) => recorded.begin(),
        None => trace.time_range()?.0,
    };
    let length = recorded.map(|recorded| {
        let length = in_fitting_unit(recorded.length() as f64);
        match (recorded.known_by, recorded.pauses() as u64) {
            (KnownBy::Events, _) => format!("{length} from the first to the last event"),
            (KnownBy::Recorder, 0) => format!("for {length}"),
            (KnownBy::Recorder, pauses) => {
                format!("for {length} without {}", counted(pauses, "pause"))
            }
        }
    });
    match (trace.wall_offset, length) {
        (Some(offset), Some(length)) => {
            let begin = wall_time(start.saturating_add(offset));
            Some(format!("{begin}, {length}"))
        }
        (Some(offset), None) => Some(wall_time(start.saturating_add(offset))),
        (None, Some(length)) => Some(format!("{length}; wall-clock time unknown")),
        (None, None) => None,
    }
}

/// Formats nanoseconds since 1970 as a date in UTC.
fn wall_time(nanoseconds: i64) -> String {
    let array =
        arrow::array::TimestampNanosecondArray::from(vec![nanoseconds]).with_timezone("UTC");
    let mut text = String::new();
    match crate::text::Texts::new(&array).and_then(|texts| texts.write(0, &mut text)) {
        Ok(true) => text.split('.').next().unwrap_or_default().to_owned() + " UTC",
        _ => nanoseconds.to_string(),
    }
}

/// Width of a terminal that has room for events and how often they are sampled.
const WIDE: usize = 100;

fn events(session: &Session) -> Result<String> {
    let batches = session.collect(
        "SELECT CASE WHEN system = '' THEN event ELSE system || ':' || event END AS event, kind, rows, lost, \
         coalesce('period ' || period, 'frequency ' || frequency || ' Hz') AS every \
         FROM event_types ORDER BY rows DESC, 1",
    )?;
    // On a narrow terminal, as wide as the longest name.
    let mut name_width = 40;
    let mut number_width = 14;
    if render::width().is_some_and(|width| width < WIDE) {
        let mut longest = 0;
        for batch in &batches {
            for row in 0..batch.num_rows() {
                longest = longest.max(columns(&harmless(&cell(batch, 0, row)?)));
            }
        }
        (name_width, number_width) = (longest.clamp(10, 40), 11);
    }
    let mut text = format!(
        "{:<name_width$} {:<11} {:>number_width$} {:>10}\n",
        "event", "kind", "rows", "lost"
    );
    for batch in &batches {
        let number = |column: usize, row: usize| {
            let column = batch.column(column).as_primitive::<Int64Type>();
            column
                .is_valid(row)
                .then(|| grouped(column.value(row).max(0) as u64))
        };
        for row in 0..batch.num_rows() {
            let _ = writeln!(
                text,
                "{:<name_width$} {:<11} {:>number_width$} {:>10}  {}",
                harmless(&cell(batch, 0, row)?),
                harmless(&cell(batch, 1, row)?),
                number(2, row).unwrap_or_default(),
                number(3, row).unwrap_or_else(|| "unknown".to_owned()),
                harmless(&cell(batch, 4, row)?),
            );
        }
    }
    let trimmed: Vec<&str> = text.lines().map(str::trim_end).collect();
    Ok(trimmed.join("\n") + "\n")
}

/// Lists losses and problems, the most frequent first.
fn losses_and_problems(session: &Session, trace: &Trace) -> Result<String> {
    let questions = [
        (
            "losses",
            "SELECT reason, count(*) AS times, sum(count) AS events FROM losses GROUP BY 1 ORDER BY 3 DESC, 1 LIMIT 10",
        ),
        (
            "problems",
            "SELECT message, count(*) AS times, sum(count) AS places FROM problems GROUP BY 1 ORDER BY 3 DESC, 1 LIMIT 10",
        ),
    ];
    let mut text = String::new();
    for (name, sql) in questions {
        let rows = trace.table(name).map_or(0, perfquet::TraceTable::rows);
        if rows == 0 {
            let _ = writeln!(text, "\n{name}: none");
            continue;
        }
        let _ = writeln!(text, "\n{name}:");
        for batch in session.collect(sql)? {
            for row in 0..batch.num_rows() {
                let count = cell(&batch, 2, row)?;
                let count = if count.is_empty() {
                    "some".to_owned()
                } else {
                    count
                };
                let _ = writeln!(text, "  {count:>10}  {}", harmless(&cell(&batch, 0, row)?));
            }
        }
    }
    Ok(text)
}

fn cell(batch: &RecordBatch, column: usize, row: usize) -> Result<String> {
    let mut text = String::new();
    crate::text::Texts::new(batch.column(column))?.write(row, &mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_hang_and_keep_their_letters() {
        let command = "perfquet-record -e sched:sched_switch,sched:sched_waking -o 'a, b'";
        let lines = hanging(command, 30);
        let joined: Vec<&str> = lines.split("\n                ").collect();
        assert!(joined.iter().all(|line| columns(line) <= 30), "{joined:?}");
        assert_eq!(
            joined,
            [
                "perfquet-record -e",
                "sched:sched_switch,",
                "sched:sched_waking -o 'a, b'"
            ]
        );
    }
}
