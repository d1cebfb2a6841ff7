//! Comma-separated values (RFC 4180): NULL is empty, an empty string is `""`. Control characters are escaped, as
//! `\x1b`, because the names in a trace are not trusted. Parquet has them unchanged.

use std::io::Write;

use anyhow::Result;
use arrow::array::RecordBatch;
use arrow::datatypes::Schema;

use super::Rows;
use crate::text::{Texts, harmless, harmless_cell};

pub(super) struct Csv<'w> {
    out: &'w mut (dyn Write + Send),
    /// Whether to escape newlines and tabs too.
    terminal: bool,
    line: String,
}

impl<'w> Csv<'w> {
    pub(super) fn new(
        out: &'w mut (dyn Write + Send),
        schema: &Schema,
        terminal: bool,
    ) -> Result<Csv<'w>> {
        let mut csv = Csv {
            out,
            terminal,
            line: String::new(),
        };
        for (index, field) in schema.fields().iter().enumerate() {
            csv.separate(index);
            csv.cell(field.name());
        }
        csv.end_line()?;
        Ok(csv)
    }

    fn separate(&mut self, index: usize) {
        if index > 0 {
            self.line.push(',');
        }
    }

    fn cell(&mut self, text: &str) {
        let text = if self.terminal {
            harmless(text)
        } else {
            harmless_cell(text)
        };
        let quoted = text.is_empty() || text.contains([',', '"', '\n', '\r']);
        if quoted {
            self.line.push('"');
            self.line.push_str(&text.replace('"', "\"\""));
            self.line.push('"');
        } else {
            self.line.push_str(&text);
        }
    }

    fn end_line(&mut self) -> Result<()> {
        self.line.push('\n');
        self.out.write_all(self.line.as_bytes())?;
        self.line.clear();
        Ok(())
    }
}

impl Rows for Csv<'_> {
    fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        let texts = Texts::of_columns(batch.columns())?;
        let mut cell = String::new();
        for row in 0..batch.num_rows() {
            for (index, text) in texts.iter().enumerate() {
                self.separate(index);
                cell.clear();
                // NULL is an empty field without quotes, an empty string one with them.
                if text.write(row, &mut cell)? {
                    self.cell(&cell);
                }
            }
            self.end_line()?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(self.out.flush()?)
    }
}
