//! Records of other threads, which the drain writes with its next pass.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The records that wait; all clones share them.
#[derive(Clone, Default)]
pub(crate) struct AddedRecords(Arc<Mutex<Vec<u8>>>);

impl AddedRecords {
    /// Adds whole records.
    pub(crate) fn add(&self, records: &[u8]) {
        self.lock().extend_from_slice(records);
    }

    /// Takes all that wait.
    pub(crate) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.lock())
    }

    /// Each change is one step, so a panic while the lock is held leaves whole records.
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
