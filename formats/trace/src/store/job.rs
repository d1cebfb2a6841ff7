//! The boundary between the writer and the encoder's thread: options, messages, and the memory in flight.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::column::Batch;
use super::fill::Fill;
use super::manifest::Facts;
use super::table::TableSchema;

/// Options for writing a trace directory.
#[derive(Debug, Clone)]
pub struct WriterOptions {
    /// Replace an existing trace when the new one is complete.
    pub force: bool,
    /// Adopt a directory with only the recorder's journal, or with the files of a killed writer.
    pub adopt: bool,
    /// Permissions of the directory before the umask. Its files and subdirectories inherit them.
    pub mode: u32,
    /// Memory in bytes for the rows of all tables, encoded or not.
    pub memory_bytes: usize,
    /// Rows in a page.
    pub rows_per_page: usize,
    /// Rows in a row group, if the memory suffices.
    pub rows_per_group: u64,
    /// Maximum number of rows in a part.
    pub rows_per_part: u64,
    /// Maximum size of a part in bytes.
    pub bytes_per_part: u64,
    /// Sync the parts to disk; otherwise a system crash may lose them.
    pub sync: bool,
}

impl Default for WriterOptions {
    /// Sizes by measurement: larger parts and row groups save less than 1 % of space.
    fn default() -> Self {
        WriterOptions {
            force: false,
            adopt: false,
            mode: 0o700,
            memory_bytes: 128 << 20,
            rows_per_page: 1 << 16,
            rows_per_group: 1 << 20,
            rows_per_part: 64 << 20,
            bytes_per_part: 512 << 20,
            sync: true,
        }
    }
}

/// Messages to the encoder.
#[derive(Debug)]
pub(super) enum Job {
    /// Declares the next table.
    Table(TableSchema),
    /// Rows of a table, and their memory.
    Batch {
        table: usize,
        batch: Batch,
        bytes: usize,
        /// Rows that are not columns follow, and go to the same page.
        is_followed: bool,
    },
    /// Rows that are not columns yet, and their memory.
    Fill {
        table: usize,
        rows: Box<dyn Fill>,
        bytes: usize,
    },
    /// Writes the rows that are columns as pages, which take less memory.
    Pages,
    /// The facts known so far.
    Facts(Box<Facts>),
    /// Completes everything.
    Finish(Box<Facts>),
}

/// Memory of the batches that the encoder has not finished.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    held: Mutex<Held>,
    lower: Condvar,
    /// Memory of the rows that the encoder holds as columns.
    filled: AtomicUsize,
}

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    /// The encoder has ended.
    closed: bool,
}

/// Maximum size of a batch in bytes, even if it has few rows with long strings and lists.
pub(super) const LARGEST_BATCH: usize = 16 << 20;

impl Gauge {
    /// Waits until the queue has room, then adds a batch. A single batch always fits.
    pub(super) fn add(&self, bytes: usize, limit: usize) {
        let mut held = self.lock();
        while held.bytes > 0 && held.bytes + bytes > limit && !held.closed {
            held = self
                .lower
                .wait(held)
                .unwrap_or_else(PoisonError::into_inner);
        }
        held.bytes += bytes;
    }

    /// Removes a finished batch.
    pub(super) fn subtract(&self, bytes: usize) {
        let mut held = self.lock();
        held.bytes = held.bytes.saturating_sub(bytes);
        self.lower.notify_all();
    }

    /// Sets the memory of the rows that the encoder holds as columns.
    pub(super) fn set_filled(&self, bytes: usize) {
        self.filled.store(bytes, Ordering::Relaxed);
    }

    /// Memory of the rows that the encoder holds as columns.
    pub(super) fn filled(&self) -> usize {
        self.filled.load(Ordering::Relaxed)
    }

    /// Ends all waiting.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.lower.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
