//! Reads a trace directory: the manifest, the paths of the parts, and their rows.
//!
//! ```text
//! let trace = Directory::open(Path::new("a.pqt"))?;
//! for batch in trace.read("samples")? { … }
//! ```
//! Only parts listed in the manifest are read; files left by a killed writer are ignored.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::Length as _;
use parquet::file::statistics::Statistics;

use perfquet_events::Error;

use super::archive::{ARCHIVE_ENDING, Archive};
use super::chunks::check_chunks;
use super::logical::{as_read, stored_name};
use super::manifest::{Manifest, Part, Table};
use super::panics::guarded;
use super::part_file::PartFile;
use super::published::{as_published, selected};
use super::table::ColumnSchema;
use crate::remote::{Remote, failure};

/// A trace directory, a trace in a lake, or one in an archive.
#[derive(Debug, Clone)]
pub struct Directory {
    root: Root,
    manifest: Manifest,
}

/// What the paths of parts begin in.
#[derive(Debug, Clone)]
pub enum Root {
    /// The directory of a trace, or of a lake.
    Directory(Arc<Path>),
    /// A trace as one file, here or behind a URL.
    Archive(Arc<Archive>),
    /// A directory of a trace, or of a lake, behind a URL.
    Remote(Arc<Remote>),
}

impl Root {
    /// Returns the path of the directory or archive.
    pub fn path(&self) -> &Path {
        match self {
            Root::Directory(path) => path,
            Root::Archive(archive) => archive.path(),
            Root::Remote(remote) => remote.url(),
        }
    }

    /// Opens a part if it has the size in the manifest, and returns its path. The size of one behind a URL is checked when it is read.
    pub fn part(&self, part: &Part) -> Result<(PathBuf, PartFile), Error> {
        match self {
            Root::Directory(path) => {
                let path = part_path(path, part)?;
                let file = PartFile::open(&path).map_err(Error::io(&path))?;
                Ok((path, file))
            }
            Root::Archive(archive) => {
                let file = archive.member(&part.file)?;
                let path = archive.path().join(&part.file);
                match file.len() == part.file_bytes() {
                    true => Ok((path, file)),
                    false => Err(Error::Unsupported {
                        input: path.display().to_string(),
                        message: wrong_size(part, file.len()),
                    }),
                }
            }
            Root::Remote(remote) => {
                let path = remote.url().join(&part.file);
                let file = remote.place().file(&part.file, part.file_bytes());
                Ok((
                    path.clone(),
                    PartFile::remote(file.map_err(|error| failure(&path, &error))?),
                ))
            }
        }
    }
}

fn wrong_size(part: &Part, found: u64) -> String {
    let hint = if part.range.is_some() { CHANGED } else { "" };
    let expected = part.file_bytes();
    format!("expected a part of {expected} bytes, as in the manifest, found {found}{hint}")
}

impl Directory {
    /// Reads the manifest of the trace directory or archive `path`. A trace that is still being written
    /// shows its complete parts.
    pub fn open(path: &Path) -> Result<Directory, Error> {
        if let Some(remote) = Remote::at(path) {
            return Directory::remote(remote?);
        }
        if path.is_file() && Archive::is_archive(path) {
            let archive = Archive::open(path)?;
            let manifest = Manifest::of_archive(&archive)?;
            let root = Root::Archive(Arc::new(archive));
            return Ok(Directory { root, manifest });
        }
        let manifest = Manifest::read(path)?;
        Ok(Directory::below(path, manifest))
    }

    fn remote(remote: Remote) -> Result<Directory, Error> {
        if remote.url().to_string_lossy().ends_with(ARCHIVE_ENDING) {
            let archive = Archive::remote(&remote)?;
            let manifest = Manifest::of_archive(&archive)?;
            let root = Root::Archive(Arc::new(archive));
            return Ok(Directory { root, manifest });
        }
        let manifest = Manifest::of_remote(&remote)?;
        let root = Root::Remote(Arc::new(remote));
        Ok(Directory { root, manifest })
    }

