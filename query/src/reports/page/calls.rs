//! Calls of a page: the answer of `durations`, the distribution by time and thread, and the slowest calls.

use anyhow::{Context, Result};
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, Int64Type};
use perfquet_trace::count::grouped;
use serde_json::{Value, json};

use super::cells::{Cell, Cells, NO_THREAD, Threads, fitting_steps};
use super::section;
use crate::filter::Filters;
use crate::render::Section;
use crate::reports::durations::Durations;
use crate::reports::row_source::has_rows;
use crate::session::{Session, literal};
use crate::text::strings;
use crate::totals;

/// Functions with a distribution by time.
const FUNCTIONS: usize = 60;
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
    // Nothing may match the filters.
    let Ok(Section::Durations(durations)) = section::<Durations>(session, &words) else {
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
    let steps = fitting_steps(std::iter::once(&cells), 1);
    cells.coarsen(steps);
    Ok(json!({
        "summary": durations.subtitle,
        "rows": objects(&rows)?,
        "bars": BARS,
        "steps": steps,
        "cells": cells.json(1),
        "slowest": slowest(session, &condition, begin)?,
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
        "SELECT time - {begin} AS time, duration, tid, comm, coalesce(function, '[unknown]') AS function, module, caller, args, retval \
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

/// A JSON object for each row.
fn objects(batch: &RecordBatch) -> Result<Value> {
    let mut text = Vec::new();
    let mut writer = arrow::json::ArrayWriter::new(&mut text);
    writer.write(batch)?;
    writer.finish()?;
    drop(writer);
    match text.is_empty() {
        true => Ok(json!([])),
        false => Ok(serde_json::from_slice(&text)?),
    }
}
