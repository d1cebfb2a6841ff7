//! Addresses and masks as people write them: `0xffffffff81000000` instead of 18446744071578845184.
//!
//! In tables, CSV and JSON, whose numbers lose digits beyond 2^53. Parquet and Arrow keep integers.

use std::sync::Arc;

use anyhow::Result;
use arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};

use perfquet::unit::{UNIT, is_hexadecimal};
use perfquet_trace::store::with_items;

use super::Rows;

/// The columns of `schema` that are written in hexadecimal.
pub(super) fn columns(schema: &Schema) -> Vec<usize> {
    let is_one = |field: &Field| {
        let unit = field.metadata().get(UNIT);
        let is_unsigned = match field.data_type() {
            DataType::List(item) => *item.data_type() == DataType::UInt64,
            kind => *kind == DataType::UInt64,
        };
        is_unsigned && unit.is_some_and(|unit| is_hexadecimal(unit))
    };
    let fields = schema.fields().iter().enumerate();
    let found = fields.filter(|(_, field)| is_one(field));
    found.map(|(index, _)| index).collect()
}

/// `schema` with text in `columns`.
pub(super) fn shown(schema: &Schema, columns: &[usize]) -> SchemaRef {
    let fields = schema.fields().iter().enumerate().map(|(index, field)| {
        if !columns.contains(&index) {
            return field.as_ref().clone();
        }
        let kind = match field.data_type() {
            DataType::List(item) => {
                let item = item.as_ref().clone().with_data_type(DataType::Utf8);
                DataType::List(Arc::new(item))
            }
            _ => DataType::Utf8,
        };
        field.as_ref().clone().with_data_type(kind)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Rows that are written with `columns` in hexadecimal.
pub(super) struct Hexadecimal<'w> {
    pub(super) rows: Box<dyn Rows + 'w>,
    pub(super) schema: SchemaRef,
    pub(super) columns: Vec<usize>,
}

impl Rows for Hexadecimal<'_> {
    fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut arrays = batch.columns().to_vec();
        for &index in &self.columns {
            arrays[index] = texts(&arrays[index]);
        }
        self.rows
            .rows(&RecordBatch::try_new(Arc::clone(&self.schema), arrays)?)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.rows.finish()
    }
}

fn texts(array: &ArrayRef) -> ArrayRef {
    if let Some(values) = array.as_primitive_opt::<UInt64Type>() {
        let texts = values.iter().map(|value| Some(format!("{:#x}", value?)));
        return Arc::new(texts.collect::<StringArray>());
    }
    let lists = array.as_list::<i32>();
    Arc::new(with_items(lists, texts(lists.values())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::UInt64Array;
    use std::collections::HashMap;

    #[test]
    fn only_addresses_and_masks() {
        let number = |unit: &str| {
            let metadata = HashMap::from([(UNIT.to_owned(), unit.to_owned())]);
            Field::new("x", DataType::UInt64, true).with_metadata(metadata)
        };
        let schema = Schema::new(vec![number("ns"), number("address"), number("mask")]);
        assert_eq!(columns(&schema), [1, 2]);
        assert_eq!(*shown(&schema, &[1]).field(1).data_type(), DataType::Utf8);
    }

    #[test]
    fn values() {
        let values: ArrayRef = Arc::new(UInt64Array::from(vec![Some(u64::MAX), None]));
        let texts = texts(&values);
        let texts: Vec<_> = texts.as_string::<i32>().iter().collect();
        assert_eq!(texts, [Some("0xffffffffffffffff"), None]);
    }
}
