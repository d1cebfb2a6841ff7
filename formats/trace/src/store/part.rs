//! A Parquet file being written: row groups, then the footer.
//!
//! ```text
//! PAR1 | row group: column chunks | … | column index | offset index | footer | length | PAR1
//! ```
//! Two columns of a row group with equal chunks share one: the footer has its offset twice.
//!
//! Pages wait in memory until their row group is full. The file is only open during a write: hundreds of tables would
//! take hundreds of file descriptors. The footer declares the rows sorted only if they are.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, KeyValue, ParquetMetaDataBuilder, ParquetMetaDataWriter,
    RowGroupMetaData, SortingColumn,
};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::TrackedWrite;
use parquet::schema::types::SchemaDescPtr;

use perfquet_events::Error;

use super::about;
use super::column::Batch;
use super::encode::{Bounds, Chunk, Workshop};
use super::files;
use super::intern::Entries;
use super::manifest::{self, Facts};
use super::order::Order;
use super::table::TableSchema;

/// Maximum number of row groups: more make a large footer, and result from a memory budget that is too small.
const MOST_GROUPS: usize = 4096;

/// An incomplete part.
pub(super) struct Part {
    /// Path below the trace directory.
    file: String,
    temporary: Temporary,
    schema: Arc<TableSchema>,
    shape: SchemaDescPtr,
    sink: TrackedWrite<Sink>,
    properties: WriterPropertiesPtr,
    groups: Vec<Group>,
    /// The row group being filled.
    chunks: Vec<Chunk>,
    group_rows: u64,
    rows: u64,
    order: Order,
    time: Bounds,
    /// Number of rows without a `time`.
    time_nulls: u64,
}

/// A part that is completely written, with its temporary name.
pub(super) struct Written {
    temporary: Temporary,
    path: PathBuf,
    pub(super) entry: manifest::Part,
}

/// The temporary name of a part. Dropping it removes the file unless it was renamed: after any failure, above all on a
/// full disk, no unusable file is left.
struct Temporary {
    path: PathBuf,
    is_renamed: AtomicBool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.is_renamed.load(Ordering::Relaxed) {
            return;
        }
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                log::debug!("{}: {error}", self.path.display());
            }
            _ => {}
        }
    }
}

/// Makes the parts durable, and gives them their names.
///
/// Syncs in parallel: on ext4, one sync takes 6 ms, eight together 12 ms (one journal commit), and a trace has at least
/// a dozen parts.
pub(super) fn settle(written: &[(usize, Written)], sync: bool) -> Result<(), Error> {
    const AT_ONCE: usize = 8;
    // If one fails, the others still get their names.
    let name_all = |share: &[(usize, Written)]| {
        let one = |(_, part): &(usize, Written)| match sync {
            true => part.sync_and_rename(),
            false => part.rename(),
        };
        share.iter().map(one).fold(Ok(()), Result::and)
    };
    if !sync {
        return name_all(written);
    }
    let share = written.len().div_ceil(AT_ONCE).max(1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = written
            .chunks(share)
            .map(|share| scope.spawn(|| name_all(share)))
            .collect();
        threads
            .into_iter()
            .map(|thread| match thread.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .fold(Ok(()), Result::and)
    })
}

impl Written {
    /// Whether the part has its name.
    pub(super) fn is_named(&self) -> bool {
        self.temporary.is_renamed.load(Ordering::Relaxed)
    }

