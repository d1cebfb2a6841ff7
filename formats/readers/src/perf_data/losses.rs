//! Combines LOST and LOST_SAMPLES: each loss is counted once, and attributed to an event only if the kernel did so.
//!
//! ```text
//! LOST { id: 7, lost: 2321 }            lost in a ring that several events share
//! LOST_SAMPLES { id: 7, lost: 310 }     counted per event (PERF_FORMAT_LOST, Linux 6.0), written at the end
//! LOST_SAMPLES { id: 8, lost: 2030 }
//! losses: 2321 of NULL, 19 of NULL      event_types.lost: 310 and 2030
//! ```
//! The kernel writes LOST when there is space again, with the ID of the event that comes next, which is not necessarily
//! the one that lost records. The final counts (LOST_SAMPLES) include the losses already reported by LOST, so only the
//! difference is an additional loss. `perf inject -s` moves the final counts to the front, so they are stored until the
//! input ends.
//!
//! The kernel counts since the events were opened. `perf record --switch-output` writes these counts into the last of its files, and
//! LOST into each, so how much of the difference the last file has lost is not known: a loss without a count.

use perfquet_events::Error;
use perfquet_events::event::{Event, EventId, Loss};

use crate::perf_data::attr::{Attr, event_type};
use crate::perf_data::catalog::Catalog;
use crate::perf_data::output::Output;
use crate::perf_data::record::Trailer;
use crate::perf_data::values::known_cpu;

/// PERF_COUNT_SW_DUMMY: opened for names and mappings; it has no samples to lose.
const DUMMY: u64 = 9;
/// Maximum number of stored counts, one per event and CPU. Beyond it, counts are stored per event, then as one number.
const COUNTS_MAX: usize = 1 << 16;
const REASON: &str = "ring full";

/// Losses in rings, from both sources.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// From LOST, for rings shared by several events.
    shared: u64,
    /// From LOST, for rings of one event.
    of_events: Vec<(EventId, u64)>,
    at_the_end: Vec<Count>,
}

/// Final count of an event's losses on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Count {
    event: Option<EventId>,
    cpu: Option<u32>,
    time: Option<i64>,
    count: u64,
}

impl Losses {
    /// Adds losses reported by LOST.
    fn add(&mut self, event: Option<EventId>, count: u64) {
        let Some(event) = event else {
            self.shared = self.shared.saturating_add(count);
            return;
        };
        match self.of_events.iter_mut().find(|(known, _)| *known == event) {
            Some((_, sum)) => *sum = sum.saturating_add(count),
            None => self.of_events.push((event, count)),
        }
    }

    fn add_at_the_end(&mut self, count: Count) {
        if self.at_the_end.len() < COUNTS_MAX {
            self.at_the_end.push(count);
        } else if let Some(last) = self.at_the_end.last_mut() {
            last.count = last.count.saturating_add(count.count);
            (last.event, last.cpu) = (last.event.filter(|_| last.event == count.event), None);
        }
    }

    /// Returns the part of the final counts that LOST did not report: one loss per count, and one without an event for
    /// the part that cannot be attributed.
    fn rest(&mut self) -> Vec<(Count, u64)> {
        let mut rests = Vec::with_capacity(self.at_the_end.len());
        for count in std::mem::take(&mut self.at_the_end) {
            let reported = self
                .of_events
                .iter_mut()
                .find(|(event, _)| Some(*event) == count.event);
            let reported = reported.map_or(0, |(_, reported)| take(reported, count.count));
            let rest = count.count - reported;
            rests.push((
                Count {
                    count: rest,
                    ..count
                },
                rest,
            ));
        }
        let mut losing = rests
            .iter()
            .filter(|(_, rest)| *rest > 0)
            .map(|(count, _)| count.event);
        let first = losing.next();
        let is_of_one = losing.all(|event| Some(event) == first);
        if self.shared == 0 || is_of_one {
            for (_, rest) in &mut rests {
                *rest -= take(&mut self.shared, *rest);
            }
            return rests;
        }
        let sum = rests
            .iter()
            .fold(0u64, |sum, (_, rest)| sum.saturating_add(*rest));
        rests.iter_mut().for_each(|(_, rest)| *rest = 0);
        let nobodys = Count {
            event: None,
            cpu: None,
            time: rests.iter().filter_map(|(count, _)| count.time).max(),
            count: 0,
        };
        rests.push((nobodys, sum.saturating_sub(self.shared)));
        rests
    }
}

/// Removes up to `wanted` from `stock`; returns the amount removed.
fn take(stock: &mut u64, wanted: u64) -> u64 {
    let taken = wanted.min(*stock);
    *stock -= taken;
    taken
}

