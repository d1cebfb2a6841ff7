//! Calls of a page: the answer of `durations`, the distribution by time and thread, and the slowest calls.

use std::cmp::Reverse;
use std::collections::HashMap;

use anyhow::{Context, Result};
use arrow::array::{AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int32Type, Int64Type};
use perfquet::Session;
use perfquet::sql::names::literal;
use perfquet::stacks::strings;
use perfquet::unit::in_fitting_unit;
use perfquet_trace::count::grouped;
use serde_json::{Value, json};

use super::busy;
use super::cells::{Cell, Cells, NO_THREAD, Threads, fitting_steps};
use super::sides::Side;
use super::since::Since;
use super::trees::Names;
use super::{section, unless_failed};
use crate::filter::Filters;
use crate::render::Section;
use crate::render::columns::Columns;
use crate::reports::durations::Durations;
use crate::reports::recursion::{self, Recursion};
use crate::totals;

/// Functions with a distribution by time.
const FUNCTIONS: usize = 60;
/// Calls of the flame chart.
const CHART: usize = 100_000;
/// Calls that are listed one by one.
const SLOWEST: usize = 1000;
/// Bars of a power of two in a distribution by time.
const BARS: i64 = 8;

/// All that a page shows of calls.
pub(super) struct Calls {
    summary: Value,
    /// Number of calls of all functions.
    count: i64,
    rows: Value,
    cells: Cells,
    /// By thread: the time in which any of its calls ran.
    busy: Cells,
    /// Nanoseconds of a slot.
    slot: i64,
    slowest: Value,
    stacks: Value,
    chart: Chart,
}

