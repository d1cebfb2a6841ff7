//! JSON: one array of objects, or one object per line. NULL is `null`, so that every object has every key.

use std::io::Write;

use anyhow::Result;
use arrow::array::RecordBatch;
use arrow::json::writer::{JsonArray, JsonFormat, LineDelimited, Writer, WriterBuilder};

use super::Rows;

pub(super) struct Json<F: JsonFormat> {
    writer: Writer<Box<dyn Write + Send>, F>,
}

impl Json<JsonArray> {
    pub(super) fn array(out: Box<dyn Write + Send>) -> Json<JsonArray> {
        let writer = WriterBuilder::new().with_explicit_nulls(true).build(out);
        Json { writer }
    }
}

impl Json<LineDelimited> {
    pub(super) fn lines(out: Box<dyn Write + Send>) -> Json<LineDelimited> {
        let writer = WriterBuilder::new().with_explicit_nulls(true).build(out);
        Json { writer }
    }
}

impl<F: JsonFormat> Rows for Json<F> {
    fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        Ok(self.writer.write(batch)?)
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.writer.finish()?;
        let mut out = self.writer.into_inner();
        Ok(out.flush()?)
    }
}
