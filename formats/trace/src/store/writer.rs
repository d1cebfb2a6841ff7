//! Writes a trace directory: collects rows, and passes them to the encoder in batches.
//!
//! ```text
//! let mut writer = Writer::create(Path::new("a.pqt"), WriterOptions::default())?;
//! let losses = writer.add_table(tables::losses::schema())?;
//! tables::losses::Row { count: Some(2), reason: b"ring full", ..Default::default() }.push(writer.rows(losses));
//! writer.end_row(losses)?;
//! writer.finish(Facts::default())?;
//! ```
//! The caller's thread only appends to vectors, or passes on rows that become columns later (`fill.rs`). A batch of 64 Ki rows (one page of each column) goes to the
//! encoder thread, which writes pages, row groups and parts. All open tables share one memory
//! budget: when it is exhausted, the largest tables are passed on first; if the encoder does not
//! keep up, the caller waits.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use perfquet_events::Error;

use crate::tables;

use super::column::{Batch, Rows};
use super::encoder::Encoder;
use super::files;
use super::fill::Fill;
use super::job::{Gauge, Job, LARGEST_BATCH, WriterOptions};
use super::manifest::{Facts, Manifest, Summary};
use super::place::Place;
use super::table::TableSchema;

/// Maximum number of bytes of rows that wait for the encoder to become columns: enough for the time in which it writes a
/// page, and small enough that the memory of written rows is reused.
const FILLS_IN_FLIGHT: usize = 6 << 20;

/// A table of a [`Writer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TableId(u32);

impl TableId {
    /// Its place among the tables of its writer.
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }

    /// The table at a place that [`TableId::index`] returned.
    pub(crate) fn at(index: usize) -> TableId {
        TableId(index as u32)
    }
}

/// A trace directory being written. If dropped before [`Writer::finish`], it stays in the state
/// `recording`, with its complete parts.
#[derive(Debug)]
pub struct Writer {
    tables: Vec<Open>,
    names: HashSet<String>,
    options: WriterOptions,
    /// Memory in bytes of all rows not yet passed to the encoder.
    buffered: usize,
    /// The most that it may be.
    buffered_max: usize,
    encoder: Option<Running>,
    /// `None` only while the writer is being finished.
    place: Option<Place>,
    /// Create the fixed tables that were not added.
    complete: bool,
}

#[derive(Debug)]
struct Open {
    name: String,
    rows: Rows,
    /// Memory of the rows.
    bytes: usize,
    /// Vectors of a written batch.
    spare: Option<Batch>,
}

/// Why rows are passed to the encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// They fill a page.
    Full,
    /// Their memory is needed.
    Relief,
    /// Rows that are not columns follow.
    Followed,
    /// They are the last, or other work is about to need the memory of all tables.
    Clearing,
}

/// The encoder's thread.
#[derive(Debug)]
struct Running {
    jobs: SyncSender<Job>,
    thread: JoinHandle<Result<Summary, Error>>,
    gauge: Arc<Gauge>,
    /// Vectors of written batches, with their tables.
    spare: Receiver<(usize, Batch)>,
}

impl Writer {
    /// Creates the directory `path` in the state `recording`.
    pub fn create(path: &Path, options: WriterOptions) -> Result<Writer, Error> {
        let place = Place::make(path, options.force, options.adopt, options.mode)?;
        Writer::start(place, Manifest::new(), options, true)
    }

    /// Opens the complete trace at `path` to replace tables: each added table replaces the one with
    /// the same name in [`Writer::finish_replacing`]; the others stay.
    pub fn open(path: &Path, options: WriterOptions) -> Result<Writer, Error> {
        let (place, manifest) = Place::open(path)?;
        Writer::start(place, manifest, options, false)
    }

    fn start(
        place: Place,
        manifest: Manifest,
        options: WriterOptions,
        complete: bool,
    ) -> Result<Writer, Error> {
        let gauge = Arc::new(Gauge::default());
        // Batches wait in the gauge; the channel is long enough for the declarations of many tables.
        let (jobs, received) = sync_channel(256);
        let (give_back, spare) = channel();
        let encoder = Encoder::new(
            place.path.clone(),
            manifest,
            options.clone(),
            Arc::clone(&gauge),
            give_back,
        )?;
        // Unnamed: a recorder excludes its own threads from the trace by the name that they inherit.
        let thread = std::thread::Builder::new()
            .spawn(move || encoder.run(received))
            .map_err(Error::io(&place.path))?;
        Ok(Writer {
            tables: Vec::new(),
            names: HashSet::new(),
            buffered: 0,
            buffered_max: options.memory_bytes / 2,
            options,
            encoder: Some(Running {
                jobs,
                thread,
                gauge,
                spare,
            }),
            place: Some(place),
            complete,
        })
    }

