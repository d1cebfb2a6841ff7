//! Histogram triggers: the file `hist` of an event.
//!
//! ```text
//! # event histogram
//! # trigger info: hist:keys=count.log2:vals=hitcount,count:sort=count:size=2048 [active]
//! { count: ~ 2^12 } hitcount:         12  count:      49152
//! { common_stacktrace:
//!          seq_read_iter+0x19e/0x480
//! } hitcount:          2  bytes_req:      24576
//! Totals:
//!     Hits: 24
//!     Entries: 7
//!     Dropped: 0
//! ```
//! Each key is a row: `hitcount` is a count, the other values are sums. If a key has powers of two (`~ 2^12`: above
//! 2^11, up to 2^12) or steps (`~ 0-1023`), the hit counts become the bars of one distribution per combination of the
//! other keys, named after that key.

use std::collections::BTreeMap;

use perfquet_events::Error;
use perfquet_events::event::{
    Action, Aggregate, AggregateValue, Bucket, Event, NamedFrame, Sink, Stack,
};
use perfquet_events::scan::{
    decimal, leading_decimal, rsplit_once, signed, split_once, trim, trim_start,
};

use super::symbol;

/// Maximum number of distributions that wait for their end.
const MAX_WAITING: usize = 1 << 16;

/// The histogram being read.
#[derive(Default)]
pub(super) struct Histogram<'a> {
    /// Number of histograms before this one.
    snapshot: u32,
    is_open: bool,
    /// Stack frames of a key that spans several lines.
    frames: Vec<NamedFrame<'a>>,
    keys: Vec<u8>,
    in_stack: bool,
    in_totals: bool,
    rows: u64,
    waiting: BTreeMap<Distribution, Vec<Bucket>>,
}

/// The common properties of one distribution's bars.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Distribution {
    /// Whether the bars are powers of two; otherwise steps.
    is_log2: bool,
    /// The key that the bars divide.
    name: Vec<u8>,
    /// The other keys.
    keys: Vec<Vec<u8>>,
}

/// The kind of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HistLine {
    /// A row, or part of one.
    Data,
    /// One of the totals.
    Header,
    /// Number of hits dropped because the histogram was full.
    Dropped(u64),
    /// The totals state another number of rows than were read.
    Wrong { stated: u64, read: u64 },
    /// Not a line of a histogram.
    Unknown,
}

impl<'a> Histogram<'a> {
    /// `# event histogram`
    pub(super) fn begin(&mut self, sink: &mut dyn Sink) -> Result<(), Error> {
        self.end(sink)?;
        if self.is_open {
            self.snapshot += 1;
        }
        let snapshot = self.snapshot;
        *self = Histogram {
            snapshot,
            is_open: true,
            ..Histogram::default()
        };
        Ok(())
    }

    /// Whether a histogram is open.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Consumes a line.
    pub(super) fn line(&mut self, line: &'a [u8], sink: &mut dyn Sink) -> Result<HistLine, Error> {
        let text = trim(line);
        if self.in_stack {
            return self.line_in_stack(text, sink);
        }
        if let Some(rest) = text.strip_prefix(b"{") {
            if let Some((keys, values)) = rsplit_once(rest, b"}") {
                return self.row(keys, values, sink);
            }
            self.in_stack = true;
            self.frames.clear();
            self.keys.clear();
            self.keys.extend_from_slice(rest);
            return Ok(HistLine::Data);
        }
        if text == b"Totals:" {
            self.in_totals = true;
            self.end(sink)?;
            return Ok(HistLine::Header);
        }
        let Some((name, value)) = split_once(text, b": ").filter(|_| self.in_totals) else {
            return Ok(HistLine::Unknown);
        };
        Ok(match (name, decimal(trim(value))) {
            (b"Hits", Some(_)) => HistLine::Header,
            (b"Dropped", Some(0)) => HistLine::Header,
            (b"Dropped", Some(count)) => HistLine::Dropped(count),
            (b"Entries", Some(stated)) if stated != self.rows => HistLine::Wrong {
                stated,
                read: self.rows,
            },
            (b"Entries", Some(_)) => HistLine::Header,
            _ => HistLine::Unknown,
        })
    }

