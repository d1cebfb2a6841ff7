//! Tables whose last columns are counts, sums and means: each value is an aggregate with the other columns as its key.
//!
//! ```text
//! SYSCALL                   COUNT        TIME (us)       value titles: COUNT, TIME (us)
//! clock_nanosleep              21      3808453.315       key "clock_nanosleep", values 21 and 3808453.315
//!
//!            System Call      Count     Total ns
//!                 access          4        59169
//!
//!         COUNT      EVENT                               argdist: the value comes first
//!         2          size = 16
//! ```

use perfquet_events::event::{Action, AggregateValue};

use crate::columns::parts;
use crate::lines::words;

/// Ends of titles of values.
const UNITS: [&[u8]; 7] = [b" us", b" ns", b" ms", b"(us)", b"(ns)", b"(ms)", b"secs"];
/// Longer lines are not titles.
const TITLES_BYTES: usize = 512;

/// The titles of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ValueTable<'a> {
    key_titles: usize,
    /// The first key ends with a colon, as its title: `execname:`.
    has_colon: bool,
    /// Titles of values, and their functions.
    pub(crate) values: Vec<(&'a [u8], Option<Action>)>,
    is_value_first: bool,
}

impl<'a> ValueTable<'a> {
    /// The table that a line of titles begins; `None` if it does not end with titles of values.
    pub(crate) fn of(line: &'a [u8]) -> Option<ValueTable<'a>> {
        let line = line.trim_ascii();
        if line.len() > TITLES_BYTES {
            return None;
        }
        if let [count, _] = parts(line).as_slice()
            && *count == b"COUNT"
        {
            return Some(ValueTable {
                key_titles: 1,
                has_colon: false,
                values: vec![(count, action(count))],
                is_value_first: true,
            });
        }
        let mut rest = line;
        let mut values = Vec::new();
        while let Some((before, title)) = last_title(rest) {
            values.push((title, action(title)));
            rest = before;
        }
        values.reverse();
        let keys = parts(rest);
        // A title of time first belongs to a list of events. Sentences have more words.
        let is_list = keys.first()?.starts_with(b"TIME") || keys.len() > 2;
        let is_apart = line.get(rest.len()..rest.len() + 2) == Some(b"  ") || values.len() > 1;
        (!values.is_empty() && is_apart && !is_list && words(rest).count() <= 3).then_some(
            ValueTable {
                key_titles: keys.len(),
                has_colon: keys.first()?.ends_with(b":"),
                values,
                is_value_first: false,
            },
        )
    }

    /// Number of values with a unit: `Total ns`, `run(us)`.
    pub(crate) fn units(&self) -> usize {
        let has_unit = |title: &[u8]| UNITS.iter().any(|unit| title.ends_with(unit));
        self.values
            .iter()
            .filter(|(title, _)| has_unit(title))
            .count()
    }

    /// The key and the values of a row.
    pub(crate) fn row<'r>(&self, line: &'r [u8]) -> Option<(Vec<&'r [u8]>, Vec<AggregateValue>)> {
        let line = line.trim_ascii();
        if self.is_value_first {
            let end = line.iter().position(|&byte| byte == b' ')?;
            let (value, key) = line.split_at_checked(end)?;
            return Some((vec![key.trim_ascii()], vec![number(value)?]));
        }
        let mut rest = line;
        let mut values = Vec::new();
        for _ in &self.values {
            let start = rest.iter().rposition(u8::is_ascii_whitespace);
            let (before, word) = rest.split_at_checked(start.map_or(0, |place| place + 1))?;
            values.push(number(word)?);
            rest = before.trim_ascii_end();
        }
        values.reverse();
        let mut keys = self.keys(rest)?;
        if let Some(first) = keys.first_mut().filter(|_| self.has_colon) {
            *first = first.strip_suffix(b":").unwrap_or(first);
        }
        Some((keys, values))
    }

    fn keys<'r>(&self, text: &'r [u8]) -> Option<Vec<&'r [u8]>> {
        if self.key_titles < 2 {
            // A key of several columns has too many parts.
            return (parts(text).len() < 2).then(|| vec![text]);
        }
        let parts = parts(text);
        if parts.len() == self.key_titles {
            return Some(parts);
        }
        let blank = text.iter().position(|&byte| byte == b' ')?;
        let (first, rest) = text.split_at_checked(blank)?;
        Some(vec![first, rest.trim_ascii()])
    }
}

/// The last title of a line if it is that of a value, and the line before it. A unit may follow after one blank.
fn last_title(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.trim_ascii_end();
    let start_of = |text: &[u8]| {
        let blank = text.iter().rposition(u8::is_ascii_whitespace);
        blank.map_or(0, |place| place + 1)
    };
    let mut start = start_of(line);
    let unit = line.get(start..)?;
    if matches!(unit, b"us" | b"ns" | b"ms" | b"(us)" | b"(ns)" | b"(ms)") {
        start = start_of(line.get(..start.checked_sub(1)?)?);
    }
    let (before, title) = line.split_at_checked(start)?;
    is_value(title).then_some((before.trim_ascii_end(), title))
}

