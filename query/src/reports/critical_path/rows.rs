//! The rows of a path over several traces, as of one, with the trace of each part.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use arrow::array::{ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use perfquet::unit::{DURATION, UNIT};

use super::across::Part;
use crate::render::{with_display, with_spares};

/// The parts added up by thread, state and reason; the longest sums first.
pub(super) fn summed(parts: &[Part], names: &[&str], limit: usize) -> Result<RecordBatch> {
    type Key<'p> = (
        usize,
        Option<&'p str>,
        i32,
        &'p str,
        Option<&'p str>,
        Option<&'p str>,
        i32,
    );
    let mut sums: HashMap<Key<'_>, (i64, i64)> = HashMap::new();
    for part in parts {
        let state = part.state.as_deref().unwrap_or("unknown");
        let runs = ["running", "runnable", "preempted"].contains(&state);
        let ended_by = part.interrupt.as_deref().filter(|_| !runs);
        let (comm, why) = (part.comm.as_deref(), part.why.as_deref());
        let key = (part.trace, comm, part.tid, state, why, ended_by, part.depth);
        let sum = sums.entry(key).or_default();
        sum.0 += part.end - part.begin;
        sum.1 += 1;
    }
    let all: i64 = sums.values().map(|sum| sum.0).sum();
    let mut rows: Vec<(Key<'_>, (i64, i64))> = sums.into_iter().collect();
    rows.sort_unstable_by(|a, b| b.1.0.cmp(&a.1.0).then_with(|| a.0.cmp(&b.0)));
    if limit > 0 {
        rows.truncate(limit);
    }
    let text = |of: &dyn Fn(&Key<'_>) -> Option<String>| -> ArrayRef {
        Arc::new(rows.iter().map(|row| of(&row.0)).collect::<StringArray>())
    };
    let owned = |text: Option<&str>| text.map(str::to_owned);
    let percent = rows
        .iter()
        .map(|row| row.1.0 as f64 / all.max(1) as f64 * 100.0);
    let columns: Vec<(Field, ArrayRef)> = vec![
        (
            field("percent", DataType::Float64),
            Arc::new(percent.map(Some).collect::<Float64Array>()),
        ),
        (
            duration("total"),
            Arc::new(rows.iter().map(|row| Some(row.1.0)).collect::<Int64Array>()),
        ),
        (
            field("parts", DataType::Int64),
            Arc::new(rows.iter().map(|row| Some(row.1.1)).collect::<Int64Array>()),
        ),
        (
            field("trace", DataType::Utf8),
            text(&|key| Some(names[key.0].to_owned())),
        ),
        (field("comm", DataType::Utf8), text(&|key| owned(key.1))),
        (
            field("tid", DataType::Int32),
            Arc::new(rows.iter().map(|row| Some(row.0.2)).collect::<Int32Array>()),
        ),
        (
            field("state", DataType::Utf8),
            text(&|key| Some(key.3.to_owned())),
        ),
        (field("why", DataType::Utf8), text(&|key| owned(key.4))),
        (field("ended_by", DataType::Utf8), text(&|key| owned(key.5))),
        (
            field("depth", DataType::Int32),
            Arc::new(rows.iter().map(|row| Some(row.0.6)).collect::<Int32Array>()),
        ),
    ];
    batch(columns)
}

/// The parts in their order.
pub(super) fn listed(
    parts: &[Part],
    names: &[&str],
    start: i64,
    limit: usize,
) -> Result<RecordBatch> {
    let parts = match limit {
        0 => parts,
        limit => &parts[..parts.len().min(limit)],
    };
    let text = |of: &dyn Fn(&Part) -> Option<String>| -> ArrayRef {
        Arc::new(parts.iter().map(of).collect::<StringArray>())
    };
    let seconds = parts
        .iter()
        .map(|part| Some((part.begin - start) as f64 / 1e9));
    let lengths = parts.iter().map(|part| Some(part.end - part.begin));
    let columns: Vec<(Field, ArrayRef)> = vec![
        (
            field("seconds", DataType::Float64),
            Arc::new(seconds.collect::<Float64Array>()),
        ),
        (
            duration("duration"),
            Arc::new(lengths.collect::<Int64Array>()),
        ),
        (
            field("depth", DataType::Int32),
            Arc::new(
                parts
                    .iter()
                    .map(|part| Some(part.depth))
                    .collect::<Int32Array>(),
            ),
        ),
        (
            field("trace", DataType::Utf8),
            text(&|part| Some(names[part.trace].to_owned())),
        ),
        (
            field("comm", DataType::Utf8),
            text(&|part| part.comm.clone()),
        ),
        (
            field("tid", DataType::Int32),
            Arc::new(
                parts
                    .iter()
                    .map(|part| Some(part.tid))
                    .collect::<Int32Array>(),
            ),
        ),
        (
            field("state", DataType::Utf8),
            text(&|part| part.state.clone()),
        ),
        (field("why", DataType::Utf8), text(&|part| part.why.clone())),
        (
            field("waker_comm", DataType::Utf8),
            text(&|part| part.waker_comm.clone()),
        ),
        (
            field("interrupt", DataType::Utf8),
            text(&|part| part.interrupt.clone()),
        ),
    ];
    batch(columns)
}

fn batch(columns: Vec<(Field, ArrayRef)>) -> Result<RecordBatch> {
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns.into_iter().unzip();
    let spares = ["parts", "depth", "interrupt", "waker_comm"];
    let mut schema = with_spares(&Arc::new(Schema::new(fields)), &spares);
    for column in ["ended_by", "why", "waker_comm", "interrupt"] {
        schema = with_display(&schema, column, "optional");
    }
    Ok(RecordBatch::try_new(schema, arrays)?)
}

fn field(name: &str, kind: DataType) -> Field {
    Field::new(name, kind, true)
}

fn duration(name: &str) -> Field {
    let unit = HashMap::from([(UNIT.to_owned(), DURATION.to_owned())]);
    field(name, DataType::Int64).with_metadata(unit)
}
