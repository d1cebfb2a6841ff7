//! The rows of `samples` and of all event tables, as one stream in time order.
//!
//! ```text
//! samples               1 4 7 …  ┐
//! sched.sched_switch    2 4 9 …  ├─►  1 2 4 4 5 7 9 …
//! sched.sched_wakeup    5 …      ┘
//! ```
//! Each table is already in time order; one batch of each is in memory. A table whose event changed its fields comes as
//! several tables, one per form.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::LazyLock;

use anyhow::{Context, Result};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use perfquet_events::Error;
use perfquet_events::event::Value;
use perfquet_trace::normalize::TimeRange;
use perfquet_trace::store::{ColumnSchema, Directory};
use perfquet_trace::tables;

/// Index of an event's table in [`Rows::tables`].
pub(super) type TableIndex = usize;

/// Number of common columns at the beginning of every event table.
static COMMON: LazyLock<usize> = LazyLock::new(|| tables::common::columns().len());

type Batches<'t> = Box<dyn Iterator<Item = Result<RecordBatch, Error>> + 't>;

/// All rows of events of a trace.
pub(super) struct MergedRows<'t> {
    tables: Vec<Table<'t>>,
    /// Time and table of the next row of each table.
    next: BinaryHeap<Reverse<(Option<i64>, TableIndex)>>,
    /// The table of the last row.
    current: Option<TableIndex>,
    window: Option<(i64, i64)>,
}

struct Table<'t> {
    /// The name in the manifest.
    name: &'t str,
    columns: Vec<ColumnSchema>,
    batches: Batches<'t>,
    batch: Option<RecordBatch>,
    row: usize,
}

impl<'t> MergedRows<'t> {
    /// Opens the tables. `time` is relative to the first event of the trace.
    pub(super) fn open(trace: &'t Directory, time: Option<TimeRange>) -> Result<MergedRows<'t>> {
        let is_of_events =
            |name: &&str| *name == tables::samples::NAME || name.starts_with("events/");
        let names = trace.tables().map(|(name, _)| name).filter(is_of_events);
        let mut rows = MergedRows {
            tables: Vec::new(),
            next: BinaryHeap::new(),
            current: None,
            window: time.map(|time| window(trace, time)),
        };
        for name in names {
            for form in trace.forms(name) {
                rows.tables.push(Table {
                    name,
                    batches: Box::new(trace.read_form(&form)?),
                    columns: form.columns,
                    batch: None,
                    row: 0,
                });
                rows.advance(rows.tables.len() - 1)?;
            }
        }
        Ok(rows)
    }

    /// The names of the tables, by index; the forms of an event share a name.
    pub(super) fn tables(&self) -> impl Iterator<Item = &'t str> {
        self.tables.iter().map(|table| table.name)
    }

    /// The columns of each table, by index.
    pub(super) fn columns(&self) -> Vec<Vec<ColumnSchema>> {
        let columns = self.tables.iter().map(|table| table.columns.clone());
        columns.collect()
    }

    /// The next row; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<MergedRow<'_>>> {
        loop {
            if let Some(table) = self.current.take() {
                self.tables[table].row += 1;
                self.advance(table)?;
            }
            let Some(Reverse((time, table))) = self.next.pop() else {
                return Ok(None);
            };
            self.current = Some(table);
            let wanted = self
                .window
                .is_none_or(|(start, end)| time.is_some_and(|time| (start..end).contains(&time)));
            if wanted {
                break;
            }
        }
        let table = self.current.context("a row has a table")?;
        let Table { batch, row, .. } = &self.tables[table];
        let batch = batch.as_ref().context("a row has a batch")?;
        Ok(Some(MergedRow {
            table,
            columns: BatchRow { batch, row: *row },
        }))
    }

    /// Puts the table's next row into the queue; reads the next batch if the current one is exhausted.
    fn advance(&mut self, index: TableIndex) -> Result<()> {
        let table = &mut self.tables[index];
        while table
            .batch
            .as_ref()
            .is_none_or(|batch| table.row >= batch.num_rows())
        {
            table.row = 0;
            table.batch = match table.batches.next() {
                Some(batch) => Some(batch?),
                None => return Ok(()),
            };
        }
        if let Some(batch) = &table.batch {
            let row = BatchRow {
                batch,
                row: table.row,
            };
            self.next.push(Reverse((row.i64("time"), index)));
        }
        Ok(())
    }
}

/// `time` on the trace's clock: first nanosecond, and first one past the end.
fn window(trace: &Directory, time: TimeRange) -> (i64, i64) {
    let first = trace
        .tables()
        .filter(|(name, _)| *name == tables::samples::NAME || name.starts_with("events/"))
        .filter_map(|(_, table)| table.time_range())
        .map(|(first, _)| first)
        .min()
        .unwrap_or(0);
    let at = |offset: i64| first.saturating_add(offset);
    (
        time.start.map_or(i64::MIN, at),
        time.end.map_or(i64::MAX, at),
    )
}

/// One row of a table of events.
#[derive(Clone, Copy)]
pub(super) struct MergedRow<'a> {
    pub(super) table: TableIndex,
    pub(super) columns: BatchRow<'a>,
}

/// One row of any table.
#[derive(Clone, Copy)]
pub(super) struct BatchRow<'a> {
    batch: &'a RecordBatch,
    row: usize,
}

