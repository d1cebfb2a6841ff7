//! The placement of a trace by events that another recorded too.
//!
//! ```text
//! a   read  write  poll  read  futex …      sequences of eight that occur once in each trace are the same events
//! b         read  write  poll  read  futex …
//! ```

use std::hash::Hash;

use hashbrown::HashMap;

use super::line::{Line, median};
use super::{DRIFT_MAX, Method, Placement};
use crate::unit::in_fitting_unit;

/// Common events, at least.
pub const PAIRS_MIN: usize = 20;

/// Largest median distance of the common events from the map, in nanoseconds.
const SPREAD_MAX: i64 = 1_000_000;

/// Two clocks of computers differ by less, in parts per million.
const USUAL_DRIFT: i64 = 200;

/// Events of a sequence.
const SEQUENCE: usize = 8;

/// Keys of a trace in memory, at most. Beyond, those with some hashes are left out: the same in both traces.
const KEYS_MAX: usize = 4 << 20;

/// The keys of a trace's events: single ones and sequences. Only those that occur once are of use.
#[derive(Debug, Default)]
pub struct Keys {
    /// Time of each key; `None` if it occurs twice.
    times: HashMap<u64, Option<i64>>,
    /// The last keys of each stream.
    streams: HashMap<u64, Vec<u64>>,
    /// Only keys without these bits are kept.
    left_out: u64,
    rows: u64,
}

impl Keys {
    /// Adds an event: of a stream, such as the events of a CPU, whose sequences count as well. Events of a stream come in the
    /// order of time.
    pub fn add(&mut self, time: i64, stream: impl Hash, key: impl Hash) {
        // Seeds are the same in every process: the answer never depends on them.
        let hasher = ahash::RandomState::with_seeds(1, 2, 3, 4);
        let (stream, key) = (hasher.hash_one(stream), hasher.hash_one(key));
        self.rows += 1;
        let last = self.streams.entry(stream).or_default();
        last.push(key);
        let single = hasher.hash_one((1u8, stream, key));
        let sequence = (last.len() == SEQUENCE).then(|| {
            let sequence = hasher.hash_one((2u8, stream, last.as_slice()));
            last.remove(0);
            sequence
        });
        for key in [Some(single), sequence].into_iter().flatten() {
            if key & self.left_out == 0 {
                let seen = self.times.entry(key);
                seen.and_modify(|time| *time = None).or_insert(Some(time));
            }
        }
        if self.times.len() > KEYS_MAX {
            self.left_out = self.left_out << 1 | 1;
            self.times.retain(|key, _| key & self.left_out == 0);
        }
    }

    /// Number of events.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Pairs of a time in `other` and the shift from it to the time in `self`, in the order of time.
    fn shifts(&self, other: &Keys) -> Vec<(i64, i64)> {
        let mut shifts: Vec<(i64, i64)> = other
            .times
            .iter()
            .filter_map(|(key, time)| {
                let (own, time) = ((*self.times.get(key)?)?, (*time)?);
                Some((time, own.checked_sub(time)?))
            })
            .collect();
        shifts.sort_unstable();
        // Several keys may end in one event.
        shifts.dedup();
        shifts
    }
}

/// Places the trace with the events `other` on the timeline of the one with the events `reference`.
///
/// # Errors
///
/// Too few events occur once in both, or their times do not agree on one map; the text has the numbers.
pub fn placement(reference: &Keys, other: &Keys) -> Result<Placement, String> {
    let shifts = reference.shifts(other);
    if shifts.len() < PAIRS_MIN {
        return Err(format!(
            "{} common events, of {} and {}; expected at least {PAIRS_MIN}",
            shifts.len(),
            reference.rows,
            other.rows
        ));
    }
    let mut near = most_common(&shifts);
    let mut line = Line::through(&near).ok_or("no common time")?;
    let mut spread = i64::MAX;
    for _ in 0..4 {
        let distance = |&(time, shift): &(i64, i64)| (i128::from(shift) - line.at(time)).abs();
        let mut distances: Vec<i128> = near.iter().map(distance).collect();
        spread = i64::try_from(median(&mut distances)).unwrap_or(i64::MAX);
        let limit = i128::from(spread) * 6 + 1_000;
        near = shifts
            .iter()
            .copied()
            .filter(|pair| distance(pair) <= limit)
            .collect();
        line = Line::through(&near).ok_or("no common time")?;
    }
    if near.len() < PAIRS_MIN || near.len() * 2 < shifts.len() {
        return Err(format!(
            "{} of {} common events agree on a shift; expected half of them, and at least {PAIRS_MIN}",
            near.len(),
            shifts.len()
        ));
    }
    if spread > SPREAD_MAX {
        return Err(format!(
            "common events are {} apart in the median; expected at most {}",
            in_fitting_unit(spread as f64),
            in_fitting_unit(SPREAD_MAX as f64)
        ));
    }
    Ok(Placement {
        origin: line.origin,
        shift: line.value,
        drift: line.slope.clamp(-DRIFT_MAX, DRIFT_MAX),
        method: Method::Events,
        error: Some(spread),
        pairs: near.len() as u64,
    })
}

