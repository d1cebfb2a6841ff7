//! Counters as lines: what `--stat` counted, frequencies of CPUs, counters of imported traces.
//!
//! ```text
//! counts     task-clock  |--5--|--7--|        a rate per second, from `since` to `time`
//! events     queue       *----*--*            a value until the next one
//! ```
//! A line has at most a point for each step: its least and its largest value there, and the last one.

use anyhow::{Result, bail};
use arrow::array::{Array, AsArray, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use perfquet::Session;
use perfquet::failure::Misuse;
use perfquet::sql::names::quoted;
use perfquet::stacks::strings;
use perfquet::unit::DURATION;
use perfquet_trace::store::{ColumnSchema, ColumnType, TableSchema};
use serde_json::{Value, json};

use perfquet_trace::tables::common;

use super::Served;
use super::engine::{Found, Limit, at, integers, rows};
use super::http::{Peer, Request};
use super::tiles::{Window, ids};

/// Events of these formats with nothing but numbers are counters.
const SYSTEMS: [&str; 2] = ["perfetto", "chrome"];
/// Lines of a trace.
const MOST: usize = 500;

/// A line of the timeline.
struct Counter {
    name: String,
    unit: String,
    /// A query of `time` and `value`; `{window}` is a condition on `time`.
    sql: String,
    /// Whether a value is of the time before it, instead of the time after it.
    is_period: bool,
}

/// The lines that a trace has.
fn counters(served: &Served, peer: &Peer<'_>) -> Result<Vec<Counter>> {
    let mut all = counted(served, peer)?;
    all.extend(frequencies(served, peer)?);
    for table in served.trace().tables.iter() {
        if table.is_event() && table.rows() > 0 && all.len() < MOST {
            all.extend(of_table(served, &table.schema, peer)?);
        }
    }
    all.truncate(MOST);
    Ok(all)
}

/// What `--stat` counted: a rate for each event.
fn counted(served: &Served, peer: &Peer<'_>) -> Result<Vec<Counter>> {
    let mut all = Vec::new();
    if !served.session.has_rows("counts") {
        return Ok(all);
    }
    let sql = "SELECT DISTINCT event, unit FROM counts WHERE since IS NOT NULL AND count IS NOT NULL ORDER BY event, unit";
    for batch in &rows(&served.session, sql, Limit::OWN, peer)?.batches {
        let (events, units) = (strings(batch.column(0))?, strings(batch.column(1))?);
        for (event, unit) in events.iter().zip(units.iter()) {
            let event = event.unwrap_or_default();
            let of_unit = match unit {
                Some(unit) => format!("unit = {}", literal(unit)),
                None => "unit IS NULL".to_owned(),
            };
            // Of a clock, seconds per second: the number of CPUs that were used.
            let (unit, factor) = match unit {
                Some(DURATION) => ("s/s".to_owned(), "1.0"),
                unit => (format!("{}/s", unit.unwrap_or_default()), "1e9"),
            };
            all.push(Counter {
                name: event.to_owned(),
                unit,
                sql: format!(
                    "SELECT min(since) AS since, time, CAST(sum(count) AS DOUBLE) * {factor} / (time - min(since)) AS value FROM counts \
                     WHERE {{window}} AND event = {} AND {of_unit} AND since < time GROUP BY time",
                    literal(event)
                ),
                is_period: true,
            });
        }
    }
    Ok(all)
}

/// The frequencies of the CPUs.
fn frequencies(served: &Served, peer: &Peer<'_>) -> Result<Vec<Counter>> {
    let session = &served.session;
    let mut views = session.views().iter();
    let view = views.find(|view| view.name == "cpu_frequency");
    let mut all = Vec::new();
    if !view.is_some_and(|view| session.has_events_of(view).unwrap_or(false)) {
        return Ok(all);
    }
    let sql = "SELECT DISTINCT cpu FROM cpu_frequency ORDER BY cpu";
    for batch in &rows(session, sql, Limit::OWN, peer)?.batches {
        let cpus = integers(batch, 0)?;
        all.extend(cpus.iter().flatten().map(|cpu| Counter {
            name: format!("frequency of CPU {cpu}"),
            unit: "kHz".to_owned(),
            sql: format!("SELECT time, CAST(khz AS DOUBLE) AS value FROM cpu_frequency WHERE {{window}} AND cpu = {cpu}"),
            is_period: false,
        }));
    }
    Ok(all)
}

/// The counters of an event table of an imported trace, by process or thread: these may have counters of the same name.
fn of_table(served: &Served, schema: &TableSchema, peer: &Peer<'_>) -> Result<Vec<Counter>> {
    let mut all = Vec::new();
    let parts: Vec<&str> = schema.name.split('/').skip(1).collect();
    let [system, event] = parts.as_slice() else {
        return Ok(all);
    };
    let own: Vec<&ColumnSchema> = (schema.columns.iter())
        .filter(|column| !common::NAMES.contains(&column.name.as_str()))
        .collect();
    if !SYSTEMS.contains(system) || !own.iter().all(|column| is_number(column.kind)) {
        return Ok(all);
    }
    let table = format!("{}.{}", quoted(system), quoted(event));
    let sql = format!("SELECT DISTINCT pid, tid FROM {table} ORDER BY pid, tid LIMIT {MOST}");
    for batch in &rows(&served.session, &sql, Limit::OWN, peer)?.batches {
        let (pids, tids) = (integers(batch, 0)?, integers(batch, 1)?);
        for row in 0..batch.num_rows() {
            let (pid, tid) = (at(&pids, row), at(&tids, row));
            let equal = |column: &str, value: Option<i64>| match value {
                Some(value) => format!("{column} = {value}"),
                None => format!("{column} IS NULL"),
            };
            let place = format!("{} AND {}", equal("pid", pid), equal("tid", tid));
            let of = match (pid, tid) {
                (_, Some(tid)) => format!(" of thread {tid}"),
                (Some(pid), None) => format!(" of process {pid}"),
                (None, None) => String::new(),
            };
            all.extend(own.iter().map(|column| {
                let value = quoted(&column.name);
                let part = match own.len() {
                    1 => String::new(),
                    _ => format!(": {}", column.name),
                };
                Counter {
                    name: format!("{event}{part}{of}"),
                    unit: column.unit.clone(),
                    sql: format!(
                        "SELECT time, CAST({value} AS DOUBLE) AS value FROM {table} WHERE {{window}} AND {value} IS NOT NULL AND {place}"
                    ),
                    is_period: false,
                }
            }));
        }
    }
    Ok(all)
}

fn is_number(kind: ColumnType) -> bool {
    use ColumnType as T;
    let is_signed = matches!(kind, T::Int8 | T::Int16 | T::Int32 | T::Int64 | T::Int128);
    let is_unsigned = matches!(kind, T::UInt8 | T::UInt16 | T::UInt32 | T::UInt64);
    is_signed || is_unsigned || kind == T::Float64
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Answers the lines of a trace; with `from`, `to`, `step` and `ids`, the points of those.
pub(super) fn answer(served: &Served, request: &Request, peer: &Peer<'_>) -> Result<Value> {
    let counters = counters(served, peer)?;
    if request.parameter("step").is_none() {
        let all = counters.iter().map(|counter| {
            json!({ "name": counter.name, "unit": counter.unit, "is_period": counter.is_period, "sql": counter.sql.replace("{window}", "time IS NOT NULL") })
        });
        return Ok(json!({ "counters": all.collect::<Vec<_>>() }));
    }
    let window = Window::of(request)?;
    let mut all = Vec::new();
    for id in ids(request)? {
        let Some(counter) = usize::try_from(id).ok().and_then(|id| counters.get(id)) else {
            bail!(Misuse(format!("ids: no counter {id}")));
        };
        let points = points(served, counter, &window, peer)?;
        all.push(json!({ "id": id, "points": points }));
    }
    Ok(json!({ "rows": all }))
}

/// Begin, end (of a period), least, largest and last value of each step that has any; before them, the last value before the window.
fn points(
    served: &Served,
    counter: &Counter,
    window: &Window,
    peer: &Peer<'_>,
) -> Result<Vec<Value>> {
    let (start, step) = (served.start, window.step);
    let (from, to) = (start + window.from, start + window.to);
    let found = |sql: &str| rows(&served.session, sql, Limit::OWN, peer);
    let within = |condition: &str| counter.sql.replace("{window}", condition);
    let begin = if counter.is_period { "since" } else { "time" };
    // A period reaches into the window from both sides.
    let inside = match counter.is_period {
        true => within(&format!("time > {from} AND since < {to}")),
        false => within(&format!("time >= {from} AND time < {to}")),
    };
    let binned = found(&format!(
        "SELECT min({begin}) AS begin, max(time) AS last_time, min(value) AS low, max(value) AS high, last_value(value ORDER BY time) AS last \
         FROM ({inside}) AS points GROUP BY ({begin} - {start}) / {step} ORDER BY begin"
    ))?;
    let mut points = Vec::new();
    if !counter.is_period {
        let before = within(&format!("time < {from}"));
        let before = found(&format!(
            "SELECT time AS begin, time AS last_time, value AS low, value AS high, value AS last FROM ({before}) AS points ORDER BY time DESC LIMIT 1"
        ))?;
        points.extend(written(&before, start)?);
    }
    points.extend(written(&binned, start)?);
    Ok(points)
}

fn written(found: &Found, start: i64) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for batch in &found.batches {
        let (begins, ends) = (integers(batch, 0)?, integers(batch, 1)?);
        let column = |place: usize| -> Result<Float64Array> {
            let found = cast(batch.column(place), &DataType::Float64)?;
            Ok(found.as_primitive::<Float64Type>().clone())
        };
        let (lows, highs, lasts) = (column(2)?, column(3)?, column(4)?);
        for row in 0..batch.num_rows() {
            if lows.is_null(row) || !lows.value(row).is_finite() || !highs.value(row).is_finite() {
                continue;
            }
            all.push(json!([
                begins.value(row) - start,
                ends.value(row) - start,
                lows.value(row),
                highs.value(row),
                lasts.value(row)
            ]));
        }
    }
    Ok(all)
}

/// Begin and end of what `--stat` counted: there may be counts long after the last event.
pub(super) fn time_range(session: &Session) -> Result<Option<(i64, i64)>> {
    if !session.has_rows("counts") {
        return Ok(None);
    }
    let sql = "SELECT min(coalesce(since, time)), max(time) FROM counts";
    let found = rows(session, sql, Limit::OWN, &Peer::NONE)?;
    let Some(batch) = found.batches.first().filter(|batch| batch.num_rows() > 0) else {
        return Ok(None);
    };
    let ends = (at(&integers(batch, 0)?, 0), at(&integers(batch, 1)?, 0));
    Ok(ends.0.zip(ends.1))
}
