//! Additional delay of records, beyond the rounds of perf.
//!
//! ```text
//! round 1: times 1…13     round 2: 14…26     …     round 40: 507, 21, 508…     21 is 38 rounds late
//! ```
//! A thread that loses its CPU between reading the clock and committing its record misses rounds, which perf writes
//! every 13 to 26 records in a storm. So a record is emitted only after some thousands of later ones were read. If a
//! record is late by more than half of that, the delay grows.

use std::collections::VecDeque;

/// Number of records read after a record before it is emitted. With 4,096, recordings of system calls at a load of 200
/// were in order, which they were not with a single round; the import took the same time.
const LAG_RECORDS: u64 = 4096;
/// The same in bytes, for records with stack copies.
const LAG_BYTES: u64 = 8 << 20;
/// Maximum delay: 26 MB for records of 100 bytes.
const LAG_RECORDS_MAX: u64 = 1 << 18;
const LAG_BYTES_MAX: u64 = 32 << 20;
/// Factor between the longest observed lateness and the new delay.
const MARGIN: u64 = 4;

/// The rounds that ended but were not emitted, and the progress of reading.
pub(super) struct Rounds {
    /// Oldest first.
    ends: VecDeque<End>,
    now: End,
    /// Newest time of the round before the last: by perf's rule, no older record follows.
    promised: u64,
    lag_records: u64,
    lag_bytes: u64,
    is_hurried: bool,
}

/// Progress of reading at the end of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct End {
    newest: u64,
    records: u64,
    bytes: u64,
}

impl Default for Rounds {
    fn default() -> Rounds {
        Rounds {
            ends: VecDeque::new(),
            now: End::default(),
            promised: 0,
            lag_records: LAG_RECORDS,
            lag_bytes: LAG_BYTES,
            is_hurried: false,
        }
    }
}

impl Rounds {
    /// Limits the delay to one round.
    pub(super) fn hurry(&mut self) {
        self.is_hurried = true;
        (self.lag_records, self.lag_bytes) = (0, 0);
    }

    /// Counts a record.
    #[inline]
    pub(super) fn read(&mut self, time: u64, bytes: usize) {
        if time < self.promised {
            self.grow(time);
        }
        self.now.newest = self.now.newest.max(time);
        self.now.records += 1;
        self.now.bytes += bytes as u64;
    }

    /// Handles a record that came later than perf guarantees.
    #[cold]
    fn grow(&mut self, time: u64) {
        if self.is_hurried {
            return;
        }
        let place = self.ends.partition_point(|end| end.newest <= time);
        let Some(missed) = self.ends.get(place) else {
            return;
        };
        let wanted = |lateness: u64, lag: u64, most: u64| {
            let margin = lateness.saturating_mul(MARGIN);
            if lateness > lag / 2 {
                margin.min(most)
            } else {
                lag
            }
        };
        let (records, bytes) = (
            self.now.records - missed.records,
            self.now.bytes - missed.bytes,
        );
        self.lag_records = wanted(records, self.lag_records, LAG_RECORDS_MAX);
        self.lag_bytes = wanted(bytes, self.lag_bytes, LAG_BYTES_MAX);
    }

    /// Ends a round.
    pub(super) fn end(&mut self) {
        let mut last = self.ends.iter().rev();
        let previous = last.next().copied();
        self.promised = previous.map_or(0, |end| end.newest);
        // Keep at most two rounds without records.
        if previous != Some(self.now) || last.next() != Some(&self.now) {
            self.ends.push_back(self.now);
        }
    }

    /// Whether enough records have come since the last sort.
    pub(super) fn is_due(&self, fresh: u64) -> bool {
        let is_first = |end: &End| self.now.bytes - end.bytes >= 2 * self.lag_bytes;
        fresh >= self.lag_records || self.ends.front().is_some_and(is_first)
    }

    /// Returns the time up to which records may be emitted, and drops earlier rounds.
    pub(super) fn limit(&mut self) -> Option<u64> {
        let followed = |end: &End| {
            self.now.records - end.records >= self.lag_records
                || self.now.bytes - end.bytes >= self.lag_bytes
        };
        // Both are ascending, and the latest round is never due.
        let due = self
            .ends
            .partition_point(followed)
            .min(self.ends.len().saturating_sub(1));
        let last = due.checked_sub(1)?;
        let limit = self.ends.get(last).map(|end| end.newest);
        self.ends.drain(..last);
        limit
    }
}
