//! Translates errors of DataFusion: message, place in the SQL, similar names.
//!
//! ```text
//! no column prev_com in sched_switch
//!   SELECT prev_com FROM sched_switch
//!          ^
//! hint: use one of: prev_comm, prev_prio
//! ```

mod sentences;
mod synonyms;

use anyhow::anyhow;
use datafusion::common::{Column, SchemaError};
use datafusion::error::DataFusionError;
use perfquet_cli::quantity::nanoseconds;
use perfquet_cli::{nearest, suggestion};
use perfquet_trace::store;

use crate::functions::FUNCTIONS;
use crate::sql::literals::{original_place, with_nanoseconds};
use sentences::{plain, sentence};

/// The names that a query may use.
pub trait Known {
    /// Returns all tables and views, event tables also with their system.
    fn table_names(&self) -> Vec<String>;

    /// Returns the names of all functions: scalar, aggregate, window and table.
    fn function_names(&self) -> Vec<String>;

    /// Returns the names of the table functions.
    fn table_function_names(&self) -> Vec<String>;

    /// Returns the fragments of a report's query that the user wrote; `None` if the user wrote all of the query.
    fn pieces(&self) -> Option<Vec<String>>;
}

/// Formats an error of a query. With the known names, similar ones are suggested.
pub(crate) fn error(error: DataFusionError, sql: &str, known: Option<&dyn Known>) -> anyhow::Error {
    let pieces = known.and_then(Known::pieces);
    written(error, sql, known, pieces)
}

/// Formats an error of a query that the user wrote as a whole, also for a report.
pub(crate) fn whole(error: DataFusionError, sql: &str, known: Option<&dyn Known>) -> anyhow::Error {
    written(error, sql, known, None)
}

/// Formats an error of a query of which the user wrote `pieces`; `None`: all of it.
fn written(
    error: DataFusionError,
    sql: &str,
    known: Option<&dyn Known>,
    pieces: Option<Vec<String>>,
) -> anyhow::Error {
    let is_whole = pieces.is_none();
    if let Some(kind) = io_kind(&error) {
        return std::io::Error::new(kind, error.strip_backtrace()).into();
    }
    if let DataFusionError::ExecutionJoin(_) = root(&error) {
        return panic();
    }
    let place = match pieces {
        Some(pieces) => place_in_piece(&error, sql, &pieces),
        None => place_of(&error, sql),
    };
    let mut text = match root(&error) {
        DataFusionError::SchemaError(schema, _) => {
            let is_quoted = place.as_deref().is_some_and(marks_quote);
            schema_error(schema, is_quoted)
        }
        DataFusionError::SQL(parser, _) => {
            let text = parser.to_string();
            let text = text.strip_prefix("sql parser error: ").unwrap_or(&text);
            let text = text.split(" at Line:").next().unwrap_or(text);
            let hint =
                synonyms::syntax(text).map_or_else(String::new, |hint| format!("\nhint: {hint}"));
            sentence(text).unwrap_or_else(|| lower_first(text) + &hint)
        }
        DataFusionError::ResourcesExhausted(text) => {
            let text = text.lines().next().unwrap_or_default();
            format!(
                "the query exceeds the memory limit: {text}\nhint: raise --memory, lower --threads, or select fewer rows"
            )
        }
        DataFusionError::Plan(text) => plan_error(text, known),
        other if wrong_argument(&other.strip_backtrace()).is_some() => {
            wrong_argument(&other.strip_backtrace()).unwrap_or_default()
        }
        other => translated(&other.strip_backtrace()),
    };
    if known.is_some()
        && is_whole
        && let Some(hint) = synonyms::statement(sql)
    {
        let end = text.find("\nhint: ").unwrap_or(text.len());
        text.truncate(end);
        text.push_str(&format!("\nhint: {hint}"));
    }
    let is_from_list = text.starts_with("no column") && sql.to_lowercase().contains("unnest(");
    if is_from_list && !text.contains("hint: use") {
        let end = text.find("\nhint: ").unwrap_or(text.len());
        text.truncate(end);
        text.push_str(&format!("\nhint: {}", synonyms::UNNEST));
    }
    if let Some(place) = place {
        // The marked line goes below the message, before the hint.
        let hint = text.find("\nhint: ").unwrap_or(text.len());
        text.insert_str(hint, &format!("\n{place}"));
    }
    anyhow!(text)
}

/// Formats an error in the expression of an option.
pub(crate) fn piece(failure: DataFusionError, option: &str, text: &str) -> anyhow::Error {
    let failure = error(failure, text, None);
    anyhow!("{option}: {failure}")
}

/// Returns the error for a panic of a thread of the query engine: because of a damaged part, or for a reason that has
/// been printed.
pub(crate) fn panic() -> anyhow::Error {
    match store::reader_panic() {
        Some(panic) => anyhow!(
            "a part of a trace is damaged: {panic}\nhint: read the other tables, or import the input again"
        ),
        None => anyhow!("the query engine failed; the cause is printed above"),
    }
}

