//! Columns of a table in a lake: types that every engine reads and that do not depend on the kernel.
//!
//! ```text
//! trace     events/x/y: id uint32, ip bits, args list<uint64>, time int64
//! lake      id int64, ip int64, args list<int64>, time int64, trace string, host string, wall_time timestamp (us, UTC)
//! ```
//! Spark, Delta and Iceberg have no unsigned 64-bit type, so such values are the bits of a signed integer. A kernel
//! changes the width of an event's fields, and engines do not unite `int` and `bigint`: fields are 64-bit.

use std::collections::HashSet;
use std::sync::Arc;

use anyhow::Result;
use arrow_array::builder::{Int64Builder, ListBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, Float64Array, Int64Array, ListArray, PrimitiveArray, RecordBatch,
    StringArray, TimestampMicrosecondArray, new_null_array,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use perfquet_trace::store::{ColumnSchema, ColumnType, Encoding};
use perfquet_trace::tables;

use super::super::values::Cell;

/// Columns that a lake adds.
pub(super) const TRACE: &str = "trace";
pub(in super::super) const HOST: &str = "host";
pub(in super::super) const DATE: &str = "date";
const WALL_TIME: &str = "wall_time";

/// The columns of a file in a lake.
pub(super) struct Columns {
    pub(super) schema: SchemaRef,
    contents: Vec<Content>,
    pub(super) encodings: Vec<Encoding>,
}

/// Origin of a column's values.
enum Content {
    /// The column of the trace with this name.
    Stored(String),
    Constant(String),
    /// From `time`.
    WallTime(Option<i64>),
}

impl Columns {
    /// The columns of a table, whose forms have these columns together. `host` is `None` if it is part of the path.
    pub(super) fn new(
        table: &str,
        columns: &[ColumnSchema],
        trace: &str,
        host: Option<&str>,
        wall_offset: Option<i64>,
    ) -> Columns {
        let mut taken: HashSet<String> = [TRACE, HOST, DATE, WALL_TIME].map(str::to_owned).into();
        let mut built = Columns {
            schema: Arc::new(Schema::empty()),
            contents: Vec::new(),
            encodings: Vec::new(),
        };
        let mut fields = Vec::new();
        for column in columns {
            // Some engines ignore case, and a field may have the name of an added column.
            let mut name = column.name.clone();
            while !taken.insert(name.to_lowercase()) {
                name.push_str("_field");
            }
            fields.push(Field::new(name, published_type(table, column), true));
            built.contents.push(Content::Stored(column.name.clone()));
            built.encodings.push(column.encoding);
        }
        let mut add = |name: &str, kind, content, encoding| {
            fields.push(Field::new(name, kind, true));
            built.contents.push(content);
            built.encodings.push(encoding);
        };
        if columns.iter().any(|column| column.name == "time") {
            let kind = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
            let content = Content::WallTime(wall_offset);
            add(WALL_TIME, kind, content, Encoding::Delta);
        }
        let text = |value: &str| Content::Constant(value.to_owned());
        add(TRACE, DataType::Utf8, text(trace), Encoding::Dictionary);
        if let Some(host) = host {
            add(HOST, DataType::Utf8, text(host), Encoding::Dictionary);
        }
        built.schema = Arc::new(Schema::new(fields));
        built
    }

    /// Names in the trace and in the lake, of columns whose names differ.
    pub(super) fn renamed(&self) -> Vec<(String, String)> {
        let names = self.schema.fields().iter().zip(&self.contents);
        let renamed = names.filter_map(|(field, content)| match content {
            Content::Stored(name) if name != field.name() => {
                Some((name.clone(), field.name().clone()))
            }
            Content::Stored(_) | Content::Constant(_) | Content::WallTime(_) => None,
        });
        renamed.collect()
    }

    /// Rows of the trace as rows of the lake.
    pub(super) fn convert(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let contents = self.schema.fields().iter().zip(&self.contents);
        let arrays = contents.map(|(field, content)| {
            Ok(match content {
                Content::Stored(name) => match batch.column_by_name(name) {
                    Some(array) => converted(array, field.data_type())?,
                    None => new_null_array(field.data_type(), rows),
                },
                Content::Constant(text) => {
                    Arc::new(StringArray::from_iter_values((0..rows).map(|_| text))) as ArrayRef
                }
                Content::WallTime(offset) => wall_times(batch, *offset),
            })
        });
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), arrays)?)
    }
}

