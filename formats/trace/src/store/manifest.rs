//! `manifest.json`: the contents of a trace directory. It is replaced as a whole, after the parts that it lists.
//!
//! ```text
//! { "version": 2, "state": "complete",
//!   "facts": { "clock": "monotonic", "host": "box", … },
//!   "tables": { "losses": { "doc": "Events known to be missing.", "folder": "losses", "sort": ["time"],
//!       "columns": [ { "name": "time", "type": "int64", "unit": "ns", "nullable": true, "doc": "…" }, … ],
//!       "parts": [ { "file": "losses/00000.parquet", "rows": 2, "bytes": 1180, "sorted": true,
//!                    "time_min": 17, "time_max": 90, "time_nulls": 0 } ] } } }
//! ```
//! Unknown members are ignored, so that minor changes stay readable; a format
//! that older versions cannot read raises `version`.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde::{Deserialize, Serialize};

use perfquet_events::Error;

use super::files;
use super::table::{ColumnSchema, ColumnType, Encoding, TableSchema};
use super::unite::unite;

/// Version of the directory's layout: the one written, and the latest one read.
pub const VERSION: u32 = 2;

/// Name of the manifest in the trace directory.
pub const FILE_NAME: &str = "manifest.json";

/// Directory of the recorder's raw files, which the store does not touch.
pub const JOURNAL: &str = "journal";

/// Contents of a trace directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the layout, [`VERSION`].
    pub version: u32,
    /// Whether the trace is complete.
    pub state: State,
    /// Facts about the recording.
    #[serde(default)]
    pub facts: Facts,
    /// The tables by name.
    #[serde(default)]
    pub tables: BTreeMap<String, Table>,
}

/// State of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Still being written, or its writer was killed: some parts are missing.
    #[default]
    Recording,
    /// Complete.
    Complete,
    /// Completed from the journal of a killed recorder.
    Recovered,
}

impl State {
    /// Returns the name in the manifest.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Recording => "recording",
            State::Complete => "complete",
            State::Recovered => "recovered",
        }
    }
}

/// Facts about a recording as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// The clock of `time`: "monotonic", "sched_clock", "boottime", "realtime", …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<String>,
    /// Offset from `time` to nanoseconds since 1970 (UTC).
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
    /// Build ID of the recorded kernel, hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_build_id: Option<String>,
    /// Other facts by name ("perf.pmu_mappings").
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub other: BTreeMap<String, String>,
    /// The inputs of the trace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Source>,
    /// Whether the trace was completed from the journal of a killed recorder. In the manifest this is the state.
    #[serde(skip)]
    pub recovered: bool,
}

impl Facts {
    /// Returns the known facts with the names of their members, in this order; not the inputs.
    pub fn by_name(&self) -> Vec<(String, String)> {
        let number = |value: Option<u64>| value.map(|value| value.to_string());
        let known = [
            ("host", self.host.clone()),
            ("os_release", self.os_release.clone()),
            ("architecture", self.architecture.clone()),
            ("cpu_model", self.cpu_model.clone()),
            ("cpus", number(self.cpus.map(u64::from))),
            ("memory_bytes", number(self.memory_bytes)),
            ("kernel_build_id", self.kernel_build_id.clone()),
            ("recorder", self.recorder.clone()),
            ("command_line", self.command_line.clone()),
            ("clock", self.clock.clone()),
            (
                "wall_offset",
                self.wall_offset.map(|offset| offset.to_string()),
            ),
        ];
        let known = known
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let other = self.other.iter();
        known
            .chain(other.map(|(name, value)| (name.clone(), value.clone())))
            .collect()
    }
}

