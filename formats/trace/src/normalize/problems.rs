//! Problems as rows: the first thousand individually, the others counted by message.
//!
//! A damaged input can have a problem at every record, so memory and output are bounded.

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::event::{Place, Problem};

use crate::store::{TableId, Writer};
use crate::tables;

/// Problems kept with their place, and further ones kept by message.
const KEPT: usize = 1000;
/// A message that quotes its input may be long.
const MESSAGE_BYTES: usize = 1000;

/// All problems of an import.
#[derive(Default)]
pub(crate) struct Problems {
    rows: Vec<Kept>,
    /// Source and message → index into `rows`, for problems counted without a place.
    counted: HashMap<(String, String), usize>,
    total: u64,
}

struct Kept {
    source: String,
    place: Place,
    count: u64,
    message: String,
}

impl Problems {
    /// Keeps a problem, or counts it.
    pub(crate) fn add(&mut self, source: &str, problem: &Problem<'_>) {
        let message = short(problem.message);
        let count = problem.count.max(1);
        self.total = self.total.saturating_add(count);
        if self.rows.len() < KEPT {
            self.rows.push(Kept {
                source: source.to_owned(),
                place: problem.place,
                count,
                message,
            });
            return;
        }
        let full = self.counted.len() >= KEPT;
        let mut key = (source.to_owned(), message);
        if full && !self.counted.contains_key(&key) {
            key.1 = "more problems of other kinds".to_owned();
        }
        let rows = &mut self.rows;
        let index = *self
            .counted
            .entry(key)
            .or_insert_with_key(|(source, message)| {
                rows.push(Kept {
                    source: source.clone(),
                    place: Place::Whole,
                    count: 0,
                    message: message.clone(),
                });
                rows.len() - 1
            });
        if let Some(row) = self.rows.get_mut(index) {
            row.count = row.count.saturating_add(count);
        }
    }

    /// Writes the rows; returns the number of problems they represent.
    pub(crate) fn write(&mut self, writer: &mut Writer, table: TableId) -> Result<u64, Error> {
        for row in self.rows.drain(..) {
            let (offset, line) = match row.place {
                Place::Whole => (None, None),
                Place::Offset(offset) => (i64::try_from(offset).ok(), None),
                Place::Line(line) => (None, i64::try_from(line).ok()),
            };
            tables::problems::Row {
                source: row.source.as_bytes(),
                input_offset: offset,
                line,
                count: row.count.try_into().unwrap_or(i64::MAX),
                message: row.message.as_bytes(),
            }
            .push(writer.rows(table));
            writer.end_row(table)?;
        }
        Ok(self.total)
    }
}

fn short(message: &str) -> String {
    match message.char_indices().nth(MESSAGE_BYTES) {
        Some((end, _)) => format!("{}…", message.get(..end).unwrap_or_default()),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_problems_are_counted() {
        let mut problems = Problems::default();
        for number in 0..KEPT as u64 * 3 {
            let message = if number % 2 == 0 {
                "expected a record, found zeros".to_owned()
            } else {
                format!("number {number}")
            };
            problems.add(
                "a",
                &Problem {
                    place: Place::Offset(number),
                    count: 2,
                    message: &message,
                },
            );
        }
        assert_eq!(problems.total, KEPT as u64 * 6);
        // The zeros have one row with their count; the numbers share the remaining rows up to the limit.
        assert!(problems.rows.len() <= 2 * KEPT + 1);
        let counted: u64 = problems.rows.iter().map(|row| row.count).sum();
        assert_eq!(counted, problems.total);
    }

    #[test]
    fn counts_of_a_damaged_input_are_bounded() {
        let mut problems = Problems::default();
        for _ in 0..KEPT + 2 {
            problems.add(
                "a",
                &Problem {
                    place: Place::Whole,
                    count: u64::MAX,
                    message: "many",
                },
            );
        }
        assert_eq!(problems.total, u64::MAX);
    }

    #[test]
    fn long_messages_are_cut_between_letters() {
        assert_eq!(short("ä"), "ä");
        assert_eq!(short(&"ä".repeat(2000)).chars().count(), MESSAGE_BYTES + 1);
    }
}
