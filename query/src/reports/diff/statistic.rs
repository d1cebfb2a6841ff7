//! Values with repetitions, and what the significance tests have in common.

use std::sync::Arc;

/// A difference with a smaller p-value is significant.
pub(super) const LEVEL: f64 = 0.05;

/// One value on one side, by run or slice.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Series {
    /// Sums, such as nanoseconds.
    pub(super) numerators: Vec<f64>,
    /// Divisors, such as calls or seconds.
    pub(super) denominators: Arc<[f64]>,
    /// Variance of a numerator of 1 from independent events.
    pub(super) counting_variance: f64,
}

/// Relation between the numbers of a side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replicates {
    /// Each is a run: a side is the mean of its runs.
    Runs,
    /// Each is a slice of one recording: a side is the ratio of the sums.
    Slices(Recordings),
}

/// Recordings that the slices belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recordings {
    /// Both sides are parts of the same one.
    Same,
    /// Each side is a recording, which may differ from a repetition of it.
    Two,
}

impl Series {
    /// Returns the value of this side; `None` if its divisors are zero.
    pub(super) fn value(&self, replicates: Replicates) -> Option<f64> {
        match replicates {
            Replicates::Runs => mean(&self.ratios()),
            Replicates::Slices(_) => ratio(
                self.numerators.iter().sum(),
                self.denominators.iter().sum::<f64>(),
            ),
        }
    }

    fn ratios(&self) -> Vec<f64> {
        let pairs = self.numerators.iter().zip(self.denominators.iter());
        pairs.filter_map(|(&up, &down)| ratio(up, down)).collect()
    }
}

pub(super) fn ratio(numerator: f64, denominator: f64) -> Option<f64> {
    (denominator > 0.0).then(|| numerator / denominator)
}

fn mean(values: &[f64]) -> Option<f64> {
    ratio(values.iter().sum(), values.len() as f64)
}

/// Divides a difference by its standard error; 0 for equal values.
pub(super) fn over(difference: f64, error: f64) -> f64 {
    if difference == 0.0 {
        0.0
    } else {
        difference / error.max(f64::MIN_POSITIVE)
    }
}

/// Returns the share of shuffles whose largest statistic reaches each observed one.
pub(super) fn p_of(found: &[Option<f64>], largest: &[f64]) -> Vec<Option<f64>> {
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
pub(super) struct Random(pub(super) u64);

impl Default for Random {
    fn default() -> Random {
        Random(0x9e37_79b9_7f4a_7c15)
    }
}

impl Random {
    /// Returns a number below `end`, which is small compared with 2^32.
    pub(super) fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    /// Returns a number of the standard normal distribution (Box and Muller 1958).
    pub(super) fn normal(&mut self) -> f64 {
        let mut uniform = || (self.next() as f64 + 1.0) / (u64::MAX as f64 + 2.0);
        let (radius, angle) = (uniform(), uniform());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn shuffle(&mut self, labels: &mut [bool]) {
        for last in (1..labels.len()).rev() {
            labels.swap(last, self.below(last + 1));
        }
    }

    /// Draws slices with replacement, and counts how often each is drawn.
    pub(super) fn draw(&mut self, times: &mut [u32]) {
        times.fill(0);
        for _ in 0..times.len() {
            let slice = self.below(times.len());
            times[slice] += 1;
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn runs(values: &[f64]) -> Series {
        Series {
            numerators: values.to_vec(),
            denominators: vec![1.0; values.len()].into(),
            counting_variance: 1.0,
        }
    }

    /// Simulates counts around a mean, as sampling produces them.
    pub(in super::super) fn noise(random: &mut Random, mean: usize, count: usize) -> Vec<f64> {
        let one = |random: &mut Random| {
            let heads = (0..4 * mean).filter(|_| random.below(4) == 0).count();
            heads as f64
        };
        (0..count).map(|_| one(random)).collect()
    }
}
