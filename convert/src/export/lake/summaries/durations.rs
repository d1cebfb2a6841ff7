//! Durations of calls by hour and function, as bars of histograms.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use perfquet_trace::store::Directory;
use perfquet_trace::tables;

use super::super::super::batch::{column, i64_at, i64_column, text_at};
use super::histogram::middle;
use super::{SummaryTable, Texts, Value, hour_of};

/// Hour, function, module.
type Key = (Option<i64>, Option<Arc<str>>, Option<Arc<str>>);

/// Calls of a bar.
#[derive(Debug, Default, Clone, Copy)]
struct Bar {
    calls: u64,
    total: i128,
}

/// `summary_durations`
pub(super) fn of(trace: &Directory, wall_offset: Option<i64>) -> Result<SummaryTable> {
    let mut histograms: HashMap<Key, HashMap<Option<i64>, Bar>> = HashMap::new();
    let mut texts = Texts::default();
    let name = tables::calls::NAME;
    for form in trace.forms(name) {
        let has = |wanted: &&str| form.columns.iter().any(|column| column.name == *wanted);
        let wanted = ["time", "duration", "function", "module"];
        let wanted: Vec<&str> = wanted.into_iter().filter(has).collect();
        for batch in trace.read_form_columns(&form, &wanted)? {
            let batch = batch?;
            let (times, durations) = (i64_column(&batch, "time"), i64_column(&batch, "duration"));
            let (functions, modules) = (column(&batch, "function"), column(&batch, "module"));
            for row in 0..batch.num_rows() {
                let mut text = |column: Option<&dyn arrow_array::Array>| {
                    Some(texts.once(text_at(column?, row)?))
                };
                let hour = hour_of(i64_at(times, row), wall_offset);
                let key = (hour, text(functions), text(modules));
                let duration = i64_at(durations, row);
                let bars = histograms.entry(key).or_default();
                let bar = bars.entry(duration.map(middle)).or_default();
                bar.calls += 1;
                bar.total += i128::from(duration.unwrap_or(0));
            }
        }
    }
    let mut rows = Vec::new();
    for ((hour, function, module), bars) in histograms {
        for (duration, bar) in bars {
            rows.push(vec![
                Value::Number(hour),
                Value::Text(function.clone()),
                Value::Text(module.clone()),
                Value::Number(duration),
                Value::count(bar.calls),
                match duration {
                    Some(_) => Value::sum(bar.total),
                    None => Value::Number(None),
                },
            ]);
        }
    }
    Ok(SummaryTable::new(tables::summary_durations::schema(), rows))
}
