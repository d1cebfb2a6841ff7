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
    bare_hex, decimal, find_text, leading_decimal, rsplit_once, seconds, signed, split_once, trim,
    trim_end, trim_start,
};

/// Longer than any comm: those of the kernel have 15 bytes, those of simpleperf more.
const MAX_COMM_BYTES: usize = 128;
/// `%10lu` and the blank before it: a period has more columns than a TID (`%7d`).
const PERIOD_WIDTH: usize = 10;
/// ` %16lx`
const IP_WIDTH: usize = 16;

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

/// What precedes the time in the heads of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fields {
    /// Whatever they look like.
    Any,
    /// A comm without IDs, which may look like some (`job 12`, `jbd2/vda1-8`, `a [3]`).
    Comm { has_cpu: bool },
}

/// A head with a time.
pub(super) fn with_time(line: &[u8]) -> Option<Head<'_>> {
    with_time_after(line, Fields::Any)
}

/// A head with a time, after these fields.
#[inline]
pub(super) fn with_time_after(line: &[u8], fields: Fields) -> Option<Head<'_>> {
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
            && matches!(before.last(), None | Some(b' ' | b']'))
            && let Some(mut head) = who(before, is_exact(stamp), fields)
        {
            head.time = (!stamp.starts_with(NO_TIME)).then_some(time);
            what(line.get(place + 1..)?, &mut head);
            return Some(head);
        }
        from = place + 1;
    }
}

/// Whether a time has the digits that perf prints: six, or nine with `--ns`.
fn is_exact(stamp: &[u8]) -> bool {
    let point = stamp.iter().position(|byte| *byte == b'.');
    let digits = point.map_or(0, |point| stamp.len() - point - 1);
    matches!(digits, 6 | 9)
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

/// `comm  pid/tid [cpu]`, each of them optional if an exact time follows.
#[inline]
fn who(text: &[u8], is_exact: bool, fields: Fields) -> Option<Head<'_>> {
    let mut head = Head::default();
    let mut text = trim_end(text);
    if fields != (Fields::Comm { has_cpu: false }) {
        text = cpu(text, &mut head);
    }
    if let Fields::Comm { .. } = fields {
        head.comm = Some(trim(text)).filter(|comm| !comm.is_empty());
        return (is_exact && is_comm(trim(text))).then_some(head);
    }
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
    if threads(text, &mut head).is_none() {
        comm_alone(text, &mut head).filter(|()| is_exact)?;
    }
    Some(head)
}

/// A comm without IDs. A name like `dd-12` is one of ftrace's heads.
fn comm_alone<'a>(text: &'a [u8], head: &mut Head<'a>) -> Option<()> {
    let text = trim(text);
    let digits = text.iter().rev().take_while(|byte| byte.is_ascii_digit());
    let before = text.len() - digits.count();
    let is_cpu = |word: &[u8]| {
        let number = word
            .strip_prefix(b"[")
            .and_then(|word| word.strip_suffix(b"]"));
        number.and_then(decimal).is_some()
    };
    let is_ftrace = before < text.len() && text.get(..before)?.ends_with(b"-")
        || text.split(|byte| *byte == b' ').any(is_cpu);
    head.comm = Some(text).filter(|text| !text.is_empty());
    (!is_ftrace && is_comm(text)).then_some(())
}

fn is_comm(text: &[u8]) -> bool {
    let is_text = text.iter().all(|byte| *byte >= b' ' && *byte != 0x7f);
    is_text && text.len() <= MAX_COMM_BYTES
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
    let mut period = None;
    if let Some((value, after)) = leading_decimal(text)
        && after.starts_with(b" ")
    {
        name = trim_start(after);
        period = Some(value);
    }
    let end = name
        .iter()
        .position(|&byte| byte == b' ')
        .unwrap_or(name.len());
    let (event, rest) = name.split_at_checked(end).unwrap_or((name, &[]));
    if let Some(event) = event.strip_suffix(b":")
        && !event.is_empty()
    {
        head.event = event;
        head.rest = trim_start(rest);
    } else if period.is_some() && is_wide(text, event) {
        // Without an event, an address follows.
        head.rest = name;
    } else {
        return;
    }
    head.period = period;
    head.period_text = period
        .and_then(|_| leading_decimal(text))
        .and_then(|(_, after)| text.get(..text.len() - after.len()))
        .unwrap_or_default();
}

/// Whether `word`, the second one, has the columns of an address.
fn is_wide(text: &[u8], word: &[u8]) -> bool {
    let first = text.iter().take_while(|byte| **byte != b' ').count();
    let blanks = text
        .iter()
        .skip(first)
        .take_while(|byte| **byte == b' ')
        .count();
    blanks + word.len() > IP_WIDTH && bare_hex(word).is_some()
}

