//! Hits of software events that the kernel marked with the ID of another event.
//!
//! ```text
//! page fault at 700    page-faults:u, ID 7: sample with ID 7      page-faults, ID 9: sample with ID 7, too
//! ```
//! Since Linux 6.3, the kernel fills in a sample once for all software events of a hit, including the ID (kernel/events/core.c:
//! `do_perf_sw_event` passes one `perf_sample_data` to all, and `perf_prepare_sample` skips the fields in its `sample_flags`). So if two recorders record page faults, the second has samples with an ID that it
//! does not know; and if a recorder has two events of page faults, one has the hits of both. Tracepoints, clocks and hardware counters have a sample
//! of their own.

use std::collections::HashMap;

use crate::journal::record::{self, kind};
use crate::probe::counter;
use crate::recording::{Recording, Track};
use crate::sys::perf_event::abi;

/// The software events of a recording.
pub(crate) struct SharedHits {
    /// The index in `events` of each ID; `None` for events of other kinds.
    own: HashMap<u64, Option<usize>>,
    events: Vec<SoftwareEvent>,
    /// The last hit in each ring.
    last: Vec<Option<(Written, u32)>>,
    has_doubles: bool,
}

#[derive(Debug, Clone, Copy)]
struct SoftwareEvent {
    config: u64,
    id: u64,
    has_ip: bool,
    /// The other event of the same hits, if it is the only one.
    other: Option<usize>,
}

/// What the kernel wrote of a hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Written {
    id: u64,
    tid: i32,
    time: u64,
}

/// Whose a sample is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// That of its ID.
    Marked,
    /// The event with this ID.
    Other(u64),
    /// An event that has recorded the hit already.
    Double,
}

impl SharedHits {
    /// Returns `None` if the hits of no event may be marked as those of another. `rings` is the number of event rings.
    pub(crate) fn of(recording: &Recording, rings: usize) -> Option<SharedHits> {
        let mut hits = SharedHits {
            own: HashMap::new(),
            events: Vec::new(),
            last: vec![None; rings],
            has_doubles: recording.has_doubles,
        };
        for track in recording.of_threads().chain(&recording.outputs) {
            let Some(first) = track.events.first() else {
                continue;
            };
            let event = is_shared(track).then(|| {
                hits.events.push(SoftwareEvent {
                    config: track.attr.config,
                    id: first.id,
                    has_ip: track.has_ip(),
                    other: None,
                });
                hits.events.len() - 1
            });
            let ids = track.events.iter().map(|opened| (opened.id, event));
            hits.own.extend(ids);
        }
        hits.pair();
        (!hits.events.is_empty()).then_some(hits)
    }

    /// Finds the events of the same hits.
    fn pair(&mut self) {
        for index in 0..self.events.len() {
            let config = self.events[index].config;
            let of_config = self.events.iter().enumerate();
            let mut others = of_config
                .filter(|(other, event)| *other != index && event.config == config)
                .map(|(other, _)| other);
            let other = others.next();
            if others.next().is_none() {
                self.events[index].other = other;
            } else {
                log::warn!(
                    "more than two events of the same kind: since Linux 6.3, the kernel does not always tell their hits apart"
                );
                return;
            }
        }
    }

    /// Tells whose sample the next record of a ring is.
    pub(crate) fn owner(&mut self, ring: usize, sample: &[u8]) -> Owner {
        if record::kind_of(sample) != Some(kind::SAMPLE) {
            return Owner::Marked;
        }
        let Some(id) = record::sample_id(sample) else {
            return Owner::Marked;
        };
        let (index, is_foreign) = match self.own.get(&id) {
            Some(None) => return Owner::Marked,
            Some(Some(index)) => (*index, false),
            // Only software events have records with IDs of others; which, if there are several, is not known.
            None if self.events.len() == 1 => (0, true),
            None => return Owner::Marked,
        };
        let Some(event) = self.events.get(index) else {
            return Owner::Marked;
        };
        let marked = match is_foreign {
            true => Owner::Other(event.id),
            false => Owner::Marked,
        };
        let (Some((tid, time)), Some(last)) = (
            record::sample_tid_and_time(sample, event.has_ip),
            self.last.get_mut(ring),
        ) else {
            return marked;
        };
        let written = Written { id, tid, time };
        let turn = match last {
            Some((before, turn)) if *before == written => *turn + 1,
            _ => 0,
        };
        *last = Some((written, turn));
        let other = event.other.and_then(|other| self.events.get(other));
        match (turn, other) {
            (0, _) => marked,
            (1, Some(other)) => Owner::Other(other.id),
            // Inherited and its own: twice in a thread.
            _ if self.has_doubles => Owner::Double,
            _ => marked,
        }
    }
}

