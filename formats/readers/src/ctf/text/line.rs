//! A line: time, host, name of the event, and its structures.
//!
//! ```text
//! [15:33:09.696766391] (+0.000006280) vm sched_switch: { cpu_id = 0 }, { prev_comm = "sh", … }
//! [15:33:09.696766391] (+0.000006280) vm:ust:TRACE_DEBUG_LINE (13) shop:order: { cpu_id = 0 }, { number = 1 }     --fields=all
//! timestamp = 15:33:09.696766391, delta = +0.000006280, trace:hostname = vm, name = sched_switch, stream.packet.context = { cpu_id = 0 }, …
//! ```

use memchr::memmem;

use super::value::{Parsed, Scanner};
use crate::ctf::layout::ScopeOf;
use crate::lines::{signed, unsigned};

const SECOND: i64 = 1_000_000_000;
/// Structures of a line.
const SCOPES_MAX: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Time {
    None,
    /// Nanoseconds since midnight, in the time zone of babeltrace or UTC.
    OfDay(i64),
    /// The same, with the date: since 1970.
    Local(i64),
    /// Nanoseconds since 1970, or of a clock without that.
    Seconds(i64),
    /// Of a clock whose frequency is not printed.
    Cycles,
}

/// The structures of an event: where they are, and their members.
pub(super) type Scopes<'a> = Vec<(ScopeOf, Vec<(&'a [u8], Parsed<'a>)>)>;

#[derive(Debug, PartialEq)]
pub(super) struct Row<'a> {
    pub(super) time: Time,
    /// Host and name, or the name alone: the text before the colon.
    pub(super) name: &'a [u8],
    pub(super) host: Option<&'a [u8]>,
    /// `kernel`, `ust`, if printed.
    pub(super) domain: Option<&'a [u8]>,
    pub(super) scopes: Scopes<'a>,
}

/// Whether a line begins like an event.
pub(super) fn is_begin(text: &[u8]) -> bool {
    head(text).is_some() || text.starts_with(b"timestamp = ")
}

/// Parses a line; `None` if it is something else, or only a part of an event.
pub(super) fn parse(text: &[u8]) -> Option<Row<'_>> {
    match text.strip_prefix(b"timestamp = ") {
        Some(rest) => named(rest),
        None => plain(text),
    }
}

/// The time, and what follows it and the difference.
fn head(text: &[u8]) -> Option<(Time, &[u8])> {
    let rest = text.strip_prefix(b"[")?;
    let end = memchr::memchr(b']', rest.get(..40).unwrap_or(rest))?;
    let time = time(rest.get(..end)?)?;
    let rest = rest.get(end + 1..)?.strip_prefix(b" ")?;
    let after = rest.strip_prefix(b"(+").and_then(|rest| {
        let end = memmem::find(rest.get(..40).unwrap_or(rest), b") ")?;
        rest.get(end + 2..)
    });
    Some((time, after.unwrap_or(rest)))
}

fn plain(text: &[u8]) -> Option<Row<'_>> {
    let (time, rest) = head(text)?;
    let (name, groups) = match memmem::find(rest, b": {") {
        Some(colon) => rest.split_at_checked(colon)?,
        // Without any structure.
        None => (rest.trim_ascii_end().strip_suffix(b":")?, &b""[..]),
    };
    let mut scanner = Scanner::of(groups);
    let mut found = Vec::new();
    if scanner.skip(b": ") {
        loop {
            if found.len() >= SCOPES_MAX {
                return None;
            }
            found.push(scanner.members(0)?);
            if !scanner.skip(b", ") {
                break;
            }
        }
    }
    if !scanner.rest().trim_ascii().is_empty() {
        return None;
    }
    // Structures that an event does not have are not printed. The last one has its fields, the first the CPU.
    let count = found.len();
    let is_packet =
        |members: &[(&[u8], Parsed<'_>)]| members.iter().any(|(name, _)| *name == b"cpu_id");
    let scopes = found.into_iter().enumerate().map(|(place, members)| {
        let of = match place {
            _ if place + 1 == count => ScopeOf::Fields,
            0 if is_packet(&members) => ScopeOf::Packet,
            _ => ScopeOf::Context,
        };
        (of, members)
    });
    let level = level(name.trim_ascii());
    Some(Row {
        time,
        name: level.as_ref().map_or(name.trim_ascii(), |level| level.name),
        host: level.as_ref().and_then(|level| level.host),
        domain: level.map(|level| level.domain),
        scopes: scopes.collect(),
    })
}

/// What precedes the name of an event with a log level.
struct Level<'a> {
    host: Option<&'a [u8]>,
    domain: &'a [u8],
    name: &'a [u8],
}

