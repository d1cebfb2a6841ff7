//! Tests which of many values differ between two sides, with one error rate for all of them.
//!
//! ```text
//! runs:    4 or more repetitions per side   permutations: which run belongs to which side is shuffled
//! slices:  one recording per side           block bootstrap: time slices are drawn with replacement
//! ```
//! The test statistic *t* of a value is the difference between the sides divided by its standard error. Its p-value is
//! the share of shuffles in which the *largest* |t| of all values reaches the observed |t| (Westfall and Young 1993,
//! max-T): the probability of at least one false "significant" in a comparison is at most [`LEVEL`], however many
//! values are compared and however they depend on each other. A rank test per function, corrected for 500 functions,
//! would need at least nine runs per side to find anything.
//!
//! A standard error is at least that of counting the same number of independent events: two samples against none are
//! not significant.

/// A difference with a smaller p-value is significant.
pub(super) const LEVEL: f64 = 0.05;
/// With fewer runs on a side, no p-value below [`LEVEL`] exists: 3 against 3 can be divided in 20 ways, two of which
/// are the extremes.
pub(super) const RUNS_MIN: usize = 4;
/// Number of random shuffles if there are more permutations than this.
const SHUFFLES: usize = 5_000;

/// One value on one side, by run or slice.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Series {
    /// Sums, such as nanoseconds.
    pub(super) numerators: Vec<f64>,
    /// Divisors, such as calls or seconds.
    pub(super) denominators: Vec<f64>,
    /// Variance of a numerator of 1 from independent events.
    pub(super) counting_variance: f64,
}

/// Relation between the numbers of a side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replicates {
    /// Each is a run: a side is the mean of its runs.
    Runs,
    /// Each is a slice of one recording: a side is the ratio of the sums.
    Slices,
}

impl Series {
    /// Returns the value of this side; `None` if its divisors are zero.
    pub(super) fn value(&self, replicates: Replicates) -> Option<f64> {
        match replicates {
            Replicates::Runs => mean(&self.ratios()),
            Replicates::Slices => ratio(
                self.numerators.iter().sum(),
                self.denominators.iter().sum::<f64>(),
            ),
        }
    }

    fn ratios(&self) -> Vec<f64> {
        let pairs = self.numerators.iter().zip(&self.denominators);
        pairs.filter_map(|(&up, &down)| ratio(up, down)).collect()
    }
}

fn ratio(numerator: f64, denominator: f64) -> Option<f64> {
    (denominator > 0.0).then(|| numerator / denominator)
}

fn mean(values: &[f64]) -> Option<f64> {
    ratio(values.iter().sum(), values.len() as f64)
}

/// Returns the p-value of each pair of sides; `None` where a side has no value. Returns `None` if there are too few
/// runs.
pub(super) fn p_values(pairs: &[[Series; 2]], replicates: Replicates) -> Option<Vec<Option<f64>>> {
    match replicates {
        Replicates::Runs => by_permutation(pairs),
        Replicates::Slices => Some(by_bootstrap(pairs)),
    }
}

