//! The rows of an import, as text: two imports are compared row by row.
//!
//! ```text
//! samples time=1489506543925 cpu=0 tid=3122 comm=dd event=cpu-clock kernel_stack=[kernel]+0x1234;…
//! ```
//! IDs of stacks and calls differ between imports, so a stack is its frames and a call has no ID.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use arrow::array::{Array as _, AsArray as _};
use arrow::datatypes::Int32Type;
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use perfquet_events::Input;
use perfquet_import::{ImportOptions, import};
use perfquet_trace::store::{Directory, WriterOptions};
use perfquet_trace::symbols;

/// Tables that describe rows of others; their own rows follow from these.
const CATALOGS: [&str; 6] = [
    "stacks",
    "frames",
    "threads",
    "event_types",
    "problems",
    "losses",
];
/// Columns with row IDs.
const NUMBERS: [&str; 3] = ["call_id", "parent_id", "aggregate_id"];
const STACKS: [&str; 2] = ["kernel_stack", "user_stack"];

/// The result of an import.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Number of occurrences of each row.
    pub(crate) rows: BTreeMap<String, u64>,
    /// The rows of `problems` and `losses`, with place and count.
    pub(crate) messages: Vec<String>,
    /// The reason for an empty import.
    pub(crate) error: Option<String>,
}

impl Outcome {
    /// All rows.
    pub(crate) fn total(&self) -> u64 {
        self.rows.values().sum()
    }

    /// Imports bytes.
    pub(crate) fn of(bytes: &[u8]) -> Outcome {
        let folder = tempfile::tempdir_in(scratch()).unwrap();
        let file = folder.path().join("input");
        std::fs::write(&file, bytes).unwrap();
        Outcome::at(&file)
    }

    /// Imports a file or directory.
    pub(crate) fn at(path: &Path) -> Outcome {
        let folder = tempfile::tempdir_in(scratch()).unwrap();
        let options = || ImportOptions {
            symbols: symbols::Options {
                kernel: symbols::KernelSource::None,
                user: false,
                system: false,
                ..symbols::Options::default()
            },
            store: WriterOptions {
                sync: false,
                ..WriterOptions::default()
            },
            ..ImportOptions::default()
        };
        let output = folder.path().join("t.pqt");
        let input = match Input::open(path) {
            Ok(input) => input,
            Err(error) => return Outcome::failed(&error),
        };
        match import(vec![input], &output, options()) {
            Ok(_) => Outcome::read(&output),
            Err(error) => Outcome::failed(&error),
        }
    }

    fn failed(error: &dyn std::error::Error) -> Outcome {
        Outcome {
            error: Some(error.to_string()),
            ..Outcome::default()
        }
    }

    fn read(path: &Path) -> Outcome {
        let trace = Directory::open(path).unwrap();
        let stacks = Stacks::read(&trace);
        let mut outcome = Outcome::default();
        let names: Vec<&str> = trace.tables().map(|(name, _)| name).collect();
        for name in names {
            for batch in trace.read(name).unwrap() {
                let batch = batch.unwrap();
                match name {
                    "problems" | "losses" => outcome.add_reports(&batch),
                    name if CATALOGS.contains(&name) => {}
                    name => outcome.add(name, &batch, &stacks),
                }
            }
        }
        outcome
    }

    fn add_reports(&mut self, batch: &RecordBatch) {
        let options = FormatOptions::default();
        let text = batch
            .column_by_name("message")
            .or_else(|| batch.column_by_name("reason"));
        let text = ArrayFormatter::try_new(text.unwrap(), &options).unwrap();
        let place = batch.column_by_name("input_offset");
        let place = place.map(|place| ArrayFormatter::try_new(place, &options).unwrap());
        let count = batch.column_by_name("count").unwrap();
        let count = ArrayFormatter::try_new(count, &options).unwrap();
        for row in 0..batch.num_rows() {
            let count = count.value(row);
            let at = place.as_ref().map(|place| place.value(row).to_string());
            let message = text.value(row);
            self.messages
                .push(format!("{}: {count} {message}", at.unwrap_or_default()));
        }
    }

    fn add(&mut self, table: &str, batch: &RecordBatch, stacks: &Stacks) {
        let options = FormatOptions::default();
        let schema = batch.schema();
        let columns: Vec<_> = schema.fields().iter().zip(batch.columns()).collect();
        let columns: Vec<_> = columns
            .into_iter()
            .filter(|(field, _)| !NUMBERS.contains(&field.name().as_str()))
            .map(|(field, column)| {
                let formatter = ArrayFormatter::try_new(column, &options).unwrap();
                (field.name().as_str(), column, formatter)
            })
            .collect();
        for row in 0..batch.num_rows() {
            let mut text = table.to_owned();
            for (name, column, formatter) in &columns {
                if column.is_null(row) {
                    continue;
                }
                text.push_str(&format!(" {name}="));
                if STACKS.contains(name) {
                    let id = column.as_primitive::<Int32Type>().value(row);
                    text.push_str(&stacks.text(id));
                } else {
                    text.push_str(&formatter.value(row).to_string());
                }
            }
            *self.rows.entry(text).or_default() += 1;
        }
    }
}

/// A directory in memory, if the host has such a file system: a thousand imports write a thousand directories.
fn scratch() -> std::path::PathBuf {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => memory.to_owned(),
        false => std::env::temp_dir(),
    }
}

/// The stacks of a trace: parent and frame of each node, and the frames as text.
#[derive(Default)]
struct Stacks {
    nodes: HashMap<i32, (Option<i32>, Option<i32>)>,
    frames: HashMap<i32, String>,
}

impl Stacks {
    fn read(trace: &Directory) -> Stacks {
        let mut stacks = Stacks::default();
        for batch in trace.read("stacks").unwrap() {
            let batch = batch.unwrap();
            let column = |name: &str| {
                batch
                    .column_by_name(name)
                    .unwrap()
                    .as_primitive::<Int32Type>()
                    .clone()
            };
            let (ids, parents, frames) =
                (column("stack_id"), column("parent_id"), column("frame_id"));
            let known = |column: &arrow::array::Int32Array, row| {
                column.is_valid(row).then(|| column.value(row))
            };
            for row in 0..batch.num_rows() {
                let node = (known(&parents, row), known(&frames, row));
                stacks.nodes.insert(ids.value(row), node);
            }
        }
        let options = FormatOptions::default();
        for batch in trace.read("frames").unwrap() {
            let batch = batch.unwrap();
            let ids = batch
                .column_by_name("frame_id")
                .unwrap()
                .as_primitive::<Int32Type>()
                .clone();
            let fields: Vec<_> = ["module", "module_offset", "address", "function", "space"]
                .iter()
                .map(|name| {
                    ArrayFormatter::try_new(batch.column_by_name(name).unwrap(), &options).unwrap()
                })
                .collect();
            for row in 0..batch.num_rows() {
                let texts: Vec<String> = fields
                    .iter()
                    .map(|column| column.value(row).to_string())
                    .collect();
                stacks.frames.insert(ids.value(row), texts.join("+"));
            }
        }
        stacks
    }

    fn text(&self, mut id: i32) -> String {
        let mut frames = Vec::new();
        while let Some((parent, frame)) = self.nodes.get(&id) {
            let frame = frame.and_then(|frame| self.frames.get(&frame));
            frames.push(frame.map_or("-", String::as_str));
            match parent {
                Some(parent) => id = *parent,
                None => break,
            }
        }
        frames.join(";")
    }
}
