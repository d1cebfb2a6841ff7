//! Sampling periods of clocks that were changed while recording.
//!
//! The kernel writes the period of a sample that it counted for, except for clocks: their samples have the period with which the event was
//! opened (`last_period` in kernel/events/core.c, perf_swevent_init_hrtimer), also after PERF_EVENT_IOC_PERIOD. So the weights of
//! these samples are corrected before they are written.

use std::collections::HashMap;

use crate::sys::perf_event::{Attr, abi};

/// Number of changes that samples in the rings may still be older than.
const MOST_CHANGES: usize = 8;

/// Changes by the ID of the event.
#[derive(Debug, Default)]
pub(crate) struct Periods(HashMap<u64, Changes>);

#[derive(Debug, Default)]
struct Changes {
    /// Offset of the period in a sample.
    offset: usize,
    /// Time from which a period is in force, and the period; oldest first.
    since: Vec<(u64, u64)>,
}

impl Periods {
    /// Whether all samples have the right period.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a change of an event with an ID, from a time on.
    pub(crate) fn set(&mut self, id: u64, attr: &Attr, time: u64, period: u64) {
        let changes = self.0.entry(id).or_default();
        changes.offset = offset(attr);
        changes.since.push((time, period));
        if changes.since.len() > MOST_CHANGES {
            changes.since.remove(0);
        }
    }

    /// Corrects the period of a record, if it is a sample of an event whose period was changed.
    pub(crate) fn correct(&self, record: &mut [u8]) {
        let is_sample = record
            .first_chunk()
            .is_some_and(|head| u32::from_ne_bytes(*head) == abi::PERF_RECORD_SAMPLE);
        if is_sample
            && let Some(changes) = word(record, 8).and_then(|id| self.0.get(&id))
            && let Some(time) = word(record, 32)
            && let Some((_, period)) = changes.since.iter().rfind(|(since, _)| *since <= time)
            && let Some(place) = record.get_mut(changes.offset..changes.offset + 8)
        {
            place.copy_from_slice(&period.to_ne_bytes());
        }
    }
}

fn word(record: &[u8], at: usize) -> Option<u64> {
    let (word, _) = record.get(at..)?.split_first_chunk()?;
    Some(u64::from_ne_bytes(*word))
}

/// Offset of the period: after header, identifier, address of the code, thread, time, address of the data and CPU
/// (include/uapi/linux/perf_event.h, PERF_RECORD_SAMPLE).
fn offset(attr: &Attr) -> usize {
    let has_address = attr.sample_type & u64::from(abi::PERF_SAMPLE_ADDR) != 0;
    48 + if has_address { 8 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(id: u64, time: u64) -> Vec<u8> {
        let mut record = Vec::new();
        record.extend(abi::PERF_RECORD_SAMPLE.to_ne_bytes());
        record.extend([0, 0, 56, 0]);
        for word in [id, 0, 0, time, 0, 1_000] {
            record.extend(u64::to_ne_bytes(word));
        }
        record
    }

    #[test]
    fn samples_have_the_period_in_force() {
        let mut periods = Periods::default();
        assert!(periods.is_empty());
        periods.set(7, &Attr::default(), 100, 2_000);
        periods.set(7, &Attr::default(), 200, 8_000);
        let check = |id, time, expected: u64| {
            let mut record = sample(id, time);
            periods.correct(&mut record);
            assert_eq!(record[48..56], expected.to_ne_bytes());
            assert_eq!(record[..48], sample(id, time)[..48]);
        };
        check(7, 99, 1_000);
        check(7, 100, 2_000);
        check(7, 199, 2_000);
        check(7, 1_000, 8_000);
        check(8, 1_000, 1_000);
        // Neither a sample nor a whole one.
        let mut other = sample(7, 1_000);
        other[0] = 2;
        let before = other.clone();
        periods.correct(&mut other);
        assert_eq!(other, before);
        periods.correct(&mut sample(7, 1_000)[..50]);
        periods.correct(&mut []);
    }
}
