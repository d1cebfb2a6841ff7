//! The text of `uftrace replay`: a graph of calls with durations, without times unless `-f time` was given.
//!
//! ```text
//! # DURATION     TID     FUNCTION
//!             [ 14212] | main() {
//!   80.239 us [ 14212] |   pthread_create();
//!    0.141 us [ 14212] |   fib(1) = 1;
//!             [ 14212] |   pthread_join() {
//!             [ 14212] |     /* linux:sched-out */
//!    1.436 ms [ 14212] |     /* linux:sched-in */
//!    1.446 ms [ 14212] |   } /* pthread_join */
//! ```
//! Strings are printed raw: a line break inside of an argument continues on the next line.

use std::borrow::Cow;

use hashbrown::HashMap;
use perfquet_events::event::{Event, Fact, Place, Sink, time_of};
use perfquet_events::{Error, Input};

use super::sessions::nanoseconds;
use super::text::{At, TextEmitter};
use crate::lines::{Lines, Meter, quoted, signed, unsigned, words};
use crate::problems::Problems;

/// Words of the first line.
const COLUMNS: [&[u8]; 10] = [
    b"DURATION",
    b"TID",
    b"ADDRESS",
    b"TIMESTAMP",
    b"TIMEDELTA",
    b"ELAPSED",
    b"TASK",
    b"MODULE",
    b"NAME",
    b"FUNCTION",
];
/// Lines that a row may have more.
const ROW_LINES_MAX: usize = 100;
const END: &[u8] = b"uftrace stopped tracing with remaining functions";

/// Whether a text begins like this.
pub(super) fn is_replay(head: &[u8]) -> bool {
    let Some(first) = Lines::of(head).find(|line| !line.text.trim_ascii().is_empty()) else {
        return false;
    };
    let Some(names) = first.text.strip_prefix(b"# ") else {
        return false;
    };
    let has = |wanted: &[u8]| words(names).any(|word| word == wanted);
    words(names).all(|word| COLUMNS.contains(&word))
        && words(names).last() == Some(b"FUNCTION")
        && (has(b"TID") || has(b"DURATION"))
}

/// The command whose text nothing else resembles.
pub(super) const FLAT: &str = "replay --flat";

/// Texts of other commands: which command, and what it prints.
pub(super) fn other_text(head: &[u8]) -> Option<(&'static str, &'static str)> {
    let first = Lines::of(head).find(|line| !line.text.trim_ascii().is_empty())?;
    let text = first.text.trim_ascii();
    if text.starts_with(b"# Function Call Graph for '") {
        return Some(("graph", "merged calls"));
    }
    // `[0] ==> 9678/0: ip (main), time (15040604391503)`
    let is_flat = |mark: &[u8]| memchr::memmem::find(text, mark).is_some();
    if text.starts_with(b"[") && is_flat(b": ip (") && (is_flat(b"] ==> ") || is_flat(b"] <== ")) {
        return Some((FLAT, "records"));
    }
    let columns: Vec<&[u8]> = words(text).collect();
    let is_report = matches!(
        columns.as_slice(),
        [b"Total", b"time", b"Self", b"time", b"Calls", b"Function"]
    );
    is_report.then_some(("report", "sums"))
}

pub(super) fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    if let Some((command, content)) = other_text(input.head()) {
        return Err(Error::Unsupported {
            input: input.name().to_owned(),
            message: format!(
                "expected single calls, found {content} (the text of uftrace {command})\nhint: convert the directory of the recording, uftrace.data"
            ),
        });
    }
    let Some(map) = input.whole()? else {
        return Ok(());
    };
    sink.event(Event::Fact(Fact::Recorder("uftrace")))?;
    let mut reader = Reader {
        emitter: TextEmitter::default(),
        problems: Problems::default(),
        least: HashMap::new(),
        has_clock: false,
    };
    let mut meter = Meter::default();
    let mut lines = Lines::of(&map);
    while let Some(line) = lines.next() {
        let text = line.text;
        if text == END {
            break;
        }
        if text.is_empty() || text.starts_with(b"#") {
            continue;
        }
        let Some(mut row) = Row::parse(text) else {
            reader
                .problems
                .report(sink, Place::Line(line.number), "line", || {
                    format!("expected a row with |, found {}", quoted(text))
                })?;
            continue;
        };
        row.continued(&mut lines);
        reader.row(&row, line.number, sink)?;
        meter.report(lines.progress(), sink)?;
    }
    reader.problems.finish(sink)
}

