//! An Arrow IPC stream, for pandas, Polars, DuckDB on the other end of a pipe.

use std::io::Write;

use anyhow::Result;
use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use arrow::ipc::writer::StreamWriter;

use super::Rows;

pub(super) struct ArrowStream<'w> {
    writer: StreamWriter<&'w mut (dyn Write + Send)>,
}

impl<'w> ArrowStream<'w> {
    pub(super) fn new(out: &'w mut (dyn Write + Send), schema: &Schema) -> Result<ArrowStream<'w>> {
        let writer = StreamWriter::try_new(out, schema)?;
        Ok(ArrowStream { writer })
    }
}

impl Rows for ArrowStream<'_> {
    fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        Ok(self.writer.write(batch)?)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(self.writer.into_inner()?.flush()?)
    }
}
