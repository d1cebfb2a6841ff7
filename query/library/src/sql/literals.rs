//! Durations and hexadecimal numbers in SQL: `500us` is 500000, `0xff` is 255.
//!
//! The suffix `L`, which the parser accepts after a number and the planner ignores, keeps the fact that a number was a duration:
//! compared with a time, it is one from the start of the trace (`times/`).

use std::borrow::Cow;

use perfquet_cli::quantity::nanoseconds;

/// Replaces every duration in an expression or a statement by its nanoseconds, with the suffix `L`, and hexadecimal numbers by decimal ones. Quoted strings, names, comments
/// and numbers that have the suffix stay. The error names the number with an unknown unit.
pub fn with_nanoseconds(sql: &str) -> Result<String, String> {
    let mut result = String::with_capacity(sql.len());
    replace(sql, |_, piece| result.push_str(piece))?;
    Ok(result)
}

/// Returns the line and column in `sql`, both from 1, of a place in what [`with_nanoseconds`] makes of it.
pub(crate) fn original_place(sql: &str, line: usize, column: usize) -> (usize, usize) {
    // A duration does not span lines.
    let lines = sql.split('\n');
    let before: usize = lines
        .take(line.saturating_sub(1))
        .map(|line| line.len() + 1)
        .sum();
    let (mut shown, mut found) = (1, None);
    let _ = replace(sql, |original, piece| {
        if original < before || found.is_some() {
            return;
        }
        let length = piece.chars().count();
        if shown + length > column {
            let into = column.saturating_sub(shown);
            let is_copy = sql[original..].starts_with(piece);
            let start = sql[before..original].chars().count() + 1;
            found = Some(if is_copy { start + into } else { start });
        }
        shown += length;
    });
    (line, found.unwrap_or(column))
}

/// Passes each piece of the result to `to`, with the offset in `sql` that it stands for.
fn replace(sql: &str, mut to: impl FnMut(usize, &str)) -> Result<(), String> {
    let mut rest = sql;
    // After a letter, digits belong to a name: `arg1s`.
    let mut in_name = false;
    while let Some(first) = rest.chars().next() {
        let place = sql.len() - rest.len();
        let length = match first {
            '\'' | '"' => quoted_length(rest, first),
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '0'..='9' if !in_name => {
                let literal = number_length(rest);
                let number = without_separators(&rest[..literal]);
                if let Some(value) = hexadecimal(&number) {
                    to(place, &value.to_string());
                    rest = &rest[literal..];
                    continue;
                }
                match nanoseconds(&number) {
                    Some(nanoseconds) => to(place, &format!("{nanoseconds}L")),
                    None if has_unit(&number) => {
                        return Err(format!("{number}: expected a duration such as 1.5ms"));
                    }
                    None => to(place, &number),
                }
                rest = &rest[literal..];
                continue;
            }
            _ => first.len_utf8(),
        };
        in_name = first.is_alphanumeric() || first == '_' || first == '$';
        to(place, &rest[..length]);
        rest = &rest[length..];
    }
    Ok(())
}

/// The value of `0xff`, which the parser would read as bytes.
fn hexadecimal(literal: &str) -> Option<u64> {
    let digits = literal
        .strip_prefix("0x")
        .or_else(|| literal.strip_prefix("0X"))?;
    u64::from_str_radix(digits, 16).ok()
}

/// Removes the separators of `1_000_000`: each is between two digits.
fn without_separators(literal: &str) -> Cow<'_, str> {
    let is_digit = |place: Option<usize>| {
        place
            .and_then(|place| literal.as_bytes().get(place))
            .is_some_and(u8::is_ascii_digit)
    };
    let is_separator = |place: usize| is_digit(place.checked_sub(1)) && is_digit(Some(place + 1));
    let mut separators = literal.match_indices('_');
    match literal.contains('_') && separators.all(|(place, _)| is_separator(place)) {
        true => Cow::Owned(literal.replace('_', "")),
        false => Cow::Borrowed(literal),
    }
}

/// Returns the length of a number with its unit or exponent: `500us`, `1.5e-3`.
fn number_length(text: &str) -> usize {
    let ends = |text: &str| {
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '.' && c != '_');
        end.unwrap_or(text.len())
    };
    let length = ends(text);
    let (number, rest) = text.split_at(length);
    let has_exponent = number.ends_with(['e', 'E']) && number[..length - 1].parse::<f64>().is_ok();
    match rest.strip_prefix(['-', '+']) {
        Some(exponent) if has_exponent && exponent.starts_with(|c: char| c.is_ascii_digit()) => {
            length + 1 + ends(exponent)
        }
        _ => length,
    }
}

/// Whether an invalid literal was probably meant as a duration: `5sec`, but not `1e9` or `0x1f`.
fn has_unit(literal: &str) -> bool {
    let unit = literal.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    !unit.is_empty() && unit != "L" && !literal.starts_with("0x") && literal.parse::<f64>().is_err()
}

/// Returns the length of a quoted string with its quotes; a doubled quote does not end it.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut letters = text.char_indices().skip(1).peekable();
    while let Some((index, letter)) = letters.next() {
        if letter == quote {
            match letters.peek() {
                Some((_, next)) if *next == quote => {
                    letters.next();
                }
                _ => return index + quote.len_utf8(),
            }
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(condition: &str, expected: &str) {
        assert_eq!(with_nanoseconds(condition).unwrap(), expected);
    }

    #[test]
    fn durations_become_numbers() {
        check(
            "duration > 500us and comm = 'dd'",
            "duration > 500000L and comm = 'dd'",
        );
        check("duration>1.5ms", "duration>1500000L");
        check(
            "d between 1s and 2m",
            "d between 1000000000L and 120000000000L",
        );
        check("comm = '5s' and \"1s\" = 2", "comm = '5s' and \"1s\" = 2");
        check(
            "comm = 'it''s 5s' and x > 1ns",
            "comm = 'it''s 5s' and x > 1L",
        );
        check("arg1s = 3 and x = 1e9 -- 5s", "arg1s = 3 and x = 1e9 -- 5s");
        check("x > 1.5e-3 and y<2E+6-1us", "x > 1.5e-3 and y<2E+6-1000L");
        check("period = 1003009", "period = 1003009");
        check("d = 9007199254740993ns", "d = 9007199254740993L");
        check("d > 5\u{3bc}s /* 5sec */ or x", "d > 5000L /* 5sec */ or x");
        check("'open 5s", "'open 5s");
        check("x > 5000L", "x > 5000L");
        check(
            "x > 1_000_000 and d < 1_500us",
            "x > 1000000 and d < 1500000L",
        );
        assert!(with_nanoseconds("x > 1__0").is_err());
        assert!(with_nanoseconds("x > 5sec").is_err());
    }

    #[test]
    fn places_in_the_result_are_places_in_the_sql() {
        let sql = "SELECT 1s,\n  y > 5ms AND z";
        assert_eq!(
            with_nanoseconds(sql).unwrap(),
            "SELECT 1000000000L,\n  y > 5000000L AND z"
        );
        assert_eq!(original_place(sql, 1, 1), (1, 1));
        assert_eq!(original_place(sql, 1, 8), (1, 8));
        assert_eq!(original_place(sql, 2, 3), (2, 3));
        assert_eq!(original_place(sql, 2, 9), (2, 7));
        assert_eq!(original_place(sql, 2, 20), (2, 15));
    }
}