    /// A trace whose parts are below `path`.
    fn below(path: &Path, manifest: Manifest) -> Directory {
        Directory::rooted(Root::Directory(path.into()), manifest)
    }

    /// A trace whose parts are below `root`.
    pub(crate) fn rooted(root: Root, manifest: Manifest) -> Directory {
        Directory { root, manifest }
    }

    /// Returns what the paths of parts begin in.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Returns the path of the trace directory or archive; of a trace in a lake, that of the lake.
    pub fn path(&self) -> &Path {
        self.root.path()
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
        let path = |part: &Part| self.path().join(&part.file);
        parts.iter().map(path).collect()
    }

    /// Returns the rows of a table, in order; none if there is no such table. Integers, strings and lists have the
    /// Arrow types of the same names; bits are unsigned integers. If parts differ in columns, so do the batches.
    pub fn read(
        &self,
        name: &str,
    ) -> Result<impl Iterator<Item = Result<RecordBatch, Error>> + use<>, Error> {
        let Some(table) = self.table(name) else {
            return Ok(Vec::new().into_iter().flatten());
        };
        let parts = table.parts.iter();
        let parts =
            parts.map(|part| read_part(&self.root, name, part, table.columns_of(part), None));
        Ok(parts.collect::<Result<Vec<_>, _>>()?.into_iter().flatten())
    }

    /// Returns the forms of a table: groups of parts with the same columns.
    pub fn forms(&self, name: &str) -> Vec<Form<'_>> {
        let Some(table) = self.table(name) else {
            return Vec::new();
        };
        if table.parts.is_empty() {
            let columns = table.schema(name).columns;
            return vec![Form {
                table: name.to_owned(),
                columns,
                parts: Vec::new(),
            }];
        }
        let mut forms = Vec::new();
        for parts in table.forms() {
            let columns = parts.first().map(|part| table.columns_of(part));
            forms.push(Form {
                table: name.to_owned(),
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
        self.read_parts(form, None)
    }

    /// Returns these columns of one form of a table, in order, in large batches. A column that the form lacks is an error.
    pub fn read_form_columns(
        &self,
        form: &Form<'_>,
        columns: &[&str],
    ) -> Result<impl Iterator<Item = Result<RecordBatch, Error>> + use<>, Error> {
        self.read_parts(form, Some(columns))
    }

    /// Returns the rows of one form of a table that may be in a range of `time`, the end excluded, and the number of rows that
    /// are not read because their parts or row groups are outside of it. Row groups without statistics are read.
    pub fn read_form_between(
        &self,
        form: &Form<'_>,
        columns: Option<&[&str]>,
        range: (i64, i64),
    ) -> Result<
        (
            impl Iterator<Item = Result<RecordBatch, Error>> + use<>,
            u64,
        ),
        Error,
    > {
        let mut parts = Vec::new();
        let mut skipped = 0u64;
        for part in &form.parts {
            if is_outside(range, part.time_min, part.time_max) {
                skipped = skipped.saturating_add(part.rows);
                continue;
            }
            let columns_of = form.columns.clone();
            let (rows, more) = part_rows(
                &self.root,
                &form.table,
                part,
                columns_of,
                columns,
                Some(range),
            )?;
            parts.push(rows);
            skipped = skipped.saturating_add(more);
        }
        Ok((parts.into_iter().flatten(), skipped))
    }

    fn read_parts(
        &self,
        form: &Form<'_>,
        columns: Option<&[&str]>,
    ) -> Result<impl Iterator<Item = Result<RecordBatch, Error>> + use<>, Error> {
        let read =
            |part: &&Part| read_part(&self.root, &form.table, part, form.columns.clone(), columns);
        let parts: Vec<_> = form.parts.iter().map(read).collect::<Result<_, _>>()?;
        Ok(parts.into_iter().flatten())
    }
}

/// The rows of a table that have the same columns.
#[derive(Debug, Clone)]
pub struct Form<'t> {
    table: String,
    /// Returns the columns, with their types in these parts.
    pub columns: Vec<ColumnSchema>,
    parts: Vec<&'t Part>,
}

impl Form<'_> {
    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        let rows = self.parts.iter().map(|part| part.rows);
        rows.fold(0, u64::saturating_add)
    }
}

