//! The part before an event: thread, CPU, flags and time.
//!
//! ```text
//!           <idle>-0       [001] d..2.     2.055256: …          `trace`, `trace_pipe`
//!      kworker/0:2-63      (     63) [000] d..2.     2.132215: … with the PID (record-tgid)
//! sched:           <idle>-0     [001]    49.673287: …           trace-cmd report, from the buffer "sched"
//!   script-142       1..... 1251us!: …                          latency-format: µs since the first event
//!       dd-174     0...1.     5.608275: …                       trace-cmd report -l
//!           script     142   1 0 00000000 00000000 [0024954f] 5.582ms (+1.191ms): …    verbose latency-format
//! 142 0 1985469023 type: 820                                    raw: thread, CPU, nanoseconds
//! ```
//! `comm-tid` ends before the bracket with the CPU: a comm may contain spaces, dashes and brackets, and look like a
//! thread itself. The kernel prints `<...>` for an unknown comm. A time without a decimal point has a unit that the
//! text does not state.

use perfquet_events::event::{Context, time_of};
use perfquet_events::scan::{
    bare_hex, decimal, find, find_text, leading_decimal, leading_seconds, seconds, split_once,
    trim, trim_end, trim_start, word,
};

/// Maximum number of flag characters; RT kernels print the most.
const MAX_FLAGS: usize = 9;
/// `%16s`
const COMM_WIDTH: usize = 16;
/// Maximum distance from the beginning of a line to the bracket or dash.
const MAX_HEAD: usize = 512;

/// Thread, CPU, flags and time of an event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Head<'a> {
    pub(super) comm: Option<&'a [u8]>,
    pub(super) tid: Option<i32>,
    pub(super) pid: Option<i32>,
    pub(super) cpu: Option<u32>,
    pub(super) time: Option<i64>,
    /// A time of unknown unit, as printed.
    pub(super) clock: &'a [u8],
    /// irqs-off, need-resched, …; empty if not printed.
    pub(super) flags: &'a [u8],
    /// The buffer named by trace-cmd; empty for the top-level one.
    pub(super) buffer: &'a [u8],
    /// Whether the time counts from the first event.
    pub(super) is_relative: bool,
}

impl Head<'_> {
    /// The context, from the flag for hardirq and softirq.
    pub(super) fn context(&self) -> Option<Context> {
        if self.flags.is_empty() {
            return None;
        }
        let mut context = Context::Task;
        for flag in self.flags {
            match flag {
                b'z' | b'Z' => return Some(Context::Nmi),
                b'h' | b'H' => context = Context::Irq,
                b's' => context = Context::Softirq,
                _ => {}
            }
        }
        Some(context)
    }
}

/// A head and the rest after it.
pub(super) type Parts<'a> = (Head<'a>, &'a [u8]);

/// `comm-tid [(pid)] [cpu] [flags] time: payload`
#[inline]
pub(super) fn normal(line: &[u8]) -> Option<Parts<'_>> {
    let window = line.get(..MAX_HEAD).unwrap_or(line);
    let mut from = 0;
    loop {
        let open = from + find(window.get(from..)?, b'[')?;
        if let Some(parts) = at_bracket(line, open) {
            return Some(parts);
        }
        from = open + 1;
    }
}

#[inline]
fn at_bracket(line: &[u8], open: usize) -> Option<Parts<'_>> {
    let (cpu, rest) = leading_decimal(line.get(open + 1..)?)?;
    let rest = rest.strip_prefix(b"]")?;
    let mut before = trim_end(line.get(..open)?);
    let mut head = Head {
        cpu: Some(cpu.try_into().ok()?),
        ..Head::default()
    };
    if let Some(inner) = before.strip_suffix(b")") {
        let paren = inner.iter().rposition(|&byte| byte == b'(')?;
        let tgid = trim(inner.get(paren + 1..)?);
        if !tgid.iter().all(|&byte| byte == b'-') {
            head.pid = Some(decimal(tgid)?.try_into().ok()?);
        }
        before = trim_end(before.get(..paren)?);
    }
    if before.len() == open {
        return None;
    }
    comm_and_tid(before, &mut head)?;
    let rest = time(rest, &mut head)?;
    Some((head, difference(rest)))
}

