//! Tests which of many values differ between two sides, with one error rate for all of them.
//!
//! ```text
//! runs:    4 or more repetitions per side   permutations: which run belongs to which side is shuffled (`permutation.rs`)
//! slices:  one recording per side           block bootstrap: time slices are drawn with replacement (`bootstrap.rs`)
//! ```
//! The test statistic *t* of a value is the difference between the sides divided by its standard error. Its p-value is
//! the share of shuffles in which the *largest* |t| of all values reaches the observed |t| (Westfall and Young 1993,
//! max-T): the probability of at least one false "significant" in a comparison is at most `LEVEL`, however many
//! values are compared and however they depend on each other. A rank test per function, corrected for 500 functions,
//! would need at least nine runs per side to find anything.
//!
//! A standard error is at least that of counting the same number of independent events: two samples against none are
//! not significant.

use super::statistic::{Replicates, Series};
use super::{bootstrap, permutation};

/// Result of a test.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tested {
    /// The p-value of each pair of sides; `None` where a side has no value.
    pub(super) p: Vec<Option<f64>>,
    /// Median of the relative variations between runs that are assumed; `None` without an assumption.
    pub(super) between_runs: Option<f64>,
}

/// Tests each pair of sides. Returns `None` if there are too few runs.
pub(super) fn test(pairs: &[[Series; 2]], replicates: Replicates) -> Option<Tested> {
    match replicates {
        Replicates::Runs => permutation::test(pairs).map(|p| Tested {
            p,
            between_runs: None,
        }),
        Replicates::Slices(recordings) => {
            let (p, between_runs) = bootstrap::test(pairs, recordings);
            Some(Tested { p, between_runs })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::statistic::tests::{noise, runs};
    use super::super::statistic::{LEVEL, Random, Recordings};
    use super::*;

    #[test]
    fn four_runs_can_be_significant_and_three_cannot() {
        let pair = |count| [runs(&vec![1000.0; count]), runs(&vec![2000.0; count])];
        let p = test(&[pair(4)], Replicates::Runs).unwrap().p;
        // Two of C(8, 4) = 70 ways are this far apart.
        assert_eq!(p, [Some(2.0 / 70.0)]);
        assert!(test(&[pair(3)], Replicates::Runs).is_none());
    }

    #[test]
    fn equal_sides_are_not_significant() {
        let same = [runs(&[5.0; 5]), runs(&[5.0; 5])];
        for replicates in [
            Replicates::Runs,
            Replicates::Slices(Recordings::Same),
            Replicates::Slices(Recordings::Two),
        ] {
            let tested = test(std::slice::from_ref(&same), replicates).unwrap();
            assert_eq!(tested.p, [Some(1.0)]);
        }
    }

    #[test]
    fn two_samples_against_none_are_no_discovery() {
        let mut slices = vec![0.0; 64];
        slices[3] = 2.0;
        let pair = [runs(&vec![0.0; 64]), runs(&slices)];
        let p = test(&[pair], Replicates::Slices(Recordings::Same))
            .unwrap()
            .p;
        assert!(p[0] > Some(LEVEL), "{p:?}");
    }

    /// One of 300 values doubles: it is found in each of 20 comparisons, and hardly any other value is.
    #[test]
    fn one_change_among_many_is_found_alone() {
        for (replicates, count, mean) in [
            (Replicates::Runs, 8, 40),
            (Replicates::Slices(Recordings::Same), 64, 5),
            (Replicates::Slices(Recordings::Two), 64, 8),
        ] {
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
                let p = test(&pairs, replicates).unwrap().p;
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
        lacking.denominators = vec![0.0; 4].into();
        let tested = test(&[[runs(&[1.0; 4]), lacking]], Replicates::Runs).unwrap();
        assert_eq!(tested.p, [None]);
    }
}
