//! Where the pages of each CPU are, in a file that has lost or gained bytes.
//!
//! ```text
//! stated   │cpu 0       │cpu 1       │cpu 2       │options
//! found    │cpu 0     │cpu 1       │cpu 2       │options       64 bytes of CPU 0 are lost
//! ```
//! A damage moves everything after it by the same distance, the drift, which follows from the end of the file or from the
//! next section. So each CPU's pages begin where they should, or that many bytes further on, and the question is only from
//! which CPU on. Pages have plausible heads, and the time goes back where those of another CPU begin: this
//! distinguishes drifts by whole pages.

use crate::trace_dat::page::{Layout, end_time};

/// Maximum distance by which a damage may move the data after it.
pub(super) const DRIFT_MAX: i64 = 1 << 16;
/// A drift, if it is small enough to be one.
pub(super) fn drift(found: u64, stated: u64) -> i64 {
    let drift = (found as i64).wrapping_sub(stated as i64);
    match drift.unsigned_abs() <= DRIFT_MAX as u64 {
        true => drift,
        false => 0,
    }
}

/// Returns for each region, in the order of the file, whether it is moved by the drift: all from some region on.
/// `score` says how much speaks for region `index` at this distance from its stated place.
pub(super) fn first_moved(count: usize, drift: i64, score: impl Fn(usize, i64) -> i64) -> usize {
    if drift == 0 {
        return count;
    }
    let gains: Vec<i64> = (0..count)
        .map(|index| score(index, drift) - score(index, 0))
        .collect();
    // If nothing distinguishes them, the damage is as far back as possible.
    let (mut best, mut most, mut sum) = (count, 0, 0);
    for (index, gain) in gains.iter().enumerate().rev() {
        sum += gain;
        if sum > most {
            (best, most) = (index, sum);
        }
    }
    best
}

/// How much speaks for a CPU's pages at `start`: 2 for a page, 1 more if the time goes back to it, or if it is the first of all
/// and no page precedes it. A page of events whose format files are lost counts 1 if they fill it.
pub(super) fn score_of_pages(
    bytes: &[u8],
    start: Option<u64>,
    (size, is_first): (usize, bool),
    layout: &Layout,
    is_known: impl Fn(&[u8]) -> bool,
) -> i64 {
    let page_at = |start: usize| {
        let rest = bytes.get(start..)?;
        let page = rest.get(..size).unwrap_or(rest);
        layout.is_page(page, size as u64, &is_known).then_some(page)
    };
    let Some(start) = start.and_then(|start| usize::try_from(start).ok()) else {
        return 0;
    };
    let Some(page) = page_at(start) else {
        let page = bytes.get(start..).unwrap_or_default();
        let page = page.get(..size).unwrap_or(page);
        return i64::from(layout.is_page(page, size as u64, |_| true));
    };
    let time = layout
        .head(page, 0, size as u64)
        .map_or(0, |head| head.time);
    let before = start.checked_sub(size).and_then(page_at);
    if is_first {
        return 2 + i64::from(before.is_none());
    }
    // A page that is there twice precedes itself.
    let before = before.filter(|before| page_at(start) != Some(before));
    let before = before.and_then(|page| end_time(page, size, layout));
    2 + i64::from(before.is_some_and(|before| time < before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_regions_after_the_damage_are_moved() {
        // The score of each region at its stated place, and at the drift.
        let check = |scores: &[(i64, i64)], expected: usize| {
            let score = |index: usize, drift: i64| match drift {
                0 => scores[index].0,
                _ => scores[index].1,
            };
            assert_eq!(
                first_moved(scores.len(), -64, score),
                expected,
                "{scores:?}"
            );
        };
        check(&[(2, 0), (2, 0), (0, 2)], 2);
        check(&[(0, 2), (0, 2)], 0);
        check(&[(2, 0), (2, 0)], 2);
        // The first page of the second region is damaged, too.
        check(&[(2, 0), (0, 0), (0, 2)], 2);
        // A drift by a page: pages are at both places, but the time goes back at one.
        check(&[(2, 2), (3, 2), (2, 3), (2, 3)], 2);
        check(&[], 0);
        assert_eq!(first_moved(3, 0, |_, _| 1), 3);
    }

    #[test]
    fn a_drift_is_small() {
        assert_eq!((drift(100, 164), drift(164, 100)), (-64, 64));
        assert_eq!((drift(0, 1 << 40), drift(u64::MAX, 0)), (0, -1));
    }
}
