//! Reads and validates manifests, which may be foreign or damaged: checks everything
//! that readers rely on, once, and reports the first violation.
//!
//! ```text
//! paths        inside the trace, each part once, in the directory of its table
//! columns      unique names that are valid in SQL; those of the fixed tables with their types
//! parts        first time ≤ last time; a plausible number of rows; columns of the table, with fitting types
//! ```

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path};

use perfquet_events::Error;
use serde::Deserialize;

use super::logical::upgrade;
use super::manifest::{FILE_NAME, JOURNAL, Manifest, Part, Table, VERSION};
use super::table::ColumnType;
use crate::tables;

/// Maximum number of rows of a table: one row per nanosecond for three days.
const MOST_ROWS: u64 = 1 << 48;

impl Manifest {
    /// Reads the manifest of the trace directory `path`.
    pub fn read(path: &Path) -> Result<Manifest, Error> {
        let file = path.join(FILE_NAME);
        let text = match read_file(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound && path.is_dir() => {
                return Err(Error::Unsupported {
                    input: path.display().to_string(),
                    message: format!("expected a trace directory, found no {FILE_NAME}"),
                });
            }
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                return Err(Error::Unsupported {
                    input: path.display().to_string(),
                    message:
                        "expected a trace directory, found a file\nhint: import it with perfquet-convert"
                            .to_owned(),
                });
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(Error::io(path)(error));
            }
            Err(error) => return Err(Error::io(file)(error)),
        };
        let damaged = |error: serde_json::Error| Error::Damaged {
            input: file.display().to_string(),
            place: perfquet_events::event::Place::Line(error.line() as u64),
            message: format!("expected a manifest: {error}"),
        };
        // Check the version first: the meaning of the rest may differ in later ones.
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let head: Head = serde_json::from_slice(&text).map_err(damaged)?;
        if head.version > VERSION {
            return Err(Error::Unsupported {
                input: path.display().to_string(),
                message: format!(
                    "unsupported version {} of a trace directory; the latest supported version is {VERSION}\n\
                     hint: use a newer perfquet",
                    head.version
                ),
            });
        }
        let mut manifest: Manifest = serde_json::from_slice(&text).map_err(damaged)?;
        upgrade(&mut manifest);
        match check(&manifest) {
            Ok(()) => Ok(manifest),
            Err(message) => Err(Error::Damaged {
                input: file.display().to_string(),
                place: perfquet_events::event::Place::Whole,
                message,
            }),
        }
    }
}

/// Returns the first violation.
pub(super) fn check(manifest: &Manifest) -> Result<(), String> {
    let mut files = HashSet::new();
    let mut folders = HashSet::new();
    for (name, table) in &manifest.tables {
        let place = |message: String| format!("table {name:?}: {message}");
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(place("expected a name".to_owned()));
        }
        check_path(&table.folder).map_err(place)?;
        if !folders.insert(table.folder.as_str()) {
            return Err(place(format!(
                "expected its own directory, found {:?} of another table",
                table.folder
            )));
        }
        check_columns(name, table).map_err(place)?;
        let mut rows = 0_u64;
        for part in &table.parts {
            let place = |message: String| place(format!("part {:?}: {message}", part.file));
            check_path(&part.file).map_err(place)?;
            let own_folder = part.file.rsplit_once('/').map(|(folder, _)| folder);
            if own_folder != Some(table.folder.as_str()) {
                return Err(place(format!("expected it in {:?}", table.folder)));
            }
            if !files.insert(part.file.as_str()) {
                return Err(place("expected each part once, found it twice".to_owned()));
            }
            check_part(table, part).map_err(place)?;
            rows = rows.saturating_add(part.rows);
        }
        if rows > MOST_ROWS {
            return Err(place(format!("expected at most 2^48 rows, found {rows}")));
        }
    }
    Ok(())
}

/// Rejects paths outside the trace or in the recorder's journal.
fn check_path(path: &str) -> Result<(), String> {
    let steps = || Path::new(path).components();
    let is_inside = steps().all(|step| matches!(step, Component::Normal(_)));
    let is_journal = steps().next() == Some(Component::Normal(JOURNAL.as_ref()));
    if path.is_empty() || !is_inside || is_journal || path.contains('\0') {
        return Err(format!("expected paths inside the trace, found {path:?}"));
    }
    Ok(())
}

fn check_columns(name: &str, table: &Table) -> Result<(), String> {
    let declared = match name.starts_with("events/") {
        true => tables::common::columns(),
        false => tables::declared()
            .into_iter()
            .find(|schema| schema.name == name)
            .map_or_else(Vec::new, |schema| schema.columns),
    };
    let declared: HashMap<&str, ColumnType> = declared
        .iter()
        .map(|column| (column.name.as_str(), column.kind))
        .collect();
    if table.columns.is_empty() {
        return Err("expected columns, found none".to_owned());
    }
    let mut names = HashSet::new();
    for column in &table.columns {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if column.name.is_empty() || !column.name.bytes().all(plain) {
            return Err(format!(
                "expected names of letters, digits and _, found column {:?}",
                column.name
            ));
        }
        if !names.insert(column.name.as_str()) {
            return Err(format!("two columns are named {:?}", column.name));
        }
        match declared.get(column.name.as_str()) {
            Some(kind) if *kind != column.kind => {
                return Err(format!(
                    "column {}: expected {}, found {}",
                    column.name,
                    kind.as_str(),
                    column.kind.as_str()
                ));
            }
            _ => {}
        }
    }
    match table
        .sort
        .iter()
        .find(|sort| !names.contains(sort.as_str()))
    {
        Some(sort) => Err(format!("sorted by {sort:?}, which is not a column")),
        None => Ok(()),
    }
}

fn check_part(table: &Table, part: &Part) -> Result<(), String> {
    if let (Some(first), Some(last)) = (part.time_min, part.time_max)
        && first > last
    {
        return Err(format!(
            "expected the first time before the last, found {first} and {last}"
        ));
    }
    if part.time_min.is_some() != part.time_max.is_some() {
        return Err("expected a first and a last time, found one of them".to_owned());
    }
    let mut names = HashSet::new();
    for own in &part.columns {
        let Some(column) = table.columns.iter().find(|column| column.name == own.name) else {
            return Err(format!("column {:?} is not in its table", own.name));
        };
        if !names.insert(own.name.as_str()) {
            return Err(format!("two columns are named {:?}", own.name));
        }
        let is_wide_enough = matches!(column.kind, ColumnType::Text | ColumnType::TextList)
            || ColumnType::holding(&[own.kind, column.kind]) == column.kind;
        if own.kind == ColumnType::Int128 || !is_wide_enough {
            return Err(format!(
                "column {}: expected a type that fits into {}, found {}",
                own.name,
                column.kind.as_str(),
                own.kind.as_str()
            ));
        }
    }
    Ok(())
}

/// Reads a manifest. Only regular files are read: a link could point anywhere, and a pipe may never end.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    /// A trace with a hundred thousand parts has a manifest of 20 MB.
    const LARGEST: u64 = 1 << 30;
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ELOOP) => io::Error::other("expected a manifest, found a symbolic link"),
            _ => error,
        })?;
    let found = file.metadata()?;
    if !found.is_file() || found.len() > LARGEST {
        return Err(io::Error::other(
            "expected a manifest, found a large or special file",
        ));
    }
    let mut text = Vec::new();
    file.take(LARGEST).read_to_end(&mut text)?;
    Ok(text)
}
