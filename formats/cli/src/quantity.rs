//! Durations, ranges of time and sizes on a command line.
//!
//! ```text
//! 250ns  500us  1.5ms  10s  2m  1h          1.2s..1.5s  ..500ms  2m..          4096  512K  64M  1.5G
//! ```

use std::time::Duration;

/// Units of durations, in nanoseconds. The micro sign and the Greek letter look alike.
const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Returns `1.5ms` in nanoseconds; `None` if `text` is not a duration with a unit, or exceeds 292 years.
pub fn nanoseconds(text: &str) -> Option<i64> {
    let (number, unit) = split(text);
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit.trim_start())?;
    if let Ok(whole) = number.parse::<i64>() {
        return whole.checked_mul(*factor);
    }
    let nanoseconds = number.parse::<f64>().ok()? * *factor as f64;
    // Above 2^63 the cast would saturate silently.
    (nanoseconds < 9.2e18).then(|| nanoseconds.round() as i64)
}

/// Parses a duration. The unit is required: perf, trace-cmd and bpftrace each assume a different one.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    if number.parse::<f64>().is_err() {
        return Err("expected a time such as 10s".to_owned());
    }
    if unit.is_empty() {
        return Err(format!(
            "expected a unit (ns, us, ms, s, m or h), as in {text}ms or {text}s"
        ));
    }
    if UNITS.iter().all(|(name, _)| *name != unit) {
        return Err(format!(
            "unknown unit {unit:?}, expected ns, us, ms, s, m or h"
        ));
    }
    nanoseconds(text)
        .and_then(|nanoseconds| u64::try_from(nanoseconds).ok())
        .map(Duration::from_nanos)
        .ok_or_else(|| "expected at most 292 years".to_owned())
}

/// Parses a range such as `1.2s..1.5s` into nanoseconds, the end exclusive. Either end may be missing, but not both.
pub fn time_range(text: &str) -> Result<(Option<i64>, Option<i64>), String> {
    let wrong = || "expected a range such as 1.2s..1.5s, ..500ms or 2m..".to_owned();
    let (start, end) = text.split_once("..").ok_or_else(wrong)?;
    let bound = |text: &str| match text.trim() {
        "" => Ok(None),
        text => nanoseconds(text).map(Some).ok_or_else(wrong),
    };
    match (bound(start)?, bound(end)?) {
        (None, None) => Err(wrong()),
        (Some(start), Some(end)) if start >= end => {
            Err("expected a range that ends after its start".to_owned())
        }
        range => Ok(range),
    }
}

/// Parses a size. K, M, G and T are powers of 1024, also as KB and KiB; a number without a unit counts `bare_bytes`.
pub fn size_bytes(text: &str, bare_bytes: u64) -> Result<u64, String> {
    let wrong = || format!("expected a size such as 16G or 512M, found {text:?}");
    let (number, unit) = split(text.trim());
    let upper = unit.to_ascii_uppercase();
    let unit_bytes: u64 = match upper.strip_suffix("IB").or(upper.strip_suffix('B')) {
        Some("") if upper == "B" => 1,
        prefix => match prefix.unwrap_or(&upper) {
            "" if upper.is_empty() => bare_bytes,
            "K" => 1 << 10,
            "M" => 1 << 20,
            "G" => 1 << 30,
            "T" => 1 << 40,
            _ => return Err(wrong()),
        },
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit_bytes).ok_or_else(wrong);
    }
    let bytes = number.parse::<f64>().map_err(|_| wrong())? * unit_bytes as f64;
    match bytes < 1.8e19 {
        true => Ok(bytes as u64),
        false => Err(wrong()),
    }
}

/// Splits a number from its unit.
fn split(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, expected) in [
            ("1.5s", Duration::from_millis(1500)),
            ("250ms", Duration::from_millis(250)),
            ("1.2s", Duration::from_millis(1200)),
            ("2m", Duration::from_secs(120)),
            ("1h", Duration::from_secs(3600)),
            ("3\u{b5}s", Duration::from_micros(3)),
            ("3\u{3bc}s", Duration::from_micros(3)),
            ("7ns", Duration::from_nanos(7)),
            ("9007199254740993ns", Duration::from_nanos((1 << 53) + 1)),
        ] {
            assert_eq!(duration(text), Ok(expected), "{text}");
        }
        let bare = duration("5").unwrap_err();
        assert!(bare.contains("ns, us, ms, s, m or h"), "{bare}");
        for wrong in [
            "",
            "s",
            "0",
            "2",
            "1x",
            "-1s",
            "1.2.3s",
            "1e9s",
            "99999999999h",
        ] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ranges() {
        let check = |text: &str, start, end| {
            assert_eq!(time_range(text), Ok((start, end)), "{text}");
        };
        check("1.2s..1.5s", Some(1_200_000_000), Some(1_500_000_000));
        check("..500ms", None, Some(500_000_000));
        check("2m..", Some(120_000_000_000), None);
        check("250us..1ms", Some(250_000), Some(1_000_000));
        for wrong in [
            "", "..", "5s", "2s..1s", "1s..1s", "1x..2x", "1..2", "-1s..2s", "1.2.3s..",
        ] {
            assert!(time_range(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes() {
        for (text, expected) in [
            ("4096", 4096),
            ("100k", 100 << 10),
            ("512KiB", 512 << 10),
            ("4MB", 4 << 20),
            ("1.5G", 3 << 29),
            ("16G", 16 << 30),
            ("1T", 1 << 40),
            ("65536B", 65_536),
        ] {
            assert_eq!(size_bytes(text, 1), Ok(expected), "{text}");
        }
        assert_eq!(size_bytes("16", 4096), Ok(65_536));
        assert_eq!(size_bytes("65536B", 4096), Ok(65_536));
        for wrong in [
            "",
            "M",
            "B",
            "4X",
            "16P",
            "-1",
            "IB",
            "1.5.0G",
            "99999999999T",
            "1\u{e9}",
        ] {
            assert!(size_bytes(wrong, 1).is_err(), "{wrong}");
        }
    }
}
