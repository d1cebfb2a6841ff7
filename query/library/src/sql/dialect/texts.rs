//! `printf` and `format` with a literal format, as a concatenation.
//!
//! ```text
//! printf('%s: %.2f ms', comm, duration / 1e6)      concat(comm, ': ', CAST(round(…, 2) AS DECIMAL(38, 2)), ' ms')
//! format('{}-{}', comm, tid)                       concat(comm, '-', tid)
//! ```

/// What a format has in place of a value.
enum Piece {
    Text(String),
    Value(Form),
}

enum Form {
    Plain,
    Hexadecimal,
    /// Digits after the point.
    Fixed(u32),
}

/// Returns the SQL of `printf`.
pub(super) fn printf(format: &str, values: &[&str]) -> Result<String, String> {
    let mut pieces = Vec::new();
    let mut rest = literal("printf", format)?;
    while let Some((before, after)) = rest.split_once('%') {
        pieces.push(Piece::Text(before.to_owned()));
        if let Some(after) = after.strip_prefix('%') {
            pieces.push(Piece::Text("%".to_owned()));
            rest = after.to_owned();
            continue;
        }
        let end = after.find(|c: char| c.is_ascii_alphabetic() && !matches!(c, 'l' | 'h' | 'z'));
        let end = end.ok_or_else(|| wrong("printf", &format!("%{after}")))?;
        let directive = after[..=end].replace(['l', 'h', 'z'], "");
        let form = match directive.as_str() {
            "s" | "d" | "i" | "u" | "c" => Form::Plain,
            "x" => Form::Hexadecimal,
            "f" => Form::Fixed(6),
            other => match digits(other) {
                Some(digits) => Form::Fixed(digits),
                None => return Err(wrong("printf", &format!("%{other}"))),
            },
        };
        pieces.push(Piece::Value(form));
        rest = after[end + 1..].to_owned();
    }
    pieces.push(Piece::Text(rest));
    joined("printf", pieces, values)
}

/// Returns the SQL of `format`.
pub(super) fn format(format: &str, values: &[&str]) -> Result<String, String> {
    let mut pieces = Vec::new();
    let mut rest = literal("format", format)?;
    while let Some((before, after)) = rest.split_once('{') {
        pieces.push(Piece::Text(before.replace("}}", "}")));
        if let Some(after) = after.strip_prefix('{') {
            pieces.push(Piece::Text("{".to_owned()));
            rest = after.to_owned();
            continue;
        }
        let (directive, after) = after
            .split_once('}')
            .ok_or_else(|| wrong("format", &format!("{{{after}")))?;
        let form = match directive {
            "" | ":d" | ":s" => Form::Plain,
            ":x" => Form::Hexadecimal,
            other => match other.strip_prefix(':').and_then(digits) {
                Some(digits) => Form::Fixed(digits),
                None => return Err(wrong("format", &format!("{{{other}}}"))),
            },
        };
        pieces.push(Piece::Value(form));
        rest = after.to_owned();
    }
    pieces.push(Piece::Text(rest.replace("}}", "}")));
    joined("format", pieces, values)
}

/// The digits of `.2f`.
fn digits(directive: &str) -> Option<u32> {
    let digits = directive.strip_prefix('.')?.strip_suffix('f')?;
    digits.parse().ok().filter(|digits| *digits <= 18)
}

/// The text of a string literal.
fn literal(name: &str, sql: &str) -> Result<String, String> {
    let text = sql
        .strip_prefix('\'')
        .and_then(|text| text.strip_suffix('\''));
    let text = text.ok_or_else(|| {
        format!("{name}: expected a string first, found {sql}\nhint: {name}('…', comm, tid)")
    })?;
    Ok(text.replace("''", "'"))
}

fn wrong(name: &str, directive: &str) -> String {
    format!(
        "{name}: {directive} is not supported\nhint: use %s, %d, %x or %.2f in printf, {{}} or {{:.2f}} in format, lpad(x, 8) for widths, and duration(ns)"
    )
}

fn joined(name: &str, pieces: Vec<Piece>, values: &[&str]) -> Result<String, String> {
    let wanted = pieces.iter();
    let wanted = wanted
        .filter(|piece| matches!(piece, Piece::Value(_)))
        .count();
    if wanted != values.len() {
        let found = values.len();
        return Err(format!(
            "{name}: the format has {wanted} values, but {found} follow it"
        ));
    }
    let mut values = values.iter();
    let parts = pieces.into_iter().filter_map(|piece| match piece {
        Piece::Text(text) if text.is_empty() => None,
        Piece::Text(text) => Some(format!("'{}'", text.replace('\'', "''"))),
        Piece::Value(form) => {
            let value = values.next()?;
            Some(match form {
                Form::Plain => format!("({value})"),
                Form::Hexadecimal => format!("to_hex({value})"),
                Form::Fixed(digits) => format!(
                    "CAST(round(CAST({value} AS DOUBLE), {digits}) AS DECIMAL(38, {digits}))"
                ),
            })
        }
    });
    let parts: Vec<String> = parts.collect();
    Ok(match parts.is_empty() {
        true => "''".to_owned(),
        false => format!("concat({})", parts.join(", ")),
    })
}
