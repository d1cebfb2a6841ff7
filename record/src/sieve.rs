//! Drops hits from before the start of the recording, from pauses, from after its end, and duplicates recorded by two events. Gives samples
//! that the kernel marked with the ID of another event that of their own ([`SharedHits`]).
//!
//! ```text
//! id 7, thread 41: hit        id 9, thread 41: the same hit        id 7, thread 41: the next hit
//! ```
//! Events of running threads record from the time they are opened, while others are still being opened
//! (`recording/open.rs`), and a thread started meanwhile may have an event twice, inherited and its own
//! (`recording/attach.rs`). Both write into the CPU's ring, one directly after the other. So for each event, thread and
//! CPU, only records that raise the largest count of any ID are kept, which is each hit once. If the ring had no room
//! for one of the two, a later hit may be dropped instead; it is one of those that the kernel counted as lost. Events
//! are stopped one by one, which takes a while for thousands of them, and a thread that moved to a CPU where its event
//! still ran would have a gap in its hits. So the recording ends for all events at one moment, before the first is
//! stopped. Only recordings that attach to threads need this during the whole recording; those without duplicates need
//! it only at the start.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use crate::journal::record::{self, kind};
use crate::periods::Periods;
use crate::recording::Recording;
use crate::shared_hits::{Owner, SharedHits};
use crate::sys::clock;

/// Maximum difference between the order of records in a ring and that of their times.
const MARGIN_NS: u64 = 1_000_000_000;

/// State of the events and the hits so far.
pub(crate) struct Sieve {
    events: HashMap<u64, EventOfThread>,
    /// Start of the recording.
    began: u64,
    /// End of the recording.
    ended_at: Option<u64>,
    /// Pauses whose hits may still be in the rings: begin and end.
    pauses: Vec<(u64, u64)>,
    /// Whether records are examined or just passed on.
    is_looking: bool,
    has_doubles: bool,
    /// Hits by ring.
    hits: Vec<HashMap<(usize, i32), Hits>>,
    /// Ended threads, whose earlier records may still be in the rings.
    ended: Vec<i32>,
    side_band: Stitcher,
    rings: Vec<Stitcher>,
    kept: Vec<u8>,
    /// Samples with IDs of other events, if there can be any.
    shared: Option<SharedHits>,
    /// Changed periods, if they can change.
    periods: Option<Arc<Mutex<Periods>>>,
}

#[derive(Debug, Clone, Copy)]
struct EventOfThread {
    track: usize,
    /// Whether its samples have an address before the thread.
    has_ip: bool,
}

/// Hits of an event in a thread on a CPU.
#[derive(Debug, Default)]
struct Hits {
    /// Counts by ID; nearly always one.
    counts: Vec<(u64, u64)>,
    /// The largest count.
    most: u64,
}

impl Hits {
    fn is_new(&mut self, id: u64) -> bool {
        let place = self.counts.iter().position(|(known, _)| *known == id);
        let place = place.unwrap_or_else(|| {
            self.counts.push((id, 0));
            self.counts.len() - 1
        });
        let count = &mut self.counts[place].1;
        *count += 1;
        let is_new = *count > self.most;
        self.most = self.most.max(*count);
        is_new
    }
}

impl Sieve {
    /// Creates a sieve for a recording with a start time and this many event rings.
    pub(crate) fn of(recording: &Recording, rings: usize, began: u64) -> Sieve {
        let tracks = recording.of_threads().enumerate();
        let events = tracks.flat_map(|(track, of)| {
            let has_ip = of.has_ip();
            let event = EventOfThread { track, has_ip };
            of.events.iter().map(move |opened| (opened.id, event))
        });
        Sieve {
            is_looking: recording.has_doubles || recording.runs_at_once,
            shared: SharedHits::of(recording, rings),
            ..Sieve::new(events.collect(), rings, (began, recording.has_doubles))
        }
    }

