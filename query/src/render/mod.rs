//! Writes results: one file per format. The only place that checks whether stdout is a terminal, and its width.

mod arrow_stream;
pub(crate) mod bars;
mod calls;
mod cells;
pub(crate) mod columns;
mod csv;
mod destination;
pub(crate) mod distribution;
mod drawing;
pub(crate) mod flame;
pub(crate) mod grid;
pub(crate) mod heat;
mod heat_colors;
mod hexadecimal;
mod json;
mod layout;
mod listing;
mod notes;
mod output;
pub(crate) mod page;
mod parquet_file;
mod people;
pub(crate) mod plain_strings;
pub(crate) mod plot;
mod records;
mod section;
mod table;
pub(crate) mod violins;

use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::Arc;

use anyhow::{Result, bail};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use clap::ValueEnum;

use perfquet::Answer;
use perfquet::failure::Misuse;
use perfquet::stacks::strings;

use crate::text;

pub(crate) use calls::{CALL_COLUMNS, Calls};
pub(crate) use destination::Destination;
use destination::Named;
pub(crate) use drawing::axis_label;
pub(crate) use listing::{ListedFunction, ListedLine, Listing, shaded_lines};
pub(crate) use notes::Notes;
pub(crate) use output::{Form, Output, Shape};
pub(crate) use people::{INDENT, SPARE, TERMINAL, with_display, with_spares};
pub(crate) use section::{Answered, Section};

/// Output formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns; records on a terminal that is too narrow
    Table,
    /// One line per column
    Records,
    /// Comma-separated values with a header line
    Csv,
    /// JSON array of objects
    Json,
    /// JSON object per line
    Ndjson,
    /// Parquet file
    Parquet,
    /// Arrow IPC stream
    Arrow,
}

impl Format {
    /// Whether several results may follow each other in this format.
    pub(crate) fn may_follow(self) -> bool {
        matches!(
            self,
            Format::Table | Format::Records | Format::Csv | Format::Ndjson
        )
    }
}

/// Writes rows in one format.
pub(crate) trait Rows {
    /// Writes the next rows.
    fn rows(&mut self, batch: &RecordBatch) -> Result<()>;
    /// Flushes the rest.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// Returns the columns and the cells of rows as a table shows them.
pub(crate) fn cells(batch: &RecordBatch) -> Result<(Vec<String>, Vec<Vec<String>>)> {
    // What the bars mean is said beside a table only.
    let shown = perfquet_cli::terminal::muted(|| people::shaped(batch))?;
    let schema = shown.schema();
    let names = schema.fields().iter().map(|field| field.name().clone());
    Ok((names.collect(), cells::cells(&shown, &schema)?))
}

/// Begins a result. On a terminal, columns are cut to its width and control characters are escaped.
pub(crate) fn begin<'w>(
    format: Format,
    schema: SchemaRef,
    out: &'w mut (dyn Write + Send),
    terminal: bool,
) -> Result<Box<dyn Rows + 'w>> {
    if let Format::Parquet | Format::Arrow = format {
        let schema = plain_strings::schema(&schema);
        let rows = begin_rows(format, Arc::clone(&schema), out, terminal)?;
        return Ok(Box::new(plain_strings::PlainStrings { rows, schema }));
    }
    let hexadecimal = hexadecimal::columns(&schema);
    let schema = hexadecimal::shown(&schema, &hexadecimal);
    let rows = begin_rows(format, Arc::clone(&schema), out, terminal)?;
    if hexadecimal.is_empty() {
        return Ok(rows);
    }
    Ok(Box::new(hexadecimal::Hexadecimal {
        rows,
        schema,
        columns: hexadecimal,
    }))
}

fn begin_rows<'w>(
    format: Format,
    schema: SchemaRef,
    out: &'w mut (dyn Write + Send),
    terminal: bool,
) -> Result<Box<dyn Rows + 'w>> {
    let columns = terminal.then(width).flatten();
    Ok(match format {
        Format::Table => Box::new(table::Table::new(out, schema, columns)),
        Format::Records => Box::new(records::Records::new(out, schema, columns)),
        Format::Csv => Box::new(csv::Csv::new(out, &schema, terminal)?),
        Format::Json => Box::new(json::Json::array(out)),
        Format::Ndjson => Box::new(json::Json::lines(out)),
        Format::Parquet => Box::new(parquet_file::ParquetFile::new(out, schema)?),
        Format::Arrow => Box::new(arrow_stream::ArrowStream::new(out, &schema)?),
    })
}

