//! The search in a damaged file: the order of the places, and the limit of what is examined.

use std::cell::Cell;

/// Bytes of events examined to find pages that are not where they should be, in the whole file.
const SEARCHED_BYTES_MAX: u64 = 1 << 30;

/// What is left of the bytes to examine, so that no hostile file is searched for ever.
pub(super) struct Budget(Cell<u64>);

impl Default for Budget {
    fn default() -> Budget {
        Budget(Cell::new(SEARCHED_BYTES_MAX))
    }
}

impl Budget {
    /// Takes this many bytes; false if there are no more.
    pub(super) fn take(&self, bytes: u64) -> bool {
        let left = self.0.get().checked_sub(bytes);
        self.0.set(left.unwrap_or(0));
        left.is_some()
    }
}

/// The distances before and after the expected place, as in `-1, 1, -2, 2`.
pub(super) fn either_way(distances: impl IntoIterator<Item = i64>) -> impl Iterator<Item = i64> {
    distances
        .into_iter()
        .flat_map(|distance| [-distance, distance])
}
