//! Block bootstrap of two single recordings, or of two parts of one.
//!
//! Time slices are drawn with replacement, which shows the variation within a recording. How much a repetition of the
//! recording would differ cannot be seen in it: a host that is busy during one of two recordings makes everything
//! slower there. So the variation between runs is taken from what the other values did: half of those that are measured
//! well changed by at most this much. It is at least [`LEAST_BETWEEN_RUNS`].

use super::statistic::{Random, Recordings, Replicates, Series, over, p_of, ratio};

/// Number of times that the slices are drawn.
const ROUNDS: usize = 2_000;
/// Relative variation between runs of the same program, if the recordings do not suggest more.
const LEAST_BETWEEN_RUNS: f64 = 0.05;
/// Values with a larger relative standard error are not used to estimate the variation between runs.
const WELL_MEASURED: f64 = 0.1;

/// Returns the p-value of each pair of sides, `None` where a side has no value, and the median of the relative variations
/// between runs that are assumed for two recordings.
pub(super) fn test(
    pairs: &[[Series; 2]],
    recordings: Recordings,
) -> (Vec<Option<f64>>, Option<f64>) {
    let mut random = Random::default();
    let values: Vec<Option<[f64; 2]>> = pairs.iter().map(values).collect();
    let mut strays = redraw(pairs, &values, &mut random);
    let mut errors: Vec<f64> = pairs
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
    let mut between_runs = None;
    if recordings == Recordings::Two {
        let host = Host::of(&values, &errors);
        let mut variations = Vec::new();
        for (place, value) in values.iter().enumerate() {
            let Some([before, after]) = *value else {
                continue;
            };
            let variation = host.variation(place);
            variations.push(variation);
            for stray in &mut strays[place] {
                *stray += variation * (after * random.normal() - before * random.normal());
            }
            errors[place] = errors[place].hypot(variation * before.hypot(after));
        }
        variations.sort_by(f64::total_cmp);
        between_runs = variations.get(variations.len() / 2).copied();
    }
    let mut largest = vec![0.0_f64; ROUNDS];
    for (strays, &error) in strays.iter().zip(&errors) {
        // A value that is missing in some rounds is too rare to contribute to the largest.
        if strays.len() == ROUNDS {
            for (largest, stray) in largest.iter_mut().zip(strays) {
                *largest = largest.max(over(stray.abs(), error));
            }
        }
    }
    let found: Vec<Option<f64>> = values
        .iter()
        .zip(&errors)
        .map(|(value, &error)| value.map(|[before, after]| over((after - before).abs(), error)))
        .collect();
    (p_of(&found, &largest), between_runs)
}

/// Returns how far each difference strays from the observed one, by pair and round: every pair's standard error comes
/// from all its rounds.
fn redraw(
    pairs: &[[Series; 2]],
    values: &[Option<[f64; 2]>],
    random: &mut Random,
) -> Vec<Vec<f64>> {
    let mut strays: Vec<Vec<f64>> = pairs.iter().map(|_| Vec::new()).collect();
    let slices = |side: usize| pairs.first().map_or(0, |pair| pair[side].numerators.len());
    let mut drawn = [vec![0u32; slices(0)], vec![0u32; slices(1)]];
    for _ in 0..ROUNDS {
        for side in &mut drawn {
            random.draw(side);
        }
        for ((pair, value), strays) in pairs.iter().zip(values).zip(&mut strays) {
            if let (Some([before, after]), Some(redrawn)) = (value, redrawn(pair, &drawn)) {
                strays.push(redrawn - (after - before));
            }
        }
    }
    strays
}

/// What two recordings tell about the difference between the runs.
struct Host {
    /// |ln(after / before)| of the values that are measured well, ascending, with their places.
    changes: Vec<(f64, usize)>,
}

impl Host {
    fn of(values: &[Option<[f64; 2]>], errors: &[f64]) -> Host {
        let mut changes: Vec<(f64, usize)> = values
            .iter()
            .zip(errors)
            .enumerate()
            .filter_map(|(place, (value, &error))| {
                let [before, after] = (*value)?;
                let is_well_measured = error < WELL_MEASURED * before.min(after);
                is_well_measured.then(|| ((after / before).ln().abs(), place))
            })
            .collect();
        changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        Host { changes }
    }

    /// Returns the relative variation between runs of the value at `own`: the median change of the others, so that a
    /// change does not excuse itself.
    fn variation(&self, own: usize) -> f64 {
        let others = || self.changes.iter().filter(|(_, place)| *place != own);
        let median = others().nth(others().count() / 2);
        median
            .map_or(0.0, |(change, _)| *change)
            .max(LEAST_BETWEEN_RUNS)
    }
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

/// Returns the value of each side; `None` if one of them has none.
fn values(pair: &[Series; 2]) -> Option<[f64; 2]> {
    let slices = Replicates::Slices(Recordings::Same);
    let [before, after] = pair.each_ref().map(|side| side.value(slices));
    Some([before?, after?])
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

#[cfg(test)]
mod tests {
    use super::super::statistic::LEVEL;
    use super::super::statistic::tests::{noise, runs};
    use super::*;

    type Tested = (Vec<Option<f64>>, Option<f64>);

    /// Simulates 12 functions whose samples per slice change by these factors.
    fn compare(factors: [f64; 12], recordings: Recordings) -> Tested {
        let mut random = Random::default();
        let pairs = factors.map(|factor| {
            let mut side = |mean: f64| runs(&noise(&mut random, mean as usize, 64));
            [side(20.0), side(20.0 * factor)]
        });
        test(&pairs, recordings)
    }

    fn significant((p, _): &Tested) -> Vec<usize> {
        let is_significant = |place: &usize| p[*place].is_some_and(|p| p < LEVEL);
        (0..p.len()).filter(is_significant).collect()
    }

    #[test]
    fn a_slower_host_is_no_discovery() {
        let mut factors = [1.35; 12];
        let tested = compare(factors, Recordings::Two);
        assert_eq!(significant(&tested), [0; 0], "{tested:?}");
        assert!(tested.1 > Some(0.2), "{tested:?}");
        // Within one recording, it is a change.
        assert_eq!(significant(&compare(factors, Recordings::Same)).len(), 12);
        // A function that changed far more is found nevertheless.
        factors[3] = 12.0;
        let tested = compare(factors, Recordings::Two);
        assert_eq!(significant(&tested), [3], "{tested:?}");
    }

    #[test]
    fn runs_of_the_same_speed_show_one_slower_function() {
        let mut factors = [1.0; 12];
        factors[5] = 1.5;
        let tested = compare(factors, Recordings::Two);
        assert_eq!(significant(&tested), [5], "{tested:?}");
        assert_eq!(tested.1, Some(LEAST_BETWEEN_RUNS));
        // Another run may well differ by this much.
        factors[5] = 1.1;
        assert_eq!(significant(&compare(factors, Recordings::Two)), [0; 0]);
    }

    /// The only function that is measured well does not excuse itself.
    #[test]
    fn a_single_function_is_compared_with_the_least_variation() {
        let side = |mean: usize| runs(&noise(&mut Random::default(), mean, 64));
        let (p, between_runs) = test(&[[side(20), side(40)]], Recordings::Two);
        assert!(p[0] < Some(LEVEL), "{p:?}");
        assert_eq!(between_runs, Some(LEAST_BETWEEN_RUNS));
    }
}
