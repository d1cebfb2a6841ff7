//! Counters as lines: what `--stat` counted, frequencies of CPUs, counters of imported traces.
//!
//! ```text
//! counts     task-clock  |--5--|--7--|        a rate per second, from `since` to `time`
//! events     queue       *----*--*            a value until the next one
//! ```
//! A line has at most a point for each step: its least and its largest value there, and the last one.

use anyhow::Result;
use arrow::array::{Array, ArrowPrimitiveType, AsArray, PrimitiveArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{Float64Type, Int64Type};
use perfquet::sql::names::{literal, quoted};
use perfquet::stacks::strings;
use perfquet::unit::DURATION;
use perfquet::{Session, Trace};
use perfquet_trace::store::{ColumnSchema, ColumnType, TableSchema};
use serde_json::{Value, json};

use perfquet_trace::tables::common;

/// Events of these formats with nothing but numbers are counters.
const SYSTEMS: [&str; 2] = ["perfetto", "chrome"];
/// Columns of Chrome's events with an ID, of which counters are one kind.
const WITH_ID: [&str; 2] = ["phase", "id"];
/// Lines of a trace.
const MOST: usize = 500;

/// Runs a query to its end.
pub(crate) type Ask<'a> = &'a dyn Fn(&str) -> Result<Vec<RecordBatch>>;

/// A line of the timeline.
pub(crate) struct Counter {
    pub(crate) name: String,
    pub(crate) unit: String,
    /// A query of `time` and `value`; `{window}` is a condition on `time`.
    pub(crate) sql: String,
    /// Whether a value is of the time before it, instead of the time after it.
    pub(crate) is_period: bool,
}

/// What part of a line is wanted, in nanoseconds after `start`.
pub(crate) struct Span {
    pub(crate) start: i64,
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) step: i64,
}

/// The lines that a trace has.
pub(crate) fn of(session: &Session, trace: &Trace, ask: Ask) -> Result<Vec<Counter>> {
    let mut all = counted(session, ask)?;
    all.extend(frequencies(session, ask)?);
    for table in trace.tables.iter() {
        if table.is_event() && table.rows() > 0 && all.len() < MOST {
            all.extend(of_table(&table.schema, ask)?);
        }
    }
    all.truncate(MOST);
    Ok(all)
}

