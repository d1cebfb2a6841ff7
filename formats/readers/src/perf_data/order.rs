//! Sorts records by time, in bounded memory.
//!
//! perf drains one CPU's ring after another, and ends such a round with FINISHED_ROUND: no later record is older than
//! the newest one of the previous round. On a busy host this does not hold, so records wait longer than one round
//! (`lag.rs`). Files without rounds (simpleperf, `perf inject`, directories) wait until the end.
//!
//! A queue entry is a time and a location, 16 bytes; the records stay in the mapped file, or in the [`Buffers`] into
//! which a stream was read. Decompressed records, and those that stay in a buffer for too long, are copied into an
//! [`Arena`]. Too many of either go to an unlinked temporary file: entries as sorted [`Runs`], which are merged when
//! they are due.

use perfquet_events::Error;
use perfquet_events::bytes::Endian;
use perfquet_events::input::TEMPORARY_BYTES_MAX;

use crate::perf_data::arena::{Arena, ArenaView};
use crate::perf_data::buffers::{Buffers, Front};
use crate::perf_data::entry::{Entry, Location, Step};
use crate::perf_data::lag::Rounds;
use crate::perf_data::record::{HEADER_BYTES, RecordHeader};
use crate::perf_data::runs::Runs;

/// Maximum number of entries in memory (64 MiB) before they go to a file.
const ENTRIES_MAX: usize = 4 << 20;

const ARENA: u64 = 0xffff;

/// Records waiting to be emitted.
#[derive(Default)]
pub(super) struct Queue<'m> {
    /// The mapped files.
    pub(super) sources: Vec<&'m [u8]>,
    /// The buffers of a stream, which has no mapped files.
    pub(super) buffers: Buffers,
    endian: Endian,
    /// In the order of reading; those left over from the last round first, sorted.
    entries: Vec<Entry>,
    /// Number of entries at the front of which none is in a buffer.
    outside: usize,
    arena: Arena,
    runs: Runs,
    rounds: Rounds,
    /// Time of the last emitted record.
    handed_out: u64,
    /// Number of records that came after newer ones had been emitted.
    late: u64,
    /// Number of records left by the last flush.
    left: u64,
}