impl<'a> BatchRow<'a> {
    /// All rows of a batch.
    pub(super) fn all(batch: &'a RecordBatch) -> impl Iterator<Item = BatchRow<'a>> {
        (0..batch.num_rows()).map(move |row| BatchRow { batch, row })
    }

    fn column(&self, name: &str) -> Option<&'a dyn Array> {
        let column = self.batch.column_by_name(name)?;
        column.is_valid(self.row).then_some(column.as_ref())
    }

    /// A column of 64-bit integers.
    pub(super) fn i64(&self, name: &str) -> Option<i64> {
        let column = self.column(name)?.as_primitive_opt::<Int64Type>()?;
        Some(column.value(self.row))
    }

    /// A column of 32-bit integers.
    pub(super) fn i32(&self, name: &str) -> Option<i32> {
        let column = self.column(name)?.as_primitive_opt::<Int32Type>()?;
        Some(column.value(self.row))
    }

    /// A column of floating-point numbers.
    pub(super) fn f64(&self, name: &str) -> Option<f64> {
        let column = self.column(name)?.as_primitive_opt::<Float64Type>()?;
        Some(column.value(self.row))
    }

    /// A column of addresses.
    pub(super) fn u64(&self, name: &str) -> Option<u64> {
        let column = self.column(name)?.as_primitive_opt::<UInt64Type>()?;
        Some(column.value(self.row))
    }

    /// A column of text.
    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        text_at(self.column(name)?, self.row)
    }

    /// A column of lists of text; empty for NULL.
    pub(super) fn texts(&self, name: &str) -> Vec<String> {
        let list = self
            .column(name)
            .and_then(|column| column.as_list_opt::<i32>());
        let Some(list) = list else {
            return Vec::new();
        };
        let values = list.value(self.row);
        (0..values.len())
            .filter_map(|index| text_at(values.as_ref(), index))
            .map(str::to_owned)
            .collect()
    }

    /// The `count` columns after the common ones, as values of an event's fields.
    pub(super) fn fields(&self, count: usize) -> Vec<Value<'a>> {
        let columns = self.batch.columns().iter().skip(*COMMON).take(count);
        columns
            .map(|column| value_at(column.as_ref(), self.row))
            .collect()
    }

    /// A column of 64-bit integers after the `fields` fields of an event.
    pub(super) fn extra_i64(&self, name: &str, fields: usize) -> Option<i64> {
        let place = self.batch.schema_ref().index_of(name).ok()?;
        (place >= *COMMON + fields).then(|| self.i64(name))?
    }
}

/// The string in a row that is not NULL.
pub(super) fn text_at(column: &dyn Array, row: usize) -> Option<&str> {
    match column.data_type() {
        DataType::Utf8 => Some(column.as_string_opt::<i32>()?.value(row)),
        DataType::LargeUtf8 => Some(column.as_string_opt::<i64>()?.value(row)),
        DataType::Utf8View => Some(column.as_string_view_opt()?.value(row)),
        DataType::Dictionary(..) => {
            let dictionary = column.as_any_dictionary_opt()?;
            let key = *dictionary.normalized_keys().get(row)?;
            text_at(dictionary.values().as_ref(), key)
        }
        _ => None,
    }
}

/// A field's value; NULL for types that no field has.
fn value_at(column: &dyn Array, row: usize) -> Value<'_> {
    if column.is_null(row) {
        return Value::Null;
    }
    macro_rules! number {
        ($type:ty, $value:ident, $wide:ty) => {
            match column.as_primitive_opt::<$type>() {
                Some(column) => Value::$value(<$wide>::from(column.value(row))),
                None => Value::Null,
            }
        };
    }
    match column.data_type() {
        DataType::Boolean => match column.as_boolean_opt() {
            Some(column) => Value::Bool(column.value(row)),
            None => Value::Null,
        },
        DataType::Int8 => number!(Int8Type, Int, i64),
        DataType::Int16 => number!(Int16Type, Int, i64),
        DataType::Int32 => number!(Int32Type, Int, i64),
        DataType::Int64 => number!(Int64Type, Int, i64),
        DataType::UInt8 => number!(UInt8Type, UInt, u64),
        DataType::UInt16 => number!(UInt16Type, UInt, u64),
        DataType::UInt32 => number!(UInt32Type, UInt, u64),
        DataType::UInt64 => number!(UInt64Type, UInt, u64),
        DataType::Float64 => number!(Float64Type, Float, f64),
        DataType::Binary => match column.as_binary_opt::<i32>() {
            Some(column) => Value::Bytes(column.value(row)),
            None => Value::Null,
        },
        DataType::List(_) => list_at(column, row).unwrap_or(Value::Null),
        _ => match text_at(column, row) {
            Some(text) => Value::Bytes(text.as_bytes()),
            None => Value::Null,
        },
    }
}

fn list_at(column: &dyn Array, row: usize) -> Option<Value<'_>> {
    let list = column.as_list_opt::<i32>()?;
    let offsets = list.value_offsets();
    let start = usize::try_from(*offsets.get(row)?).ok()?;
    let end = usize::try_from(*offsets.get(row + 1)?).ok()?;
    let values = list.values();
    if let Some(values) = values.as_primitive_opt::<Int64Type>() {
        return Some(Value::IntList(values.values().get(start..end)?));
    }
    let values = values.as_primitive_opt::<UInt64Type>()?;
    Some(Value::UIntList(values.values().get(start..end)?))
}
