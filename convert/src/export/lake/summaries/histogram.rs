//! Histograms whose bars are the same for all functions, hours and hosts, so that adding them up merges them.
//!
//! ```text
//! durations below 128 ns     a bar each
//! 2^n ..= 2^(n + 1) - 1      64 bars of equal width, each at most 1/64 of its smallest duration
//! ```
//! A bar is called by its middle, which differs from each of its durations by at most 1/128 of that duration. The bars follow
//! each other in order, so the bar with the nth duration is the one in which the sum of counts reaches n: every percentile
//! has this bound, too.

/// Number of bars between a power of two and the next.
const BARS: i64 = 64;

/// The middle of the bar of a duration.
pub(super) fn middle(duration: i64) -> i64 {
    if duration < 2 * BARS {
        return duration;
    }
    // BARS ..= 2 * BARS - 1 after the shift.
    let shift = i64::BITS - duration.leading_zeros() - 1 - BARS.ilog2();
    let low = duration >> shift << shift;
    low + ((1_i64 << shift) - 1) / 2
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Checks the middle of one duration.
    fn check(duration: i64) {
        let found = middle(duration);
        let error = (i128::from(found) - i128::from(duration)).abs() * 128;
        assert!(
            error <= i128::from(duration).abs(),
            "{duration} is in the bar {found}"
        );
        assert_eq!(middle(found), found, "a middle is in its own bar");
    }

    #[test]
    fn ends_of_bars_keep_the_bound() {
        for power in 0..63 {
            let power = 1_i64 << power;
            for near in -3..=3 {
                check((power + near).max(0));
            }
            for bar in 0..BARS {
                let low = power + power / BARS * bar;
                check(low);
                check((low - 1).max(0));
            }
        }
        check(i64::MAX);
        // Clocks that step back.
        assert_eq!(middle(-7), -7);
        assert_eq!(middle(i64::MIN), i64::MIN);
        assert_eq!(middle(127), 127);
        assert_eq!((middle(128), middle(129), middle(130)), (128, 128, 130));
    }

    /// The value in place `rank`, from 1, of bars with counts, as SQL finds it.
    fn nth(bars: &std::collections::BTreeMap<i64, u64>, rank: u64) -> i64 {
        let mut seen = 0;
        for (&bar, &count) in bars {
            seen += count;
            if seen >= rank {
                return bar;
            }
        }
        panic!("{rank} of {seen}");
    }

    proptest! {
        #[test]
        fn every_duration_keeps_the_bound(duration in 0..i64::MAX, shift in 0..62_u32) {
            check(duration >> shift);
        }

        #[test]
        fn bars_are_in_the_order_of_durations(a in 0..i64::MAX, b in 0..i64::MAX, shift in 0..62_u32) {
            let (a, b) = (a >> shift, b >> shift);
            prop_assert_eq!(middle(a.min(b)), middle(a).min(middle(b)));
        }

        /// Merged from several hosts, as from one, and every percentile keeps the bound.
        #[test]
        fn percentiles_of_merged_hosts_keep_the_bound(
            hosts in prop::collection::vec(prop::collection::vec((0..i64::MAX, 0..62_u32), 1..40), 1..8)
        ) {
            let mut merged = std::collections::BTreeMap::<i64, u64>::new();
            let mut all = Vec::new();
            for host in &hosts {
                let mut own = std::collections::BTreeMap::<i64, u64>::new();
                for &(duration, shift) in host {
                    *own.entry(middle(duration >> shift)).or_default() += 1;
                    all.push(duration >> shift);
                }
                for (bar, count) in own {
                    *merged.entry(bar).or_default() += count;
                }
            }
            all.sort_unstable();
            for rank in 1..=all.len() {
                let (exact, found) = (all[rank - 1], nth(&merged, rank as u64));
                let error = (i128::from(found) - i128::from(exact)).abs() * 128;
                prop_assert!(error <= i128::from(exact), "{} of {}: {} for {}", rank, all.len(), found, exact);
            }
        }
    }
}
