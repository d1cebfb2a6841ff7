//! The contents of a flight recorder: the last passes over the rings, and the side-band that they need.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Limit;
use super::held::Held;
use super::memory::Memory;
use super::side_band::SideBand;
use super::slow::Watch;
use super::snapshot::Asker;
use crate::journal::header;
use crate::journal::record::{self, Records, kind};
use crate::recorded::Recorded;
use crate::recording::Recording;
use crate::sys::clock;

/// The contents of a flight recorder.
pub(crate) struct Buffer {
    limit: Limit,
    memory: Memory,
    side_band: SideBand,
    /// Events and side-band of the current pass.
    pass: Vec<u8>,
    pass_side_band: Vec<u8>,
    /// Time of the end of the last pass.
    passed_at: u64,
    /// Number of losses that the kernel has reported in the rings, also in records that are no longer held.
    reported: u64,
    watch: Option<Watch>,
    asker: Asker,
    /// Number of bytes held, for observers.
    held_bytes: Arc<AtomicU64>,
    has_reported_size: bool,
    /// When the recording is on, and the ID of an event.
    recorded: (Recorded, Option<u64>),
}

impl Buffer {
    /// Starts empty, except for the contents of `memory`. On a request, or when `watch` finds a slow call, the contents
    /// are passed to `asker`.
    pub(crate) fn new(limit: Limit, memory: Memory, watch: Option<Watch>, asker: Asker) -> Buffer {
        Buffer {
            limit,
            memory,
            side_band: SideBand::default(),
            pass: Vec::new(),
            pass_side_band: Vec::new(),
            passed_at: 0,
            reported: 0,
            watch,
            asker,
            held_bytes: Arc::default(),
            has_reported_size: false,
            recorded: (Recorded::default(), None),
        }
    }

    /// Uses these notes of when the recording is on, in updates of the event `id`.
    pub(crate) fn follow(&mut self, recorded: Recorded, id: Option<u64>) {
        self.recorded = (recorded, id);
    }

    /// Returns the number of bytes held, for observers.
    pub(crate) fn held_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.held_bytes)
    }

    /// Adds a piece of a side-band ring; all pieces of a pass are whole records.
    pub(crate) fn side_band(&mut self, piece: &[u8]) {
        self.pass_side_band.extend_from_slice(piece);
    }

    /// Adds a piece of an event ring.
    pub(crate) fn events(&mut self, piece: &[u8]) {
        self.pass.extend_from_slice(piece);
    }

    /// Ends a pass over all rings: discards events that are too old or too many.
    pub(crate) fn end_pass(&mut self) -> io::Result<()> {
        let now = clock::monotonic();
        let mut slow = Vec::new();
        self.reported += lost_in(&self.pass) + lost_in(&self.pass_side_band);
        // Who is who first: events without it would have no names.
        self.memory.add_side_band(&self.pass_side_band)?;
        self.side_band.add(&self.pass_side_band);
        self.pass_side_band.clear();
        if !self.pass.is_empty() {
            if let Some(watch) = &mut self.watch {
                slow = watch.look(&self.pass);
            }
            self.memory.add_events(&self.pass, self.passed_at, now)?;
            self.pass.clear();
        }
        self.passed_at = now;
        if let Some(age) = self.memory.trim(now) {
            self.tell_size(age);
        }
        if self
            .side_band
            .forget_before(self.memory.horizon().unwrap_or(now))
        {
            self.memory.replace_side_band(self.side_band.bytes())?;
        }
        let bytes = self.memory.bytes() + self.side_band.bytes().len() as u64;
        self.held_bytes.store(bytes, Ordering::Relaxed);
        if let Some(why) = self.asker.wanted(slow) {
            self.asker.hand_over(why, self.held());
        }
        Ok(())
    }

    /// Adds the losses that the kernel has counted, and not reported in the rings: it does with the next record that fits, and there may
    /// be none until the end.
    pub(crate) fn add_losses(&mut self, recording: &Recording) -> io::Result<()> {
        let counts: Vec<_> = recording.counts().collect();
        let lost: u64 = counts.iter().filter_map(|(_, _, counts)| counts.lost).sum();
        let unreported = lost.saturating_sub(self.reported);
        let first = counts.first().map(|(_, opened, _)| opened.id);
        if let (1.., Some(id)) = (unreported, first) {
            let record = lost_record(id, unreported);
            self.side_band.add(&record);
            self.memory.add_side_band(&record)?;
        }
        Ok(())
    }

    /// Adds the record of when was recorded what is held. The recording has ended.
    pub(crate) fn add_recorded(&mut self) -> io::Result<()> {
        let record = self.recorded();
        self.memory.add_side_band(&record)
    }

    /// The record of when was recorded what is held; empty if that is not known.
    fn recorded(&self) -> Vec<u8> {
        let (recorded, id) = &self.recorded;
        let ranges = recorded.text(self.memory.dropped_until(), self.passed_at);
        let known = ranges.zip(*id);
        known.map_or_else(Vec::new, |(ranges, id)| header::recorded(id, &ranges))
    }

    /// Adds the records that say that the rest is missing, although a pass could not be written.
    pub(crate) fn end_early(&mut self, records: &[u8]) -> io::Result<()> {
        self.memory.add_side_band(records)
    }

    fn tell_size(&mut self, age_ns: u64) {
        if self.limit.age.is_some() && !self.has_reported_size {
            self.has_reported_size = true;
            log::warn!(
                "--ring: {} MiB hold only the last {:.1} s",
                self.limit.bytes >> 20,
                Duration::from_nanos(age_ns).as_secs_f64()
            );
        }
    }

    /// Returns everything held now. The events are shared, not copied.
    pub(crate) fn held(&self) -> Held {
        Held {
            head: self.memory.head(),
            side_band: self.side_band.bytes().to_vec(),
            events: self.memory.pieces(),
            recorded: self.recorded(),
        }
    }
}

