//! Completion, colors and end-of-input detection of the shell.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use rustyline::completion::Pair;
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::HistoryHinter;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper, Hinter};

use perfquet::Session;
use perfquet::explain::Known;
use perfquet::functions::FUNCTIONS;
use perfquet::sql::names::quoted;
use perfquet::sql::statements;

use super::meta;
use crate::render;

/// SQL keywords offered for completion.
const KEYWORDS: &[&str] = &[
    "SELECT",
    "DISTINCT",
    "FROM",
    "WHERE",
    "GROUP BY",
    "HAVING",
    "ORDER BY",
    "LIMIT",
    "OFFSET",
    "JOIN",
    "LEFT JOIN",
    "FULL JOIN",
    "CROSS JOIN",
    "ON",
    "USING",
    "AS",
    "AND",
    "OR",
    "NOT",
    "IN",
    "IS NULL",
    "IS NOT NULL",
    "BETWEEN",
    "LIKE",
    "ILIKE",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "WITH",
    "UNION ALL",
    "EXCEPT",
    "INTERSECT",
    "OVER",
    "PARTITION BY",
    "ROWS",
    "DESC",
    "ASC",
    "NULLS FIRST",
    "NULLS LAST",
    "CAST",
    "EXPLAIN",
    "EXPLAIN ANALYZE",
    "CREATE VIEW",
    "DESCRIBE",
    "TRUE",
    "FALSE",
    "NULL",
];

/// Helper of the line editor.
#[derive(Helper, Hinter)]
pub(super) struct Completer {
    tables: Vec<String>,
    /// Column names with the tables that have them.
    columns: Vec<(String, Vec<String>)>,
    functions: Vec<String>,
    #[rustyline(Hinter)]
    hinter: HistoryHinter,
}

impl Completer {
    pub(super) fn new(session: &Session) -> Completer {
        let mut functions = session.function_names();
        functions.extend(
            FUNCTIONS
                .iter()
                .filter_map(|function| function.usage.split('(').next())
                .map(str::to_owned),
        );
        functions.sort();
        functions.dedup();
        let mut completer = Completer {
            tables: Vec::new(),
            columns: Vec::new(),
            functions,
            hinter: HistoryHinter::new(),
        };
        completer.learn(session);
        completer
    }

    /// Updates the tables, since views may be new.
    pub(super) fn learn(&mut self, session: &Session) {
        let tables = session.table_names();
        if tables == self.tables {
            return;
        }
        let mut columns: BTreeMap<String, Vec<String>> = Default::default();
        for table in &tables {
            // A view that is not planned yet is described by its file.
            if let Some(view) = session.views().iter().find(|view| view.name == *table) {
                for column in view.columns() {
                    let tables = columns.entry(quoted(&column.name)).or_default();
                    tables.push(table.clone());
                }
                continue;
            }
            let Ok(provider) = session.table(table) else {
                continue;
            };
            for field in provider.schema().fields() {
                columns
                    .entry(quoted(field.name()))
                    .or_default()
                    .push(table.clone());
            }
        }
        self.tables = tables;
        self.columns = columns.into_iter().collect();
    }

    /// Returns the start of the last word of `line`, which ends at the cursor, and its completions. `whole` begins with `line`.
    fn candidates_in(&self, line: &str, whole: &str) -> (usize, Vec<String>) {
        let start = line
            .rfind(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.' | '"' | '\\' | '?')))
            .map_or(0, |index| {
                index + line[index..].chars().next().map_or(1, char::len_utf8)
            });
        let word = &line[start..];
        if let Some(command) = word.strip_prefix('\\') {
            let names = meta::COMMANDS
                .iter()
                .map(|meta| meta.name)
                .filter(|name| name.starts_with(command));
            return (start, names.map(|name| format!("\\{name}")).collect());
        }
        let aliases = self.aliases(whole);
        if let Some((alias, part)) = word.split_once('.')
            && let Some(table) = aliases.get(&alias.to_lowercase())
        {
            let of_table = self.columns.iter().filter(|(name, tables)| {
                tables.contains(table) && name.to_lowercase().starts_with(&part.to_lowercase())
            });
            let found: Vec<String> = of_table
                .map(|(name, _)| format!("{alias}.{name}"))
                .collect();
            if !found.is_empty() {
                return (start, found);
            }
        }
        let fits = |name: &str| name.to_lowercase().starts_with(&word.to_lowercase());
        let before = line[..start].trim_end().to_lowercase();
        let tables = || self.tables.iter().filter(|name| fits(name)).cloned();
        if ["from", "join", "\\d", "describe"]
            .iter()
            .any(|keyword| before.ends_with(keyword))
        {
            return (start, tables().collect());
        }
        // Columns of the tables already named; before FROM, columns of all tables.
        let named: BTreeSet<&str> = line
            .split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.')))
            .collect();
        let of_named =
            |tables: &[String]| tables.iter().any(|table| named.contains(table.as_str()));
        let any_named = self
            .tables
            .iter()
            .any(|table| named.contains(table.as_str()));
        let columns = self
            .columns
            .iter()
            .filter(|(name, tables)| fits(name) && (!any_named || of_named(tables)));
        let mut found: Vec<String> = columns.map(|(name, _)| name.clone()).collect();
        found.extend(aliases.keys().filter(|name| fits(name)).cloned());
        found.extend(result_names(whole).into_iter().filter(|name| fits(name)));
        found.extend(tables());
        if !word.is_empty() {
            found.extend(
                self.functions
                    .iter()
                    .filter(|name| fits(name))
                    .map(|name| format!("{name}(")),
            );
            let lower = word.chars().all(|c| !c.is_uppercase());
            let keywords = KEYWORDS.iter().filter(|keyword| fits(keyword));
            found.extend(keywords.map(|keyword| {
                if lower {
                    keyword.to_lowercase()
                } else {
                    (*keyword).to_owned()
                }
            }));
        }
        found.dedup();
        (start, found)
    }
}

impl Completer {
    /// The aliases of tables in a query: `FROM samples AS s JOIN calls c`.
    fn aliases(&self, line: &str) -> BTreeMap<String, String> {
        let words: Vec<&str> = words(line).collect();
        let mut found = BTreeMap::new();
        for (place, word) in words.iter().enumerate() {
            let Some(table) = self
                .tables
                .iter()
                .find(|table| table.eq_ignore_ascii_case(word))
            else {
                continue;
            };
            let mut next = words.iter().skip(place + 1).copied();
            let alias = match next.next() {
                Some(word) if word.eq_ignore_ascii_case("as") => next.next(),
                word => word,
            };
            let is_name = |word: &str| {
                let is_keyword = |keyword: &&str| {
                    keyword
                        .split(' ')
                        .any(|part| part.eq_ignore_ascii_case(word))
                };
                word.starts_with(|c: char| c.is_alphabetic() || c == '_')
                    && !word.contains('.')
                    && !KEYWORDS.iter().any(is_keyword)
            };
            if let Some(alias) = alias.filter(|alias| is_name(alias)) {
                found.insert(alias.to_lowercase(), table.clone());
            }
        }
        found
    }
}

/// Names of result columns: `sum(duration) AS total`.
fn result_names(line: &str) -> BTreeSet<String> {
    let words: Vec<&str> = words(line).collect();
    let pairs = words
        .windows(2)
        .filter(|pair| pair[0].eq_ignore_ascii_case("as"));
    let names = pairs
        .map(|pair| pair[1])
        .filter(|name| name.starts_with(|c: char| c.is_alphabetic()));
    names.map(str::to_owned).collect()
}

/// Words, names with dots, and other signs one by one.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '"');
    let mut rest = line.trim_start();
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let length = match is_part(first) {
            true => rest.find(|c: char| !is_part(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let word = &rest[..length];
        rest = rest[length..].trim_start();
        Some(word)
    })
}

impl rustyline::completion::Completer for Completer {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, found) = self.candidates_in(&line[..position], line);
        let pair = |text: String| Pair {
            display: text.clone(),
            replacement: text,
        };
        Ok((start, found.into_iter().map(pair).collect()))
    }
}

