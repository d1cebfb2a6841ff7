//! Waits for work on another thread without the interpreter's lock, and for signals.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;

/// Time between two checks for signals.
const PATIENCE: Duration = Duration::from_millis(50);
/// Time for work to end after an interruption.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

/// The end of a channel whose receiver may wait without the interpreter's lock.
pub(crate) struct Waiter<T>(Mutex<Receiver<T>>);

impl<T: Send> Waiter<T> {
    pub(crate) fn new(receiver: Receiver<T>) -> Waiter<T> {
        Waiter(Mutex::new(receiver))
    }

    /// Receives the next message, also from a thread that Python does not know. `None`: the sender is gone.
    ///
    /// # Errors
    ///
    /// A signal, such as Ctrl-C, if this is `owner`: another thread may be one for which a thread with the interpreter's lock waits.
    pub(crate) fn receive(&self, owner: ThreadId) -> PyResult<Option<T>> {
        let receiver = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match receiver.recv_timeout(PATIENCE) {
                Ok(value) => return Ok(Some(value)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {
                    if thread::current().id() == owner {
                        Python::attach(|py| py.check_signals())?;
                    }
                }
            }
        }
    }

    /// Receives the next message, for a while, without the lock.
    pub(crate) fn receive_within(&self, py: Python<'_>) -> Result<T, RecvTimeoutError> {
        py.detach(|| {
            let receiver = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            receiver.recv_timeout(PATIENCE)
        })
    }
}

/// Runs `work` on a thread of its own and waits for its result. Meanwhile it calls `meanwhile`, whose exception or a
/// signal's, such as KeyboardInterrupt, is returned after `stop` was called and the work has ended. Work that does not end,
/// since it reads from a silent pipe, is left behind.
pub(crate) fn run<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
    stop: impl Fn(),
    mut meanwhile: impl FnMut(Python<'_>) -> PyResult<()>,
) -> PyResult<T> {
    let (sender, receiver) = channel();
    let thread = thread::Builder::new().name("perfquet".to_owned());
    let started = thread.spawn(move || {
        // The caller may have left.
        let _ = sender.send(work());
    });
    started.map_err(|error| PyOSError::new_err(format!("cannot start a thread: {error}")))?;
    let waiter = Waiter::new(receiver);
    let failure = loop {
        match waiter.receive_within(py) {
            Ok(value) => return Ok(value),
            Err(RecvTimeoutError::Disconnected) => return Err(panicked()),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(failure) = py.check_signals().and_then(|()| meanwhile(py)) {
                    break failure;
                }
            }
        }
    };
    let begun = Instant::now();
    while begun.elapsed() < LAST_PATIENCE {
        // Repeated, since an interruption between two queries of a report meets none.
        stop();
        if !matches!(waiter.receive_within(py), Err(RecvTimeoutError::Timeout)) {
            break;
        }
    }
    Err(failure)
}

/// The exception of work that ended without a result.
pub(crate) fn panicked() -> PyErr {
    PyRuntimeError::new_err("a thread of perfquet panicked; this is a bug")
}
