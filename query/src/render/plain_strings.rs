//! Strings in the layout that every reader of Arrow knows: pandas cannot read views, above all in lists.

use std::sync::Arc;

use anyhow::Result;
use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};

use super::Rows;

/// Passes rows on without views.
pub(super) struct PlainStrings<'w> {
    pub(super) rows: Box<dyn Rows + 'w>,
    pub(super) schema: SchemaRef,
}

impl Rows for PlainStrings<'_> {
    fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows.rows(&with_schema(batch, &self.schema)?)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.rows.finish()
    }
}

/// Returns rows without views.
pub(crate) fn of(batch: &RecordBatch) -> Result<RecordBatch> {
    with_schema(batch, &schema(&batch.schema()))
}

fn with_schema(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(
        |(column, field)| match column.data_type() == field.data_type() {
            true => Ok(Arc::clone(column)),
            false => cast(column, field.data_type()),
        },
    );
    let columns: Result<Vec<_>, _> = columns.collect();
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        columns?,
        &rows,
    )?)
}

/// Returns a schema without views.
pub(crate) fn schema(schema: &Schema) -> SchemaRef {
    let fields: Vec<FieldRef> = schema.fields().iter().map(field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn field(field: &FieldRef) -> FieldRef {
    Arc::new(Field::clone(field).with_data_type(kind(field.data_type())))
}

fn kind(of: &DataType) -> DataType {
    match of {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::List(item) | DataType::ListView(item) => DataType::List(field(item)),
        DataType::LargeList(item) | DataType::LargeListView(item) => {
            DataType::LargeList(field(item))
        }
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(field(item), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(field).collect()),
        DataType::Map(entries, is_sorted) => DataType::Map(field(entries), *is_sorted),
        DataType::Dictionary(key, value) => {
            DataType::Dictionary(key.clone(), Box::new(kind(value)))
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, ListArray, StringViewArray};
    use arrow::buffer::OffsetBuffer;

    struct Kept(Vec<RecordBatch>);

    impl Rows for &mut Kept {
        fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
            self.0.push(batch.clone());
            Ok(())
        }

        fn finish(self: Box<Self>) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lists_hold_plain_strings() {
        let strings: ArrayRef = Arc::new(StringViewArray::from(vec!["a", "b", "c"]));
        let item = Arc::new(Field::new("item", DataType::Utf8View, true));
        let lists = ListArray::new(item, OffsetBuffer::from_lengths([1, 2]), strings, None);
        let batch = RecordBatch::try_from_iter([("l", Arc::new(lists) as ArrayRef)]).unwrap();
        let mut kept = Kept(Vec::new());
        let plain = schema(&batch.schema());
        let mut rows = PlainStrings {
            rows: Box::new(&mut kept),
            schema: Arc::clone(&plain),
        };
        rows.rows(&batch).unwrap();
        drop(rows);
        let expected = DataType::new_list(DataType::Utf8, true);
        assert_eq!(kept.0[0].column(0).data_type(), &expected);
    }
}
