//! Writes results: one file per format. The only place that checks whether stdout is a terminal, and its width.

mod arrow_stream;
pub(crate) mod bars;
mod csv;
mod destination;
pub(crate) mod distribution;
mod drawing;
pub(crate) mod heat;
mod json;
mod parquet_file;
pub(crate) mod svg;
mod table;
pub(crate) mod text;
pub(crate) mod violins;

use std::io::{self, BufWriter, IsTerminal, Write};

use anyhow::{Result, bail};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use clap::ValueEnum;

use crate::failure::Misuse;
use crate::session::Answer;

pub(crate) use destination::Destination;
pub(crate) use table::UNIT;

/// Output formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns
    Table,
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
        matches!(self, Format::Table | Format::Csv | Format::Ndjson)
    }
}

/// Writes rows in one form.
pub(crate) trait Rows {
    /// Takes the next rows.
    fn rows(&mut self, batch: &RecordBatch) -> Result<()>;
    /// Flushes the rest.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// Begins a result on stdout.
pub(crate) fn begin(format: Format, schema: SchemaRef) -> Result<Box<dyn Rows>> {
    let terminal = io::stdout().is_terminal();
    let out = stdout();
    Ok(match format {
        Format::Table => Box::new(table::Table::new(out, schema, width())?),
        Format::Csv => Box::new(csv::Csv::new(out, schema, terminal)?),
        Format::Json => Box::new(json::Json::array(out)),
        Format::Ndjson => Box::new(json::Json::lines(out)),
        Format::Parquet | Format::Arrow if terminal => {
            bail!(Misuse(format!(
                "cannot write {} to a terminal\nhint: redirect it with > PATH, or use --format table",
                if format == Format::Parquet {
                    "Parquet"
                } else {
                    "an Arrow stream"
                }
            )))
        }
        Format::Parquet => Box::new(parquet_file::ParquetFile::new(out, schema)?),
        Format::Arrow => Box::new(arrow_stream::ArrowStream::new(out, schema)?),
    })
}

/// Writes all rows of an answer to stdout, and how many there were.
pub(crate) fn answer(format: Format, answer: &mut Answer<'_>) -> Result<u64> {
    if format == Format::Table && is_plan(&answer.schema()) {
        return plan(answer);
    }
    let mut rows = begin(format, answer.schema())?;
    let mut count = 0;
    while let Some(batch) = answer.next()? {
        count += batch.num_rows() as u64;
        rows.rows(&batch)?;
    }
    rows.finish()?;
    Ok(count)
}

/// Whether this is what EXPLAIN answers.
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
    while let Some(batch) = answer.next()? {
        let (kinds, plans) = (
            text::strings(batch.column(0))?,
            text::strings(batch.column(1))?,
        );
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
    let mut rows = begin(format, batch.schema())?;
    rows.rows(batch)?;
    rows.finish()
}

/// Stdout, buffered.
pub(crate) fn stdout() -> Box<dyn Write + Send> {
    Box::new(BufWriter::with_capacity(64 * 1024, io::stdout()))
}

/// Whether stdout is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether colours are wanted on stdout (<https://no-color.org>).
pub(crate) fn is_coloured() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    is_terminal() && !refused
}

/// Columns of the terminal; `None` where there is none, and nothing is to be cut.
pub(crate) fn width() -> Option<usize> {
    if !is_terminal() {
        return None;
    }
    let told = std::env::var("COLUMNS")
        .ok()
        .and_then(|text| text.parse().ok());
    // What the terminal says itself comes through clap's own dependency on its size.
    Some(
        told.or_else(|| terminal_size::terminal_size().map(|(width, _)| usize::from(width.0)))
            .unwrap_or(120),
    )
}
