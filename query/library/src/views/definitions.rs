//! Views and macros that users keep: files in `~/.config/perfquet/views`, and those of `--init`.
//!
//! ```text
//! views/slow.sql     SELECT * FROM calls WHERE duration > 1ms          a view with the name of the file
//! views/mine.sql     CREATE VIEW … AS …; CREATE MACRO ms(ns) AS …      several definitions
//! ```
//! Comments before a definition describe it as in the files of built-in views (formats/views/src/header.rs): what it needs, its columns and
//! arguments. Views are planned when a query names them, so a file serves traces with and without their events.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{ObjectName, Statement as SqlStatement};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use crate::engine;
use crate::explain;
use crate::sql::literals::with_nanoseconds;
use crate::sql::macros::{Macro, Macros};
use crate::sql::statements::ends;
use perfquet_views::{Source, VIEWS, View};

/// Which views and macros to define.
#[derive(Debug, Clone, Default)]
pub struct Definitions {
    /// SQL files with views and macros: CREATE VIEW, CREATE MACRO and CREATE FUNCTION, or one query, which becomes a
    /// view with the name of the file.
    pub files: Vec<PathBuf>,
    /// Whether the files in `~/.config/perfquet/views` are ignored.
    pub without_own: bool,
}

impl Definitions {
    /// Reads the views, and adds the macros to `macros`.
    ///
    /// # Errors
    ///
    /// Unreadable files, syntax errors, and names that are taken, each with the file and line.
    pub(crate) fn read(&self, state: &SessionState, macros: &Macros) -> Result<Vec<View>> {
        let mut library = Library {
            state,
            macros,
            views: Vec::new(),
            places: BTreeMap::new(),
        };
        if let Some(directory) = directory().filter(|_| !self.without_own) {
            for path in files(&directory)? {
                library
                    .add_file(&path)
                    .map_err(|error| anyhow::anyhow!("{}", with_hint(&error)))?;
            }
        }
        for path in &self.files {
            library.add_file(path)?;
        }
        Ok(library.views)
    }
}

/// The error of a file that no option names.
fn with_hint(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    match text.contains("\nhint: ") {
        true => text,
        false => format!("{text}\nhint: correct or remove the file, or use --no-views"),
    }
}

/// Returns `$XDG_CONFIG_HOME/perfquet/views`.
pub fn directory() -> Option<PathBuf> {
    let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.filter(|path| path.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
    Some(config.or_else(home)?.join("perfquet/views"))
}

/// The SQL files of a directory, by name; none if it does not exist.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", directory.display()));
        }
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry
            .with_context(|| format!("cannot read {}", directory.display()))?
            .path();
        let is_hidden = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with('.');
        let is_sql = path.extension().is_some_and(|extension| extension == "sql");
        if is_sql && !path.file_name().is_some_and(is_hidden) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Saves a definition as a file of [`directory`]. Returns its path.
///
/// # Errors
///
/// The name is not a plain word, or the file exists.
pub fn save(name: &str, definition: &str) -> Result<PathBuf> {
    let is_plain = |name: &str| name.chars().all(|c| c.is_alphanumeric() || c == '_');
    if name.is_empty() || !is_plain(name) {
        bail!("{name}: expected a name of letters, digits and _");
    }
    let directory = directory().context("neither HOME nor XDG_CONFIG_HOME is set")?;
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let path = directory.join(format!("{name}.sql"));
    let text = format!("{};\n", definition.trim().trim_end_matches(';'));
    // Complete at once: other runs read the directory.
    let mut file = match tempfile_in(&directory) {
        Ok(file) => file,
        Err(error) => {
            return Err(error).with_context(|| format!("cannot write to {}", directory.display()));
        }
    };
    std::io::Write::write_all(&mut file.1, text.as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))?;
    let linked = std::fs::hard_link(&file.0, &path);
    let _ = std::fs::remove_file(&file.0);
    match linked {
        Ok(()) => Ok(path),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => bail!(
            "{} exists\nhint: remove it, or use another name",
            path.display()
        ),
        Err(error) => Err(error).with_context(|| format!("cannot write {}", path.display())),
    }
}

/// A new hidden file, which is never read as a view.
fn tempfile_in(directory: &Path) -> std::io::Result<(PathBuf, std::fs::File)> {
    let path = directory.join(format!(".{}.new", std::process::id()));
    Ok((path.clone(), std::fs::File::create(path)?))
}

/// Returns the name of the view or macro that a statement defines.
pub(crate) fn defined_name(statement: &Statement) -> Option<String> {
    if let Some(defined) = Macro::of(statement, None).ok().flatten() {
        return Some(defined.name().to_owned());
    }
    let Statement::Statement(statement) = statement else {
        return None;
    };
    match statement.as_ref() {
        SqlStatement::CreateView(view) => last_word(&view.name),
        _ => None,
    }
}

fn last_word(name: &ObjectName) -> Option<String> {
    let word = name.0.last()?.as_ident()?;
    Some(match word.quote_style {
        Some(_) => word.value.clone(),
        None => word.value.to_lowercase(),
    })
}

/// What the files define.
struct Library<'s> {
    state: &'s SessionState,
    macros: &'s Macros,
    views: Vec<View>,
    /// Files and lines of the views.
    places: BTreeMap<String, String>,
}

