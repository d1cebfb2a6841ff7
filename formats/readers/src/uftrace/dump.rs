//! The text of `uftrace dump`: the files one after the other, so the lines are sorted by their times first.
//!
//! ```text
//! reading 14212.dat
//! 518.466601500  14212: [entry] fib(563b194c9256) depth: 1
//! 518.466601500  14212: [args ] length = 8
//!   args[0] d64: 0x0000000000000005
//! 518.466602662  14212: [exit ] fib(563b194c9256) depth: 1
//! 518.466602662  14212: [retval] length = 8
//!   retval d64: 0x0000000000000005
//! 518.466991821  14215: [event] linux:sched-in(200001)
//! reading kernel-cpu0.dat
//! 518.466999112  14212: [entry] __x64_sys_openat(ffff81459c24) depth: 0        among the functions of the kernel
//! 518.467001260  14212: [event] sched:sched_waking(313) comm=calls pid=14215 prio=120 target_cpu=001
//! ```
//! Strings are printed raw: a line break inside of one continues on the next line.

use std::io::Write as _;

use perfquet_events::event::{Event, Fact, Loss, Place, Sink, time_of};
use perfquet_events::{Error, Input};

use super::sessions::nanoseconds;
use super::text::{At, TextEmitter, integer};
use crate::lines::{Line, Lines, Meter, quoted, signed, unsigned};
use crate::problems::Problems;

const HEAD: &[u8] = b"uftrace file header: magic ";
/// Lines of one record: arguments, and the lines of strings.
const GROUP_LINES_MAX: usize = 1000;

/// Whether a text begins like this.
pub(super) fn is_dump(head: &[u8]) -> bool {
    head.starts_with(HEAD)
}

/// A record's line.
#[derive(Debug, Clone, Copy)]
struct Record<'a> {
    time: u64,
    tid: i32,
    kind: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Record<'a> {
    /// `518.466478677  14212: [entry] __monstartup(563b194c9070) depth: 0`
    fn parse(line: &'a [u8]) -> Option<Record<'a>> {
        let space = memchr::memchr(b' ', line)?;
        let time = nanoseconds(line.get(..space)?)?;
        let rest = line.get(space..)?.trim_ascii_start();
        let colon = memchr::memchr(b':', rest)?;
        let tid = i32::try_from(signed(rest.get(..colon)?)?).ok()?;
        let rest = rest.get(colon + 1..)?.strip_prefix(b" [")?;
        let end = memchr::memchr(b']', rest)?;
        Some(Record {
            time,
            tid,
            kind: rest.get(..end)?.trim_ascii_end(),
            rest: rest.get(end + 1..)?.trim_ascii_start(),
        })
    }

    /// Whether the line belongs to the record before.
    fn is_continuation(&self) -> bool {
        matches!(self.kind, b"args" | b"retval" | b"data" | b"time")
    }
}

/// A record in the order of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    time: u64,
    offset: u64,
    cpu: Option<u32>,
    is_kernel: bool,
}

pub(super) fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    let Some(map) = input.whole()? else {
        return Ok(());
    };
    sink.event(Event::Fact(Fact::Recorder("uftrace")))?;
    sink.event(Event::Fact(Fact::Clock("monotonic")))?;
    let mut problems = Problems::default();
    let mut entries = index(&map, &mut problems, sink)?;
    if !entries.is_sorted() {
        entries.sort_unstable();
    }
    let mut emitter = TextEmitter::default();
    let mut meter = Meter::default();
    let mut done = 0;
    for entry in entries {
        let offset = usize::try_from(entry.offset).unwrap_or(usize::MAX);
        let group = map.get(offset..).unwrap_or_default();
        done += one(group, entry, &mut emitter, sink)?;
        let progress = perfquet_events::event::Progress {
            done,
            total: Some(map.len() as u64),
        };
        meter.report(progress, sink)?;
    }
    problems.finish(sink)
}

