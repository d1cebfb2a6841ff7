//! The Parquet files of a trace in a lake: one per table, without chunks that share bytes.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, Encoding as PageEncoding, ZstdLevel};
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;
use perfquet_trace::store::{ColumnSchema, Directory, Encoding, Facts};

use super::columns::{Columns, HOST, TRACE};
use super::files::step;
use super::summaries::SummaryTable;

const ROWS_PER_GROUP: usize = 1 << 20;
const BYTES_PER_GROUP: usize = 256 << 20;

/// Writes all rows of a table to a new file, and syncs it. Returns the number of rows.
pub(super) fn write(
    trace: &Directory,
    table: &str,
    columns: &Columns,
    facts: Vec<KeyValue>,
    path: &Path,
) -> Result<u64> {
    let mut properties = properties(facts);
    for (field, encoding) in columns.schema.fields().iter().zip(&columns.encodings) {
        let is_integer = matches!(
            field.data_type(),
            DataType::Int32 | DataType::Int64 | DataType::Timestamp(..)
        );
        let name = || ColumnPath::from(field.name().as_str());
        properties = match encoding {
            Encoding::Delta if is_integer => properties
                .set_column_dictionary_enabled(name(), false)
                .set_column_encoding(name(), PageEncoding::DELTA_BINARY_PACKED),
            Encoding::Plain if is_integer => {
                properties.set_column_dictionary_enabled(name(), false)
            }
            Encoding::Delta | Encoding::Plain | Encoding::Dictionary => properties,
        };
    }
    properties = properties.set_sorting_columns(sorting(trace, table, &columns.schema));
    let mut writer = Writer::create(path, &columns.schema, properties)?;
    let mut rows = 0;
    for form in trace.forms(table) {
        let mut of_form = 0;
        for batch in trace.read_form(&form)? {
            let batch = columns.convert(&batch?)?;
            of_form += batch.num_rows() as u64;
            writer.write(&batch)?;
        }
        // Readers find the rows of each part by their number.
        if of_form != form.rows() {
            let expected = form.rows();
            bail!("expected {expected} rows, as in the manifest, found {of_form}");
        }
        rows += of_form;
    }
    writer.finish()?;
    Ok(rows)
}

/// A Parquet file that is being written.
pub(super) struct Writer<'p> {
    writer: ArrowWriter<File>,
    path: &'p Path,
}

impl<'p> Writer<'p> {
    pub(super) fn create(
        path: &'p Path,
        schema: &Arc<Schema>,
        properties: WriterPropertiesBuilder,
    ) -> Result<Writer<'p>> {
        step()?;
        let failed = || format!("cannot write {}", path.display());
        let file = File::create_new(path).with_context(failed)?;
        let options = ArrowWriterOptions::new()
            .with_properties(properties.build())
            .with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(file, Arc::clone(schema), options);
        Ok(Writer {
            writer: writer.with_context(failed)?,
            path,
        })
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let written = self.writer.write(batch);
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Writes the footer, and syncs the file.
    pub(super) fn finish(self) -> Result<()> {
        step()?;
        let failed = || format!("cannot write {}", self.path.display());
        let file = self.writer.into_inner().with_context(failed)?;
        file.sync_all().with_context(failed)
    }
}

