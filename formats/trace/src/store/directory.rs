//! Reads a trace directory: the manifest, the paths of the parts, and their rows.
//!
//! ```text
//! let trace = Directory::open(Path::new("a.pqt"))?;
//! for batch in trace.read("samples")? { … }
//! ```
//! Only parts listed in the manifest are read; files left by a killed writer are ignored.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use arrow::record_batch::RecordBatch;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};

use perfquet_events::Error;

use super::chunks::check_chunks;
use super::manifest::{Manifest, Part, Table};
use super::table::ColumnSchema;

/// A trace directory.
#[derive(Debug, Clone)]
pub struct Directory {
    path: PathBuf,
    manifest: Manifest,
}

impl Directory {
    /// Reads the manifest of the trace directory `path`. A trace that is still being written
    /// shows its complete parts.
    pub fn open(path: &Path) -> Result<Directory, Error> {
        Ok(Directory {
            path: path.to_owned(),
            manifest: Manifest::read(path)?,
        })
    }

    /// Returns the path of the trace directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the tables, by name.
    pub fn tables(&self) -> impl Iterator<Item = (&str, &Table)> {
        self.manifest
            .tables
            .iter()
            .map(|(name, table)| (name.as_str(), table))
    }

    /// Returns a table by its name.
    pub fn table(&self, name: &str) -> Option<&Table> {
        self.manifest.tables.get(name)
    }

    /// Returns the files of a table, in order; none if there is no such table.
    pub fn parts(&self, name: &str) -> Vec<PathBuf> {
        let parts = self.table(name).map_or(&[][..], |table| &table.parts);
        let path = |part: &Part| self.path.join(&part.file);
        parts.iter().map(path).collect()
    }

    /// Returns the rows of a table, in order; none if there is no such table. Integers, strings and lists have Arrow's
    /// types of the same names. If parts differ in columns, so do the batches.
    pub fn read(
        &self,
        name: &str,
    ) -> Result<impl Iterator<Item = Result<RecordBatch, Error>> + use<>, Error> {
        let parts = self.table(name).map_or(&[][..], |table| &table.parts);
        self.read_parts(&parts.iter().collect::<Vec<_>>())
    }

    /// Returns the forms of a table: groups of parts with the same columns.
    pub fn forms(&self, name: &str) -> Vec<Form<'_>> {
        let Some(table) = self.table(name) else {
            return Vec::new();
        };
        if table.parts.is_empty() {
            let columns = table.schema(name).columns;
            let parts = Vec::new();
            return vec![Form { columns, parts }];
        }
        let mut forms = Vec::new();
        for parts in table.forms() {
            let columns = parts.first().map(|part| table.columns_of(part));
            forms.push(Form {
                columns: columns.unwrap_or_default(),
                parts,
            });
        }
        forms
    }

    /// Returns the rows of one form of a table, in order.
    pub fn read_form(
        &self,
        form: &Form<'_>,
    ) -> Result<impl Iterator<Item = Result<RecordBatch, Error>> + use<>, Error> {
        self.read_parts(&form.parts)
    }

    fn read_parts(
        &self,
        parts: &[&Part],
    ) -> Result<impl Iterator<Item = Result<RecordBatch, Error>> + use<>, Error> {
        let readers = parts
            .iter()
            .map(|part| {
                let path = part_path(&self.path, part)?;
                Ok((open_part(&path)?, path))
            })
            .collect::<Result<Vec<_>, Error>>()?;
        Ok(readers.into_iter().flat_map(|(reader, path)| {
            reader.map(move |batch| batch.map_err(|error| damaged(&path, &error)))
        }))
    }
}

/// The rows of a table that have the same columns.
#[derive(Debug, Clone)]
pub struct Form<'t> {
    /// Returns the columns, with their types in these parts.
    pub columns: Vec<ColumnSchema>,
    parts: Vec<&'t Part>,
}

/// Returns the path of a part if it is a file inside the trace with the size in the manifest. Links are not followed:
/// in a foreign trace they could point anywhere.
pub fn part_path(trace: &Path, part: &Part) -> Result<PathBuf, Error> {
    let mut path = trace.to_owned();
    let mut steps = part.file.split('/').peekable();
    while let Some(step) = steps.next() {
        path.push(step);
        let found = path.symlink_metadata().map_err(Error::io(&path))?;
        let unfit = |message: String| {
            Err(Error::Unsupported {
                input: path.display().to_string(),
                message,
            })
        };
        let is_last = steps.peek().is_none();
        if found.is_symlink() {
            return unfit("expected a part of the trace, found a symbolic link".to_owned());
        } else if !is_last && !found.is_dir() {
            return unfit("expected a directory of parts, found another kind of file".to_owned());
        } else if is_last && !found.is_file() {
            return unfit("expected a part of the trace, found a special file".to_owned());
        } else if is_last && found.len() != part.bytes {
            return unfit(format!(
                "expected a part of {} bytes, as in the manifest, found {}",
                part.bytes,
                found.len()
            ));
        }
    }
    Ok(path)
}

fn open_part(path: &Path) -> Result<ParquetRecordBatchReader, Error> {
    part_reader(path)?
        .with_batch_size(8192)
        .build()
        .map_err(|error| damaged(path, &error))
}

/// Opens a part whose metadata is valid. Links are not followed.
pub fn part_reader(path: &Path) -> Result<ParquetRecordBatchReaderBuilder<File>, Error> {
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
        .map_err(Error::io(path))?;
    let bytes = file.metadata().map_err(Error::io(path))?.len();
    let builder =
        ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| damaged(path, &error))?;
    check_chunks(builder.metadata(), bytes).map_err(|message| damaged(path, &message))?;
    Ok(builder)
}

fn damaged(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::Damaged {
        input: path.display().to_string(),
        place: perfquet_events::event::Place::Whole,
        message: format!("expected a Parquet file: {error}"),
    }
}