/// The sum of the LOST records.
fn lost_in(records: &[u8]) -> u64 {
    let lost = record::walk(records).filter(|record| record.kind == kind::LOST);
    let counts = lost.filter_map(|lost| record::lost(lost.bytes));
    counts.fold(0, u64::saturating_add)
}

/// A LOST record as of the kernel, on no CPU.
fn lost_record(id: u64, count: u64) -> Vec<u8> {
    let mut records = Records::new();
    records.add(kind::LOST, 0, |body| {
        body.u64(id);
        body.u64(count);
        body.trailer(-1, -1, clock::monotonic(), u32::MAX, id);
    });
    records.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reported_losses_are_added_up() {
        let mut records = Records::new();
        records.add(kind::COMM, 0, |body| body.raw(&[2; 24]));
        let mut pass = records.into_bytes();
        pass.extend(lost_record(7, 30));
        pass.extend(lost_record(8, 4));
        assert_eq!(lost_in(&pass), 34);
        assert_eq!(lost_in(&pass[..pass.len() - 10]), 30);
        assert_eq!(lost_in(&[0; 64]), 0);
    }

    fn kept(folder: &tempfile::TempDir, bytes: usize, age: Option<Duration>) -> Buffer {
        let limit = Limit { age, bytes };
        let memory = Memory::for_test(folder.path(), limit);
        Buffer::new(limit, memory, None, Asker::deaf())
    }

    fn pass(kept: &mut Buffer, byte: u8) {
        kept.events(&[byte; 40]);
        kept.events(&[byte; 60]);
        kept.end_pass().unwrap();
    }

    fn files(folder: &tempfile::TempDir) -> usize {
        std::fs::read_dir(folder.path()).unwrap().count()
    }

    #[test]
    fn oldest_pass_is_dropped_at_the_size_limit() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = kept(&folder, 250, None);
        for byte in 1..=5 {
            pass(&mut kept, byte);
        }
        assert_eq!(kept.held().events.first_bytes(), [4, 5]);
        assert_eq!(kept.held_bytes().load(Ordering::Relaxed), 200);
        assert_eq!(files(&folder), 3, "perf.data and two pieces");
    }

    #[test]
    fn old_passes_are_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = kept(&folder, 1 << 20, Some(Duration::from_millis(80)));
        pass(&mut kept, 1);
        std::thread::sleep(Duration::from_millis(120));
        pass(&mut kept, 2);
        assert_eq!(kept.held().events.first_bytes(), [2]);
        assert_eq!(files(&folder), 2);
    }

    /// The ranges that a snapshot says were recorded.
    fn ranges(kept: &Buffer) -> (u64, u64) {
        let record = kept.held().recorded;
        let text = String::from_utf8_lossy(&record);
        let digits = |letter: char| letter.is_ascii_digit() || letter == '.';
        let mut words = text.split(|letter| !digits(letter));
        let range = words.find(|word| word.contains("..")).unwrap();
        let (begin, end) = range.split_once("..").unwrap();
        (begin.parse().unwrap(), end.parse().unwrap())
    }

    #[test]
    fn what_is_held_was_recorded_since_what_was_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = kept(&folder, 250, None);
        let recorded = Recorded::default();
        recorded.begin(5);
        kept.follow(recorded.clone(), Some(7));
        assert_eq!(kept.held().recorded, b"", "no pass has ended");
        kept.end_pass().unwrap();
        pass(&mut kept, 1);
        // Quiet time before the first event was recorded.
        assert_eq!(ranges(&kept).0, 5);
        pass(&mut kept, 2);
        let of_all = ranges(&kept);
        pass(&mut kept, 3);
        let (begin, end) = ranges(&kept);
        assert_eq!(kept.held().events.first_bytes(), [2, 3]);
        assert!(of_all.0 == 5 && begin > 5, "{of_all:?}, {begin}");
        assert!(begin < of_all.1 && of_all.1 <= end);
        recorded.end(end + 1);
        pass(&mut kept, 4);
        assert_eq!(ranges(&kept).1, end + 1);
    }

    #[test]
    fn snapshots_are_not_changed_by_later_passes() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = kept(&folder, 150, None);
        pass(&mut kept, 1);
        let held = kept.held();
        pass(&mut kept, 2);
        assert_eq!(held.events.first_bytes(), [1]);
        assert_eq!(kept.held().events.first_bytes(), [2]);
    }
}