/// Whether the kernel uses one sample for all events of a hit.
fn is_shared(track: &Track) -> bool {
    let others = [abi::PERF_COUNT_SW_DUMMY, abi::PERF_COUNT_SW_BPF_OUTPUT];
    track.probe.is_sampled()
        && track.attr.type_ == abi::PERF_TYPE_SOFTWARE
        && !counter::is_clock(&track.attr)
        && !others
            .iter()
            .any(|&other| track.attr.config == u64::from(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sample of thread 41.
    fn sample(id: u64, time: u64) -> Vec<u8> {
        let mut record = Vec::new();
        record.extend(kind::SAMPLE.to_ne_bytes());
        record.extend([0, 0, 32, 0]);
        record.extend(id.to_ne_bytes());
        for number in [1u32, 41] {
            record.extend(number.to_ne_bytes());
        }
        record.extend(time.to_ne_bytes());
        record
    }

    /// Owners of samples with these IDs and times. 1 is an event of another kind, 7 and 9 are software events of these kinds.
    fn owners(kinds: &[u64], has_doubles: bool, samples: &[(u64, u64)]) -> Vec<Owner> {
        let ids = [7, 9];
        let mut own = HashMap::from([(1, None)]);
        own.extend(
            ids.into_iter()
                .zip(kinds)
                .enumerate()
                .map(|(index, (id, _))| (id, Some(index))),
        );
        let event = |(&config, id): (&u64, u64)| SoftwareEvent {
            config,
            id,
            has_ip: false,
            other: None,
        };
        let mut hits = SharedHits {
            own,
            events: kinds.iter().zip(ids).map(event).collect(),
            last: vec![None],
            has_doubles,
        };
        hits.pair();
        let owner = |&(id, time): &(u64, u64)| hits.owner(0, &sample(id, time));
        samples.iter().map(owner).collect()
    }

    #[test]
    fn samples_with_unknown_ids_are_those_of_the_only_software_event() {
        use Owner::{Double, Marked, Other};
        let samples = [(7, 1), (500, 2), (1, 2), (500, 3), (500, 3)];
        assert_eq!(
            owners(&[2], false, &samples),
            [Marked, Other(7), Marked, Other(7), Other(7)]
        );
        // A thread that has the event twice.
        assert_eq!(
            owners(&[2], true, &samples),
            [Marked, Other(7), Marked, Other(7), Double]
        );
        // Of which kind is not known.
        assert_eq!(owners(&[2, 3], false, &samples), [Marked; 5]);
        assert_eq!(owners(&[], false, &samples), [Marked; 5]);
    }

    #[test]
    fn the_second_sample_of_a_hit_is_that_of_the_other_event() {
        use Owner::{Double, Marked, Other};
        let samples = [(9, 1), (1, 1), (9, 1), (9, 2), (7, 3), (7, 3), (7, 3)];
        assert_eq!(
            owners(&[2, 2], false, &samples),
            [Marked, Marked, Other(7), Marked, Marked, Other(9), Marked]
        );
        assert_eq!(owners(&[2, 2], true, &samples)[6], Double);
        // Each with its own ID, as before Linux 6.3.
        assert_eq!(owners(&[2, 2], false, &[(9, 1), (7, 1)]), [Marked; 2]);
        assert_eq!(owners(&[2, 3], false, &samples), [Marked; 7]);
    }
}
