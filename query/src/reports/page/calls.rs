//! Calls of a page: the answer of `durations`, the distribution by time and thread, and the slowest calls.

use anyhow::{Context, Result};
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, Int64Type};
use perfquet_trace::count::grouped;
use serde_json::{Value, json};

use super::cells::{Cell, Cells, NO_THREAD, Threads, fitting_steps};
use super::{section, unless_failed};
use crate::filter::Filters;
use crate::functions::in_fitting_unit;
use crate::render::Section;
use crate::reports::durations::Durations;
use crate::reports::row_source::has_rows;
use crate::session::{Session, literal};
use crate::text::strings;
use crate::totals;

/// Functions with a distribution by time.
const FUNCTIONS: usize = 60;
/// Calls of the flame chart.
const CHART: usize = 100_000;
/// Longer names are cut.
const LONGEST_NAME: usize = 4000;
/// Calls that are listed one by one.
const SLOWEST: usize = 500;
/// Bars of a power of two in a distribution by time.
const BARS: i64 = 8;

/// All that a page shows of calls; null if there are none.
pub(super) fn of(
    session: &Session,
    filters: &Filters,
    begin: i64,
    slot: i64,
    threads: &mut Threads,
    omitted: &mut Vec<String>,
) -> Result<Value> {
    if !has_rows(session, "calls") {
        return Ok(Value::Null);
    }
    let words = [vec!["-n".to_owned(), "0".to_owned()], filters.arguments()].concat();
    let answer = section::<Durations>(session, &words);
    let Some(Section::Durations(durations)) = unless_failed(answer, "durations", omitted)? else {
        return Ok(Value::Null);
    };
    let all = durations.rows.num_rows();
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
    let mut cells = cells(session, &condition, &functions, begin, slot, threads)?;
    let steps = fitting_steps(&[&cells], 1, i64::MAX);
    cells.coarsen(steps);
    Ok(json!({
        "summary": durations.subtitle,
        "rows": objects(&rows)?,
        "bars": BARS,
        "steps": steps,
        "cells": cells.json(1),
        "slowest": slowest(session, &condition, begin)?,
        "chart": chart(session, &condition, begin, threads, omitted)?,
        "durations": ["durations"],
        "heatmap": ["heatmap"],
    }))
}

fn cells(
    session: &Session,
    condition: &str,
    functions: &[&str],
    begin: i64,
    slot: i64,
    threads: &mut Threads,
) -> Result<Cells> {
    let names: Vec<String> = functions.iter().map(|name| literal(name)).collect();
    if names.is_empty() {
        return Ok(Cells::default());
    }
    let sql = format!(
        "SELECT coalesce((time - {begin}) / {slot}, -1) AS slot, CAST(coalesce(tid, {NO_THREAD}) AS INT) AS tid, coalesce(function, '[unknown]') AS function, \
         CAST(floor(log2(CAST(greatest(duration, 1) AS DOUBLE)) * {BARS}) AS BIGINT) AS bar, sum(duration) AS total, count(*) AS count FROM calls \
         WHERE {condition} AND duration IS NOT NULL AND coalesce(function, '[unknown]') IN ({}) GROUP BY 1, 2, 3, 4",
        names.join(", ")
    );
    let index: std::collections::HashMap<&str, u32> = functions.iter().copied().zip(0..).collect();
    let mut cells = Vec::new();
    let mut answer = session.query(&sql)?;
    while let Some(batch) = answer.next()? {
        let number = |column: usize| batch.column(column).as_primitive::<Int64Type>();
        let (slots, bars, counts) = (number(0), number(3), number(5));
        let tids = batch.column(1).as_primitive::<Int32Type>();
        let names = strings(batch.column(2))?;
        let weights = totals::read(batch.column(4))?;
        for row in 0..batch.num_rows() {
            cells.push(Cell {
                slot: slots.value(row),
                thread: threads.of(tids.value(row)),
                node: index.get(names.value(row)).copied().unwrap_or_default(),
                bar: u32::try_from(bars.value(row)).unwrap_or_default(),
                weight: totals::weight(&weights, row),
                count: counts.value(row).unsigned_abs(),
            });
        }
    }
    Ok(Cells(cells))
}