/// An input of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Source {
    /// File name, or `stdin`.
    pub name: String,
    /// Name of its format.
    pub format: String,
    /// Size in bytes; `None` if the input is not a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// A table in the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Table {
    /// Description of one row.
    #[serde(default)]
    pub doc: String,
    /// Directory of its parts, below the trace directory.
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
    /// A table without parts.
    pub fn new(schema: &TableSchema) -> Table {
        Table {
            doc: schema.doc.clone(),
            folder: files::folder_of(&schema.name),
            sort: schema.sort.clone(),
            columns: schema.columns.iter().map(Column::new).collect(),
            parts: Vec::new(),
        }
    }

    /// Builds a table from the columns of all its forms, and its parts with the index of their form.
    pub(super) fn unite(&mut self, forms: &[&TableSchema], parts: &[(usize, Part)]) {
        let united = unite(forms.iter().map(|form| form.columns.as_slice()));
        let own_columns = |form: &TableSchema| -> Vec<PartColumn> {
            let column = |column: &ColumnSchema| PartColumn {
                name: column.name.clone(),
                kind: column.kind,
                stored: None,
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

    /// Returns the number of rows in all parts.
    pub fn rows(&self) -> u64 {
        let rows = self.parts.iter().map(|part| part.rows);
        rows.fold(0, u64::saturating_add)
    }

    /// Size of all parts in bytes.
    pub fn bytes(&self) -> u64 {
        let bytes = self.parts.iter().map(|part| part.bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// Returns the columns of a part, as declared by the table but with the part's types.
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

    /// Returns the parts grouped by columns, in order: the forms of an event.
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

    /// Returns the first and last `time`, if any row has one.
    pub fn time_range(&self) -> Option<(i64, i64)> {
        let first = self.parts.iter().filter_map(|part| part.time_min).min()?;
        let last = self.parts.iter().filter_map(|part| part.time_max).max()?;
        Some((first, last))
    }

    /// Returns the declaration of the table.
    pub fn schema(&self, name: &str) -> TableSchema {
        TableSchema {
            name: name.to_owned(),
            doc: self.doc.clone(),
            columns: self.columns.iter().map(Column::schema).collect(),
            sort: self.sort.clone(),
        }
    }
}

/// A column in the manifest.
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
    /// Description.
    #[serde(default)]
    pub doc: String,
    /// Encoding of its pages.
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
    /// Number of rows.
    pub rows: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Whether the rows are sorted by the table's `sort`.
    #[serde(default)]
    pub sorted: bool,
    /// Smallest `time`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_min: Option<i64>,
    /// Largest `time`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_max: Option<i64>,
    /// Number of rows whose `time` is NULL; `None` in traces of earlier versions of the writer. Without them, sorted parts
    /// whose times follow each other are sorted together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_nulls: Option<u64>,
    /// Columns, if they differ from the table's: some are missing or have narrower types. Parts with the same
    /// columns are one form of an event.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<PartColumn>,
    /// In a lake, the part's place among the rows of its file; `bytes` is then its share of the file. `None` in a trace directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<PartRange>,
}

/// Rows of a file that has rows of several parts, often of several traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRange {
    /// Number of rows of other parts before.
    pub first_row: u64,
    /// Number of rows of the file.
    pub file_rows: u64,
    /// Size of the file.
    pub file_bytes: u64,
}

/// A column of a part.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PartColumn {
    /// Name of the table's column.
    pub name: String,
    /// Type of the values in this part.
    #[serde(rename = "type")]
    pub kind: ColumnType,
    /// In a lake, its name in the file if another column has that name. `None` in a trace directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<String>,
}

impl Part {
    /// Returns the size of the file in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.range.map_or(self.bytes, |range| range.file_bytes)
    }

    /// Returns the name in the file of a column, if it has another one there.
    pub fn stored(&self, column: &str) -> Option<&str> {
        let own = self.columns.iter().find(|own| own.name == column)?;
        own.stored.as_deref()
    }

    /// Returns the number in the part's name plus one.
    pub(super) fn number(&self) -> u32 {
        let name = self.file.rsplit('/').next().unwrap_or_default();
        let digits = name.trim_end_matches(".parquet");
        let number = digits.parse::<u32>();
        number.map_or(0, |number| number.saturating_add(1))
    }
}

/// Result of writing a trace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// Rows of each table.
    pub rows: BTreeMap<String, u64>,
    /// Size of all parts in bytes.
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

    /// Replaces the manifest of the trace directory `path`.
    pub(super) fn write(&self, path: &Path, sync: bool) -> Result<(), Error> {
        let file = path.join(FILE_NAME);
        let mut text =
            serde_json::to_vec_pretty(self).map_err(|error| Error::io(&file)(error.into()))?;
        text.push(b'\n');
        files::replace(&file, &text, sync).map_err(Error::io(&file))
    }

    /// Result of writing a trace.
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
