//! Tables that scripts print with `printf` and `printa`: titles above a ruler of dashes, or titles in capitals alone.
//!
//! ```text
//! -------INTERRUPTS-------
//!
//! thread  core               function            count  avg time(ns)
//! ------  ----  ---------------------  ---------------  ------------
//! 100018     0        iflib_fast_intr             4195          6374
//! ```
//! The ruler defines the columns. A cell wider than its column shifts the others; then the row is split at its spaces,
//! if that gives the right number of cells. `printa` prints 0 for keys that one of its aggregations lacks, and these
//! values stay 0.
//!
//! ```text
//!   UID   PID D    BLOCK   SIZE       COMM PATHNAME
//!     0     3 W  6498797    512    fsflush <none>
//! ```
//! Without a ruler, column boundaries are blank in all rows between two titles; the last column may contain spaces.

use std::ops::Range;

use perfquet_events::event::{EventKind, EventType, Field, FieldType, Value};

use crate::lines::{Lines, signed, words};

/// A line with more columns is not a table.
const COLUMNS_MAX: usize = 256;
/// Blanks in a cell such as the name of a thread.
const BLANKS_MAX: usize = 15;
/// Rows examined to choose the column types.
const TYPED_ROWS: usize = 1 << 16;

/// The columns of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Columns {
    /// Column ranges with dashes in the ruler.
    runs: Vec<Range<usize>>,
    names: Vec<String>,
    titles: Vec<String>,
    kinds: Vec<FieldType>,
    /// Rows that do not fit are split at their spaces; the last column takes the rest.
    has_free_tail: bool,
}

/// Ranges of dashes in a ruler; `None` if the line is not a ruler.
fn runs(line: &[u8]) -> Option<Vec<Range<usize>>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (place, byte) in line.trim_ascii_end().iter().enumerate() {
        match byte {
            b' ' => {}
            b'-' | b'=' => match runs.last_mut() {
                Some(run) if run.end == place => run.end += 1,
                _ => runs.push(place..place + 1),
            },
            _ => return None,
        }
    }
    let is_ruler = (2..=COLUMNS_MAX).contains(&runs.len()) && runs.iter().all(|run| run.len() >= 2);
    is_ruler.then_some(runs)
}

/// Whether a line is a ruler.
pub(crate) fn is_ruler(line: &[u8]) -> bool {
    runs(line).is_some()
}

/// `-------INTERRUPTS-------` → `INTERRUPTS`
pub(crate) fn framed(line: &[u8]) -> Option<&str> {
    let line = std::str::from_utf8(line).ok()?.trim();
    let title = line.strip_prefix("---")?.trim_matches('-');
    // Without a name, the line is a ruler.
    let is_name = title.contains(char::is_alphanumeric);
    (line.ends_with("---") && is_name).then(|| title.trim())
}

