//! Text files line by line: line numbers, unreadable lines, progress.
//!
//! ```text
//! "a\r\nb"   →   Line { number: 1, text: "a" }, Line { number: 2, text: "b" }
//! ```

use perfquet_events::Error;
use perfquet_events::event::{Event, Fact, Place, Problem, Progress, Sink};

/// Problems reported individually; the rest are counted.
const REPORTED_MAX: u64 = 100;
/// Bytes quoted from a line.
const QUOTED_BYTES: usize = 60;
const PROGRESS_BYTES: u64 = 1 << 20;

/// A line without its line ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// From 1.
    pub(crate) number: u64,
    /// Without `\n` or `\r\n`.
    pub(crate) text: &'a [u8],
}

impl Line<'_> {
    /// Strips the `^C` that a terminal shows before the output of an interrupted tool.
    pub(crate) fn without_interrupt(self) -> Self {
        let text = self.text.strip_prefix(b"^C").unwrap_or(self.text);
        Line { text, ..self }
    }
}

/// The lines of a text. A final line ending does not start another, empty line. A copy continues at the same position.
#[derive(Debug, Clone)]
pub(crate) struct Lines<'a> {
    rest: &'a [u8],
    number: u64,
    total: u64,
}

impl<'a> Lines<'a> {
    /// All lines of `text`.
    pub(crate) fn of(text: &'a [u8]) -> Lines<'a> {
        Lines {
            rest: text,
            number: 0,
            total: text.len() as u64,
        }
    }

    /// The bytes after the last line.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Bytes read, and total bytes.
    pub(crate) fn progress(&self) -> Progress {
        Progress {
            done: self.total - self.rest.len() as u64,
            total: Some(self.total),
        }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let end = memchr::memchr(b'\n', self.rest).unwrap_or(self.rest.len());
        let text = self.rest.get(..end)?;
        self.rest = self.rest.get(end + 1..).unwrap_or_default();
        self.number += 1;
        Some(Line {
            number: self.number,
            text: text.strip_suffix(b"\r").unwrap_or(text),
        })
    }
}

/// Reports progress to a sink at intervals.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    reported: u64,
}

impl Meter {
    /// Reports progress if enough bytes were read since the last report.
    pub(crate) fn report(&mut self, progress: Progress, sink: &mut dyn Sink) -> Result<(), Error> {
        if progress.done.saturating_sub(self.reported) < PROGRESS_BYTES {
            return Ok(());
        }
        self.reported = progress.done;
        sink.event(Event::Progress(progress))
    }
}

/// Number of lines of each kind. Every line has exactly one kind.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) data: u64,
    pub(crate) header: u64,
    pub(crate) blank: u64,
    pub(crate) loss: u64,
    pub(crate) problem: u64,
}

impl Counts {
    /// Reports all counts, after their sum, as the fact `name`.
    pub(crate) fn report(self, name: &str, sink: &mut dyn Sink) -> Result<(), Error> {
        let Counts {
            data,
            header,
            blank,
            loss,
            problem,
        } = self;
        let all = data + header + blank + loss + problem;
        let value = format!(
            "{all}: {data} data, {header} header, {blank} blank, {loss} losses, {problem} problems"
        );
        sink.event(Event::Fact(Fact::Other {
            name,
            value: &value,
        }))
    }
}

/// Reports unreadable data to a sink: the first hundred problems individually, the rest as a number.
#[derive(Debug, Default)]
pub(crate) struct LineProblems {
    count: u64,
}

impl LineProblems {
    /// `message` states what was expected and what was found.
    pub(crate) fn report(
        &mut self,
        place: Place,
        message: &str,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        self.count += 1;
        if self.count > REPORTED_MAX {
            return Ok(());
        }
        sink.event(Event::Problem(Problem {
            place,
            count: 1,
            message,
        }))
    }

    /// Reports an unexpected line.
    pub(crate) fn line(
        &mut self,
        line: Line<'_>,
        expected: &str,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let message = format!("expected {expected}, found {}", quoted(line.text));
        self.report(Place::Line(line.number), &message, sink)
    }

    /// Reports the number of problems not reported individually.
    pub(crate) fn finish(&self, sink: &mut dyn Sink) -> Result<(), Error> {
        match self.count.saturating_sub(REPORTED_MAX) {
            0 => Ok(()),
            count => sink.event(Event::Problem(Problem {
                place: Place::Whole,
                count,
                message: "more problems of these kinds",
            })),
        }
    }
}

/// The beginning of a line, in quotation marks.
pub(crate) fn quoted(text: &[u8]) -> String {
    let shown = text.get(..QUOTED_BYTES).unwrap_or(text);
    format!("{:?}", String::from_utf8_lossy(shown))
}

/// The words of a line, separated by spaces and tabs.
pub(crate) fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

/// An unsigned integer; `None` if the text is something else, or too large.
pub(crate) fn unsigned(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 20 {
        return None;
    }
    digits.iter().try_fold(0u64, |value, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// An integer, possibly negative.
pub(crate) fn signed(text: &[u8]) -> Option<i64> {
    match text.strip_prefix(b"-") {
        Some(digits) => 0i64.checked_sub_unsigned(unsigned(digits)?),
        None => i64::try_from(unsigned(text)?).ok(),
    }
}

/// A number of at most 16 hexadecimal digits, without `0x`.
pub(crate) fn hexadecimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0u64, |value, byte| {
        let digit = char::from(*byte).to_digit(16)?;
        Some(value << 4 | u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let found: Vec<_> = Lines::of(text.as_bytes()).collect();
        let expected: Vec<_> = (1..)
            .zip(expected)
            .map(|(number, text)| Line {
                number,
                text: text.as_bytes(),
            })
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn lines() {
        check("", &[]);
        check("a", &["a"]);
        check("a\r\nb\n", &["a", "b"]);
        check("\n\n", &["", ""]);
        check("a\n\nb", &["a", "", "b"]);
    }

    #[test]
    fn numbers() {
        assert_eq!(unsigned(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(unsigned(b"18446744073709551616"), None);
        assert_eq!(unsigned(b"-1"), None);
        assert_eq!(unsigned(b""), None);
        assert_eq!(signed(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(signed(b"9223372036854775808"), None);
        assert_eq!(signed(b"-"), None);
        assert_eq!(hexadecimal(b"c000E5f4"), Some(0xc000_e5f4));
        assert_eq!(hexadecimal(b"0x1"), None);
        assert_eq!(hexadecimal(b"11112222333344445"), None);
    }
}
