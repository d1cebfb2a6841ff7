//! Values of events as text.

use std::borrow::Cow;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use perfquet_events::event::Value;

use super::batch::{COMMON, text_at, value_at};

/// Returns the columns of an event's fields with their names.
pub(super) fn fields(batch: &RecordBatch) -> Vec<(String, &dyn Array)> {
    let schema = batch.schema_ref().fields().iter();
    let columns = schema.zip(batch.columns()).skip(*COMMON);
    columns
        .map(|(field, column)| (field.name().clone(), column.as_ref()))
        .collect()
}

/// A field's value: a number or text. Lists are text in brackets, bytes are hexadecimal.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell<'b> {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Float(f64),
    Text(Cow<'b, str>),
}

impl<'b> Cell<'b> {
    /// Returns the value in a row of a column.
    pub(super) fn at(column: &'b dyn Array, row: usize) -> Cell<'b> {
        if column.is_null(row) {
            return Cell::Null;
        }
        match value_at(column, row) {
            Value::Bool(truth) => Cell::Bool(truth),
            Value::Int(number) => Cell::Int(number),
            Value::UInt(number) => Cell::UInt(number),
            Value::Float(number) => Cell::Float(number),
            Value::Bytes(bytes) if *column.data_type() == DataType::Binary => {
                let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                Cell::Text(digits.into())
            }
            Value::Bytes(text) => Cell::Text(String::from_utf8_lossy(text)),
            Value::IntList(numbers) => Cell::Text(format!("{numbers:?}").into()),
            Value::UIntList(numbers) => Cell::Text(format!("{numbers:?}").into()),
            Value::Null | Value::Array(_) | Value::TextList(_) => {
                Cell::Text(texts_at(column, row).into())
            }
        }
    }

    /// Returns the value as text; empty for NULL.
    pub(super) fn text(&self) -> Cow<'_, str> {
        match self {
            Cell::Null => Cow::Borrowed(""),
            Cell::Bool(truth) => truth.to_string().into(),
            Cell::Int(number) => number.to_string().into(),
            Cell::UInt(number) => number.to_string().into(),
            Cell::Float(number) => number.to_string().into(),
            Cell::Text(text) => Cow::Borrowed(text),
        }
    }
}

/// Formats a list of strings: `[a, b]`.
fn texts_at(column: &dyn Array, row: usize) -> String {
    let Some(list) = column.as_list_opt::<i32>() else {
        return String::new();
    };
    let list = list.value(row);
    let texts = (0..list.len()).map(|index| text_at(list.as_ref(), index).unwrap_or_default());
    format!("[{}]", texts.collect::<Vec<_>>().join(", "))
}

/// Parses a counter in a marker of Android's systrace: `C|PID|NAME|VALUE`. The value is a number.
pub(super) fn counter_of(marker: &str) -> Option<(i32, &str, &str)> {
    let mut parts = marker.trim_end().strip_prefix("C|")?.splitn(3, '|');
    let pid = parts.next()?.parse().ok()?;
    let name = parts.next()?;
    let value = parts.next()?;
    let is_number = value.parse::<f64>().is_ok_and(f64::is_finite);
    is_number.then_some((pid, name, value))
}

/// Returns whether an event's text may be a marker of Android's systrace.
pub(super) fn is_marker(event: &str) -> bool {
    matches!(event, "ftrace:print" | "ftrace:tracing_mark_write")
}
