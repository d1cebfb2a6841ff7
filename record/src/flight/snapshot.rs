//! Snapshots: traces of the flight recorder's contents, written while it continues.
//!
//! The drain passes its events to a separate thread, which writes and encodes them as a journal, like an ordinary
//! recording. There is one snapshot at a time: a request during a snapshot waits, and slow calls during a snapshot are
//! counted.

use perfquet_cli::terminal;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use perfquet_events::event::Selection;
use perfquet_import::RING_PREFIX;
use perfquet_trace::count::counted;
use perfquet_trace::symbols::Roots;

use super::held::Held;
use super::load::{Exceeded, Loads};
use super::{numbered, slow};
use crate::failure::failed;
use crate::journal::{Journal, Packing};
use crate::output::closing_line;
use crate::output::encoder::{Encoder, Source, no_tables};
use crate::output::{Form, Format, Output};
use crate::sys::signals::User;
use crate::sys::thread;

/// Why there is a snapshot.
pub(crate) enum Why {
    /// The user requested it.
    Requested,
    /// A call took too long.
    Slow(slow::Found),
    /// The load of the system was too high.
    Load(Exceeded),
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Why::Requested => f.write_str("requested"),
            Why::Load(exceeded) => exceeded.fmt(f),
            Why::Slow(slow::Found {
                function,
                duration,
                tid,
            }) => write!(f, "{function} took {duration:.3?} in thread {tid}"),
        }
    }
}

/// State shared between the drain's thread and the others.
#[derive(Default)]
struct Shared {
    /// A request that the drain has not seen, or that waits for the end of a snapshot.
    request: Mutex<Option<Why>>,
    /// Whether a snapshot is being written.
    is_busy: AtomicBool,
    /// Slow calls during the snapshot.
    passed_over: AtomicU64,
}

impl Shared {
    fn request(&self) -> MutexGuard<'_, Option<Why>> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The drain's end of the channel.
pub(crate) struct Asker {
    shared: Arc<Shared>,
    sender: Option<SyncSender<(Why, Held)>>,
}

impl Asker {
    /// Accepts no requests.
    #[cfg(test)]
    pub(super) fn deaf() -> Asker {
        Asker {
            shared: Arc::default(),
            sender: None,
        }
    }

    /// Why a snapshot is due, if it is.
    pub(super) fn wanted(&self, slow: Vec<slow::Found>) -> Option<Why> {
        if self.shared.is_busy.load(Ordering::Acquire) {
            let count = slow.len() as u64;
            self.shared.passed_over.fetch_add(count, Ordering::Relaxed);
            return None;
        }
        if let Some(found) = slow.into_iter().max_by_key(|found| found.duration) {
            return Some(Why::Slow(found));
        }
        self.shared.request().take()
    }

    /// Passes the contents to the snapshot thread.
    pub(super) fn hand_over(&self, why: Why, held: Held) {
        if let Some(sender) = &self.sender {
            self.shared.is_busy.store(true, Ordering::Release);
            // The channel holds one snapshot, and there is at most one. At the end of the recording, nobody receives
            // it.
            let _ = sender.try_send((why, held));
        }
    }
}

/// Options for the final trace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Last {
    /// Replaces an existing output.
    pub(crate) force: bool,
    /// Whether the journal is kept.
    pub(crate) keeps_journal: bool,
    /// Whether the events reach to the end of the recording.
    pub(crate) is_whole: bool,
}

/// The other side: writes snapshots.
pub(crate) struct Snapshots {
    shared: Arc<Shared>,
    receiver: Receiver<(Why, Held)>,
    output: PathBuf,
    form: Form,
    /// Roots of processes with another view of the file system.
    roots: Roots,
    writing: Option<(PathBuf, JoinHandle<Result<()>>)>,
    last_number: u32,
    signals: Vec<User>,
    loads: Loads,
}

impl Snapshots {
    /// Writes snapshots next to `output` on these signals and loads.
    pub(crate) fn new(
        output: &Path,
        form: Form,
        signals: Vec<User>,
        loads: Loads,
    ) -> (Snapshots, Asker) {
        let shared = Arc::new(Shared::default());
        let (sender, receiver) = sync_channel(1);
        let asker = Asker {
            shared: Arc::clone(&shared),
            sender: Some(sender),
        };
        let snapshots = Snapshots {
            shared,
            receiver,
            output: output.to_owned(),
            form,
            roots: Roots::default(),
            writing: None,
            last_number: 0,
            signals,
            loads,
        };
        (snapshots, asker)
    }

    /// Sets the roots of processes with another view of the file system.
    pub(crate) fn set_roots(&mut self, roots: Roots) {
        self.roots = roots;
    }

    /// Handles a signal. Returns whether to wake up the drain.
    pub(crate) fn ask(&self, signal: User) -> bool {
        let is_ours = self.signals.contains(&signal);
        if is_ours {
            self.request();
        }
        is_ours
    }

    /// Requests a snapshot; wake up the drain then.
    pub(crate) fn request(&self) {
        self.shared.request().get_or_insert(Why::Requested);
    }