    fn rename(&self) -> Result<(), Error> {
        std::fs::rename(&self.temporary.path, &self.path).map_err(Error::io(&self.path))?;
        self.temporary.is_renamed.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn sync_and_rename(&self) -> Result<(), Error> {
        let temporary = &self.temporary.path;
        File::open(temporary)
            .and_then(|file| file.sync_all())
            .map_err(Error::io(temporary))?;
        self.rename()?;
        match self.path.parent() {
            Some(folder) => files::sync_directory(folder).map_err(Error::io(folder)),
            None => Ok(()),
        }
    }
}

/// A written row group.
struct Group {
    metadata: RowGroupMetaData,
    columns: Vec<ColumnIndexMetaData>,
    offsets: Vec<OffsetIndexMetaData>,
}

impl Part {
    /// Begins a part. Its file is created when the first row group is full.
    pub(super) fn create(
        root: &Path,
        file: String,
        schema: &Arc<TableSchema>,
        shape: &SchemaDescPtr,
    ) -> Part {
        let temporary = files::temporary(&root.join(&file));
        Part {
            file,
            temporary: Temporary {
                path: temporary.clone(),
                is_renamed: AtomicBool::new(false),
            },
            schema: Arc::clone(schema),
            shape: Arc::clone(shape),
            sink: TrackedWrite::new(Sink::new(temporary)),
            properties: Arc::new(WriterProperties::builder().build()),
            groups: Vec::new(),
            chunks: Vec::new(),
            group_rows: 0,
            rows: 0,
            order: Order::new(schema),
            time: Bounds::None,
            time_nulls: 0,
        }
    }

    /// Number of rows so far.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Number of rows in the row group being filled.
    pub(super) fn group_rows(&self) -> u64 {
        self.group_rows
    }

    /// Size of the full row groups so far, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.sink.bytes_written() as u64
    }

    /// Memory of the row group being filled.
    pub(super) fn memory(&self) -> usize {
        self.chunks.iter().map(Chunk::memory).sum()
    }

    /// Whether more row groups would make the footer too large.
    pub(super) fn is_fragmented(&self) -> bool {
        self.groups.len() >= MOST_GROUPS
    }

    /// Adds the rows of a batch.
    pub(super) fn append(
        &mut self,
        batch: &Batch,
        texts: &[Entries],
        shop: &mut Workshop,
    ) -> Result<(), Error> {
        if self.chunks.is_empty() {
            let columns = self.schema.columns.iter();
            self.chunks = columns
                .map(|column| Chunk::new(column.kind, column.nullable, column.encoding))
                .collect();
        }
        self.order.check(batch);
        let times = self.schema.columns.iter().zip(&batch.columns);
        for (_, times) in times.filter(|(column, _)| column.name == "time") {
            self.time_nulls += times.presence.nulls() as u64;
        }
        for ((chunk, values), texts) in self.chunks.iter_mut().zip(&batch.columns).zip(texts) {
            chunk
                .append(values, texts, shop)
                .map_err(|error| failed(&self.sink, error))?;
        }
        self.rows += batch.count as u64;
        self.group_rows += batch.count as u64;
        Ok(())
    }

    /// Writes the filled row group.
    pub(super) fn close_group(&mut self, shop: &mut Workshop) -> Result<(), Error> {
        if self.group_rows == 0 {
            return Ok(());
        }
        self.group_rows = 0;
        let chunks = std::mem::take(&mut self.chunks);
        for (chunk, column) in chunks.iter().zip(&self.schema.columns) {
            if column.name == "time" {
                self.time.widen(chunk.bounds());
            }
        }
        self.write_group(chunks, shop)
            .map_err(|error| failed(&self.sink, error))?;
        self.sink.inner_mut().rest();
        Ok(())
    }

