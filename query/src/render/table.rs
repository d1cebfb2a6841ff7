//! Aligned columns. The first rows determine the widths, so that a long result is streamed.

use std::io::Write;

use anyhow::Result;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::Rows;
use crate::functions::in_fitting_unit;
use crate::text::{Texts, columns, cut, harmless, is_number};
use crate::unit::UNIT;

/// Number of rows examined before the first is written.
const LOOKED_AT: usize = 2000;
/// Separator of columns.
const GAP: &str = "  ";
/// Minimum width to which a column is cut.
const NARROWEST: usize = 8;

pub(super) struct Table<'w> {
    out: &'w mut (dyn Write + Send),
    schema: SchemaRef,
    /// Width of the terminal, if there is one.
    terminal: Option<usize>,
    /// Cells that wait for the widths.
    waiting: Vec<Vec<String>>,
    widths: Option<Vec<usize>>,
    right: Vec<bool>,
}

impl<'w> Table<'w> {
    pub(super) fn new(
        out: &'w mut (dyn Write + Send),
        schema: SchemaRef,
        terminal: Option<usize>,
    ) -> Table<'w> {
        let right = schema
            .fields()
            .iter()
            .map(|field| is_number(field.data_type()))
            .collect();
        Table {
            out,
            schema,
            terminal,
            waiting: Vec::new(),
            widths: None,
            right,
        }
    }

    /// Fixes the widths, and writes the waiting cells.
    fn settle(&mut self) -> Result<()> {
        if self.widths.is_some() {
            return Ok(());
        }
        let names: Vec<String> = self
            .schema
            .fields()
            .iter()
            .map(|field| harmless(field.name()).into_owned())
            .collect();
        let mut widths: Vec<usize> = names.iter().map(|name| columns(name)).collect();
        for row in &self.waiting {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(columns(cell));
            }
        }
        if let Some(terminal) = self.terminal {
            fit(&mut widths, terminal);
        }
        let rule: Vec<String> = widths.iter().map(|&width| "─".repeat(width)).collect();
        write_row(
            &mut self.out,
            &names,
            &widths,
            &self.right,
            self.terminal.is_some(),
        )?;
        write_row(&mut self.out, &rule, &widths, &self.right, false)?;
        for row in std::mem::take(&mut self.waiting) {
            write_row(
                &mut self.out,
                &row,
                &widths,
                &self.right,
                self.terminal.is_some(),
            )?;
        }
        self.widths = Some(widths);
        Ok(())
    }
}

impl Rows for Table<'_> {
    fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        let texts: Result<Vec<Texts<'_>>> = batch
            .columns()
            .iter()
            .map(|column| Texts::new(column))
            .collect();
        let texts = texts?;
        for row in 0..batch.num_rows() {
            let mut cells = Vec::with_capacity(texts.len());
            for (text, field) in texts.iter().zip(self.schema.fields()) {
                let mut cell = String::new();
                text.write(row, &mut cell)?;
                if field.name().ends_with("percent")
                    && let Ok(value) = cell.parse::<f64>()
                {
                    cell = format!("{value:.2}");
                }
                if field.metadata().get(UNIT).is_some_and(|unit| unit == "ns")
                    && let Ok(value) = cell.parse::<f64>()
                {
                    cell = in_fitting_unit(value);
                }
                cells.push(match harmless(&cell) {
                    std::borrow::Cow::Borrowed(_) => cell,
                    std::borrow::Cow::Owned(safe) => safe,
                });
            }
            match &self.widths {
                Some(widths) => write_row(
                    &mut self.out,
                    &cells,
                    widths,
                    &self.right,
                    self.terminal.is_some(),
                )?,
                None => {
                    self.waiting.push(cells);
                    if self.waiting.len() >= LOOKED_AT {
                        self.settle()?;
                    }
                }
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        if self.waiting.is_empty() && self.widths.is_none() && self.schema.fields().is_empty() {
            return Ok(());
        }
        self.settle()?;
        self.out.flush()?;
        Ok(())
    }
}

/// Narrows the widest columns until a row fits into the terminal.
fn fit(widths: &mut [usize], terminal: usize) {
    let gaps = GAP.len() * widths.len().saturating_sub(1);
    loop {
        let used: usize = widths.iter().sum::<usize>() + gaps;
        let Some(excess) = used.checked_sub(terminal).filter(|&excess| excess > 0) else {
            return;
        };
        let Some(widest) = widths.iter_mut().max_by_key(|width| **width) else {
            return;
        };
        if *widest <= NARROWEST {
            return;
        }
        // In small steps, so that two wide columns share the loss.
        *widest -= excess.min((*widest - NARROWEST).div_ceil(4));
    }
}

fn write_row(
    out: &mut dyn Write,
    cells: &[String],
    widths: &[usize],
    right: &[bool],
    may_cut: bool,
) -> Result<()> {
    let mut line = String::new();
    for (index, ((cell, &width), &right)) in cells.iter().zip(widths).zip(right).enumerate() {
        if index > 0 {
            line.push_str(GAP);
        }
        let cell = if may_cut {
            cut(cell, width)
        } else {
            cell.into()
        };
        let padding = width.saturating_sub(columns(&cell));
        if right {
            line.extend(std::iter::repeat_n(' ', padding));
        }
        line.push_str(&cell);
        if !right && index + 1 < cells.len() {
            line.extend(std::iter::repeat_n(' ', padding));
        }
    }
    line.truncate(line.trim_end().len());
    line.push('\n');
    out.write_all(line.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_columns_share_the_loss() {
        let mut widths = [60, 6, 60];
        fit(&mut widths, 80);
        assert!(widths.iter().sum::<usize>() + 4 <= 80, "{widths:?}");
        assert_eq!(widths[1], 6);
        assert!(widths[0].abs_diff(widths[2]) < 20, "{widths:?}");
        let mut many = [20; 40];
        fit(&mut many, 80);
        assert_eq!(many, [NARROWEST; 40]);
    }
}
