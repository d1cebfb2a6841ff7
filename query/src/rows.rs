//! Reports as record batches, for other programs.

use std::ffi::OsString;

use anyhow::Result;
use arrow::array::RecordBatch;
use clap::Command;
use perfquet::failure::Misuse;

use crate::reports::REPORTS;

/// Returns the rows of a report, as `perfquet-query NAME WORDS... --format arrow` writes them.
///
/// ```no_run
/// # fn example() -> anyhow::Result<()> {
/// let functions = perfquet_query::rows("top", ["a.pqt", "--where", "comm = 'dd'"])?;
/// # Ok(())
/// # }
/// ```
/// It opens the traces and blocks; an async program calls it in `spawn_blocking`.
///
/// # Errors
///
/// [`Misuse`]: no report has the name, an option is unknown, or the report has no rows (`page`). Otherwise the traces or
/// their rows are unreadable.
pub fn rows<W: Into<OsString>>(
    name: &str,
    words: impl IntoIterator<Item = W>,
) -> Result<Vec<RecordBatch>> {
    let report = REPORTS.iter().find(|report| report.name == name);
    let Some((report, rows)) = report.and_then(|report| Some((report, report.rows?))) else {
        let names: Vec<&str> = REPORTS.iter().map(|report| report.name).collect();
        let known = names.join(", ");
        return Err(Misuse(format!("expected a report, {known}; found {name:?}")).into());
    };
    let mut command = (report.arguments)(Command::new(report.name));
    // Its drawings and indented texts have other rows.
    if command
        .get_arguments()
        .any(|option| option.get_id() == "format")
    {
        command = command.mut_arg("format", |format| format.default_value("arrow"));
    }
    let words = words.into_iter().map(Into::into);
    let matches = command.no_binary_name(true).try_get_matches_from(words);
    rows(&matches.map_err(|error| Misuse(error.to_string()))?)
}
