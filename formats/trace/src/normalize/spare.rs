//! Written batches, for reuse: page faults on new memory cost more than filling it.

use std::sync::{Mutex, PoisonError};

/// Batches kept: as many as are on their way at once.
const KEPT: usize = 64;

/// The batches; the encoder's thread gives them back.
#[derive(Debug)]
pub(crate) struct Spare<T>(Mutex<Vec<T>>);

impl<T> Default for Spare<T> {
    fn default() -> Spare<T> {
        Spare(Mutex::new(Vec::new()))
    }
}

impl<T> Spare<T> {
    /// Takes one, if there is any.
    pub(crate) fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Gives one back.
    pub(crate) fn put(&self, batch: T) {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < KEPT {
            spare.push(batch);
        }
    }
}