    fn new(
        events: HashMap<u64, EventOfThread>,
        rings: usize,
        (began, has_doubles): (u64, bool),
    ) -> Sieve {
        Sieve {
            events,
            began,
            ended_at: None,
            pauses: Vec::new(),
            is_looking: true,
            has_doubles,
            hits: (0..rings).map(|_| HashMap::new()).collect(),
            ended: Vec::new(),
            side_band: Stitcher::default(),
            rings: (0..rings).map(|_| Stitcher::default()).collect(),
            kept: Vec::new(),
            shared: None,
            periods: None,
        }
    }

    /// Gives samples the periods in `periods`, which a caller locks while it changes the events.
    pub(crate) fn correct(&mut self, periods: Arc<Mutex<Periods>>) {
        self.periods = Some(periods);
    }

    /// Sets the end of the recording, between two passes.
    pub(crate) fn end_at(&mut self, time: u64) {
        self.ended_at = Some(time);
        self.is_looking = true;
    }

    /// Drops the hits after `time`, until [`Sieve::resume_at`]. Called between two passes.
    pub(crate) fn pause_at(&mut self, time: u64) {
        self.pauses.push((time, u64::MAX));
        self.is_looking = true;
    }

    /// Keeps the hits from `time` on. Called between two passes.
    pub(crate) fn resume_at(&mut self, time: u64) {
        if let Some((_, end)) = self.pauses.last_mut() {
            *end = time;
        }
    }

    /// Scans a piece of the side-band for exits of threads. Pieces of a ring are passed in order.
    pub(crate) fn look(&mut self, piece: &[u8]) {
        if !self.has_doubles {
            return;
        }
        let ended = &mut self.ended;
        self.side_band.feed(piece, |record| {
            // PERF_RECORD_EXIT: header; u32 pid, ppid, tid, ptid; u64 time.
            if number(record, 0) == Some(kind::EXIT) {
                ended.extend(number(record, 16).map(|tid| tid as i32));
            }
        });
    }

    /// Passes on the kept part of a piece of the event ring `index`.
    pub(crate) fn sift(
        &mut self,
        index: usize,
        piece: &[u8],
        write: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let shared = self.periods.clone();
        // What a changed event wrote is read after the change: the lock is free only then.
        let periods = shared.as_deref().map(|periods| {
            // A change is added in one step, so it is whole even if its writer panicked.
            periods.lock().unwrap_or_else(PoisonError::into_inner)
        });
        let periods = periods.filter(|periods| !periods.is_empty());
        if !self.is_looking && self.shared.is_none() && periods.is_none() {
            return write(piece);
        }
        let Sieve {
            events,
            began,
            ended_at,
            pauses,
            has_doubles,
            hits,
            kept,
            shared,
            ..
        } = self;
        let (Some(stitcher), Some(hits)) = (self.rings.get_mut(index), hits.get_mut(index)) else {
            return write(piece);
        };
        kept.clear();
        stitcher.feed(piece, |record| {
            let owner = match shared {
                Some(shared) => shared.owner(index, record),
                None => Owner::Marked,
            };
            let own_id = match owner {
                Owner::Marked => None,
                Owner::Other(id) => Some(id),
                Owner::Double => return,
            };
            let is_wanted = hit_of(record, own_id, events).is_none_or(|hit| {
                let place = (hit.track, hit.tid);
                hit.time >= *began
                    && ended_at.is_none_or(|end| hit.time <= end)
                    && (!*has_doubles || hits.entry(place).or_default().is_new(hit.id))
                    && pauses
                        .iter()
                        .all(|(begin, end)| hit.time <= *begin || hit.time >= *end)
            });
            if is_wanted {
                let from = kept.len();
                kept.extend_from_slice(record);
                let of_id = from + record::SAMPLE_ID_AT;
                if let (Some(id), Some(place)) = (own_id, kept.get_mut(of_id..of_id + 8)) {
                    place.copy_from_slice(&id.to_ne_bytes());
                }
                if let Some(periods) = &periods {
                    periods.correct(&mut kept[from..]);
                }
            }
        });
        match kept.is_empty() {
            true => Ok(()),
            false => write(kept),
        }
    }

