//! Distributions one after another, each after its key.

use crate::text::{Texts, harmless, is_number};
use std::io::Write;

use anyhow::Result;
use arrow::array::{ArrayRef, RecordBatch};
use perfquet_cli::distribution::drawn;

pub(crate) use perfquet_cli::distribution::Line;

/// Distributions, one after another.
pub(crate) struct Distributions {
    /// A row per bar: the keys, `low`, `high` and `count`.
    pub(crate) rows: RecordBatch,
    pub(crate) drawings: Vec<Drawing>,
}

/// A distribution to draw.
pub(crate) struct Drawing {
    /// Printed before the first distribution of an aggregation.
    pub(crate) heading: Option<String>,
    /// The key as printed by DTrace.
    pub(crate) title: String,
    pub(crate) lines: Vec<Line>,
}

impl Distributions {
    /// Prints all distributions, each after an empty line.
    pub(super) fn write(&self, out: &mut dyn Write) -> Result<()> {
        for drawing in &self.drawings {
            if let Some(heading) = &drawing.heading {
                writeln!(out, "\n{heading}")?;
            }
            let drawn = drawn(&drawing.lines);
            writeln!(out, "\n{}\n{}", drawing.title, drawn.trim_end_matches('\n'))?;
        }
        Ok(())
    }
}

/// Keys as libdtrace prints them: text in 50 columns, numbers in 16.
pub(crate) fn titles(keys: &[ArrayRef]) -> Result<Vec<String>> {
    let rows = keys.first().map_or(1, |key| key.len());
    let mut titles = vec![String::new(); rows];
    for key in keys {
        let texts = Texts::new(key)?;
        for (row, title) in titles.iter_mut().enumerate() {
            let mut cell = String::new();
            if !texts.write(row, &mut cell)? {
                cell.push_str("NULL");
            }
            let cell = harmless(&cell);
            title.push_str(&match is_number(key.data_type()) {
                true => format!(" {cell:>16}"),
                false => format!("  {cell:<50}"),
            });
        }
    }
    Ok(titles)
}