/// The calls of a page's traces in the order of the page; none if there are none.
pub(super) fn joined(all: Vec<(&Side<'_>, usize, Option<Calls>)>) -> Option<Calls> {
    let mut found: Option<Calls> = None;
    for (side, number, calls) in all {
        let Some(mut calls) = calls else {
            continue;
        };
        calls.summary = json!(format!(
            "{}: {}",
            side.name,
            calls.summary.as_str().unwrap_or("")
        ));
        for rows in [&mut calls.rows, &mut calls.slowest] {
            for row in rows.as_array_mut().into_iter().flatten() {
                row["trace"] = json!(number);
            }
        }
        match &mut found {
            None => found = Some(calls),
            Some(found) => found.append(calls),
        }
    }
    found
}

/// The calls of a trace; none if there are none.
pub(super) fn of(
    session: &Session,
    filters: &Filters,
    since: Since,
    slot: i64,
    threads: &mut Threads,
    omitted: &mut Vec<String>,
) -> Result<Option<Calls>> {
    if !session.has_rows("calls") {
        return Ok(None);
    }
    let words = [vec!["-n".to_owned(), "0".to_owned()], filters.arguments()].concat();
    let answer = section::<Durations>(session, &words);
    let Some(Section::Durations(durations)) = unless_failed(answer, "durations", omitted)? else {
        return Ok(None);
    };
    let all = durations.rows.num_rows();
    let counts = durations.rows.column_by_name("count");
    let counts = cast(counts.context("no column count")?, &DataType::Int64)?;
    let counts = counts.as_primitive::<Int64Type>();
    let rows = durations.rows.slice(0, all.min(FUNCTIONS));
    if all > FUNCTIONS {
        omitted.push(format!(
            "durations: {} of {} functions, those with the longest total",
            FUNCTIONS,
            grouped(all as u64)
        ));
    }
    let functions = strings(
        rows.column_by_name("function")
            .context("no column function")?,
    )?;
    let functions: Vec<&str> = functions.iter().map(Option::unwrap_or_default).collect();
    let condition = filters.condition(session)?;
    let (slowest, stacks) = slowest(session, &condition, since)?;
    Ok(Some(Calls {
        summary: json!(durations.subtitle),
        count: counts.iter().flatten().sum(),
        rows: objects(&rows)?,
        cells: cells(session, filters, &functions, since, slot, threads)?,
        busy: busy::of(session, &condition, since, slot, threads)?,
        slot,
        slowest,
        stacks,
        chart: Chart::of(session, &condition, since, threads)?,
    }))
}

impl Calls {
    /// Adds the calls of another trace.
    fn append(&mut self, mut other: Calls) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        self.summary = json!([text(&self.summary), text(&other.summary)].join("; "));
        self.count += other.count;
        let functions = self.rows.as_array().map_or(0, Vec::len) as u32;
        for cell in &mut other.cells.0 {
            cell.node += functions;
        }
        self.cells.0.append(&mut other.cells.0);
        self.busy.0.append(&mut other.busy.0);
        let stacks = self.stacks.as_array().map_or(0, Vec::len);
        for row in other.slowest.as_array_mut().into_iter().flatten() {
            for name in ["user_stack", "kernel_stack"] {
                if let Some(index) = row[name].as_u64() {
                    row[name] = json!(index + stacks as u64);
                }
            }
        }
        for (all, more) in [
            (&mut self.rows, &mut other.rows),
            (&mut self.slowest, &mut other.slowest),
            (&mut self.stacks, &mut other.stacks),
        ] {
            if let (Value::Array(all), Value::Array(more)) = (all, more) {
                all.append(more);
            }
        }
        if let Value::Array(slowest) = &mut self.slowest {
            slowest.sort_by_key(|row| Reverse(row["duration"].as_i64()));
        }
        let names = self.chart.names.len() as u32;
        for call in &mut other.chart.calls {
            call.function += names;
        }
        self.chart.names.append(&mut other.chart.names);
        self.chart.calls.append(&mut other.chart.calls);
        // The longest first, as of one trace.
        self.chart.calls.sort_by_key(|call| Reverse(call.length));
        self.chart.all += other.chart.all;
    }

    /// The calls, with slots that are `joined` times as long, of which a column of the grid has `rows`, and a part of the limits.
    pub(super) fn json(
        &self,
        (joined, rows): (i64, i64),
        part: usize,
        names: &mut Names,
        columns: &mut Columns,
        omitted: &mut Vec<String>,
    ) -> Value {
        let (mut cells, mut busy) = (self.cells.clone(), self.busy.clone());
        cells.coarsen(joined);
        busy.coarsen_spans(joined, self.slot);
        let steps = fitting_steps(&[&cells, &busy], rows, i64::MAX, part);
        cells.coarsen(steps);
        busy.coarsen_spans(steps, self.slot.saturating_mul(joined));
        json!({
            "summary": self.summary,
            "count": self.count,
            "rows": self.rows,
            "bars": BARS,
            "steps": steps,
            "cells": cells.json(1, columns),
            "busy": busy.json(1, columns),
            "slowest": self.slowest,
            "stacks": self.stacks,
            "chart": self.chart.json(CHART / part, names, columns, omitted),
            "durations": ["durations"],
            "heatmap": ["heatmap"],
        })
    }
}

fn cells(
    session: &Session,
    filters: &Filters,
    functions: &[&str],
    since: Since,
    slot: i64,
    threads: &mut Threads,
) -> Result<Cells> {
    let condition = filters.condition(session)?;
    let names: Vec<String> = functions.iter().map(|name| literal(name)).collect();
    if names.is_empty() {
        return Ok(Cells::default());
    }
    let parts = [
        format!("coalesce({} / {slot}, -1)", since.of("time")),
        format!("CAST(coalesce(tid, {NO_THREAD}) AS INT)"),
        bar_of("duration"),
    ];
    let [slot, tid, bar] = &parts;
    let sql = format!(
        "SELECT {slot} AS slot, {tid} AS tid, coalesce(function, '[unknown]') AS function, \
         {bar} AS bar, sum(duration) AS total, count(*) AS count FROM calls \
         WHERE {condition} AND coalesce(function, '[unknown]') IN ({}) GROUP BY 1, 2, 3, 4",
        names.join(", "),
    );
    let calls = Recursion {
        condition: &condition,
        has_holes: filters.may_divide_calls(),
        name: "coalesce(function, '[unknown]')",
        by_trace: false,
        parts: &parts,
    };
    let nested = recursion::nested(session, calls, &str::to_owned)?;
    let index: HashMap<&str, u32> = functions.iter().copied().zip(0..).collect();
    let mut cells = Vec::new();
    let mut answer = session.query(&sql)?;
    while let Some(batch) = answer.next_batch()? {
        let number = |column: usize| batch.column(column).as_primitive::<Int64Type>();
        let (slots, bars, counts) = (number(0), number(3), number(5));
        let tids = batch.column(1).as_primitive::<Int32Type>();
        let names = strings(batch.column(2))?;
        let weights = totals::read(batch.column(4))?;
        for row in 0..batch.num_rows() {
            let part = vec![slots.value(row), tids.value(row).into(), bars.value(row)];
            let inside = nested.get(&(names.value(row).to_owned(), part));
            cells.push(Cell {
                slot: slots.value(row),
                thread: threads.of(tids.value(row)),
                node: index.get(names.value(row)).copied().unwrap_or_default(),
                bar: u32::try_from(bars.value(row)).unwrap_or_default(),
                // Calls inside calls of the same function count once.
                weight: totals::weight(&weights, row).saturating_sub(inside.copied().unwrap_or(0)),
                count: counts.value(row).unsigned_abs(),
            });
        }
    }
    Ok(Cells(cells))
}