    /// Ends a pass over all rings.
    pub(crate) fn end_pass(&mut self) {
        let is_recent = |time: u64| clock::monotonic() <= time.saturating_add(MARGIN_NS);
        self.pauses.retain(|(_, end)| is_recent(*end));
        if !self.has_doubles {
            let has_limit = self.ended_at.is_some() || !self.pauses.is_empty();
            self.is_looking &= has_limit || is_recent(self.began);
            return;
        }
        if self.ended.is_empty() {
            return;
        }
        self.ended.sort_unstable();
        for hits in &mut self.hits {
            hits.retain(|(_, tid), _| self.ended.binary_search(tid).is_err());
        }
        self.ended.clear();
    }
}

/// A record written by an event of a thread.
struct Hit {
    id: u64,
    track: usize,
    tid: i32,
    time: u64,
}

/// `own_id` replaces that of the record.
fn hit_of(record: &[u8], own_id: Option<u64>, events: &HashMap<u64, EventOfThread>) -> Option<Hit> {
    let is_sample = match number(record, 0)? {
        kind::SAMPLE => true,
        kind::SWITCH => false,
        _ => return None,
    };
    let id = match is_sample {
        true => own_id.or_else(|| record::sample_id(record))?,
        false => record::trailer_id(record)?,
    };
    let event = events.get(&id)?;
    let (tid, time) = match is_sample {
        true => record::sample_tid_and_time(record, event.has_ip)?,
        false => (record::trailer_tid(record)?, record::trailer_time(record)?),
    };
    Some(Hit {
        id,
        track: event.track,
        tid,
        time,
    })
}

fn number(record: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*record.get(at..)?.first_chunk()?))
}

/// Assembles whole records from pieces that may end anywhere.
#[derive(Default)]
pub(crate) struct Stitcher {
    /// The beginning of a record.
    carried: Vec<u8>,
}

impl Stitcher {
    /// Passes the records that are whole with this piece.
    pub(crate) fn feed(&mut self, piece: &[u8], mut each: impl FnMut(&[u8])) {
        let mut rest = piece;
        while !self.carried.is_empty() && !rest.is_empty() {
            let wanted = size_of_record(&self.carried).unwrap_or(8);
            let missing = wanted.saturating_sub(self.carried.len());
            let (more, after) = rest.split_at(missing.min(rest.len()));
            self.carried.extend_from_slice(more);
            rest = after;
            if size_of_record(&self.carried).is_some_and(|size| size == self.carried.len()) {
                each(&self.carried);
                self.carried.clear();
            }
        }
        while let Some(size) = size_of_record(rest)
            && let Some((record, after)) = rest.split_at_checked(size)
        {
            each(record);
            rest = after;
        }
        self.carried.extend_from_slice(rest);
    }
}

