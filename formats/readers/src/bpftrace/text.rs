//! Lines of text → maps and messages.

use perfquet_events::Error;
use perfquet_events::event::{AggregateValue, Bucket, Sink};

use super::histogram;
use super::key::{Key, Shape};
use super::output::{Content, Output};
use crate::lines::{Line, Lines, Meter, quoted, unsigned};

/// Separator of a key's parts.
const SEPARATOR: &[u8] = b", ";
/// Maximum number of lines in a key: two stacks of 127 frames, many times over.
const KEY_LINES_MAX: usize = 4096;
/// More bars than any histogram has.
const BARS_MAX: usize = 1 << 16;

/// Reads a whole text.
pub(super) fn read(text: &[u8], sink: &mut dyn Sink) -> Result<(), Error> {
    let mut reader = Text {
        lines: Lines::of(text),
        text,
        out: Output::new(sink)?,
        map: None,
    };
    let mut meter = Meter::default();
    while let Some(line) = reader.lines.next() {
        reader.line(line)?;
        let progress = reader.lines.progress();
        meter.report(progress, reader.out.sink())?;
    }
    reader.out.finish()
}

struct Text<'a, 's> {
    lines: Lines<'a>,
    text: &'a [u8],
    out: Output<'s>,
    /// The current map: its name, and the shape of its keys.
    map: Option<(&'a [u8], Shape)>,
}

/// `@name[key]: value`, on one or more lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry<'a> {
    name: &'a [u8],
    /// `None` if the map has no keys.
    key: Option<&'a [u8]>,
    value: &'a [u8],
}

/// The name of the map whose entry begins here, and the rest after it.
pub(super) fn begins_entry(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = line.strip_prefix(b"@")?;
    let is_name = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
    let end = 1 + rest.iter().take_while(is_name).count();
    let (name, after) = line.split_at_checked(end)?;
    let is_entry = match after.strip_prefix(b"[") {
        // A key of one line ends on it; one with a stack continues on the next.
        Some(key) => key_end(key).is_some() || key.is_empty() || key.ends_with(b", "),
        None => after.starts_with(b": ") || after == b":",
    };
    is_entry.then_some((name, after))
}

/// Where the key ends in a line: at the last `]: ` followed by a value, or at the end of the line.
fn key_end(line: &[u8]) -> Option<usize> {
    if let Some(end) = line.strip_suffix(b"]:") {
        return Some(end.len());
    }
    line.windows(3).rposition(|part| part == b"]: ")
}

/// `Attaching 2 probes...`
pub(super) fn attached(line: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(b"Attaching ")?;
    let blank = rest.iter().position(|&byte| byte == b' ')?;
    let (count, rest) = rest.split_at_checked(blank)?;
    rest.starts_with(b" probe").then(|| unsigned(count))?
}

/// `Lost 7 events`
fn lost(line: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(b"Lost ")?;
    unsigned(
        rest.strip_suffix(b" events")
            .or_else(|| rest.strip_suffix(b" event"))?,
    )
}