    fn line_in_stack(&mut self, text: &'a [u8], sink: &mut dyn Sink) -> Result<HistLine, Error> {
        // Other keys may follow the stack's key: `, pid: 12 } hitcount: 1`.
        if text.starts_with(b"}") || text.starts_with(b",") {
            self.in_stack = false;
            let (others, values) = rsplit_once(text, b"}").unwrap_or((&[], &[]));
            let mut keys = std::mem::take(&mut self.keys);
            keys.extend_from_slice(others);
            let result = self.row_of(&keys, values, sink);
            self.keys = keys;
            return result;
        }
        // Bounds hostile input: the kernel stores at most 16 frames (HIST_STACKTRACE_DEPTH).
        if self.frames.len() < 256 {
            self.frames.extend(symbol::frame(text, false));
        }
        Ok(HistLine::Data)
    }

    fn row(
        &mut self,
        keys: &'a [u8],
        values: &'a [u8],
        sink: &mut dyn Sink,
    ) -> Result<HistLine, Error> {
        self.frames.clear();
        self.row_of(keys, values, sink)
    }

    fn row_of(
        &mut self,
        keys: &[u8],
        values: &'a [u8],
        sink: &mut dyn Sink,
    ) -> Result<HistLine, Error> {
        let mut range = None;
        let mut range_name: &[u8] = &[];
        let mut texts: Vec<Vec<u8>> = Vec::new();
        for (name, value) in pairs(keys) {
            match value.strip_prefix(b"~").and_then(|text| bar(trim(text))) {
                Some((is_log2, low, high)) if range.is_none() => {
                    range = Some((is_log2, low, high));
                    range_name = name;
                }
                _ if value.is_empty() && !self.frames.is_empty() => {}
                _ => texts.push(squeezed(value)),
            }
        }
        self.rows += 1;
        let mut is_row = false;
        for (name, value) in values_of(values) {
            is_row = true;
            if let Some((is_log2, low, high)) = range
                && name == b"hitcount"
            {
                let count = value.exact().unwrap_or(i64::MAX);
                let distribution = Distribution {
                    is_log2,
                    name: range_name.to_vec(),
                    keys: texts.clone(),
                };
                let bars = self.waiting.entry(distribution).or_default();
                bars.push(Bucket {
                    low: Some(low),
                    high: Some(high),
                    count,
                });
                continue;
            }
            let mut keys: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
            let text = range.map(|(_, low, high)| format!("{low}-{}", high - 1));
            if let Some(text) = &text {
                keys.push(text.as_bytes());
            }
            sink.event(Event::Aggregate(&Aggregate {
                name,
                action: Some(match name {
                    b"hitcount" => Action::Count,
                    _ => Action::Sum,
                }),
                keys: &keys,
                value: Some(value),
                kernel_stack: match self.frames.as_slice() {
                    [] => Stack::None,
                    frames => Stack::Named(frames),
                },
                user_stack: Stack::None,
                snapshot: self.snapshot,
                since: None,
                time: None,
                buckets: &[],
            }))?;
        }
        if self.waiting.len() >= MAX_WAITING {
            self.end(sink)?;
        }
        Ok(if is_row {
            HistLine::Data
        } else {
            HistLine::Unknown
        })
    }

    /// Emits the distributions.
    pub(super) fn end(&mut self, sink: &mut dyn Sink) -> Result<(), Error> {
        for (distribution, mut bars) in std::mem::take(&mut self.waiting) {
            let Distribution {
                is_log2,
                name,
                keys,
            } = distribution;
            bars.sort_by_key(|bar| bar.low);
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            sink.event(Event::Aggregate(&Aggregate {
                name: &name,
                action: Some(match is_log2 {
                    true => Action::Quantize,
                    false => Action::Lquantize,
                }),
                keys: &keys,
                value: None,
                kernel_stack: Stack::None,
                user_stack: Stack::None,
                snapshot: self.snapshot,
                since: None,
                time: None,
                buckets: &bars,
            }))?;
        }
        Ok(())
    }
}

/// Whether a line is a complete row.
pub(super) fn is_row(text: &[u8]) -> bool {
    text.starts_with(b"{ ") && perfquet_events::scan::find_text(text, b"} hitcount: ").is_some()
}