impl Columns {
    /// The columns of a line of titles, the ruler under it, and the rows below.
    pub(crate) fn of<'a>(
        titles: &[u8],
        ruler: &[u8],
        rows: impl Iterator<Item = &'a [u8]>,
    ) -> Option<Columns> {
        let runs = runs(ruler)?;
        let mut columns = Columns {
            titles: self::titles(titles, &runs),
            names: Vec::new(),
            kinds: Vec::new(),
            runs,
            has_free_tail: false,
        };
        columns.set_names();
        columns.kinds = columns.kinds_of(rows);
        Some(columns)
    }

    /// The columns under a line of titles without a ruler; `None` if it has none.
    pub(crate) fn under<'a>(
        titles: &[u8],
        rows: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Option<Columns> {
        if !is_titles(titles) {
            return None;
        }
        let spans = spans(titles);
        let text = |span: &Range<usize>| titles.get(span.clone()).unwrap_or_default();
        let mut columns = Columns {
            titles: spans
                .iter()
                .map(|span| String::from_utf8_lossy(text(span)).into_owned())
                .collect(),
            names: Vec::new(),
            kinds: Vec::new(),
            runs: between(&spans, rows.clone()),
            has_free_tail: true,
        };
        columns.set_names();
        columns.kinds = columns.kinds_of(rows);
        Some(columns)
    }

    fn set_names(&mut self) {
        for (place, title) in self.titles.iter().enumerate() {
            let name = plain(title);
            let name = match name.is_empty() || self.names.contains(&name) {
                true => format!("column_{}", place + 1),
                false => name,
            };
            self.names.push(name);
        }
    }

    /// Whether a column contains numbers.
    pub(crate) fn has_numbers(&self) -> bool {
        let is_number = |kind: &FieldType| matches!(kind, FieldType::Int(_) | FieldType::Float);
        self.kinds.iter().any(is_number)
    }

    /// Rows that are split at their spaces, and have more words than columns, determine only kinds that no other row does.
    fn kinds_of<'a>(&self, rows: impl Iterator<Item = &'a [u8]>) -> Vec<FieldType> {
        let mut kinds: Vec<Option<FieldType>> = vec![None; self.runs.len()];
        let mut unsure = Vec::new();
        for row in rows.take(TYPED_ROWS) {
            let Some(cells) = self.cells(row) else {
                continue;
            };
            if self.is_unsure(row) {
                unsure.push(cells);
                continue;
            }
            learn(&mut kinds, &cells);
        }
        if kinds.iter().all(Option::is_none) {
            unsure.iter().for_each(|cells| learn(&mut kinds, cells));
        }
        let kinds = kinds.into_iter();
        kinds.map(|kind| kind.unwrap_or(FieldType::Text)).collect()
    }

    /// Whether the words of a row may belong to other columns than the ones [`Columns::cells`] chooses.
    fn is_unsure(&self, row: &[u8]) -> bool {
        self.has_free_tail && self.at_gaps(row).is_none() && words(row).count() > self.runs.len()
    }

    /// The event type of the rows.
    pub(crate) fn event_type(&self, system: &str, name: &str) -> EventType {
        let fields: Vec<(&str, FieldType)> = self
            .names
            .iter()
            .map(String::as_str)
            .zip(self.kinds.iter().copied())
            .collect();
        let mut event_type = event_type(system, name, &fields);
        for (field, title) in event_type.fields.iter_mut().zip(&self.titles) {
            field.declaration.clone_from(title);
        }
        event_type
    }

    /// The cells of a row; `None` if it cannot be split.
    pub(crate) fn cells<'a>(&self, row: &'a [u8]) -> Option<Vec<&'a [u8]>> {
        let row = row.trim_ascii_end();
        self.at_gaps(row).or_else(|| self.shifted(row))
    }

    /// The cells of a row that is blank between the columns.
    fn at_gaps<'a>(&self, row: &'a [u8]) -> Option<Vec<&'a [u8]>> {
        let row = row.trim_ascii_end();
        let mut cells = Vec::with_capacity(self.runs.len());
        let mut start = 0;
        for (place, run) in self.runs.iter().enumerate() {
            let Some(next) = self.runs.get(place + 1) else {
                cells.push(row.get(start..).unwrap_or_default().trim_ascii());
                break;
            };
            // A cell that extends into the gap from either side belongs to that side's word. A row is blank past its
            // end, however wide the ruler is.
            let mut gap = run.end..next.start.min(row.len());
            if !gap.all(|at| row.get(at) == Some(&b' ')) {
                return None;
            }
            let cell = row.get(start..run.end.min(row.len()));
            cells.push(cell.unwrap_or_default().trim_ascii());
            start = run.end;
        }
        Some(cells)
    }

    /// The cells of a row with blanks in the column `place`, if exactly one number of words there fits.
    pub(crate) fn with_blanks_in<'a>(&self, row: &'a [u8], place: usize) -> Option<Vec<&'a [u8]>> {
        let words: Vec<&[u8]> = words(row).collect();
        let spare = words.len().checked_sub(self.runs.len())?;
        let between = |first: &[u8], last: &[u8]| {
            let start = first.as_ptr().addr() - row.as_ptr().addr();
            let end = last.as_ptr().addr() - row.as_ptr().addr() + last.len();
            row.get(start..end)
        };
        let mut found = (1..=spare.min(BLANKS_MAX)).filter_map(|more| {
            let mut cells: Vec<&[u8]> = Vec::with_capacity(self.runs.len());
            cells.extend(words.get(..place)?);
            cells.push(between(words.get(place)?, words.get(place + more)?)?);
            let after = words.get(place + more + 1..)?;
            let free = self.runs.len().checked_sub(place + 2)?;
            cells.extend(after.get(..free)?);
            cells.push(between(after.get(free)?, after.last()?)?);
            self.fits(&cells).then_some(cells)
        });
        let cells = found.next()?;
        found.next().is_none().then_some(cells)
    }

    fn shifted<'a>(&self, row: &'a [u8]) -> Option<Vec<&'a [u8]>> {
        let count = self.runs.len();
        let parts = parts(row);
        if parts.len() == count {
            return Some(parts);
        }
        let mut words: Vec<&[u8]> = words(row).collect();
        if self.has_free_tail
            && words.len() > count
            && let Some(last) = words.get(count - 1)
        {
            let start = last.as_ptr().addr() - row.as_ptr().addr();
            words.truncate(count - 1);
            words.push(row.get(start..)?);
        }
        (words.len() == count).then_some(words)
    }

    /// The values of a row's cells.
    pub(crate) fn values<'a>(&self, cells: &[&'a [u8]]) -> Vec<Value<'a>> {
        let cells = cells.iter().zip(&self.kinds);
        cells
            .map(|(cell, kind)| match kind {
                _ if cell.is_empty() => Value::Null,
                FieldType::Int(_) => signed(cell).map_or(Value::Null, Value::Int),
                FieldType::Float => float(cell).map_or(Value::Null, Value::Float),
                _ => Value::Bytes(cell),
            })
            .collect()
    }

    /// Whether each cell's value matches its column's type.
    pub(crate) fn fits(&self, cells: &[&[u8]]) -> bool {
        cells
            .iter()
            .zip(&self.kinds)
            .all(|(cell, kind)| match kind {
                FieldType::Int(_) => cell.is_empty() || signed(cell).is_some(),
                FieldType::Float => cell.is_empty() || float(cell).is_some(),
                _ => true,
            })
    }
}