    /// Declares a table.
    pub fn add_table(&mut self, schema: TableSchema) -> Result<TableId, Error> {
        self.check_columns(&schema)?;
        self.check_name(&schema.name)?;
        self.declare(schema)
    }

    /// Declares another form of a table: rows with other columns, in separate parts. The table has
    /// the columns of all its forms (`unite.rs`).
    pub fn add_form(&mut self, schema: TableSchema) -> Result<TableId, Error> {
        if !self.names.contains(&files::folder_of(&schema.name)) {
            return self.add_table(schema);
        }
        self.check_columns(&schema)?;
        self.declare(schema)
    }

    fn declare(&mut self, schema: TableSchema) -> Result<TableId, Error> {
        let id = TableId(self.tables.len() as u32);
        self.tables.push(Open {
            name: schema.name.clone(),
            rows: Rows::new(&schema),
            bytes: 0,
            spare: None,
        });
        self.send(Job::Table(schema))?;
        Ok(id)
    }

    /// Sets the facts known so far, for the metadata of parts that are completed before the trace.
    pub fn know(&mut self, facts: Facts) -> Result<(), Error> {
        self.send(Job::Facts(Box::new(facts)))
    }

    /// Checks a name, which comes from an input: rejects two that share a directory, or the name of the journal.
    fn check_name(&mut self, name: &str) -> Result<(), Error> {
        let folder = files::folder_of(name);
        let is_journal = folder.split('/').next() == Some(super::manifest::JOURNAL);
        if is_journal || !self.names.insert(folder) {
            return Err(self.unfit(name, "expected a new name, found one in use"));
        }
        Ok(())
    }

    fn check_columns(&self, schema: &TableSchema) -> Result<(), Error> {
        let mut columns = HashSet::new();
        let twice = schema
            .columns
            .iter()
            .find(|column| !columns.insert(&column.name));
        match twice {
            Some(column) => {
                let message = format!("two columns are named {:?}", column.name);
                Err(self.unfit(&schema.name, &message))
            }
            None if schema.columns.is_empty() => {
                Err(self.unfit(&schema.name, "expected columns, found none"))
            }
            None => Ok(()),
        }
    }

    fn unfit(&self, table: &str, message: &str) -> Error {
        Error::Unsupported {
            input: self.path_text(),
            message: format!("table {table:?}: {message}"),
        }
    }

