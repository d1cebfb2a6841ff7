//! Strings by ID, added by one thread and looked up by another that fills columns with them.
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
    /// Distinguishes these from all others.
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
    /// Adds the string with the next ID.
    pub(crate) fn push(&self, text: &[u8]) {
        let mut texts = self.texts.write().unwrap_or_else(PoisonError::into_inner);
        texts.push(text);
    }

    /// Passes a string on; an unknown ID is the empty string.
    pub(super) fn with<T>(&self, id: u32, take: impl FnOnce(&[u8]) -> T) -> T {
        let texts = self.texts.read().unwrap_or_else(PoisonError::into_inner);
        take(texts.get(id))
    }

    /// Distinguishes these strings from all others.
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}