/// Returns the size of a record; `None` if its head is incomplete. The kernel writes at least a head.
pub(crate) fn size_of_record(bytes: &[u8]) -> Option<usize> {
    let size = u16::from_ne_bytes(*bytes.get(6..)?.first_chunk()?);
    Some(usize::from(size).max(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(record: &[u8], at: usize) -> Option<u64> {
        Some(u64::from_ne_bytes(*record.get(at..)?.first_chunk()?))
    }

    fn sample(id: u64, tid: u32, hit: u64) -> Vec<u8> {
        let mut record = Vec::new();
        record.extend(kind::SAMPLE.to_ne_bytes());
        record.extend([0, 0, 40, 0]);
        record.extend(id.to_ne_bytes());
        record.extend(1u32.to_ne_bytes());
        record.extend(tid.to_ne_bytes());
        record.extend(hit.to_ne_bytes());
        record.extend([0; 8]);
        record
    }

    fn exit(tid: u32) -> Vec<u8> {
        let mut record = Vec::new();
        record.extend(kind::EXIT.to_ne_bytes());
        record.extend([0, 0, 32, 0]);
        for number in [1, 1, tid, 1, 0, 0] {
            record.extend(u32::to_ne_bytes(number));
        }
        record
    }

    fn sieve(began: u64) -> Sieve {
        let event = |track| EventOfThread {
            track,
            has_ip: false,
        };
        let events = [(7, event(0)), (9, event(0)), (8, event(1))];
        Sieve::new(HashMap::from(events), 1, (began, true))
    }

    /// Returns ID, thread and hit of the kept records, read in pieces of this many bytes.
    fn sifted(sieve: &mut Sieve, records: &[Vec<u8>], piece_bytes: usize) -> Vec<(u64, u32, u64)> {
        let mut left = Vec::new();
        for piece in records.concat().chunks(piece_bytes) {
            let sifted = sieve.sift(0, piece, &mut |bytes| {
                left.extend_from_slice(bytes);
                Ok(())
            });
            sifted.unwrap();
        }
        let of = |record: &[u8]| {
            let (id, tid, hit) = (long(record, 8), number(record, 20), long(record, 24));
            (id.unwrap(), tid.unwrap(), hit.unwrap())
        };
        left.chunks(40).map(of).collect()
    }

    #[test]
    fn each_hit_counts_once() {
        let records = [
            sample(7, 41, 1),
            sample(9, 41, 1),
            sample(8, 41, 1),
            // Of another thread, and of an event of no thread.
            sample(9, 42, 1),
            sample(1, 41, 1),
            sample(1, 41, 2),
            // Interrupted by a hit of the same event.
            sample(7, 41, 2),
            sample(7, 41, 3),
            sample(9, 41, 3),
            sample(9, 41, 2),
            // Of two duplicates, first one was lost, then the other.
            sample(9, 41, 4),
            sample(7, 41, 5),
            sample(7, 41, 6),
            sample(9, 41, 6),
        ];
        for piece_bytes in [1, 7, 8, 39, 40, 41, 1000] {
            let hits = sifted(&mut sieve(0), &records, piece_bytes);
            let of_thread = |id: &[u64], tid| {
                let hits = hits
                    .iter()
                    .filter(|hit| id.contains(&hit.0) && hit.1 == tid);
                hits.map(|hit| hit.2).collect::<Vec<_>>()
            };
            assert_eq!(of_thread(&[7, 9], 41).len(), 5, "{hits:?}");
            assert_eq!(of_thread(&[8], 41), [1]);
            assert_eq!(of_thread(&[9], 42), [1]);
            assert_eq!(of_thread(&[1], 41), [1, 2]);
        }
    }

    #[test]
    fn hits_before_the_start_are_dropped() {
        // The hit is at the position of the time.
        let records = [sample(7, 41, 99), sample(9, 41, 100), sample(7, 41, 101)];
        let hits = sifted(&mut sieve(100), &records, 1000);
        assert_eq!(hits, [(9, 41, 100)]);
        let mut single = Sieve::new(
            HashMap::from([(
                7,
                EventOfThread {
                    track: 0,
                    has_ip: false,
                },
            )]),
            1,
            (100, false),
        );
        let hits = sifted(&mut single, &[sample(7, 41, 99), sample(7, 41, 100)], 1000);
        assert_eq!(hits, [(7, 41, 100)]);
        single.end_pass();
        assert!(!single.is_looking);
    }

    #[test]
    fn hits_after_the_end_are_dropped() {
        for mut sieve in [
            sieve(0),
            Sieve {
                is_looking: false,
                ..sieve(0)
            },
        ] {
            // Until the end is known, all records in the rings are from before it.
            assert_eq!(sifted(&mut sieve, &[sample(7, 41, 99)], 1000).len(), 1);
            sieve.end_pass();
            sieve.end_at(100);
            // One CPU's event is stopped, the next one still runs; records of no thread pass.
            let records = [sample(7, 41, 100), sample(9, 42, 101), sample(1, 41, 102)];
            let left = sifted(&mut sieve, &records, 1000);
            assert_eq!(left, [(7, 41, 100), (1, 41, 102)]);
        }
    }

    #[test]
    fn reused_tid_starts_over() {
        let mut doubles = sieve(0);
        let first = [sample(7, 41, 1), sample(9, 41, 1), sample(7, 41, 2)];
        assert_eq!(sifted(&mut doubles, &first, 1000).len(), 2);
        doubles.look(&exit(41));
        // Records from before the end belong to the thread that ended.
        assert_eq!(sifted(&mut doubles, &[sample(9, 41, 2)], 1000), []);
        doubles.end_pass();
        assert_eq!(sifted(&mut doubles, &[sample(9, 41, 1)], 1000).len(), 1);
    }
}