    /// Returns the columns of a table, for the values of the next row.
    #[inline]
    #[expect(
        clippy::indexing_slicing,
        reason = "only add_table makes a TableId, and no table is ever removed"
    )]
    pub fn rows(&mut self, table: TableId) -> &mut Rows {
        &mut self.tables[table.0 as usize].rows
    }

    /// Ends a row, after each column has a value or NULL.
    #[inline]
    pub fn end_row(&mut self, table: TableId) -> Result<(), Error> {
        let Some(open) = self.tables.get_mut(table.0 as usize) else {
            return Ok(());
        };
        let bytes = open.rows.end_row();
        open.bytes += bytes;
        self.buffered += bytes;
        if open.rows.count() >= self.options.rows_per_page || open.bytes >= LARGEST_BATCH {
            return self.hand_over(table.0 as usize, Reason::Full);
        }
        if self.buffered > self.buffered_max {
            return self.relieve();
        }
        Ok(())
    }

    /// Adds rows that become columns on the encoder's thread, after those that were ended here. `bytes` is their memory.
    pub(crate) fn fill(
        &mut self,
        table: TableId,
        rows: Box<dyn Fill>,
        bytes: usize,
    ) -> Result<(), Error> {
        let table = table.0 as usize;
        self.hand_over(table, Reason::Followed)?;
        if let Some(encoder) = &self.encoder {
            let most = (self.options.memory_bytes / 4).min(FILLS_IN_FLIGHT);
            encoder.gauge.add(bytes, most);
        }
        self.send(Job::Fill { table, rows, bytes })
    }

    /// Completes the trace. Fixed tables that were not added are empty.
    pub fn finish(mut self, facts: Facts) -> Result<Summary, Error> {
        if self.complete {
            for schema in tables::all() {
                if !self.names.contains(&files::folder_of(&schema.name)) {
                    self.add_table(schema)?;
                }
            }
        }
        self.close(facts)
    }

    /// Completes the trace like [`Writer::finish`], with the facts of the opened trace.
    pub fn finish_replacing(self) -> Result<Summary, Error> {
        let place = self.place.as_ref().map(|place| place.path.clone());
        let manifest = Manifest::read(&place.unwrap_or_default())?;
        let mut facts = manifest.facts;
        facts.recovered = manifest.state == super::manifest::State::Recovered;
        self.finish(facts)
    }

    fn close(mut self, facts: Facts) -> Result<Summary, Error> {
        self.hand_over_all()?;
        self.send(Job::Finish(Box::new(facts)))?;
        let summary = self.join()?;
        if let Some(place) = self.place.take() {
            place.finished();
        }
        Ok(summary)
    }

    /// Passes all rows to the encoder, which needs a fraction of the memory for them, and makes no room for more.
    pub(crate) fn hand_over_all(&mut self) -> Result<(), Error> {
        (0..self.tables.len()).try_for_each(|table| self.hand_over(table, Reason::Clearing))?;
        self.send(Job::Pages)
    }

    /// Passes the largest tables to the encoder until half of the budget is free.
    #[cold]
    fn relieve(&mut self) -> Result<(), Error> {
        let mut order: Vec<(usize, usize)> = self
            .tables
            .iter()
            .enumerate()
            .map(|(index, open)| (open.bytes, index))
            .collect();
        order.sort_unstable_by(|a, b| b.cmp(a));
        for (_, table) in order {
            if self.buffered <= self.buffered_max / 2 {
                break;
            }
            self.hand_over(table, Reason::Relief)?;
        }
        Ok(())
    }

    #[cold]
    fn hand_over(&mut self, table: usize, reason: Reason) -> Result<(), Error> {
        let Some(open) = self.tables.get_mut(table) else {
            return Ok(());
        };
        // Distinct strings larger than the rows are not worth their memory.
        let kept = open.rows.kept_bytes();
        let forget = reason == Reason::Relief && kept > open.bytes / 4;
        if open.rows.count() == 0 && !forget {
            return Ok(());
        }
        let (bytes, count) = (open.bytes, open.rows.count());
        let batch = open.rows.take(forget);
        let spare = open.spare.take();
        if reason != Reason::Clearing {
            open.rows.reuse(spare, count);
        }
        // The distinct strings stay, and the encoder has a copy of them.
        open.bytes = open.rows.kept_bytes();
        self.buffered = (self.buffered + open.bytes).saturating_sub(bytes);
        let name = open.name.clone();
        let batch = batch.map_err(|column| Error::Unsupported {
            input: self.path_text(),
            message: format!(
                "table {name:?}: expected one value per column and row, found another number in \
                 column {column}"
            ),
        })?;
        if let Some(encoder) = &self.encoder {
            encoder.gauge.add(bytes, self.options.memory_bytes / 4);
            let memory = self.options.memory_bytes;
            let left = (memory / 2).saturating_sub(encoder.gauge.filled());
            self.buffered_max = left.max(memory / 8);
            for (table, batch) in encoder.spare.try_iter() {
                if let Some(open) = self.tables.get_mut(table) {
                    open.spare = Some(batch);
                }
            }
        }
        self.send(Job::Batch {
            table,
            batch,
            bytes,
            is_followed: reason == Reason::Followed,
        })
    }

    fn send(&mut self, job: Job) -> Result<(), Error> {
        match &self.encoder {
            Some(encoder) if encoder.jobs.send(job).is_ok() => Ok(()),
            // The encoder ended early: report its error.
            _ => self.join().and(Err(Error::Unsupported {
                input: self.path_text(),
                message: "cannot write after a failure".to_owned(),
            })),
        }
    }

    fn join(&mut self) -> Result<Summary, Error> {
        let Some(Running { jobs, thread, .. }) = self.encoder.take() else {
            return Ok(Summary::default());
        };
        drop(jobs);
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    fn path_text(&self) -> String {
        let path = self.place.as_ref().map(|place| place.path.as_path());
        path.unwrap_or(Path::new("")).display().to_string()
    }
}

impl Drop for Writer {
    /// Waits for the encoder: the directory must not be unlocked while it writes.
    fn drop(&mut self) {
        if self.encoder.is_some()
            && let Err(error) = self.join()
        {
            log::debug!("cannot clean up an abandoned trace: {error}");
        }
    }
}