/// Whether a column with this title has values, not keys.
fn is_value(title: &[u8]) -> bool {
    let lower = title.to_ascii_lowercase();
    UNITS
        .iter()
        .any(|end| lower.ends_with(end) && lower.len() > end.len())
        || matches!(
            lower.as_slice(),
            b"count" | b"calls" | b"errors" | b"percent%" | b"total" | b"avg" | b"min" | b"max"
        )
}

/// The function of the values below a title, if it names one.
fn action(title: &[u8]) -> Option<Action> {
    let lower = title.to_ascii_lowercase();
    let has = |start: &[u8]| lower.starts_with(start);
    match () {
        () if has(b"count") || has(b"calls") || has(b"errors") => Some(Action::Count),
        () if has(b"total") || has(b"time") || has(b"sum") => Some(Action::Sum),
        () if has(b"avg") || has(b"average") => Some(Action::Avg),
        () if has(b"min") => Some(Action::Min),
        () if has(b"max") => Some(Action::Max),
        () => None,
    }
}

/// A number, also as a percentage.
fn number(word: &[u8]) -> Option<AggregateValue> {
    let word = word.strip_suffix(b"%").unwrap_or(word);
    let is_number = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'-');
    let text = std::str::from_utf8(word).ok()?;
    (word.iter().all(is_number) && !word.is_empty())
        .then(|| AggregateValue::parse(text))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(titles: &str, row: &str, keys: &[&str], values: &[(&str, f64)]) {
        let table = ValueTable::of(titles.as_bytes()).expect(titles);
        let (found_keys, found) = table.row(row.as_bytes()).expect(row);
        let texts: Vec<_> = found_keys
            .iter()
            .map(|key| String::from_utf8_lossy(key))
            .collect();
        assert_eq!(texts, keys);
        let titles = table
            .values
            .iter()
            .map(|(title, _)| String::from_utf8_lossy(title));
        let found: Vec<_> = titles
            .zip(found.iter().map(|value| value.as_f64()))
            .collect();
        let expected: Vec<_> = values
            .iter()
            .map(|(title, value)| ((*title).into(), *value))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn rows() {
        check(
            "FUNC                          COUNT",
            "operator new(unsigned long)   7",
            &["operator new(unsigned long)"],
            &[("COUNT", 7.0)],
        );
        check(
            "SYSCALL        COUNT    TIME (us)",
            "read   8   33228.173",
            &["read"],
            &[("COUNT", 8.0), ("TIME (us)", 33228.173)],
        );
        check(
            "SOFTIRQ          TOTAL_usecs",
            "timer      477",
            &["timer"],
            &[("TOTAL_usecs", 477.0)],
        );
        check(
            "PID    COMM               COUNT",
            "29   my sh   55",
            &["29", "my sh"],
            &[("COUNT", 55.0)],
        );
        check(
            "        COUNT      EVENT",
            "        2     size = 16",
            &["size = 16"],
            &[("COUNT", 2.0)],
        );
        check(
            "    System Call   Count   Total ns   Avg ns",
            "   access     4   59169   14792",
            &["access"],
            &[("Count", 4.0), ("Total ns", 59169.0), ("Avg ns", 14792.0)],
        );
        check(
            "Reason      Count  Average(us)  Percent%",
            "     5   561   9%",
            &[""],
            &[("Count", 5.0), ("Average(us)", 561.0), ("Percent%", 9.0)],
        );
        check(
            "  execname:    pid    run(us)  sleep(us) iowait(us)",
            " DOM Worker:  26575   7  10  3",
            &["DOM Worker", "26575"],
            &[("run(us)", 7.0), ("sleep(us)", 10.0), ("iowait(us)", 3.0)],
        );
    }

    #[test]
    fn units() {
        let units = |titles: &'static str| ValueTable::of(titles.as_bytes()).unwrap().units();
        assert_eq!(units("# reason: count sum(us) min(us) avg(us) max(us)"), 4);
        assert_eq!(units("  System Call   Count   Total ns   Avg ns"), 2);
        assert_eq!(units("FUNC         COUNT"), 0);
    }

    #[test]
    fn other_lines() {
        for line in [
            "",
            "COUNT",
            "and this is the count",
            "TIME(s)  COMM   LAT(ms)",
            "PID  COMM  FD ERR PATH",
            "inspect the COUNT",
        ] {
            assert_eq!(ValueTable::of(line.as_bytes()), None, "{line}");
        }
        let table = ValueTable::of(b"FUNC      COUNT").unwrap();
        assert_eq!(table.row(b"Detaching..."), None);
        assert_eq!(table.row(b""), None);
    }
}
