//! The table of `-c` and `-C`.
//!
//! ```text
//! % time     seconds  usecs/call     calls    errors syscall
//! ------ ----------- ----------- --------- --------- ----------------
//!  43.48    0.000734         104         7         1 read
//! ------ ----------- ----------- --------- --------- ----------------
//! 100.00    0.001688          13       126        12 total
//! ```
//! The columns and their order can be chosen (`--summary-columns`), so a column is found by its name and the ruler below it:
//!
//! ```text
//! syscall              longest     calls
//! ---------------- ----------- ---------
//! read                0.000104         7
//! ```

use perfquet_events::Error;
use perfquet_events::event::{Action, Aggregate, AggregateValue, Event, Sink, Stack};

use crate::lines::{unsigned, words};

/// A column of a row: its name, what it sums, and its value, if the table has it.
pub(super) type Sum<'a> = (&'a [u8], Action, Option<AggregateValue>);

/// Longer lines are no heads of tables.
const HEAD_BYTES_MAX: usize = 256;

/// Emits the sums of a row. `snapshot` is the number of the table.
pub(super) fn emit(
    sums: &[Sum<'_>],
    keys: &[&[u8]],
    snapshot: u32,
    sink: &mut dyn Sink,
) -> Result<(), Error> {
    for (name, action, value) in sums.iter().filter(|(_, _, value)| value.is_some()) {
        sink.event(Event::Aggregate(&Aggregate {
            name,
            action: Some(*action),
            keys,
            value: *value,
            kernel_stack: Stack::None,
            user_stack: Stack::None,
            snapshot,
            since: None,
            time: None,
            buckets: &[],
        }))?;
    }
    Ok(())
}

/// A table, from its head on.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Names of columns.
    names: Vec<Vec<u8>>,
    /// First and last byte of each column, of the ruler.
    spans: Vec<(usize, usize)>,
}

/// A row of the table.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Row<'a> {
    pub(super) name: &'a [u8],
    pub(super) calls: Option<u64>,
    pub(super) errors: Option<u64>,
    pub(super) seconds: Option<f64>,
    pub(super) shortest: Option<f64>,
    pub(super) longest: Option<f64>,
    /// Microseconds of a call.
    pub(super) average: Option<u64>,
    pub(super) percent: Option<f64>,
}

/// The kinds of lines of a table.
#[derive(Debug, PartialEq)]
pub(super) enum Part<'a> {
    Ruler,
    Row(Row<'a>),
    /// The sum of all rows, which ends the table.
    Total,
}

/// Names of columns. `% time` is one name.
const NAMES: [&[u8]; 9] = [
    b"time",
    b"seconds",
    b"shortest",
    b"longest",
    b"usecs/call",
    b"calls",
    b"errors",
    b"syscall",
    b"function",
];

/// Whether a line is the head of a table; `next` is the line below it.
pub(super) fn is_head<'a>(text: &[u8], next: impl FnOnce() -> &'a [u8]) -> bool {
    // Calls, which nearly all lines are, have a parenthesis.
    if text.len() > HEAD_BYTES_MAX || text.contains(&b'(') {
        return false;
    }
    let is_name = |word: &[u8]| matches!(word, b"syscall" | b"function");
    words(text).any(is_name)
        && words(text).all(|word| word == b"%" || NAMES.contains(&word))
        && next().trim_ascii_start().starts_with(b"---")
}

impl Table {
    pub(super) fn of(head: &[u8]) -> Table {
        let names = words(head).filter(|word| *word != b"%");
        Table {
            names: names.map(<[u8]>::to_vec).collect(),
            spans: Vec::new(),
        }
    }

    /// Parses a line below the head; `None` ends the table.
    pub(super) fn line<'a>(&mut self, text: &'a [u8]) -> Option<Part<'a>> {
        if text.trim_ascii().starts_with(b"---") {
            self.spans = spans(text);
            return (self.spans.len() == self.names.len()).then_some(Part::Ruler);
        }
        let mut row = Row::default();
        // Large numbers extend to the left, names to the right.
        let (mut start, mut has_number) = (0, false);
        for (place, (name, &(_, end))) in self.names.iter().zip(&self.spans).enumerate() {
            let is_name = name == b"syscall" || name == b"function";
            let is_last = place + 1 == self.names.len();
            let longer = text.get(end + 1..).unwrap_or_default();
            let longer = longer.iter().position(u8::is_ascii_whitespace);
            let cell_end = match (is_name, longer) {
                (true, _) if is_last => text.len(),
                (true, Some(longer)) => end + 1 + longer,
                (true, None) => text.len(),
                (false, _) => end + 1,
            };
            let cell = text.get(start..cell_end.min(text.len()));
            start = cell_end;
            let cell = cell.unwrap_or_default().trim_ascii();
            let number = || std::str::from_utf8(cell).ok()?.parse().ok();
            has_number |= !is_name && cell.first().is_some_and(u8::is_ascii_digit);
            match name.as_slice() {
                b"syscall" | b"function" => row.name = cell,
                b"calls" => row.calls = unsigned(cell),
                b"errors" => row.errors = unsigned(cell),
                b"usecs/call" => row.average = unsigned(cell),
                b"seconds" => row.seconds = number(),
                b"shortest" => row.shortest = number(),
                b"longest" => row.longest = number(),
                _ => row.percent = number(),
            }
        }
        match row.name {
            b"total" => Some(Part::Total),
            b"" => None,
            _ if !has_number && self.names.len() > 1 => None,
            _ => Some(Part::Row(row)),
        }
    }
}

fn spans(ruler: &[u8]) -> Vec<(usize, usize)> {
    let mut spans: Vec<(usize, usize)> = Vec::new();
    for (place, &byte) in ruler.iter().enumerate() {
        match (byte, spans.last_mut()) {
            (b'-', Some((_, end))) if *end + 1 == place => *end = place,
            (b'-', _) => spans.push((place, place)),
            _ => {}
        }
    }
    spans
}