/// SQL for the bar of a duration; the first beyond those of all durations if it is unknown.
fn bar_of(duration: &str) -> String {
    format!(
        "coalesce(CAST(floor(log2(CAST(greatest({duration}, 1) AS DOUBLE)) * {BARS}) AS BIGINT), {})",
        64 * BARS
    )
}

/// The slowest calls, a row each, and their stacks, which are the same for many.
fn slowest(session: &Session, condition: &str, since: Since) -> Result<(Value, Value)> {
    let sql = format!(
        "SELECT {} AS time, duration, tid, comm, coalesce(function, '[unknown]') AS function, module, caller, args, retval, \
         stack_text(user_stack) AS user_stack, stack_text(kernel_stack) AS kernel_stack \
         FROM calls WHERE {condition} AND duration IS NOT NULL ORDER BY duration DESC, time LIMIT {SLOWEST}",
        since.of("time")
    );
    let mut rows = Vec::new();
    for batch in session.collect(&sql)? {
        if let Value::Array(more) = objects(&batch)? {
            rows.extend(more);
        }
    }
    let mut stacks: Vec<Value> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for row in &mut rows {
        for name in ["user_stack", "kernel_stack"] {
            if let Some(Value::String(stack)) = row.get(name) {
                let index = *known.entry(stack.clone()).or_insert_with(|| {
                    stacks.push(json!(stack));
                    stacks.len() - 1
                });
                row[name] = json!(index);
            }
        }
    }
    Ok((Value::Array(rows), Value::Array(stacks)))
}

/// The calls of the flame chart: the longest ones. A caller is as long as its callees, so no frame is without its caller.
struct Chart {
    /// By duration, the longest first.
    calls: Vec<Boxed>,
    names: Vec<String>,
    /// Number of calls in the trace.
    all: u64,
}

/// A call of the chart.
#[derive(Clone, Copy)]
struct Boxed {
    begin: i64,
    length: i64,
    depth: i32,
    thread: u32,
    /// Index of the name.
    function: u32,
}

impl Chart {
    fn of(
        session: &Session,
        condition: &str,
        since: Since,
        threads: &mut Threads,
    ) -> Result<Chart> {
        let timed = format!("{condition} AND duration IS NOT NULL AND time IS NOT NULL");
        let sql = format!(
            "SELECT {} AS begin, duration, CAST(coalesce(tid, {NO_THREAD}) AS INT) AS tid, CAST(coalesce(depth, 0) AS INT) AS depth, \
             coalesce(function, '[unknown]') AS function FROM calls WHERE {timed} ORDER BY duration DESC, depth, time LIMIT {CHART}",
            since.of("time")
        );
        let mut chart = Chart {
            calls: Vec::new(),
            names: Vec::new(),
            all: 0,
        };
        let mut known = HashMap::new();
        let mut answer = session.query(&sql)?;
        while let Some(batch) = answer.next_batch()? {
            let number = |column: usize| batch.column(column).as_primitive::<Int64Type>();
            let id = |column: usize| batch.column(column).as_primitive::<Int32Type>();
            let (begins, lengths, tids, depths) = (number(0), number(1), id(2), id(3));
            let functions = strings(batch.column(4))?;
            for row in 0..batch.num_rows() {
                let name = functions.value(row);
                let function = *known.entry(name.to_owned()).or_insert_with(|| {
                    chart.names.push(name.to_owned());
                    chart.names.len() as u32 - 1
                });
                chart.calls.push(Boxed {
                    begin: begins.value(row),
                    length: lengths.value(row),
                    depth: depths.value(row),
                    thread: threads.of(tids.value(row)),
                    function,
                });
            }
        }
        chart.all = chart.calls.len() as u64;
        if chart.calls.len() >= CHART {
            let all = session.collect(&format!("SELECT count(*) FROM calls WHERE {timed}"))?;
            chart.all = all.first().map_or(chart.all, |batch| {
                batch
                    .column(0)
                    .as_primitive::<Int64Type>()
                    .value(0)
                    .unsigned_abs()
            });
        }
        Ok(chart)
    }

