//! The events of a file in the order of time. What does not fit into memory is sorted in runs, in a temporary file.
//!
//! ```text
//! run    i64 time, i64 rank, u64 offset | … sorted, 50 MB        the runs are merged while the events are read again
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

use perfquet_events::Error;
use perfquet_events::bytes::Endian;
use perfquet_events::input::{Map, Spool};

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) time: i64,
    /// Of two calls that begin at the same time, the longer one encloses the other.
    pub(super) rank: i64,
    pub(super) offset: u64,
}

const ENTRY_BYTES: usize = 24;
/// Entries that are sorted in memory.
const RUN: usize = 1 << 21;
/// Entries after which the pages of the temporary file are released.
const RELEASED: u64 = 1 << 20;

/// Entries while they are found.
pub(super) struct Order {
    entries: Vec<Entry>,
    run: usize,
    /// Sorted runs, and the number of entries in each.
    spool: Option<Spool>,
    runs: Vec<usize>,
    most_bytes: u64,
    pub(super) last_time: Option<i64>,
}

impl Order {
    /// At most this many bytes become temporary.
    pub(super) fn new(most_bytes: u64) -> Order {
        Order {
            entries: Vec::new(),
            run: RUN,
            spool: None,
            runs: Vec::new(),
            most_bytes,
            last_time: None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len() + self.runs.iter().sum::<usize>()
    }

    pub(super) fn push(&mut self, entry: Entry) -> Result<(), Error> {
        self.last_time = Some(entry.time);
        self.entries.push(entry);
        match self.entries.len() >= self.run {
            true => self.end_run(),
            false => Ok(()),
        }
    }

    fn end_run(&mut self) -> Result<(), Error> {
        // Runs of sorted entries are merged by the stable sort, which most files consist of.
        self.entries.sort();
        let spool = match &mut self.spool {
            Some(spool) => spool,
            None => self.spool.insert(Spool::new(self.most_bytes)?),
        };
        let mut bytes = Vec::with_capacity(ENTRY_BYTES << 12);
        for some in self.entries.chunks(1 << 12) {
            bytes.clear();
            for entry in some {
                bytes.extend_from_slice(&entry.time.to_le_bytes());
                bytes.extend_from_slice(&entry.rank.to_le_bytes());
                bytes.extend_from_slice(&entry.offset.to_le_bytes());
            }
            spool.append(&bytes)?;
        }
        self.runs.push(self.entries.len());
        self.entries.clear();
        Ok(())
    }

    /// All entries, sorted.
    pub(super) fn sorted(mut self) -> Result<Sorted, Error> {
        if self.spool.is_some() {
            self.end_run()?;
            self.entries = Vec::new();
        } else {
            self.entries.sort();
        }
        let map = match &self.spool {
            Some(spool) => spool.map()?,
            None => None,
        };
        let mut sorted = Sorted {
            entries: self.entries.into_iter(),
            map,
            rest: Vec::new(),
            heads: BinaryHeap::new(),
            taken: 0,
        };
        let mut start = 0;
        for (run, count) in self.runs.into_iter().enumerate() {
            sorted.rest.push(start..start + count);
            start += count;
            sorted.advance(run);
        }
        Ok(sorted)
    }
}

/// Entries in the order of time.
pub(super) struct Sorted {
    /// Without a temporary file.
    entries: std::vec::IntoIter<Entry>,
    map: Option<Arc<Map>>,
    /// The remaining entries of each run, and the next entry of each.
    rest: Vec<Range<usize>>,
    heads: BinaryHeap<Reverse<(Entry, usize)>>,
    taken: u64,
}

impl Sorted {
    fn advance(&mut self, run: usize) {
        let place = self.rest.get_mut(run).and_then(Iterator::next);
        let entry = place.and_then(|place| self.entry(place));
        if let Some(entry) = entry {
            self.heads.push(Reverse((entry, run)));
        }
    }

    fn entry(&self, place: usize) -> Option<Entry> {
        let bytes: &[u8] = self.map.as_deref()?;
        let at = place * ENTRY_BYTES;
        Some(Entry {
            time: Endian::Little.u64_at(bytes, at)?.cast_signed(),
            rank: Endian::Little.u64_at(bytes, at + 8)?.cast_signed(),
            offset: Endian::Little.u64_at(bytes, at + 16)?,
        })
    }
}

impl Iterator for Sorted {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        let Some(map) = &self.map else {
            return self.entries.next();
        };
        self.taken += 1;
        if self.taken.is_multiple_of(RELEASED) {
            map.release();
        }
        let Reverse((entry, run)) = self.heads.pop()?;
        self.advance(run);
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_merged() {
        let times = |run: usize| {
            let mut order = Order::new(1 << 20);
            order.run = run;
            for (number, time) in [5, 1, -9, 5, 7, 0, 3, 3, i64::MAX, i64::MIN, 2]
                .into_iter()
                .enumerate()
            {
                let (rank, offset) = (-(number as i64 % 2), number as u64);
                order.push(Entry { time, rank, offset }).unwrap();
            }
            assert_eq!(order.len(), 11);
            order.sorted().unwrap().collect::<Vec<Entry>>()
        };
        let expected = times(100);
        assert!(expected.is_sorted() && expected.len() == 11);
        for run in 1..12 {
            assert_eq!(times(run), expected, "{run}");
        }
        let mut order = Order::new(30);
        order.run = 1;
        let entry = Entry {
            time: 0,
            rank: 0,
            offset: 0,
        };
        assert!(order.push(entry).is_ok() && order.push(entry).is_err());
        assert_eq!(Order::new(0).sorted().unwrap().next(), None);
    }
}