/// Widens the kinds of columns so that they hold these cells.
fn learn(kinds: &mut [Option<FieldType>], cells: &[&[u8]]) {
    for (kind, cell) in kinds.iter_mut().zip(cells) {
        if cell.is_empty() {
            continue;
        }
        *kind = match (*kind, kind_of(cell)) {
            (None, kind) => Some(kind),
            (Some(FieldType::Float), FieldType::Int(_)) => Some(FieldType::Float),
            (Some(FieldType::Int(_)), FieldType::Float) => Some(FieldType::Float),
            (Some(kind), other) if kind == other => Some(kind),
            _ => Some(FieldType::Text),
        };
    }
}

fn kind_of(cell: &[u8]) -> FieldType {
    if signed(cell).is_some() {
        FieldType::Int(8)
    } else if float(cell).is_some() {
        FieldType::Float
    } else {
        FieldType::Text
    }
}

fn float(cell: &[u8]) -> Option<f64> {
    let is_number = cell
        .iter()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-'));
    let text = std::str::from_utf8(cell).ok().filter(|_| is_number)?;
    text.parse().ok()
}

/// Whether a line consists of titles: two or more words in capitals, with units in parentheses.
pub(crate) fn is_titles(line: &[u8]) -> bool {
    let mut count = 0;
    for word in words(line) {
        let open = word.iter().position(|&byte| byte == b'(');
        let name = word.get(..open.unwrap_or(word.len())).unwrap_or_default();
        let is_closed = open.is_none() || word.ends_with(b")");
        let is_name = name.iter().all(|byte| {
            byte.is_ascii_uppercase() || byte.is_ascii_digit() || b"_%/:.#-".contains(byte)
        });
        let has_capital = name.iter().any(u8::is_ascii_uppercase);
        // bcc's `trace` has a dash as the title of its messages.
        if word == b"-" && count > 0 {
            count += 1;
            continue;
        }
        if !is_name || !has_capital || !is_closed {
            return false;
        }
        count += 1;
    }
    (2..=COLUMNS_MAX).contains(&count)
}

/// The positions of the words in a line.
fn spans(line: &[u8]) -> Vec<Range<usize>> {
    let base = line.as_ptr().addr();
    words(line)
        .map(|word| {
            let start = word.as_ptr().addr() - base;
            start..start + word.len()
        })
        .collect()
}

