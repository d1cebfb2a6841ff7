//! The encoding thread: reads the journal after the drain and writes the tables while the CPU is idle.
//!
//! If the encoder is slower than the recording, the journal grows and nothing is lost; above a limit, the encoder runs at
//! normal priority until it has caught up. The part of the journal that it has read is compressed. The encoder is an ordinary import,
//! so `perfquet-convert OUT` completes the recording of a killed recorder in the same way.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use perfquet_events::event::Selection;
use perfquet_events::{Error, Input};
use perfquet_import::{ImportOptions, import, journal_files, journal_inputs};
use perfquet_trace::Report;
use perfquet_trace::normalize::Limits;
use perfquet_trace::store::WriterOptions;
use perfquet_trace::symbols::{self, Roots};

use crate::failure::{Failure, failed};
use crate::journal::{Packer, Packing};
use crate::sys::thread;

/// The source of the records.
pub(crate) enum Source {
    /// A growing journal, to be read up to its settled length; parts already encoded may be packed, as far as the other
    /// readers have read them, too.
    Following {
        journal: PathBuf,
        settled: Arc<AtomicU64>,
        packing: Packing,
        others: Vec<Arc<AtomicU64>>,
    },
    /// The complete journal of this trace: a flight recorder's memory, which no longer grows.
    Whole(PathBuf),
}

/// Size of the unread journal above which the encoder runs at normal priority, and below which it is polite again.
const HURRY_BYTES: u64 = 64 << 20;
const CAUGHT_UP_BYTES: u64 = 16 << 20;

/// Memory for the rows of all tables: a quarter of that of a file import.
const TABLES_BYTES: usize = 32 << 20;

/// A running encoder.
pub(crate) struct Encoder {
    /// Whether somebody waits for it.
    hurries: Arc<AtomicBool>,
    /// TIDs of its threads while they run at normal priority.
    hurried: Mutex<Vec<i32>>,
    journal_is_whole: Arc<AtomicBool>,
    done_bytes: Arc<AtomicU64>,
    kept: Arc<AtomicU64>,
    thread: JoinHandle<Result<Report, Error>>,
}

impl Encoder {
    /// Starts the encoder on a journal that has its head. `roots` are those of processes with another view of the file
    /// system.
    pub(crate) fn start(
        source: Source,
        output: PathBuf,
        selection: &Selection,
        roots: Roots,
    ) -> Encoder {
        let journal_is_whole = Arc::new(AtomicBool::new(false));
        let done_bytes = Arc::new(AtomicU64::new(0));
        let kept: Arc<AtomicU64> = Arc::default();
        let kept_by_thread = Arc::clone(&kept);
        // A recording with --max-events waits for the encoder.
        let is_awaited = selection.max_events.is_some();
        let (whole, done) = (Arc::clone(&journal_is_whole), Arc::clone(&done_bytes));
        let hurries = Arc::new(AtomicBool::new(false));
        let hurries_already = Arc::clone(&hurries);
        // Keeps the inherited thread name: the filter that excludes the recorder matches by name.
        let thread = std::thread::spawn(move || {
            if !is_awaited {
                become_idle(&hurries_already);
            }
            encode(&source, &output, whole, done, kept_by_thread, roots)
        });
        Encoder {
            hurries,
            hurried: Mutex::default(),
            journal_is_whole,
            done_bytes,
            kept,
            thread,
        }
    }

    /// Rows so far, if --max-events limits them.
    pub(crate) fn kept(&self) -> u64 {
        self.kept.load(Ordering::Relaxed)
    }

    /// Runs the encoder at normal priority while a large part of a journal of this length is unread.
    pub(crate) fn keep_up(&self, journal_bytes: u64) {
        let unread_bytes = journal_bytes.saturating_sub(self.done_bytes());
        // The value is replaced in one step, so it is valid even if its last holder panicked.
        let mut hurried = self.hurried.lock().unwrap_or_else(PoisonError::into_inner);
        if hurried.is_empty() && unread_bytes > HURRY_BYTES {
            *hurried = thread::make_idle_normal();
            log::info!(
                "{} MiB of the journal wait: encoding at normal priority",
                unread_bytes >> 20
            );
        } else if !hurried.is_empty() && unread_bytes < CAUGHT_UP_BYTES {
            thread::make_idle_again(&hurried);
            hurried.clear();
        }
    }

