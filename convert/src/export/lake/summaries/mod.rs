//! `--summaries`: small tables from which questions about thousands of hosts are answered without their rows.
//!
//! ```text
//! samples 2.1 M rows ─► summary_functions  hour, event, function, module: samples, self and total weight
//!                       summary_stacks     hour, event, stack: samples, weight
//! calls   5.9 M rows ─► summary_durations  hour, function, module, duration (1,003 ns): calls, their total duration
//! losses              ─► summary_losses     hour, event, reason: losses, lost events
//! ```
//! Rows of several traces are merged by sums: `GROUP BY` without `hour`, `host` or `trace`. Sums are exact; a percentile of
//! `summary_durations` differs from the exact one by at most 1/128 of it (`histogram.rs`).

mod durations;
mod functions;
mod histogram;
mod losses;

use std::sync::Arc;

use anyhow::Result;
use arrow_array::builder::{BooleanBuilder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use perfquet_trace::store::{Directory, TableSchema};

/// Part of the checksum of a trace with summaries: its files are written again when these change.
pub(super) const FORM: &str = "summaries 1";

/// Rows in a batch.
const AT_ONCE: usize = 1 << 16;

const HOUR_NS: i64 = 3_600_000_000_000;

/// A table that is made of others.
pub(super) struct SummaryTable {
    pub(super) schema: TableSchema,
    rows: Vec<Vec<Value>>,
}

/// A cell of a row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    Bool(bool),
    Number(Option<i64>),
    Text(Option<Arc<str>>),
}

impl Value {
    /// A sum; NULL if it exceeds 64 bits.
    fn sum(sum: i128) -> Value {
        Value::Number(i64::try_from(sum).ok())
    }

    fn count(count: u64) -> Value {
        Value::Number(i64::try_from(count).ok())
    }
}

/// Returns the summaries of a trace that have rows.
pub(super) fn of(trace: &Directory) -> Result<Vec<SummaryTable>> {
    let offset = trace.manifest().facts.wall_offset;
    let mut tables = functions::of(trace, offset)?;
    tables.push(durations::of(trace, offset)?);
    tables.push(losses::of(trace, offset)?);
    tables.retain(|table| !table.rows.is_empty());
    Ok(tables)
}

/// The start of the hour of a time, in seconds since 1970.
fn hour_of(time: Option<i64>, wall_offset: Option<i64>) -> Option<i64> {
    let wall = time?.checked_add(wall_offset?)?;
    Some(wall.div_euclid(HOUR_NS) * (HOUR_NS / 1_000_000_000))
}

impl SummaryTable {
    /// The rows are sorted by the hour, unknown ones first, and the other columns.
    fn new(schema: TableSchema, mut rows: Vec<Vec<Value>>) -> SummaryTable {
        rows.sort_unstable();
        SummaryTable { schema, rows }
    }

    /// Number of rows.
    pub(super) fn rows(&self) -> u64 {
        self.rows.len() as u64
    }

    /// Returns the rows in batches.
    pub(super) fn batches(&self) -> impl Iterator<Item = Result<RecordBatch>> {
        self.rows.chunks(AT_ONCE).map(|rows| self.batch(rows))
    }

    fn batch(&self, rows: &[Vec<Value>]) -> Result<RecordBatch> {
        let columns = self.schema.columns.iter().enumerate();
        let columns = columns.map(|(place, column)| {
            let array = array(rows.iter().filter_map(|row| row.get(place)));
            (column.name.as_str(), array, true)
        });
        Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
    }
}

/// Values of one kind as a column.
fn array<'v>(values: impl Iterator<Item = &'v Value>) -> ArrayRef {
    let (mut bools, mut numbers) = (BooleanBuilder::new(), Int64Builder::new());
    let mut texts = StringBuilder::new();
    for value in values {
        match value {
            Value::Bool(value) => bools.append_value(*value),
            Value::Number(value) => numbers.append_option(*value),
            Value::Text(value) => texts.append_option(value.as_deref()),
        }
    }
    let (bools, numbers, texts) = (bools.finish(), numbers.finish(), texts.finish());
    if !arrow_array::Array::is_empty(&bools) {
        return Arc::new(bools);
    }
    if !arrow_array::Array::is_empty(&numbers) {
        return Arc::new(numbers);
    }
    Arc::new(texts)
}

/// Texts, each once in memory.
#[derive(Default)]
struct Texts(std::collections::HashSet<Arc<str>>);

impl Texts {
    fn once(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = text.into();
        self.0.insert(Arc::clone(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_begin_at_full_hours_of_the_wall_clock() {
        let at = |time, offset| hour_of(Some(time), Some(offset));
        assert_eq!(at(0, 0), Some(0));
        assert_eq!(at(HOUR_NS - 1, 0), Some(0));
        assert_eq!(at(HOUR_NS - 1, 1), Some(3_600));
        assert_eq!(at(-1, 0), Some(-3_600));
        assert_eq!(at(i64::MAX, 1), None);
        assert_eq!(hour_of(None, Some(1)), None);
        assert_eq!(hour_of(Some(1), None), None);
    }

    #[test]
    fn sums_beyond_64_bits_are_unknown() {
        let most = i128::from(i64::MAX);
        assert_eq!(Value::sum(most), Value::Number(Some(i64::MAX)));
        assert_eq!(Value::sum(most + 1), Value::Number(None));
    }
}