impl<'m> Queue<'m> {
    pub(super) fn new(sources: Vec<&'m [u8]>, endian: Endian) -> Queue<'m> {
        Queue {
            sources,
            endian,
            arena: Arena::new(TEMPORARY_BYTES_MAX),
            ..Queue::default()
        }
    }

    /// Sets the maximum size of waiting records in a temporary file.
    pub(super) fn set_temporary_bytes_max(&mut self, bytes: u64) {
        self.arena.temporary_bytes_max = bytes;
    }

    /// Returns the number of waiting records.
    pub(super) fn len(&self) -> u64 {
        self.entries.len() as u64 + self.runs.left()
    }

    /// Whether a record with a time was queued.
    pub(super) fn has_begun(&self) -> bool {
        self.len() > 0 || self.handed_out > 0
    }

    /// Returns the number of records that came after newer ones had been emitted; these are out of order.
    pub(super) fn late(&self) -> u64 {
        self.late
    }

    /// Emits records as soon as perf's rounds allow, because the recorder counts them during the recording.
    pub(super) fn hurry(&mut self) {
        self.rounds.hurry();
    }

    /// Queues a record of a mapped file, with its size in bytes.
    #[inline]
    pub(super) fn push(
        &mut self,
        time: u64,
        location: Location,
        bytes: usize,
    ) -> Result<(), Error> {
        self.rounds.read(time, bytes);
        self.late += u64::from(time < self.handed_out);
        self.insert(time, location)
    }

    #[inline]
    fn insert(&mut self, time: u64, location: Location) -> Result<(), Error> {
        self.entries.push(Entry { time, location });
        if self.entries.len() >= ENTRIES_MAX {
            // Entries in a file are not moved any more, so their records must stay where they are.
            self.copy_out(|_, _| true)?;
            self.outside = 0;
            self.entries.sort_by_key(|entry| entry.time);
            self.runs.push(&self.entries)?;
            self.entries.clear();
        }
        Ok(())
    }

    /// Queues a copy of a record.
    #[inline]
    pub(super) fn push_copy(&mut self, time: u64, record: &[u8]) -> Result<(), Error> {
        let offset = self.arena.push(record)?;
        let location = Location::queued(ARENA, offset);
        self.push(time, location, record.len())
    }

    /// Continues to fill the next buffer of a stream, with room for this many unused bytes. Frees the buffers without
    /// waiting records; if there are too many others, the records of the older ones are copied.
    pub(super) fn turn_over(&mut self, front: &mut Front, count: usize) -> Result<(), Error> {
        self.free_buffers(front);
        if self.buffers.is_crowded() {
            self.copy_out(Buffers::is_old)?;
            self.free_buffers(front);
        }
        self.buffers.turn_over(front, count);
        Ok(())
    }

    fn free_buffers(&mut self, front: &Front) {
        let waiting = self.entries.get(self.outside..).unwrap_or_default();
        let locations = waiting.iter().map(|entry| entry.location);
        self.buffers.free_except(front, locations);
    }

    /// Copies the waiting records of the buffers that `is_wanted` selects into the arena.
    fn copy_out(&mut self, is_wanted: impl Fn(&Buffers, u64) -> bool) -> Result<(), Error> {
        if self.buffers.is_empty() {
            return Ok(());
        }
        let mut are_outside = true;
        for (index, entry) in self.entries.iter_mut().enumerate().skip(self.outside) {
            let slot = entry.location.source();
            if slot != ARENA && is_wanted(&self.buffers, slot) {
                let bytes = self.buffers.get(slot);
                let bytes = bytes.and_then(|bytes| bytes.get(entry.location.offset() as usize..));
                if let Some(bytes) = bytes
                    && let Some(header) = RecordHeader::parse(bytes, self.endian)
                    && let Some(record) = bytes.get(..header.size)
                {
                    entry.location = Location::queued(ARENA, self.arena.push(record)?);
                }
            }
            are_outside &= entry.location.source() == ARENA;
            if are_outside {
                self.outside = index + 1;
            }
        }
        Ok(())
    }

    /// Queues a record without a time, to be emitted before all waiting records. `location` is where its bytes stay;
    /// `None` if they must be copied.
    pub(super) fn hold(&mut self, location: Option<Location>, record: &[u8]) -> Result<(), Error> {
        let location = match location {
            Some(location) => location,
            None => Location::queued(ARENA, self.arena.push(record)?),
        };
        self.insert(self.handed_out, location)
    }

    /// Ends a round: emits the records that no later one can precede, once there are enough for a sort.
    pub(super) fn finish_round(
        &mut self,
        hand_out: &mut impl FnMut(RecordHeader, &[u8], Location) -> Result<Step, Error>,
    ) -> Result<(), Error> {
        self.rounds.end();
        if self.rounds.is_due(self.len() - self.left)
            && let Some(limit) = self.rounds.limit()
        {
            return self.flush(limit, hand_out);
        }
        Ok(())
    }

    /// Emits all records up to `limit`, in order of time and, for equal times, of reading.
    pub(super) fn flush(
        &mut self,
        limit: u64,
        hand_out: &mut impl FnMut(RecordHeader, &[u8], Location) -> Result<Step, Error>,
    ) -> Result<(), Error> {
        // Rings are nearly sorted, one after the other: this sort detects and merges such runs.
        self.entries.sort_by_key(|entry| entry.time);
        self.outside = 0;
        let arena = self.arena.view()?;
        let records = Records {
            sources: &self.sources,
            buffers: &self.buffers,
            arena: &arena,
            endian: self.endian,
        };
        let mut done = 0;
        if self.runs.left() == 0 {
            let due = self.entries.partition_point(|entry| entry.time <= limit);
            for entry in self.entries.get(..due).unwrap_or_default() {
                if let Some((header, record)) = records.get(entry.location)
                    && matches!(hand_out(header, record, entry.location)?, Step::Hold)
                {
                    break;
                }
                done += 1;
                self.handed_out = entry.time;
            }
        } else {
            done = self.runs.merge(&self.entries, limit, |entry| {
                let step = match records.get(entry.location) {
                    Some((header, record)) => hand_out(header, record, entry.location)?,
                    None => Step::Done,
                };
                if matches!(step, Step::Done) {
                    self.handed_out = entry.time;
                }
                Ok(step)
            })?;
        }
        drop(arena);
        self.entries.drain(..done);
        self.left = self.len();
        self.compact()
    }

    /// Moves the rest of the arena to its front. Entries in runs are not moved; they are due soon.
    fn compact(&mut self) -> Result<(), Error> {
        if self.runs.left() > 0 || self.arena.is_empty() {
            return Ok(());
        }
        let mut arena = Arena::new(self.arena.temporary_bytes_max);
        if self.entries.is_empty() {
            std::mem::swap(&mut arena, &mut self.arena);
            self.arena = arena.emptied();
            return Ok(());
        }
        let view = self.arena.view()?;
        let records = Records {
            sources: &self.sources,
            buffers: &self.buffers,
            arena: &view,
            endian: self.endian,
        };
        for entry in &mut self.entries {
            if entry.location.source() == ARENA
                && let Some((_, record)) = records.stored(entry.location)
            {
                entry.location = Location::queued(ARENA, arena.push(record)?);
            }
        }
        drop(view);
        self.arena = arena;
        Ok(())
    }
}

/// All sources of a waiting record.
struct Records<'a, 'm> {
    sources: &'a [&'m [u8]],
    buffers: &'a Buffers,
    arena: &'a ArenaView<'a>,
    endian: Endian,
}