/// Returns the innermost error.
fn root(error: &DataFusionError) -> &DataFusionError {
    match error {
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => root(inner),
        DataFusionError::Shared(inner) => root(inner),
        DataFusionError::Collection(all) => all.first().map_or(error, root),
        _ => error,
    }
}

fn io_kind(error: &DataFusionError) -> Option<std::io::ErrorKind> {
    match root(error) {
        DataFusionError::IoError(error) => Some(error.kind()),
        _ => None,
    }
}

/// Removes the kind of error, which only concerns developers.
fn message(text: &str) -> &str {
    let kinds = [
        "Error during planning: ",
        "Execution error: ",
        "Optimizer rule",
        "Arrow error: ",
        "Parquet error: ",
        "External error: ",
        "Schema error: ",
        "This feature is not implemented: ",
        "Invalid or Unsupported Configuration: ",
    ];
    let stripped = kinds.iter().find_map(|kind| text.strip_prefix(kind));
    stripped.unwrap_or(text)
}

fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    match (letters.next(), letters.clone().next()) {
        // An abbreviation keeps its case.
        (Some(first), Some(second)) if first.is_uppercase() && second.is_lowercase() => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => text.to_owned(),
    }
}

/// Whether a name in double quotes is marked.
fn marks_quote(picture: &str) -> bool {
    let mut lines = picture.lines();
    let (Some(line), Some(mark)) = (lines.next(), lines.next()) else {
        return false;
    };
    let column = mark.chars().take_while(|letter| *letter == ' ').count();
    line.chars().nth(column) == Some('"')
}

fn schema_error(error: &SchemaError, is_quoted: bool) -> String {
    match error {
        SchemaError::FieldNotFound {
            field,
            valid_fields,
        } => no_column(field, valid_fields, is_quoted),
        SchemaError::AmbiguousReference { field } => format!(
            "column {0} is in more than one table\nhint: qualify it: TABLE.{0}",
            field.name
        ),
        other => translated(&other.to_string()),
    }
}

/// Translates a message without a place in the SQL.
fn translated(text: &str) -> String {
    if let Some(failure) = cast_failure(text) {
        return failure;
    }
    if let Some(string) = between(text, "Cannot cast string '", "'") {
        let hint = match nanoseconds(string) {
            Some(_) => format!("write a duration without quotes: {string}"),
            None => "names of the kernel's numbers: task_state(prev_state), syscall_name(nr), errno_name(ret), signal_name(sig)".to_owned(),
        };
        return format!("expected a number, found the string '{string}'\nhint: {hint}");
    }
    sentence(text).unwrap_or_else(|| lower_first(message(&plain(text))) + arithmetic_hint(text))
}

/// A value that does not have the type of a cast: `Can't cast value 3000000000 to type Int32`, `Cannot cast string '1.5' to value of
/// Int32 type`, `Cannot cast value 'x' to value of Boolean type`.
fn cast_failure(text: &str) -> Option<String> {
    if let Some(value) = between(text, "Can't cast value ", " to type ") {
        let kind = between(text, " to type ", "")?;
        let kind = kind.split(|letter: char| !letter.is_alphanumeric()).next();
        let (name, hint) = match kind.unwrap_or_default() {
            "Int8" => ("TINYINT", "use BIGINT"),
            "Int16" => ("SMALLINT", "use BIGINT"),
            "Int32" => ("INT", "use BIGINT"),
            "Int64" => ("BIGINT", "use DECIMAL(38, 0)"),
            "UInt8" | "UInt16" | "UInt32" | "UInt64" => ("the unsigned type", "use BIGINT"),
            _ => return None,
        };
        return Some(match value {
            "NaN" | "inf" | "-inf" => format!("{value} is not an integer"),
            value => format!("{value} does not fit into {name}\nhint: {hint}"),
        });
    }
    let (value, kind) = match between(text, "Cannot cast string '", "'") {
        Some(value) => (value, between(text, "to value of ", " type")?),
        None => (
            between(text, "Cannot cast value '", "'")?,
            between(text, "to value of ", " type")?,
        ),
    };
    match kind {
        "Boolean" => Some(format!(
            "expected true or false, found the string '{value}'"
        )),
        kind if kind.starts_with("Date") || kind.starts_with("Time") => Some(format!(
            "expected a date, found the string '{value}'\nhint: write it as 2026-01-31"
        )),
        kind if kind.contains("Int") && value.trim().parse::<f64>().is_ok() => Some(format!(
            "expected an integer, found the string '{value}'\nhint: use CAST(x AS DOUBLE)"
        )),
        _ => None,
    }
}

