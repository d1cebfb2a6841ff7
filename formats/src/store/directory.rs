//! Reads a trace directory: the manifest, where the parts are, and their rows.
//!
//! ```text
//! let trace = Directory::open(Path::new("a.pqt"))?;
//! for batch in trace.read("samples")? { … }
//! ```
//! Only what the manifest names counts: a file that a dead writer left is not seen.

use std::fs::File;
use std::path::{Path, PathBuf};

use arrow::record_batch::RecordBatch;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};

use crate::Error;

use super::manifest::{Manifest, Table};

/// A trace directory.
#[derive(Debug, Clone)]
pub struct Directory {
    path: PathBuf,
    manifest: Manifest,
}

impl Directory {
    /// Reads the manifest of the trace directory `path`. One that is being written can be opened, too: it
    /// shows the parts that are whole.
    pub fn open(path: &Path) -> Result<Directory, Error> {
        Ok(Directory {
            path: path.to_owned(),
            manifest: Manifest::read(path)?,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it says of itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Its tables, by name.
    pub fn tables(&self) -> impl Iterator<Item = (&str, &Table)> {
        self.manifest
            .tables
            .iter()
            .map(|(name, table)| (name.as_str(), table))
    }

    /// A table by its name.
    pub fn table(&self, name: &str) -> Option<&Table> {
        self.manifest.tables.get(name)
    }

    /// The files of a table, in order; none if there is no such table.
    pub fn parts(&self, name: &str) -> Vec<PathBuf> {
        let parts = self.table(name).map_or(&[][..], |table| &table.parts);
        parts
            .iter()
            .map(|part| self.path.join(&part.file))
            .collect()
    }

    /// The rows of a table, in order; none if there is no such table. Integers, text and lists come as Arrow's
    /// types of the same names.
    pub fn read(
        &self,
        name: &str,
    ) -> Result<impl Iterator<Item = Result<RecordBatch, Error>>, Error> {
        let readers = self
            .parts(name)
            .into_iter()
            .map(|path| Ok((open_part(&path)?, path)))
            .collect::<Result<Vec<_>, Error>>()?;
        Ok(readers.into_iter().flat_map(|(reader, path)| {
            reader.map(move |batch| batch.map_err(|error| damaged(&path, &error)))
        }))
    }
}

fn open_part(path: &Path) -> Result<ParquetRecordBatchReader, Error> {
    let file = File::open(path).map_err(Error::io(path))?;
    ParquetRecordBatchReaderBuilder::try_new(file)
        .and_then(|builder| builder.with_batch_size(8192).build())
        .map_err(|error| damaged(path, &error))
}

fn damaged(path: &Path, error: &dyn std::error::Error) -> Error {
    Error::Damaged {
        input: path.display().to_string(),
        place: crate::event::Place::Whole,
        message: format!("expected a Parquet file, found otherwise: {error}"),
    }
}
