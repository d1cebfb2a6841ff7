//! Every table as a file: CSV, or Arrow's IPC files.
//!
//! ```text
//! a.csv/samples.csv   a.csv/sched.sched_switch.csv   a.csv/frames.csv   …
//! ```
//! Samples, calls and events are filtered; other tables are complete. In CSV, addresses are hexadecimal, NULL is an
//! empty cell, and empty text is `""`. Names in a trace are not trusted, and CSV is opened with spreadsheets and shown
//! on terminals: control characters are escaped, as `\x1b`, and text that a spreadsheet would evaluate (`=cmd()`)
//! follows an apostrophe. `csv=exact` writes text as it is. A table whose parts have different columns has one file per form:
//! `sched.sched_switch.2.csv`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use arrow_array::{Array, RecordBatch};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use perfquet_cli::escaped_where;
use perfquet_trace::store::ColumnSchema;

use super::source::{Source, sql_name};
use super::values::Cell;
use super::{Exporter, Output, Tally};

/// `--to csv`
pub(super) const CSV: Exporter = Exporter {
    name: "csv",
    about: "a directory with a CSV file per table",
    output: Output::Directory {
        ending: ".csv",
        next: "see FILE",
        write: |source, folder, tally| write(source, folder, tally, Kind::Csv { is_exact: false }),
    },
};

/// `--to csv=exact`
pub(super) const CSV_EXACT: Exporter = Exporter {
    name: "csv=exact",
    about: "as csv, with control characters and formulas as they are",
    output: Output::Directory {
        ending: ".csv",
        next: "see FILE",
        write: |source, folder, tally| write(source, folder, tally, Kind::Csv { is_exact: true }),
    },
};

/// `--to arrow`
pub(super) const ARROW: Exporter = Exporter {
    name: "arrow",
    about: "a directory with an Arrow IPC file per table",
    output: Output::Directory {
        ending: ".arrow",
        next: "see FILE",
        write: |source, folder, tally| write(source, folder, tally, Kind::Arrow),
    },
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Csv { is_exact: bool },
    Arrow,
}

fn write(source: &Source<'_>, folder: &Path, tally: &mut Tally, kind: Kind) -> Result<()> {
    let mut names: HashMap<String, usize> = HashMap::new();
    let (mut tables, mut written) = (0, 0);
    for (name, columns, rows) in source.all_tables()? {
        let name = sql_name(&name);
        let form = names.entry(name.clone()).or_default();
        *form += 1;
        let ending = match kind {
            Kind::Csv { .. } => "csv",
            Kind::Arrow => "arrow",
        };
        let file = match form {
            1 => format!("{name}.{ending}"),
            form => format!("{name}.{form}.{ending}"),
        };
        let path = folder.join(file);
        let out =
            File::create_new(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut out = BufWriter::with_capacity(1 << 16, out);
        tables += 1;
        written += match kind {
            Kind::Csv { is_exact } => csv(&columns, rows, &mut out, is_exact),
            Kind::Arrow => arrow(&columns, rows, &mut out),
        }
        .map_err(system_error)
        .and_then(|rows| Ok((rows, out.flush()?)))
        .with_context(|| format!("cannot write {}", path.display()))?
        .0;
    }
    tally.wrote("table", tables);
    tally.wrote("row", written);
    Ok(())
}

/// The rows of a table.
type Rows<'s> = Box<dyn Iterator<Item = Result<RecordBatch>> + 's>;

fn csv(
    columns: &[ColumnSchema],
    rows: Rows<'_>,
    out: &mut impl Write,
    is_exact: bool,
) -> Result<u64> {
    let names: Vec<String> = columns.iter().map(|column| quoted(&column.name)).collect();
    writeln!(out, "{}", names.join(","))?;
    let mut written = 0;
    for batch in rows {
        let batch = batch?;
        let cells: Vec<(Option<&dyn Array>, bool)> = columns
            .iter()
            .map(|column| {
                let is_address = matches!(column.unit.as_str(), "address" | "mask");
                let array = batch.column_by_name(&column.name);
                (array.map(AsRef::as_ref), is_address)
            })
            .collect();
        for row in 0..batch.num_rows() {
            for (index, (column, is_address)) in cells.iter().enumerate() {
                if index > 0 {
                    out.write_all(b",")?;
                }
                if let Some(column) = column {
                    out.write_all(cell(*column, row, *is_address, is_exact).as_bytes())?;
                }
            }
            out.write_all(b"\n")?;
        }
        written += batch.num_rows() as u64;
    }
    Ok(written)
}

fn cell(column: &dyn Array, row: usize, is_address: bool, is_exact: bool) -> String {
    match Cell::at(column, row) {
        Cell::Null => String::new(),
        Cell::UInt(number) if is_address => format!("{number:#x}"),
        Cell::Text(text) if text.is_empty() => "\"\"".to_owned(),
        Cell::Text(text) if !is_exact => quoted(&harmless(&text)),
        value => quoted(&value.text()),
    }
}

/// Escapes control characters other than newlines and tabs, and marks text that a spreadsheet would evaluate.
fn harmless(text: &str) -> Cow<'_, str> {
    let escaped = escaped_where(text, |letter| !matches!(letter, '\n' | '\t'));
    let is_formula =
        escaped.starts_with(['=', '+', '-', '@', '\t']) && escaped.parse::<f64>().is_err();
    match is_formula {
        true => Cow::Owned(format!("'{escaped}")),
        false => escaped,
    }
}