    /// Column by column, by thread and begin.
    fn json(
        &self,
        most: usize,
        names: &mut Names,
        columns: &mut Columns,
        omitted: &mut Vec<String>,
    ) -> Value {
        let mut calls = self.calls[..self.calls.len().min(most)].to_vec();
        if let (Some(last), true) = (calls.last(), (calls.len() as u64) < self.all) {
            omitted.push(format!(
                "calls in tracks: the longest {} of {}; all last {} or longer",
                grouped(calls.len() as u64),
                grouped(self.all),
                in_fitting_unit(last.length as f64)
            ));
        }
        calls.sort_unstable_by_key(|call| {
            (call.thread, call.begin, call.depth, Reverse(call.length))
        });
        let functions: Vec<usize> = self.names.iter().map(|name| names.of(name)).collect();
        json!({
            "begin": columns.add(calls.iter().map(|call| call.begin)),
            "length": columns.add(calls.iter().map(|call| call.length)),
            "depth": columns.add(calls.iter().map(|call| call.depth)),
            "thread": columns.add(calls.iter().map(|call| call.thread)),
            "function": columns.add(calls.iter().map(|call| functions[call.function as usize])),
        })
    }
}

/// A JSON object for each row.
pub(super) fn objects(batch: &RecordBatch) -> Result<Value> {
    let mut text = Vec::new();
    // A script distinguishes null from a missing value.
    let writer = arrow::json::WriterBuilder::new().with_explicit_nulls(true);
    let mut writer = writer.build::<_, arrow::json::writer::JsonArray>(&mut text);
    writer.write(batch)?;
    writer.finish()?;
    drop(writer);
    match text.is_empty() {
        true => Ok(json!([])),
        false => Ok(serde_json::from_slice(&text)?),
    }
}

#[cfg(test)]
mod tests {
    use super::BARS;

    /// The bar of a duration, as [`super::bar_of`] has it in SQL.
    fn bar(duration: i64) -> i64 {
        ((duration.max(1) as f64).log2() * BARS as f64).floor() as i64
    }

    /// What the page shows for a bar, as `lines` of tables.ts.
    fn shown(bar: i64) -> f64 {
        2_f64.powf((bar as f64 + 0.5) / BARS as f64)
    }

    /// Of small durations all, of large ones some of every size.
    #[test]
    fn percentiles_of_bars_are_within_their_bound() {
        let mut state = 1_u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> 11
        };
        let (mut worst, mut samples) = (0.0_f64, vec![(1..=5000).collect::<Vec<i64>>()]);
        for size in 1..300 {
            let bits = 1 + random() % 50;
            samples.push(
                (0..size)
                    .map(|_| 1 + (random() % (1 << bits)) as i64)
                    .collect(),
            );
        }
        for mut durations in samples {
            durations.sort_unstable();
            // A bar grows with the duration, so that ranks are the same.
            for percent in 1..=100 {
                let exact = durations[(durations.len() * percent).div_ceil(100) - 1];
                let about = shown(bar(exact));
                let exact = exact as f64;
                worst = worst.max((about - exact).abs() / exact);
                let rounded = (about.round() - exact).abs();
                assert!(rounded <= 0.045 * exact + 0.5, "{exact}: {about}");
            }
        }
        assert!((0.044..0.045).contains(&worst), "{worst}");
    }
}