impl Library<'_> {
    fn add_file(&mut self, path: &Path) -> Result<()> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        let mut start = 0;
        let ends = ends(&text).into_iter().chain([text.len()]);
        for end in ends {
            let piece = &text[start.min(end)..end];
            let blank = piece.len() - piece.trim_start().len();
            let source = Source {
                path: name.clone(),
                lines_before: text[..start.min(end) + blank].matches('\n').count(),
            };
            start = end + 1;
            let piece = piece.trim();
            if !crate::sql::statements::statements(piece).is_empty() {
                self.add(path, piece, source)?;
            }
        }
        Ok(())
    }

    /// Adds a definition. `sql` begins with the comments that describe it.
    fn add(&mut self, path: &Path, sql: &str, source: Source) -> Result<()> {
        let file_name = path.file_stem().unwrap_or_default().to_string_lossy();
        // As for one trace.
        let plain = View::of_user(&file_name, sql, source.clone()).sql(false);
        let plain = with_nanoseconds(&plain)
            .map_err(|error| anyhow::anyhow!("{}: {error}", source.at(1)))?;
        let statement = engine::statement(self.state, &plain).map_err(|error| {
            let place = source.at(explain::line(&error).unwrap_or(1));
            anyhow::anyhow!("{place}: {}", explain::error(error, &plain, None))
        })?;
        let first = source.at(first_line(sql));
        let defined = Macro::of(&statement, Some(first.clone()));
        if let Some(new) = defined.map_err(|error| anyhow::anyhow!("{first}: {error}"))? {
            let added = self.macros.add(new, self.state);
            return added.map_err(|error| anyhow::anyhow!("{first}: {error}"));
        }
        let Statement::Statement(statement) = &statement else {
            bail!("{first}: {EXPECTED}");
        };
        let (name, sql) = match statement.as_ref() {
            SqlStatement::Query(_) => (file_name.to_lowercase(), sql.to_owned()),
            SqlStatement::CreateView(view) if view.columns.is_empty() && !view.materialized => {
                let query = query_of_view(sql);
                match last_word(&view.name).zip(query) {
                    Some(found) if view.name.0.len() == 1 => found,
                    _ => bail!("{first}: expected CREATE VIEW NAME AS and a query"),
                }
            }
            SqlStatement::CreateView(_) => {
                bail!(
                    "{first}: expected CREATE VIEW NAME AS and a query\nhint: name columns in the query: SELECT x AS name"
                )
            }
            _ => bail!("{first}: {EXPECTED}"),
        };
        self.check(&name, &first)?;
        self.places.insert(name.clone(), first);
        self.views.push(View::of_user(&name, &sql, source));
        Ok(())
    }

    /// Rejects names that are taken.
    fn check(&self, name: &str, place: &str) -> Result<()> {
        let tables = perfquet_trace::tables::all();
        if VIEWS.iter().any(|view| view.name == name) {
            bail!("{place}: view {name}: a built-in view has this name");
        }
        if name == "trace_info" || tables.iter().any(|table| table.name == name) {
            bail!("{place}: view {name}: a table of every trace has this name");
        }
        if let Some(other) = self.places.get(name) {
            bail!("{place}: view {name} is already defined in {other}");
        }
        Ok(())
    }
}

const EXPECTED: &str = "expected a query, CREATE VIEW, CREATE MACRO or CREATE FUNCTION";

/// The line of the first word, from 1.
fn first_line(sql: &str) -> usize {
    let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location();
    let tokens = tokens.unwrap_or_default();
    let first = tokens
        .iter()
        .find(|token| !matches!(token.token, Token::Whitespace(_)));
    first.map_or(1, |token| token.span.start.line as usize)
}

/// Replaces `CREATE VIEW name AS` by blanks, so that places in the query stay the same.
fn query_of_view(sql: &str) -> Option<String> {
    let tokens = Tokenizer::new(&GenericDialect {}, sql)
        .tokenize_with_location()
        .ok()?;
    let is_as = |token: &Token| matches!(token, Token::Word(word) if word.keyword == Keyword::AS);
    let mut words = tokens
        .iter()
        .filter(|token| !matches!(token.token, Token::Whitespace(_)));
    let first = words.next()?.span.start;
    let end = tokens.iter().find(|token| is_as(&token.token))?.span.end;
    let offset = |line: u64, column: u64| {
        let lines = sql
            .split_inclusive('\n')
            .take(line.checked_sub(1)? as usize);
        let before: usize = lines.map(str::len).sum();
        let line = sql.get(before..)?;
        let column = column.checked_sub(1)? as usize;
        let place = line
            .char_indices()
            .nth(column)
            .map_or(line.len(), |(place, _)| place);
        Some(before + place)
    };
    let (start, end) = (
        offset(first.line, first.column)?,
        offset(end.line, end.column)?,
    );
    let blank: String = (sql.get(start..end)?.chars())
        .map(|letter| if letter == '\n' { '\n' } else { ' ' })
        .collect();
    Some(format!("{}{blank}{}", sql.get(..start)?, sql.get(end..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_of_views_keep_their_places() {
        let sql = "-- v: Slow.\nCREATE OR REPLACE VIEW v\n  AS SELECT 1 AS as_is";
        let expected = "-- v: Slow.\n                        \n     SELECT 1 AS as_is";
        assert_eq!(query_of_view(sql).unwrap(), expected);
        assert_eq!(first_line(sql), 2);
        assert_eq!(query_of_view("SELECT 1"), None);
    }
}
