//! Interrupts queries from another thread, as a handler of Ctrl-C does, and keeps what must be done if the program is
//! terminated, such as removing temporary files.
//!
//! Workers may not notice for a long time: a cross join may keep all of them busy for minutes between two rows. Therefore an
//! interruption wakes the thread that waits for a result, and the busy workers are abandoned.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Wakes the thread that waits for a result.
type Waker = Box<dyn Fn() + Send>;
/// An action at termination.
type Ending = Box<dyn Fn() + Send>;

struct State {
    waker: Option<Waker>,
    /// Whether the query that runs was interrupted.
    is_raised: bool,
    endings: Vec<Ending>,
}

static STATE: Mutex<State> = Mutex::new(State {
    waker: None,
    is_raised: false,
    endings: Vec::new(),
});

fn state() -> MutexGuard<'static, State> {
    // The state is consistent even if a thread panicked: no change can panic halfway.
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What an interruption met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Met {
    /// A query, which fails with [`Interrupted`](crate::failure::Interrupted).
    Query,
    /// A query that was interrupted before and has not ended yet.
    InterruptedQuery,
    /// No query runs.
    Nothing,
}

/// Interrupts the query that runs.
pub fn interrupt() -> Met {
    let mut state = state();
    if state.is_raised {
        return Met::InterruptedQuery;
    }
    let Some(wake) = &state.waker else {
        return Met::Nothing;
    };
    wake();
    state.is_raised = true;
    Met::Query
}

/// Calls `wake` on an interruption while the result is alive.
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
        state.is_raised = false;
    }
}

/// Registers an action for the case that the program is terminated.
pub fn at_end(ending: impl Fn() + Send + 'static) {
    state().endings.push(Box::new(ending));
}

/// Registers files and directories to remove if the program is terminated, as of that time: running threads would keep
/// them.
pub fn remove_at_end(paths: impl Fn() -> Vec<PathBuf> + Send + 'static) {
    at_end(move || {
        for path in paths() {
            // It may already be gone.
            let _ = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir_all(&path));
        }
    });
}

/// Runs the registered actions.
pub fn end() {
    state().endings.iter().for_each(|ending| ending());
}