pub(super) fn properties(facts: Vec<KeyValue>) -> WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_created_by(concat!("perfquet ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_max_row_group_row_count(Some(ROWS_PER_GROUP))
        .set_max_row_group_bytes(Some(BYTES_PER_GROUP))
        .set_key_value_metadata(Some(facts))
}

/// The order of the rows, if they are those of one sorted part.
fn sorting(trace: &Directory, table: &str, schema: &Schema) -> Option<Vec<SortingColumn>> {
    let entry = trace.table(table)?;
    let [part] = entry.parts.as_slice() else {
        return None;
    };
    let column = |name: &String| {
        Some(SortingColumn {
            // A list has one leaf, too.
            column_idx: i32::try_from(schema.index_of(name).ok()?).ok()?,
            descending: false,
            nulls_first: true,
        })
    };
    let columns: Option<Vec<_>> = entry.sort.iter().map(column).collect();
    columns.filter(|columns| part.sorted && !columns.is_empty())
}

/// The metadata of a file: units and descriptions of its columns.
pub(super) fn metadata(
    trace: &str,
    table: &str,
    facts: &Facts,
    columns: &[ColumnSchema],
) -> Vec<KeyValue> {
    let mut pairs = vec![("trace".to_owned(), trace.to_owned())];
    pairs.push(("table".to_owned(), table.to_owned()));
    pairs.extend(facts.clock.clone().map(|clock| ("clock".to_owned(), clock)));
    let offset = facts.wall_offset.map(|offset| offset.to_string());
    pairs.extend(offset.map(|offset| ("wall_offset".to_owned(), offset)));
    for column in columns {
        pairs.push((format!("unit.{}", column.name), column.unit.clone()));
        pairs.push((format!("description.{}", column.name), column.doc.clone()));
    }
    let pairs = pairs.into_iter().filter(|(_, value)| !value.is_empty());
    pairs
        .map(|(key, value)| KeyValue::new(format!("perfquet.{key}"), Some(value)))
        .collect()
}

/// Writes a summary to a new file, and syncs it.
pub(super) fn write_summary(
    table: &SummaryTable,
    columns: &Columns,
    facts: Vec<KeyValue>,
    path: &Path,
) -> Result<()> {
    let mut writer = Writer::create(path, &columns.schema, properties(facts))?;
    for batch in table.batches() {
        writer.write(&columns.convert(&batch?)?)?;
    }
    writer.finish()
}

/// Writes the row of a trace in the table `traces`.
pub(super) fn write_trace_row(
    trace: &Directory,
    id: &str,
    row: &RecordBatch,
    path: &Path,
) -> Result<u64> {
    let properties = properties(metadata(id, "traces", &trace.manifest().facts, &[]));
    let mut writer = Writer::create(path, &row.schema(), properties)?;
    writer.write(row)?;
    writer.finish()?;
    Ok(1)
}

/// The row of a trace in the table `traces`: facts about the recording.
pub(super) fn trace_row(
    trace: &Directory,
    id: &str,
    name: &str,
    host: Option<&str>,
    has_summaries: bool,
) -> Result<RecordBatch> {
    let manifest = trace.manifest();
    let facts = &manifest.facts;
    let tables = || manifest.tables.values();
    let ranges = || tables().filter_map(|table| table.time_range());
    let text = |value: Option<String>| Arc::new(StringArray::from(vec![value])) as ArrayRef;
    let number = |value: Option<i64>| Arc::new(Int64Array::from(vec![value])) as ArrayRef;
    let rows = tables()
        .map(|table| table.rows())
        .fold(0, u64::saturating_add);
    let mut columns = vec![
        ("name", text(Some(name.to_owned()))),
        ("state", text(Some(manifest.state.as_str().to_owned()))),
        ("clock", text(facts.clock.clone())),
        ("wall_offset", number(facts.wall_offset)),
        ("first_time", number(ranges().map(|(first, _)| first).min())),
        ("last_time", number(ranges().map(|(_, last)| last).max())),
        ("row_count", number(i64::try_from(rows).ok())),
        ("os_release", text(facts.os_release.clone())),
        ("architecture", text(facts.architecture.clone())),
        ("cpu_model", text(facts.cpu_model.clone())),
        ("cpus", number(facts.cpus.map(i64::from))),
        (
            "memory_bytes",
            number(
                facts
                    .memory_bytes
                    .and_then(|bytes| i64::try_from(bytes).ok()),
            ),
        ),
        ("kernel_build_id", text(facts.kernel_build_id.clone())),
        ("recorder", text(facts.recorder.clone())),
        ("command_line", text(facts.command_line.clone())),
        (
            "summaries",
            Arc::new(BooleanArray::from(vec![has_summaries])) as ArrayRef,
        ),
        (TRACE, text(Some(id.to_owned()))),
    ];
    columns.extend(host.map(|host| (HOST, text(Some(host.to_owned())))));
    let columns = columns.into_iter().map(|(name, array)| (name, array, true));
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}