/// `comm-tid`, with an optional buffer before it.
#[inline]
fn comm_and_tid<'a>(text: &'a [u8], head: &mut Head<'a>) -> Option<()> {
    let digits = text
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let (name, tid) = text.split_at_checked(text.len() - digits)?;
    let mut name = name.strip_suffix(b"-")?;
    head.tid = Some(decimal(tid)?.try_into().ok()?);
    if name.len() > COMM_WIDTH
        && let Some((buffer, comm)) = split_once(name, b": ")
        && comm.len() >= COMM_WIDTH
        && !trim(buffer).contains(&b' ')
    {
        head.buffer = trim(buffer);
        name = comm;
    }
    head.comm = known_comm(name);
    Some(())
}

/// The comm; `None` for `<...>`.
pub(super) fn known_comm(name: &[u8]) -> Option<&[u8]> {
    let name = trim(name);
    (name != b"<...>" && !name.is_empty()).then_some(name)
}

/// `[flags] time: `
#[inline]
fn time<'a>(text: &'a [u8], head: &mut Head<'a>) -> Option<&'a [u8]> {
    let mut text = trim_start(text);
    if !text.first()?.is_ascii_digit() {
        let (flags, rest) = word(text)?;
        if !(3..=MAX_FLAGS).contains(&flags.len()) {
            return None;
        }
        head.flags = flags;
        text = trim_start(rest);
    }
    stamp(text, head)
}

/// `1.835285:`, `259:`
#[inline]
fn stamp<'a>(text: &'a [u8], head: &mut Head<'a>) -> Option<&'a [u8]> {
    let rest = match leading_seconds(text) {
        Some((time, rest)) => {
            head.time = Some(time);
            rest
        }
        None => {
            let (_, rest) = leading_decimal(text)?;
            head.clock = text.get(..text.len() - rest.len())?;
            rest
        }
    };
    Some(trim_start(rest.strip_prefix(b":")?))
}

/// Strips the `(+148)` of trace-cmd's --ts-diff.
#[inline]
fn difference(text: &[u8]) -> &[u8] {
    let after = text.strip_prefix(b"(+").and_then(|rest| {
        let (_, rest) = leading_decimal(rest)?;
        rest.strip_prefix(b")")
    });
    after.map_or(text, trim_start)
}

/// `comm-tid cpuFLAGS time: `, with the comm cut to eight bytes.
pub(super) fn latency(line: &[u8]) -> Option<Parts<'_>> {
    let window = line.get(..MAX_HEAD).unwrap_or(line);
    let mut from = 0;
    loop {
        let dash = from + find(window.get(from..)?, b'-')?;
        if let Some(parts) = at_dash(line, dash) {
            return Some(parts);
        }
        from = dash + 1;
    }
}

fn at_dash(line: &[u8], dash: usize) -> Option<Parts<'_>> {
    let (tid, rest) = leading_decimal(line.get(dash + 1..)?)?;
    let mut head = Head {
        comm: known_comm(line.get(..dash)?),
        tid: Some(tid.try_into().ok()?),
        ..Head::default()
    };
    if !rest.starts_with(b" ") {
        return None;
    }
    let (cpu, rest) = leading_decimal(trim_start(rest))?;
    head.cpu = Some(cpu.try_into().ok()?);
    let (flags, rest) = word(rest).filter(|(flags, _)| rest.starts_with(flags))?;
    if !(3..=MAX_FLAGS).contains(&flags.len()) {
        return None;
    }
    head.flags = flags;
    let rest = trim_start(rest);
    if let Some((microseconds, rest)) = leading_decimal(rest)
        && let Some(rest) = rest.strip_prefix(b"us")
    {
        // The mark classifies the delay until the next event.
        let rest = match rest {
            [b' ' | b'+' | b'!' | b'#' | b'*' | b'@' | b'$', rest @ ..] => rest,
            _ => rest,
        };
        head.time = Some(time_of(microseconds.saturating_mul(1000)));
        head.is_relative = true;
        return Some((head, trim_start(rest.strip_prefix(b":")?)));
    }
    let rest = stamp(rest, &mut head)?;
    Some((head, difference(rest)))
}

