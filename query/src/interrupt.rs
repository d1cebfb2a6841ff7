//! Ctrl-C, and other requests to end, on a thread that does nothing else.
//!
//! ```text
//! SIGINT   first: the question ends (exit 130; in the shell its prompt comes back)      second: the program ends at once
//! SIGTERM, SIGHUP                                                                      the program ends at once
//! ```
//! The workers cannot notice: a join of everything with everything may keep all of them busy for minutes between two rows.
//! So whoever waits for them is woken, and if the program has not ended soon after, it ends here. Temporary
//! files go in any case.

use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

/// What the program may take to end by itself.
const PATIENCE: Duration = Duration::from_millis(600);

/// Wakes whoever waits for an answer.
type Waker = Box<dyn Fn() + Send>;
/// Directories of temporary files, as they are at the end.
type Directories = Box<dyn Fn() -> Vec<PathBuf> + Send>;

struct State {
    /// A question was interrupted and has not ended since.
    is_raised: bool,
    /// A question may end without the program: the shell.
    outlives_questions: bool,
    waker: Option<Waker>,
    temporary: Vec<Directories>,
}

static STATE: Mutex<State> = Mutex::new(State {
    is_raised: false,
    outlives_questions: false,
    waker: None,
    temporary: Vec::new(),
});

fn state() -> MutexGuard<'static, State> {
    // Nothing can panic between two changes of it.
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
    // Beside this thread, which waits for the second Ctrl-C.
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

/// Lets Ctrl-C end a question, but not the program.
pub(crate) fn outlive_questions() {
    state().outlives_questions = true;
}

/// Calls `wake` at Ctrl-C, as long as the result lives.
pub(crate) fn wake(wake: impl Fn() + Send + 'static) -> Waiting {
    let mut state = state();
    state.is_raised = false;
    state.waker = Some(Box::new(wake));
    Waiting
}

/// Somebody waits for an answer.
pub(crate) struct Waiting;

impl Drop for Waiting {
    fn drop(&mut self) {
        state().waker = None;
    }
}

/// Removes these directories when the program ends before its time.
pub(crate) fn remove_at_end(directories: impl Fn() -> Vec<PathBuf> + Send + 'static) {
    state().temporary.push(Box::new(directories));
}

/// Removes the temporary files: threads that are still at work would keep them.
pub(crate) fn remove_temporary() {
    let directories: Vec<PathBuf> = state().temporary.iter().flat_map(|list| list()).collect();
    for directory in directories {
        // One that is gone already is what was wanted.
        let _ = std::fs::remove_dir_all(directory);
    }
}
