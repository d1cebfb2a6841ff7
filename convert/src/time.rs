//! A range of time on the command line.
//!
//! ```text
//! 1.2s..1.5s     ..500ms     2m..     250us..1ms
//! ```

use perfquet_trace::normalize::TimeRange;

/// Parses a range; either side may be missing.
pub(crate) fn range(text: &str) -> Result<TimeRange, String> {
    let wrong = || "expected a range such as 1.2s..1.5s, ..500ms or 2m..".to_owned();
    let (start, end) = text.split_once("..").ok_or_else(wrong)?;
    let side = |text: &str| match text.trim() {
        "" => Ok(None),
        text => duration(text).map(Some).ok_or_else(wrong),
    };
    let range = TimeRange {
        start: side(start)?,
        end: side(end)?,
    };
    match (range.start, range.end) {
        (None, None) => Err(wrong()),
        (Some(start), Some(end)) if start >= end => {
            Err("expected a range that ends after its start".to_owned())
        }
        _ => Ok(range),
    }
}

/// Parses "1.5ms" into nanoseconds.
fn duration(text: &str) -> Option<i64> {
    const UNITS: [(&str, f64); 7] = [
        ("ns", 1.0),
        ("us", 1e3),
        ("µs", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
        ("m", 60e9),
        ("h", 3600e9),
    ];
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
    let (number, unit) = text.split_at(digits);
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let number: f64 = number.parse().ok()?;
    let nanoseconds = number * factor;
    (nanoseconds < i64::MAX as f64).then_some(nanoseconds.round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_ranges() {
        let check = |text: &str, start, end| {
            assert_eq!(range(text), Ok(TimeRange { start, end }), "{text}");
        };
        check("1.2s..1.5s", Some(1_200_000_000), Some(1_500_000_000));
        check("..500ms", None, Some(500_000_000));
        check("2m..", Some(120_000_000_000), None);
        check("250us..1ms", Some(250_000), Some(1_000_000));
        for wrong in [
            "", "..", "5s", "2s..1s", "1x..2x", "1..2", "-1s..2s", "1.2.3s..",
        ] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }
}
