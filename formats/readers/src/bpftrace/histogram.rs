//! Bars of `hist` and `lhist`.
//!
//! ```text
//! (..., 0)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
//! [0]                    1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
//! [4K, 8K)               0 |                                                    |
//! [100, ...)             1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
//! ```

use perfquet_events::event::{Action, Bucket};

use crate::lines::signed;

/// Parses a bar; `None` if the line is not one.
pub(super) fn bar(line: &[u8]) -> Option<Bucket> {
    let line = line.trim_ascii();
    let (open, rest) = line.split_first()?;
    let end = rest.iter().position(|byte| matches!(byte, b')' | b']'))?;
    let (range, after) = rest.split_at_checked(end)?;
    let (close, after) = after.split_first()?;
    let after = after.trim_ascii();
    let blank = after.iter().position(|byte| matches!(byte, b' ' | b'|'))?;
    let (count, bar) = after.split_at_checked(blank)?;
    let count = signed(count)?;
    let bar = bar.trim_ascii();
    if !(bar.starts_with(b"|") && bar.ends_with(b"|")) {
        return None;
    }
    let (low, high) = match (open, close) {
        (b'[', b']') => {
            let value = number(range)?;
            (Some(value), value.checked_add(1))
        }
        (b'[' | b'(', b')') => {
            let comma = range.iter().position(|&byte| byte == b',')?;
            let low = range.get(..comma)?.trim_ascii();
            let high = range.get(comma + 1..)?.trim_ascii();
            let end = |text: &[u8]| match text {
                b"..." => Some(None),
                text => number(text).map(Some),
            };
            (end(low)?, end(high)?)
        }
        _ => return None,
    };
    Some(Bucket { low, high, count })
}

/// `4K`: suffixes are powers of 1024.
fn number(text: &[u8]) -> Option<i64> {
    const SUFFIXES: &[u8] = b"KMGTPE";
    let last = text.last()?;
    match SUFFIXES.iter().position(|suffix| suffix == last) {
        Some(power) => {
            let value = signed(text.get(..text.len() - 1)?)?;
            let unit = 1024i64.checked_pow(u32::try_from(power).ok()? + 1)?;
            value.checked_mul(unit)
        }
        None => signed(text),
    }
}

/// The function of the bars, if they determine it: doubling bars are those of `hist`, which is `quantize`.
pub(super) fn action(buckets: &[Bucket]) -> Option<Action> {
    let mut widths = buckets.iter().filter_map(|bucket| {
        let (low, high) = (bucket.low?, bucket.high?);
        Some((low, high.checked_sub(low)?))
    });
    let is_open = buckets
        .last()
        .is_some_and(|bucket| bucket.high.is_none() && bucket.low.is_some());
    let first = widths.next()?;
    let second = widths.next();
    match (first, second) {
        _ if is_open => Some(Action::Lquantize),
        // Only `hist` has bars of one value followed by wider ones.
        ((_, width), Some((_, next))) if next > width => Some(Action::Quantize),
        ((0, 1), Some((1, 1))) => {
            let third = widths.next();
            third.map(|(_, width)| match width {
                1 => Action::Lquantize,
                _ => Action::Quantize,
            })
        }
        ((_, width), Some((_, next))) if next == width => Some(Action::Lquantize),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars() {
        let check = |line: &str, low: Option<i64>, high: Option<i64>, count: i64| {
            assert_eq!(
                bar(line.as_bytes()),
                Some(Bucket { low, high, count }),
                "{line}"
            );
        };
        check(
            "[4K, 8K)               1 |@@@@ |",
            Some(4096),
            Some(8192),
            1,
        );
        check("[0]                    7 |@@@@|", Some(0), Some(1), 7);
        check("(..., 0)               1 |    |", None, Some(0), 1);
        check("[100, ...)             1 |@|", Some(100), None, 1);
        check("[-10, 0)               1 |@|", Some(-10), Some(0), 1);
        check(
            "[512G, 1T)        123456 |@|",
            Some(512 << 30),
            Some(1 << 40),
            123_456,
        );
        for line in [
            "",
            "[",
            "[0] x |@|",
            "[a, b) 1 |@|",
            "[1, 2) 1",
            "[8E, 16E) 1 |@|",
            "x [0] 1 |@|",
        ] {
            assert_eq!(bar(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn actions() {
        let check = |lines: &[&str], expected| {
            let buckets: Vec<Bucket> = lines
                .iter()
                .map(|range| bar(format!("{range} 1 |@|").as_bytes()).unwrap())
                .collect();
            assert_eq!(action(&buckets), expected, "{lines:?}");
        };
        check(&["[4, 8)", "[8, 16)"], Some(Action::Quantize));
        check(
            &["(..., 0)", "[0]", "[1]", "[2, 4)"],
            Some(Action::Quantize),
        );
        check(&["[0, 10)", "[10, 20)"], Some(Action::Lquantize));
        check(
            &["(..., 0)", "[0, 10)", "[10, ...)"],
            Some(Action::Lquantize),
        );
        check(&["[32, 64)"], None);
        check(&["[0]", "[1]"], None);
    }
}
