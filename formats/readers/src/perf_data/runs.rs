//! Entries of waiting records as sorted runs in an unlinked temporary file, merged when they are due.
//!
//! ```text
//! u64 time, u64 location   one entry after the other, little-endian; runs follow each other
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use perfquet_events::Error;
use perfquet_events::bytes::Endian;
use perfquet_events::input::Spool;

use crate::perf_data::entry::{Entry, Location, Step};

const ENTRY_BYTES: usize = 16;

/// Sorted runs of entries in a temporary file.
#[derive(Default)]
pub(super) struct Runs {
    spool: Option<Spool>,
    /// First and last (exclusive) remaining entry of each run, counted from the start of the file.
    runs: Vec<(u64, u64)>,
}

impl Runs {
    /// Returns the number of remaining entries.
    pub(super) fn left(&self) -> u64 {
        self.runs.iter().map(|(next, end)| end - next).sum()
    }

    pub(super) fn push(&mut self, entries: &[Entry]) -> Result<(), Error> {
        let spool = match &mut self.spool {
            Some(spool) => spool,
            none => none.insert(Spool::new(u64::MAX)?),
        };
        let start = spool.size_bytes() / ENTRY_BYTES as u64;
        let mut bytes = Vec::with_capacity(entries.len() * ENTRY_BYTES);
        for entry in entries {
            bytes.extend_from_slice(&entry.time.to_le_bytes());
            bytes.extend_from_slice(&entry.location.0.to_le_bytes());
        }
        spool.append(&bytes)?;
        self.runs.push((start, start + entries.len() as u64));
        Ok(())
    }

    /// Emits the due entries of the runs and of `entries`, which were read later. Returns how many of `entries` were
    /// emitted.
    pub(super) fn merge(
        &mut self,
        entries: &[Entry],
        limit: u64,
        mut hand_out: impl FnMut(Entry) -> Result<Step, Error>,
    ) -> Result<usize, Error> {
        let map = match &self.spool {
            Some(spool) => spool.map()?,
            None => None,
        };
        let map: &[u8] = map.as_deref().map_or(&[], |map| map);
        let entry_at = |index: u64| -> Option<Entry> {
            let bytes = map.get(usize::try_from(index).ok()?.checked_mul(ENTRY_BYTES)?..)?;
            Some(Entry {
                time: Endian::Little.u64_at(bytes, 0)?,
                location: Location(Endian::Little.u64_at(bytes, 8)?),
            })
        };
        // The run number decides between equal times: an earlier run was read earlier.
        let in_memory = self.runs.len();
        let mut heads = BinaryHeap::new();
        for (number, (next, end)) in self.runs.iter().enumerate() {
            if next < end
                && let Some(entry) = entry_at(*next)
            {
                heads.push(Reverse((entry.time, number)));
            }
        }
        let mut done = 0;
        if let Some(entry) = entries.first() {
            heads.push(Reverse((entry.time, in_memory)));
        }
        while let Some(Reverse((time, number))) = heads.pop() {
            if time > limit {
                break;
            }
            let entry = match self.runs.get(number) {
                Some((next, _)) => entry_at(*next),
                None => entries.get(done).copied(),
            };
            let Some(entry) = entry else { continue };
            if matches!(hand_out(entry)?, Step::Hold) {
                break;
            }
            let following = match self.runs.get_mut(number) {
                Some((next, end)) => {
                    *next += 1;
                    if next < end { entry_at(*next) } else { None }
                }
                None => {
                    done += 1;
                    entries.get(done).copied()
                }
            };
            if let Some(following) = following {
                heads.push(Reverse((following.time, number)));
            }
        }
        if self.left() == 0 {
            self.runs.clear();
            self.spool = None;
        }
        Ok(done)
    }
}
