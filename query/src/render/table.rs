//! Aligned columns. The first rows determine the widths, so that a long result is streamed.

use std::io::Write;

use anyhow::Result;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::cells::{GAP, cells};
use super::{Rows, is_colored, records};
use crate::text::{columns, cut, harmless, is_number};

/// Number of rows examined before the first is written.
const LOOKED_AT: usize = 2000;
/// SGR sequences for the names of columns (ECMA-48).
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";
/// Minimum width to which a column is cut.
const NARROWEST: usize = 8;

pub(super) struct Table<'w> {
    out: &'w mut (dyn Write + Send),
    schema: SchemaRef,
    /// Width of the terminal, if there is one.
    terminal: Option<usize>,
    /// Cells that wait for the layout.
    waiting: Vec<Vec<String>>,
    layout: Option<Layout>,
    right: Vec<bool>,
}

/// How the rows are laid out.
enum Layout {
    /// Side by side, in columns of these widths.
    Columns(Vec<usize>),
    /// Below each other, because the terminal is too narrow for the numbers; rows so far.
    Records(u64),
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
            layout: None,
            right,
        }
    }

    /// Chooses the layout, and writes the waiting cells.
    fn settle(&mut self) -> Result<()> {
        if self.layout.is_some() {
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
        let fits = match self.terminal {
            Some(terminal) => fit(&mut widths, &self.right, terminal),
            None => true,
        };
        self.layout = Some(match fits {
            true => {
                let rule: Vec<String> = widths.iter().map(|&width| "─".repeat(width)).collect();
                let may_cut = self.terminal.is_some();
                let (bold, plain) = match may_cut && is_colored() {
                    true => (BOLD, PLAIN),
                    false => ("", ""),
                };
                write!(self.out, "{bold}")?;
                write_row(&mut self.out, &names, &widths, &self.right, may_cut)?;
                write!(self.out, "{plain}")?;
                write_row(&mut self.out, &rule, &widths, &self.right, false)?;
                Layout::Columns(widths)
            }
            false => Layout::Records(0),
        });
        for row in std::mem::take(&mut self.waiting) {
            self.row(&row)?;
        }
        Ok(())
    }

    fn row(&mut self, cells: &[String]) -> Result<()> {
        match &mut self.layout {
            Some(Layout::Columns(widths)) => {
                let may_cut = self.terminal.is_some();
                write_row(&mut self.out, cells, widths, &self.right, may_cut)
            }
            Some(Layout::Records(count)) => {
                *count += 1;
                records::record(&mut self.out, &self.schema, self.terminal, *count, cells)
            }
            None => Ok(()),
        }
    }
}

impl Rows for Table<'_> {
    fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        for row in cells(batch, &self.schema)? {
            if self.layout.is_some() {
                self.row(&row)?;
                continue;
            }
            self.waiting.push(row);
            if self.waiting.len() >= LOOKED_AT {
                self.settle()?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        if self.waiting.is_empty() && self.layout.is_none() && self.schema.fields().is_empty() {
            return Ok(());
        }
        self.settle()?;
        self.out.flush()?;
        Ok(())
    }
}

/// Narrows the widest strings until a row fits into the terminal; `false` if it cannot. A number that lost a digit would be
/// another number.
fn fit(widths: &mut [usize], right: &[bool], terminal: usize) -> bool {
    let gaps = GAP.len() * widths.len().saturating_sub(1);
    loop {
        let used: usize = widths.iter().sum::<usize>() + gaps;
        let Some(excess) = used.checked_sub(terminal).filter(|&excess| excess > 0) else {
            return true;
        };
        let strings = widths.iter_mut().zip(right).filter(|&(_, &right)| !right);
        let Some((widest, _)) = strings.max_by_key(|(width, _)| **width) else {
            return false;
        };
        if *widest <= NARROWEST {
            return false;
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
    fn wide_strings_share_the_loss() {
        let mut widths = [60, 6, 60];
        assert!(fit(&mut widths, &[false, true, false], 80));
        assert!(widths.iter().sum::<usize>() + 4 <= 80, "{widths:?}");
        assert_eq!(widths[1], 6);
        assert!(widths[0].abs_diff(widths[2]) < 20, "{widths:?}");
    }

    #[test]
    fn numbers_are_never_cut() {
        assert!(!fit(&mut [20; 40], &[false; 40], 80));
        assert!(!fit(&mut [30, 30, 30], &[true, true, true], 80));
        let mut widths = [30, 30, 30];
        assert!(fit(&mut widths, &[true, true, false], 80));
        assert_eq!(widths[..2], [30, 30]);
    }

    #[test]
    fn a_narrow_terminal_gets_records() {
        use arrow::array::{ArrayRef, Int64Array, StringArray};
        let numbers =
            |value: i64| -> ArrayRef { std::sync::Arc::new(Int64Array::from(vec![value; 2])) };
        let batch = RecordBatch::try_from_iter([
            ("first_number", numbers(1_000_000_000_000)),
            ("second", numbers(-7)),
            (
                "name",
                std::sync::Arc::new(StringArray::from(vec!["a", "a name of some length"])),
            ),
        ])
        .unwrap();
        let written = |terminal: usize| {
            let mut out = Vec::new();
            let mut table = Table::new(&mut out, batch.schema(), Some(terminal));
            table.rows(&batch).unwrap();
            Box::new(table).finish().unwrap();
            String::from_utf8(out).unwrap()
        };
        assert!(
            written(60).starts_with(" first_number  second  name\n"),
            "{}",
            written(60)
        );
        let expected = "\
─[ 1 ]──────────────
first_number  1000000000000
second        -7
name          a
─[ 2 ]──────────────
first_number  1000000000000
second        -7
name          a name of some length
";
        assert_eq!(written(20), expected);
    }
}
