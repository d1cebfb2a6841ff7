//! `manifest.json`: what a trace directory holds. It is replaced as a whole, after the parts that it names.
//!
//! ```text
//! { "version": 1, "state": "complete",
//!   "facts": { "clock": "monotonic", "host": "box", … },
//!   "tables": { "losses": { "doc": "Events known to be missing.", "folder": "losses", "sort": ["time"],
//!       "columns": [ { "name": "time", "type": "int64", "unit": "ns", "nullable": true, "doc": "…" }, … ],
//!       "parts": [ { "file": "losses/00000.parquet", "rows": 2, "bytes": 1180, "sorted": true,
//!                    "time_min": 17, "time_max": 90 } ] } } }
//! ```
//! Members that are not known are kept out of the way, so that a later minor change can be read here; a format
//! that cannot be read raises `version`.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Error;

use super::check;
use super::files;
use super::table::{ColumnSchema, ColumnType, Encoding, TableSchema};
use super::unite::unite;

/// Version of the directory's layout that is written, and the last that is read.
pub const VERSION: u32 = 1;

/// Name of the manifest in the trace directory.
pub const FILE_NAME: &str = "manifest.json";

/// What a trace directory holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the layout, [`VERSION`].
    pub version: u32,
    /// Whether all of it is there.
    pub state: State,
    /// What is known of the recording.
    #[serde(default)]
    pub facts: Facts,
    /// The tables by name.
    #[serde(default)]
    pub tables: BTreeMap<String, Table>,
}

/// Whether a trace is all there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is being written, or its writer died: some parts are whole, others are missing.
    #[default]
    Recording,
    /// It is.
    Complete,
    /// Its recorder died, and all that had come to the journal was imported.
    Recovered,
}

impl State {
    /// As in the manifest.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Recording => "recording",
            State::Complete => "complete",
            State::Recovered => "recovered",
        }
    }
}

/// What is known of a recording as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// The clock that `time` counts: "monotonic", "sched_clock", "boottime", "realtime", …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<String>,
    /// Add this to a `time` to get nanoseconds since 1970 (UTC).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_offset: Option<i64>,
    /// Host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// `uname -r` of the recorded kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os_release: Option<String>,
    /// `uname -m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// The tool and version that recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorder: Option<String>,
    /// The command line of the recorder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_line: Option<String>,
    /// CPU model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_model: Option<String>,
    /// CPUs online.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Physical memory in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Build id of the recorded kernel, hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_build_id: Option<String>,
    /// Anything else, by a name of its own ("perf.pmu_mappings").
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub other: BTreeMap<String, String>,
    /// The inputs that the trace was made from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Source>,
    /// The trace was completed from the journal of a recorder that died. In the manifest this is the state.
    #[serde(skip)]
    pub recovered: bool,
}

/// An input that a trace was made from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Source {
    /// File name, or `standard input`.
    pub name: String,
    /// Name of its format.
    pub format: String,
    /// Size of the file where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// A table as the manifest describes it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Table {
    /// What one row is.
    #[serde(default)]
    pub doc: String,
    /// Folder of its parts, below the trace directory.
    pub folder: String,
    /// Columns by which rows are ordered, ascending, NULL first, in each part that is `sorted`.
    #[serde(default)]
    pub sort: Vec<String>,
    /// Its columns, in order.
    pub columns: Vec<Column>,
    /// Its parts, in order.
    #[serde(default)]
    pub parts: Vec<Part>,
}

impl Table {
    pub(super) fn new(schema: &TableSchema) -> Table {
        Table {
            doc: schema.doc.clone(),
            folder: files::folder_of(&schema.name),
            sort: schema.sort.clone(),
            columns: schema.columns.iter().map(Column::new).collect(),
            parts: Vec::new(),
        }
    }

