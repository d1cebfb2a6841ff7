//! Rows of several files of a lake in one file.
//!
//! ```text
//! rows 0–99 of a-1f….parquet, 0–40 of b-2c….parquet  ─►  compact.7d….parquet: 0–99 and 100–140
//! ```

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::{Field, Schema, SchemaRef};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
};
use parquet::basic::Encoding as PageEncoding;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterPropertiesBuilder;
use parquet::schema::types::ColumnPath;
use perfquet_trace::lake::EntryRows;

use super::tables::{Writer, properties};

/// Rows of a file of the lake.
#[derive(Debug, Clone)]
pub(super) struct Slice {
    pub(super) path: PathBuf,
    pub(super) rows: EntryRows,
}

/// Writes the rows of all slices, in this order, to a new file, and syncs it. Returns `None`, and writes nothing, if their columns cannot be
/// those of one file.
pub(super) fn merge(slices: &[Slice], path: &Path) -> Result<Option<u64>> {
    let mut files: BTreeMap<&Path, ArrowReaderMetadata> = BTreeMap::new();
    for slice in slices {
        if !files.contains_key(slice.path.as_path()) {
            let failed = || format!("cannot read {}", slice.path.display());
            let file = File::open(&slice.path).with_context(failed)?;
            let metadata = ArrowReaderMetadata::load(&file, Default::default());
            files.insert(&slice.path, metadata.with_context(failed)?);
        }
    }
    let in_order = slices.iter().map(|slice| &files[slice.path.as_path()]);
    let in_order: Vec<&ArrowReaderMetadata> = in_order.collect();
    let Some(schema) = united(in_order.iter().map(|file| file.schema())) else {
        return Ok(None);
    };
    let properties = encoded(properties(facts(&in_order)), &in_order);
    let mut writer = Writer::create(path, &schema, properties)?;
    let mut rows = 0;
    for slice in slices {
        let failed = || format!("cannot read {}", slice.path.display());
        let file = File::open(&slice.path).with_context(failed)?;
        let metadata = files[slice.path.as_path()].clone();
        let selected = RowSelection::from(vec![
            RowSelector::skip(slice.rows.first as usize),
            RowSelector::select(slice.rows.count as usize),
        ]);
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
            .with_row_selection(selected)
            .build()
            .with_context(failed)?;
        let mut found = 0;
        for batch in reader {
            let batch = batch.with_context(failed)?;
            found += batch.num_rows() as u64;
            writer.write(&with_columns(&batch, &schema)?)?;
        }
        if found != slice.rows.count {
            let expected = slice.rows.count;
            anyhow::bail!(
                "{}: expected {expected} rows, found {found}",
                slice.path.display()
            );
        }
        rows += found;
    }
    writer.finish()?;
    Ok(Some(rows))
}

/// All columns by name; `None` if one has several types, or names differ only by case, which some engines ignore.
fn united<'s>(schemas: impl Iterator<Item = &'s SchemaRef>) -> Option<SchemaRef> {
    let mut fields: Vec<Arc<Field>> = Vec::new();
    for field in schemas.flat_map(|schema| schema.fields()) {
        match fields.iter().find(|known| known.name() == field.name()) {
            Some(known) if known.data_type() != field.data_type() => return None,
            Some(_) => {}
            None => fields.push(Arc::new(Field::new(
                field.name(),
                field.data_type().clone(),
                true,
            ))),
        }
    }
    let names: HashSet<String> = fields
        .iter()
        .map(|field| field.name().to_lowercase())
        .collect();
    (names.len() == fields.len()).then(|| Arc::new(Schema::new(fields)))
}

fn with_columns(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let column = |field: &Arc<Field>| -> ArrayRef {
        match batch.column_by_name(field.name()) {
            Some(array) => Arc::clone(array),
            None => new_null_array(field.data_type(), batch.num_rows()),
        }
    };
    let arrays = schema.fields().iter().map(column).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        arrays,
        &options,
    )?)
}

/// The metadata that all files have in common, and what some say of a column.
fn facts(files: &[&ArrowReaderMetadata]) -> Vec<KeyValue> {
    let mut facts: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    let mut differing = HashSet::new();
    for file in files {
        let pairs = file.metadata().file_metadata().key_value_metadata();
        for pair in pairs.into_iter().flatten() {
            let Some(value) = &pair.value else {
                continue;
            };
            let (known, count) = facts.entry(&pair.key).or_insert((value, 0));
            *count += 1;
            if known != value {
                differing.insert(pair.key.as_str());
            }
        }
    }
    let is_of_column =
        |key: &str| key.starts_with("perfquet.unit.") || key.starts_with("perfquet.description.");
    facts
        .into_iter()
        .filter(|(key, (_, count))| {
            !differing.contains(key) && (*count == files.len() || is_of_column(key))
        })
        .map(|(key, (value, _))| KeyValue::new(key.to_owned(), Some(value.to_owned())))
        .collect()
}

/// Encodes columns as their files do.
fn encoded(
    mut properties: WriterPropertiesBuilder,
    files: &[&ArrowReaderMetadata],
) -> WriterPropertiesBuilder {
    let mut seen = HashSet::new();
    for file in files {
        for group in file.metadata().row_groups() {
            for chunk in group.columns() {
                let path = chunk.column_path().parts().join(".");
                if !seen.insert(path.clone()) {
                    continue;
                }
                let column = || ColumnPath::from(path.as_str());
                let is_delta = chunk
                    .encodings()
                    .any(|encoding| encoding == PageEncoding::DELTA_BINARY_PACKED);
                if is_delta {
                    properties = properties
                        .set_column_dictionary_enabled(column(), false)
                        .set_column_encoding(column(), PageEncoding::DELTA_BINARY_PACKED);
                }
            }
        }
    }
    properties
}