/// `time` as microseconds since 1970; NULL if unknown or out of range.
fn wall_times(batch: &RecordBatch, offset: Option<i64>) -> ArrayRef {
    let times = batch.column_by_name("time");
    let times = times.and_then(|times| times.as_primitive_opt::<Int64Type>());
    let wall = |time: i64| Some(time.checked_add(offset?)?.div_euclid(1000));
    let rows = (0..batch.num_rows()).map(|row| {
        let times = times.filter(|times| times.is_valid(row))?;
        wall(times.value(row))
    });
    Arc::new(TimestampMicrosecondArray::from_iter(rows).with_timezone("UTC"))
}

/// The type of a column in a lake.
fn published_type(table: &str, column: &ColumnSchema) -> DataType {
    let common = tables::common::columns();
    let is_declared = !table.starts_with("events/")
        || common
            .iter()
            .any(|known| known.name == column.name && known.kind == column.kind);
    match column.kind {
        ColumnType::Bool if is_declared => DataType::Boolean,
        ColumnType::Int32 if is_declared => DataType::Int32,
        ColumnType::Bool
        | ColumnType::Int8
        | ColumnType::Int16
        | ColumnType::Int32
        | ColumnType::Int64
        | ColumnType::UInt8
        | ColumnType::UInt16
        | ColumnType::UInt32
        | ColumnType::UInt64
        | ColumnType::Bits
        | ColumnType::Int128 => DataType::Int64,
        ColumnType::Float64 => DataType::Float64,
        ColumnType::Text => DataType::Utf8,
        ColumnType::Binary => DataType::Binary,
        ColumnType::Int64List | ColumnType::UInt64List | ColumnType::BitsList => {
            DataType::List(item(DataType::Int64))
        }
        ColumnType::TextList => DataType::List(item(DataType::Utf8)),
    }
}

fn item(kind: DataType) -> Arc<Field> {
    Arc::new(Field::new("element", kind, true))
}

/// Values in the type of a lake's column: integers by their bits, a single value as a list of one, anything as text.
fn converted(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    if array.data_type() == to {
        return Ok(Arc::clone(array));
    }
    Ok(match to {
        DataType::Int64 => Arc::new(integers(array.as_ref())),
        DataType::Float64 => {
            let integers = integers(array.as_ref());
            let is_unsigned = *array.data_type() == DataType::UInt64;
            let number = |bits: i64| match is_unsigned {
                true => bits.cast_unsigned() as f64,
                false => bits as f64,
            };
            let values = integers.iter().map(|value| value.map(number));
            Arc::new(Float64Array::from_iter(values))
        }
        DataType::Binary => Arc::new(BinaryArray::from_iter(
            texts(array.as_ref())
                .iter()
                .map(|text| text.map(str::as_bytes)),
        )),
        DataType::List(field) => match array.as_list_opt::<i32>() {
            Some(lists) => Arc::new(ListArray::try_new(
                Arc::clone(field),
                lists.offsets().clone(),
                converted(lists.values(), field.data_type())?,
                lists.nulls().cloned(),
            )?),
            None => lists_of_one(array.as_ref(), field),
        },
        _ => Arc::new(texts(array.as_ref())),
    })
}

fn lists_of_one(array: &dyn Array, field: &Arc<Field>) -> ArrayRef {
    if *field.data_type() == DataType::Int64 {
        let mut lists = ListBuilder::new(Int64Builder::new()).with_field(Arc::clone(field));
        for value in &integers(array) {
            if let Some(value) = value {
                lists.values().append_value(value);
            }
            lists.append(value.is_some());
        }
        return Arc::new(lists.finish());
    }
    let mut lists = ListBuilder::new(StringBuilder::new()).with_field(Arc::clone(field));
    for value in &texts(array) {
        if let Some(value) = value {
            lists.values().append_value(value);
        }
        lists.append(value.is_some());
    }
    Arc::new(lists.finish())
}

/// Integers of any width, the unsigned ones of 64 bits by their bits. Other values are NULL.
fn integers(array: &dyn Array) -> Int64Array {
    fn of<T: ArrowPrimitiveType>(array: &dyn Array, wide: fn(T::Native) -> i64) -> Int64Array {
        let array: &PrimitiveArray<T> = array.as_primitive();
        array.iter().map(|value| value.map(wide)).collect()
    }
    match array.data_type() {
        DataType::Int8 => of::<Int8Type>(array, i64::from),
        DataType::Int16 => of::<Int16Type>(array, i64::from),
        DataType::Int32 => of::<Int32Type>(array, i64::from),
        DataType::Int64 => of::<Int64Type>(array, |value| value),
        DataType::UInt8 => of::<UInt8Type>(array, i64::from),
        DataType::UInt16 => of::<UInt16Type>(array, i64::from),
        DataType::UInt32 => of::<UInt32Type>(array, i64::from),
        DataType::UInt64 => of::<UInt64Type>(array, u64::cast_signed),
        DataType::Boolean => {
            let values = array.as_boolean().iter();
            values.map(|value| value.map(i64::from)).collect()
        }
        _ => Int64Array::from_iter((0..array.len()).map(|_| None::<i64>)),
    }
}

