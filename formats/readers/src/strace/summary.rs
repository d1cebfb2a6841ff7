//! The table of `-c` and `-C`.
//!
//! ```text
//! % time     seconds  usecs/call     calls    errors syscall
//! ------ ----------- ----------- --------- --------- ----------------
//!  43.48    0.000734         104         7         1 read
//! ------ ----------- ----------- --------- --------- ----------------
//! 100.00    0.001688          13       126        12 total
//! ```
//! The columns can be chosen (`--summary-columns`), so a column is found by its name and the ruler below it.

use perfquet_events::Error;
use perfquet_events::event::{Action, Aggregate, AggregateValue, Event, Sink, Stack};

use crate::lines::{unsigned, words};

/// A column of a row: its name, what it sums, and its value, if the table has it.
pub(super) type Sum<'a> = (&'a [u8], Action, Option<AggregateValue>);

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
}

/// The kinds of lines of a table.
#[derive(Debug, PartialEq)]
pub(super) enum Part<'a> {
    Ruler,
    Row(Row<'a>),
    /// The sum of all rows, which ends the table.
    Total,
}

/// Whether a line is the head of a table.
pub(super) fn is_head(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    text.starts_with(b"% time ")
        && (text.ends_with(b" syscall") || text.ends_with(b" function"))
        && words(text).any(|word| word == b"calls")
}

impl Table {
    pub(super) fn of(head: &[u8]) -> Table {
        let mut names: Vec<Vec<u8>> = words(head).map(<[u8]>::to_vec).collect();
        // `% time` is one name.
        names.drain(..1.min(names.len()));
        Table {
            names,
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
        // Large numbers extend to the left.
        let mut start = 0;
        for (name, &(_, end)) in self.names.iter().zip(&self.spans) {
            let is_last = name == b"syscall" || name == b"function";
            let cell = match is_last {
                true => text.get(start..),
                false => text.get(start..=end),
            };
            start = end + 1;
            let cell = cell.unwrap_or_default().trim_ascii();
            match name.as_slice() {
                b"syscall" | b"function" => row.name = cell,
                b"calls" => row.calls = unsigned(cell),
                b"errors" => row.errors = unsigned(cell),
                b"seconds" => {
                    row.seconds = std::str::from_utf8(cell)
                        .ok()
                        .and_then(|cell| cell.parse().ok());
                }
                _ => {}
            }
        }
        match (row.name, row.calls) {
            (b"total", _) => Some(Part::Total),
            (b"", _) | (_, None) => None,
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
