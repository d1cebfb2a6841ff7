//! An Arrow IPC stream, for pandas, Polars, DuckDB on the other end of a pipe.

use std::io::Write;

use anyhow::Result;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::writer::StreamWriter;

use super::Rows;

pub(super) struct ArrowStream {
    writer: StreamWriter<Box<dyn Write + Send>>,
}

impl ArrowStream {
    pub(super) fn new(out: Box<dyn Write + Send>, schema: SchemaRef) -> Result<ArrowStream> {
        let writer = StreamWriter::try_new(out, &schema)?;
        Ok(ArrowStream { writer })
    }
}

impl Rows for ArrowStream {
    fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        Ok(self.writer.write(batch)?)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let mut out = self.writer.into_inner()?;
        Ok(out.flush()?)
    }
}
