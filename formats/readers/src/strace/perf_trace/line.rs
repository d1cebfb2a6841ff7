//! A line of `perf trace`: time, duration, thread, and one of the kinds of text.

use perfquet_events::event::{NamedFrame, Space};

use super::super::line::cut;
use crate::lines::{Lines, hexadecimal, unsigned};

/// Lines at the beginning that are looked at.
const HEAD_LINES: usize = 12;
/// Longest name of a thread, and its number with slash and blank.
const COMM_BYTES: usize = 15;
const TID_BYTES: usize = 12;
/// Frames of a stack have at least this many blanks before them.
const FRAME_INDENT: usize = 20;
pub(super) const SUMMARY: &[u8] = b"Summary of events:";
const CONTINUED: &[u8] = b"... [continued]: ";

/// Whether most of the first lines are of `perf trace`.
pub(in crate::strace) fn is_perf_trace(head: &[u8]) -> bool {
    let lines = Lines::of(head).map(|line| line.text);
    let lines = lines.filter(|text| !text.trim_ascii().is_empty());
    let (mut known, mut typical) = (0, 0);
    let mut count = 0;
    for text in lines.take(HEAD_LINES) {
        count += 1;
        if text.trim_ascii() == SUMMARY {
            return count == 1;
        }
        let is_row = Row::parse(text).is_some_and(|row| !matches!(row.body, Body::Other(_)));
        typical += usize::from(is_row);
        known += usize::from(is_row || frame(text).is_some() || lost(text).is_some());
    }
    typical > 0 && known * 2 > count
}

/// A line with a time.
#[derive(Debug, PartialEq)]
pub(super) struct Row<'a> {
    pub(super) time: Option<i64>,
    pub(super) duration: Option<i64>,
    pub(super) comm: Option<&'a [u8]>,
    pub(super) tid: Option<i32>,
    pub(super) body: Body<'a>,
}

