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
    let counts = [left as f64, right as f64];
    let found: Vec<Option<f64>> = rows
        .iter()
        .map(|row| {
            row.as_ref()
                .map(|row| row.statistics(&Labels::of(&observed), counts)[0])
        })
        .collect();
    let rows: Vec<Permuted> = rows.into_iter().flatten().collect();
    let mut shuffled = Largest::new(&rows, counts);
    match ways(left + right, left) {
        Some(count) if count <= SHUFFLES => {
            for labels in every_labelling(left + right, left) {
                shuffled.add(&labels);
            }
        }
        _ => {
            let mut random = Random::default();
            let mut labels = observed;
            // The observed labeling is one of them.
            shuffled.add(&labels);
            for _ in 1..SHUFFLES {
                random.shuffle(&mut labels);
                shuffled.add(&labels);
            }
        }
    }
    Some(p_of(&found, &shuffled.finish()))
}

/// Labelings that are tried at once: the values are read once for all of them.
const LANES: usize = 4;

/// For each run, 1 in the labelings in which it is on the left side, otherwise 0.
#[derive(Default)]
struct Labels(Vec<[f64; LANES]>);

impl Labels {
    /// The same labeling everywhere.
    fn of(is_left: &[bool]) -> Labels {
        let label = |&is_left: &bool| [f64::from(u8::from(is_left)); LANES];
        Labels(is_left.iter().map(label).collect())
    }
}

/// The largest statistic of all values in each labeling.
struct Largest<'r> {
    rows: &'r [Permuted],
    counts: [f64; 2],
    pending: Labels,
    count: usize,
    found: Vec<f64>,
}

impl<'r> Largest<'r> {
    fn new(rows: &'r [Permuted], counts: [f64; 2]) -> Largest<'r> {
        Largest {
            rows,
            counts,
            pending: Labels::default(),
            count: 0,
            found: Vec::new(),
        }
    }

    fn add(&mut self, is_left: &[bool]) {
        match self.count {
            0 => self.pending = Labels::of(is_left),
            lane => {
                for (label, &is_left) in self.pending.0.iter_mut().zip(is_left) {
                    label[lane] = f64::from(u8::from(is_left));
                }
            }
        }
        self.count += 1;
        if self.count == LANES {
            self.try_pending();
        }
    }

    fn try_pending(&mut self) {
        let mut largest = [0.0; LANES];
        for row in self.rows {
            let statistics = row.statistics(&self.pending, self.counts);
            for (largest, statistic) in largest.iter_mut().zip(statistics) {
                *largest = f64::max(*largest, statistic);
            }
        }
        self.found.extend(&largest[..self.count]);
        self.count = 0;
    }

    fn finish(mut self) -> Vec<f64> {
        if self.count > 0 {
            self.try_pending();
        }
        self.found
    }
}

/// The values of the runs that have any, and their variance from counting.
struct Permuted {
    /// Run, value and variance.
    known: Vec<(u32, f64, f64)>,
}

impl Permuted {
    fn of(pair: &[Series; 2]) -> Option<Permuted> {
        let (mut known, mut run) = (Vec::new(), 0);
        for side in pair {
            for (&up, &down) in side.numerators.iter().zip(side.denominators.iter()) {
                let value = ratio(up, down)?;
                let floor = up * side.counting_variance / (down * down);
                if value != 0.0 || floor != 0.0 {
                    known.push((run, value, floor));
                }
                run += 1;
            }
        }
        Some(Permuted { known })
    }

    /// |t| of Welch: the difference of the means over its standard error. Sides have `counts` runs; zeros add nothing.
    fn statistics(&self, labels: &Labels, counts: [f64; 2]) -> [f64; LANES] {
        let mut sums = [[0.0; LANES]; 2];
        let mut squares = [[0.0; LANES]; 2];
        let mut floors = [[0.0; LANES]; 2];
        for &(run, value, floor) in &self.known {
            let label = &labels.0[run as usize];
            for lane in 0..LANES {
                // By both sides, not by the difference to their sum: that would be rounded.
                for (side, is_there) in [label[lane], 1.0 - label[lane]].into_iter().enumerate() {
                    sums[side][lane] += value * is_there;
                    squares[side][lane] += value * value * is_there;
                    floors[side][lane] += floor * is_there;
                }
            }
        }
        std::array::from_fn(|lane| {
            let mut variance = 0.0;
            for side in 0..2 {
                let count: f64 = counts[side];
                let mean = sums[side][lane] / count;
                let between = (squares[side][lane] - count * mean * mean).max(0.0) / (count - 1.0);
                variance += between.max(floors[side][lane] / count) / count;
            }
            let difference = (sums[0][lane] / counts[0] - sums[1][lane] / counts[1]).abs();
            over(difference, variance.sqrt())
        })
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
