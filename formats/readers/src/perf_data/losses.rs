//! What LOST and LOST_SAMPLES say together: each loss once, and of an event only where the kernel said so.
//!
//! ```text
//! LOST { id: 7, lost: 2321 }            so many were lost in a ring that several events share
//! LOST_SAMPLES { id: 7, lost: 310 }     counted per event (PERF_FORMAT_LOST, Linux 6.0), written at the end
//! LOST_SAMPLES { id: 8, lost: 2030 }
//! losses: 2321 of NULL, 19 of NULL      event_types.lost: 310 and 2030
//! ```
//! The kernel writes LOST when there is room again, with the id of the event that comes next, whichever lost. The counts
//! at the end hold what LOST reported before, so only the rest is a loss of its own. `perf inject -s` puts these counts
//! first, so they are kept until the input has ended.

use perfquet_events::Error;
use perfquet_events::event::{Event, EventId, Loss};

use crate::perf_data::attr::{Attr, event_type};
use crate::perf_data::catalog::Catalog;
use crate::perf_data::output::Output;
use crate::perf_data::record::Trailer;
use crate::perf_data::values::known_cpu;

/// PERF_COUNT_SW_DUMMY: opened for names and mappings; it has no samples to lose.
const DUMMY: u64 = 9;
/// Counts kept: one per event and CPU. More are kept per event, then as one number.
const COUNTS_MAX: usize = 1 << 16;
const REASON: &str = "ring full";

/// Losses in rings, as told in two ways.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// By LOST, of rings that several events share.
    shared: u64,
    /// By LOST, of rings of one event.
    of_events: Vec<(EventId, u64)>,
    at_the_end: Vec<Count>,
}

/// What an event lost on a CPU, as it was counted at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Count {
    event: Option<EventId>,
    cpu: Option<u32>,
    time: Option<i64>,
    count: u64,
}

impl Losses {
    /// LOST reported this many.
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

    /// What the counts at the end hold beyond what LOST reported: one loss for each, and one of no event for what
    /// cannot be laid to any.
    fn rest(&mut self) -> Vec<(Count, u64)> {
        let mut rests = Vec::with_capacity(self.at_the_end.len());
        for count in std::mem::take(&mut self.at_the_end) {
            let told = self
                .of_events
                .iter_mut()
                .find(|(event, _)| Some(*event) == count.event);
            let told = told.map_or(0, |(_, told)| take(told, count.count));
            let rest = count.count - told;
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

/// Takes as much of `stock` as there is, at most `wanted`.
fn take(stock: &mut u64, wanted: u64) -> u64 {
    let taken = wanted.min(*stock);
    *stock -= taken;
    taken
}

impl Losses {
    /// LOST: records of a ring were lost, and an event with this id was the first that had room again.
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

    /// LOST_SAMPLES that a recorder wrote at its end.
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

    /// The input has ended: hands over what the counts at the end add to the losses.
    pub(super) fn finish(mut self, out: &mut Output<'_>) -> Result<(), Error> {
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

/// The event of a ring that no other shares.
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

    /// Losses told by LOST, counts at the end, and what these add.
    #[track_caller]
    fn check(
        told: &[(Option<EventId>, u64)],
        at_the_end: &[(Option<EventId>, u64)],
        expected: &[(Option<EventId>, u64)],
    ) {
        let mut losses = Losses::default();
        told.iter()
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
    fn every_loss_is_told_once() {
        check(&[], &[(A, 5), (B, 0), (A, 2)], &[(A, 5), (A, 2)]);
        check(&[(A, 6)], &[(A, 5), (A, 2)], &[(A, 1)]);
        // A shared ring: whose the last ones are, nobody says.
        check(&[(None, 10)], &[(A, 5), (B, 7)], &[(None, 2)]);
        check(&[(None, 12)], &[(A, 5), (B, 7)], &[]);
        // Unless only one has lost any.
        check(&[(None, 10)], &[(A, 5), (B, 0), (A, 7)], &[(A, 2)]);
        // Those that lost their last record before the end are counted by LOST alone.
        check(&[(None, 20)], &[(A, 5), (B, 7)], &[]);
        check(&[(A, u64::MAX), (A, 1)], &[(A, u64::MAX)], &[]);
    }
}