    fn write_group(&mut self, chunks: Vec<Chunk>, shop: &mut Workshop) -> ParquetResult<()> {
        let closed: Vec<(Bytes, ColumnCloseResult)> = chunks
            .into_iter()
            .zip(self.shape.columns())
            .map(|(chunk, column)| chunk.close(column, shop))
            .collect::<ParquetResult<_>>()?;
        self.begin_file()?;
        let ordinal = i16::try_from(self.groups.len())
            .map_err(|_| ParquetError::General("too many row groups".to_owned()))?;
        let start = self.sink.bytes_written() as i64;
        let starts = write_chunks(&closed, &mut self.sink)?;
        let mut rows = 0;
        let mut unpacked_bytes = 0;
        let mut chunks = Vec::with_capacity(closed.len());
        let (mut columns, mut offsets) = (Vec::new(), Vec::new());
        for ((_, close), start) in closed.into_iter().zip(starts) {
            rows = close.rows_written;
            unpacked_bytes += close.metadata.uncompressed_size();
            chunks.push(placed(close.metadata, start)?);
            columns.extend(close.column_index);
            offsets.extend(close.offset_index.map(|pages| placed_pages(pages, start)));
        }
        let metadata = RowGroupMetaData::builder(Arc::clone(&self.shape))
            .set_column_metadata(chunks)
            .set_total_byte_size(unpacked_bytes)
            .set_num_rows(rows as i64)
            .set_ordinal(ordinal)
            .set_file_offset(start)
            .build()?;
        self.groups.push(Group {
            metadata,
            columns,
            offsets,
        });
        self.sink.flush()?;
        Ok(())
    }

    fn begin_file(&mut self) -> ParquetResult<()> {
        if self.sink.bytes_written() == 0 {
            self.sink.write_all(b"PAR1")?;
        }
        Ok(())
    }

    /// Writes the rest, and the footer.
    pub(super) fn finish(
        mut self,
        root: &Path,
        facts: &Facts,
        shop: &mut Workshop,
    ) -> Result<Written, Error> {
        self.close_group(shop)?;
        let sorted = self.order.holds();
        let about = about::key_values(root, facts, &self.schema);
        let bytes = self.write_footer(sorted, about)?;
        let (time_min, time_max) = match self.time {
            Bounds::Signed(first, last) => (Some(first), Some(last)),
            _ => (None, None),
        };
        Ok(Written {
            temporary: self.temporary,
            path: root.join(&self.file),
            entry: manifest::Part {
                file: self.file,
                rows: self.rows,
                bytes,
                sorted,
                time_min,
                time_max,
                time_nulls: Some(self.time_nulls),
                columns: Vec::new(),
                range: None,
            },
        })
    }

    /// Writes the footer. Returns the size of the file.
    fn write_footer(&mut self, sorted: bool, about: Vec<KeyValue>) -> Result<u64, Error> {
        let place = self.sink.inner().path.clone();
        self.begin_file()
            .map_err(|error| failed(&self.sink, error))?;
        let sorting = sorted.then(|| self.sorting_columns()).flatten();
        let facts = FileMetaData::new(
            self.properties.writer_version().as_num(),
            self.rows as i64,
            Some(concat!("perfquet ", env!("CARGO_PKG_VERSION")).to_owned()),
            Some(about),
            Arc::clone(&self.shape),
            None,
        );
        let mut metadata = ParquetMetaDataBuilder::new(facts);
        let (mut columns, mut offsets) = (Vec::new(), Vec::new());
        for group in std::mem::take(&mut self.groups) {
            let sorted = group
                .metadata
                .into_builder()
                .set_sorting_columns(sorting.clone())
                .build()
                .map_err(|error| failed(&self.sink, error))?;
            metadata = metadata.add_row_group(sorted);
            columns.push(group.columns);
            offsets.push(group.offsets);
        }
        let metadata = metadata
            .set_column_index(Some(columns))
            .set_offset_index(Some(offsets))
            .build();
        let rest = TrackedWrite::new(Sink::new(place.clone()));
        let sink = std::mem::replace(&mut self.sink, rest);
        write_metadata(sink, metadata).map_err(|error| Error::io(place)(system_error(error)))
    }

    /// The columns that define the order, by Parquet's index.
    fn sorting_columns(&self) -> Option<Vec<SortingColumn>> {
        let columns: Option<Vec<SortingColumn>> = self
            .schema
            .sort
            .iter()
            .map(|name| {
                let index = self.schema.columns.iter().position(|c| c.name == *name)?;
                Some(SortingColumn {
                    column_idx: i32::try_from(index).ok()?,
                    descending: false,
                    nulls_first: true,
                })
            })
            .collect();
        columns.filter(|columns| !columns.is_empty())
    }
}

