//! Strings by ID, added by one thread and read by another, which fills columns with them.
//!
//! ```text
//! reading thread: "bash" is 7         a thousand rows with the 7         encoder: 7 is the column's key 2
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::intern::Entries;

/// The strings; clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    /// Distinguishes this set of strings from all others.
    number: u64,
    texts: Arc<RwLock<Entries>>,
}

impl Default for Names {
    fn default() -> Names {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Names {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            texts: Arc::default(),
        }
    }
}

impl Names {
    /// Adds a string with the next ID.
    pub(crate) fn push(&self, text: &[u8]) {
        let mut texts = self.texts.write().unwrap_or_else(PoisonError::into_inner);
        texts.push(text);
    }

    /// Calls `take` with a string; with an empty one for an unknown ID.
    pub(super) fn with<T>(&self, id: u32, take: impl FnOnce(&[u8]) -> T) -> T {
        let texts = self.texts.read().unwrap_or_else(PoisonError::into_inner);
        take(texts.get(id))
    }

    /// Passes several strings to `take`.
    pub(crate) fn with_all(&self, ids: &[u32], take: impl FnOnce(&[&[u8]])) {
        let texts = self.texts.read().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<&[u8]> = ids.iter().map(|&id| texts.get(id)).collect();
        take(&all);
    }

    /// Number of strings.
    pub(crate) fn len(&self) -> usize {
        self.texts
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// Returns the number that distinguishes this set from all others.
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}
