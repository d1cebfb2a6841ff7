//! The head of a page: recording, host, time, and losses.

use anyhow::Result;
use arrow::array::{Array, AsArray};
use arrow::datatypes::Int64Type;
use serde_json::{Value, json};

use perfquet::stacks::strings;
use perfquet::unit::in_fitting_unit;
use perfquet::{Session, Trace};

use super::sides::Side;
use crate::commands::info;
use crate::filter::Filters;
use crate::losses::is_lost;

/// The traces: names, facts, losses, and the text of `info`.
pub(super) fn traces(session: &Session, filters: &Filters) -> Result<Value> {
    let mut all = Vec::new();
    for trace in session.traces().iter() {
        // The counts of a session are those of all its traces.
        let own = match session.traces().len() {
            1 => None,
            _ => Some(session.alone(trace)?),
        };
        all.push(of_trace(own.as_ref().unwrap_or(session), trace, filters)?);
    }
    Ok(Value::Array(all))
}

/// The facts of a trace that is open alone; its duration is that of the selected time.
pub(super) fn of_trace(session: &Session, trace: &Trace, filters: &Filters) -> Result<Value> {
    let start = trace.time_range().map_or(0, |(start, _)| start);
    let bounds = filters.time_bounds(start);
    let (from, to) = bounds.unwrap_or((i64::MIN, i64::MAX));
    let recorded = trace.recorded();
    let duration = recorded.map(|recorded| recorded.length_within(from, to));
    let length = match bounds {
        Some(_) => duration,
        None => trace.length(),
    };
    Ok(json!({
            "name": trace.name,
            "path": trace.path.display().to_string(),
            "facts": trace.facts,
            "is_of_threads": trace.is_of_threads(),
            "duration": duration,
            "length": length.map(|length| in_fitting_unit(length as f64)),
            "recorded": info::recorded(trace),
            "losses": pairs(session, &format!("SELECT reason, sum(count) FROM losses WHERE {} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 10", is_lost(true)))?,
            "gaps": pairs(session, &format!("SELECT reason, sum(coalesce(count, 1)) FROM losses WHERE {} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 10", is_lost(false)))?,
            "problems": pairs(session, "SELECT message, sum(count) FROM problems GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 10")?,
            "incomplete": trace.incompleteness(),
            "info": info::about(session, trace)?,
    }))
}

/// A name and its count; null if the count is not known.
fn pairs(session: &Session, sql: &str) -> Result<Value> {
    let mut pairs = Vec::new();
    for batch in session.collect(sql)? {
        let names = strings(batch.column(0))?;
        let counts = arrow::compute::cast(batch.column(1), &arrow::datatypes::DataType::Int64)?;
        let counts = counts.as_primitive::<Int64Type>();
        for row in 0..batch.num_rows() {
            let count = counts.is_valid(row).then(|| counts.value(row));
            let name = if names.is_valid(row) {
                names.value(row)
            } else {
                "unknown"
            };
            pairs.push(json!([name, count]));
        }
    }
    Ok(Value::Array(pairs))
}

/// Slots of time with losses.
pub(super) fn loss_times(sides: &[Side<'_>], slot: i64) -> Result<Value> {
    let mut slots: Vec<i64> = Vec::new();
    for side in sides {
        let sql = format!(
            "SELECT DISTINCT {since} / {slot} AS slot FROM losses WHERE {since} >= 0 AND {} ORDER BY 1 LIMIT 10000",
            is_lost(true),
            since = side.since.of("time")
        );
        for batch in side.session.collect(&sql)? {
            slots.extend(batch.column(0).as_primitive::<Int64Type>().values());
        }
    }
    slots.sort_unstable();
    slots.dedup();
    Ok(json!(slots))
}