/// `comm tid cpu flags preempt_count number [µs in hexadecimal] M.UUUms (+M.UUUms): `
pub(super) fn verbose(line: &[u8]) -> Option<Parts<'_>> {
    let window = line.get(..MAX_HEAD).unwrap_or(line);
    let end = find_text(window, b"ms): ")?;
    let before = line.get(..end)?;
    let open = before.iter().rposition(|&byte| byte == b'[')?;
    let (stamp, _) = split_once(before.get(open + 1..)?, b"] ")?;
    let mut rest = before.get(..open)?;
    let mut last_word = || {
        let text = trim_end(rest);
        let blank = text.iter().rposition(|&byte| byte == b' ')?;
        let (before, word) = text.split_at_checked(blank + 1)?;
        rest = before;
        Some(word)
    };
    bare_hex(last_word()?)?;
    bare_hex(last_word()?)?;
    decimal(last_word()?)?;
    let cpu = decimal(last_word()?)?;
    let tid = decimal(last_word()?)?;
    let microseconds = bare_hex(stamp)?;
    let head = Head {
        comm: known_comm(rest),
        tid: Some(tid.try_into().ok()?),
        cpu: Some(cpu.try_into().ok()?),
        time: Some(time_of(microseconds.saturating_mul(1000))),
        ..Head::default()
    };
    Some((head, line.get(end + b"ms): ".len()..)?))
}

/// A record of the trace options `raw` and `hex`: `type: 820`, which has no event name, or a marker's text `#
/// ffffffff8149ab1a text`.
pub(super) fn raw(line: &[u8]) -> Option<Parts<'_>> {
    let (tid, rest) = word(line)?;
    let (cpu, rest) = word(rest)?;
    let (time, rest) = word(rest)?;
    let rest = trim_start(rest);
    if !rest.starts_with(b"# ") {
        decimal(rest.strip_prefix(b"type: ")?)?;
    }
    let is_hex = tid.len() == 8 && cpu.len() == 8 && time.len() == 16;
    let number = if is_hex { bare_hex } else { decimal };
    let head = Head {
        tid: Some(number(tid)?.try_into().ok()?),
        cpu: Some(number(cpu)?.try_into().ok()?),
        time: Some(time_of(number(time)?)),
        ..Head::default()
    };
    Some((head, rest))
}