/// Fails for a binary format if stdout is a terminal.
fn fail_on_terminal(format: Format) -> Result<()> {
    let name = match format {
        Format::Parquet => "Parquet",
        Format::Arrow => "an Arrow stream",
        Format::Table | Format::Records | Format::Csv | Format::Json | Format::Ndjson => {
            return Ok(());
        }
    };
    if !is_terminal() {
        return Ok(());
    }
    bail!(Misuse(format!(
        "cannot write {name} to a terminal\nhint: redirect it with > PATH, or use --format table"
    )))
}

/// Writes all rows of an answer to stdout; returns their number.
pub(crate) fn answer(format: Format, answer: &mut Answer<'_>) -> Result<u64> {
    fail_on_terminal(format)?;
    if format == Format::Table && is_plan(&answer.schema()) {
        return plan(answer);
    }
    stream(format, answer, &mut *stdout(), is_terminal())
}

/// Writes all rows of an answer; returns their number.
pub(crate) fn stream(
    format: Format,
    answer: &mut Answer<'_>,
    out: &mut (dyn Write + Send),
    terminal: bool,
) -> Result<u64> {
    let mut rows = begin(format, answer.schema(), out, terminal)?;
    let mut count = 0;
    while let Some(batch) = answer.next_batch()? {
        count += batch.num_rows() as u64;
        rows.rows(&batch)?;
    }
    rows.finish()?;
    Ok(count)
}

/// Whether this is the result of EXPLAIN.
fn is_plan(schema: &SchemaRef) -> bool {
    let names: Vec<&str> = schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    names == ["plan_type", "plan"]
}

/// Prints a plan line by line: in a table cell it would be unreadable.
fn plan(answer: &mut Answer<'_>) -> Result<u64> {
    let mut out = stdout();
    let mut count = 0;
    while let Some(batch) = answer.next_batch()? {
        let (kinds, plans) = (strings(batch.column(0))?, strings(batch.column(1))?);
        for row in 0..batch.num_rows() {
            let plan = text::harmless_lines(plans.value(row).trim_end());
            writeln!(
                out,
                "{}\n  {}",
                kinds.value(row),
                plan.replace('\n', "\n  ")
            )?;
            count += 1;
        }
    }
    out.flush()?;
    Ok(count)
}

/// Writes all rows of a finished result to stdout.
pub(crate) fn batch(format: Format, batch: &RecordBatch) -> Result<()> {
    fail_on_terminal(format)?;
    let mut out = stdout();
    let mut rows = begin(format, batch.schema(), &mut *out, is_terminal())?;
    rows.rows(batch)?;
    rows.finish()
}

/// Stdout, buffered.
pub(crate) fn stdout() -> Box<dyn Write + Send> {
    let out = BufWriter::with_capacity(64 * 1024, io::stdout());
    Box::new(Named::new(out, "to stdout, which is incomplete".to_owned()))
}

/// Whether stdout is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Clears the terminal, if stdout is one.
pub(crate) fn clear_screen() {
    if is_terminal() {
        // Cursor to the top left; erase what follows.
        let _ = io::stdout().write_all(b"\x1b[H\x1b[2J");
    }
}

/// Whether stdout should be colored (<https://no-color.org>).
pub(crate) fn is_colored() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    is_terminal() && !refused
}

/// Lines of the terminal.
pub(crate) fn height() -> usize {
    let given = std::env::var("LINES")
        .ok()
        .and_then(|text| text.parse().ok());
    given
        .or_else(|| terminal_size::terminal_size().map(|(_, height)| usize::from(height.0)))
        .unwrap_or(24)
}

/// Columns of the terminal; `None` without a terminal, when nothing is cut.
pub(crate) fn width() -> Option<usize> {
    if !is_terminal() {
        return None;
    }
    let given = std::env::var("COLUMNS")
        .ok()
        .and_then(|text| text.parse().ok());
    // The terminal's own size, through a dependency that clap has already.
    Some(
        given
            .or_else(|| terminal_size::terminal_size().map(|(width, _)| usize::from(width.0)))
            .unwrap_or(120),
    )
}
