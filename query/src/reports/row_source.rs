//! Selects the rows of an expression: calls, an event, or a table.

use anyhow::{Result, bail};
use clap::Args;

use perfquet::Session;
use perfquet::failure::Misuse;
use perfquet::sql::names::quoted;

use super::event_weight::EventChoice;

/// Row selection of reports over any expression.
#[derive(Debug, Clone, Args)]
pub(super) struct Rows {
    /// Table or view to query [default: calls, else the event]
    ///
    /// `perfquet-query tables TRACE` lists tables and views. Without calls, or with --event, the default is the event.
    #[arg(long = "from", value_name = "TABLE", conflicts_with = "event")]
    table: Option<String>,
    /// Use the rows of this query instead of a table
    #[arg(long, value_name = "QUERY", conflicts_with_all = ["table", "event"])]
    sql: Option<String>,
    #[command(flatten)]
    pub(super) choice: EventChoice,
}

/// A table with a condition.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RowSource {
    /// Name on the command line.
    pub(super) name: String,
    pub(super) table: String,
    pub(super) condition: String,
}

impl Rows {
    /// Returns the selected table; otherwise the calls, if there are any, otherwise the event with the most rows.
    pub(super) fn selected(&self, session: &Session) -> Result<RowSource> {
        let filters = self.choice.filters.condition(session)?;
        let plain = |table: &str| RowSource {
            name: table.to_owned(),
            table: table.to_owned(),
            condition: filters.clone(),
        };
        if let Some(sql) = &self.sql {
            let sql = session.whole_query(sql)?;
            return Ok(RowSource {
                name: "query".to_owned(),
                // A trailing comment must not swallow the bracket.
                table: format!("({sql}\n) AS query"),
                condition: filters,
            });
        }
        if let Some(table) = &self.table {
            // Reports a wrong name as such.
            session.table(table)?;
            return Ok(plain(table));
        }
        if self.choice.event.is_none() && session.has_rows("calls") {
            return Ok(plain("calls"));
        }
        let subject = self.choice.subject(session)?;
        Ok(RowSource {
            condition: format!("{} AND {filters}", subject.condition),
            name: subject.name,
            table: subject.table,
        })
    }
}

impl Rows {
    /// Returns the last column of `--sql`, the value that a report is about if it has no expression.
    pub(super) fn value_of_query(&self, session: &Session) -> Result<Option<String>> {
        let Some(sql) = &self.sql else {
            return Ok(None);
        };
        let columns = session.query(session.whole_query(sql)?)?.schema();
        Ok(columns.fields().last().map(|field| quoted(field.name())))
    }
}

/// Splits arguments into traces and an expression: the last argument, unless it is a trace.
pub(super) fn divided(words: &[String]) -> (Vec<std::path::PathBuf>, Option<String>) {
    let paths = |words: &[String]| words.iter().map(std::path::PathBuf::from).collect();
    match words.split_last() {
        Some((last, traces)) if !traces.is_empty() && !is_trace(last) => {
            (paths(traces), Some(last.clone()))
        }
        _ => (paths(words), None),
    }
}

/// Whether an argument is a trace. A pattern may look like an expression, but rarely with this extension.
fn is_trace(word: &str) -> bool {
    std::path::Path::new(word).exists()
        || word.starts_with("lake:")
        || perfquet_trace::remote::is_url(word)
        || word.ends_with(".pqt")
        || word.ends_with(".pqt/")
}

/// Splits `comm, substr(name, 1, 3)` at the commas outside brackets and quotes.
pub(super) fn expressions(text: &str) -> Result<Vec<String>> {
    let mut found = vec![String::new()];
    let (mut depth, mut quote) = (0i32, None);
    for letter in text.chars() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (None, '\'' | '"') => quote = Some(letter),
            (None, '(' | '[') => depth += 1,
            (None, ')' | ']') => depth -= 1,
            (None, ',') if depth == 0 => {
                found.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = found.last_mut() {
            last.push(letter);
        }
    }
    let found: Vec<String> = found.iter().map(|text| text.trim().to_owned()).collect();
    // A repeated key has no effect.
    let mut seen = std::collections::HashSet::new();
    let found: Vec<String> = found
        .into_iter()
        .filter(|key| seen.insert(key.clone()))
        .collect();
    if found.iter().any(String::is_empty) {
        bail!(Misuse(format!(
            "--by {text}: expected expressions separated by commas"
        )));
    }
    Ok(found)
}

/// The keys as columns of a query, each followed by a comma. A key with the name of a result column becomes `by NAME`.
pub(super) fn named(keys: &[String], taken: &[&str]) -> String {
    let name = |key: &String| match taken.contains(&key.as_str()) {
        true => format!("by {key}"),
        false => key.replace('"', "\"\""),
    };
    keys.iter()
        .map(|key| format!("{key} AS \"{}\", ", name(key)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_divided_at_outer_commas() {
        assert_eq!(expressions("comm,cpu").unwrap(), ["comm", "cpu"]);
        assert_eq!(
            expressions("substr(comm, 1, 3), 'a,b' , x").unwrap(),
            ["substr(comm, 1, 3)", "'a,b'", "x"]
        );
        assert_eq!(expressions("comm,cpu, comm").unwrap(), ["comm", "cpu"]);
        assert!(expressions("comm,,cpu").is_err());
    }

    #[test]
    fn keys_are_not_taken_for_sums() {
        let keys = ["comm".to_owned(), "count".to_owned()];
        assert_eq!(
            named(&keys, &["count"]),
            "comm AS \"comm\", count AS \"by count\", "
        );
    }

    #[test]
    fn the_last_word_is_an_expression() {
        let words = |words: &[&str]| {
            words
                .iter()
                .map(|&word| word.to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            divided(&words(&["a.pqt", "duration"])).1.as_deref(),
            Some("duration")
        );
        assert_eq!(divided(&words(&["a.pqt", "b.pqt"])).1, None);
        assert_eq!(divided(&words(&["a.pqt"])).1, None);
    }
}