impl Validator for Completer {
    /// A query continues until its semicolon; a backslash command is one line.
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let text = context.input();
        let blank = statements::statements(text).is_empty();
        let word = matches!(text.trim(), "quit" | "exit" | "help");
        let ended = statements::ends(text)
            .last()
            .is_some_and(|&end| statements::statements(&text[end + 1..]).is_empty());
        Ok(
            match blank || word || ended || text.trim_start().starts_with('\\') {
                true => ValidationResult::Valid(None),
                false => ValidationResult::Incomplete,
            },
        )
    }
}

impl Highlighter for Completer {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _: bool) -> Cow<'b, str> {
        if render::is_colored() {
            Cow::Owned(format!("\x1b[1;32m{prompt}\x1b[0m"))
        } else {
            Cow::Borrowed(prompt)
        }
    }

    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        if render::is_colored() {
            Cow::Owned(format!("\x1b[2m{hint}\x1b[0m"))
        } else {
            Cow::Borrowed(hint)
        }
    }

    fn highlight_char(&self, _: &str, _: usize, _: CmdKind) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Completer {
        fn candidates(&self, line: &str) -> (usize, Vec<String>) {
            self.candidates_in(line, line)
        }
    }

    fn completer() -> Completer {
        let of = |names: &[&str]| {
            names
                .iter()
                .map(|&name| name.to_owned())
                .collect::<Vec<_>>()
        };
        Completer {
            tables: of(&["samples", "sched.sched_switch", "sched_switch"]),
            columns: vec![
                ("comm".into(), of(&["samples", "sched_switch"])),
                ("period".into(), of(&["samples"])),
                ("prev_comm".into(), of(&["sched_switch"])),
            ],
            functions: of(&["count", "sum"]),
            hinter: HistoryHinter::new(),
        }
    }

    #[test]
    fn tables_after_from_columns_elsewhere() {
        let completer = completer();
        assert_eq!(
            completer.candidates("SELECT * FROM s").1,
            ["samples", "sched.sched_switch", "sched_switch"]
        );
        assert_eq!(
            completer.candidates("SELECT p").1,
            ["period", "prev_comm", "PARTITION BY"]
                .map(|word| word.replace("PARTITION BY", "partition by"))
        );
        assert_eq!(
            completer.candidates("SELECT x FROM samples WHERE p").1[0],
            "period"
        );
        assert!(
            !completer
                .candidates("SELECT x FROM samples WHERE p")
                .1
                .contains(&"prev_comm".to_owned())
        );
        assert_eq!(
            completer.candidates("SELECT co"),
            (7, vec!["comm".to_owned(), "count(".to_owned()])
        );
        let joined = "SELECT s.c FROM samples s JOIN sched_switch AS w ON w.p";
        assert_eq!(
            completer.candidates_in("SELECT s.c", joined),
            (7, vec!["s.comm".to_owned()])
        );
        assert_eq!(completer.candidates(joined).1, ["w.prev_comm"]);
        let ordered = "SELECT count(*) AS total FROM samples ORDER BY to";
        assert_eq!(completer.candidates(ordered).1, ["total"]);
        assert_eq!(
            completer.candidates("\\t"),
            (0, vec!["\\timing".to_owned()])
        );
    }
}
