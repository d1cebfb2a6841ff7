//! Reports, and rows as people and other readers know them, for other programs.

use std::ffi::OsString;

use anyhow::Result;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use clap::{ArgMatches, Command, ValueEnum};
use perfquet::Session;
use perfquet::failure::Misuse;

use crate::commands::{Subcommand, tables};
use crate::render::{self, Format, plain_strings};
use crate::reports::REPORTS;

/// Returns the rows of a report, as `perfquet-query NAME WORDS... --format arrow` writes them.
///
/// ```no_run
/// # fn example() -> anyhow::Result<()> {
/// let functions = perfquet_query::rows("top", ["a.pqt", "--where", "comm = 'dd'"])?;
/// # Ok(())
/// # }
/// ```
/// It opens the traces and blocks; an async program calls it in `spawn_blocking`. A report without rows has one empty batch.
///
/// # Errors
///
/// [`Misuse`]: no report has the name, an option is unknown, or the report has no rows (`report`). Otherwise the traces or
/// their rows are unreadable.
pub fn rows<W: Into<OsString>>(
    name: &str,
    words: impl IntoIterator<Item = W>,
) -> Result<Vec<RecordBatch>> {
    let report = find(name)?;
    let Some(rows) = report.rows else {
        return Err(Misuse(format!("{name} has no rows")).into());
    };
    let mut command = (report.arguments)(Command::new(report.name));
    // Its drawings and indented texts have other rows.
    if command
        .get_arguments()
        .any(|option| option.get_id() == "format")
    {
        command = command.mut_arg("format", |format| format.default_value("arrow"));
    }
    let batches = rows(&parsed(command, words)?)?;
    batches.iter().map(plain_strings::of).collect()
}

/// Runs a report as `perfquet-query NAME WORDS...` does: `-o PATH.svg` draws a picture, `-o PATH.html` writes a page.
///
/// # Errors
///
/// Like [`rows`], and if the output cannot be written.
pub fn run<W: Into<OsString>>(name: &str, words: impl IntoIterator<Item = W>) -> Result<()> {
    let report = find(name)?;
    let command = (report.arguments)(Command::new(report.name));
    (report.run)(&parsed(command, words)?)
}

/// The names of all reports and what each answers, in the order of `perfquet-query --help`.
pub fn reports() -> impl Iterator<Item = (&'static str, String)> {
    REPORTS.iter().map(|report| {
        let command = (report.arguments)(Command::new(report.name));
        let about = command.get_about().map(ToString::to_string);
        (report.name, about.unwrap_or_default())
    })
}

/// Lists the tables and views of a session, as `perfquet-query tables TRACE` does: `table`, `rows`, `bytes`, `doc`.
///
/// # Errors
///
/// A view cannot be planned.
pub fn tables(session: &Session) -> Result<RecordBatch> {
    tables::list(session)
}

/// Describes the columns of a table or view, as `perfquet-query tables TRACE TABLE` does.
///
/// # Errors
///
/// No table or view has the name.
pub fn columns(session: &Session, table: &str) -> Result<RecordBatch> {
    tables::describe(session, table)
}

/// Returns rows with strings in the layout that every reader of Arrow knows; pandas cannot read string views.
///
/// # Errors
///
/// A column cannot be converted.
pub fn plain(batch: &RecordBatch) -> Result<RecordBatch> {
    plain_strings::of(batch)
}

/// The schema of [`plain`] rows.
pub fn plain_schema(schema: &SchemaRef) -> SchemaRef {
    plain_strings::schema(schema)
}

/// Returns the columns and the cells of rows as a table shows them: durations in a fitting unit, shares in percent, lists as
/// bars, no control characters, no column that has nothing to show.
///
/// # Errors
///
/// A value has no text.
pub fn cells(batch: &RecordBatch) -> Result<(Vec<String>, Vec<Vec<String>>)> {
    render::cells(batch)
}

/// Writes rows in a format of `--format`, as if to a file: "table", "csv", "json", "parquet", ….
///
/// # Errors
///
/// [`Misuse`]: no format has the name. Otherwise the rows do not have the schema.
pub fn formatted(format: &str, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Vec<u8>> {
    let format = Format::from_str(format, false).map_err(Misuse)?;
    let mut out = Vec::new();
    let mut rows = render::begin(format, SchemaRef::clone(schema), &mut out, false)?;
    batches.iter().try_for_each(|batch| rows.rows(batch))?;
    rows.finish()?;
    Ok(out)
}

fn find(name: &str) -> Result<&'static Subcommand> {
    let found = REPORTS.iter().find(|report| report.name == name);
    found.copied().ok_or_else(|| {
        let names: Vec<&str> = REPORTS.iter().map(|report| report.name).collect();
        let known = names.join(", ");
        Misuse(format!("expected a report, {known}; found {name:?}")).into()
    })
}

fn parsed<W: Into<OsString>>(
    command: Command,
    words: impl IntoIterator<Item = W>,
) -> Result<ArgMatches> {
    let words = words.into_iter().map(Into::into);
    let matches = command.no_binary_name(true).try_get_matches_from(words);
    Ok(matches.map_err(|error| Misuse(error.to_string()))?)
}
