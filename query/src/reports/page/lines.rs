//! Counters over time: a line each, in steps of the whole page.
//!
//! ```text
//! [{name: "page-faults", unit: "/s", is_period: true, points: [[begin, end, least, largest, last], …]}, …]
//! ```

use anyhow::Result;
use perfquet::{Session, Trace};
use serde_json::{Value, json};

use super::sides::Side;
use super::unless_failed;
use crate::counters::{self, Counter, Span};
use crate::filter::Filters;

/// Lines of a page.
const LINES: usize = 60;
/// Steps of a line, at most and at least.
const STEPS: (usize, usize) = (500, 100);
/// Points of all lines, about.
const POINTS: usize = 30_000;

/// The lines of a trace; none if its threads or rows are selected, which counters do not know. `length` is that of the page.
pub(super) fn of(
    side: &Side<'_>,
    is_one_of_several: bool,
    filters: &Filters,
    length: i64,
    omitted: &mut Vec<String>,
) -> Result<Vec<Value>> {
    if !filters.are_of_time_only() {
        return Ok(Vec::new());
    }
    let found = lines(side, is_one_of_several, filters, length, omitted);
    Ok(unless_failed(found, "counters over time", omitted)?.unwrap_or_default())
}

fn lines(
    side: &Side<'_>,
    is_one_of_several: bool,
    filters: &Filters,
    length: i64,
    omitted: &mut Vec<String>,
) -> Result<Vec<Value>> {
    let (session, trace) = (side.session, &side.session.traces()[0]);
    let ask = |sql: &str| session.collect(sql);
    let all = counters::of(session, trace, &ask)?;
    if all.is_empty() {
        return Ok(Vec::new());
    }
    if all.len() > LINES {
        omitted.push(format!(
            "counters over time: {LINES} of {} drawn",
            all.len()
        ));
    }
    let drawn: Vec<&Counter> = all.iter().take(LINES).collect();
    let steps = (POINTS / drawn.len()).clamp(STEPS.1, STEPS.0) as i64;
    let (begin, last) = own_range(session, trace)?;
    // The last point may be at the very end.
    let end = last.saturating_sub(begin).saturating_add(1);
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
        if points.len() < 2 {
            continue;
        }
        let placed = |mut point: Value| {
            for place in [0, 1] {
                let time = begin + point[place].as_i64().unwrap_or_default();
                point[place] = json!(side.since.place(trace, time));
            }
            point
        };
        let points: Vec<Value> = points.into_iter().map(placed).collect();
        let name = match is_one_of_several {
            true => format!("{}: {}", side.name, counter.name),
            false => counter.name.clone(),
        };
        lines.push(json!({ "name": name, "unit": counter.unit, "is_period": counter.is_period, "points": points,
            "sql": counter.sql.replace("{window}", "time IS NOT NULL") }));
    }
    Ok(lines)
}

/// First and last time of a trace by its own clock: as in `--time`, from the first event on, up to counts after the last one.
pub(super) fn own_range(session: &Session, trace: &Trace) -> Result<(i64, i64)> {
    let counts = counters::time_range(session, &|sql: &str| session.collect(sql))?;
    let (begin, end) = trace.time_range().or(counts).unwrap_or((0, 0));
    Ok((begin, end.max(counts.map_or(end, |(_, end)| end))))
}