/// The places of all records.
fn index(text: &[u8], problems: &mut Problems, sink: &mut dyn Sink) -> Result<Vec<Entry>, Error> {
    let mut entries = Vec::new();
    let (mut cpu, mut is_kernel) = (None, false);
    let mut lines = Lines::of(text);
    loop {
        let offset = (text.len() - lines.rest().len()) as u64;
        let Some(line) = lines.next() else {
            break;
        };
        if let Some(file) = line.text.strip_prefix(b"reading ") {
            is_kernel = file.starts_with(b"kernel-cpu");
            let digits = file
                .strip_prefix(b"perf-cpu")
                .or_else(|| file.strip_prefix(b"kernel-cpu"))
                .and_then(|rest| rest.strip_suffix(b".dat"));
            cpu = digits.and_then(|digits| u32::try_from(unsigned(digits)?).ok());
            continue;
        }
        match Record::parse(line.text) {
            Some(record) if !record.is_continuation() => entries.push(Entry {
                time: record.time,
                offset,
                cpu,
                is_kernel,
            }),
            Some(_) => {}
            None if is_known(line, entries.is_empty()) => {}
            None => problems.report(sink, Place::Line(line.number), "line", || {
                format!("expected a record, found {}", quoted(line.text))
            })?,
        }
    }
    Ok(entries)
}

/// Lines of the head, values, and lines inside of strings, which may be anything once there is a record.
fn is_known(line: Line<'_>, is_head: bool) -> bool {
    let text = line.text;
    !is_head
        || text.is_empty()
        || text.starts_with(b"uftrace file header: ")
        || text.ends_with(b"tasks found")
}

/// Emits a record with the lines that belong to it; returns their bytes.
fn one(
    text: &[u8],
    entry: Entry,
    emitter: &mut TextEmitter,
    sink: &mut dyn Sink,
) -> Result<u64, Error> {
    let mut lines = Lines::of(text);
    let Some(record) = lines.next().and_then(|line| Record::parse(line.text)) else {
        return Ok(0);
    };
    let values = values(&mut lines);
    let bytes = (text.len() - lines.rest().len()) as u64;
    let (name, data) = match entry.is_kernel && record.kind == b"event" {
        true => kernel_event(record.rest),
        false => (record.rest, None),
    };
    let (name, depth) = function(name);
    let at = At {
        time: Some(time_of(record.time)),
        tid: Some(record.tid),
        cpu: entry.cpu,
        depth,
    };
    let value = |name: &[u8]| {
        let mut found = values.iter();
        found.find_map(|value| value.strip_prefix(name))
    };
    match record.kind {
        b"entry" | b"exit" if entry.is_kernel => {
            emitter.kernel(at, name, record.kind == b"entry", sink)?;
        }
        b"entry" => {
            let args: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
            emitter.enter(at, name, &args, sink)?;
        }
        b"exit" => emitter.leave(at, name, None, value(b"retval="), sink)?,
        b"event" => {
            let first = values.first().map_or(&b""[..], Vec::as_slice);
            let data = data.unwrap_or(first);
            emitter.event(at, name, data, None, sink)?;
        }
        b"lost" => sink.event(Event::Loss(Loss {
            time: at.time,
            cpu: None,
            event: None,
            count: lost(record.rest),
            in_all: None,
            reason: "buffer full",
        }))?,
        _ => {}
    }
    Ok(bytes)
}

/// `sched:sched_switch(310) prev_comm=a prev_pid=…` → `sched:sched_switch(310)`, the rest.
fn kernel_event(rest: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr::memmem::find(rest, b") ") {
        Some(at) => {
            let (name, data) = rest.split_at(at + 1);
            (name, data.get(1..))
        }
        None => (rest, None),
    }
}

/// Their number, in the place of the address.
fn lost(rest: &[u8]) -> Option<u64> {
    let open = memchr::memrchr(b'(', rest)?;
    let digits = rest.get(open + 1..)?.split(|&byte| byte == b')').next()?;
    crate::lines::hexadecimal(digits)
}

/// `fib(563b194c9256) depth: 1` → `fib`, 1; `linux:sched-out (pre-empted)(200007)` → its name.
fn function(rest: &[u8]) -> (&[u8], u32) {
    let (rest, depth) = match memchr::memmem::rfind(rest, b" depth: ") {
        Some(at) => (
            rest.get(..at).unwrap_or_default(),
            rest.get(at + 8..).and_then(unsigned),
        ),
        None => (rest, None),
    };
    let name = memchr::memrchr(b'(', rest).and_then(|open| rest.get(..open));
    let depth = depth.and_then(|depth| u32::try_from(depth).ok());
    (name.unwrap_or(rest), depth.unwrap_or(0))
}

