//! Reads the rows of one part from a file of a lake, which has rows of several parts, in wider types and with more columns.
//!
//! ```text
//! file    ids int64, host_field string, time int64, trace string     rows 0–99 of trace a, 100–140 of b
//! part b  ids uint32, host text, time int64                          rows 100–140
//! ```

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    ArrowPrimitiveType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type,
};
use arrow_array::{ArrayRef, BooleanArray, PrimitiveArray, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, Field, Schema};
use parquet::arrow::arrow_reader::{RowSelection, RowSelector};
use parquet::file::metadata::ParquetMetaData;

use super::logical::unsigned;
use super::manifest::{Part, PartRange};
use super::table::{ColumnSchema, ColumnType};

/// Whether the files of a lake hold values of this type as the bits of signed integers.
pub fn is_published_as_bits(kind: ColumnType) -> bool {
    matches!(
        kind,
        ColumnType::UInt64 | ColumnType::UInt64List | ColumnType::Bits | ColumnType::BitsList
    )
}

/// The rows of a part, as readers see those of its trace: those of `columns` that the batch has, in this order.
pub(super) fn as_published(
    columns: &[ColumnSchema],
    part: &Part,
    batch: &RecordBatch,
) -> Result<RecordBatch, ArrowError> {
    let (mut fields, mut arrays) = (Vec::new(), Vec::new());
    for column in columns {
        let stored = part.stored(&column.name).unwrap_or(&column.name);
        let Some(array) = batch.column_by_name(stored) else {
            continue;
        };
        let array = match is_published_as_bits(column.kind) {
            true => unsigned(array),
            false => narrowed(array, column.kind)?,
        };
        fields.push(Field::new(&column.name, array.data_type().clone(), true));
        arrays.push(array);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)
}

/// 64-bit integers in the type of the trace; other values as they are.
fn narrowed(array: &ArrayRef, kind: ColumnType) -> Result<ArrayRef, ArrowError> {
    let Some(wide) = array.as_primitive_opt::<Int64Type>() else {
        return Ok(Arc::clone(array));
    };
    fn of<T: ArrowPrimitiveType>(wide: &PrimitiveArray<Int64Type>) -> Result<ArrayRef, ArrowError>
    where
        T::Native: TryFrom<i64>,
    {
        let narrow = wide.try_unary::<_, T, ArrowError>(|value| {
            T::Native::try_from(value).map_err(|_| {
                let kind = T::DATA_TYPE;
                ArrowError::CastError(format!("expected a value of type {kind}, found {value}"))
            })
        });
        Ok(Arc::new(narrow?))
    }
    match kind {
        ColumnType::Bool => {
            let bits = wide.iter().map(|value| value.map(|value| value != 0));
            Ok(Arc::new(bits.collect::<BooleanArray>()))
        }
        ColumnType::Int8 => of::<Int8Type>(wide),
        ColumnType::Int16 => of::<Int16Type>(wide),
        ColumnType::Int32 => of::<Int32Type>(wide),
        ColumnType::UInt8 => of::<UInt8Type>(wide),
        ColumnType::UInt16 => of::<UInt16Type>(wide),
        ColumnType::UInt32 => of::<UInt32Type>(wide),
        ColumnType::Int64
        | ColumnType::UInt64
        | ColumnType::Bits
        | ColumnType::Int128
        | ColumnType::Float64
        | ColumnType::Text
        | ColumnType::Binary
        | ColumnType::Int64List
        | ColumnType::UInt64List
        | ColumnType::BitsList
        | ColumnType::TextList => Ok(Arc::clone(array)),
    }
}

/// The row groups with rows of a part among `groups`, and which of their rows are the part's. The third value is the part's number of
/// rows in other row groups.
pub(super) fn selected(
    metadata: &ParquetMetaData,
    rows: u64,
    range: PartRange,
    groups: &[usize],
) -> (Vec<usize>, RowSelection, u64) {
    let end = range.first_row.saturating_add(rows);
    let (mut chosen, mut selectors, mut skipped) = (Vec::new(), Vec::new(), 0u64);
    let mut start = 0u64;
    for (index, group) in metadata.row_groups().iter().enumerate() {
        let length = u64::try_from(group.num_rows()).unwrap_or_default();
        let first = range.first_row.clamp(start, start.saturating_add(length));
        let last = end.clamp(start, start.saturating_add(length));
        let count = |rows: u64| usize::try_from(rows).unwrap_or(usize::MAX);
        if first < last && groups.contains(&index) {
            chosen.push(index);
            let after = start.saturating_add(length).saturating_sub(last);
            selectors.extend([
                RowSelector::skip(count(first.saturating_sub(start))),
                RowSelector::select(count(last.saturating_sub(first))),
                RowSelector::skip(count(after)),
            ]);
        } else {
            skipped = skipped.saturating_add(last.saturating_sub(first));
        }
        start = start.saturating_add(length);
    }
    (chosen, RowSelection::from(selectors), skipped)
}
