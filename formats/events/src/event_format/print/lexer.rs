//! Lexer for the C source of a `print fmt`.
//!
//! ```text
//! "vec=%u", REC->vec & 0x1FUL   →   Text("vec=%u") "," Word(REC) "->" Word(vec) "&" Number(31)
//! ```

/// A piece of C source.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token<'a> {
    /// An integer or character constant, and whether its type is unsigned.
    Number(u64, bool),
    /// A string literal, without quotes and with resolved escapes.
    Text(Vec<u8>),
    /// A name or keyword.
    Word(&'a str),
    /// An operator or bracket, the longest that matches.
    Mark(&'static str),
}

/// Longest first, so that the first match is the longest.
const MARKS: &[&str] = &[
    "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "->", "(", ")", "[", "]", "{", "}", ",", ";",
    ":", "?", "=", "<", ">", "+", "-", "*", "/", "%", "&", "|", "^", "~", "!", ".",
];

/// Splits `source` into tokens. The error names the text that is not a token.
pub(super) fn tokens(source: &str) -> Result<Vec<Token<'_>>, String> {
    let mut tokens = Vec::new();
    let mut rest = source.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, after) = match first {
            '"' => text(rest)?,
            '\'' => character(rest)?,
            '0'..='9' => number(rest),
            _ if is_word(first) => word(rest),
            _ => mark(rest)?,
        };
        tokens.push(token);
        rest = after.trim_start();
    }
    Ok(tokens)
}

fn is_word(character: char) -> bool {
    character == '_' || character.is_ascii_alphanumeric()
}

fn word(rest: &str) -> (Token<'_>, &str) {
    let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
    let (word, after) = rest.split_at(end);
    (Token::Word(word), after)
}

fn mark(rest: &str) -> Result<(Token<'_>, &str), String> {
    for &mark in MARKS {
        if let Some(after) = rest.strip_prefix(mark) {
            return Ok((Token::Mark(mark), after));
        }
    }
    let found: String = rest.chars().take(1).collect();
    Err(format!("expected C source, found {found:?}"))
}

/// Parses a decimal, octal or hexadecimal number with C suffixes; values beyond 64 bits wrap.
fn number(rest: &str) -> (Token<'_>, &str) {
    let (Token::Word(word), after) = word(rest) else {
        return (Token::Number(0, false), rest);
    };
    let digits = word.trim_end_matches(['u', 'U', 'l', 'L']);
    let unsigned = word.len() > digits.len()
        && word
            .bytes()
            .rev()
            .take(3)
            .any(|byte| byte.eq_ignore_ascii_case(&b'u'));
    let (base, digits) = match digits.get(..2) {
        Some("0x" | "0X") => (16, digits.get(2..).unwrap_or_default()),
        _ if digits.len() > 1 && digits.starts_with('0') => (8, digits),
        _ => (10, digits),
    };
    let value =
        digits
            .chars()
            .map_while(|digit| digit.to_digit(base))
            .fold(0u64, |value, digit| {
                value
                    .wrapping_mul(u64::from(base))
                    .wrapping_add(u64::from(digit))
            });
    (Token::Number(value, unsigned), after)
}

fn text(rest: &str) -> Result<(Token<'_>, &str), String> {
    let (bytes, after) = quoted(rest, b'"')?;
    Ok((Token::Text(bytes), after))
}

fn character(rest: &str) -> Result<(Token<'_>, &str), String> {
    let (bytes, after) = quoted(rest, b'\'')?;
    let value = bytes.first().copied().unwrap_or_default();
    Ok((Token::Number(u64::from(value), false), after))
}

/// Parses a quoted literal; `rest` begins with the opening `quote`.
fn quoted(rest: &str, quote: u8) -> Result<(Vec<u8>, &str), String> {
    let mut bytes = Vec::new();
    let mut source = rest.bytes().enumerate().skip(1).peekable();
    while let Some((index, byte)) = source.next() {
        if byte == quote {
            let after = rest.get(index + 1..).unwrap_or_default();
            return Ok((bytes, after));
        }
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let Some((_, escape)) = source.next() else {
            break;
        };
        match escape {
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'r' => bytes.push(b'\r'),
            b'0'..=b'7' => {
                let mut value = u32::from(escape - b'0');
                while let Some((_, digit @ b'0'..=b'7')) =
                    source.next_if(|(_, digit)| matches!(digit, b'0'..=b'7') && value < 0o40)
                {
                    value = value * 8 + u32::from(digit - b'0');
                }
                bytes.push(value as u8);
            }
            other => bytes.push(other),
        }
    }
    Err("expected the closing quote of a literal, found its end".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_source() {
        let source = r#""a\n\"%d\"" "b", (REC->x >> 0x10UL) != 010 ? 'c' : -9ULL"#;
        assert_eq!(
            tokens(source).unwrap(),
            [
                Token::Text(b"a\n\"%d\"".to_vec()),
                Token::Text(b"b".to_vec()),
                Token::Mark(","),
                Token::Mark("("),
                Token::Word("REC"),
                Token::Mark("->"),
                Token::Word("x"),
                Token::Mark(">>"),
                Token::Number(16, true),
                Token::Mark(")"),
                Token::Mark("!="),
                Token::Number(8, false),
                Token::Mark("?"),
                Token::Number(99, false),
                Token::Mark(":"),
                Token::Mark("-"),
                Token::Number(9, true),
            ]
        );
        assert!(tokens("\"open").is_err());
        assert!(tokens("a @ b").is_err());
    }
}