impl<'a> Text<'a, '_> {
    fn line(&mut self, line: Line<'a>) -> Result<(), Error> {
        let text = line.text.strip_prefix(b"^C").unwrap_or(line.text);
        if text.trim_ascii().is_empty() {
            self.out.blank_line();
            return Ok(());
        }
        if let Some(count) = attached(text) {
            return self.out.fact("bpftrace.probes", &count.to_string());
        }
        if let Some(count) = lost(text) {
            return self.out.loss(Some(count));
        }
        if text.starts_with(b"ERROR: ") {
            return self
                .out
                .problem(line.number, &String::from_utf8_lossy(text));
        }
        let mut ahead = self.lines.clone();
        let Some(entry) = self.entry(line, &mut ahead) else {
            if begins_entry(text).is_some() {
                let message = format!("expected the end of a key, found {}", quoted(text));
                self.out.problem(line.number, &message)?;
            }
            self.map = None;
            return self.out.message(line.number, text.trim_ascii_end());
        };
        let shape = match self.map {
            Some((name, shape)) if name == entry.name => shape,
            _ => {
                let shape = self.shape(entry, ahead.clone());
                self.map = Some((entry.name, shape));
                shape
            }
        };
        self.lines = ahead;
        let key = match entry.key {
            Some(key) => Key::of(key, SEPARATOR, &shape),
            None => Key::default(),
        };
        self.value(line, entry, key)
    }

    /// The entry that begins on a line; `ahead` continues after it.
    fn entry(&self, line: Line<'a>, ahead: &mut Lines<'a>) -> Option<Entry<'a>> {
        let text = line.text.strip_prefix(b"^C").unwrap_or(line.text);
        let (name, after) = begins_entry(text)?;
        let Some(key) = after.strip_prefix(b"[") else {
            let value = after.strip_prefix(b":")?.trim_ascii();
            let key = None;
            return Some(Entry { name, key, value });
        };
        if let Some(end) = key_end(key) {
            let value = key.get(end + 2..)?.trim_ascii();
            let key = key.get(..end);
            return Some(Entry { name, key, value });
        }
        let start = self.place_of(key);
        for _ in 0..KEY_LINES_MAX {
            let line = ahead.next()?;
            // Frames are indented; a line that ends or separates the key is not.
            if line.text.starts_with(b" ") || line.text.starts_with(b"\t") {
                continue;
            }
            if let Some(end) = key_end(line.text) {
                let value = line.text.get(end + 2..)?.trim_ascii();
                let key = self.text.get(start..self.place_of(line.text) + end);
                return Some(Entry { name, key, value });
            }
            if !line.text.starts_with(b",") {
                return None;
            }
        }
        None
    }

    /// Offset of a piece within the text.
    fn place_of(&self, piece: &[u8]) -> usize {
        (piece.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize)
    }

    /// The shape of the keys of the map printed from here on.
    fn shape(&self, first: Entry<'a>, mut ahead: Lines<'a>) -> Shape {
        let mut shape = Shape::default();
        let Some(key) = first.key else {
            return shape;
        };
        shape.add(key, SEPARATOR);
        while let Some(line) = ahead.next() {
            if line.text.trim_ascii().is_empty() || histogram::bar(line.text).is_some() {
                continue;
            }
            let Some(entry) = self.entry(line, &mut ahead) else {
                break;
            };
            match entry.key {
                Some(key) if entry.name == first.name => shape.add(key, SEPARATOR),
                _ => break,
            }
        }
        shape
    }

    fn value(&mut self, line: Line<'a>, entry: Entry<'a>, key: Key<'a>) -> Result<(), Error> {
        if entry.value.is_empty() {
            let bars = self.bars();
            if !bars.is_empty() {
                let action = histogram::action(&bars);
                return self
                    .out
                    .entry(entry.name, key, Content::Bars(&bars, action));
            }
        }
        let value = std::str::from_utf8(entry.value).unwrap_or_default();
        if let Some(stats) = stats(value) {
            return self.out.entry(entry.name, key, stats);
        }
        match number(value) {
            Some(value) => self.out.entry(entry.name, key, Content::Number(value)),
            // A string, a tuple, a record.
            None => self.out.message(line.number, line.text.trim_ascii_end()),
        }
    }

    fn bars(&mut self) -> Vec<Bucket> {
        let mut bars = Vec::new();
        loop {
            let mut ahead = self.lines.clone();
            let Some(bar) = ahead.next().and_then(|line| histogram::bar(line.text)) else {
                return bars;
            };
            self.lines = ahead;
            if bars.len() < BARS_MAX {
                bars.push(bar);
            }
        }
    }
}

fn number(text: &str) -> Option<AggregateValue> {
    let is_number = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-'));
    AggregateValue::parse(text).filter(|_| is_number)
}

/// `count 2, average 15, total 30`
fn stats(text: &str) -> Option<Content<'static>> {
    let rest = text.strip_prefix("count ")?;
    let (count, rest) = rest.split_once(", average ")?;
    let (average, total) = rest.split_once(", total ")?;
    Some(Content::Stats(
        number(count)?,
        number(average)?,
        number(total)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings() {
        for (line, expected) in [
            ("@: 1", true),
            ("@a: 1", true),
            ("@a[b, c]: 1", true),
            ("@a[", true),
            ("@a[, ", true),
            ("@a[b]: ", true),
            ("@a[b]:", true),
            ("@a [b]: 1", false),
            ("@a[b] = count();", false),
            ("a: 1", false),
            ("@a", false),
        ] {
            assert_eq!(begins_entry(line.as_bytes()).is_some(), expected, "{line}");
        }
    }

    #[test]
    fn words() {
        assert_eq!(attached(b"Attaching 3 probes..."), Some(3));
        assert_eq!(attached(b"Attaching the probes..."), None);
        assert_eq!(lost(b"Lost 7 events"), Some(7));
        assert_eq!(number("-5"), Some(AggregateValue::Int(-5)));
        assert_eq!(number("inf"), None);
        assert_eq!(number("(1, 2)"), None);
        assert_eq!(
            stats("count 2, average 15, total 30"),
            Some(Content::Stats(
                AggregateValue::Int(2),
                AggregateValue::Int(15),
                AggregateValue::Int(30)
            ))
        );
    }
}