    /// Takes the columns of all forms of the table, and its parts, each with its form's index.
    pub(super) fn unite(&mut self, forms: &[&TableSchema], parts: &[(usize, Part)]) {
        let united = unite(forms.iter().map(|form| form.columns.as_slice()));
        let own_columns = |form: &TableSchema| -> Vec<PartColumn> {
            let column = |column: &ColumnSchema| PartColumn {
                name: column.name.clone(),
                kind: column.kind,
            };
            let is_whole = united.len() == form.columns.len()
                && united
                    .iter()
                    .zip(&form.columns)
                    .all(|(united, own)| united.name == own.name && united.kind == own.kind);
            if is_whole {
                return Vec::new();
            }
            form.columns.iter().map(column).collect()
        };
        let columns: Vec<Vec<PartColumn>> = forms.iter().map(|form| own_columns(form)).collect();
        self.columns = united.iter().map(Column::new).collect();
        self.parts = parts
            .iter()
            .map(|(form, part)| Part {
                columns: columns.get(*form).cloned().unwrap_or_default(),
                ..part.clone()
            })
            .collect();
        self.parts.sort_by_key(Part::number);
    }

    /// Rows of all parts.
    pub fn rows(&self) -> u64 {
        let rows = self.parts.iter().map(|part| part.rows);
        rows.fold(0, u64::saturating_add)
    }

    /// Bytes of all parts.
    pub fn bytes(&self) -> u64 {
        let bytes = self.parts.iter().map(|part| part.bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// The columns that a part has, as the table declares them but with the part's own types.
    pub fn columns_of(&self, part: &Part) -> Vec<ColumnSchema> {
        if part.columns.is_empty() {
            return self.columns.iter().map(Column::schema).collect();
        }
        let own = |own: &PartColumn| {
            let column = self.columns.iter().find(|column| column.name == own.name)?;
            Some(ColumnSchema {
                kind: own.kind,
                ..column.schema()
            })
        };
        part.columns.iter().filter_map(own).collect()
    }

    /// Parts with the same columns, in order: the forms of an event.
    pub fn forms(&self) -> Vec<Vec<&Part>> {
        let mut forms: Vec<Vec<&Part>> = Vec::new();
        let mut places: HashMap<&[PartColumn], usize> = HashMap::new();
        for part in &self.parts {
            let place = *places.entry(&part.columns).or_insert(forms.len());
            match forms.get_mut(place) {
                Some(form) => form.push(part),
                None => forms.push(vec![part]),
            }
        }
        forms
    }

    /// First and last `time`, if any row has one.
    pub fn time_range(&self) -> Option<(i64, i64)> {
        let first = self.parts.iter().filter_map(|part| part.time_min).min()?;
        let last = self.parts.iter().filter_map(|part| part.time_max).max()?;
        Some((first, last))
    }

    /// The declaration, to write such a table again.
    pub fn schema(&self, name: &str) -> TableSchema {
        TableSchema {
            name: name.to_owned(),
            doc: self.doc.clone(),
            columns: self.columns.iter().map(Column::schema).collect(),
            sort: self.sort.clone(),
        }
    }
}

/// A column as the manifest describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Type of its values.
    #[serde(rename = "type")]
    pub kind: ColumnType,
    /// "ns", "bytes", …; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// Whether NULL may occur.
    #[serde(default)]
    pub nullable: bool,
    /// One sentence.
    #[serde(default)]
    pub doc: String,
    /// How its pages are encoded.
    #[serde(default)]
    pub encoding: Encoding,
}

impl Column {
    fn new(column: &ColumnSchema) -> Column {
        Column {
            name: column.name.clone(),
            kind: column.kind,
            unit: column.unit.clone(),
            nullable: column.nullable,
            doc: column.doc.clone(),
            encoding: column.encoding,
        }
    }