/// A row of the table.
struct Row<'a> {
    duration: Option<i64>,
    tid: Option<i32>,
    time: Option<i64>,
    indent: u32,
    body: Cow<'a, [u8]>,
}

impl<'a> Row<'a> {
    fn parse(line: &'a [u8]) -> Option<Row<'a>> {
        let bar = memchr::memmem::find(line, b"| ")?;
        let (before, body) = (line.get(..bar)?, line.get(bar + 2..)?);
        let (first, rest, tid) = match memchr::memchr(b'[', before) {
            Some(open) => {
                let close = memchr::memchr(b']', before)?;
                let tid = before.get(open + 1..close)?.trim_ascii();
                let tid = i32::try_from(signed(tid)?).ok()?;
                (before.get(..open)?, before.get(close + 1..)?, Some(tid))
            }
            None => (before, before, None),
        };
        let time = words(rest).find(|word| {
            let dot = memchr::memchr(b'.', word);
            dot.is_some_and(|dot| word.len() - dot == 10)
        });
        let content = body.trim_ascii_start();
        Some(Row {
            duration: duration(first),
            tid,
            time: time.and_then(nanoseconds).map(time_of),
            indent: u32::try_from(body.len() - content.len()).ok()?,
            body: Cow::Borrowed(content),
        })
    }

    /// Adds the lines after a line break in a string.
    fn continued(&mut self, lines: &mut Lines<'a>) {
        for _ in 0..ROW_LINES_MAX {
            if is_complete(&self.body) {
                return;
            }
            let mut ahead = lines.clone();
            let Some(line) = ahead.next() else {
                return;
            };
            if Row::parse(line.text).is_some() || line.text == END {
                return;
            }
            let body = self.body.to_mut();
            body.push(b'\n');
            body.extend_from_slice(line.text);
            *lines = ahead;
        }
    }
}

/// Whether a body ends like one: `{`, `;`, `}` or a comment.
fn is_complete(body: &[u8]) -> bool {
    let body = body.trim_ascii_end();
    body.ends_with(b"{") || body.ends_with(b";") || body.ends_with(b"*/") || body == b"}"
}

/// `  80.239 us `
fn duration(text: &[u8]) -> Option<i64> {
    let mut words = words(text);
    let (number, unit) = (words.next()?, words.next()?);
    let scale = match unit {
        b"ns" => 1,
        b"us" => 1_000,
        b"ms" => 1_000_000,
        b"s" => 1_000_000_000,
        b"m" => 60_000_000_000,
        b"h" => 3_600_000_000_000,
        _ => return None,
    };
    let dot = memchr::memchr(b'.', number);
    let (whole, decimals) = match dot {
        Some(dot) => (number.get(..dot)?, number.get(dot + 1..)?),
        None => (number, &b""[..]),
    };
    let part = match decimals {
        b"" => 0,
        digits => {
            let one = 10_u64.checked_pow(u32::try_from(digits.len()).ok()?)?;
            unsigned(digits)?.checked_mul(scale)? / one
        }
    };
    let all = unsigned(whole)?.checked_mul(scale)?.checked_add(part)?;
    i64::try_from(all).ok()
}

struct Reader {
    emitter: TextEmitter,
    problems: Problems,
    /// Indentation of each thread's outermost call: with --column-view, threads stand beside each other.
    least: HashMap<Option<i32>, u32>,
    has_clock: bool,
}

impl Reader {
    fn row(&mut self, row: &Row<'_>, number: u64, sink: &mut dyn Sink) -> Result<(), Error> {
        if row.time.is_some() && !self.has_clock {
            self.has_clock = true;
            sink.event(Event::Fact(Fact::Clock("monotonic")))?;
        }
        let least = self.least.entry(row.tid).or_insert(match row.indent {
            // A child after fork begins inside of a call.
            indent if indent < 8 => 0,
            indent => indent - indent % 8,
        });
        let at = At {
            time: row.time,
            tid: row.tid,
            cpu: None,
            depth: row.indent.saturating_sub(*least) / 2,
        };
        let body: &[u8] = &row.body;
        if let Some(rest) = body.strip_prefix(b"}") {
            let name = comment(rest).unwrap_or_default();
            let value = rest.strip_prefix(b" = ").map(|value| {
                let end = memchr::memmem::rfind(value, b"; /*");
                let end = end.unwrap_or(value.len());
                value.get(..end).unwrap_or_default()
            });
            return self.emitter.leave(at, name, row.duration, value, sink);
        }
        if body.starts_with(b"/*") {
            let content = comment(body).unwrap_or_default();
            let open =
                memchr::memmem::find(content, b" (").filter(|_| !content.starts_with(b"linux:"));
            let (name, data) = content.split_at(open.unwrap_or(content.len()));
            let data = data
                .strip_prefix(b" (")
                .and_then(|data| data.strip_suffix(b")"));
            return self
                .emitter
                .event(at, name, data.unwrap_or_default(), row.duration, sink);
        }
        // The source line of --srcline.
        let body = match memchr::memmem::rfind(body, b" /* ") {
            Some(comment) if body.ends_with(b"*/") => body.get(..comment).unwrap_or(body),
            _ => body,
        };
        let call = |text| Called::parse(text);
        if let Some(called) = body.strip_suffix(b" {").and_then(call) {
            let args = called.args();
            let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
            return self.emitter.enter(at, called.name, &args, sink);
        }
        if let Some(called) = body.strip_suffix(b";").and_then(call) {
            let args = called.args();
            let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
            return self
                .emitter
                .leaf(at, called.name, &args, row.duration, called.value, sink);
        }
        self.problems.report(sink, Place::Line(number), "row", || {
            format!("expected a call or the end of one, found {}", quoted(body))
        })
    }
}

/// The text of the last comment.
fn comment(text: &[u8]) -> Option<&[u8]> {
    let open = memchr::memmem::rfind(text, b"/* ")?;
    let inner = text.get(open + 3..)?;
    Some(inner.strip_suffix(b"*/").unwrap_or(inner).trim_ascii_end())
}

/// `fib(5) = 8`
struct Called<'a> {
    name: &'a [u8],
    inside: &'a [u8],
    value: Option<&'a [u8]>,
}

