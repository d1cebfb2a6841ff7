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

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Error;

use super::files;
use super::table::{ColumnSchema, ColumnType, Encoding, TableSchema};

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

    /// Rows of all parts.
    pub fn rows(&self) -> u64 {
        self.parts.iter().map(|part| part.rows).sum()
    }

    /// Bytes of all parts.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
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
        let text = match std::fs::read(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && path.is_dir() => {
                return Err(Error::Unsupported {
                    input: path.display().to_string(),
                    message: format!("expected a trace directory, found no {FILE_NAME} in it"),
                });
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
                return Err(Error::Unsupported {
                    input: path.display().to_string(),
                    message:
                        "expected a trace directory, found a file\nhint: perfquet-convert makes one"
                            .to_owned(),
                });
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
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
        manifest.check(path)?;
        Ok(manifest)
    }

    /// No path in it may lead out of the trace directory: it may have come from a stranger.
    fn check(&self, path: &Path) -> Result<(), Error> {
        let paths = self.tables.values().flat_map(|table| {
            std::iter::once(&table.folder).chain(table.parts.iter().map(|part| &part.file))
        });
        for inner in paths {
            let inside = Path::new(inner)
                .components()
                .all(|step| matches!(step, std::path::Component::Normal(_)));
            if !inside || inner.is_empty() {
                return Err(Error::Damaged {
                    input: path.join(FILE_NAME).display().to_string(),
                    place: crate::event::Place::Whole,
                    message: format!("expected paths inside the trace, found {inner:?}"),
                });
            }
        }
        Ok(())
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
            bytes: self.tables.values().map(Table::bytes).sum(),
        }
    }
}