/// What to write instead of a string or an interval beside a number.
fn arithmetic_hint(text: &str) -> &'static str {
    match text.contains("arithmetic expression") {
        true if text.contains("Interval") => "\nhint: times of the trace take durations: time + 1s",
        true if text.contains("Utf8") => "\nhint: write numbers and durations without quotes: 1ms",
        _ => "",
    }
}

fn no_column(field: &Column, valid: &[Column], is_quoted: bool) -> String {
    let mut tables: Vec<String> = valid
        .iter()
        .filter_map(|column| {
            column
                .relation
                .as_ref()
                .map(|table| table.table().to_owned())
        })
        .collect();
    tables.dedup();
    let place = match tables.as_slice() {
        [] => String::new(),
        tables => format!(" in {}", tables.join(", ")),
    };
    let names: Vec<&str> = valid.iter().map(|column| column.name.as_str()).collect();
    let mut near = synonyms::columns(&field.name, &names);
    if near.is_empty() {
        near = nearest(&field.name, names.iter().copied());
    }
    let expression = synonyms::expression(&field.name, &names);
    let is_other = synonyms::columns(&field.name, &names).is_empty();
    let hint = if is_quoted {
        let string = crate::sql::names::literal(&field.name);
        format!("double quotes are for names; a string: {string}")
    } else if names.contains(&"keys") && near.is_empty() {
        "the key of an aggregation is the list keys: keys[1] = 'sh'".to_owned()
    } else if let Some(hint) = expression.filter(|_| is_other) {
        hint.to_owned()
    } else if !near.is_empty() {
        suggestion(&near)
    } else if names.is_empty() {
        "put strings in single quotes: 'string'".to_owned()
    } else {
        let shown = names.len().min(20);
        let more = if shown < names.len() { ", …" } else { "" };
        format!(
            "use one of: {}{more}; put strings in single quotes: 'string'",
            names[..shown].join(", ")
        )
    };
    format!("no column {}{place}\nhint: {hint}", field.flat_name())
}

fn plan_error(text: &str, known: Option<&dyn Known>) -> String {
    let first = text.lines().next().unwrap_or_default();
    if let Some(name) =
        between(first, "table '", "' not found").or_else(|| between(first, "Table not found: ", ""))
    {
        let name = name
            .trim_start_matches("perfquet.")
            .trim_start_matches("main.");
        let names = known.map(Known::table_names).unwrap_or_default();
        let mut near = nearest(name, names.iter().map(String::as_str));
        // A name that only has a few letters in common leads nowhere.
        near.retain(|known| known.len() * 2 > name.len() && name.len() * 2 > known.len());
        let hint = match synonyms::table(name) {
            Some(hint) => hint.to_owned(),
            None if near.is_empty() => {
                "list the tables with: perfquet-query tables TRACE".to_owned()
            }
            None => suggestion(&near),
        };
        return format!("no table {name}\nhint: {hint}");
    }
    if let Some(name) = between(first, "table function '", "' not found")
        .or_else(|| between(first, "Invalid function '", "'"))
    {
        let mut names = known.map(Known::function_names).unwrap_or_default();
        names.extend(FUNCTIONS.iter().map(|function| {
            function
                .usage
                .split('(')
                .next()
                .unwrap_or_default()
                .to_owned()
        }));
        // The function exists, but not in this form.
        let tables = known.map(Known::table_function_names).unwrap_or_default();
        if first.starts_with("Invalid function") && tables.contains(&name.to_lowercase()) {
            return format!("{name} is a table function\nhint: use FROM {name}(…)");
        }
        if names.iter().any(|known| known == &name.to_lowercase()) {
            return format!("{name} needs a window\nhint: use {name}(…) OVER (ORDER BY time)");
        }
        let near = nearest(name, names.iter().map(String::as_str));
        let hint = match synonyms::function(name) {
            Some(hint) => format!("\nhint: {hint}"),
            None if near.is_empty() => String::new(),
            None => format!("\nhint: {}", suggestion(&near)),
        };
        return format!("no function {name}{hint}");
    }
    wrong_argument(text).unwrap_or_else(|| translated(text))
}