/// Values of a record: `arg1=5`, `retval=5`, or the data of an event.
fn values(lines: &mut Lines<'_>) -> Vec<Vec<u8>> {
    let mut values: Vec<Vec<u8>> = Vec::new();
    let mut breaks = 0;
    for _ in 0..GROUP_LINES_MAX {
        let mut ahead = lines.clone();
        let Some(line) = ahead.next() else {
            break;
        };
        match Record::parse(line.text) {
            Some(record) if record.is_continuation() => {}
            Some(_) => break,
            None if line.text.starts_with(b"reading ") => break,
            None => match parse_value(line.text) {
                Some(value) => {
                    if let Some(last) = values.last_mut() {
                        last.extend(std::iter::repeat_n(b'\n', breaks));
                    }
                    breaks = 0;
                    values.push(value);
                }
                // Empty lines at the end are not part of a string.
                None if line.text.is_empty() => breaks += 1,
                None => {
                    if let Some(last) = values.last_mut() {
                        last.extend(std::iter::repeat_n(b'\n', breaks + 1));
                        last.extend_from_slice(line.text);
                    }
                    breaks = 0;
                }
            },
        }
        *lines = ahead;
    }
    values
}

/// `  args[0] d64: 0x0000000000000005` → `arg1=5`; `  retval str: hi`; `  read:page-fault: major=0 minor=807` → its data.
fn parse_value(line: &[u8]) -> Option<Vec<u8>> {
    let rest = line.strip_prefix(b"  ")?;
    let mut shown = Vec::new();
    let (kind, value) = if let Some(rest) = rest.strip_prefix(b"args[") {
        let end = memchr::memchr(b']', rest)?;
        let number = unsigned(rest.get(..end)?)?;
        write!(shown, "arg{}=", number.saturating_add(1)).ok()?;
        split_at_colon(rest.get(end + 1..)?.strip_prefix(b" ")?)?
    } else if let Some(rest) = rest.strip_prefix(b"retval ") {
        shown.extend_from_slice(b"retval=");
        split_at_colon(rest)?
    } else {
        let (name, data) = split_at_colon(rest)?;
        return name.contains(&b':').then(|| data.to_vec());
    };
    let bits = || integer(value).map(i64::cast_unsigned);
    let size = || unsigned(kind.get(1..)?).filter(|size| matches!(size, 8 | 16 | 32 | 64));
    let number = match (kind.first()?, bits(), size()) {
        (letter, Some(bits), Some(size)) => match letter {
            b'd' | b'i' => {
                let unused = 64 - size;
                format!("{}", (bits << unused).cast_signed() >> unused)
            }
            b'u' => format!("{bits}"),
            b'o' => format!("{bits:#o}"),
            b'c' => format!("'{}'", (bits as u8).escape_ascii()),
            b'f' if size == 32 => format!("{}", f32::from_bits(bits as u32)),
            b'f' => format!("{}", f64::from_bits(bits)),
            _ => format!("{bits:#x}"),
        },
        _ => String::new(),
    };
    if !number.is_empty() {
        shown.extend_from_slice(number.as_bytes());
        return Some(shown);
    }
    if kind == b"p" {
        // 56347086d2e6 (&worker)
        let digits = value.split(|&byte| byte == b' ').next().unwrap_or_default();
        let digits = digits.strip_prefix(b"0x").unwrap_or(digits);
        shown.extend_from_slice(b"0x");
        shown.extend_from_slice(digits);
        return Some(shown);
    }
    shown.extend_from_slice(value);
    Some(shown)
}

/// `std::string: text` → the type and the text.
fn split_at_colon(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memmem::find(text, b": ");
    match at {
        Some(at) => Some((text.get(..at)?, text.get(at + 2..)?)),
        None => Some((text.strip_suffix(b":")?, b"")),
    }
}