/// What `--stat` counted: a rate for each event.
fn counted(session: &Session, ask: Ask) -> Result<Vec<Counter>> {
    let mut all = Vec::new();
    if !session.has_rows("counts") {
        return Ok(all);
    }
    let sql = "SELECT DISTINCT event, unit FROM counts WHERE since IS NOT NULL AND count IS NOT NULL ORDER BY event, unit";
    for batch in &ask(sql)? {
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
fn frequencies(session: &Session, ask: Ask) -> Result<Vec<Counter>> {
    let mut all = Vec::new();
    if !session.is_recorded("cpu_frequency")? {
        return Ok(all);
    }
    let sql = "SELECT DISTINCT cpu FROM cpu_frequency ORDER BY cpu";
    for batch in &ask(sql)? {
        let cpus = numbers::<Int64Type>(batch, 0)?;
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
fn of_table(schema: &TableSchema, ask: Ask) -> Result<Vec<Counter>> {
    let mut all = Vec::new();
    let parts: Vec<&str> = schema.name.split('/').skip(1).collect();
    let [system, event] = parts.as_slice() else {
        return Ok(all);
    };
    let mut own: Vec<&ColumnSchema> = (schema.columns.iter())
        .filter(|column| !common::NAMES.contains(&column.name.as_str()))
        .collect();
    // Chrome's counters with an ID: one line for each.
    let count = own.len();
    own.retain(|column| !WITH_ID.contains(&column.name.as_str()));
    let has_ids = *system == "chrome" && own.len() + WITH_ID.len() == count;
    if !has_ids && own.len() < count {
        return Ok(all);
    }
    let (ids, counters) = match has_ids {
        true => ("id", "phase = 'C'"),
        false => ("NULL", "TRUE"),
    };
    if !SYSTEMS.contains(system) || !own.iter().all(|column| is_number(column.kind)) {
        return Ok(all);
    }
    let table = format!("{}.{}", quoted(system), quoted(event));
    let sql = format!(
        "SELECT DISTINCT pid, tid, CAST({ids} AS TEXT) AS id FROM {table} WHERE {counters} ORDER BY pid, tid, id LIMIT {MOST}"
    );
    for batch in &ask(&sql)? {
        let (pids, tids) = (
            numbers::<Int64Type>(batch, 0)?,
            numbers::<Int64Type>(batch, 1)?,
        );
        let ids = strings(batch.column(2))?;
        for row in 0..batch.num_rows() {
            let (pid, tid) = (at(&pids, row), at(&tids, row));
            let equal = |column: &str, value: Option<i64>| match value {
                Some(value) => format!("{column} = {value}"),
                None => format!("{column} IS NULL"),
            };
            let id = ids.is_valid(row).then(|| ids.value(row));
            let of_id = match (has_ids, id) {
                (false, _) => "TRUE".to_owned(),
                (true, None) => "id IS NULL".to_owned(),
                (true, Some(id)) => format!("id = {}", literal(id)),
            };
            let place = format!(
                "{} AND {} AND {counters} AND {of_id}",
                equal("pid", pid),
                equal("tid", tid)
            );
            let mut of = match (pid, tid) {
                (_, Some(tid)) => format!(" of thread {tid}"),
                (Some(pid), None) => format!(" of process {pid}"),
                (None, None) => String::new(),
            };
            if let Some(id) = id {
                of.insert_str(0, &format!(" {id}"));
            }
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

/// Begin, end (of a period), least, largest and last value of each step that has any; before them, the last value before the window.
pub(crate) fn points(counter: &Counter, span: &Span, ask: Ask) -> Result<Vec<Value>> {
    let (start, step) = (span.start, span.step);
    let (from, to) = (start + span.from, start + span.to);
    let within = |condition: &str| counter.sql.replace("{window}", condition);
    let begin = if counter.is_period { "since" } else { "time" };
    // A period reaches into the window from both sides.
    let inside = match counter.is_period {
        true => within(&format!("time > {from} AND since < {to}")),
        false => within(&format!("time >= {from} AND time < {to}")),
    };
    let binned = ask(&format!(
        "SELECT min({begin}) AS begin, max(time) AS last_time, min(value) AS low, max(value) AS high, last_value(value ORDER BY time) AS last \
         FROM ({inside}) AS points GROUP BY ({begin} - {start}) / {step} ORDER BY begin"
    ))?;
    let mut points = Vec::new();
    if !counter.is_period {
        let before = within(&format!("time < {from}"));
        let before = ask(&format!(
            "SELECT time AS begin, time AS last_time, value AS low, value AS high, value AS last FROM ({before}) AS points ORDER BY time DESC LIMIT 1"
        ))?;
        points.extend(written(&before, start)?);
    }
    points.extend(written(&binned, start)?);
    Ok(points)
}

fn written(batches: &[RecordBatch], start: i64) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for batch in batches {
        let time = |place| numbers::<Int64Type>(batch, place);
        let value = |place| numbers::<Float64Type>(batch, place);
        let (begins, ends) = (time(0)?, time(1)?);
        let (lows, highs, lasts) = (value(2)?, value(3)?, value(4)?);
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

/// A column of numbers, converted.
fn numbers<T: ArrowPrimitiveType>(batch: &RecordBatch, place: usize) -> Result<PrimitiveArray<T>> {
    Ok(cast(batch.column(place), &T::DATA_TYPE)?
        .as_primitive::<T>()
        .clone())
}

/// A value; `None` for NULL.
fn at(column: &PrimitiveArray<Int64Type>, row: usize) -> Option<i64> {
    column.is_valid(row).then(|| column.value(row))
}

/// Begin and end of what `--stat` counted: there may be counts long after the last event.
pub(crate) fn time_range(session: &Session, ask: Ask) -> Result<Option<(i64, i64)>> {
    if !session.has_rows("counts") {
        return Ok(None);
    }
    let found = ask("SELECT min(coalesce(since, time)), max(time) FROM counts")?;
    let Some(batch) = found.first().filter(|batch| batch.num_rows() > 0) else {
        return Ok(None);
    };
    let time = |place| numbers::<Int64Type>(batch, place);
    Ok(at(&time(0)?, 0).zip(at(&time(1)?, 0)))
}