fn slowest(session: &Session, condition: &str, begin: i64) -> Result<Value> {
    let sql = format!(
        "SELECT time - {begin} AS time, duration, tid, comm, coalesce(function, '[unknown]') AS function, module, caller, args, retval, \
         stack_text(user_stack) AS user_stack, stack_text(kernel_stack) AS kernel_stack \
         FROM calls WHERE {condition} AND duration IS NOT NULL ORDER BY duration DESC, time LIMIT {SLOWEST}"
    );
    let mut rows = Vec::new();
    for batch in session.collect(&sql)? {
        if let Value::Array(more) = objects(&batch)? {
            rows.extend(more);
        }
    }
    Ok(Value::Array(rows))
}

/// The calls of the flame chart, column by column: the longest ones. A caller is as long as its callees, so no frame is
/// without its caller.
fn chart(
    session: &Session,
    condition: &str,
    begin: i64,
    threads: &mut Threads,
    omitted: &mut Vec<String>,
) -> Result<Value> {
    let timed = format!("{condition} AND duration IS NOT NULL AND time IS NOT NULL");
    let sql = format!(
        "SELECT time - {begin} AS begin, duration, CAST(coalesce(tid, {NO_THREAD}) AS INT) AS tid, CAST(coalesce(depth, 0) AS INT) AS depth, \
         coalesce(function, '[unknown]') AS function FROM calls WHERE {timed} ORDER BY duration DESC, depth, time LIMIT {CHART}"
    );
    let mut calls = Vec::new();
    let mut names: Vec<String> = Vec::new();
    let mut known = std::collections::HashMap::new();
    let mut answer = session.query(&sql)?;
    while let Some(batch) = answer.next()? {
        let number = |column: usize| batch.column(column).as_primitive::<Int64Type>();
        let id = |column: usize| batch.column(column).as_primitive::<Int32Type>();
        let (begins, lengths, tids, depths) = (number(0), number(1), id(2), id(3));
        let functions = strings(batch.column(4))?;
        for row in 0..batch.num_rows() {
            let function = functions.value(row);
            let function = *known.entry(function.to_owned()).or_insert_with(|| {
                names.push(crate::text::cut_right(function, LONGEST_NAME).into_owned());
                names.len() - 1
            });
            calls.push((
                begins.value(row),
                depths.value(row),
                lengths.value(row),
                threads.of(tids.value(row)),
                function,
            ));
        }
    }
    let least = calls.iter().map(|call| call.2).min();
    if let (Some(least), CHART) = (least, calls.len()) {
        let all = session.collect(&format!("SELECT count(*) FROM calls WHERE {timed}"))?;
        let all = all.first().map_or(0, |batch| {
            batch.column(0).as_primitive::<Int64Type>().value(0)
        });
        if all > CHART as i64 {
            omitted.push(format!(
                "calls in tracks: the longest {} of {}; all last {} or longer",
                grouped(CHART as u64),
                grouped(all.unsigned_abs()),
                in_fitting_unit(least as f64)
            ));
        }
    }
    calls.sort_unstable();
    let mut last = 0;
    let begins: Vec<i64> = calls
        .iter()
        .map(|call| call.0 - std::mem::replace(&mut last, call.0))
        .collect();
    Ok(json!({
        "names": names,
        "begin": begins,
        "length": calls.iter().map(|call| call.2).collect::<Vec<i64>>(),
        "depth": calls.iter().map(|call| call.1).collect::<Vec<i32>>(),
        "thread": calls.iter().map(|call| call.3).collect::<Vec<u32>>(),
        "function": calls.iter().map(|call| call.4).collect::<Vec<usize>>(),
    }))
}

/// A JSON object for each row.
fn objects(batch: &RecordBatch) -> Result<Value> {
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
