//! Limits of a time, a size, or both: `30s`, `64M`, `30s,64M`.

use std::time::Duration;

use perfquet_cli::quantity::{duration, size_bytes};

use crate::sys::ring::page_bytes;

/// At least one of them is set, and none is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) time: Option<Duration>,
    pub(crate) bytes: Option<u64>,
}

/// Parses the value of an option.
pub(crate) fn limit(text: &str) -> Result<Limit, String> {
    let mut limit = Limit {
        time: None,
        bytes: None,
    };
    for part in text.split([',', '|']) {
        let unit = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        match unit
            .to_ascii_uppercase()
            .trim_end_matches("IB")
            .trim_end_matches('B')
        {
            // A lower-case m counts minutes, as in --duration.
            "K" | "M" | "G" | "T" if unit != "m" => limit.bytes = Some(size_bytes(part, 1)?),
            _ => {
                limit.time = Some(duration(part).map_err(|_| {
                    format!("{part:?}: expected a time or a size such as 30s or 64M")
                })?);
            }
        }
    }
    match limit {
        Limit {
            time: Some(time), ..
        } if time.is_zero() => Err("expected a time above 0".to_owned()),
        Limit { bytes: Some(0), .. } => Err("expected a size above 0".to_owned()),
        limit => Ok(limit),
    }
}

/// Parses the size of a ring: `4M`, `512K`, `65536B`; a bare number counts pages.
pub(crate) fn ring_bytes(text: &str) -> Result<usize, String> {
    const MOST: u64 = 1 << 32;
    match size_bytes(text, page_bytes() as u64)? {
        bytes @ 1..=MOST => Ok((bytes as usize).max(page_bytes()).next_power_of_two()),
        _ => Err("expected a size between a page and 4G".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes() {
        let of = |time: Option<u64>, bytes| Limit {
            time: time.map(Duration::from_secs),
            bytes,
        };
        assert_eq!(limit("10m"), Ok(of(Some(600), None)));
        assert_eq!(limit("10M"), Ok(of(None, Some(10 << 20))));
        assert_eq!(limit("24h,20G"), Ok(of(Some(86_400), Some(20 << 30))));
        assert_eq!(limit("1GiB"), Ok(of(None, Some(1 << 30))));
        for wrong in ["", "0s", "0M", "10x", "5"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ring_sizes() {
        assert_eq!(ring_bytes("4M"), Ok(4 << 20));
        assert_eq!(ring_bytes("5000K"), Ok(8 << 20));
        assert_eq!(ring_bytes("16"), Ok(16 * page_bytes()));
        for wrong in ["", "M", "4X", "0", "5G", "99999999999999999999"] {
            assert!(ring_bytes(wrong).is_err(), "{wrong}");
        }
    }
}
