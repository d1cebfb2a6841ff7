//! What a flight recorder holds: the bytes of the last passes over the rings.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Limit;
use super::side_band::SideBand;
use super::slow::Watch;
use super::snapshot::Asker;
use crate::sys::clock;

/// The bytes of one pass over the events' rings; whole records, ring by ring.
struct Segment {
    bytes: Vec<u8>,
    /// Nothing in it is younger.
    until: u64,
}

/// Everything that a trace is made of, at one moment.
pub(crate) struct Held {
    /// Facts, events, formats.
    pub(crate) head: Arc<Vec<u8>>,
    /// Who is who.
    pub(crate) side_band: Vec<u8>,
    segments: Vec<Arc<Segment>>,
}

impl Held {
    /// The records of the events, piece by piece.
    pub(crate) fn events(&self) -> impl Iterator<Item = &[u8]> {
        self.segments.iter().map(|segment| &segment.bytes[..])
    }
}

/// A flight recorder's memory.
pub(crate) struct Kept {
    limit: Limit,
    head: Arc<Vec<u8>>,
    side_band: SideBand,
    segments: VecDeque<Arc<Segment>>,
    segments_bytes: usize,
    /// Of the pass that goes on.
    pass: Vec<u8>,
    watch: Option<Watch>,
    asker: Asker,
    /// Bytes held, for whoever watches.
    held_bytes: Arc<AtomicU64>,
    has_told_size: bool,
}

impl Kept {
    /// Holds nothing yet but the journal's `head`. What is held when somebody asks, or when `watch` finds a slow call,
    /// goes through `asker`.
    pub(crate) fn new(limit: Limit, head: Vec<u8>, watch: Option<Watch>, asker: Asker) -> Kept {
        Kept {
            limit,
            head: Arc::new(head),
            side_band: SideBand::default(),
            segments: VecDeque::new(),
            segments_bytes: 0,
            pass: Vec::new(),
            watch,
            asker,
            held_bytes: Arc::default(),
            has_told_size: false,
        }
    }

    /// Bytes held, for whoever watches.
    pub(crate) fn held_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.held_bytes)
    }

    /// Takes a piece of a ring of the side-band; all pieces of a pass are whole records.
    pub(crate) fn side_band(&mut self, piece: &[u8]) {
        self.side_band.add(piece);
    }

    /// Takes a piece of a ring of the events.
    pub(crate) fn events(&mut self, piece: &[u8]) {
        self.pass.extend_from_slice(piece);
    }

    /// A pass over all rings is over: what is too old, or too much, goes.
    pub(crate) fn end_pass(&mut self) {
        let now = clock::monotonic();
        let mut slow = Vec::new();
        if !self.pass.is_empty() {
            if let Some(watch) = &mut self.watch {
                slow = watch.look(&self.pass);
            }
            let bytes = std::mem::take(&mut self.pass);
            self.segments_bytes += bytes.len();
            self.segments
                .push_back(Arc::new(Segment { bytes, until: now }));
        }
        self.trim(now);
        let horizon = self.segments.front().map_or(now, |first| first.until);
        self.side_band.forget_before(horizon);
        let bytes = self.segments_bytes + self.side_band.bytes().len();
        self.held_bytes.store(bytes as u64, Ordering::Relaxed);
        if let Some(why) = self.asker.wanted(slow) {
            self.asker.hand_over(why, self.held());
        }
    }

    fn trim(&mut self, now: u64) {
        let age = |segment: &Segment| Duration::from_nanos(now.saturating_sub(segment.until));
        while let Some(first) = self.segments.front() {
            let is_old = self.limit.age.is_some_and(|most| age(first) > most);
            // A pass that is larger than the limit is all there is: better too much than nothing.
            let is_much = self.segments_bytes > self.limit.bytes && self.segments.len() > 1;
            if !is_old && !is_much {
                return;
            }
            if !is_old && self.limit.age.is_some() && !self.has_told_size {
                self.has_told_size = true;
                log::warn!(
                    "--ring: {} MiB are full after {:.1} s, less than was asked for",
                    self.limit.bytes >> 20,
                    age(first).as_secs_f64()
                );
            }
            self.segments_bytes -= first.bytes.len();
            self.segments.pop_front();
        }
    }

    /// Everything held at this moment. The events are shared, not copied.
    pub(crate) fn held(&self) -> Held {
        Held {
            head: Arc::clone(&self.head),
            side_band: self.side_band.bytes().to_vec(),
            segments: self.segments.iter().cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(bytes: usize, age: Option<Duration>) -> Kept {
        Kept::new(Limit { age, bytes }, b"head".to_vec(), None, Asker::deaf())
    }

    fn pass(kept: &mut Kept, byte: u8) {
        kept.events(&[byte; 40]);
        kept.events(&[byte; 60]);
        kept.end_pass();
    }

    fn first_bytes(kept: &Kept) -> Vec<u8> {
        kept.held().events().map(|piece| piece[0]).collect()
    }

    #[test]
    fn the_oldest_goes_when_there_is_too_much() {
        let mut kept = kept(250, None);
        for byte in 1..=5 {
            pass(&mut kept, byte);
        }
        assert_eq!(first_bytes(&kept), [4, 5]);
        assert_eq!(kept.held_bytes().load(Ordering::Relaxed), 200);
    }

    #[test]
    fn what_is_too_old_goes() {
        let mut kept = kept(1 << 20, Some(Duration::from_millis(80)));
        pass(&mut kept, 1);
        std::thread::sleep(Duration::from_millis(120));
        pass(&mut kept, 2);
        assert_eq!(first_bytes(&kept), [2]);
    }

    #[test]
    fn what_was_handed_out_stays_as_it_was() {
        let mut kept = kept(150, None);
        pass(&mut kept, 1);
        let held = kept.held();
        pass(&mut kept, 2);
        assert_eq!(held.events().next().unwrap(), [1; 100]);
        assert_eq!(first_bytes(&kept), [2]);
    }
}
