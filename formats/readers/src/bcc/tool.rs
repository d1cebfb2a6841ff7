//! Lists of events: titles in capitals, then rows.
//!
//! ```text
//! TIME(s)       PID    COMM               FD ERR PATH
//! 0.000000      254    sh                 3   0 /dev/null
//! ```

use crate::columns::is_titles;
use crate::lines::{unsigned, words};

/// The tools whose titles are known: words that only they have.
const TOOLS: &[(&str, &[&[u8]])] = &[
    ("opensnoop", &[b"FD", b"ERR", b"PATH"]),
    ("execsnoop", &[b"PCOMM", b"RET", b"ARGS"]),
    ("exitsnoop", &[b"PCOMM", b"EXIT_CODE"]),
    ("tcplife", &[b"LADDR", b"RADDR", b"TX_KB"]),
    ("tcpconnect", &[b"SADDR", b"DADDR", b"DPORT"]),
    ("tcpaccept", &[b"RADDR", b"RPORT", b"LADDR", b"LPORT"]),
    ("biosnoop", &[b"DISK", b"SECTOR"]),
    ("statsnoop", &[b"FD", b"ERR"]),
    ("killsnoop", &[b"SIG", b"TPID"]),
    ("runqslower", &[b"COMM", b"LAT(us)"]),
    ("trace", &[b"COMM", b"FUNC"]),
];

/// The tool that prints these titles; `table` if they are of none that is known; `None` if the line has no titles.
pub(super) fn of_titles(line: &[u8]) -> Option<&'static str> {
    if !is_titles(line) {
        return None;
    }
    let has = |title: &[u8]| words(line).any(|word| word == title);
    let known = TOOLS
        .iter()
        .find(|(_, titles)| titles.iter().all(|title| has(title)));
    let name = known.map_or("table", |(name, _)| name);
    // Other texts have words in capitals, too.
    (name != "table" || (has(b"PID") && has(b"COMM"))).then_some(name)
}

/// Nanoseconds of `15:38:33`, `[15:38:33]`.
pub(super) fn time_of_day(text: &[u8]) -> Option<i64> {
    let inner = text
        .strip_prefix(b"[")
        .and_then(|text| text.strip_suffix(b"]"));
    let mut parts = inner.unwrap_or(text).split(|&byte| byte == b':');
    let mut part = |max: u64| {
        let digits = parts.next().filter(|digits| digits.len() == 2)?;
        unsigned(digits).filter(|value| *value < max)
    };
    let seconds = (part(24)? * 60 + part(60)?) * 60 + part(61)?;
    parts
        .next()
        .is_none()
        .then_some(seconds as i64 * 1_000_000_000)
}

/// Nanoseconds of seconds with decimals: `0.004228`.
pub(super) fn seconds(text: &[u8]) -> Option<i64> {
    let dot = text.iter().position(|&byte| byte == b'.')?;
    let (whole, decimals) = (text.get(..dot)?, text.get(dot + 1..)?);
    let digits = decimals.get(..9).unwrap_or(decimals);
    let power = u32::try_from(9usize.checked_sub(digits.len())?).ok()?;
    let fraction = unsigned(digits)?.checked_mul(10u64.pow(power))?;
    let nanoseconds = unsigned(whole)?
        .checked_mul(1_000_000_000)?
        .checked_add(fraction)?;
    i64::try_from(nanoseconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(time_of_day(b"00:00:01"), Some(1_000_000_000));
        assert_eq!(time_of_day(b"[23:59:59]"), Some(86_399_000_000_000));
        for text in ["24:00:00", "1:2:3", "[12:00:00", "12:00", "12:00:00:00", ""] {
            assert_eq!(time_of_day(text.as_bytes()), None, "{text}");
        }
        assert_eq!(seconds(b"1.5"), Some(1_500_000_000));
        assert_eq!(seconds(b"0.0000000019"), Some(1));
        for text in ["1", "1.", ".5", "a.5", "99999999999.0"] {
            assert_eq!(seconds(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn titles() {
        assert_eq!(
            of_titles(b"PID    COMM               FD ERR PATH"),
            Some("opensnoop")
        );
        assert_eq!(
            of_titles(b"PID    COMM         FUNC             -"),
            Some("trace")
        );
        assert_eq!(of_titles(b"PID    COMM         X"), Some("table"));
        assert_eq!(of_titles(b"THIS IS LOUD"), None);
    }
}
