//! Rows of record batches: columns by name, and values of any type.

use std::sync::LazyLock;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow_array::{Array, Int32Array, Int64Array, RecordBatch};
use arrow_schema::DataType;
use perfquet_events::event::Value;
use perfquet_trace::tables;

/// Number of common columns at the beginning of every event table.
pub(super) static COMMON: LazyLock<usize> = LazyLock::new(|| tables::common::columns().len());

/// The common columns of a row.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Head<'b> {
    pub(super) time: Option<i64>,
    pub(super) cpu: Option<i32>,
    pub(super) pid: Option<i32>,
    pub(super) tid: Option<i32>,
    pub(super) comm: Option<&'b str>,
    pub(super) kernel_stack: Option<i32>,
    pub(super) user_stack: Option<i32>,
}

/// The common columns of a batch, each looked up once.
pub(super) struct Heads<'b> {
    time: Option<&'b Int64Array>,
    cpu: Option<&'b Int32Array>,
    pid: Option<&'b Int32Array>,
    tid: Option<&'b Int32Array>,
    comm: Option<&'b dyn Array>,
    kernel_stack: Option<&'b Int32Array>,
    user_stack: Option<&'b Int32Array>,
}

impl<'b> Heads<'b> {
    pub(super) fn of(batch: &'b RecordBatch) -> Heads<'b> {
        let int = |name| batch.column_by_name(name)?.as_primitive_opt::<Int32Type>();
        Heads {
            time: i64_column(batch, "time"),
            cpu: int("cpu"),
            pid: int("pid"),
            tid: int("tid"),
            comm: column(batch, "comm"),
            kernel_stack: int("kernel_stack"),
            user_stack: int("user_stack"),
        }
    }

    pub(super) fn row(&self, row: usize) -> Head<'b> {
        let int = |column: Option<&Int32Array>| {
            let column = column?;
            column.is_valid(row).then(|| column.value(row))
        };
        Head {
            time: i64_at(self.time, row),
            cpu: int(self.cpu),
            pid: int(self.pid),
            tid: int(self.tid),
            comm: self.comm.and_then(|column| text_at(column, row)),
            kernel_stack: int(self.kernel_stack),
            user_stack: int(self.user_stack),
        }
    }
}

/// Returns a column of 64-bit integers; `None` if the batch lacks it.
pub(super) fn i64_column<'b>(batch: &'b RecordBatch, name: &str) -> Option<&'b Int64Array> {
    batch.column_by_name(name)?.as_primitive_opt::<Int64Type>()
}

pub(super) fn i64_at(column: Option<&Int64Array>, row: usize) -> Option<i64> {
    let column = column?;
    column.is_valid(row).then(|| column.value(row))
}

/// Returns a column of any type; `None` if the batch lacks it.
pub(super) fn column<'b>(batch: &'b RecordBatch, name: &str) -> Option<&'b dyn Array> {
    batch.column_by_name(name).map(AsRef::as_ref)
}

/// One row of any table.
#[derive(Clone, Copy)]
pub(super) struct BatchRow<'a> {
    pub(super) batch: &'a RecordBatch,
    pub(super) row: usize,
}

impl<'a> BatchRow<'a> {
    /// Returns all rows of a batch.
    pub(super) fn all(batch: &'a RecordBatch) -> impl Iterator<Item = BatchRow<'a>> {
        (0..batch.num_rows()).map(move |row| BatchRow { batch, row })
    }

    /// Returns the common columns.
    pub(super) fn head(&self) -> Head<'a> {
        Head {
            time: self.i64("time"),
            cpu: self.i32("cpu"),
            pid: self.i32("pid"),
            tid: self.i32("tid"),
            comm: self.text("comm"),
            kernel_stack: self.i32("kernel_stack"),
            user_stack: self.i32("user_stack"),
        }
    }

    /// Reads a boolean column.
    pub(super) fn bool(&self, name: &str) -> Option<bool> {
        Some(self.column(name)?.as_boolean_opt()?.value(self.row))
    }

    fn column(&self, name: &str) -> Option<&'a dyn Array> {
        let column = self.batch.column_by_name(name)?;
        column.is_valid(self.row).then_some(column.as_ref())
    }

    /// Reads a column of 64-bit integers.
    pub(super) fn i64(&self, name: &str) -> Option<i64> {
        let column = self.column(name)?.as_primitive_opt::<Int64Type>()?;
        Some(column.value(self.row))
    }

    /// Reads a column of 32-bit integers.
    pub(super) fn i32(&self, name: &str) -> Option<i32> {
        let column = self.column(name)?.as_primitive_opt::<Int32Type>()?;
        Some(column.value(self.row))
    }

    /// Reads a column of floating-point numbers.
    pub(super) fn f64(&self, name: &str) -> Option<f64> {
        let column = self.column(name)?.as_primitive_opt::<Float64Type>()?;
        Some(column.value(self.row))
    }

    /// Reads a column of addresses.
    pub(super) fn u64(&self, name: &str) -> Option<u64> {
        let column = self.column(name)?.as_primitive_opt::<UInt64Type>()?;
        Some(column.value(self.row))
    }

    /// Reads a string column.
    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        text_at(self.column(name)?, self.row)
    }

    /// Reads a column of lists of strings; empty for NULL.
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

    /// Returns the `count` columns after the common ones as values of an event's fields.
    pub(super) fn fields(&self, count: usize) -> Vec<Value<'a>> {
        let columns = self.batch.columns().iter().skip(*COMMON).take(count);
        columns
            .map(|column| value_at(column.as_ref(), self.row))
            .collect()
    }

    /// Reads a column of 64-bit integers after the `fields` fields of an event.
    pub(super) fn extra_i64(&self, name: &str, fields: usize) -> Option<i64> {
        let place = self.batch.schema_ref().index_of(name).ok()?;
        (place >= *COMMON + fields).then(|| self.i64(name))?
    }
}

/// Returns the string in a row; `None` for NULL and for columns of other types.
pub(super) fn text_at(column: &dyn Array, row: usize) -> Option<&str> {
    if column.is_null(row) {
        return None;
    }
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

/// Returns the value of a field; NULL for types that no field has.
pub(super) fn value_at(column: &dyn Array, row: usize) -> Value<'_> {
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