const CHANGED: &str = "\nhint: open the lake again: it may have changed since it was opened";

/// Returns the path of a part if it is a file inside the trace with the size in the manifest. Links are not followed:
/// in a foreign trace they could point anywhere.
pub fn part_path(trace: &Path, part: &Part) -> Result<PathBuf, Error> {
    let mut path = trace.to_owned();
    let mut steps = part.file.split('/').peekable();
    while let Some(step) = steps.next() {
        path.push(step);
        let unfit = |message: String| {
            Err(Error::Unsupported {
                input: path.display().to_string(),
                message,
            })
        };
        let found = match path.symlink_metadata() {
            Err(error) if part.range.is_some() && error.kind() == ErrorKind::NotFound => {
                return unfit(format!("expected a file of the lake, found none{CHANGED}"));
            }
            found => found.map_err(Error::io(&path))?,
        };
        let is_last = steps.peek().is_none();
        if found.is_symlink() {
            return unfit("expected a part of the trace, found a symbolic link".to_owned());
        } else if !is_last && !found.is_dir() {
            return unfit("expected a directory of parts, found another kind of file".to_owned());
        } else if is_last && !found.is_file() {
            return unfit("expected a part of the trace, found a special file".to_owned());
        } else if is_last && found.len() != part.file_bytes() {
            return unfit(wrong_size(part, found.len()));
        }
    }
    Ok(path)
}

/// Returns the rows of a part in `trace`, a part of the table with this name and with these columns. With `wanted`, only
/// those columns are read, and come in that order; one that the part lacks is an error.
pub fn read_part(
    trace: &Root,
    table: &str,
    part: &Part,
    columns: Vec<ColumnSchema>,
    wanted: Option<&[&str]>,
) -> Result<PartRows, Error> {
    Ok(part_rows(trace, table, part, columns, wanted, None)?.0)
}

/// [`read_part`] without the row groups outside of a range of time, and their number of rows.
fn part_rows(
    trace: &Root,
    table: &str,
    part: &Part,
    columns: Vec<ColumnSchema>,
    wanted: Option<&[&str]>,
    range: Option<(i64, i64)>,
) -> Result<(PartRows, u64), Error> {
    let (path, file) = trace.part(part)?;
    let mut reader = part_reader(&path, file)?.with_batch_size(match wanted {
        Some(_) => 64 * 1024,
        None => 8192,
    });
    let mut order = None;
    if let Some(wanted) = wanted {
        let schema = Arc::clone(reader.schema());
        let place = |name: &&str| match part.range {
            Some(_) => schema.index_of(part.stored(name).unwrap_or(name)),
            None => schema.index_of(stored_name(table, name, &schema)),
        };
        let places: Vec<usize> = wanted
            .iter()
            .map(place)
            .collect::<Result<_, _>>()
            .map_err(|error| damaged(&path, &error))?;
        let mask = ProjectionMask::roots(reader.parquet_schema(), places.iter().copied());
        reader = reader.with_projection(mask);
        // The reader returns columns in the file's order, and a lake's in that of the part.
        let of_part = |name: &&str| columns.iter().position(|column| column.name == *name);
        let sorted: Vec<usize> = match part.range {
            Some(_) => wanted.iter().filter_map(of_part).collect(),
            None => places,
        };
        let before = |place: &usize| sorted.iter().filter(|other| *other < place).count();
        order = Some(sorted.iter().map(before).collect());
    }
    let mut skipped = 0;
    let mut within = None;
    if let Some(range) = range {
        let (groups, rows) = groups_within(reader.metadata(), range);
        within = Some(groups);
        skipped = rows;
    }
    if let Some(range) = part.range {
        let all = || (0..reader.metadata().num_row_groups()).collect();
        let groups = within.unwrap_or_else(all);
        let (groups, rows, others) = selected(reader.metadata(), part.rows, range, &groups);
        reader = reader.with_row_groups(groups).with_row_selection(rows);
        skipped = others;
    } else if let Some(groups) = within {
        reader = reader.with_row_groups(groups);
    }
    let reader = guarded(|| reader.build()).map_err(|panic| damaged(&path, &panic))?;
    let reader = reader.map_err(|error| damaged(&path, &error))?;
    let rows = PartRows {
        reader,
        table: table.to_owned(),
        columns,
        published: part.range.map(|_| part.clone()),
        order,
        path,
        is_over: false,
    };
    Ok((rows, skipped))
}

