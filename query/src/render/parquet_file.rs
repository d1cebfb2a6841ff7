//! A Parquet file, for other tools.

use std::io::Write;

use anyhow::Result;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use super::Rows;

pub(super) struct ParquetFile {
    writer: ArrowWriter<Box<dyn Write + Send>>,
}

impl ParquetFile {
    pub(super) fn new(out: Box<dyn Write + Send>, schema: SchemaRef) -> Result<ParquetFile> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
            .build();
        let writer = ArrowWriter::try_new(out, schema, Some(properties))?;
        Ok(ParquetFile { writer })
    }
}

impl Rows for ParquetFile {
    fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        Ok(self.writer.write(batch)?)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(self.writer.into_inner()?.flush()?)
    }
}
