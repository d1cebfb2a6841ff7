//! Tokens of the metadata's language.
//!
//! ```text
//! typealias integer { size = 0x8; } := uint8_t; /* comment */
//! ```

use std::borrow::Cow;

/// What is wrong in the metadata.
#[derive(Debug)]
pub(super) struct Flaw {
    /// 0: unknown.
    pub(super) line: u64,
    pub(super) message: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token<'a> {
    Word(&'a str),
    Number(i128),
    Text(Cow<'a, str>),
    Sign(&'static str),
    End,
}

impl Token<'_> {
    /// As errors show it.
    pub(super) fn shown(&self) -> String {
        match self {
            Token::Word(word) => format!("\"{word}\""),
            Token::Number(number) => number.to_string(),
            Token::Text(text) => format!("the string {text:?}"),
            Token::Sign(sign) => format!("\"{sign}\""),
            Token::End => "the end".to_owned(),
        }
    }
}

/// Longer ones come before their beginnings.
const SIGNS: [&str; 18] = [
    "...", ":=", "->", "{", "}", "[", "]", "(", ")", "<", ">", ";", ",", ".", ":", "=", "*", "-",
];

pub(super) struct Lexer<'a> {
    rest: &'a str,
    pub(super) line: u64,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Lexer<'a> {
        Lexer {
            rest: text,
            line: 1,
        }
    }

    fn flaw<T>(&self, message: String) -> Result<T, Flaw> {
        Err(Flaw {
            line: self.line,
            message,
        })
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        self.line += taken.bytes().filter(|&byte| byte == b'\n').count() as u64;
        self.rest = rest;
        taken
    }

    fn skip_blanks(&mut self) -> Result<(), Flaw> {
        loop {
            let blanks = self.rest.len() - self.rest.trim_start_matches(is_blank).len();
            self.take(blanks);
            if self.rest.starts_with("/*") {
                match self.rest.find("*/") {
                    Some(end) => self.take(end + 2),
                    None => return self.flaw("expected */ after /*, found the end".to_owned()),
                };
            } else if self.rest.starts_with("//") {
                self.take(self.rest.find('\n').unwrap_or(self.rest.len()));
            } else {
                return Ok(());
            }
        }
    }

    /// The next token.
    pub(super) fn next(&mut self) -> Result<Token<'a>, Flaw> {
        self.skip_blanks()?;
        let Some(first) = self.rest.chars().next() else {
            return Ok(Token::End);
        };
        let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        if first.is_ascii_digit() {
            let end = self.rest.find(|letter| !is_word(letter));
            let digits = self.take(end.unwrap_or(self.rest.len()));
            return match number(digits) {
                Some(number) => Ok(Token::Number(number)),
                None => self.flaw(format!("expected a number below 2^64, found {digits}")),
            };
        }
        if is_word(first) {
            let end = self.rest.find(|letter| !is_word(letter));
            return Ok(Token::Word(self.take(end.unwrap_or(self.rest.len()))));
        }
        if first == '"' {
            return self.text();
        }
        if first == '\'' {
            return self.flaw("character constants are not supported".to_owned());
        }
        match SIGNS.iter().find(|sign| self.rest.starts_with(**sign)) {
            Some(sign) => {
                self.take(sign.len());
                Ok(Token::Sign(sign))
            }
            None => self.flaw(format!("expected a word or a sign, found {first:?}")),
        }
    }

    fn text(&mut self) -> Result<Token<'a>, Flaw> {
        let bytes = self.rest.as_bytes();
        let mut end = 1;
        loop {
            match bytes.get(end) {
                None => return self.flaw("expected \" at the end of a string".to_owned()),
                Some(b'"') => break,
                Some(b'\\') => end += 2,
                Some(_) => end += 1,
            }
        }
        let taken = self.take(end + 1);
        let inside = taken.get(1..end).unwrap_or_default();
        Ok(Token::Text(match inside.contains('\\') {
            false => Cow::Borrowed(inside),
            true => Cow::Owned(unescaped(inside)),
        }))
    }
}

fn is_blank(letter: char) -> bool {
    letter.is_whitespace() || letter == '\0'
}

fn number(digits: &str) -> Option<i128> {
    let lower = digits.to_ascii_lowercase();
    let plain = lower.trim_end_matches(['u', 'l']);
    let parsed = match plain.strip_prefix("0x") {
        Some(hexadecimal) => i128::from_str_radix(hexadecimal, 16),
        None if plain.len() > 1 && plain.starts_with('0') => i128::from_str_radix(plain, 8),
        None => plain.parse(),
    };
    parsed.ok().filter(|number| *number <= i128::from(u64::MAX))
}

fn unescaped(text: &str) -> String {
    let mut plain = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            plain.push(letter);
            continue;
        }
        let (radix, most, mut value) = match letters.next() {
            Some('n') => (0, 0, u32::from('\n')),
            Some('t') => (0, 0, u32::from('\t')),
            Some('r') => (0, 0, u32::from('\r')),
            Some('x') => (16, 2, 0),
            Some(digit @ '0'..='7') => (8, 2, digit.to_digit(8).unwrap_or(0)),
            Some(other) => (0, 0, u32::from(other)),
            None => continue,
        };
        for _ in 0..most {
            let Some(digit) = letters.peek().and_then(|letter| letter.to_digit(radix)) else {
                break;
            };
            letters.next();
            value = value * radix + digit;
        }
        plain.push(char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER));
    }
    plain
}