/// The row groups that may have rows in a range of time, and the number of rows of the others.
fn groups_within(metadata: &ParquetMetaData, range: (i64, i64)) -> (Vec<usize>, u64) {
    let mut groups = Vec::new();
    let mut skipped = 0u64;
    for (index, group) in metadata.row_groups().iter().enumerate() {
        let time = group
            .columns()
            .iter()
            .find(|chunk| chunk.column_path().string() == "time");
        let bounds = match time.and_then(|chunk| chunk.statistics()) {
            Some(Statistics::Int64(times)) => (times.min_opt().copied(), times.max_opt().copied()),
            _ => (None, None),
        };
        if is_outside(range, bounds.0, bounds.1) {
            skipped = skipped.saturating_add(u64::try_from(group.num_rows()).unwrap_or_default());
        } else {
            groups.push(index);
        }
    }
    (groups, skipped)
}

/// Whether no time from `least` to `most` is in a range whose end is excluded.
fn is_outside(range: (i64, i64), least: Option<i64>, most: Option<i64>) -> bool {
    match (least, most) {
        (Some(least), Some(most)) => most < range.0 || least >= range.1,
        _ => false,
    }
}

/// The rows of a part.
pub struct PartRows {
    reader: ParquetRecordBatchReader,
    table: String,
    columns: Vec<ColumnSchema>,
    /// The part, if it is in a lake.
    published: Option<Part>,
    order: Option<Vec<usize>>,
    path: PathBuf,
    /// After an error nothing is read any more.
    is_over: bool,
}

impl Iterator for PartRows {
    type Item = Result<RecordBatch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let rows = guarded(|| self.reader.next());
        self.is_over = !matches!(rows, Ok(Some(Ok(_))));
        let rows = match rows {
            Ok(rows) => rows?.and_then(|batch| {
                let batch = match &self.published {
                    Some(part) => as_published(&self.columns, part, &batch)?,
                    None => as_read(&self.table, &self.columns, &batch)?,
                };
                match &self.order {
                    Some(order) => batch.project(order),
                    None => Ok(batch),
                }
            }),
            Err(panic) => return Some(Err(damaged(&self.path, &panic))),
        };
        Some(rows.map_err(|error| damaged(&self.path, &error)))
    }
}

/// Reads the metadata of a part, which must be valid.
pub(super) fn part_reader(
    path: &Path,
    file: PartFile,
) -> Result<ParquetRecordBatchReaderBuilder<PartFile>, Error> {
    let bytes = file.len();
    let builder = guarded(|| ParquetRecordBatchReaderBuilder::try_new(file))
        .map_err(|panic| damaged(path, &panic))?
        .map_err(|error| damaged(path, &error))?;
    check_chunks(builder.metadata(), bytes).map_err(|message| damaged(path, &message))?;
    Ok(builder)
}

pub(super) fn damaged(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::Damaged {
        input: path.display().to_string(),
        place: perfquet_events::event::Place::Whole,
        message: format!("expected a Parquet file: {error}"),
    }
}