/// Recognizes wrong arguments of a function: `Function 'sum' failed to match any signature, …`, `failed to
/// coerce arguments to satisfy a call to 'quantize' function: …`.
fn wrong_argument(text: &str) -> Option<String> {
    // Some errors are nested in another message.
    let text = text
        .rsplit("Error during planning: ")
        .next()
        .unwrap_or(text);
    let name = between(text, "Function '", "' failed to match")
        .or_else(|| between(text, "satisfy a call to '", "' function"))
        .or_else(|| between(text, "Function '", "' requires"))
        .or_else(|| between(text, "", "' does not support zero arguments")?.strip_prefix('\''))
        .or_else(|| {
            let call = between(text, "argument types '", "'. You might need")?;
            call.split('(').next()
        })?;
    // The suffix names a variant of the function.
    let name = name.strip_suffix("_pop").unwrap_or(name);
    let own = FUNCTIONS
        .iter()
        .find(|function| function.usage.split('(').next() == Some(name));
    let hint = match (synonyms::arguments(name), own) {
        (Some(hint), _) => hint.to_owned(),
        (None, Some(own)) => format!("use {}", own.usage),
        (None, None) => format!("list its arguments: SHOW FUNCTIONS LIKE '{name}'"),
    };
    Some(format!(
        "{name}: wrong number or types of arguments\nhint: {hint}"
    ))
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let start = text.to_lowercase().find(&before.to_lowercase())? + before.len();
    let rest = &text[start..];
    if after.is_empty() {
        Some(rest)
    } else {
        rest.find(after).map(|end| &rest[..end])
    }
}

/// Returns the line of the error, from 1.
pub(crate) fn line(error: &DataFusionError) -> Option<usize> {
    position(error).map(|(line, _)| line)
}

/// Returns line and column of the error, both from 1.
fn position(error: &DataFusionError) -> Option<(usize, usize)> {
    match error.diagnostic().and_then(|diagnostic| diagnostic.span) {
        Some(span) => Some((span.start.line as usize, span.start.column as usize)),
        None => match root(error) {
            DataFusionError::SQL(parser, _) => line_and_column(&parser.to_string()),
            _ => None,
        },
    }
}

/// Marks the place in the fragment written by the user; `None` if it is in none of them.
fn place_in_piece(error: &DataFusionError, sql: &str, pieces: &[String]) -> Option<String> {
    let (line, column) = position(error)?;
    let sql = with_nanoseconds(sql).ok()?;
    let lines = sql.split_inclusive('\n').take(line.checked_sub(1)?);
    let before: usize = lines.map(str::len).sum();
    let in_line = sql
        .get(before..)?
        .char_indices()
        .nth(column.checked_sub(1)?)?;
    let place = before + in_line.0;
    pieces.iter().find_map(|piece| {
        let mut starts = sql.match_indices(piece.as_str()).map(|(start, _)| start);
        let start = starts.find(|&start| (start..=start + piece.len()).contains(&place))?;
        let before = piece.get(..place - start)?;
        let line = before.matches('\n').count() + 1;
        let column = before
            .chars()
            .rev()
            .take_while(|&letter| letter != '\n')
            .count()
            + 1;
        picture(piece, line, column)
    })
}

/// Returns the wrong line of `sql`, with a mark under the place.
fn place_of(error: &DataFusionError, sql: &str) -> Option<String> {
    let (line, column) = position(error)?;
    // Durations are longer in what was planned.
    let (line, column) = original_place(sql, line, column);
    picture(sql, line, column)
}

fn picture(sql: &str, line: usize, column: usize) -> Option<String> {
    let text = sql.lines().nth(line.checked_sub(1)?)?;
    let column = column.saturating_sub(1).min(text.chars().count());
    // For a long one-line query, only the part near the error.
    let from = column.saturating_sub(60);
    let shown: String = text
        .chars()
        .skip(from)
        .take(100)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    Some(format!("  {shown}\n  {}^", " ".repeat(column - from)))
}

/// Parses the place in "… at Line: 1, Column: 8".
fn line_and_column(text: &str) -> Option<(usize, usize)> {
    let line = text.rsplit("Line: ").next()?;
    let (line, column) = line.split_once(", Column: ")?;
    let digits: String = column.chars().take_while(char::is_ascii_digit).collect();
    Some((line.parse().ok()?, digits.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        assert_eq!(
            line_and_column("expected: x, found: y at Line: 2, Column: 17"),
            Some((2, 17))
        );
        assert_eq!(line_and_column("no place"), None);
    }

    #[test]
    fn strings_and_intervals_beside_numbers_have_hints() {
        let hint = |types: &str| {
            let text = translated(&format!(
                "Error during planning: Cannot coerce arithmetic expression {types} to valid types"
            ));
            let hint = text.split_once("\nhint: ").map(|(_, hint)| hint.to_owned());
            hint.unwrap_or_default()
        };
        let quotes = "write numbers and durations without quotes: 1ms";
        assert_eq!(hint("Int64 / Utf8"), quotes);
        assert_eq!(hint("Utf8View % Int64"), quotes);
        let interval = "times of the trace take durations: time + 1s";
        assert_eq!(hint("Int64 + Interval(MonthDayNano)"), interval);
        assert_eq!(hint("Boolean + Int64"), "");
    }

    #[test]
    fn names_between() {
        assert_eq!(
            between(
                "table 'perfquet.main.x' not found",
                "table '",
                "' not found"
            ),
            Some("perfquet.main.x")
        );
        assert_eq!(between("other", "table '", "'"), None);
    }
}
