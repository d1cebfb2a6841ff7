//! Handles Ctrl-C and other termination signals on a dedicated thread.
//!
//! ```text
//! SIGINT   first: the query ends (exit 130; the shell returns to its prompt)      second: the program ends immediately
//! SIGTERM, SIGHUP                                                                 the program ends immediately
//! ```
//! Workers do not notice signals: a cross join may keep all of them busy for minutes between two rows. This module
//! therefore wakes the waiting thread and, if the program does not end soon, ends it. Temporary files are removed in
//! either case.

use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

/// Time that the program gets to end normally.
const PATIENCE: Duration = Duration::from_millis(600);

/// Wakes the thread that waits for a result.
type Waker = Box<dyn Fn() + Send>;
/// Temporary files, and directories of them, at the time of termination.
type Temporary = Box<dyn Fn() -> Vec<PathBuf> + Send>;

struct State {
    /// A query was interrupted and has not ended yet.
    is_raised: bool,
    /// Interrupting a query does not end the program, as in the shell.
    outlives_questions: bool,
    waker: Option<Waker>,
    temporary: Vec<Temporary>,
}

static STATE: Mutex<State> = Mutex::new(State {
    is_raised: false,
    outlives_questions: false,
    waker: None,
    temporary: Vec::new(),
});

fn state() -> MutexGuard<'static, State> {
    // The state is consistent even if a thread panicked: no change can panic halfway.
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread.
pub(crate) fn watch() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot wait for signals")?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for signal in signals.forever() {
                if signal == SIGINT {
                    interrupted();
                } else {
                    remove_temporary();
                    let _ = low_level::emulate_default_handler(signal);
                }
            }
        })
        .context("cannot start a thread for signals")?;
    Ok(())
}

fn interrupted() {
    let mut state = state();
    if state.is_raised || (state.waker.is_none() && !state.outlives_questions) {
        drop(state);
        end();
    }
    if let Some(wake) = &state.waker {
        wake();
        state.is_raised = true;
    }
    if state.outlives_questions {
        return;
    }
    drop(state);
    // On another thread: this one waits for the second Ctrl-C.
    let impatient = std::thread::Builder::new().spawn(|| {
        std::thread::sleep(PATIENCE);
        end();
    });
    if impatient.is_err() {
        end();
    }
}

fn end() -> ! {
    remove_temporary();
    let _ = writeln!(std::io::stderr(), "perfquet-query: interrupted");
    low_level::exit(130)
}

/// Makes Ctrl-C end a query, but not the program.
pub(crate) fn outlive_questions() {
    state().outlives_questions = true;
}

/// Calls `wake` on Ctrl-C while the result is alive.
pub(crate) fn wake(wake: impl Fn() + Send + 'static) -> Waiting {
    let mut state = state();
    state.is_raised = false;
    state.waker = Some(Box::new(wake));
    Waiting
}

/// Guard of a waiting thread.
pub(crate) struct Waiting;

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = state();
        state.waker = None;
        // The query has ended; what shows its rows may still run.
        state.is_raised &= !state.outlives_questions;
    }
}

/// Registers files and directories to remove if the program is terminated.
pub(crate) fn remove_at_end(paths: impl Fn() -> Vec<PathBuf> + Send + 'static) {
    state().temporary.push(Box::new(paths));
}

/// Removes the temporary files, which running threads would keep.
pub(crate) fn remove_temporary() {
    let paths: Vec<PathBuf> = state().temporary.iter().flat_map(|list| list()).collect();
    for path in paths {
        // It may already be gone.
        let _ = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir_all(&path));
    }
}