/// `pid:          9, lat:        109`: names and values.
fn pairs(keys: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = trim(keys);
    std::iter::from_fn(move || {
        rest = trim_start(rest.strip_prefix(b",").unwrap_or(rest));
        let colon = perfquet_events::scan::find(rest, b':')?;
        let name = trim(rest.get(..colon)?);
        let after = rest.get(colon + 1..)?;
        let end = next_key(after);
        let (value, following) = after.split_at_checked(end)?;
        rest = following;
        Some((name, trim(value)))
    })
}

/// Offset of the next `, name: `.
fn next_key(text: &[u8]) -> usize {
    let is_next = |place: usize| {
        let rest = text.get(place..).and_then(|rest| rest.strip_prefix(b", "));
        let Some(rest) = rest else {
            return false;
        };
        let name = rest
            .iter()
            .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'))
            .count();
        name > 0 && rest.get(name) == Some(&b':')
    };
    let commas = text.iter().enumerate().filter(|(_, byte)| **byte == b',');
    commas
        .map(|(place, _)| place)
        .find(|place| is_next(*place))
        .unwrap_or(text.len())
}

/// ` hitcount:         12  count:      49152`
fn values_of(text: &[u8]) -> impl Iterator<Item = (&[u8], AggregateValue)> {
    let mut words = text
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    std::iter::from_fn(move || {
        loop {
            // `hitcount (%):  12.50`: these words are not names.
            let Some(name) = words
                .next()?
                .strip_suffix(b":")
                .filter(|name| *name != b"(%)")
            else {
                continue;
            };
            let value = std::str::from_utf8(words.next()?).ok()?;
            if let Some(value) = AggregateValue::parse(value) {
                return Some((name, value));
            }
        }
    })
}

/// `2^12`, `0-1023`, `-5--1`: whether it is a power of two, the smallest value, and the first value past the end.
fn bar(text: &[u8]) -> Option<(bool, i64, i64)> {
    if let Some(power) = text.strip_prefix(b"2^") {
        let power = decimal(power).filter(|power| *power < 63)?;
        // The kernel rounds up: 4096 is 2^12, 4097 is 2^13; 0 and 1 are 2^0.
        let low = if power == 0 {
            0
        } else {
            (1 << (power - 1)) + 1
        };
        return Some((true, low, (1 << power) + 1));
    }
    let minus = text.strip_prefix(b"-").unwrap_or(text);
    let (_, after) = leading_decimal(minus)?;
    let low = signed(text.get(..text.len() - after.len())?)?;
    let last = signed(after.strip_prefix(b"-")?)?;
    Some((false, low, last.checked_add(1)?))
}

/// `dd              [       391]` → `dd [391]`
fn squeezed(text: &[u8]) -> Vec<u8> {
    let mut squeezed: Vec<u8> = Vec::with_capacity(text.len());
    for &byte in text {
        let is_needless = byte == b' ' && matches!(squeezed.last(), Some(b' ' | b'['));
        if !is_needless {
            squeezed.push(byte);
        }
    }
    squeezed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars() {
        assert_eq!(bar(b"2^12"), Some((true, 2049, 4097)));
        assert_eq!(bar(b"2^0"), Some((true, 0, 2)));
        assert_eq!(bar(b"2^63"), None);
        assert_eq!(bar(b"4096-5119"), Some((false, 4096, 5120)));
        assert_eq!(bar(b"-5--1"), Some((false, -5, 0)));
        assert_eq!(bar(b"x"), None);
    }

    #[test]
    fn keys_and_values() {
        let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let keys: Vec<_> = pairs(b" common_pid: a, b         [       391], count:       4096 ")
            .map(|(name, value)| (show(name), show(&squeezed(value))))
            .collect();
        assert_eq!(
            keys,
            [
                ("common_pid".into(), "a, b [391]".to_owned()),
                ("count".into(), "4096".into())
            ]
        );
        let values: Vec<_> = values_of(b" hitcount:   12  hitcount (%):  1.50  count:  49152 ")
            .map(|(name, value)| (show(name), value))
            .collect();
        assert_eq!(
            values,
            [
                ("hitcount".to_owned(), AggregateValue::Int(12)),
                ("count".to_owned(), AggregateValue::Int(49152)),
            ]
        );
    }
}