fn by_permutation(pairs: &[[Series; 2]]) -> Option<Vec<Option<f64>>> {
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

/// Divides a difference by its standard error; 0 for equal values.
fn over(difference: f64, error: f64) -> f64 {
    if difference == 0.0 {
        0.0
    } else {
        difference / error.max(f64::MIN_POSITIVE)
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

/// Resamples the slices of each side with replacement, and measures how far the difference deviates from the observed
/// one.
fn by_bootstrap(pairs: &[[Series; 2]]) -> Vec<Option<f64>> {
    const ROUNDS: usize = 2_000;
    let mut random = Random::default();
    let observed: Vec<Option<f64>> = pairs.iter().map(difference).collect();
    // Deviations by pair and round: every pair's standard error comes from all its rounds.
    let mut strays: Vec<Vec<f64>> = pairs.iter().map(|_| Vec::new()).collect();
    let slices = |side: usize| pairs.first().map_or(0, |pair| pair[side].numerators.len());
    let mut drawn = [vec![0u32; slices(0)], vec![0u32; slices(1)]];
    for _ in 0..ROUNDS {
        for side in &mut drawn {
            random.draw(side);
        }
        for ((pair, &observed), strays) in pairs.iter().zip(&observed).zip(&mut strays) {
            let (Some(observed), Some(redrawn)) = (observed, redrawn(pair, &drawn)) else {
                continue;
            };
            strays.push(redrawn - observed);
        }
    }
    let errors: Vec<f64> = pairs
        .iter()
        .zip(&strays)
        .map(|(pair, strays)| {
            let squares: f64 = strays.iter().map(|stray| stray * stray).sum();
            let variance = squares / strays.len().max(1) as f64;
            variance
                .max(pair.iter().map(counting_variance).sum())
                .sqrt()
        })
        .collect();
    let mut largest = vec![0.0_f64; ROUNDS];
    for (strays, &error) in strays.iter().zip(&errors) {
        // A value that is missing in some rounds is too rare to contribute to the largest.
        if strays.len() == ROUNDS {
            for (largest, stray) in largest.iter_mut().zip(strays) {
                *largest = largest.max(over(stray.abs(), error));
            }
        }
    }
    let found: Vec<Option<f64>> = observed
        .iter()
        .zip(&errors)
        .map(|(difference, &error)| difference.map(|value| over(value.abs(), error)))
        .collect();
    p_of(&found, &largest)
}

/// Returns the variance of a side's value from counting alone.
fn counting_variance(side: &Series) -> f64 {
    let up: f64 = side.numerators.iter().sum();
    let down: f64 = side.denominators.iter().sum();
    match down > 0.0 {
        true => up * side.counting_variance / (down * down),
        false => 0.0,
    }
}

fn difference(pair: &[Series; 2]) -> Option<f64> {
    let [left, right] = pair.each_ref().map(|side| side.value(Replicates::Slices));
    Some(right? - left?)
}

fn redrawn(pair: &[Series; 2], drawn: &[Vec<u32>; 2]) -> Option<f64> {
    let mut values = [0.0; 2];
    for (value, (side, drawn)) in values.iter_mut().zip(pair.iter().zip(drawn)) {
        let weigh = |numbers: &[f64]| -> f64 {
            let pairs = numbers.iter().zip(drawn);
            pairs
                .map(|(number, &times)| number * f64::from(times))
                .sum()
        };
        *value = ratio(weigh(&side.numerators), weigh(&side.denominators))?;
    }
    Some(values[1] - values[0])
}

/// Returns the share of shuffles whose largest statistic reaches each observed one.
fn p_of(found: &[Option<f64>], largest: &[f64]) -> Vec<Option<f64>> {
    let mut sorted = largest.to_vec();
    sorted.sort_by(f64::total_cmp);
    let p = |found: f64| {
        if found == 0.0 {
            return 1.0;
        }
        // The observed shuffle itself may differ in the last bit.
        let below = sorted.partition_point(|&one| one < found * (1.0 - 1e-9));
        let reached = sorted.len() - below;
        reached.max(1) as f64 / sorted.len().max(1) as f64
    };
    found.iter().map(|found| found.map(p)).collect()
}

/// SplitMix64 (Steele, Lea and Flood 2014), with a fixed seed: a comparison prints the same p on every run.
struct Random(u64);

impl Default for Random {
    fn default() -> Random {
        Random(0x9e37_79b9_7f4a_7c15)
    }
}

impl Random {
    /// Returns a number below `end`, which is small compared with 2^32.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        ((u128::from(mixed) * end as u128) >> 64) as usize
    }

    fn shuffle(&mut self, labels: &mut [bool]) {
        for last in (1..labels.len()).rev() {
            labels.swap(last, self.below(last + 1));
        }
    }

    /// Draws slices with replacement, and counts how often each is drawn.
    fn draw(&mut self, times: &mut [u32]) {
        times.fill(0);
        for _ in 0..times.len() {
            let slice = self.below(times.len());
            times[slice] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(values: &[f64]) -> Series {
        Series {
            numerators: values.to_vec(),
            denominators: vec![1.0; values.len()],
            counting_variance: 1.0,
        }
    }

    /// Simulates counts around a mean, as sampling produces them.
    fn noise(random: &mut Random, mean: usize, count: usize) -> Vec<f64> {
        let one = |random: &mut Random| {
            let heads = (0..4 * mean).filter(|_| random.below(4) == 0).count();
            heads as f64
        };
        (0..count).map(|_| one(random)).collect()
    }

    #[test]
    fn four_runs_can_be_significant_and_three_cannot() {
        let pair = |count| [runs(&vec![1000.0; count]), runs(&vec![2000.0; count])];
        let p = p_values(&[pair(4)], Replicates::Runs).unwrap();
        // Two of C(8, 4) = 70 ways are this far apart.
        assert_eq!(p, [Some(2.0 / 70.0)]);
        assert!(p_values(&[pair(3)], Replicates::Runs).is_none());
    }

    #[test]
    fn equal_sides_are_not_significant() {
        let same = [runs(&[5.0; 5]), runs(&[5.0; 5])];
        let p = p_values(std::slice::from_ref(&same), Replicates::Runs).unwrap();
        assert_eq!(p, [Some(1.0)]);
        assert_eq!(p_values(&[same], Replicates::Slices).unwrap(), [Some(1.0)]);
    }

    #[test]
    fn two_samples_against_none_are_no_discovery() {
        let mut slices = vec![0.0; 64];
        slices[3] = 2.0;
        let pair = [runs(&vec![0.0; 64]), runs(&slices)];
        let p = p_values(&[pair], Replicates::Slices).unwrap();
        assert!(p[0] > Some(LEVEL), "{p:?}");
    }

    /// One of 300 values doubles: it is found in each of 20 comparisons, and hardly any other value is.
    #[test]
    fn one_change_among_many_is_found_alone() {
        for (replicates, count, mean) in [(Replicates::Runs, 8, 40), (Replicates::Slices, 64, 5)] {
            let mut wrong = 0;
            for seed in 0..20 {
                let mut random = Random(seed);
                let pairs: Vec<[Series; 2]> = (0..300)
                    .map(|value| {
                        let other = if value == 7 { 2 * mean } else { mean };
                        [
                            runs(&noise(&mut random, mean, count)),
                            runs(&noise(&mut random, other, count)),
                        ]
                    })
                    .collect();
                let p = p_values(&pairs, replicates).unwrap();
                assert!(p[7] < Some(LEVEL), "{replicates:?} {seed}: {:?}", p[7]);
                wrong += usize::from(
                    p.iter()
                        .enumerate()
                        .any(|(value, &p)| value != 7 && p < Some(LEVEL)),
                );
            }
            // 1 of 20 is expected at most; 4 or more have a probability below 2%.
            assert!(wrong < 4, "{replicates:?}: {wrong} of 20 comparisons");
        }
    }

    #[test]
    fn a_value_that_a_side_lacks_has_no_p() {
        let mut lacking = runs(&[1.0; 4]);
        lacking.denominators = vec![0.0; 4];
        let p = p_values(&[[runs(&[1.0; 4]), lacking]], Replicates::Runs).unwrap();
        assert_eq!(p, [None]);
    }

    #[test]
    fn all_ways_are_counted() {
        assert_eq!(ways(8, 4), Some(70));
        assert_eq!(ways(20, 10), Some(184_756));
        assert_eq!(ways(200, 100), None);
        assert_eq!(every_labelling(8, 4).len(), 70);
    }
}