/// A head without a time: `comm tid [cpu] period event:`, with any of them missing.
pub(super) fn without_time(line: &[u8]) -> Option<Head<'_>> {
    let text = trim_end(line);
    if trim(text).is_empty() || text.len() > 256 {
        return None;
    }
    let mut head = Head::default();
    let mut before = text;
    if let Some(start) = event_start(text) {
        let (threads, event) = text.split_at_checked(start)?;
        let end = find_text(event, b": ").unwrap_or(event.len().saturating_sub(1));
        head.event = event.get(..end)?;
        head.rest = trim(event.get(end + 1..)?);
        before = threads;
    } else if let Some(start) = location_start(text) {
        let (threads, location) = text.split_at_checked(start)?;
        head.rest = location;
        before = threads;
    }
    let before = period(trim_end(before), &mut head);
    let text = cpu(before, &mut head);
    if threads(text, &mut head).is_none() {
        head.comm = Some(trim(text)).filter(|text| !text.is_empty());
    }
    Some(head)
}

/// Splits off a period, which is the last number: one of several, or one with the columns of a period.
fn period<'a>(text: &'a [u8], head: &mut Head<'a>) -> &'a [u8] {
    let start = text
        .iter()
        .rposition(|byte| matches!(byte, b' ' | b'\t'))
        .map_or(0, |blank| blank + 1);
    let (before, digits) = text.split_at_checked(start).unwrap_or((text, &[]));
    let Some(value) = decimal(digits) else {
        return text;
    };
    let others = trim_end(before);
    let width = text.len() - others.len();
    let has_other = others.contains(&b' ')
        && others
            .last()
            .is_some_and(|byte| byte.is_ascii_digit() || *byte == b']');
    let is_after_event = !head.event.is_empty() && has_other;
    if is_after_event || width > PERIOD_WIDTH || others.is_empty() && width >= PERIOD_WIDTH {
        head.period = Some(value);
        head.period_text = digits;
        return others;
    }
    text
}

/// Offset of the first address of sixteen columns, if something precedes it.
pub(super) fn location_start(text: &[u8]) -> Option<usize> {
    let mut place = 0;
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    loop {
        let rest = text.get(place..)?;
        let start = place + rest.iter().position(|byte| !is_blank(byte))?;
        let length = text.get(start..)?.iter().position(is_blank);
        let end = length.map_or(text.len(), |length| start + length);
        let is_wide = place > 0 && end - place > IP_WIDTH;
        if is_wide && bare_hex(text.get(start..end)?).is_some_and(|address| address > 0xfff) {
            return Some(start);
        }
        place = end;
    }
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
        check(
            "              ls   875.313724: page-faults: ",
            "ls|None|None|None|Some(875313724000)|None|page-faults|",
        );
        check(
            "ls   875.313724:     250000      7fea89f8921a main (/x)",
            "ls|None|None|None|Some(875313724000)|Some(250000)||7fea89f8921a main (/x)",
        );
        check(
            "  875.313724:     401186 f",
            "-|None|None|None|Some(875313724000)|None||401186 f",
        );
        check(
            "[001]   875.313724: x:",
            "-|None|None|Some(1)|Some(875313724000)|None|x|",
        );
        for line in [
            "dd-1 [000] 1.5: x: y",
            "\t401186 f (/x)",
            "",
            "a: b",
            "12:30:01: x",
            "dd-1 [000] 1.500000: x: y",
            "a 1.5: x: y",
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
        check("16258 ", "-|None|Some(16258)|None|None|None||");
        check("16257/16258 ", "-|Some(16257)|Some(16258)|None|None|None||");
        check("    250000 ", "-|None|None|None|None|Some(250000)||");
        check("ls     250000 ", "ls|None|None|None|None|Some(250000)||");
        check(
            "ls 24307     250000 ",
            "ls|None|Some(24307)|None|None|Some(250000)||",
        );
        check(
            "  16258      7fea89f8921a main (/x)",
            "-|None|Some(16258)|None|None|None||7fea89f8921a main (/x)",
        );
        check(
            "    250000      7fea89f8921a main",
            "-|None|None|None|None|Some(250000)||7fea89f8921a main",
        );
        check(
            "ls 24307 [001]     250000 x:u:",
            "ls|None|Some(24307)|Some(1)|None|Some(250000)|x:u|",
        );
        check(
            "a 12 100 cycles:",
            "a|None|Some(12)|None|None|Some(100)|cycles|",
        );
    }
}
