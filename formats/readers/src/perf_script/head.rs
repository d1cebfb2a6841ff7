//! The first line of a sample.
//!
//! ```text
//!             perf   169/169   [000]     4.720337972:          1       sched:sched_wakeup: comm=migration/0 …
//! comm             pid/tid     cpu       time                period    event               the rest
//! node-v011 31912 cpu-clock:                                 without a time
//! cargo                                                      of -F comm,ip,sym
//! ```
//! simpleperf's report_sample.py prints the same line with tabs as separators.

use perfquet_events::scan::{
    decimal, find_text, leading_decimal, rsplit_once, seconds, signed, split_once, trim, trim_end,
    trim_start,
};

/// A parsed head.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Head<'a> {
    pub(super) comm: Option<&'a [u8]>,
    pub(super) pid: Option<i32>,
    pub(super) tid: Option<i32>,
    pub(super) cpu: Option<u32>,
    pub(super) time: Option<i64>,
    pub(super) period: Option<u64>,
    /// As printed.
    pub(super) period_text: &'a [u8],
    /// Without the colon after it; empty if not printed.
    pub(super) event: &'a [u8],
    /// After the event.
    pub(super) rest: &'a [u8],
}

/// perf prints this as the time of a record without one: -1 printed unsigned.
const NO_TIME: &[u8] = b"18446744073.709551";

/// A head with a time.
#[inline]
pub(super) fn with_time(line: &[u8]) -> Option<Head<'_>> {
    let mut from = 0;
    loop {
        let place = from + find_time_end(line.get(from..)?)?;
        let before = line.get(..place)?;
        let digits = before
            .iter()
            .rev()
            .take_while(|byte| byte.is_ascii_digit() || **byte == b'.')
            .count();
        let (before, stamp) = before.split_at_checked(place - digits)?;
        if let Some(time) = seconds(stamp)
            && matches!(before.last(), Some(b' ' | b']'))
            && let Some(mut head) = who(before)
        {
            head.time = (!stamp.starts_with(NO_TIME)).then_some(time);
            what(line.get(place + 1..)?, &mut head);
            return Some(head);
        }
        from = place + 1;
    }
}

/// The colon after a time, followed by a space or the end of the line.
#[inline]
fn find_time_end(text: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let place = from + text.get(from..)?.iter().position(|&byte| byte == b':')?;
        if matches!(text.get(place + 1), Some(b' ' | b'\t') | None) {
            return Some(place);
        }
        from = place + 1;
    }
}

/// `comm  pid/tid [cpu]`
#[inline]
fn who(text: &[u8]) -> Option<Head<'_>> {
    let mut head = Head::default();
    let mut text = trim_end(text);
    text = cpu(text, &mut head);
    // `-F misc`: U, K, Hh, … after the CPU.
    let is_misc =
        |word: &[u8]| word.len() <= 3 && word.iter().all(|byte| b"UKHhGg?MEPDSLFp".contains(byte));
    if head.cpu.is_none()
        && let Some((before, word)) = rsplit_once(text, b" ")
        && !word.is_empty()
        && is_misc(word)
    {
        text = cpu(trim_end(before), &mut head);
    }
    threads(text, &mut head)?;
    Some(head)
}

#[inline]
fn cpu<'a>(text: &'a [u8], head: &mut Head<'_>) -> &'a [u8] {
    let parts = text
        .strip_suffix(b"]")
        .and_then(|inner| rsplit_once(inner, b"["));
    match parts.and_then(|(before, number)| Some((before, decimal(number)?))) {
        Some((before, number)) => {
            head.cpu = number.try_into().ok();
            trim_end(before)
        }
        None => text,
    }
}

/// `comm  pid/tid`, `comm  tid`
#[inline]
fn threads<'a>(text: &'a [u8], head: &mut Head<'a>) -> Option<()> {
    let start = text
        .iter()
        .rposition(|byte| matches!(byte, b' ' | b'\t'))
        .map_or(0, |blank| blank + 1);
    let (comm, word) = text.split_at_checked(start)?;
    match split_once(word, b"/") {
        Some((pid, tid)) => {
            head.pid = Some(signed(pid)?.try_into().ok()?);
            head.tid = Some(signed(tid)?.try_into().ok()?);
        }
        None => head.tid = Some(signed(word)?.try_into().ok()?),
    }
    let comm = trim(comm);
    head.comm = (!comm.is_empty()).then_some(comm);
    Some(())
}

/// `[period] event: rest`
#[inline]
fn what<'a>(text: &'a [u8], head: &mut Head<'a>) {
    let text = trim_start(text);
    head.rest = text;
    if text.starts_with(b"PERF_RECORD_") {
        return;
    }
    let mut name = text;
    if let Some((period, after)) = leading_decimal(text)
        && after.starts_with(b" ")
    {
        name = trim_start(after);
        head.period = Some(period);
        head.period_text = text.get(..text.len() - after.len()).unwrap_or_default();
        head.rest = name;
    }
    let end = name
        .iter()
        .position(|&byte| byte == b' ')
        .unwrap_or(name.len());
    if let Some((event, rest)) = name.split_at_checked(end)
        && let Some(event) = event.strip_suffix(b":")
        && !event.is_empty()
    {
        head.event = event;
        head.rest = trim_start(rest);
    }
}