/// The pairs around the most common shift.
fn most_common(shifts: &[(i64, i64)]) -> Vec<(i64, i64)> {
    let times = shifts.iter().map(|pair| pair.0);
    let span = times
        .clone()
        .max()
        .unwrap_or(0)
        .saturating_sub(times.min().unwrap_or(0));
    let width = (span / 1_000_000)
        .saturating_mul(USUAL_DRIFT)
        .max(SPREAD_MAX);
    let mut bins: HashMap<i64, usize> = HashMap::new();
    for &(_, shift) in shifts {
        *bins.entry(shift.div_euclid(width)).or_default() += 1;
    }
    // The shifts may be on both sides of a limit.
    let both = |bin: i64| {
        let count = |bin: i64| bins.get(&bin).copied().unwrap_or_default();
        count(bin) + count(bin.saturating_add(1))
    };
    let best = bins
        .keys()
        .copied()
        .max_by_key(|&bin| (both(bin), -i128::from(bin)));
    let Some(best) = best else {
        return Vec::new();
    };
    let is_near = |shift: i64| [best, best.saturating_add(1)].contains(&shift.div_euclid(width));
    shifts
        .iter()
        .copied()
        .filter(|pair| is_near(pair.1))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys at some times: like the commands that CPUs run, with few different ones.
    fn numbers() -> impl Iterator<Item = (i64, u64)> {
        let mut state = 88_172_645_463_325_252u64;
        let mut time = 5_000_000_000i64;
        std::iter::repeat_with(move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            time += 1_000 + (state % 3_000_000) as i64;
            (time, state >> 60)
        })
    }

    #[test]
    fn sequences_find_the_shift_and_the_drift() {
        let (mut reference, mut other) = (Keys::default(), Keys::default());
        for (number, (time, key)) in numbers().take(20_000).enumerate() {
            // Each lacks a part, and stamps the same event up to 700 ns apart.
            if number < 18_000 {
                reference.add(time, 0, key);
            }
            if number > 3_000 {
                let late = (number % 8 * 100) as i64;
                other.add(time - 77_000_000_000 - time / 1_000_000 * 20 + late, 0, key);
            }
        }
        let placement = placement(&reference, &other).unwrap();
        let other_time = |time: i64| time - 77_000_000_000 - time / 1_000_000 * 20;
        for time in [10_000_000_000, 20_000_000_000] {
            let found = placement.place(other_time(time)).unwrap();
            assert!(
                (found - time).abs() < 1_000,
                "{placement:?} {}",
                found - time
            );
        }
        assert!((19_500..20_500).contains(&placement.drift), "{placement:?}");
        assert!(
            placement.error.unwrap() < 400 && placement.pairs > 10_000,
            "{placement:?}"
        );
    }

    #[test]
    fn traces_of_different_events_are_refused() {
        let (mut reference, mut other) = (Keys::default(), Keys::default());
        for (time, key) in numbers().take(5_000) {
            reference.add(time, 0, key);
        }
        for (time, key) in numbers().skip(5_000).take(5_000) {
            other.add(time, 0, key);
        }
        assert!(
            placement(&reference, &other)
                .unwrap_err()
                .contains("expected at least")
        );
    }

    #[test]
    fn names_that_recur_at_other_times_are_refused() {
        let (mut reference, mut other) = (Keys::default(), Keys::default());
        for (number, (time, _)) in numbers().take(500).enumerate() {
            reference.add(time, 0, number);
            other.add(time + (number as i64 * 7_919 % 500) * 40_000_000, 0, number);
        }
        assert!(
            placement(&reference, &other)
                .unwrap_err()
                .contains("agree on a shift")
        );
    }
}
