//! The views in DuckDB's dialect, over views with the names of perfquet's tables.
//!
//! ```text
//! CREATE OR REPLACE VIEW recorded_events AS SELECT …            the file in sql/, which DuckDB understands as it is
//! CREATE OR REPLACE VIEW cpu_idle AS WITH marks AS …            another file, in duckdb/
//! CREATE OR REPLACE MACRO ancestors(call_id) AS TABLE …         a view with arguments
//! ```
//! Views that follow threads, requests or locks through all events are passes of perfquet-query. What DuckDB would need for
//! them is quadratic joins, so they have a [`Translation::Absent`] with the reason instead.

use crate::{VIEWS, View};

/// How DuckDB gets a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Translation {
    /// With this SQL; `$NAME` is an argument of the view.
    Sql(&'static str),
    /// The SQL of [`View::sql`] is DuckDB's, too.
    Same,
    /// Not at all, for this reason.
    Absent(&'static str),
}

const THREADS: &str = "follows every thread through all scheduler events";
const PAIRS: &str = "pairs entries with exits while it follows the state of processes";

/// Every view, in the order of [`crate::VIEWS`].
const TRANSLATIONS: &[(&str, Translation)] = &[
    (
        "allocations",
        Translation::Absent(
            "pairs allocations with the release of the same address, which is used again",
        ),
    ),
    (
        "ancestors",
        Translation::Sql(include_str!("duckdb/ancestors.sql")),
    ),
    (
        "block_io",
        Translation::Absent("follows requests that are merged, split and issued again"),
    ),
    (
        "calls_with_context",
        Translation::Sql(include_str!("duckdb/calls_with_context.sql")),
    ),
    (
        "cpu_frequency",
        Translation::Sql(include_str!("duckdb/cpu_frequency.sql")),
    ),
    (
        "cpu_idle",
        Translation::Sql(include_str!("duckdb/cpu_idle.sql")),
    ),
    ("cpu_utilization", Translation::Absent(THREADS)),
    ("critical_path", Translation::Absent(THREADS)),
    (
        "descendants",
        Translation::Sql(include_str!("duckdb/descendants.sql")),
    ),
    ("distributions", Translation::Same),
    (
        "events",
        Translation::Sql(include_str!("duckdb/events.sql")),
    ),
    (
        "irqs",
        Translation::Absent("finds the number of each interrupt in the last entry on its CPU"),
    ),
    (
        "latest_aggregates",
        Translation::Sql(include_str!("duckdb/latest_aggregates.sql")),
    ),
    ("locks", Translation::Absent(PAIRS)),
    ("off_cpu", Translation::Absent(THREADS)),
    (
        "page_faults",
        Translation::Absent("follows the mappings of every process"),
    ),
    ("process_tree", Translation::Absent(THREADS)),
    ("processes", Translation::Absent(THREADS)),
    ("recorded_events", Translation::Same),
    ("runqueue_lengths", Translation::Absent(THREADS)),
    ("runqueue_waits", Translation::Absent(THREADS)),
    (
        "syscall_errors",
        Translation::Absent("selects from syscalls"),
    ),
    ("syscalls", Translation::Absent(PAIRS)),
    ("thread_states", Translation::Absent(THREADS)),
    ("thread_utilization", Translation::Absent(THREADS)),
    ("wakeups", Translation::Absent(THREADS)),
];

/// How DuckDB gets a view; `None` for a view that a user wrote.
pub fn translation(view: &View) -> Option<Translation> {
    let (_, translation) = TRANSLATIONS.iter().find(|(name, _)| *name == view.name)?;
    Some(*translation)
}

/// The statement that creates a view or, if it has arguments, a macro; or the reason why there is none.
///
/// # Errors
///
/// The reason, for a comment.
pub fn statement(view: &View) -> Result<String, &'static str> {
    let sql = match translation(view) {
        Some(Translation::Sql(sql)) => sql.to_owned(),
        Some(Translation::Same) => view.sql(false),
        Some(Translation::Absent(reason)) => return Err(reason),
        None => return Err("was written by a user"),
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
    fn every_view_has_a_translation_or_a_reason() {
        let listed: Vec<&str> = TRANSLATIONS.iter().map(|(name, _)| *name).collect();
        let views: Vec<&str> = VIEWS.iter().map(|view| view.name.as_str()).collect();
        assert_eq!(listed, views);
        for view in VIEWS.iter() {
            match statement(view) {
                // Passes are functions of perfquet-query only.
                Ok(sql) => assert!(!sql.contains("pass_") && !sql.contains('{'), "{sql}"),
                Err(_) => {
                    assert!(view.sql(false).contains("pass_") || view.name == "syscall_errors")
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
            "-- descendants(call_id): x.\n-- arguments:\n--   call_id  The call.\nSELECT 1",
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