/// Quotes a cell if necessary (RFC 4180).
fn quoted(text: &str) -> String {
    match text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

fn arrow(columns: &[ColumnSchema], rows: Rows<'_>, out: &mut impl Write) -> Result<u64> {
    let mut written = 0;
    let mut writer: Option<FileWriter<&mut dyn Write>> = None;
    let mut out: Option<&mut dyn Write> = Some(out);
    for batch in rows {
        let batch = batch?;
        if writer.is_none() {
            let out = out.take().context("a file has one writer")?;
            writer = Some(FileWriter::try_new(out, batch.schema_ref())?);
        }
        if let Some(writer) = &mut writer {
            writer.write(&batch)?;
        }
        written += batch.num_rows() as u64;
    }
    let mut writer = match (writer, out) {
        (Some(writer), _) => writer,
        // A table without rows still has columns.
        (None, Some(out)) => FileWriter::try_new(out, &schema_of(columns))?,
        (None, None) => return Ok(written),
    };
    writer.finish()?;
    Ok(written)
}

/// The system's error inside one of arrow, which prints it with a prefix.
fn system_error(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<ArrowError>() {
        Ok(ArrowError::IoError(_, error)) => error.into(),
        Ok(other) => other.into(),
        Err(other) => other,
    }
}

/// Returns the columns of a table without rows as strings, because there are no values to derive types from.
fn schema_of(columns: &[ColumnSchema]) -> Arc<Schema> {
    let fields = columns.iter().map(|column| {
        let kind = match column.kind.as_str() {
            "int32" => DataType::Int32,
            "int64" => DataType::Int64,
            "bits" | "uint64" => DataType::UInt64,
            "float64" => DataType::Float64,
            "bool" => DataType::Boolean,
            _ => DataType::Utf8,
        };
        Field::new(&column.name, kind, true)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_only_if_needed() {
        for (text, expected) in [
            ("plain", "plain"),
            ("a,b", "\"a,b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("two\nlines", "\"two\nlines\""),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }

    #[test]
    fn text_is_neither_a_formula_nor_a_control_sequence() {
        for (text, expected) in [
            ("=HYPERLINK(\"x\")", "'=HYPERLINK(\"x\")"),
            ("-bash", "'-bash"),
            ("@counts", "'@counts"),
            ("+cmd", "'+cmd"),
            ("\t=1", "'\t=1"),
            ("-5", "-5"),
            ("a=b", "a=b"),
            ("\x1b[2J", "\\x1b[2J"),
            ("two\nlines", "two\nlines"),
        ] {
            assert_eq!(harmless(text), expected);
        }
    }
}
