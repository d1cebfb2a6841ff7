//! What a trace has beside stacks and calls: counters, aggregates and numbers of events. A page of such a trace alone shows them first.
//!
//! ```text
//! counters    task-clock   1.203 s  ▁▃▇▇▂      aggregates   [Xorg]  195 values  ▁▇▂
//! ```

use anyhow::Result;
use serde_json::{Value, json};

use perfquet::Session;

use super::calls::objects;
use super::unless_failed;
use crate::filter::Filters;

/// Rows of a table.
const ROWS: usize = 1_000;
/// Periods of a counter that are drawn; longer series are added up to as many.
const PERIODS: usize = 200;

/// The rows of several traces: each has the name of its trace before its own.
pub(super) fn joined(all: Vec<(&str, Value)>) -> Value {
    let mut found = json!({});
    for (table, key) in [
        ("counters", "event"),
        ("aggregates", "keys"),
        ("events", "event"),
    ] {
        let mut rows = Vec::new();
        for (name, value) in &all {
            for row in value[table].as_array().into_iter().flatten() {
                let mut row = row.clone();
                let own = row[key].as_str().unwrap_or_default();
                row[key] = json!(format!("{name}: {own}"));
                rows.push(row);
            }
        }
        found[table] = json!(rows);
    }
    found
}

/// The rows of the tables, by name; a table without rows is an empty list.
pub(super) fn of(session: &Session, filters: &Filters, omitted: &mut Vec<String>) -> Result<Value> {
    let mut found = json!({});
    for (name, table, sql) in [
        ("counters", "counts", counters(session, filters)?),
        ("aggregates", "aggregates", AGGREGATES.to_owned()),
        ("events", "event_types", EVENTS.to_owned()),
    ] {
        // Aggregates and numbers of events are those of the whole trace.
        let is_partial = table != "counts" && filters.are_given();
        let rows = match session.has_rows(table) && !is_partial {
            true => unless_failed(rows(session, &sql), name, omitted)?,
            false => None,
        };
        let mut rows = rows.unwrap_or_default();
        if rows.len() > ROWS {
            omitted.push(format!("{name}: {} of {ROWS} rows shown", rows.len()));
            rows.truncate(ROWS);
        }
        found[name] = json!(rows);
    }
    Ok(found)
}

fn rows(session: &Session, sql: &str) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for batch in session.collect(sql)? {
        if let Value::Array(rows) = objects(&batch)? {
            all.extend(rows);
        }
    }
    Ok(all)
}

/// The total of each counter, the part of the time for which it ran, and its course.
fn counters(session: &Session, filters: &Filters) -> Result<String> {
    let condition = filters.condition(session)?;
    Ok(format!(
        "WITH periods AS (
           SELECT event, unit, time, sum(count) AS count, sum(counted) AS counted, sum(enabled) AS enabled, sum(running) AS running,
             min(error) AS error FROM counts WHERE {condition} GROUP BY event, unit, time),
         numbered AS (SELECT *, row_number() OVER (PARTITION BY event, unit ORDER BY time) AS place, count(*) OVER (PARTITION BY event, unit) AS places FROM periods),
         bins AS (
           SELECT event, unit, min(places) AS places, (place - 1) / greatest(1, (places + {PERIODS} - 1) / {PERIODS}) AS bin, sum(count) AS count,
             sum(enabled) AS enabled, sum(running) AS running, min(error) AS error FROM numbered GROUP BY event, unit, bin)
         SELECT event, unit, CAST(sum(count) AS BIGINT) AS total, CAST(min(places) AS BIGINT) AS periods,
           CASE WHEN sum(enabled) > 0 THEN CAST(sum(running) AS DOUBLE) / sum(enabled) END AS share, min(error) AS error,
           array_agg(CAST(count AS BIGINT) ORDER BY bin) AS course
         FROM bins GROUP BY event, unit ORDER BY event"
    ))
}

/// Aggregates without stacks, which have no picture, with the bars of those that are distributions.
const AGGREGATES: &str = "
  WITH bars AS (
    SELECT aggregate_id, CAST(sum(count) AS BIGINT) AS value_count, array_agg(low ORDER BY low NULLS FIRST) AS low,
      array_agg(high ORDER BY low NULLS FIRST) AS high, array_agg(CAST(count AS BIGINT) ORDER BY low NULLS FIRST) AS count
    FROM distributions GROUP BY aggregate_id)
  SELECT name, action, array_to_string(keys, ', ') AS keys, value, exact_value, value_count, low, high, count
  FROM latest_aggregates LEFT JOIN bars USING (aggregate_id)
  WHERE kernel_stack IS NULL AND user_stack IS NULL AND (value IS NOT NULL OR exact_value IS NOT NULL OR value_count IS NOT NULL)
  ORDER BY coalesce(value, value_count) DESC, keys";

const EVENTS: &str = "
  SELECT CASE system WHEN '' THEN event ELSE concat(system, ':', event) END AS event, kind, CASE table_name WHEN '' THEN 'calls' ELSE table_name END AS table_name, CAST(sum(rows) AS BIGINT) AS rows
  FROM event_types WHERE rows > 0 GROUP BY 1, 2, 3 ORDER BY rows DESC, event";