impl Records<'_, '_> {
    /// Returns a record with its header, which is parsed again: storing it would double the size of an [`Entry`].
    #[inline]
    fn get(&self, location: Location) -> Option<(RecordHeader, &[u8])> {
        let found = self.stored(location);
        found.filter(|(header, _)| header.size >= HEADER_BYTES)
    }

    /// Returns the bytes stored there, even if they are too short for a record.
    #[inline]
    fn stored(&self, location: Location) -> Option<(RecordHeader, &[u8])> {
        let bytes = match location.source() {
            ARENA => self.arena.from(location.offset())?,
            source => match self.sources.get(source as usize) {
                Some(file) => file,
                None => self.buffers.get(source)?,
            }
            .get(location.offset() as usize..)?,
        };
        let header = RecordHeader::parse(bytes, self.endian)?;
        Some((header, bytes.get(..header.size)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u16) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[6] = 16;
        bytes[8..10].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    fn flush(queue: &mut Queue<'_>, limit: u64) -> Vec<u16> {
        let mut seen = Vec::new();
        queue
            .flush(limit, &mut |_, bytes, _| {
                seen.push(Endian::Little.u16([bytes[8], bytes[9]]));
                Ok(Step::Done)
            })
            .unwrap();
        seen
    }

    #[test]
    fn sorts_and_keeps_records_that_are_not_due() {
        let mut queue = Queue::new(Vec::new(), Endian::Little);
        for (number, time) in [30, 10, 20, 20, 40, 5].into_iter().enumerate() {
            queue.push_copy(time, &record(number as u16)).unwrap();
        }
        assert_eq!(flush(&mut queue, 20), [5, 1, 2, 3]);
        queue.push_copy(35, &record(9)).unwrap();
        assert_eq!(flush(&mut queue, u64::MAX), [0, 9, 4]);
        assert_eq!(queue.len(), 0);
        assert!(queue.arena.is_empty());
    }

    #[test]
    fn rounds_lag_by_one_in_a_hurry() {
        let mut queue = Queue::new(Vec::new(), Endian::Little);
        queue.hurry();
        let mut seen = Vec::new();
        for (round, times) in [[3, 1], [2, 4], [6, 5]].into_iter().enumerate() {
            for time in times {
                queue.push_copy(time, &record(time as u16)).unwrap();
            }
            queue
                .finish_round(&mut |_, bytes, _| {
                    seen.push((round, bytes[8]));
                    Ok(Step::Done)
                })
                .unwrap();
        }
        assert_eq!(seen, [(1, 1), (1, 2), (1, 3), (2, 4)]);
    }

    /// Rounds of 13 records, one in a thousand of which was committed `lateness` records too late. Returns the emitted
    /// times, and the maximum length of the queue.
    fn busy_machine(records: u64, lateness: u64) -> (Queue<'static>, Vec<u64>, u64) {
        let mut queue = Queue::new(Vec::new(), Endian::Little);
        let mut seen = Vec::new();
        let mut most = 0;
        let mut hand_out = |_: RecordHeader, bytes: &[u8], _: Location| {
            seen.push(Endian::Little.u64_at(bytes, 8).unwrap());
            Ok(Step::Done)
        };
        let push = |queue: &mut Queue<'_>, time: u64| {
            let mut record = [0; 16];
            record[6] = 16;
            record[8..].copy_from_slice(&time.to_le_bytes());
            queue.push_copy(time, &record).unwrap();
        };
        for time in 1..=records {
            if time % 1000 != 0 {
                push(&mut queue, time);
            }
            if time > lateness && (time - lateness).is_multiple_of(1000) {
                push(&mut queue, time - lateness);
            }
            if time % 13 == 0 {
                most = most.max(queue.len());
                queue.finish_round(&mut hand_out).unwrap();
            }
        }
        queue.flush(u64::MAX, &mut hand_out).unwrap();
        (queue, seen, most)
    }

    #[test]
    fn records_that_miss_hundreds_of_rounds_are_emitted_in_order() {
        for lateness in [20, 300, 4000] {
            let (queue, seen, most) = busy_machine(100_000, lateness);
            assert!(seen.is_sorted(), "{lateness}");
            assert_eq!(queue.late(), 0);
            assert!(most < 40_000, "{most} records waited");
        }
    }

    #[test]
    fn late_records_are_counted_and_the_lag_grows() {
        let (queue, seen, most) = busy_machine(1_000_000, 20_000);
        let disorder = seen.windows(2).filter(|pair| pair[0] > pair[1]).count();
        assert!((1..20).contains(&disorder), "{disorder}");
        assert!((1..40).contains(&queue.late()), "{}", queue.late());
        assert!(most < 400_000, "{most} records waited");
    }

    #[test]
    fn runs_in_a_file_are_merged() {
        let mut queue = Queue::new(Vec::new(), Endian::Little);
        let mut expected = Vec::new();
        for number in 0..1000u16 {
            let time = u64::from(number.wrapping_mul(7919) % 211);
            expected.push((time, number));
            queue.push_copy(time, &record(number)).unwrap();
            if number % 300 == 299 {
                queue.arena.spill().unwrap();
                queue.entries.sort_by_key(|entry| entry.time);
                let entries = std::mem::take(&mut queue.entries);
                queue.runs.push(&entries).unwrap();
            }
        }
        expected.sort_by_key(|(time, _)| *time);
        let expected: Vec<u16> = expected.into_iter().map(|(_, number)| number).collect();
        assert_eq!(queue.len(), 1000);
        let mut seen = flush(&mut queue, 100);
        assert!(seen.len() > 300 && seen.len() < 700);
        seen.extend(flush(&mut queue, u64::MAX));
        assert_eq!(seen, expected);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn a_record_on_hold_stops_the_flush() {
        let mut queue = Queue::new(Vec::new(), Endian::Little);
        for time in [1, 2, 3] {
            queue.push_copy(time, &record(time as u16)).unwrap();
        }
        let mut hold = |_: RecordHeader, bytes: &[u8], _: Location| {
            Ok(match bytes[8] {
                2 => Step::Hold,
                _ => Step::Done,
            })
        };
        queue.flush(u64::MAX, &mut hold).unwrap();
        assert_eq!(flush(&mut queue, u64::MAX), [2, 3]);
    }
}