    /// Requests a snapshot if a load is too high. Returns whether to wake up the drain.
    pub(crate) fn look_at_loads(&mut self) -> bool {
        let exceeded = self.loads.look();
        let is_any = !exceeded.is_empty();
        for exceeded in exceeded {
            self.shared.request().get_or_insert(Why::Load(exceeded));
        }
        is_any
    }

    /// Starts writing the events handed over; reports the error of the previous snapshot.
    pub(crate) fn look(&mut self) {
        if self
            .writing
            .as_ref()
            .is_some_and(|(_, thread)| thread.is_finished())
        {
            self.finish_writing();
        }
        if self.writing.is_none()
            && let Ok((why, held)) = self.receiver.try_recv()
        {
            let path = self.next_path();
            log::warn!("snapshot {}: {why}", path.display());
            let form = self.form;
            let (output, roots) = (path.clone(), self.roots.clone());
            // Keeps the inherited thread name: the filter that excludes the recorder matches by name.
            let thread = std::thread::spawn(move || {
                thread::make_idle();
                write(&output, form, &held, roots, None)
            });
            self.writing = Some((path, thread));
        }
    }

    /// Writes the remaining events to the output, after the last snapshot. `memory` is the trace whose journal contains
    /// them.
    pub(crate) fn finish(mut self, held: &Held, memory: &Output, last: Last) -> Result<()> {
        self.look();
        thread::make_idle_normal();
        self.finish_writing();
        let passed_over = self.shared.passed_over.load(Ordering::Relaxed);
        if passed_over > 0 {
            log::warn!(
                "{} during a snapshot did not trigger another",
                counted(passed_over, "slow call")
            );
        }
        if self.form.format == Format::PerfData {
            write(&self.output, self.form, held, self.roots, Some(last)).with_context(|| {
                failed("cannot write the recording").hint(format!(
                    "its events are in {0}; make a trace of them with: perfquet-convert {0}",
                    memory.path().display()
                ))
            })?;
            memory.remove();
            return Ok(());
        }
        let path = memory.path();
        let source = Source::Whole(path.to_owned());
        let encoder = Encoder::start(source, path.to_owned(), &Selection::default(), self.roots);
        encoder.hurry();
        let report = encoder.finish().with_context(|| no_tables(path));
        if report.is_ok() && last.keeps_journal {
            unite(held, memory)?;
        }
        closing_line::trace(memory, report, last.keeps_journal, closing_line::Next::Top)
    }

    fn finish_writing(&mut self) {
        let Some((path, thread)) = self.writing.take() else {
            return;
        };
        match thread.join() {
            // The recording continues; the next snapshot may succeed.
            Ok(Err(error)) => {
                let error = terminal::sentence(error.chain());
                log::error!("snapshot {}: {error}", path.display());
            }
            Ok(Ok(())) => {}
            Err(panic) => std::panic::resume_unwind(panic),
        }
        self.shared.is_busy.store(false, Ordering::Release);
    }

    /// Returns the next free path: snapshots of an earlier run are never overwritten.
    fn next_path(&mut self) -> PathBuf {
        loop {
            self.last_number += 1;
            let path = numbered(&self.output, self.last_number);
            if path.symlink_metadata().is_err() {
                return path;
            }
        }
    }
}

/// Joins the pieces into one file, for a journal that is kept. The trace is complete by then.
fn unite(held: &Held, memory: &Output) -> Result<()> {
    let path = memory.journal_path();
    let folder = path.with_file_name("");
    let whole = folder.join(".perf.data");
    let _ = fs::remove_file(&whole);
    let written = Journal::create(&whole).and_then(|mut journal| {
        held.write_to(&mut journal)?;
        fs::rename(&whole, &path)
    });
    written.with_context(|| format!("cannot write {}", path.display()))?;
    for entry in fs::read_dir(&folder)?.flatten() {
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(RING_PREFIX.as_bytes()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Writes one trace.
fn write(path: &Path, form: Form, held: &Held, roots: Roots, last: Option<Last>) -> Result<()> {
    let force = last.is_some_and(|last| last.force);
    let (output, mut journal) = Output::create(path, form, force)?;
    if let Err(error) = held.write_to(&mut journal) {
        output.discard();
        return Err(error).with_context(|| format!("cannot write {}", path.display()));
    }
    if form.format == Format::PerfData {
        return closing_line::file(&output, None, last.is_none_or(|last| last.is_whole));
    }
    let all = Selection::default();
    let source = Source::Following {
        journal: output.journal_path(),
        settled: journal.settled(),
        packing: Packing::Never,
        others: Vec::new(),
    };
    let encoder = Encoder::start(source, path.to_owned(), &all, roots);
    match last {
        Some(_) => encoder.hurry(),
        None => encoder.end_of_journal(),
    }
    let report = encoder.finish().with_context(|| no_tables(path));
    let keeps_journal = last.is_some_and(|last| last.keeps_journal);
    closing_line::trace(&output, report, keeps_journal, closing_line::Next::Top)
}