    /// The journal has its end.
    pub(crate) fn end_of_journal(&self) {
        self.journal_is_whole.store(true, Ordering::Release);
        // It may be waiting for more.
        self.thread.thread().unpark();
    }

    /// Ends idle priority: the journal is complete, and the user is waiting.
    pub(crate) fn hurry(&self) {
        self.end_of_journal();
        // Before the others: the thread may not have begun, and looks at this when it has become idle.
        self.hurries.store(true, Ordering::SeqCst);
        thread::make_idle_normal();
    }

    /// Whether it has ended, well or not.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Bytes of the journal that are in the tables.
    pub(crate) fn done_bytes(&self) -> u64 {
        self.done_bytes.load(Ordering::Relaxed)
    }

    /// Waits for the encoder's end, and returns its report.
    pub(crate) fn finish(self) -> Result<Report, Error> {
        match self.thread.join() {
            Ok(ended) => ended,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// The tables could not be written from a journal that was written to its end.
pub(crate) fn no_tables(output: &Path) -> Failure {
    failed("cannot write the tables").hint(format!(
        "complete the trace from the journal: perfquet-convert {}",
        output.display()
    ))
}

/// Runs this thread while the CPU is idle, unless the user waits for it already.
fn become_idle(hurries: &AtomicBool) {
    thread::make_idle();
    if hurries.load(Ordering::SeqCst) {
        thread::make_idle_normal();
    }
}

fn encode(
    source: &Source,
    output: &Path,
    is_whole: Arc<AtomicBool>,
    done_bytes: Arc<AtomicU64>,
    kept: Arc<AtomicU64>,
    roots: Roots,
) -> Result<Report, Error> {
    let inputs = match source {
        Source::Following {
            journal, settled, ..
        } => {
            let (settled, is_whole) = (Arc::clone(settled), Arc::clone(&is_whole));
            vec![Input::following(journal, settled, is_whole)?]
        }
        Source::Whole(trace) => journal_inputs(trace)?,
    };
    let is_growing = matches!(source, Source::Following { .. });
    let (mut packer, others) = match source {
        Source::Following {
            journal,
            packing,
            others,
            ..
        } => (Packer::new(journal, *packing), others.clone()),
        Source::Whole(_) => (None, Vec::new()),
    };
    let trace = output.to_owned();
    // Read after the rings' bytes: files added when the recording ends.
    let beside = move || {
        if !is_growing {
            return Ok(Vec::new());
        }
        let files = journal_files(&trace)?;
        files.iter().skip(1).map(|file| Input::open(file)).collect()
    };
    let options = ImportOptions {
        store: WriterOptions {
            adopt: true,
            memory_bytes: TABLES_BYTES,
            ..WriterOptions::default()
        },
        limits: Limits::RECORDING,
        kept: Some(kept),
        progress: Some(Box::new(move |progress| {
            done_bytes.store(progress.done, Ordering::Relaxed);
            if is_whole.load(Ordering::Relaxed) {
                // The journal will be removed soon, and the user is waiting. The next input may be another file.
                packer = None;
            }
            if let Some(packer) = &mut packer {
                let others = others.iter().map(|read| read.load(Ordering::Relaxed));
                packer.follow(others.fold(progress.done, u64::min));
            }
        })),
        later: Some(Box::new(beside)),
        symbols: symbols::Options {
            roots,
            ..symbols::Options::default()
        },
        ..ImportOptions::default()
    };
    import(inputs, output, options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoder_that_somebody_waits_for_is_not_idle() {
        let is_idle = |hurries: bool| {
            let thread = std::thread::spawn(move || {
                become_idle(&AtomicBool::new(hurries));
                thread::is_idle()
            });
            thread.join().unwrap()
        };
        // Whichever of the two comes first, the flag or the thread.
        assert!(!is_idle(true));
        // Without the right to undo it, threads are not made idle.
        let _ = is_idle(false);
    }
}
