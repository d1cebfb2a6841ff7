//! One line per column, as psql's `\x`: for rows that are wider than the terminal.
//!
//! ```text
//! ─[ 1 ]──────────────────────
//! self_percent  9.95
//! function      do_syscall_64
//! module        [kernel.kallsyms]
//! ```

use std::io::Write;

use anyhow::Result;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::Rows;
use super::cells::{GAP, cells};
use crate::text::{columns, harmless};

/// Columns of the rule above a record, at most.
const RULE: usize = 60;

pub(super) struct Records<'w> {
    out: &'w mut (dyn Write + Send),
    schema: SchemaRef,
    terminal: Option<usize>,
    count: u64,
}

impl<'w> Records<'w> {
    pub(super) fn new(
        out: &'w mut (dyn Write + Send),
        schema: SchemaRef,
        terminal: Option<usize>,
    ) -> Records<'w> {
        Records {
            out,
            schema,
            terminal,
            count: 0,
        }
    }
}

impl Rows for Records<'_> {
    fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        for row in cells(batch, &self.schema)? {
            self.count += 1;
            record(self.out, &self.schema, self.terminal, self.count, &row)?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(self.out.flush()?)
    }
}

/// Writes the row with this number.
pub(super) fn record(
    out: &mut dyn Write,
    schema: &SchemaRef,
    terminal: Option<usize>,
    number: u64,
    cells: &[String],
) -> Result<()> {
    let names: Vec<_> = schema
        .fields()
        .iter()
        .map(|field| harmless(field.name()))
        .collect();
    let width = names.iter().map(|name| columns(name)).max().unwrap_or(0);
    let title = format!("─[ {number} ]─");
    let rule = terminal.unwrap_or(RULE).min(RULE);
    let rest = rule.saturating_sub(columns(&title));
    let mut text = format!("{title}{}\n", "─".repeat(rest));
    for (name, cell) in names.iter().zip(cells) {
        let padding = " ".repeat(width - columns(name));
        text.push_str(format!("{name}{padding}{GAP}{cell}").trim_end());
        text.push('\n');
    }
    Ok(out.write_all(text.as_bytes())?)
}