fn texts(array: &dyn Array) -> StringArray {
    let text = |row| match Cell::at(array, row) {
        Cell::Null => None,
        value => Some(value.text().into_owned()),
    };
    (0..array.len()).map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::types::Float64Type;
    use arrow_array::{BooleanArray, Int32Array, UInt64Array};

    fn column(name: &str, kind: ColumnType) -> ColumnSchema {
        ColumnSchema {
            name: name.to_owned(),
            kind,
            nullable: true,
            unit: String::new(),
            doc: String::new(),
            encoding: Encoding::Dictionary,
        }
    }

    #[test]
    fn every_integer_of_an_event_has_64_bits_with_a_sign() {
        use ColumnType::*;
        let kinds = [
            Bool, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Bits, Int128,
        ];
        for kind in kinds {
            let found = published_type("events/a/b", &column("x", kind));
            assert_eq!(found, DataType::Int64, "{kind:?}");
        }
        for kind in [UInt64List, BitsList, Int64List] {
            let found = published_type("events/a/b", &column("x", kind));
            assert_eq!(found, DataType::List(item(DataType::Int64)), "{kind:?}");
        }
        let declared = published_type("threads", &column("tid", Int32));
        assert_eq!(declared, DataType::Int32);
    }

    #[test]
    fn values_are_equal_by_their_bits() {
        let check = |array: ArrayRef, expected: &[Option<i64>]| {
            let found = converted(&array, &DataType::Int64).unwrap();
            assert_eq!(
                found.as_primitive::<Int64Type>(),
                &Int64Array::from(expected.to_vec())
            );
        };
        check(
            Arc::new(UInt64Array::from(vec![Some(u64::MAX), None])),
            &[Some(-1), None],
        );
        check(Arc::new(Int32Array::from(vec![-7])), &[Some(-7)]);
        check(Arc::new(BooleanArray::from(vec![true])), &[Some(1)]);
        let lists = ListArray::from_iter_primitive::<UInt64Type, _, _>([
            Some(vec![Some(u64::MAX), Some(2)]),
            None,
        ]);
        let lists: ArrayRef = Arc::new(lists);
        let found = converted(&lists, &DataType::List(item(DataType::Int64))).unwrap();
        let found = found.as_list::<i32>();
        assert_eq!(
            found.value(0).as_primitive::<Int64Type>().values(),
            &[-1, 2]
        );
        assert!(found.is_null(1));
        let single: ArrayRef = Arc::new(Int32Array::from(vec![Some(5), None]));
        let found = converted(&single, &DataType::List(item(DataType::Int64))).unwrap();
        assert_eq!(found.as_list::<i32>().value_length(0), 1);
        assert!(found.is_null(1));
        let text = converted(&single, &DataType::Utf8).unwrap();
        assert_eq!(text.as_string::<i32>().value(0), "5");
        let float = converted(
            &(Arc::new(UInt64Array::from(vec![1 << 63])) as ArrayRef),
            &DataType::Float64,
        );
        assert_eq!(
            float.unwrap().as_primitive::<Float64Type>().value(0),
            2f64.powi(63)
        );
    }

    #[test]
    fn fields_do_not_hide_added_columns() {
        let fields = ["time", "host", "Trace", "a", "A", "date"];
        let columns: Vec<_> = fields.map(|name| column(name, ColumnType::Int64)).into();
        let built = Columns::new("events/a/b", &columns, "t", Some("h"), Some(5));
        let names: Vec<&str> = built
            .schema
            .fields()
            .iter()
            .map(|f| f.name().as_str())
            .collect();
        assert_eq!(
            names,
            [
                "time",
                "host_field",
                "Trace_field",
                "a",
                "A_field",
                "date_field",
                "wall_time",
                "trace",
                "host"
            ]
        );
        let times: ArrayRef = Arc::new(Int64Array::from(vec![Some(2_999), Some(i64::MAX), None]));
        let batch = RecordBatch::try_from_iter([("time", times)]).unwrap();
        let rows = built.convert(&batch).unwrap();
        let wall = rows["wall_time"].as_primitive::<arrow_array::types::TimestampMicrosecondType>();
        assert_eq!(wall.iter().collect::<Vec<_>>(), [Some(3), None, None]);
        assert_eq!(rows["trace"].as_string::<i32>().value(2), "t");
        assert_eq!(rows["host_field"].null_count(), 3);
    }
}
