//! The views in DuckDB's dialect, over views with the names of perfquet's tables.
//!
//! ```text
//! CREATE OR REPLACE VIEW recorded_events AS SELECT …            `-- duckdb: same`: DuckDB understands the file in sql/
//! CREATE OR REPLACE VIEW cpu_idle AS WITH marks AS …            `-- duckdb: own`: another file, in duckdb/
//! CREATE OR REPLACE MACRO ancestors(call_id) AS TABLE …         the same; a view with arguments
//! ```
//! Views that follow threads, requests or locks through all events are passes of perfquet-query. What DuckDB would need for
//! them is quadratic joins, so their heads have `-- duckdb: none` with the reason.

use crate::{VIEWS, View};

/// SQL of DuckDB for views whose own SQL it does not understand; `$NAME` is an argument of the view.
#[rustfmt::skip]
const OWN: &[(&str, &str)] = files!("duckdb":
    ancestors
    calls_with_context
    cpu_frequency
    cpu_idle
    descendants
    events
    latest_aggregates
);

/// The statement that creates a view or, if it has arguments, a macro; or the reason why there is none.
///
/// # Errors
///
/// The reason, for a comment.
pub fn statement(view: &View) -> Result<String, &str> {
    let own = OWN.iter().find(|(name, _)| *name == view.name);
    let sql = match (view.header.duckdb.as_str(), own) {
        ("same", _) => view.sql(false),
        ("own", Some((_, sql))) => (*sql).to_owned(),
        ("", _) => return Err("was written by a user"),
        (how, _) => return Err(how.strip_prefix("none, ").unwrap_or(how)),
    };
    let is_head = |line: &&str| line.starts_with("--");
    let body: Vec<&str> = sql.lines().skip_while(is_head).collect();
    let body = body.join("\n");
    let (kind, rows) = match view.arguments().is_empty() {
        true => ("VIEW", "AS"),
        false => ("MACRO", "AS TABLE"),
    };
    // In the body of a macro, an argument is its bare name.
    let body = view.arguments().iter().fold(body, |body, argument| {
        body.replace(&format!("${}", argument.name), &argument.name)
    });
    Ok(format!(
        "CREATE OR REPLACE {kind} {} {rows}\n{};",
        view.usage(),
        body.trim_end()
    ))
}

/// Whether a statement names another view, which must exist before.
pub fn needs_views(view: &View, statement: &str) -> bool {
    let is_other = |word: &str| word != view.name && VIEWS.iter().any(|other| other.name == word);
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    statement.split(|letter| !is_part(letter)).any(is_other)
}

/// Name in double quotes.
pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Text in single quotes.
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_view_has_a_statement_or_a_reason() {
        for view in VIEWS.iter() {
            let how = view.header.duckdb.as_str();
            let has_file = OWN.iter().any(|(name, _)| *name == view.name);
            assert_eq!(how == "own", has_file, "{}", view.name);
            match statement(view) {
                // Passes are functions of perfquet-query only.
                Ok(sql) => assert!(!sql.contains("pass_") && !sql.contains('{'), "{sql}"),
                Err(reason) => {
                    assert_eq!(how, format!("none, {reason}"), "{}", view.name);
                    assert!(view.sql(false).contains("pass_") || view.name == "syscall_errors");
                }
            }
        }
    }

    #[test]
    fn views_over_views_are_known() {
        let needy = VIEWS.iter().filter(|view| {
            let statement = statement(view);
            statement.is_ok_and(|statement| needs_views(view, &statement))
        });
        let needy: Vec<&str> = needy.map(|view| view.name.as_str()).collect();
        assert_eq!(needy, ["distributions"]);
    }

    #[test]
    fn arguments_become_names() {
        let view = View::new(
            "descendants",
            "-- descendants(call_id): x.\n-- duckdb: own\n-- arguments:\n--   call_id  The call.\nSELECT 1",
        );
        let sql = statement(&view).unwrap();
        assert!(
            sql.starts_with("CREATE OR REPLACE MACRO descendants(call_id) AS TABLE\nWITH"),
            "{sql}"
        );
        assert!(sql.contains("child.parent_id = call_id"), "{sql}");
        assert!(sql.ends_with("below.nested;"), "{sql}");
    }

    #[test]
    fn quotes_are_doubled() {
        assert_eq!(identifier("a\"b"), "\"a\"\"b\"");
        assert_eq!(literal("a'b"), "'a''b'");
    }
}
