//! Counters over time: a line each, in steps of the whole page.
//!
//! ```text
//! [{name: "page-faults", unit: "/s", is_period: true, points: [[begin, end, least, largest, last], …]}, …]
//! ```

use anyhow::Result;
use perfquet::Session;
use serde_json::{Value, json};

use super::unless_failed;
use crate::counters::{self, Counter, Span};
use crate::filter::Filters;

/// Lines of a page.
const LINES: usize = 60;
/// Steps of a line, at most and at least.
const STEPS: (usize, usize) = (500, 100);
/// Points of all lines, about.
const POINTS: usize = 30_000;

/// The lines of a trace from `begin` on, in nanoseconds; null if it has none, or if its threads or rows are selected, which counters do not know.
pub(super) fn of(
    session: &Session,
    filters: &Filters,
    begin: i64,
    length: i64,
    omitted: &mut Vec<String>,
) -> Result<Value> {
    if !filters.are_of_time_only() {
        return Ok(Value::Null);
    }
    let found = lines(session, filters, begin, length, omitted);
    let lines = unless_failed(found, "counters over time", omitted)?.unwrap_or_default();
    Ok(match lines.is_empty() {
        true => Value::Null,
        false => json!(lines),
    })
}

fn lines(
    session: &Session,
    filters: &Filters,
    begin: i64,
    length: i64,
    omitted: &mut Vec<String>,
) -> Result<Vec<Value>> {
    let ask = |sql: &str| session.collect(sql);
    let all = counters::of(session, &session.traces()[0], &ask)?;
    if all.len() > LINES {
        omitted.push(format!(
            "counters over time: {LINES} of {} drawn",
            all.len()
        ));
    }
    let drawn: Vec<&Counter> = all.iter().take(LINES).collect();
    let steps = (POINTS / drawn.len().max(1)).clamp(STEPS.1, STEPS.0) as i64;
    // The last point may be at the very end.
    let end = length.saturating_add(1);
    let within = |time: i64| time.saturating_sub(begin).clamp(0, end);
    let (from, to) = match filters.time_bounds(begin) {
        Some((from, to)) => (within(from), within(to)),
        None => (0, end),
    };
    let span = Span {
        start: begin,
        from,
        to,
        step: (length / steps).max(1),
    };
    let mut lines = Vec::new();
    for counter in drawn {
        let points = counters::points(counter, &span, &ask)?;
        // The sum of a whole recording is no course.
        if points.len() > 1 {
            lines.push(json!({ "name": counter.name, "unit": counter.unit, "is_period": counter.is_period, "points": points,
                "sql": counter.sql.replace("{window}", "time IS NOT NULL") }));
        }
    }
    Ok(lines)
}