/// The columns of titles, as wide as the rows allow. If no position between two titles is blank in all rows, the gap
/// stays as wide as between the titles; rows that extend into it are split at their spaces.
fn between<'a>(titles: &[Range<usize>], rows: impl Iterator<Item = &'a [u8]>) -> Vec<Range<usize>> {
    let mut gaps: Vec<Range<usize>> = titles
        .windows(2)
        .filter_map(|pair| match pair {
            [left, right] => Some(left.end..right.start),
            _ => None,
        })
        .collect();
    let mut free: Vec<Vec<bool>> = gaps.iter().map(|gap| vec![true; gap.len()]).collect();
    for row in rows {
        for (gap, free) in gaps.iter().zip(&mut free) {
            // A row is blank past its end.
            for (at, is_free) in (gap.start..gap.end.min(row.len())).zip(free) {
                *is_free &= row.get(at) == Some(&b' ');
            }
        }
    }
    for (gap, free) in gaps.iter_mut().zip(&free) {
        if let Some(at) = free.iter().position(|is_free| *is_free) {
            *gap = gap.start + at..gap.start + at + 1;
        }
    }
    let starts = std::iter::once(0).chain(gaps.iter().map(|gap| gap.end));
    let last = titles.last().map_or(0, |title| title.end);
    let ends = gaps.iter().map(|gap| gap.start).chain([last]);
    starts.zip(ends).map(|(start, end)| start..end).collect()
}

/// The titles over the runs, cut at the gaps that no title crosses.
fn titles(line: &[u8], runs: &[Range<usize>]) -> Vec<String> {
    let is_blank = |at: usize| line.get(at).is_none_or(|&byte| byte == b' ');
    let fits = runs.windows(2).all(|pair| match pair {
        [run, next] => (run.end..next.start).all(is_blank),
        _ => true,
    });
    let text = |cell: &[u8]| String::from_utf8_lossy(cell.trim_ascii()).into_owned();
    if fits {
        return runs
            .iter()
            .map(|run| {
                text(
                    line.get(run.start..run.end.min(line.len()))
                        .unwrap_or_default(),
                )
            })
            .collect();
    }
    let parts = parts(line);
    runs.iter()
        .enumerate()
        .map(|(place, _)| match parts.len() == runs.len() {
            true => parts.get(place).map(|part| text(part)).unwrap_or_default(),
            false => String::new(),
        })
        .collect()
}

/// A name that SQL accepts without quotation marks: `avg time(ns)` → `avg_time_ns`.
pub(crate) fn plain(title: &str) -> String {
    let mut name = String::new();
    for character in title.chars() {
        if character.is_ascii_alphanumeric() {
            name.push(character.to_ascii_lowercase());
        } else if !name.is_empty() && !name.ends_with('_') {
            name.push('_');
        }
    }
    name.trim_end_matches('_').to_owned()
}

/// Parts separated by two or more spaces: the cells of a line with unknown column widths.
pub(crate) fn parts(line: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let mut rest = line.trim_ascii();
    while !rest.is_empty() {
        let end = rest.windows(2).position(|two| two == b"  ");
        let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
        parts.push(part);
        rest = after.trim_ascii_start();
    }
    parts
}

/// What a line below titles is.
pub(crate) enum Below {
    Row,
    /// Between rows, but none itself.
    Other,
    /// After the last row.
    End,
}

/// The rows below all lines with the same titles, which define its columns; of at most [`TYPED_ROWS`] lines.
#[derive(Clone)]
pub(crate) struct RowsUnder<'a, F> {
    lines: Lines<'a>,
    titles: &'a [u8],
    below: F,
    is_inside: bool,
    left: usize,
}

impl<'a, F: Fn(&[u8]) -> Below> RowsUnder<'a, F> {
    /// `lines` begin after the first titles.
    pub(crate) fn new(lines: Lines<'a>, titles: &'a [u8], below: F) -> RowsUnder<'a, F> {
        RowsUnder {
            lines,
            titles,
            below,
            is_inside: true,
            left: TYPED_ROWS,
        }
    }
}

impl<'a, F: Fn(&[u8]) -> Below> Iterator for RowsUnder<'a, F> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            self.left = self.left.checked_sub(1)?;
            let text = self.lines.next()?.without_interrupt().text;
            if text.trim_ascii_end() == self.titles {
                self.is_inside = true;
                continue;
            }
            match (self.below)(text) {
                Below::End => self.is_inside = false,
                Below::Row if self.is_inside => return Some(text),
                Below::Row | Below::Other => {}
            }
        }
    }
}

/// `[...]`, `[... 1400 lines truncated ...]`, `...`: the text was shortened by hand.
pub(crate) fn is_elision(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    text == b"..." || text.starts_with(b"[...") && text.ends_with(b"...]")
}

