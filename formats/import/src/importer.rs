//! Imports without a trace directory that the caller has to name or remove: bytes of any format in, Arrow out.

use std::path::Path;

use arrow_array::RecordBatch;
use perfquet_events::{Error, Input};
use perfquet_trace::Report;
use perfquet_trace::store::{Directory, TableSchema};

use crate::{ImportOptions, import};

/// Turns inputs into tables.
///
/// ```
/// # fn main() -> Result<(), perfquet_events::Error> {
/// use perfquet_import::Importer;
///
/// let text = b"sh 7 1.000000: cycles: \n\tffffffff8100000a vfs_read ([kernel])\n\n";
/// let imported = Importer::default().import_bytes("a.txt", text)?;
/// for batch in imported.read("samples")? {
///     println!("{} samples", batch?.num_rows());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct Importer {
    options: ImportOptions,
}

impl Importer {
    /// An importer with options, such as the format of the input or the sources of symbols.
    pub fn new(options: ImportOptions) -> Importer {
        Importer { options }
    }

    /// Imports the bytes of a file. `name` is that of the source in the trace and in messages; the format is recognized by
    /// the bytes.
    ///
    /// # Errors
    ///
    /// The format is unknown, nothing of the input is readable, or the temporary directory is full.
    pub fn import_bytes(self, name: &str, bytes: &[u8]) -> Result<Imported, Error> {
        self.import(vec![Input::from_bytes(name, bytes)?])
    }

    /// Imports inputs: files, streams, or bytes. Those of one recording belong together; see [`import`].
    ///
    /// # Errors
    ///
    /// Like [`Importer::import_bytes`].
    pub fn import(self, inputs: Vec<Input>) -> Result<Imported, Error> {
        let folder = tempfile::Builder::new().prefix("perfquet-").tempdir();
        let folder = folder.map_err(Error::io(std::env::temp_dir()))?;
        let path = folder.path().join("imported.pqt");
        let mut options = self.options;
        // A crash loses it anyway.
        options.store.sync = false;
        let report = import(inputs, &path, options)?;
        Ok(Imported {
            trace: Directory::open(&path)?,
            report,
            _folder: folder,
        })
    }
}

/// The tables of an import, in a temporary directory that is removed when this is dropped. Tables are larger than memory
/// may be, so their rows are read from there.
pub struct Imported {
    trace: Directory,
    report: Report,
    _folder: tempfile::TempDir,
}

impl Imported {
    /// The tables that have rows: name, columns, units, and descriptions.
    pub fn tables(&self) -> impl Iterator<Item = TableSchema> {
        let tables = self.trace.tables();
        let tables = tables.filter(|(_, table)| table.rows() > 0);
        tables.map(|(name, table)| table.schema(name))
    }

    /// The rows of a table, named as in a manifest: "samples", "events/sched/sched_switch". Without such a table, there are none. If
    /// the fields of an event change within an input, so do the columns of the batches.
    ///
    /// # Errors
    ///
    /// The table is unreadable.
    pub fn read(
        &self,
        table: &str,
    ) -> Result<impl Iterator<Item = Result<RecordBatch, Error>> + use<>, Error> {
        self.trace.read(table)
    }

    /// What was read: formats, counts, losses, and problems.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The manifest: facts about the recording, and all tables.
    pub fn trace(&self) -> &Directory {
        &self.trace
    }

    /// The temporary trace directory, for a program that opens it by path, such as the crate perfquet.
    pub fn path(&self) -> &Path {
        self.trace.path()
    }
}
