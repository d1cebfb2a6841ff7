//! Lines → executions.

use perfquet_events::event::{Action, AggregateValue, Event, Fact, Sink};
use perfquet_events::{Error, Input};

use crate::lines::{Line, Lines, Meter, unsigned};
use crate::printout::{Printout, Sum};

/// The first bytes of `.gcda`, of both byte orders.
pub(super) const DATA: [&[u8]; 2] = [b"adcg", b"gcda"];

/// Reads all lines.
pub(super) fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    let Some(map) = input.whole()? else {
        return Ok(());
    };
    if DATA.iter().any(|magic| map.starts_with(magic)) {
        return Err(Error::Unsupported {
            input: input.name().to_owned(),
            message:
                "counts of gcov without lines\nhint: run gcov FILE.gcda, and import the .gcov files"
                    .to_owned(),
        });
    }
    let mut out = Printout::new("gcov", sink)?;
    let mut place = Place::default();
    let mut lines = Lines::of(&map);
    let mut meter = Meter::default();
    while let Some(next) = lines.next() {
        one(next, &mut place, &mut out)?;
        meter.report(lines.progress(), out.sink)?;
    }
    out.finish()
}

/// The count, line number and text of a line.
pub(super) fn line(text: &[u8]) -> Option<(&[u8], u64, &[u8])> {
    let mut parts = text.splitn(3, |&byte| byte == b':');
    let count = parts.next()?.trim_ascii();
    let number = unsigned(parts.next()?.trim_ascii())?;
    let source = parts.next()?;
    let is_count = matches!(
        count,
        b"-" | b"#####" | b"=====" | b"$$$$$" | b"%%%%%" | b"#####*" | b"=====*"
    ) || count.first().is_some_and(u8::is_ascii_digit);
    is_count.then_some((count, number, source))
}

/// What the lines belong to.
#[derive(Default)]
struct Place<'a> {
    source: &'a [u8],
    /// One of several functions on the same lines. The lines before its name have the sums of all of them.
    function: Option<&'a [u8]>,
}

fn one<'a>(next: Line<'a>, place: &mut Place<'a>, out: &mut Printout<'_>) -> Result<(), Error> {
    let text = next.text;
    let source = place.source;
    if text.trim_ascii().is_empty() {
        out.counts.blank += 1;
        return Ok(());
    }
    if let Some((name, count)) = function(text) {
        out.counts.data += 1;
        return sum(out, b"calls", &[source, name], count);
    }
    let Some((count, number, rest)) = line(text) else {
        let is_other = [&b"branch "[..], b"call ", b"unconditional "]
            .iter()
            .any(|start| text.starts_with(start));
        let is_ruler = text.starts_with(b"-----");
        let name = text.strip_suffix(b":");
        if is_ruler || name.is_some() {
            place.function = name.filter(|_| !is_ruler);
        }
        if is_other || is_ruler || name.is_some() || is_block(text) {
            out.counts.header += 1;
            return Ok(());
        }
        return out.problem(next, "a count, a line number and its text");
    };
    if number == 0 {
        out.counts.header += 1;
        let (key, value) = (String::from_utf8_lossy(rest), &rest);
        let Some((key, _)) = key.split_once(':') else {
            return Ok(());
        };
        let value = value.get(key.len() + 1..).unwrap_or_default();
        if key == "Source" {
            *place = Place {
                source: value,
                function: None,
            };
        }
        let name = &format!("gcov.{}", key.to_lowercase());
        let value = &String::from_utf8_lossy(value);
        return out.sink.event(Event::Fact(Fact::Other { name, value }));
    }
    // A star: some blocks of the line were never executed.
    let count = match count.strip_suffix(b"*").unwrap_or(count) {
        b"-" => {
            out.counts.header += 1;
            return Ok(());
        }
        b"#####" | b"=====" | b"$$$$$" | b"%%%%%" => 0,
        digits => match unsigned(digits) {
            Some(count) => count,
            None => return out.problem(next, "a count that is not rounded"),
        },
    };
    out.counts.data += 1;
    let number = number.to_string();
    let number = number.as_bytes();
    match place.function {
        Some(function) => sum(
            out,
            b"executions by function",
            &[source, number, function],
            count,
        ),
        None => sum(out, b"executions", &[source, number], count),
    }
}

/// `       7:    3-block  0` (`-a`): a part of the line above.
fn is_block(text: &[u8]) -> bool {
    let mut parts = text.splitn(2, |&byte| byte == b':').skip(1);
    let rest = parts.next().unwrap_or_default().trim_ascii_start();
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits > 0
        && rest
            .get(digits..)
            .is_some_and(|rest| rest.starts_with(b"-block "))
}

fn sum(out: &mut Printout<'_>, name: &[u8], keys: &[&[u8]], count: u64) -> Result<(), Error> {
    out.sum(Sum {
        name,
        action: Some(Action::Count),
        keys,
        value: Some(AggregateValue::of_unsigned(count)),
        ..Sum::default()
    })
}

/// `function leaf called 3001 returned 100% blocks executed 100%`
fn function(text: &[u8]) -> Option<(&[u8], u64)> {
    let rest = text.strip_prefix(b"function ")?;
    let called = memchr::memmem::rfind(rest, b" called ")?;
    let count = rest.get(called + 8..)?.split(|&byte| byte == b' ').next()?;
    Some((rest.get(..called)?, unsigned(count)?))
}
