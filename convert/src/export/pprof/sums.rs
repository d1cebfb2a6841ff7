//! Sums of values by stack and thread; pprof has no timestamps.
//!
//! ```text
//! user stack 7, kernel stack 3, dd (220) on CPU 1   cycles: 12 samples, 12,120,000
//! ```

use std::collections::HashMap;

use super::super::paths::PathId;

/// Maximum number of sums in memory. More are written at once, because pprof adds the values of equal stacks itself.
pub(super) const MOST_SUMS: usize = 1 << 20;

/// The stack of a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum StackKey {
    Frames {
        user: Option<i32>,
        kernel: Option<i32>,
    },
    Calls(PathId),
}

/// The key of a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) stack: StackKey,
    pub(super) pid: Option<i32>,
    pub(super) tid: Option<i32>,
    pub(super) cpu: Option<i32>,
    /// String number of the comm.
    pub(super) comm: Option<i64>,
    /// Index of the first of the two values.
    pub(super) value: usize,
}

/// The sums so far, each a count and a total.
#[derive(Debug, Default)]
pub(super) struct Sums {
    sums: HashMap<Key, (i64, i64)>,
}

impl Sums {
    /// Adds a value. Returns true if the sums should be written.
    pub(super) fn add(&mut self, key: Key, value: i64) -> bool {
        let (count, sum) = self.sums.entry(key).or_default();
        *count += 1;
        *sum = sum.saturating_add(value);
        self.sums.len() >= MOST_SUMS
    }

    /// Removes and returns all sums, in an order that is the same on every run.
    pub(super) fn take(&mut self) -> Vec<(Key, (i64, i64))> {
        let mut sums: Vec<_> = self.sums.drain().collect();
        sums.sort_unstable_by_key(|(key, _)| {
            let stack = match key.stack {
                StackKey::Frames { user, kernel } => (0, user, kernel),
                StackKey::Calls(path) => (1, Some(path.cast_signed()), None),
            };
            (key.value, stack, key.tid, key.pid, key.cpu, key.comm)
        });
        sums
    }
}
