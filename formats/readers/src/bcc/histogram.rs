//! Histograms: a head with the unit, then bars.
//!
//! ```text
//!      usecs               : count    distribution
//!          4 -> 7          : 77       |*****     |      by powers of two: [4, 8)
//!          9               : 8        |**        |      linear: [9, 10)
//! ```

use perfquet_events::event::{Action, AggregateValue, Bucket};

use crate::lines::{signed, unsigned};

/// The unit or the expression in the head of a histogram.
pub(super) fn head(line: &[u8]) -> Option<&[u8]> {
    let text = line.trim_ascii().strip_suffix(b"distribution")?;
    let text = text.trim_ascii_end().strip_suffix(b"count")?;
    let label = text.trim_ascii_end().strip_suffix(b":")?.trim_ascii();
    (!label.is_empty()).then_some(label)
}

/// Parses a bar; `None` if the line is not one.
pub(super) fn bar(line: &[u8]) -> Option<Bucket> {
    let text = line.trim_ascii().strip_suffix(b"|")?;
    let bar = text.iter().position(|&byte| byte == b'|')?;
    let text = text.get(..bar)?;
    let colon = text.iter().rposition(|&byte| byte == b':')?;
    let count = signed(text.get(colon + 1..)?.trim_ascii())?;
    let range = text.get(..colon)?.trim_ascii();
    let (low, high) = match range.windows(2).position(|two| two == b"->") {
        Some(arrow) => (
            signed(range.get(..arrow)?.trim_ascii())?,
            end(range.get(arrow + 2..)?.trim_ascii())?,
        ),
        None => {
            let value = signed(range)?;
            (value, value.checked_add(1))
        }
    };
    Some(Bucket {
        low: Some(low),
        high,
        count,
    })
}

/// The first value above an inclusive end. That of the last bar exceeds 63 bits.
fn end(text: &[u8]) -> Option<Option<i64>> {
    match signed(text) {
        Some(last) => Some(last.checked_add(1)),
        None => unsigned(text).map(|_| None),
    }
}

/// Whether a line that is not a bar looks like a damaged one.
pub(super) fn is_like_bar(line: &[u8]) -> bool {
    let text = line.trim_ascii();
    let has_range = text.windows(4).any(|part| part == b" -> ");
    let is_number = |byte: &u8| byte.is_ascii_digit() || *byte == b'-';
    text.first().is_some_and(is_number)
        && (has_range || (text.contains(&b'|') && text.contains(&b':')))
}

/// The function: only bars by powers of two have two ends.
pub(super) fn action(line: &[u8]) -> Action {
    match line.windows(4).any(|part| part == b" -> ") {
        true => Action::Quantize,
        false => Action::Lquantize,
    }
}

/// `avg = 663 usecs, total: 16575 usecs, count: 25`: the unit, average, total and count.
pub(super) fn averages(line: &[u8]) -> Option<(&str, [AggregateValue; 3])> {
    let text = std::str::from_utf8(line).ok()?.trim();
    let rest = text.strip_prefix("avg = ")?;
    let (average, rest) = rest.split_once(", total: ")?;
    let (total, count) = rest.split_once(", count: ")?;
    let (average, unit) = average.split_once(' ')?;
    let (total, _) = total.split_once(' ')?;
    let number = |text: &str| {
        let value = AggregateValue::parse(text)?;
        text.bytes()
            .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-'))
            .then_some(value)
    };
    Some((unit, [number(average)?, number(total)?, number(count)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars() {
        let check = |line: &str, low: i64, high: Option<i64>, count: i64| {
            let low = Some(low);
            assert_eq!(
                bar(line.as_bytes()),
                Some(Bucket { low, high, count }),
                "{line}"
            );
        };
        check(
            "         0 -> 1          : 6        |*      |",
            0,
            Some(2),
            6,
        );
        check(
            "4294967296 -> 8589934591 : 1        ||",
            4294967296,
            Some(8589934592),
            1,
        );
        check("        7          : 3        |**     |", 7, Some(8), 3);
        check(
            "4611686018427387904 -> 9223372036854775807 : 2 |*|",
            1 << 62,
            None,
            2,
        );
        check("4 -> 18446744073709551615 : 2 |*|", 4, None, 2);
        for line in [
            "",
            "usecs : count distribution",
            "4 -> x : 2 |*|",
            "4 -> 7 : |*|",
            "4 -> 7 : 2",
            "|",
            ":|",
        ] {
            assert_eq!(bar(line.as_bytes()), None, "{line}");
        }
        assert!(is_like_bar(b"  4 -> x  : 2 |*|"));
        assert!(!is_like_bar(b"  text"));
    }

    #[test]
    fn heads() {
        assert_eq!(
            head(b"     usecs      : count     distribution"),
            Some(&b"usecs"[..])
        );
        assert_eq!(
            head(b"  $latency/1000 : count distribution"),
            Some(&b"$latency/1000"[..])
        );
        assert_eq!(head(b" : count distribution"), None);
        let (unit, values) = averages(b"avg = 5 nsecs, total: 8259 nsecs, count: 1521").unwrap();
        assert_eq!(
            (unit, values.map(AggregateValue::as_f64)),
            ("nsecs", [5.0, 8259.0, 1521.0])
        );
        assert_eq!(averages(b"avg = inf nsecs, total: 1 nsecs, count: 1"), None);
    }
}
