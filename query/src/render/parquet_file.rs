//! A Parquet file, for other tools.

use std::io::Write;

use anyhow::Result;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use super::Rows;

pub(super) struct ParquetFile<'w> {
    writer: ArrowWriter<&'w mut (dyn Write + Send)>,
}

impl<'w> ParquetFile<'w> {
    pub(super) fn new(
        out: &'w mut (dyn Write + Send),
        schema: SchemaRef,
    ) -> Result<ParquetFile<'w>> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
            .build();
        let writer = ArrowWriter::try_new(out, schema, Some(properties))?;
        Ok(ParquetFile { writer })
    }
}

impl Rows for ParquetFile<'_> {
    fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        Ok(self.writer.write(batch)?)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(self.writer.into_inner()?.flush()?)
    }
}
