//! One Parquet file while it is written.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, Float64Builder, Int64Builder, ListBuilder,
    StringBuilder, UInt64Builder,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use crate::Error;

use super::column::{Batch, Data, Values};
use super::files;
use super::intern::Entries;
use super::manifest;
use super::table::{ColumnType, TableSchema};
use super::writer::WriterOptions;

/// A part that is not whole yet.
pub(super) struct Part {
    file: String,
    temporary: PathBuf,
    kinds: Vec<ColumnType>,
    schema: Arc<Schema>,
    writer: ArrowWriter<File>,
    rows: u64,
    time: Option<usize>,
    time_range: Option<(i64, i64)>,
}

impl Part {
    pub(super) fn create(
        root: &Path,
        file: String,
        schema: &TableSchema,
        options: &WriterOptions,
    ) -> Result<Part, Error> {
        let temporary = files::temporary(&root.join(&file));
        let created = files::create(&temporary).map_err(Error::io(&temporary))?;
        let fields: Vec<Field> = schema
            .columns
            .iter()
            .map(|c| Field::new(&c.name, arrow_type(c.kind), c.nullable))
            .collect();
        let arrow = Arc::new(Schema::new(fields));
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_row_count(Some(options.rows_per_group as usize))
            .build();
        let writer = ArrowWriter::try_new_with_options(
            created,
            Arc::clone(&arrow),
            ArrowWriterOptions::new()
                .with_properties(properties)
                .with_skip_arrow_metadata(true),
        )
        .map_err(|error| failed(&temporary, error))?;
        Ok(Part {
            file,
            temporary,
            kinds: schema.columns.iter().map(|c| c.kind).collect(),
            schema: arrow,
            writer,
            rows: 0,
            time: schema.columns.iter().position(|c| c.name == "time"),
            time_range: None,
        })
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    pub(super) fn bytes(&self) -> u64 {
        self.writer.bytes_written() as u64
    }

    pub(super) fn append(&mut self, batch: Batch, texts: &[Entries]) -> Result<(), Error> {
        if let Some(Data::Wide(times)) = self
            .time
            .and_then(|time| batch.columns.get(time))
            .map(|values| &values.data)
        {
            for &time in times {
                let time = time as i64;
                let (first, last) = self.time_range.unwrap_or((time, time));
                self.time_range = Some((first.min(time), last.max(time)));
            }
        }
        let columns = batch
            .columns
            .iter()
            .zip(texts)
            .zip(&self.kinds)
            .map(|((values, texts), &kind)| array(values, texts, kind))
            .collect();
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
            .map_err(ParquetError::from)
            .and_then(|batch| self.writer.write(&batch))
            .map_err(|error| failed(&self.temporary, error))?;
        self.rows += batch.count as u64;
        Ok(())
    }

    pub(super) fn finish(mut self, root: &Path) -> Result<manifest::Part, Error> {
        self.writer
            .finish()
            .map_err(|error| failed(&self.temporary, error))?;
        let file = self.writer.inner();
        file.sync_all().map_err(Error::io(&self.temporary))?;
        let bytes = file.metadata().map_err(Error::io(&self.temporary))?.len();
        let path = root.join(&self.file);
        std::fs::rename(&self.temporary, &path).map_err(Error::io(&path))?;
        Ok(manifest::Part {
            file: self.file,
            rows: self.rows,
            bytes,
            sorted: false,
            time_min: self.time_range.map(|range| range.0),
            time_max: self.time_range.map(|range| range.1),
        })
    }

    pub(super) fn discard(self) {
        if let Err(error) = std::fs::remove_file(&self.temporary) {
            log::debug!("{}: {error}", self.temporary.display());
        }
    }
}

fn failed(path: &Path, error: ParquetError) -> Error {
    Error::io(path)(io::Error::other(error))
}

fn arrow_type(kind: ColumnType) -> DataType {
    match kind {
        ColumnType::Bool => DataType::Boolean,
        ColumnType::Int8 => DataType::Int8,
        ColumnType::Int16 => DataType::Int16,
        ColumnType::Int32 => DataType::Int32,
        ColumnType::Int64 => DataType::Int64,
        ColumnType::UInt8 => DataType::UInt8,
        ColumnType::UInt16 => DataType::UInt16,
        ColumnType::UInt32 => DataType::UInt32,
        ColumnType::UInt64 => DataType::UInt64,
        ColumnType::Float64 => DataType::Float64,
        ColumnType::Text => DataType::Utf8,
        ColumnType::Binary => DataType::Binary,
        ColumnType::Int64List => DataType::new_list(DataType::Int64, true),
        ColumnType::UInt64List => DataType::new_list(DataType::UInt64, true),
        ColumnType::TextList => DataType::new_list(DataType::Utf8, true),
    }
}

fn array(values: &Values, texts: &Entries, kind: ColumnType) -> ArrayRef {
    let rows = values.presence.rows();
    let mut next = 0;
    let mut each = |mut push: Box<dyn FnMut(Option<usize>) + '_>| {
        for row in 0..rows {
            if values.presence.has(row) {
                push(Some(next));
                next += 1;
            } else {
                push(None);
            }
        }
    };
    let text = |key: u32| String::from_utf8_lossy(texts.get(key)).into_owned();
    let built: ArrayRef = match &values.data {
        Data::Narrow(data) if kind == ColumnType::Bool => {
            let mut builder = BooleanBuilder::new();
            each(Box::new(|at| {
                builder.append_option(at.and_then(|at| data.get(at)).map(|&v| v != 0));
            }));
            Arc::new(builder.finish())
        }
        Data::Narrow(data) => {
            let mut builder = Int64Builder::new();
            let signed = matches!(
                kind,
                ColumnType::Int8 | ColumnType::Int16 | ColumnType::Int32
            );
            let widen = |v: &u32| {
                if signed {
                    i64::from(*v as i32)
                } else {
                    i64::from(*v)
                }
            };
            each(Box::new(|at| {
                builder.append_option(at.and_then(|at| data.get(at)).map(widen));
            }));
            Arc::new(builder.finish())
        }
        Data::Wide(data) if kind == ColumnType::Int64 => {
            let mut builder = Int64Builder::new();
            each(Box::new(|at| {
                builder.append_option(at.and_then(|at| data.get(at)).map(|&v| v as i64));
            }));
            Arc::new(builder.finish())
        }
        Data::Wide(data) => {
            let mut builder = UInt64Builder::new();
            each(Box::new(|at| {
                builder.append_option(at.and_then(|at| data.get(at)).copied());
            }));
            Arc::new(builder.finish())
        }
        Data::Float(data) => {
            let mut builder = Float64Builder::new();
            each(Box::new(|at| {
                builder.append_option(at.and_then(|at| data.get(at)).copied());
            }));
            Arc::new(builder.finish())
        }
        Data::Text(data) if kind == ColumnType::Binary => {
            let mut builder = BinaryBuilder::new();
            each(Box::new(|at| {
                builder.append_option(at.and_then(|at| data.keys.get(at)).map(|&k| texts.get(k)));
            }));
            Arc::new(builder.finish())
        }
        Data::Text(data) => {
            let mut builder = StringBuilder::new();
            each(Box::new(|at| {
                builder.append_option(at.and_then(|at| data.keys.get(at)).map(|&k| text(k)));
            }));
            Arc::new(builder.finish())
        }
        Data::WideList { lengths, items } => {
            let mut items = items.iter();
            if kind == ColumnType::Int64List {
                let mut builder = ListBuilder::new(Int64Builder::new());
                each(Box::new(|at| match at.and_then(|at| lengths.get(at)) {
                    None => builder.append_null(),
                    Some(&length) => builder.append_value(
                        items
                            .by_ref()
                            .take(length as usize)
                            .map(|&v| Some(v as i64)),
                    ),
                }));
                Arc::new(builder.finish())
            } else {
                let mut builder = ListBuilder::new(UInt64Builder::new());
                each(Box::new(|at| match at.and_then(|at| lengths.get(at)) {
                    None => builder.append_null(),
                    Some(&length) => {
                        builder
                            .append_value(items.by_ref().take(length as usize).map(|&v| Some(v)));
                    }
                }));
                Arc::new(builder.finish())
            }
        }
        Data::TextList { lengths, items } => {
            let mut keys = items.keys.iter();
            let mut builder = ListBuilder::new(StringBuilder::new());
            each(Box::new(|at| match at.and_then(|at| lengths.get(at)) {
                None => builder.append_null(),
                Some(&length) => {
                    builder.append_value(
                        keys.by_ref()
                            .take(length as usize)
                            .map(|&key| Some(text(key))),
                    );
                }
            }));
            Arc::new(builder.finish())
        }
    };
    match cast(&built, &arrow_type(kind)) {
        Ok(array) => array,
        Err(_) => built,
    }
}
