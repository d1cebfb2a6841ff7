//! Shares of an interval and of the whole recording, in bounded memory.

use std::collections::HashMap;
use std::hash::Hash;

/// Keys kept for the whole recording. At the limit, the lighter half is forgotten: each is far below the last digit of a share.
const KEPT: usize = 1 << 14;

/// Weights since the start.
pub(super) struct Ranking<K> {
    weights: HashMap<K, u64>,
    total: u128,
}

/// A key with its shares, from 0 to 1.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ranked<K> {
    pub(super) key: K,
    /// Of the interval.
    pub(super) now: f64,
    /// Of the whole recording.
    pub(super) all: f64,
}

impl<K: Hash + Eq + Ord + Clone> Ranking<K> {
    pub(super) fn new() -> Ranking<K> {
        Ranking {
            weights: HashMap::new(),
            total: 0,
        }
    }

    /// Adds the weights of an interval, `beyond` those of unknown keys. Returns all keys, those with the largest share of the interval
    /// first.
    pub(super) fn add(&mut self, weights: Vec<(K, u64)>, beyond: u64) -> Vec<Ranked<K>> {
        let mut now = HashMap::new();
        let mut total = u128::from(beyond);
        for (key, weight) in weights {
            total += u128::from(weight);
            let sum: &mut u64 = now.entry(key).or_default();
            *sum = sum.saturating_add(weight);
        }
        self.total += total;
        for (key, weight) in &now {
            let sum = self.weights.entry(key.clone()).or_default();
            *sum = sum.saturating_add(*weight);
        }
        let mut ranked: Vec<Ranked<K>> = self
            .weights
            .iter()
            .map(|(key, weight)| Ranked {
                key: key.clone(),
                now: share(now.get(key).copied().unwrap_or(0), total),
                all: share(*weight, self.total),
            })
            .collect();
        ranked.sort_by(|one, other| {
            let shares = (other.now, other.all);
            let order = shares.0.total_cmp(&one.now);
            let order = order.then(shares.1.total_cmp(&one.all));
            order.then_with(|| one.key.cmp(&other.key))
        });
        self.forget_light(KEPT);
        ranked
    }

    fn forget_light(&mut self, most: usize) {
        if self.weights.len() <= most {
            return;
        }
        let mut weights: Vec<u64> = self.weights.values().copied().collect();
        let middle = weights.len() / 2;
        let (_, &mut median, _) = weights.select_nth_unstable(middle);
        self.weights.retain(|_, weight| *weight > median);
    }
}

fn share(weight: u64, total: u128) -> f64 {
    match total {
        0 => 0.0,
        total => weight as f64 / total as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        ranking: &mut Ranking<&'static str>,
        weights: &[(&'static str, u64)],
        beyond: u64,
        expected: &[(&str, f64, f64)],
    ) {
        let ranked = ranking.add(weights.to_vec(), beyond);
        let rows: Vec<_> = ranked
            .iter()
            .map(|row| (row.key, row.now, row.all))
            .collect();
        assert_eq!(rows, expected);
    }

    #[test]
    fn shares_of_the_interval_come_first() {
        let mut ranking = Ranking::new();
        check(&mut ranking, &[], 0, &[]);
        check(
            &mut ranking,
            &[("a", 2), ("b", 1), ("a", 1)],
            0,
            &[("a", 0.75, 0.75), ("b", 0.25, 0.25)],
        );
        check(
            &mut ranking,
            &[("c", 1), ("b", 2)],
            1,
            &[("b", 0.5, 0.375), ("c", 0.25, 0.125), ("a", 0.0, 0.375)],
        );
        check(
            &mut ranking,
            &[],
            0,
            &[("a", 0.0, 0.375), ("b", 0.0, 0.375), ("c", 0.0, 0.125)],
        );
        check(
            &mut ranking,
            &[("a", u64::MAX), ("a", 1)],
            0,
            &[
                ("a", 1.0, 1.0),
                ("b", 0.0, 3.0 / u64::MAX as f64),
                ("c", 0.0, 1.0 / u64::MAX as f64),
            ],
        );
    }

    #[test]
    fn the_lighter_half_is_forgotten() {
        let mut ranking = Ranking::new();
        ranking.add((0..10).map(|key| (key, key)).collect(), 5);
        ranking.forget_light(10);
        assert_eq!(ranking.weights.len(), 10);
        ranking.forget_light(9);
        let mut kept: Vec<u64> = ranking.weights.keys().copied().collect();
        kept.sort_unstable();
        assert_eq!((kept, ranking.total), (vec![6, 7, 8, 9], 50));
    }
}
