//! The tokens of a condition.

use perfquet_cli::quantity::nanoseconds;

/// A token with its position.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    /// Byte offset in the condition.
    pub(super) place: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// A name or a keyword, as written.
    Word(String),
    /// `"A name"`, which is never a keyword.
    Name(String),
    /// `'text'`
    Text(String),
    Int(i128),
    Float(f64),
    /// Nanoseconds, written with a unit.
    Duration(i128),
    /// One of [`SYMBOLS`].
    Symbol(&'static str),
}

/// Longer ones first.
const SYMBOLS: [&str; 12] = [
    "<=", ">=", "<>", "!=", "==", "<", ">", "=", "(", ")", ",", "-",
];

/// Splits a condition into tokens.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut place = 0;
    while let Some(first) = text[place..].chars().next() {
        let rest = &text[place..];
        let (kind, length) = match first {
            _ if first.is_whitespace() => {
                place += first.len_utf8();
                continue;
            }
            '\'' => {
                let (text, length) = quoted(rest, '\'')?;
                (Kind::Text(text), length)
            }
            '"' => {
                let (name, length) = quoted(rest, '"')?;
                (Kind::Name(name), length)
            }
            '0'..='9' => number(rest)?,
            _ if is_of_word(first) => {
                let length = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
                (Kind::Word(rest[..length].to_owned()), length)
            }
            _ => match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
                Some(symbol) => (Kind::Symbol(symbol), symbol.len()),
                None => return Err(format!("unexpected character {first:?}")),
            },
        };
        tokens.push(Token { kind, place });
        place += length;
    }
    Ok(tokens)
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_' || letter == '$'
}

/// Returns the content of a quoted string, in which a doubled quote is an escaped one, and its length including the
/// quotes.
fn quoted(text: &str, quote: char) -> Result<(String, usize), String> {
    let mut content = String::new();
    let mut letters = text.char_indices().skip(1).peekable();
    while let Some((place, letter)) = letters.next() {
        if letter != quote {
            content.push(letter);
        } else if letters.next_if(|(_, next)| *next == quote).is_some() {
            content.push(quote);
        } else {
            return Ok((content, place + quote.len_utf8()));
        }
    }
    Err(format!("{text}: expected a closing {quote}"))
}

/// Parses a number at the beginning of the text: `12`, `1.5e3`, `0xff`, or a duration such as `500us`.
fn number(text: &str) -> Result<(Kind, usize), String> {
    let end = |text: &str| text.find(|c: char| !is_of_word(c) && c != '.');
    let mut length = end(text).unwrap_or(text.len());
    // `1e-3`
    let is_exponent = text[..length].ends_with(['e', 'E']) && !text.starts_with("0x");
    if is_exponent && text[length..].starts_with(['-', '+']) {
        length += 1 + end(&text[length + 1..]).unwrap_or(text.len() - length - 1);
    }
    let word = &text[..length];
    let hexadecimal = word
        .strip_prefix("0x")
        .or_else(|| word.strip_prefix("0X"))
        .and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let kind = if let Some(address) = hexadecimal {
        Kind::Int(i128::from(address))
    } else if let Ok(number) = word.parse::<i128>() {
        Kind::Int(number)
    } else if let Some(duration) = nanoseconds(word) {
        Kind::Duration(i128::from(duration))
    } else if let Ok(number) = word.parse::<f64>() {
        Kind::Float(number)
    } else {
        return Err(format!(
            "{word}: expected a number or a duration such as 1.5ms"
        ));
    };
    Ok((kind, length))
}