/// A head without a time: `comm tid event:`, `comm tid`, `comm`.
pub(super) fn without_time(line: &[u8]) -> Option<Head<'_>> {
    let text = trim(line);
    if text.is_empty() || text.len() > 256 {
        return None;
    }
    let mut head = Head::default();
    let mut before = text;
    if let Some(start) = event_start(text) {
        let (threads, event) = text.split_at_checked(start)?;
        let end = find_text(event, b": ").unwrap_or(event.len().saturating_sub(1));
        head.event = event.get(..end)?;
        head.rest = trim(event.get(end + 1..)?);
        before = trim(threads);
        // A period precedes the event.
        if let Some((other, number)) = rsplit_once(before, b" ")
            && let Some(period) = decimal(number)
            && other
                .last()
                .is_some_and(|byte| byte.is_ascii_digit() || *byte == b']')
            && other.contains(&b' ')
        {
            head.period = Some(period);
            before = trim_end(other);
        }
    }
    let mut who = Head::default();
    let text = cpu(before, &mut who);
    if threads(text, &mut who).is_some() && who.comm.is_some() {
        head.comm = who.comm;
        head.pid = who.pid;
        head.tid = who.tid;
    } else {
        head.comm = Some(trim(text)).filter(|text| !text.is_empty());
    }
    head.cpu = who.cpu;
    Some(head)
}

/// Offset of the word that ends with the event's colon.
fn event_start(text: &[u8]) -> Option<usize> {
    let colon = if text.ends_with(b":") {
        text.len() - 1
    } else {
        find_text(text, b": ")?
    };
    let before = text.get(..colon)?;
    let blank = before.iter().rposition(|&byte| byte == b' ')?;
    Some(blank + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(head: Head<'_>) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        format!(
            "{}|{:?}|{:?}|{:?}|{:?}|{:?}|{}|{}",
            head.comm.map_or("-".to_owned(), text),
            head.pid,
            head.tid,
            head.cpu,
            head.time,
            head.period,
            text(head.event),
            text(head.rest)
        )
    }

    #[test]
    fn heads() {
        let check = |line: &str, expected: &str| {
            assert_eq!(
                with_time(line.as_bytes()).map(show).as_deref(),
                Some(expected)
            );
        };
        check(
            "            perf   169/169   [000]     4.720337972:          1       sched:sched_wakeup: comm=a b",
            "perf|Some(169)|Some(169)|Some(0)|Some(4720337972)|Some(1)|sched:sched_wakeup|comm=a b",
        );
        check(
            "workload   220    50.102807555:    1001001 cpu-clock: ",
            "workload|None|Some(220)|None|Some(50102807555)|Some(1001001)|cpu-clock|",
        );
        check(
            "a b: c 12 [003] 1.000001: cycles:u:  ffffffff9b201293 [unknown] ([unknown])",
            "a b: c|None|Some(12)|Some(3)|Some(1000001000)|None|cycles:u|ffffffff9b201293 [unknown] ([unknown])",
        );
        check(
            "swapper     0 [000]     0.000000: PERF_RECORD_FORK(1:1):(0:0)",
            "swapper|None|Some(0)|Some(0)|Some(0)|None||PERF_RECORD_FORK(1:1):(0:0)",
        );
        check(
            ":-1 -1 [002] 1.5: x:",
            ":-1|None|Some(-1)|Some(2)|Some(1500000000)|None|x|",
        );
        check(
            "x 1 [002] U 1.5: x: y",
            "x|None|Some(1)|Some(2)|Some(1500000000)|None|x|y",
        );
        check(
            "Gecko\t25122 [007] 115539.936601:\t\t1000000 task-clock:u:",
            "Gecko|None|Some(25122)|Some(7)|Some(115539936601000)|Some(1000000)|task-clock:u|",
        );
        for line in [
            "dd-1 [000] 1.5: x: y",
            "\t401186 f (/x)",
            "",
            "a: b",
            "12:30:01: x",
        ] {
            assert_eq!(with_time(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn heads_without_times() {
        let check = |line: &str, expected: &str| {
            assert_eq!(
                without_time(line.as_bytes()).map(show).as_deref(),
                Some(expected)
            );
        };
        check(
            "node-v011 31912 cpu-clock: ",
            "node-v011|None|Some(31912)|None|None|None|cpu-clock|",
        );
        check("cargo ", "cargo|None|None|None|None|None||");
        check("a b 12", "a b|None|Some(12)|None|None|None||");
        check(
            "a 12 100 cycles:",
            "a|None|Some(12)|None|None|Some(100)|cycles|",
        );
    }
}