#[derive(Debug, PartialEq)]
pub(super) enum Body<'a> {
    Call {
        name: &'a [u8],
        args: &'a [u8],
        result: &'a [u8],
    },
    Begin {
        name: &'a [u8],
        args: &'a [u8],
    },
    End {
        name: &'a [u8],
        result: &'a [u8],
    },
    /// System, name, and arguments, or text of older versions.
    Event(&'a [u8], &'a [u8], &'a [u8]),
    /// `minfault [main+0x1] => /bin/sh@0x1000 (d.)`
    Fault(&'a [u8], &'a [u8]),
    Other(&'a [u8]),
}

impl<'a> Row<'a> {
    pub(super) fn parse(text: &'a [u8]) -> Option<Row<'a>> {
        let (time, rest) = cut(text.trim_ascii_start(), b" (")?;
        let time = match time {
            b"?" => None,
            time => Some(milliseconds(time)?),
        };
        let (inside, rest) = cut(rest, b"): ")?;
        let duration = match inside.trim_ascii() {
            b"" => None,
            inside => Some(milliseconds(inside.strip_suffix(b" ms")?.trim_ascii())?),
        };
        let mut row = Row {
            time,
            duration,
            comm: None,
            tid: None,
            body: Body::parse(rest.trim_ascii()),
        };
        // Names may have blanks and slashes, too: the last one that a known text follows.
        for (comm, tid, rest) in threads(rest) {
            let body = Body::parse(rest.trim_ascii());
            if !matches!(body, Body::Other(_)) {
                (row.comm, row.tid, row.body) = (comm, Some(tid), body);
            }
        }
        Some(row)
    }
}

/// The possible beginnings: `COMM/TID `, `TID `.
fn threads(text: &[u8]) -> impl Iterator<Item = (Option<&[u8]>, i32, &[u8])> {
    let head = text.get(..COMM_BYTES + TID_BYTES).unwrap_or(text);
    let blanks = memchr::memchr_iter(b' ', head);
    blanks.filter_map(|place| {
        let (before, rest) = text.split_at_checked(place)?;
        let slash = before.iter().rposition(|&byte| byte == b'/');
        let digits = slash.map_or(before, |slash| before.get(slash + 1..).unwrap_or_default());
        let tid = i32::try_from(unsigned(digits)?).ok()?;
        Some((slash.and_then(|slash| before.get(..slash)), tid, rest))
    })
}

impl<'a> Body<'a> {
    fn parse(text: &'a [u8]) -> Body<'a> {
        let other = Body::Other(text);
        if let Some(rest) = text.strip_prefix(CONTINUED) {
            return match cut(rest, b"()") {
                Some((name, rest)) if is_name(name) => match result(rest) {
                    Some(result) => Body::End { name, result },
                    None => other,
                },
                _ => other,
            };
        }
        if let Some((kind @ (b"minfault" | b"majfault"), rest)) = cut(text, b" ") {
            return Body::Fault(kind, rest);
        }
        let Some((name, rest)) = cut(text, b"(") else {
            return Body::event(text).unwrap_or(other);
        };
        if !is_name(name) {
            return Body::event(text).unwrap_or(other);
        }
        if let Some(args) = rest.strip_suffix(b"...") {
            let args = args.trim_ascii_end();
            if let Some(args) = args.strip_suffix(b")") {
                return Body::Begin { name, args };
            }
        }
        // The last closing parenthesis with a result: arguments have others.
        let mut ends = memchr::memmem::rfind_iter(rest, b")");
        let found = ends.find_map(|end| {
            let result = result(rest.get(end..)?)?;
            Some((rest.get(..end)?, result))
        });
        match found {
            Some((args, result)) => Body::Call { name, args, result },
            None => other,
        }
    }

    fn event(text: &'a [u8]) -> Option<Body<'a>> {
        let (system, rest) = cut(text, b":")?;
        let end = rest.iter().position(|byte| matches!(byte, b'(' | b':'))?;
        let (name, rest) = rest.split_at_checked(end)?;
        if !is_name(system) || !is_name(name) {
            return None;
        }
        let inside = rest
            .strip_prefix(b"(")
            .and_then(|rest| rest.strip_suffix(b")"));
        Some(Body::Event(
            system,
            name,
            inside.or(rest.strip_prefix(b":"))?,
        ))
    }
}

/// What follows `)   = `.
fn result(text: &[u8]) -> Option<&[u8]> {
    let text = text
        .strip_prefix(b")")?
        .trim_ascii_start()
        .strip_prefix(b"=")?;
    match text.first() {
        None => Some(text),
        Some(b' ') => Some(text.trim_ascii()),
        Some(_) => None,
    }
}

pub(super) fn is_name(name: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !name.is_empty() && name.iter().all(is_part)
}

/// Nanoseconds of `12.345`.
pub(super) fn milliseconds(text: &[u8]) -> Option<i64> {
    let (whole, thousandths) = cut(text, b".")?;
    if thousandths.len() != 3 {
        return None;
    }
    let whole = i64::try_from(unsigned(whole)?)
        .ok()?
        .checked_mul(1_000_000)?;
    whole.checked_add(i64::try_from(unsigned(thousandths)?).ok()? * 1000)
}

/// `LOST 12 events!`
pub(super) fn lost(text: &[u8]) -> Option<u64> {
    unsigned(
        text.trim_ascii()
            .strip_prefix(b"LOST ")?
            .strip_suffix(b" events!")?,
    )
}

/// `_start+0x12 (/usr/lib/ld.so)`, `[0x401000] (/bin/sh)`, `main (inlined)`
pub(super) fn frame(text: &[u8]) -> Option<NamedFrame<'_>> {
    let blanks = text.iter().take_while(|byte| **byte == b' ').count();
    if blanks < FRAME_INDENT {
        return None;
    }
    let text = text.trim_ascii().strip_suffix(b")")?;
    let open = memchr::memmem::rfind(text, b" (")?;
    let (function, module) = (text.get(..open)?, text.get(open + 2..)?);
    let (function, function_offset) = match memchr::memmem::rfind(function, b"+0x") {
        Some(plus) => (
            function.get(..plus)?,
            hexadecimal(function.get(plus + 3..)?),
        ),
        None => (function, None),
    };
    let is_unknown = function.starts_with(b"[") && function.ends_with(b"]");
    let inlined = module == b"inlined";
    Some(NamedFrame {
        function: match is_unknown {
            true => b"[unknown]",
            false => function,
        },
        function_offset,
        module: match module {
            b"inlined" | b"[unknown]" => b"",
            module => module,
        },
        space: match module.starts_with(b"[kernel") || module.starts_with(b"[guest.kernel") {
            true => Space::Kernel,
            false => Space::User,
        },
        inlined,
        ..NamedFrame::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let row = Row::parse(text.as_bytes()).map(|row| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let body = match row.body {
                Body::Call { name, args, result } => {
                    format!("call {} {} {}", text(name), text(args), text(result))
                }
                Body::Begin { name, args } => format!("begin {} {}", text(name), text(args)),
                Body::End { name, result } => format!("end {} {}", text(name), text(result)),
                Body::Event(system, name, rest) => {
                    format!("event {} {} {}", text(system), text(name), text(rest))
                }
                Body::Fault(kind, rest) => format!("fault {} {}", text(kind), text(rest)),
                Body::Other(_) => "other".to_owned(),
            };
            let comm = row.comm.map(text);
            format!(
                "{:?} {:?} {:?} {:?} {body}",
                row.time, row.duration, comm, row.tid
            )
        });
        assert_eq!(row.as_deref().unwrap_or("none"), expected);
    }

    #[test]
    fn lines() {
        check(
            "     1.248 (         ): a/1 b/22049 read(fd: 4<pipe:[18]>, count: 8)         ...",
            "Some(1248000) None Some(\"a/1 b\") Some(22049) begin read fd: 4<pipe:[18]>, count: 8",
        );
        check(
            "1.248 (10.104 ms): 7 open(name: \"a) = 3 (x/5 y\")  = -1 ENOENT (No such file or directory)",
            "Some(1248000) Some(10104000) None Some(7) call open name: \"a) = 3 (x/5 y\" -1 ENOENT (No such file or directory)",
        );
        check(
            "     ? (         ): sh/1  ... [continued]: clone())                 = ",
            "None None Some(\"sh\") Some(1) end clone ",
        );
        check(
            "0.000 ( 0.000 ms): sleep/9 majfault [_start+0x0] => /lib/ld.so@0x1 (d.)",
            "Some(0) Some(0) Some(\"sleep\") Some(9) fault majfault [_start+0x0] => /lib/ld.so@0x1 (d.)",
        );
        check("4.1 (         ): sh/1 brk() = 0", "none");
        // perf before 4.19.
        check(
            "0.100 (         ): sched:sched_switch:prev_comm=a prev_pid=1)",
            "Some(100000) None None None event sched sched_switch prev_comm=a prev_pid=1)",
        );
        check(
            "0.100 ( 0.001 ms): brk() = 0x10",
            "Some(100000) Some(1000) None None call brk  0x10",
        );
    }
}
