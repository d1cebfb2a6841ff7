//! Skips row groups in which no text fulfills a condition, `function LIKE '%mmap%'`, by the dictionaries of their columns.
//!
//! ```text
//! row group 1   dictionary: sys_read, sys_write     no text matches: skipped
//! row group 2   dictionary: sys_read, sys_mmap      read
//! ```
//! Texts of traces repeat, so a dictionary has few of them; it is a page before all rows.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch, StringViewBuilder};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::DFSchema;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::ParquetFileReaderFactory;
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use parquet::basic::{Encoding, Type};
use parquet::column::page::{Page, PageReader};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::serialized_reader::SerializedPageReader;

use perfquet_trace::store::PartFile;

use crate::tables::row_range;
use crate::tables::stored_columns::StoredColumns;

/// Larger dictionaries are not read: nearly every row has its own text.
const MOST_BYTES: i64 = 1 << 20;

/// The conditions of a query that depend on one text column each.
pub(crate) struct TextConditions(Vec<Condition>);

struct Condition {
    column: String,
    schema: SchemaRef,
    holds: Arc<dyn PhysicalExpr>,
}

impl TextConditions {
    /// `filters` must all hold for a row. `schema` has the columns of the files.
    pub(crate) fn of(
        session: &dyn Session,
        filters: &[Expr],
        schema: &Schema,
    ) -> Result<TextConditions> {
        let mut conditions = Vec::new();
        for filter in filters {
            let columns = filter.column_refs();
            let mut columns = columns.into_iter();
            let (Some(column), None) = (columns.next(), columns.next()) else {
                continue;
            };
            let Ok(field) = schema.field_with_name(&column.name) else {
                continue;
            };
            if *field.data_type() != DataType::Utf8View || filter.is_volatile() {
                continue;
            }
            let schema = Arc::new(Schema::new(vec![field.clone().with_nullable(true)]));
            let known = DFSchema::try_from(Arc::clone(&schema))?;
            // A condition that cannot be evaluated here, such as a subquery, selects nothing.
            if let Ok(holds) = session.create_physical_expr(filter.clone(), &known) {
                conditions.push(Condition {
                    column: column.name.clone(),
                    schema,
                    holds,
                });
            }
        }
        Ok(TextConditions(conditions))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Marks the row groups of a file that can be skipped. `readers` check and cache its metadata.
    pub(crate) async fn skip_row_groups(
        &self,
        file: PartitionedFile,
        stored: &StoredColumns,
        readers: &dyn ParquetFileReaderFactory,
    ) -> Result<PartitionedFile> {
        let metrics = ExecutionPlanMetricsSet::new();
        let mut reader = readers.create_reader(0, file.clone(), None, &metrics)?;
        // The scan reports files that cannot be read.
        let Ok(metadata) = reader.get_metadata(None).await else {
            return Ok(file);
        };
        let opened = match file.extension::<PartFile>() {
            // Each dictionary would be a request, and a row group is not many.
            Some(archived) if archived.is_remote() => return Ok(file),
            Some(archived) => archived.clone(),
            None => match PartFile::open(format!("/{}", file.object_meta.location).as_ref()) {
                Ok(opened) => opened,
                Err(_) => return Ok(file),
            },
        };
        let opened = Arc::new(opened);
        let mut plan = row_range::plan(&file, &metadata)?;
        let mut is_changed = false;
        for group in plan.row_group_indexes() {
            let is_possible = |condition: &Condition| {
                let column = stored.text_column(&condition.column)?;
                condition.is_possible(column, &metadata, group, &opened)
            };
            if !self
                .0
                .iter()
                .all(|condition| is_possible(condition).unwrap_or(true))
            {
                plan.skip(group);
                is_changed = true;
            }
        }
        Ok(match is_changed {
            true => file.with_extension(plan),
            false => file,
        })
    }
}

impl Condition {
    /// Whether it holds for a text of the row group; `None` if its texts are not all in a dictionary.
    fn is_possible(
        &self,
        column: &str,
        metadata: &ParquetMetaData,
        group: usize,
        file: &Arc<PartFile>,
    ) -> Option<bool> {
        let columns = metadata.row_group(group).columns();
        let is_named = |chunk: &&ColumnChunkMetaData| chunk.column_path().parts() == [column];
        let chunk = columns.iter().find(is_named)?;
        // In another trace the column may be a number.
        if chunk.column_type() != Type::BYTE_ARRAY {
            return None;
        }
        let encodings = chunk.page_encoding_stats_mask()?;
        let start = chunk.dictionary_page_offset()?;
        let is_small = chunk.data_page_offset().checked_sub(start)? <= MOST_BYTES;
        if !encodings.is_only(Encoding::RLE_DICTIONARY) || !is_small {
            return None;
        }
        let mut pages = SerializedPageReader::new(Arc::clone(file), chunk, 0, None).ok()?;
        let Page::DictionaryPage {
            buf, num_values, ..
        } = pages.get_next_page().ok()??
        else {
            return None;
        };
        let mut texts = StringViewBuilder::new();
        let mut rest: &[u8] = &buf;
        for _ in 0..num_values {
            let (length, after) = rest.split_first_chunk::<4>()?;
            let (text, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            texts.append_value(std::str::from_utf8(text).ok()?);
            rest = after;
        }
        // NULL may fulfill it as well: `comm IS NULL`.
        texts.append_null();
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), vec![Arc::new(texts.finish())]);
        let batch = batch.ok()?;
        let holds = self
            .holds
            .evaluate(&batch)
            .ok()?
            .into_array(batch.num_rows())
            .ok()?;
        Some(holds.as_boolean_opt()?.true_count() > 0)
    }
}