    fn schema(&self) -> ColumnSchema {
        ColumnSchema {
            name: self.name.clone(),
            kind: self.kind,
            unit: self.unit.clone(),
            nullable: self.nullable,
            doc: self.doc.clone(),
            encoding: self.encoding,
        }
    }
}

/// One Parquet file of a table.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Part {
    /// Path below the trace directory.
    pub file: String,
    /// Rows in it.
    pub rows: u64,
    /// Its size.
    pub bytes: u64,
    /// Its rows are ordered as the table's `sort` says.
    #[serde(default)]
    pub sorted: bool,
    /// Smallest `time` in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_min: Option<i64>,
    /// Largest `time` in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_max: Option<i64>,
    /// Its columns where they are not those of the table: it lacks some, or has narrower types. Parts with the same
    /// columns hold one form of an event.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<PartColumn>,
}

/// A column of a part.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PartColumn {
    /// Its name, which is that of a column of the table.
    pub name: String,
    /// Type of its values in this part.
    #[serde(rename = "type")]
    pub kind: ColumnType,
}

impl Part {
    /// One more than the number in its name.
    pub(super) fn number(&self) -> u32 {
        let name = self.file.rsplit('/').next().unwrap_or_default();
        let digits = name.trim_end_matches(".parquet");
        let number = digits.parse::<u32>();
        number.map_or(0, |number| number.saturating_add(1))
    }
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// Rows of each table.
    pub rows: BTreeMap<String, u64>,
    /// Bytes of all parts.
    pub bytes: u64,
}

impl Manifest {
    pub(super) fn new() -> Manifest {
        Manifest {
            version: VERSION,
            state: State::Recording,
            facts: Facts::default(),
            tables: BTreeMap::new(),
        }
    }

    /// Reads the manifest of the trace directory `path`.
    pub fn read(path: &Path) -> Result<Manifest, Error> {
        let file = path.join(FILE_NAME);
        let text = match read_file(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound && path.is_dir() => {
                return Err(Error::Unsupported {
                    input: path.display().to_string(),
                    message: format!("expected a trace directory, found no {FILE_NAME} in it"),
                });
            }
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                return Err(Error::Unsupported {
                    input: path.display().to_string(),
                    message:
                        "expected a trace directory, found a file\nhint: perfquet-convert makes one"
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
            place: crate::event::Place::Line(error.line() as u64),
            message: format!("expected a manifest, found otherwise: {error}"),
        };
        // The version first: what a later one means by the rest is not known.
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let head: Head = serde_json::from_slice(&text).map_err(damaged)?;
        if head.version > VERSION {
            return Err(Error::Unsupported {
                input: path.display().to_string(),
                message: format!(
                    "a trace directory of version {}, read are versions up to {VERSION}\n\
                     hint: a newer perfquet reads it",
                    head.version
                ),
            });
        }
        let manifest: Manifest = serde_json::from_slice(&text).map_err(damaged)?;
        match check::check(&manifest) {
            Ok(()) => Ok(manifest),
            Err(message) => Err(Error::Damaged {
                input: file.display().to_string(),
                place: crate::event::Place::Whole,
                message,
            }),
        }
    }

    /// Replaces the manifest of the trace directory `path`.
    pub(super) fn write(&self, path: &Path, sync: bool) -> Result<(), Error> {
        let file = path.join(FILE_NAME);
        let mut text =
            serde_json::to_vec_pretty(self).map_err(|error| Error::io(&file)(error.into()))?;
        text.push(b'\n');
        files::replace(&file, &text, sync).map_err(Error::io(&file))
    }

    /// What was written.
    pub fn summary(&self) -> Summary {
        let rows = |(name, table): (&String, &Table)| (name.clone(), table.rows());
        Summary {
            rows: self.tables.iter().map(rows).collect(),
            bytes: self
                .tables
                .values()
                .map(Table::bytes)
                .fold(0, u64::saturating_add),
        }
    }
}

/// The text of a manifest: of a file alone, for a link could lead anywhere and a pipe never ends.
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
        return Err(io::Error::other("expected a manifest, found otherwise"));
    }
    let mut text = Vec::new();
    file.take(LARGEST).read_to_end(&mut text)?;
    Ok(text)
}
