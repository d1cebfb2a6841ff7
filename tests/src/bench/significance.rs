//! Tests whether two sets of measurements differ: the rank-sum test of Wilcoxon, Mann and Whitney. It is exact, because
//! the measurements are few and not normally distributed on a shared host.
//!
//! All measurements are ranked together; equal ones share the mean of their ranks. If both sets had one distribution,
//! every choice of this many ranks would be equally likely; p is the share of choices whose sum is at least as far from
//! the middle as the observed one. Five against five can reach 2/252 = 0.008, three against three 0.1.

/// Below this, a difference is significant, at 95% confidence.
pub(super) const LEVEL: f64 = 0.05;

/// The two-sided p; 1 if there is nothing to compare.
pub(super) fn p_value(left: &[f64], right: &[f64]) -> f64 {
    let ranks = doubled_ranks(left, right);
    let found: usize = ranks[..left.len()].iter().sum();
    let total: usize = ranks.iter().sum();
    // ways[size][sum]: choices of this many ranks with that sum. As floating point: 2^53 choices suffice for 28 and 28.
    let mut ways = vec![vec![0.0_f64; total + 1]; left.len() + 1];
    ways[0][0] = 1.0;
    for (seen, &rank) in ranks.iter().enumerate() {
        for size in (1..=left.len().min(seen + 1)).rev() {
            for sum in rank..=total {
                ways[size][sum] += ways[size - 1][sum - rank];
            }
        }
    }
    let all: f64 = ways[left.len()].iter().sum();
    if left.is_empty() || right.is_empty() {
        return 1.0;
    }
    // The middle is size × total / count; all terms are multiplied by count to stay integers.
    let middle = left.len() * total;
    let far = (found * ranks.len()).abs_diff(middle);
    let extreme: f64 = ways[left.len()]
        .iter()
        .enumerate()
        .filter(|(sum, _)| (sum * ranks.len()).abs_diff(middle) >= far)
        .map(|(_, ways)| ways)
        .sum();
    extreme / all
}

/// Twice the rank of each, those of `left` first: doubled, so that a mean of two ranks is an integer.
fn doubled_ranks(left: &[f64], right: &[f64]) -> Vec<usize> {
    let values: Vec<f64> = left.iter().chain(right).copied().collect();
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count();
        let equal = values.iter().filter(|other| *other == value).count();
        2 * below + equal + 1
    };
    values.iter().map(rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(left: &[f64], right: &[f64], expected: f64) {
        let found = p_value(left, right);
        assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
        assert!((p_value(right, left) - expected).abs() < 1e-9);
    }

    #[test]
    fn known_values() {
        // Fully separated: both extremes of C(n, m) choices.
        check(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0], 2.0 / 20.0);
        check(&[1., 2., 3., 4., 5.], &[6., 7., 8., 9., 10.], 2.0 / 252.0);
        // Rank sums 7 of {6 … 15}: {1,2,3} and {1,2,4} on each side.
        check(&[1.0, 2.0, 4.0], &[3.0, 5.0, 6.0], 4.0 / 20.0);
        check(&[1.0, 4.0], &[2.0, 3.0], 1.0);
        // With ties: ranks 1.5 1.5 | 3.5 3.5; one choice of six at each end.
        check(&[1.0, 1.0], &[2.0, 2.0], 2.0 / 6.0);
        check(&[5.0, 5.0, 5.0], &[5.0, 5.0, 5.0], 1.0);
        check(&[], &[1.0], 1.0);
    }
}
