//! Losses by hour, event and reason.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use perfquet_trace::store::Directory;
use perfquet_trace::tables;

use super::super::super::batch::BatchRow;
use super::{SummaryTable, Texts, Value, hour_of};

/// Hour, event, reason.
type Key = (Option<i64>, Option<Arc<str>>, Arc<str>);

#[derive(Debug, Default, Clone, Copy)]
struct Losses {
    rows: u64,
    lost: i128,
    uncounted: u64,
}

/// `summary_losses`
pub(super) fn of(trace: &Directory, wall_offset: Option<i64>) -> Result<SummaryTable> {
    let mut found: BTreeMap<Key, Losses> = BTreeMap::new();
    let mut texts = Texts::default();
    for batch in trace.read(tables::losses::NAME)? {
        for row in BatchRow::all(&batch?) {
            let hour = hour_of(row.i64("time"), wall_offset);
            let event = row.text("event").map(|event| texts.once(event));
            let reason = texts.once(row.text("reason").unwrap_or_default());
            let losses = found.entry((hour, event, reason)).or_default();
            losses.rows += 1;
            match row.i64("count") {
                Some(count) => losses.lost += i128::from(count),
                None => losses.uncounted += 1,
            }
        }
    }
    let rows = found.into_iter().map(|((hour, event, reason), losses)| {
        vec![
            Value::Number(hour),
            Value::Text(event),
            Value::Text(Some(reason)),
            Value::count(losses.rows),
            match losses.rows > losses.uncounted {
                true => Value::sum(losses.lost),
                false => Value::Number(None),
            },
            Value::count(losses.uncounted),
        ]
    });
    Ok(SummaryTable::new(
        tables::summary_losses::schema(),
        rows.collect(),
    ))
}
