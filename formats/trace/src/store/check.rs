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
use std::sync::LazyLock;

use parquet::file::reader::Length as _;
use perfquet_events::Error;
use serde::Deserialize;

use super::archive::{ARCHIVE_ENDING, Archive};
use super::logical::upgrade;
use super::manifest::{FILE_NAME, JOURNAL, Manifest, Part, PartRange, Table, VERSION};
use super::table::{ColumnSchema, ColumnType};
use crate::remote::{Remote, failure};
use crate::tables;

/// A trace with a hundred thousand parts has a manifest of 20 MB.
const LARGEST: u64 = 1 << 30;
/// The same behind a URL, where it is held in memory before a server is trusted.
const LARGEST_REMOTE: u64 = 1 << 28;
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
        Manifest::parse(&text, path, &file)
    }

    /// Reads the manifest of an archive.
    pub(super) fn of_archive(archive: &Archive) -> Result<Manifest, Error> {
        let file = archive.path().join(FILE_NAME);
        let member = archive.member(FILE_NAME)?;
        if member.len() > LARGEST {
            let error = io::Error::other("expected a manifest, found a large file");
            return Err(Error::io(&file)(error));
        }
        let text = member.range(0, member.len()).map_err(Error::io(&file))?;
        Manifest::parse(&text, archive.path(), &file)
    }

    /// Reads the manifest of a trace directory behind a URL.
    pub(super) fn of_remote(remote: &Remote) -> Result<Manifest, Error> {
        let file = remote.url().join(FILE_NAME);
        let read = remote.place().read(FILE_NAME, LARGEST_REMOTE);
        let text = read.map_err(|error| failure(remote.url(), &error))?;
        match text {
            Some(text) => Manifest::parse(&text, remote.url(), &file),
            None => Err(Error::Unsupported {
                input: remote.url().display().to_string(),
                message: format!(
                    "expected a trace directory, found no {FILE_NAME}, which names its parts\n\
                     hint: traces as one file are opened if the URL ends in {ARCHIVE_ENDING}, lakes as lake:URL"
                ),
            }),
        }
    }

    fn parse(text: &[u8], path: &Path, file: &Path) -> Result<Manifest, Error> {
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
        let head: Head = serde_json::from_slice(text).map_err(damaged)?;
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
        let mut manifest: Manifest = serde_json::from_slice(text).map_err(damaged)?;
        upgrade(&mut manifest);
        manifest.checked(file, Layout::Trace)
    }

    /// Returns the manifest of a trace in a lake, read from `file`, if it is valid.
    pub(crate) fn of_lake(self, file: &Path) -> Result<Manifest, Error> {
        self.checked(file, Layout::Lake)
    }

    fn checked(self, file: &Path, layout: Layout) -> Result<Manifest, Error> {
        match check(&self, layout) {
            Ok(()) => Ok(self),
            Err(message) => Err(Error::Damaged {
                input: file.display().to_string(),
                place: perfquet_events::event::Place::Whole,
                message,
            }),
        }
    }
}

/// How the parts of a manifest are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// Each part is a file, in the directory of its table.
    Trace,
    /// Parts are ranges of rows of files, in partitions below the directory of their table.
    Lake,
}

/// Returns the first violation.
pub(super) fn check(manifest: &Manifest, layout: Layout) -> Result<(), String> {
    let mut files = HashSet::new();
    let mut ranges: HashMap<&str, Vec<(u64, u64)>> = HashMap::new();
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
            let is_inside = match layout {
                Layout::Trace => {
                    let own_folder = part.file.rsplit_once('/').map(|(folder, _)| folder);
                    own_folder == Some(table.folder.as_str())
                }
                Layout::Lake => {
                    let below = part.file.strip_prefix(table.folder.as_str());
                    below.is_some_and(|below| below.starts_with('/'))
                }
            };
            if !is_inside {
                return Err(place(format!("expected it in {:?}", table.folder)));
            }
            let is_new = files.insert(part.file.as_str());
            match (layout, part.range) {
                (Layout::Lake, Some(range)) => {
                    check_range(part, range).map_err(place)?;
                    let rows = (range.first_row, part.rows);
                    ranges.entry(&part.file).or_default().push(rows);
                }
                (Layout::Trace, None) if is_new => {}
                (Layout::Trace, None) => {
                    return Err(place("expected each part once, found it twice".to_owned()));
                }
                (Layout::Lake, None) => {
                    return Err(place("expected its place in the file".to_owned()));
                }
                (Layout::Trace, Some(_)) => {
                    let message = "expected a whole file, found a place in it, as in a lake";
                    return Err(place(message.to_owned()));
                }
            }
            if layout == Layout::Trace && part.columns.iter().any(|own| own.stored.is_some()) {
                let message = "expected columns with their names, found another, as in a lake";
                return Err(place(message.to_owned()));
            }
            check_part(table, part).map_err(place)?;
            rows = rows.saturating_add(part.rows);
        }
        if rows > MOST_ROWS {
            return Err(place(format!("expected at most 2^48 rows, found {rows}")));
        }
    }
    for (file, mut parts) in ranges {
        parts.sort_unstable();
        let pairs = parts.iter().zip(parts.iter().skip(1));
        if pairs.clone().any(|(one, next)| one.0 + one.1 > next.0) {
            return Err(format!(
                "{file:?}: expected each row once, found it in two parts"
            ));
        }
    }
    Ok(())
}

/// Rejects a part outside of its file.
fn check_range(part: &Part, range: PartRange) -> Result<(), String> {
    let end = range.first_row.checked_add(part.rows);
    match range.file_rows <= MOST_ROWS && end.is_some_and(|end| end <= range.file_rows) {
        true => Ok(()),
        false => Err(format!(
            "expected {} rows of {}, found them from row {}",
            part.rows, range.file_rows, range.first_row
        )),
    }
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

/// Types of columns by name.
type Kinds = HashMap<String, ColumnType>;

fn kinds(columns: Vec<ColumnSchema>) -> Kinds {
    let columns = columns.into_iter();
    columns.map(|column| (column.name, column.kind)).collect()
}

fn check_columns(name: &str, table: &Table) -> Result<(), String> {
    // Built once: a query may open ten thousand traces.
    static DECLARED: LazyLock<HashMap<String, Kinds>> = LazyLock::new(|| {
        let tables = tables::declared().into_iter();
        let fixed = tables.map(|schema| (schema.name, kinds(schema.columns)));
        fixed.collect()
    });
    static COMMON: LazyLock<Kinds> = LazyLock::new(|| kinds(tables::common::columns()));
    let declared = match name.starts_with("events/") {
        true => Some(&*COMMON),
        false => DECLARED.get(name),
    };
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
        match declared.and_then(|declared| declared.get(&column.name)) {
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
    let (mut names, mut stored) = (HashSet::new(), HashSet::new());
    for own in &part.columns {
        let Some(column) = table.columns.iter().find(|column| column.name == own.name) else {
            return Err(format!("column {:?} is not in its table", own.name));
        };
        if !names.insert(own.name.as_str()) {
            return Err(format!("two columns are named {:?}", own.name));
        }
        if !stored.insert(own.stored.as_deref().unwrap_or(&own.name)) {
            return Err(format!("two columns are stored as {:?}", own.stored));
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
