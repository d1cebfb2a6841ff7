//! Names and literals: as SQL reads them, and of columns as people read them.

use crate::sql::times::MARK;

/// Formats a value as an SQL literal.
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Formats a name for SQL: quoted unless it is a plain lower-case word.
pub fn quoted(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !RESERVED.contains(&name);
    if plain {
        name.to_owned()
    } else {
        in_quotes(name)
    }
}

/// Formats a name for SQL, whatever it is.
pub fn in_quotes(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// SQL keywords that are names of columns or event fields.
const RESERVED: &[&str] = &[
    "all",
    "and",
    "as",
    "by",
    "case",
    "cross",
    "end",
    "except",
    "filter",
    "from",
    "full",
    "group",
    "having",
    "in",
    "inner",
    "interval",
    "into",
    "is",
    "join",
    "left",
    "limit",
    "not",
    "null",
    "offset",
    "on",
    "or",
    "order",
    "outer",
    "over",
    "partition",
    "right",
    "select",
    "set",
    "start",
    "table",
    "then",
    "to",
    "union",
    "when",
    "where",
    "with",
];

/// Removes the types of literals from DataFusion's name of an expression.
pub(crate) fn plain_name(name: &str) -> String {
    const TYPES: &[&str] = &["Int64(", "UInt64(", "Float64(", "Boolean("];
    if let Some((before, rest)) = name.split_once(&format!("{MARK}("))
        && let Some(end) = closing_bracket(rest)
    {
        return plain_name(&format!("{before}{}{}", &rest[..end], &rest[end + 1..]));
    }
    if let Some((before, rest)) = name.split_once(INTERVAL)
        && let Some((interval, after)) = rest.split_once(" }\")")
    {
        return plain_name(&format!("{before}{}{after}", plain_interval(interval)));
    }
    let mut plain = String::new();
    let mut rest = name;
    while let Some(letter) = rest.chars().next() {
        let in_word = plain.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let number = TYPES
            .iter()
            .filter(|_| !in_word)
            .find_map(|kind| rest.strip_prefix(kind)?.split_once(')'));
        let text = (!in_word)
            .then(|| rest.strip_prefix("Utf8(\"")?.split_once("\")"))
            .flatten();
        if let Some((value, after)) = number {
            plain.push_str(value);
            rest = after;
        } else if let Some((value, after)) = text {
            plain.push_str(&literal(value));
            rest = after;
        } else {
            plain.push(letter);
            rest = &rest[letter.len_utf8()..];
        }
    }
    plain
}

/// How DataFusion begins the name of an interval.
const INTERVAL: &str = "IntervalMonthDayNano(\"IntervalMonthDayNano { ";

/// `months: 0, days: 1, nanoseconds: 5000` as `INTERVAL '1 days 5000 ns'`.
fn plain_interval(text: &str) -> String {
    let units = [
        ("months", "months"),
        ("days", "days"),
        ("nanoseconds", "ns"),
    ];
    let parts = text.split(", ").filter_map(|part| part.split_once(": "));
    let parts = parts.filter(|(_, number)| *number != "0");
    let words = parts.map(|(name, number)| {
        let unit = units.iter().find(|(known, _)| *known == name);
        match (unit, number.parse::<f64>()) {
            (Some((_, "ns")), Ok(ns)) => in_whole_unit(ns),
            (Some((_, unit)), _) => format!("{number} {unit}"),
            (None, _) => number.to_owned(),
        }
    });
    let words: Vec<String> = words.collect();
    let text = if words.is_empty() {
        "0 s".to_owned()
    } else {
        words.join(" ")
    };
    format!("INTERVAL '{text}'")
}

/// Nanoseconds in the largest unit of which they are a whole number.
fn in_whole_unit(ns: f64) -> String {
    let units = [
        (3.6e12, "h"),
        (6e10, "m"),
        (1e9, "s"),
        (1e6, "ms"),
        (1e3, "us"),
    ];
    let fitting = units.iter().find(|(factor, _)| ns % factor == 0.0);
    let (factor, unit) = fitting.copied().unwrap_or((1.0, "ns"));
    format!("{} {unit}", ns / factor)
}

/// The place of the bracket that closes one that is open at the start of `text`.
fn closing_bracket(text: &str) -> Option<usize> {
    let mut depth = 0;
    text.char_indices().find_map(|(place, letter)| {
        depth += match letter {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        (depth < 0).then_some(place)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_as_names() {
        assert_eq!(plain_name("count(*)"), "count(*)");
        assert_eq!(
            plain_name("quantile(samples.period,Float64(0.5))"),
            "quantile(samples.period,0.5)"
        );
        assert_eq!(plain_name("Utf8(\"a b\")"), "'a b'");
        let interval =
            |inner: &str| format!("IntervalMonthDayNano(\"IntervalMonthDayNano {{ {inner} }}\")");
        let binned = format!(
            "date_bin({},t)",
            interval("months: 0, days: 0, nanoseconds: 1000000")
        );
        assert_eq!(plain_name(&binned), "date_bin(INTERVAL '1 ms',t)");
        let long = interval("months: 1, days: 2, nanoseconds: 1500000");
        assert_eq!(plain_name(&long), "INTERVAL '1 months 2 days 1500 us'");
        assert_eq!(plain_name("myInt64(3)"), "myInt64(3)");
        assert_eq!(plain_name("Int64("), "Int64(");
        assert_eq!(
            plain_name("count(*) FILTER (WHERE t < duration literal(Int64(5)) AND x)"),
            "count(*) FILTER (WHERE t < 5 AND x)"
        );
    }

    #[test]
    fn names_and_literals() {
        assert_eq!(quoted("prev_comm"), "prev_comm");
        assert_eq!(quoted("end"), "\"end\"");
        assert_eq!(quoted("Setjmp"), "\"Setjmp\"");
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
        assert_eq!(literal("it's"), "'it''s'");
    }
}