impl<'a> Called<'a> {
    fn parse(text: &'a [u8]) -> Option<Called<'a>> {
        let is_operator = text.starts_with(b"operator()")
            || memchr::memmem::find(text, b"::operator()(").is_some();
        let skipped = match is_operator {
            true => memchr::memmem::find(text, b"operator()")? + b"operator()".len(),
            false => 0,
        };
        let open = skipped + memchr::memchr(b'(', text.get(skipped..)?)?;
        let close = end_of_arguments(text, open)?;
        let value = text.get(close + 1..)?.strip_prefix(b" = ");
        Some(Called {
            name: text.get(..open)?,
            inside: text.get(open + 1..close)?,
            value,
        })
    }

    /// `arg1=5`, …
    fn args(&self) -> Vec<Vec<u8>> {
        let mut args = Vec::new();
        let mut rest = self.inside;
        while !rest.is_empty() {
            let end = end_of_argument(rest);
            let arg = rest.get(..end).unwrap_or_default();
            let number = args.len() + 1;
            args.push([format!("arg{number}=").as_bytes(), arg].concat());
            rest = rest.get(end + 1..).unwrap_or_default().trim_ascii_start();
        }
        args
    }
}

/// Follows quotes and brackets.
#[derive(Default)]
struct Nesting {
    quote: Option<u8>,
    is_escaped: bool,
    depth: u32,
}

impl Nesting {
    fn step(&mut self, byte: u8) {
        match self.quote {
            Some(_) if std::mem::take(&mut self.is_escaped) => {}
            Some(_) if byte == b'\\' => self.is_escaped = true,
            Some(quote) if byte == quote => self.quote = None,
            Some(_) => {}
            None => match byte {
                b'"' | b'\'' => self.quote = Some(byte),
                b'(' | b'{' | b'[' => self.depth += 1,
                b')' | b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            },
        }
    }
}

fn end_of_arguments(text: &[u8], open: usize) -> Option<usize> {
    let mut nesting = Nesting::default();
    for (place, &byte) in text.iter().enumerate().skip(open) {
        nesting.step(byte);
        if nesting.depth == 0 && nesting.quote.is_none() {
            return Some(place);
        }
    }
    // A quote in a string is printed as it is.
    memchr::memrchr(b')', text).filter(|close| *close > open)
}

fn end_of_argument(text: &[u8]) -> usize {
    let mut nesting = Nesting::default();
    for (place, &byte) in text.iter().enumerate() {
        if byte == b',' && nesting.depth == 0 && nesting.quote.is_none() {
            return place;
        }
        nesting.step(byte);
    }
    text.len()
}
