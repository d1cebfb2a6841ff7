//! How long records wait beyond the round that perf closed.
//!
//! ```text
//! round 1: times 1…13     round 2: 14…26     …     round 40: 507, 21, 508…     21 is 38 rounds late
//! ```
//! A thread that loses its CPU between reading the clock and committing its record misses rounds, of which perf writes
//! one every 13 to 26 records in a storm. So a record goes out once some thousands of later ones were read. Where records
//! are seen to be late by more than half of that, the lag grows.

use std::collections::VecDeque;

/// Records read after one before it goes out. With 4,096, recordings of system calls at a load of 200 came out in order
/// that did not with one round, in the same time.
const LAG_RECORDS: u64 = 4096;
/// Or bytes of records, where these have copied stacks.
const LAG_BYTES: u64 = 8 << 20;
/// What the lag may grow to: 26 MB of records of 100 bytes.
const LAG_RECORDS_MAX: u64 = 1 << 18;
const LAG_BYTES_MAX: u64 = 32 << 20;
/// How much longer than the longest lateness that was seen the next ones wait.
const MARGIN: u64 = 4;

/// The rounds that ended and were not handed out, and what was read.
pub(super) struct Rounds {
    /// The oldest first.
    ends: VecDeque<End>,
    now: End,
    /// Newest time of the round before the last: by perf's rule nothing older follows.
    promised: u64,
    lag_records: u64,
    lag_bytes: u64,
    is_hurried: bool,
}

/// What had been read when a round ended.
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
    /// Records wait for one round only.
    pub(super) fn hurry(&mut self) {
        self.is_hurried = true;
        (self.lag_records, self.lag_bytes) = (0, 0);
    }

    /// A record was read.
    #[inline]
    pub(super) fn read(&mut self, time: u64, bytes: usize) {
        if time < self.promised {
            self.grow(time);
        }
        self.now.newest = self.now.newest.max(time);
        self.now.records += 1;
        self.now.bytes += bytes as u64;
    }

    /// A record came later than perf promises.
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

    /// A round has ended.
    pub(super) fn end(&mut self) {
        let mut last = self.ends.iter().rev();
        let previous = last.next().copied();
        self.promised = previous.map_or(0, |end| end.newest);
        // Of rounds without a record two are enough.
        if previous != Some(self.now) || last.next() != Some(&self.now) {
            self.ends.push_back(self.now);
        }
    }

    /// Whether this many records that wait since the last time are worth being sorted.
    pub(super) fn is_due(&self, fresh: u64) -> bool {
        let is_first = |end: &End| self.now.bytes - end.bytes >= 2 * self.lag_bytes;
        fresh >= self.lag_records || self.ends.front().is_some_and(is_first)
    }

    /// Up to which time all may go out. Rounds before that are forgotten.
    pub(super) fn limit(&mut self) -> Option<u64> {
        let followed = |end: &End| {
            self.now.records - end.records >= self.lag_records
                || self.now.bytes - end.bytes >= self.lag_bytes
        };
        // Both grow from the front to the back, and the round that just ended is never due.
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
