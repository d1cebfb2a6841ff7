//! Permutation test of repeated runs: which run belongs to which side is shuffled.

use super::statistic::{Random, Series, over, p_of, ratio};

/// With fewer runs on a side, no p-value below the level exists: 3 against 3 can be divided in 20 ways, two of which
/// are the extremes.
pub(super) const RUNS_MIN: usize = 4;
/// Number of random shuffles if there are more permutations than this.
const SHUFFLES: usize = 5_000;

/// Returns the p-value of each pair of sides; `None` if there are too few runs.
pub(super) fn test(pairs: &[[Series; 2]]) -> Option<Vec<Option<f64>>> {
    let runs = |side: usize| pairs.first().map_or(0, |pair| pair[side].numerators.len());
    let (left, right) = (runs(0), runs(1));
    if left.min(right) < RUNS_MIN {
        return None;
    }
    // In a run that never calls a function, its average does not exist: its values cannot be permuted.
    let rows: Vec<Option<Permuted>> = pairs.iter().map(Permuted::of).collect();
    let observed: Vec<bool> = (0..left + right).map(|run| run < left).collect();
    let found: Vec<Option<f64>> = rows
        .iter()
        .map(|row| row.as_ref().map(|row| row.statistic(&observed)))
        .collect();
    let largest = |labels: &[bool]| {
        let statistics = rows.iter().flatten().map(|row| row.statistic(labels));
        statistics.fold(0.0, f64::max)
    };
    let shuffled: Vec<f64> = match ways(left + right, left) {
        Some(count) if count <= SHUFFLES => every_labelling(left + right, left)
            .iter()
            .map(|labels| largest(labels))
            .collect(),
        _ => {
            let mut random = Random::default();
            let mut labels = observed.clone();
            let shuffles = (1..SHUFFLES).map(|_| {
                random.shuffle(&mut labels);
                largest(&labels)
            });
            // The observed labeling is one of them.
            let own = found.iter().flatten().copied().fold(0.0, f64::max);
            std::iter::once(own).chain(shuffles).collect()
        }
    };
    Some(p_of(&found, &shuffled))
}

/// The values of all runs, and their variance from counting.
struct Permuted {
    values: Vec<f64>,
    floors: Vec<f64>,
}

impl Permuted {
    fn of(pair: &[Series; 2]) -> Option<Permuted> {
        let (mut values, mut floors) = (Vec::new(), Vec::new());
        for side in pair {
            for (&up, &down) in side.numerators.iter().zip(&side.denominators) {
                values.push(ratio(up, down)?);
                floors.push(up * side.counting_variance / (down * down));
            }
        }
        Some(Permuted { values, floors })
    }

    /// |t| of Welch: the difference of the means over its standard error.
    fn statistic(&self, is_left: &[bool]) -> f64 {
        let (mut sums, mut squares, mut floors, mut counts) =
            ([0.0; 2], [0.0; 2], [0.0; 2], [0.0; 2]);
        for ((&value, &floor), &is_left) in self.values.iter().zip(&self.floors).zip(is_left) {
            let side = usize::from(!is_left);
            sums[side] += value;
            squares[side] += value * value;
            floors[side] += floor;
            counts[side] += 1.0;
        }
        let mut variance = 0.0;
        for side in 0..2 {
            let count: f64 = counts[side];
            let mean = sums[side] / count;
            let between = (squares[side] - count * mean * mean).max(0.0) / (count - 1.0);
            variance += between.max(floors[side] / count) / count;
        }
        let difference = (sums[0] / counts[0] - sums[1] / counts[1]).abs();
        over(difference, variance.sqrt())
    }
}

/// Returns the number of ways to choose `chosen` of `all`; `None` if it is very large.
fn ways(all: usize, chosen: usize) -> Option<usize> {
    (0..chosen.min(all - chosen)).try_fold(1usize, |ways, step| {
        Some(ways.checked_mul(all - step)? / (step + 1)).filter(|&ways| ways < 1 << 40)
    })
}

/// Returns every choice of `chosen` of `all`.
fn every_labelling(all: usize, chosen: usize) -> Vec<Vec<bool>> {
    let mut found = Vec::new();
    let mut labels = vec![false; all];
    fn choose(from: usize, left: usize, labels: &mut Vec<bool>, found: &mut Vec<Vec<bool>>) {
        if left == 0 {
            found.push(labels.clone());
            return;
        }
        for place in from..=labels.len() - left {
            labels[place] = true;
            choose(place + 1, left - 1, labels, found);
            labels[place] = false;
        }
    }
    choose(0, chosen, &mut labels, &mut found);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_are_counted() {
        assert_eq!(ways(8, 4), Some(70));
        assert_eq!(ways(20, 10), Some(184_756));
        assert_eq!(ways(200, 100), None);
        assert_eq!(every_labelling(8, 4).len(), 70);
    }
}