/// `vm:TRACE_INFO (6) shop:order`, `TRACENAMEvm:prog:ust:TRACE_INFO (6) shop:order`: only events of programs have a log level.
fn level(text: &[u8]) -> Option<Level<'_>> {
    let end = memmem::rfind(text, b") ")?;
    let name = text.get(end + 2..)?;
    let before = text.get(..end)?;
    let open = memmem::rfind(before, b" (")?;
    unsigned(before.get(open + 2..)?)?;
    let mut parts: Vec<&[u8]> = before.get(..open)?.split(|&byte| byte == b':').collect();
    let level = parts.pop()?;
    if name.is_empty() || name.contains(&b' ') || level.contains(&b' ') {
        return None;
    }
    let domains = [&b"ust"[..], b"jul", b"log4j", b"python"];
    let domain = parts.iter().find(|part| domains.contains(part)).copied();
    let host = match (parts.as_slice(), domain) {
        ([host], None) => Some(*host),
        ([both, ..], Some(_)) => host_after_trace(both),
        _ => None,
    };
    Some(Level {
        host,
        domain: domain.unwrap_or(b"ust"),
        name,
    })
}

/// With all fields, the name of the trace precedes that of the host without anything between: `vmvm`,
/// `vm/ust/uid/0/64-bitvm`. A trace is named after its host, or the host is unknown.
fn host_after_trace(both: &[u8]) -> Option<&[u8]> {
    let first = both.split(|&byte| byte == b'/').next()?;
    let (one, other) = both.split_at_checked(both.len() / 2)?;
    match one == other {
        true => Some(one),
        false => (first.len() < both.len() && both.ends_with(first)).then_some(first),
    }
    .filter(|host| !host.is_empty())
}

/// `-n all -f all`
fn named(text: &[u8]) -> Option<Row<'_>> {
    let mut row = Row {
        time: Time::None,
        name: b"",
        host: None,
        domain: None,
        scopes: Vec::new(),
    };
    let (stamp, mut rest) = cut(text, b", ")?;
    row.time = time(stamp)?;
    while !rest.trim_ascii().is_empty() {
        // Nothing between two commas is an item that babeltrace2 leaves empty.
        if let Some(after) = rest.strip_prefix(b", ") {
            rest = after;
            continue;
        }
        let (key, after) = cut(rest, b" = ")?;
        if after.starts_with(b"{") {
            let mut scanner = Scanner::of(after);
            let members = scanner.members(0)?;
            scanner.skip(b", ");
            rest = scanner.rest();
            let of = match key {
                b"stream.packet.context" => ScopeOf::Packet,
                b"stream.event.context" | b"event.context" => ScopeOf::Context,
                b"event.fields" => ScopeOf::Fields,
                _ => continue,
            };
            if row.scopes.len() >= SCOPES_MAX {
                return None;
            }
            row.scopes.push((of, members));
            continue;
        }
        let (value, after) = cut(after, b", ").unwrap_or((after, b""));
        match key {
            b"name" => row.name = value,
            b"trace:hostname" => row.host = Some(value),
            b"trace:domain" => row.domain = Some(value),
            _ => {}
        }
        rest = after;
    }
    (!row.name.is_empty()).then_some(row)
}

