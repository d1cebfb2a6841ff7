//! A flight recorder's memory: files in the journal of its output, so that it outlives the recorder.
//!
//! ```text
//! a.pqt/journal/perf.data          facts, events, formats, who is who
//! a.pqt/journal/ring.0000000017    the events of some passes over the rings; the oldest file goes
//! ```
//! Written with `write`, so the data is in the page cache at once: a killed recorder leaves its last events, and
//! `perfquet-convert a.pqt` makes a trace of them. With an output in memory (`-o /dev/shm/a.pqt`), nothing is written
//! to disk.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use perfquet_import::RING_PREFIX;

use super::Limit;
use crate::journal::Journal;

/// Number of files for the kept events: the oldest is dropped as a whole, so the amount kept is off by at most this
/// fraction.
const PARTS: usize = 32;
/// Bytes copied at once.
const CHUNK_BYTES: usize = 1 << 20;

/// The events of some passes over the rings; whole records, ring by ring.
struct Segment {
    path: PathBuf,
    file: Arc<File>,
    bytes: u64,
    /// Lower bound of its times: the end of the previous pass.
    begin: u64,
    /// Upper bound of its times.
    until: u64,
}

/// The files of kept events.
pub(crate) struct Memory {
    folder: PathBuf,
    limit: Limit,
    head: Arc<Vec<u8>>,
    /// Facts and side-band, followed by later additions.
    journal: Journal,
    segments: VecDeque<Segment>,
    next_number: u64,
    has_reported_full: bool,
    /// Upper bound of the times of the events that were dropped; 0 if there are none.
    dropped_until: u64,
}

/// The contents at one moment: open files, which remain readable after they were unlinked.
pub(super) struct Pieces(Vec<(Arc<File>, u64)>);

impl Memory {
    /// Creates an empty memory in the directory of a new journal.
    pub(crate) fn new(
        folder: &Path,
        mut journal: Journal,
        limit: Limit,
        head: Vec<u8>,
    ) -> io::Result<Memory> {
        journal.append(&head)?;
        Ok(Memory {
            folder: folder.to_owned(),
            limit,
            head: Arc::new(head),
            journal,
            segments: VecDeque::new(),
            next_number: 0,
            has_reported_full: false,
            dropped_until: 0,
        })
    }

    /// Returns facts, events and formats.
    pub(super) fn head(&self) -> Arc<Vec<u8>> {
        Arc::clone(&self.head)
    }

    /// Returns the size of the events in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Returns the time from which all events are retained.
    pub(super) fn dropped_until(&self) -> u64 {
        self.dropped_until
    }

    /// Returns a lower bound of the times of retained events.
    pub(super) fn horizon(&self) -> Option<u64> {
        self.segments.front().map(|first| first.begin)
    }

    /// Adds records of processes and mappings.
    pub(super) fn add_side_band(&mut self, records: &[u8]) -> io::Result<()> {
        self.journal.append(records)
    }

    /// Replaces the whole with the rest.
    pub(super) fn replace_side_band(&mut self, records: &[u8]) -> io::Result<()> {
        let fresh = self.folder.join(".perf.data");
        let _ = fs::remove_file(&fresh);
        let mut journal = Journal::create(&fresh)?;
        journal.append(&self.head)?;
        journal.append(records)?;
        fs::rename(&fresh, self.folder.join("perf.data"))?;
        self.journal = journal;
        Ok(())
    }

    /// Adds the events of a pass, which ended `since` after the previous one. On a full disk, the oldest events are
    /// dropped before the newest.
    pub(super) fn add_events(&mut self, records: &[u8], since: u64, now: u64) -> io::Result<()> {
        loop {
            let error = match self.try_add(records, since, now) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if error.kind() != io::ErrorKind::StorageFull || self.segments.len() < 2 {
                return Err(error);
            }
            if !self.has_reported_full {
                self.has_reported_full = true;
                log::warn!(
                    "--ring: {}: {error}; keeping fewer events",
                    self.folder.display()
                );
            }
            self.forget_oldest();
        }
    }

