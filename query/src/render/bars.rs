//! A distribution in one table cell: `▁▃█▅▂ ▁`, or `.:#=- .` without a Unicode locale.

use std::borrow::Cow;

/// One character per count, from empty to the highest.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII: [char; 9] = [' ', '.', ',', ':', '-', '=', '+', '*', '#'];

/// Formats `counts` as bars, relative to the highest. Non-zero counts are always visible.
pub(crate) fn bars(counts: &[u64], unicode: bool) -> String {
    let letters = if unicode { BLOCKS } else { ASCII };
    let highest = counts.iter().copied().max().unwrap_or(0).max(1);
    let letter = |&count: &u64| {
        let height = (count as f64 / highest as f64 * 8.0).round() as usize;
        letters[if count > 0 { height.clamp(1, 8) } else { 0 }]
    };
    counts.iter().map(letter).collect()
}

/// Formats shares from 0 to 1 as bars. Shares that are not 0 are always visible.
pub(crate) fn shares(values: &[f64], unicode: bool) -> String {
    let letters = if unicode { BLOCKS } else { ASCII };
    let letter = |&value: &f64| {
        let height = (value * 8.0).round().clamp(0.0, 8.0) as usize;
        letters[if value > 0.0 { height.max(1) } else { 0 }]
    };
    values.iter().map(letter).collect()
}

/// Shortens bars of shares to `width` columns: each shows the mean of those that it replaces. Shares that are not 0 stay
/// visible.
pub(crate) fn rebinned(bars: &str, width: usize, unicode: bool) -> Cow<'_, str> {
    let letters = if unicode { BLOCKS } else { ASCII };
    let height = |letter: char| {
        letters
            .iter()
            .position(|known| *known == letter)
            .unwrap_or(0)
    };
    let heights: Vec<usize> = bars.chars().map(height).collect();
    if heights.len() <= width || width == 0 {
        return Cow::Borrowed(bars);
    }
    let bin = |place: usize| {
        let (from, to) = (
            place * heights.len() / width,
            (place + 1) * heights.len() / width,
        );
        let sum: usize = heights[from..to].iter().sum();
        let mean = (sum as f64 / (to - from) as f64).round() as usize;
        letters[mean.max(usize::from(sum > 0))]
    };
    Cow::Owned((0..width).map(bin).collect())
}

/// Whether the locale's encoding is Unicode. If none is set, as in most containers, Unicode is assumed.
pub(crate) fn is_unicode() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok())
        .find(|value| !value.is_empty());
    locale.is_none_or(|locale| {
        let lower = locale.to_lowercase();
        lower.contains("utf-8") || lower.contains("utf8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_counts_stay_visible() {
        assert_eq!(bars(&[0, 1, 1000, 500, 0], true), " ▁█▄ ");
        assert_eq!(bars(&[0, 1, 1000, 500, 0], false), " .#- ");
        assert_eq!(bars(&[], true), "");
        assert_eq!(bars(&[0, 0], true), "  ");
        assert_eq!(shares(&[0.0, 0.001, 0.5, 1.0], true), " ▁▄█");
    }
}