/// A line of the blk tracer in classic form: `254,0    0    91.420701829   439  Q  WS 0 + 8 [dd]`. blkparse prints
/// another number after the CPU. Returns the device, and the rest after the thread.
pub(super) fn blk_classic(line: &[u8]) -> Option<(Head<'_>, &[u8], &[u8])> {
    let (device, rest) = word(line)?;
    let comma = find(device, b',')?;
    decimal(device.get(..comma)?)?;
    decimal(device.get(comma + 1..)?)?;
    let (cpu, rest) = word(rest)?;
    let (mut time, mut rest) = word(rest)?;
    if decimal(time).is_some() {
        (time, rest) = word(rest)?;
    }
    let (tid, rest) = word(rest)?;
    let head = Head {
        cpu: Some(decimal(cpu)?.try_into().ok()?),
        time: Some(seconds(time)?),
        tid: Some(decimal(tid)?.try_into().ok()?),
        ..Head::default()
    };
    Some((head, device, trim_start(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes).into_owned()
    }

    #[track_caller]
    fn check(parts: Option<Parts<'_>>, expected: Option<&str>) {
        let found = parts.map(|(head, payload)| {
            let number =
                |value: Option<i64>| value.map_or("-".to_owned(), |value| value.to_string());
            format!(
                "{}|{}|{}|{}|{}|{}|{}|{}",
                head.comm.map_or("-".to_owned(), show),
                number(head.tid.map(i64::from)),
                number(head.pid.map(i64::from)),
                number(head.cpu.map(i64::from)),
                show(head.flags),
                number(head.time),
                show(if head.clock.is_empty() {
                    head.buffer
                } else {
                    head.clock
                }),
                show(payload)
            )
        });
        assert_eq!(found.as_deref(), expected);
    }

    #[test]
    fn heads() {
        let check =
            |line: &'static str, expected: Option<&str>| check(normal(line.as_bytes()), expected);
        check(
            "          <idle>-0       [001] d..2.     2.055256: sched_switch: a",
            Some("<idle>|0|-|1|d..2.|2055256000||sched_switch: a"),
        );
        check("dd-1 [000] 1.000001: x", Some("dd|1|-|0||1000001000||x"));
        check(
            " opt cgu.00-12   [003] .... 5.5: x",
            Some("opt cgu.00|12|-|3|....|5500000000||x"),
        );
        check(
            "x-12 [003]-77   [001] .... 5.5: x",
            Some("x-12 [003]|77|-|1|....|5500000000||x"),
        );
        check(
            "     kworker/0:2-63      (     63) [000] d..2.     2.132215: x",
            Some("kworker/0:2|63|63|0|d..2.|2132215000||x"),
        );
        check(
            "          <...>-0       (-------) [000] d..2.     2.132215: x",
            Some("-|0|-|0|d..2.|2132215000||x"),
        );
        check(
            "Binder_4-280   (  184) [000] d..5 5.086330: x",
            Some("Binder_4|280|184|0|d..5|5086330000||x"),
        );
        check(
            " dd-225     [000] .....            3: x",
            Some("dd|225|-|0|.....|-|3|x"),
        );
        check(
            " a-674   [006]668619500700: x: y",
            Some("a|674|-|6||-|668619500700|x: y"),
        );
        check(
            "dd-1 [000] 5.608423: (+148)   sched: x",
            Some("dd|1|-|0||5608423000||sched: x"),
        );
        check(
            "sched:           <idle>-0     [001]    49.673287: sched_switch:         a",
            Some("<idle>|0|-|1||49673287000|sched|sched_switch:         a"),
        );
        check("perf 169 [000]     4.720337: x", None);
        check(
            "perf   169/169   [000]     4.720337972:          1       sched:sched_wakeup: x",
            None,
        );
        check("dd-1 [000] x", None);
        check("dd-1 000 1.5: x", None);
        check("", None);
    }

    #[test]
    fn latency_heads() {
        let check =
            |line: &'static str, expected: Option<&str>| check(latency(line.as_bytes()), expected);
        check(
            "  script-142       1..... 1251us!: sys_write -> 0x2",
            Some("script|142|-|1|.....|1251000||sys_write -> 0x2"),
        );
        check(
            "    bash-2042    3d...    0us : a <-b",
            Some("bash|2042|-|3|d...|0||a <-b"),
        );
        check(
            "      dd-174     0...1.     5.608275: e:       0x1",
            Some("dd|174|-|0|...1.|5608275000||e:       0x1"),
        );
        check(
            "      dd-174     0...1.     56: e",
            Some("dd|174|-|0|...1.|-|56|e"),
        );
        check(
            "  a-b-17       0d..2. 6822us+: x",
            Some("a-b|17|-|0|d..2.|6822000||x"),
        );
        check("2024-01-01 12:00:00 x", None);
    }

    #[test]
    fn other_heads() {
        check(
            verbose(b"          a b     142   1 0 00000000 00000000 [0024954f] 5.582ms (+1.191ms): x: y"),
            Some("a b|142|-|1||2397519000||x: y"),
        );
        check(
            raw(b"142 0 1985469023 type: 820"),
            Some("-|142|-|0||1985469023||type: 820"),
        );
        check(
            raw(b"0000008e 00000001 0000000078692d7c type: 820"),
            Some("-|142|-|1||2020158844||type: 820"),
        );
        let (head, device, rest) =
            blk_classic(b"254,0    0    91.420701829   439  Q  WS 0 + 8 [dd]").unwrap();
        assert_eq!((head.time, head.tid), (Some(91_420_701_829), Some(439)));
        assert_eq!((device, rest), (&b"254,0"[..], &b"Q  WS 0 + 8 [dd]"[..]));
        assert!(blk_classic(b"8,0 3 1 0.000000 697 G W 223490 + 8 [kjournald]").is_some());
    }

    #[test]
    fn contexts() {
        let context = |flags: &'static str| {
            Head {
                flags: flags.as_bytes(),
                ..Head::default()
            }
            .context()
        };
        assert_eq!(context("d.h1."), Some(Context::Irq));
        assert_eq!(context("..s.."), Some(Context::Softirq));
        assert_eq!(context("dNh6."), Some(Context::Irq));
        assert_eq!(context("d.Z.."), Some(Context::Nmi));
        assert_eq!(context("....1"), Some(Context::Task));
        assert_eq!(context(""), None);
    }
}