/// The type of a row that a tool prints, with fields of the given types.
pub(crate) fn event_type(system: &str, name: &str, fields: &[(&str, FieldType)]) -> EventType {
    EventType {
        system: system.into(),
        name: name.into(),
        kind: EventKind::Marker,
        fields: fields
            .iter()
            .map(|(name, kind)| Field {
                name: (*name).into(),
                kind: *kind,
                layout: None,
                declaration: String::new(),
            })
            .collect(),
        ..EventType::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rulers() {
        assert!(is_ruler(b"------  ----  ==="));
        for line in ["", "------", "- -", "---- a ---", "-------X-------"] {
            assert!(!is_ruler(line.as_bytes()), "{line}");
        }
        assert_eq!(
            framed(b"-------QUEUE  BEHAVIOUR-----"),
            Some("QUEUE  BEHAVIOUR")
        );
        assert_eq!(framed(b"-------"), None);
    }

    const RULER: &[u8] = b"------  --------------  ------";

    fn columns(rows: &[&str]) -> Columns {
        let titles = b"thread  grouptask name   avg(%)";
        Columns::of(titles, RULER, rows.iter().map(|row| row.as_bytes())).unwrap()
    }

    #[track_caller]
    fn check(row: &str, expected: &[&str]) {
        let cells = columns(&[]).cells(row.as_bytes()).unwrap();
        let cells: Vec<_> = cells
            .iter()
            .map(|cell| String::from_utf8_lossy(cell))
            .collect();
        assert_eq!(cells, expected);
    }

    #[test]
    fn cells() {
        check(
            "100018        ix0 rxq0     5.5",
            &["100018", "ix0 rxq0", "5.5"],
        );
        check("     1                       7", &["1", "", "7"]);
        check(
            "1000188        ix0rxq0     5.5",
            &["1000188", "ix0rxq0", "5.5"],
        );
        check(
            "100018  a_name_that_is_too_long     5.5",
            &["100018", "a_name_that_is_too_long", "5.5"],
        );
        // Shorter than the ruler.
        check("7", &["7", "", ""]);
        check("7       ab", &["7", "ab", ""]);
        let row = b"1000188  a b  c  d  e";
        assert_eq!(columns(&[]).cells(row), None);
    }

    #[test]
    fn lines_of_titles() {
        for line in [
            "PID CMD D BYTES",
            "  THREADS   TIME(ns)",
            "C  PID  DELTA(us) FILE:LINE",
        ] {
            assert!(is_titles(line.as_bytes()), "{line}");
        }
        for line in [
            "",
            "PID",
            "PID of CMD",
            "  0  11651  2",
            "Tracing... Hit Ctrl-C",
            "TIME (ns)",
        ] {
            assert!(!is_titles(line.as_bytes()), "{line}");
        }
    }

    #[track_caller]
    fn check_under(titles: &str, rows: &[&str], expected: &[&[&str]]) {
        let lines = rows.iter().map(|row| row.as_bytes());
        let columns = Columns::under(titles.as_bytes(), lines).unwrap();
        let found: Vec<Vec<_>> = rows
            .iter()
            .map(|row| columns.cells(row.as_bytes()).unwrap())
            .map(|cells| {
                cells
                    .iter()
                    .map(|cell| String::from_utf8_lossy(cell))
                    .collect()
            })
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn columns_without_a_ruler() {
        // Numbers right-aligned, names left-aligned, a gap for an unknown value.
        check_under(
            "   PID CMD              D BYTES",
            &[
                "  6215 bash             R 8192",
                " 26215 a b              W 7",
                "     1                  W 7",
            ],
            &[
                &["6215", "bash", "R", "8192"],
                &["26215", "a b", "W", "7"],
                &["1", "", "W", "7"],
            ],
        );
        // A cell wider than its column shifts the others; the last one contains spaces.
        check_under(
            "UID PID COMM ARGS",
            &["100 3008 bash ls -l", "  0 123456789 sh cat /etc/x  y"],
            &[
                &["100", "3008", "bash", "ls -l"],
                &["0", "123456789", "sh", "cat /etc/x  y"],
            ],
        );
    }

    #[test]
    fn types() {
        let columns = columns(&[
            "100018        ix0 rxq0     5.5",
            "100019        ix0 rxq0       6",
        ]);
        let event_type = columns.event_type("dtrace", "x");
        let fields: Vec<_> = event_type
            .fields
            .iter()
            .map(|field| (field.name.as_str(), field.kind))
            .collect();
        assert_eq!(
            fields,
            [
                ("thread", FieldType::Int(8)),
                ("grouptask_name", FieldType::Text),
                ("avg", FieldType::Float)
            ]
        );
    }
}