    fn try_add(&mut self, records: &[u8], since: u64, now: u64) -> io::Result<()> {
        let part_bytes = (self.limit.bytes / PARTS) as u64;
        let part_age = self.limit.age.map(|age| age.as_nanos() / PARTS as u128);
        let is_full = |segment: &Segment| {
            let age = u128::from(now.saturating_sub(segment.begin));
            segment.bytes >= part_bytes || part_age.is_some_and(|most| age >= most)
        };
        if self.segments.back().is_none_or(is_full) {
            let segment = self.begin_segment(since)?;
            self.segments.push_back(segment);
        }
        let Some(segment) = self.segments.back_mut() else {
            return Ok(());
        };
        // One write of whole records: a reader after a kill finds whole records, except for the last.
        match segment.file.write_all_at(records, segment.bytes) {
            Ok(()) => {
                segment.bytes += records.len() as u64;
                segment.until = now;
                Ok(())
            }
            Err(error) => {
                segment.file.set_len(segment.bytes)?;
                Err(error)
            }
        }
    }

    fn begin_segment(&mut self, begin: u64) -> io::Result<Segment> {
        self.next_number += 1;
        let path = self
            .folder
            .join(format!("{RING_PREFIX}{:010}", self.next_number));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)?;
        Ok(Segment {
            path,
            file: Arc::new(file),
            bytes: 0,
            begin,
            until: begin,
        })
    }

    /// Drops events beyond the limits. Returns the age of the oldest event dropped for lack of space, if any.
    pub(super) fn trim(&mut self, now: u64) -> Option<u64> {
        let mut short = None;
        let mut bytes = self.bytes();
        while let Some(first) = self.segments.front() {
            let age = now.saturating_sub(first.until);
            let is_old = self
                .limit
                .age
                .is_some_and(|most| u128::from(age) > most.as_nanos());
            // Keep a single pass larger than the limit: exceeding the limit is better than an empty trace.
            let is_much = bytes > self.limit.bytes as u64 && self.segments.len() > 1;
            if !is_old && !is_much {
                break;
            }
            if !is_old {
                short = short.or(Some(age));
            }
            bytes -= first.bytes;
            self.forget_oldest();
        }
        short
    }

    fn forget_oldest(&mut self) {
        let Some(first) = self.segments.pop_front() else {
            return;
        };
        self.dropped_until = first.until;
        if let Err(error) = fs::remove_file(&first.path) {
            log::warn!("{}: {error}", first.path.display());
        }
    }

    /// Returns all events held now. They are shared, not copied.
    pub(super) fn pieces(&self) -> Pieces {
        let share = |segment: &Segment| (Arc::clone(&segment.file), segment.bytes);
        Pieces(self.segments.iter().map(share).collect())
    }
}

impl Pieces {
    /// Copies them, the oldest first.
    pub(super) fn write_to(&self, journal: &mut Journal) -> io::Result<()> {
        self.read(|piece| journal.append(piece))
    }

    fn read(&self, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut buffer = vec![0; CHUNK_BYTES];
        for (file, bytes) in &self.0 {
            let mut offset = 0;
            while offset < *bytes {
                let wanted = (bytes - offset).min(CHUNK_BYTES as u64) as usize;
                let place = &mut buffer[..wanted];
                file.read_exact_at(place, offset)?;
                take(place)?;
                offset += wanted as u64;
            }
        }
        Ok(())
    }

    /// The first byte of each piece.
    #[cfg(test)]
    pub(super) fn first_bytes(&self) -> Vec<u8> {
        let mut found = Vec::new();
        for piece in &self.0 {
            let one = Pieces(vec![(Arc::clone(&piece.0), 1)]);
            one.read(|bytes| {
                found.extend(bytes);
                Ok(())
            })
            .unwrap();
        }
        found
    }
}

#[cfg(test)]
impl Memory {
    /// Creates a memory in its own directory.
    pub(super) fn for_test(folder: &Path, limit: Limit) -> Memory {
        let journal = Journal::create(&folder.join("perf.data")).unwrap();
        Memory::new(folder, journal, limit, b"head".to_vec()).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn side_band_is_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let limit = Limit {
            age: None,
            bytes: 100,
        };
        let mut memory = Memory::for_test(folder.path(), limit);
        let read = || fs::read(folder.path().join("perf.data")).unwrap();
        memory.add_side_band(b"+one").unwrap();
        memory.add_side_band(b"+two").unwrap();
        assert_eq!(read(), b"head+one+two");
        memory.replace_side_band(b"+left").unwrap();
        memory.add_side_band(b"+more").unwrap();
        assert_eq!(read(), b"head+left+more");
        let mut buffer = Vec::new();
        memory.add_events(b"events", 5, 7).unwrap();
        memory
            .pieces()
            .read(|bytes| buffer.write_all(bytes))
            .unwrap();
        assert_eq!(buffer, b"events");
        assert_eq!(memory.horizon(), Some(5));
    }
}
