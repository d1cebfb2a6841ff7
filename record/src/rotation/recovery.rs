//! Completes traces of killed recorders, one at a time, at idle priority.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use anyhow::Result;
use perfquet_import::{Found, ImportOptions, look_into, recover, remove_journal};
use perfquet_trace::count::counted;
use perfquet_trace::store::JOURNAL;

use crate::sys::thread;
use perfquet_cli::terminal;

/// The outcome of a recovery.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The trace is complete.
    Complete,
    /// It holds nothing: the recorder was killed before it wrote the journal's head.
    Empty,
}

/// A recovery in the background.
pub(super) struct Recovery {
    pub(super) path: PathBuf,
    thread: JoinHandle<Result<Outcome>>,
}

impl Recovery {
    /// Starts it. `keeps_journal`: as for the recorder.
    pub(super) fn start(path: PathBuf, keeps_journal: bool) -> Recovery {
        let trace = path.clone();
        let thread = std::thread::spawn(move || {
            thread::make_idle();
            complete(&trace, keeps_journal)
        });
        Recovery { path, thread }
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for its end.
    pub(super) fn finish(self) -> Result<Outcome> {
        match self.thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn complete(trace: &Path, keeps_journal: bool) -> Result<Outcome> {
    match look_into(trace) {
        Found::Unfinished if is_empty(trace) => return Ok(Outcome::Empty),
        Found::Unfinished => {
            let report = recover(trace, ImportOptions::default())?;
            terminal::say(format_args!(
                "{}: completed after its recorder was killed, {}",
                trace.display(),
                counted(report.counts.recorded_events(), "event")
            ));
        }
        Found::Nothing => return Ok(Outcome::Empty),
        // The parts that are complete can be queried.
        Found::Partial => return Ok(Outcome::Complete),
        Found::Whole => {}
    }
    if !keeps_journal && trace.join(JOURNAL).exists() {
        remove_journal(trace)?;
    }
    Ok(Outcome::Complete)
}

/// Whether the journal ends within its header.
fn is_empty(trace: &Path) -> bool {
    let journal = trace.join(JOURNAL);
    let files = std::fs::read_dir(journal).into_iter().flatten().flatten();
    let bytes = files.filter_map(|file| file.metadata().ok().map(|metadata| metadata.len()));
    bytes.sum::<u64>() <= 16
}
