//! Formats of `printa`, read backwards: a line → the keys and values that were printed.
//!
//! ```text
//! "%6d  %21s  %@15d\n"      100018        iflib_fast_intr             4195      keys 100018, iflib_fast_intr; 4195
//! ```

/// A format, up to its newline.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in super::super) struct Format {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Cell {
        /// `%@d`
        is_value: bool,
        width: usize,
        is_number: bool,
    },
}

/// The cells of a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in super::super) struct Printed<'a> {
    pub(in super::super) keys: Vec<&'a [u8]>,
    pub(in super::super) values: Vec<i64>,
}

impl Format {
    pub(super) fn of(text: &str) -> Format {
        let line = text
            .trim_start_matches('\n')
            .split('\n')
            .next()
            .unwrap_or_default();
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = line;
        while let Some(character) = rest.chars().next() {
            rest = rest.get(character.len_utf8()..).unwrap_or_default();
            if character != '%' {
                literal.push(character);
                continue;
            }
            if let Some(after) = rest.strip_prefix('%') {
                literal.push('%');
                rest = after;
                continue;
            }
            let end = rest.find(|c: char| c.is_ascii_alphabetic() && !"hlL".contains(c));
            let Some(end) = end else { break };
            let (flags, after) = rest.split_at(end);
            let conversion = after.chars().next().unwrap_or('s');
            if !literal.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut literal)));
            }
            let digits: String = flags
                .split('.')
                .next()
                .unwrap_or_default()
                .chars()
                .filter(char::is_ascii_digit)
                .collect();
            pieces.push(Piece::Cell {
                is_value: flags.contains('@'),
                width: digits.parse().unwrap_or(0).min(4096),
                is_number: "diuxXo".contains(conversion),
            });
            rest = after.get(1..).unwrap_or_default();
        }
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal));
        }
        Format { pieces }
    }

    /// Whether the format has text besides cells and spaces, or several cells, and so identifies its lines.
    fn is_telling(&self) -> bool {
        let cells = self
            .pieces
            .iter()
            .filter(|piece| matches!(piece, Piece::Cell { .. }));
        let has_text = self
            .pieces
            .iter()
            .any(|piece| matches!(piece, Piece::Text(text) if !text.trim().is_empty()));
        cells.count() >= 2 || has_text
    }

    /// The cells of a line printed with this format.
    pub(in super::super) fn read<'a>(&self, line: &'a [u8]) -> Option<Printed<'a>> {
        if !self.is_telling() {
            return None;
        }
        let mut printed = Printed::default();
        let mut rest = line;
        for (place, piece) in self.pieces.iter().enumerate() {
            match piece {
                Piece::Text(text) => rest = after_text(rest, text.as_bytes())?,
                Piece::Cell {
                    is_value,
                    width,
                    is_number,
                } => {
                    let next = self.pieces.get(place + 1);
                    let end = cell_end(rest, *width, next)?;
                    let (cell, after) = rest.split_at_checked(end)?;
                    let cell = cell.trim_ascii();
                    let number = crate::lines::signed(cell);
                    if *is_number && number.is_none() && !cell.starts_with(b"0x") {
                        return None;
                    }
                    match is_value {
                        true => printed.values.push(number?),
                        false => printed.keys.push(cell),
                    }
                    rest = after;
                }
            }
        }
        (rest.trim_ascii().is_empty() && !printed.values.is_empty()).then_some(printed)
    }
}

/// Matches text whose trailing spaces may have been cut off at the end of the line.
fn after_text<'a>(line: &'a [u8], text: &[u8]) -> Option<&'a [u8]> {
    match line.strip_prefix(text) {
        Some(rest) => Some(rest),
        None if line.len() < text.len() => text
            .strip_prefix(line)
            .filter(|rest| rest.trim_ascii().is_empty())
            .map(|_| &b""[..]),
        None => None,
    }
}

/// Where a cell ends: at its width, or further on where the text after the cell begins.
fn cell_end(line: &[u8], width: usize, next: Option<&Piece>) -> Option<usize> {
    let start = width.min(line.len());
    match next {
        None => Some(line.len()),
        Some(Piece::Cell { .. }) => {
            let blanks = line.iter().take_while(|&&byte| byte == b' ').count();
            let word = line.get(blanks..)?.iter().position(|&byte| byte == b' ');
            let end = word.map_or(line.len(), |word| blanks + word);
            Some(end.max(start))
        }
        Some(Piece::Text(text)) => {
            let text = text.as_bytes();
            let blanks = line.iter().take_while(|&&byte| byte == b' ').count();
            let from = start.max(if width == 0 { blanks } else { start });
            let found = line
                .get(from..)?
                .windows(text.len())
                .position(|part| part == text);
            match found {
                Some(at) => Some(from + at),
                // The spaces may have been cut off at the end of the line.
                None => text.trim_ascii().is_empty().then_some(line.len()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(format: &str, line: &str, expected: Option<(&[&str], &[i64])>) {
        let format = Format::of(format);
        let found = format.read(line.as_bytes());
        let expected = expected.map(|(keys, values)| Printed {
            keys: keys.iter().map(|key| key.as_bytes()).collect(),
            values: values.to_vec(),
        });
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn lines() {
        let format = "%6d  %4d  %21s  %@15d  %@12d\n";
        check(
            format,
            "100018     0        iflib_fast_intr             4195          6374",
            Some((&["100018", "0", "iflib_fast_intr"], &[4195, 6374])),
        );
        check(
            format,
            "1000189     0        iflib_fast_intr             4195          6374",
            Some((&["1000189", "0", "iflib_fast_intr"], &[4195, 6374])),
        );
        check(
            format,
            "thread  core               function            count  avg time(ns)",
            None,
        );
        check(
            "%20s %8d %@8d %@8d\n",
            "           Amsterdam       17        8       -3",
            Some((&["Amsterdam", "17"], &[8, -3])),
        );
        check(
            "%-20s %@8d\n",
            "a b                         8",
            Some((&["a b"], &[8])),
        );
        check("\n%s: %@u hits\n", "dd: 17 hits", Some((&["dd"], &[17])));
        check("%s: %@u hits\n", "dd: x hits", None);
        check(
            "%10d %@10d %@10d %@d\n",
            "       456          0        456 7",
            Some((&["456"], &[0, 456, 7])),
        );
        check("%@d\n", "17", None);
        check("total %@d%%\n", "total 17%", Some((&[], &[17])));
        check("%", "x", None);
        check("", "", None);
    }
}
