//! The placement of a trace by messages between two hosts: none is received before it was sent.
//!
//! ```text
//! a ──1──►    ◄──2── a           1: the shift is at least that which makes the way last no time
//!    ╲           ╱               2: the shift is at most that
//!     ╲─► b ────╱                the middle between both limits; half the distance is the largest error
//! ```

use hashbrown::HashMap;

use super::{DRIFT_MAX, Method, Placement};
use crate::unit::in_fitting_unit;

/// Times of messages by their keys; `None` if a key occurs twice.
pub type Times = HashMap<String, Option<i64>>;

/// Shorter spans tell no drift, in nanoseconds.
const DRIFT_SPAN: i128 = 10_000_000_000;

/// What one host sent and received.
#[derive(Debug, Default)]
pub struct Messages {
    /// By key, when it was sent.
    pub sent: Times,
    /// By key, when it was received.
    pub received: Times,
}

impl Messages {
    /// Adds a time to a map.
    pub fn add(times: &mut Times, key: String, time: i64) {
        let seen = times.entry(key);
        seen.and_modify(|time| *time = None).or_insert(Some(time));
    }
}

/// Places the trace with the messages `other` on the timeline of the one with the messages `reference`.
///
/// # Errors
///
/// No messages were exchanged in one of the directions, or some would have been received before they were sent.
pub fn placement(reference: &Messages, other: &Messages) -> Result<Placement, String> {
    // Time in the other trace, and a limit of the shift.
    let limits = |own: &Times, others: &Times| -> Vec<(i128, i128)> {
        let pairs = own.iter().filter_map(|(key, time)| {
            let (time, other) = ((*time)?, (*others.get(key)?)?);
            Some((i128::from(other), i128::from(time) - i128::from(other)))
        });
        pairs.collect()
    };
    let lower = limits(&reference.sent, &other.received);
    let upper = limits(&reference.received, &other.sent);
    if lower.is_empty() || upper.is_empty() {
        return Err(format!(
            "{} messages to it, {} from it; expected both",
            lower.len(),
            upper.len()
        ));
    }
    let times = || lower.iter().chain(&upper).map(|limit| limit.0);
    let (first, last) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
    let origin = (first + last).div_euclid(2);
    // Limits at the origin, for a drift.
    let at = |drift: i64| {
        let moved = |&(time, limit): &(i128, i128)| {
            limit - ((time - origin) * i128::from(drift)).div_euclid(1_000_000_000)
        };
        let low = lower.iter().map(moved).max().unwrap_or(0);
        let high = upper.iter().map(moved).min().unwrap_or(0);
        (low, high)
    };
    let gap = |drift: i64| {
        let (low, high) = at(drift);
        high - low
    };
    let mut drift = 0;
    if last - first > DRIFT_SPAN {
        // The gap is concave in the drift.
        let (mut low, mut high) = (-DRIFT_MAX, DRIFT_MAX);
        while high - low > 2 {
            let (left, right) = (low + (high - low) / 3, high - (high - low) / 3);
            match gap(left) < gap(right) {
                true => low = left,
                false => high = right,
            }
        }
        drift = (low..=high).max_by_key(|&drift| gap(drift)).unwrap_or(0);
    }
    let (low, high) = at(drift);
    if low > high {
        return Err(format!(
            "of {} messages, some would be received {} before they were sent",
            lower.len() + upper.len(),
            in_fitting_unit((low - high) as f64)
        ));
    }
    let number = |value: i128| i64::try_from(value).map_err(|_| "too far away".to_owned());
    Ok(Placement {
        origin: number(origin)?,
        shift: number((low + high).div_euclid(2))?,
        drift,
        method: Method::Messages,
        error: Some(number((high - low + 1) / 2)?),
        pairs: (lower.len() + upper.len()) as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages between hosts whose clocks differ by `shift` and `drift` parts per million; ways last 40 to 90 us.
    fn exchanged(count: i64, shift: i64, drift: i64) -> [Messages; 2] {
        let mut both = [Messages::default(), Messages::default()];
        for number in 0..count {
            let sent = number * 100_000_000;
            let received = sent + 40_000 + number * 7_919 % 50_000;
            let there = |time: i64| time - shift - time / 1_000_000 * drift;
            let key = number.to_string();
            let [a, b] = &mut both;
            if number % 2 == 0 {
                Messages::add(&mut a.sent, key.clone(), sent);
                Messages::add(&mut b.received, key, there(received));
            } else {
                Messages::add(&mut b.sent, key.clone(), there(sent));
                Messages::add(&mut a.received, key, received);
            }
        }
        both
    }

    #[test]
    fn messages_in_both_directions_limit_the_shift() {
        for (count, drift) in [(80, 0), (2_000, 30)] {
            let [a, b] = exchanged(count, 12_345_678_901, drift);
            let placement = placement(&a, &b).unwrap();
            let error = placement.error.unwrap();
            assert!(error < 90_000, "{placement:?}");
            for time in [0i64, count * 100_000_000] {
                let there = time - 12_345_678_901 - time / 1_000_000 * drift;
                let found = placement.place(there).unwrap();
                assert!(
                    (found - time).abs() < error + 20_000,
                    "{placement:?} {}",
                    found - time
                );
            }
            assert!(
                (placement.drift - drift * 1_000).abs() < 2_000,
                "{placement:?}"
            );
            assert_eq!(placement.pairs, count.unsigned_abs());
        }
    }

    #[test]
    fn one_direction_is_not_enough_and_contradictions_are_refused() {
        let [mut a, b] = exchanged(80, 5, 0);
        a.received.clear();
        assert!(
            placement(&a, &b)
                .unwrap_err()
                .contains("40 messages to it, 0 from it")
        );
        let [mut a, b] = exchanged(80, 5, 0);
        a.received
            .values_mut()
            .for_each(|time| *time = time.map(|time| time - 1_000_000));
        assert!(
            placement(&a, &b)
                .unwrap_err()
                .contains("before they were sent")
        );
    }
}