fn time(text: &[u8]) -> Option<Time> {
    let text = text.trim_ascii();
    let Some((whole, fraction)) = cut(text, b".") else {
        // 20 digits.
        return (text.len() >= 20 && unsigned(text).is_some()).then_some(Time::Cycles);
    };
    if fraction.len() != 9 {
        return None;
    }
    let fraction = i64::try_from(unsigned(fraction)?).ok()?;
    let (date, clock) = match cut(whole, b" ") {
        Some((date, clock)) => (Some(date), clock),
        None => (None, whole),
    };
    if !clock.contains(&b':') {
        let seconds = signed(clock)?.checked_mul(SECOND)?;
        // `-0.5` is half a second before.
        let fraction = if clock.starts_with(b"-") {
            -fraction
        } else {
            fraction
        };
        return seconds.checked_add(fraction).map(Time::Seconds);
    }
    let mut parts = clock.split(|&byte| byte == b':').map(unsigned);
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    if parts.next().is_some() || hours > 23 || minutes > 59 || seconds > 60 {
        return None;
    }
    let of_day = i64::try_from(hours * 3600 + minutes * 60 + seconds).ok()? * SECOND + fraction;
    Some(match date {
        None => Time::OfDay(of_day),
        Some(date) => Time::Local(
            days(date)?
                .checked_mul(86400 * SECOND)?
                .checked_add(of_day)?,
        ),
    })
}

/// Days of `2026-11-22` since 1970.
fn days(date: &[u8]) -> Option<i64> {
    let mut parts = date.split(|&byte| byte == b'-').map(unsigned);
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if parts.next().is_some()
        || !(1..=9999).contains(&year)
        || !(1..=12).contains(&month)
        || day > 31
    {
        return None;
    }
    // The year begins in March, so that the day of the leap is the last one.
    let (year, month) = match month > 2 {
        true => (year, month - 3),
        false => (year - 1, month + 9),
    };
    let of_year = (153 * month + 2) / 5 + day;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + of_year;
    Some(i64::try_from(days).ok()? - 719_469)
}

fn cut<'a>(text: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let place = memmem::find(text, separator)?;
    Some((text.get(..place)?, text.get(place + separator.len()..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_levels() {
        let of = |text: &'static str| {
            level(text.as_bytes()).map(|level| (level.host, level.domain, level.name))
        };
        let host = Some(&b"vm"[..]);
        let ust = &b"ust"[..];
        let name = &b"shop:order"[..];
        assert_eq!(of("TRACE_INFO (6) shop:order"), Some((None, ust, name)));
        assert_eq!(of("vm:TRACE_INFO (6) shop:order"), Some((host, ust, name)));
        for prefix in ["vmvm:ust", "vm/ust/uid/0/64-bitvm:a:ust"] {
            let text = format!("{prefix}:TRACE_DEBUG_LINE (13) shop:order");
            let found = level(text.as_bytes()).unwrap();
            assert_eq!((found.host, found.domain, found.name), (host, ust, name));
        }
        assert_eq!(
            of("sessionvm:ust:TRACE_INFO (6) shop:order"),
            Some((None, ust, name))
        );
        assert_eq!(of("vm shop:order"), None);
        assert_eq!(of("vm:kernel sched_switch"), None);
    }

    #[test]
    fn times() {
        let check =
            |text: &str, expected: Option<Time>| assert_eq!(time(text.as_bytes()), expected);
        check("15:33:09.696766391", Some(Time::OfDay(55_989_696_766_391)));
        // `date -ud '2026-11-22 15:33:09' +%s`
        check(
            "2026-11-22 15:33:09.000000001",
            Some(Time::Local(1_795_361_589_000_000_001)),
        );
        check("1970-01-01 00:00:00.000000000", Some(Time::Local(0)));
        check(
            "2000-02-29 00:00:00.000000000",
            Some(Time::Local(951_782_400_000_000_000)),
        );
        check(
            "1795361589.696766391",
            Some(Time::Seconds(1_795_361_589_696_766_391)),
        );
        check("-1.500000000", Some(Time::Seconds(-1_500_000_000)));
        check("00000000475452864357", Some(Time::Cycles));
        check("1.5", None);
        check("25:00:00.000000000", None);
    }
}