/// Writes the chunks of a row group, and returns the offset of each. Columns whose values are equal, such as the duration
/// and the self time of calls without calls inside, have equal chunks: these are stored once.
fn write_chunks(
    closed: &[(Bytes, ColumnCloseResult)],
    sink: &mut TrackedWrite<Sink>,
) -> ParquetResult<Vec<i64>> {
    let mut starts = Vec::with_capacity(closed.len());
    for (bytes, close) in closed {
        let mut former = closed.iter().zip(&starts);
        let same = former.find(|((other, former), _)| {
            other == bytes && is_same_kind(&former.metadata, &close.metadata)
        });
        let start = match same {
            Some((_, &start)) => start,
            None => {
                let start = sink.bytes_written() as i64;
                sink.write_all(bytes)?;
                start
            }
        };
        starts.push(start);
    }
    Ok(starts)
}

/// Whether equal bytes have the same meaning in two chunks.
fn is_same_kind(a: &ColumnChunkMetaData, b: &ColumnChunkMetaData) -> bool {
    let kind = |chunk: &ColumnChunkMetaData| {
        let column = chunk.column_descr();
        let levels = (column.max_def_level(), column.max_rep_level());
        (column.physical_type(), column.type_length(), levels)
    };
    kind(a) == kind(b)
}

/// The metadata of a chunk that starts at `start`; its offsets are relative to that.
fn placed(chunk: ColumnChunkMetaData, start: i64) -> ParquetResult<ColumnChunkMetaData> {
    let dictionary = chunk.dictionary_page_offset();
    let data = chunk.data_page_offset();
    chunk
        .into_builder()
        .set_dictionary_page_offset(dictionary.map(|offset| start + offset))
        .set_data_page_offset(start + data)
        .build()
}

/// The places of a chunk's pages, like [`placed`].
fn placed_pages(mut pages: OffsetIndexMetaData, start: i64) -> OffsetIndexMetaData {
    for page in &mut pages.page_locations {
        page.offset += start;
    }
    pages
}

/// Writes indexes and footer after the row groups. Returns the size of the complete file.
fn write_metadata(
    sink: TrackedWrite<Sink>,
    metadata: parquet::file::metadata::ParquetMetaData,
) -> ParquetResult<u64> {
    let path = sink.inner().path.clone();
    let error = Arc::clone(&sink.inner().error);
    ParquetMetaDataWriter::new_with_tracked(sink, &metadata).finish()?;
    // The writer consumed the sink: only here can an error of its last bytes be found.
    if let Some(error) = error.get() {
        return Err(same(error).into());
    }
    Ok(std::fs::symlink_metadata(path)?.len())
}

/// A file that is opened for each write.
struct Sink {
    path: PathBuf,
    file: Option<File>,
    exists: bool,
    /// The first error of a write.
    error: Arc<OnceLock<io::Error>>,
}

impl Sink {
    fn new(path: PathBuf) -> Sink {
        Sink {
            path,
            file: None,
            exists: false,
            error: Arc::default(),
        }
    }

    /// Closes the file until the next write.
    fn rest(&mut self) {
        self.file = None;
    }

    fn open(&mut self) -> io::Result<&mut File> {
        let file = match self.file.take() {
            Some(file) => file,
            None if self.exists => files::reopen(&self.path)?,
            None => files::create(&self.path)?,
        };
        self.exists = true;
        Ok(self.file.insert(file))
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.open().and_then(|file| file.write(bytes));
        if let Err(error) = &written {
            // Only the first one matters.
            let _ = self.error.set(same(error));
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The error again: of some numbers, the kind alone says nothing.
fn same(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::from(error.kind()),
    }
}

fn failed(sink: &TrackedWrite<Sink>, error: ParquetError) -> Error {
    Error::io(&sink.inner().path)(system_error(error))
}

/// The system error inside, if there is one.
fn system_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}