impl Losses {
    /// Handles LOST: records of a ring were lost, and the next one that fit had this ID.
    pub(super) fn lost_in_ring(
        &mut self,
        (id, count): (Option<u64>, u64),
        time: Option<i64>,
        trailer: &Trailer,
        catalog: &mut Catalog,
        out: &mut Output<'_>,
    ) -> Result<(), Error> {
        let event = event_of_ring(id.or(trailer.id), catalog, out)?;
        self.add(event, count);
        out.event(Event::Loss(Loss {
            time,
            cpu: known_cpu(trailer.cpu),
            event,
            count: Some(count),
            in_all: None,
            reason: REASON,
        }))
    }

    /// Handles LOST_SAMPLES written by a recorder at its end.
    pub(super) fn lost_in_all(
        &mut self,
        event: Option<EventId>,
        count: u64,
        time: Option<i64>,
        trailer: &Trailer,
    ) {
        let cpu = known_cpu(trailer.cpu);
        self.add_at_the_end(Count {
            event,
            cpu,
            time,
            count,
        });
    }

    /// Ends the input: emits the losses that only the final counts include.
    pub(super) fn finish(mut self, is_switched: bool, out: &mut Output<'_>) -> Result<(), Error> {
        if is_switched {
            return self.finish_one_of_several(out);
        }
        for (count, rest) in self.rest() {
            out.event(Event::Loss(Loss {
                time: count.time,
                cpu: count.cpu,
                event: count.event,
                count: Some(rest),
                in_all: Some(count.count),
                reason: REASON,
            }))?;
        }
        Ok(())
    }
}

impl Losses {
    /// Ends one of the files of `--switch-output`.
    fn finish_one_of_several(mut self, out: &mut Output<'_>) -> Result<(), Error> {
        let sum = |counts: &mut dyn Iterator<Item = u64>| counts.fold(0, u64::saturating_add);
        let in_all = sum(&mut self.at_the_end.iter().map(|count| count.count));
        let rest = sum(&mut self.rest().into_iter().map(|(_, rest)| rest));
        if rest == 0 {
            return Ok(());
        }
        out.missing(&format!(
            "{REASON}; {in_all} in all files of perf record --switch-output"
        ))
    }
}

/// Returns the event of a ring that is not shared.
fn event_of_ring(
    id: Option<u64>,
    catalog: &mut Catalog,
    out: &mut Output<'_>,
) -> Result<Option<EventId>, Error> {
    let Some(index) = catalog.index_of_id(id) else {
        return Ok(None);
    };
    let of_samples = |attr: &Attr| (attr.kind, attr.config) != (event_type::SOFTWARE, DUMMY);
    let sampling = catalog.iter().filter(|event| of_samples(&event.attr));
    let sampling_count = sampling.count();
    let is_sampling = catalog.get(index).map(|event| of_samples(&event.attr));
    let is_alone = catalog.len() == 1 || sampling_count == 1 && is_sampling == Some(true);
    if is_alone {
        catalog.event_of(index, out).map(Some)
    } else {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Option<EventId> = Some(EventId(0));
    const B: Option<EventId> = Some(EventId(1));

    /// Checks losses from LOST, final counts, and the difference.
    #[track_caller]
    fn check(
        reported: &[(Option<EventId>, u64)],
        at_the_end: &[(Option<EventId>, u64)],
        expected: &[(Option<EventId>, u64)],
    ) {
        let mut losses = Losses::default();
        reported
            .iter()
            .for_each(|&(event, count)| losses.add(event, count));
        for &(event, count) in at_the_end {
            let (cpu, time) = (None, None);
            losses.add_at_the_end(Count {
                event,
                cpu,
                time,
                count,
            });
        }
        let rests = losses.rest();
        let rests = rests.iter().filter(|(_, rest)| *rest > 0);
        let rests: Vec<_> = rests.map(|(count, rest)| (count.event, *rest)).collect();
        assert_eq!(rests, expected);
    }

    #[test]
    fn every_loss_is_counted_once() {
        check(&[], &[(A, 5), (B, 0), (A, 2)], &[(A, 5), (A, 2)]);
        check(&[(A, 6)], &[(A, 5), (A, 2)], &[(A, 1)]);
        // A shared ring: the remaining losses cannot be attributed.
        check(&[(None, 10)], &[(A, 5), (B, 7)], &[(None, 2)]);
        check(&[(None, 12)], &[(A, 5), (B, 7)], &[]);
        // Unless only one event has lost any.
        check(&[(None, 10)], &[(A, 5), (B, 0), (A, 7)], &[(A, 2)]);
        // Events that lost their last record before the end are counted by LOST alone.
        check(&[(None, 20)], &[(A, 5), (B, 7)], &[]);
        check(&[(A, u64::MAX), (A, 1)], &[(A, u64::MAX)], &[]);
    }
}
