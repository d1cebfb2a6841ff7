//! Values as babeltrace prints them.
//!
//! ```text
//! { number = -1, id = 0xDEAD, who = "b\"b", list = [ [0] = 1, [1] = 2 ], color = ( "RED" : container = 0 ), inner = { a = 1.5 } }
//! ```
//! babeltrace 1 prints strings as they are, so a quotation mark ends one only where a value may end.

use std::borrow::Cow;

use memchr::memmem;

use crate::lines::{hexadecimal, signed, unsigned};

/// Structures in structures, and members of one.
const DEPTH_MAX: u32 = 32;
const MEMBERS_MAX: usize = 1 << 16;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Parsed<'a> {
    Int(i64),
    /// Hexadecimal, or too large for the other.
    UInt(u64),
    Float(f64),
    Text(Cow<'a, [u8]>),
    /// The first label, and the number.
    Labeled(Option<Cow<'a, [u8]>>, Box<Parsed<'a>>),
    Struct(Vec<(&'a [u8], Parsed<'a>)>),
    Array(Vec<Parsed<'a>>),
}

/// The unread rest of a line.
pub(super) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn of(text: &'a [u8]) -> Scanner<'a> {
        Scanner { text, at: 0 }
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub(super) fn skip(&mut self, wanted: &[u8]) -> bool {
        let is_there = self.rest().starts_with(wanted);
        if is_there {
            self.at += wanted.len();
        }
        is_there
    }

    fn blanks(&mut self) {
        while self.skip(b" ") {}
    }

    /// Members in braces; those without names have an empty one. `None` if the text ends before, or is something else.
    pub(super) fn members(&mut self, depth: u32) -> Option<Vec<(&'a [u8], Parsed<'a>)>> {
        if depth > DEPTH_MAX || !self.skip(b"{") {
            return None;
        }
        let mut members = Vec::new();
        loop {
            self.blanks();
            if self.skip(b"}") {
                return Some(members);
            }
            if members.len() >= MEMBERS_MAX {
                return None;
            }
            let name = self.name();
            members.push((name, self.value(depth + 1)?));
            self.blanks();
            if !self.skip(b",") && !self.rest().starts_with(b"}") {
                return None;
            }
        }
    }

    /// `name = `
    fn name(&mut self) -> &'a [u8] {
        let rest = self.rest();
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_:.$-".contains(byte);
        let end = rest.iter().position(|byte| !is_part(byte)).unwrap_or(0);
        let is_name = end > 0 && rest.get(end..).is_some_and(|rest| rest.starts_with(b" = "));
        if !is_name {
            return b"";
        }
        self.at += end + 3;
        rest.get(..end).unwrap_or_default()
    }

    fn value(&mut self, depth: u32) -> Option<Parsed<'a>> {
        if depth > DEPTH_MAX {
            return None;
        }
        match self.rest().first()? {
            b'"' => Some(Parsed::Text(self.string()?)),
            b'{' => Some(Parsed::Struct(self.members(depth)?)),
            b'[' => self.array(depth),
            b'(' => self.labeled(),
            _ => self.word(),
        }
    }

    fn string(&mut self) -> Option<Cow<'a, [u8]>> {
        let rest = self.rest();
        let mut end = 1;
        loop {
            match rest.get(end)? {
                b'\\' => end += 2,
                b'"' if ends_value(rest.get(end + 1..).unwrap_or_default()) => break,
                _ => end += 1,
            }
        }
        self.at += end + 1;
        Some(unescaped(rest.get(1..end)?))
    }

    fn array(&mut self, depth: u32) -> Option<Parsed<'a>> {
        self.skip(b"[");
        let mut items = Vec::new();
        loop {
            self.blanks();
            if self.skip(b"]") {
                return Some(Parsed::Array(items));
            }
            if items.len() >= MEMBERS_MAX {
                return None;
            }
            // `[0] = `
            let rest = self.rest();
            if let Some(end) = memmem::find(rest.get(..24).unwrap_or(rest), b"] = ")
                && rest.first() == Some(&b'[')
                && unsigned(rest.get(1..end)?).is_some()
            {
                self.at += end + 4;
            }
            items.push(self.value(depth + 1)?);
            self.blanks();
            if !self.skip(b",") && !self.rest().starts_with(b"]") {
                return None;
            }
        }
    }

    /// `( "RED" : container = 0 )`, `( "A", "B" : container = 1 )`, `( <unknown> : container = 9 )`
    fn labeled(&mut self) -> Option<Parsed<'a>> {
        self.skip(b"(");
        self.blanks();
        let mut label = None;
        while self.rest().first() == Some(&b'"') {
            let text = self.string()?;
            label.get_or_insert(text);
            self.blanks();
            self.skip(b",");
            self.blanks();
        }
        let rest = self.rest();
        let mark = b": container = ";
        let start = memmem::find(rest.get(..256).unwrap_or(rest), mark);
        // With `-n none`, the number follows directly.
        self.at += start.map_or(0, |start| start + mark.len());
        if start.is_none() {
            self.skip(b":");
            self.blanks();
        }
        let value = self.word()?;
        self.blanks();
        self.skip(b")")
            .then(|| Parsed::Labeled(label, Box::new(value)))
    }

    fn word(&mut self) -> Option<Parsed<'a>> {
        let rest = self.rest();
        let end = rest.iter().position(|byte| b" ,})]".contains(byte))?;
        let word = rest.get(..end).filter(|word| !word.is_empty())?;
        self.at += end;
        Some(number(word).unwrap_or(Parsed::Text(Cow::Borrowed(word))))
    }
}

/// Whether a value may end here.
fn ends_value(rest: &[u8]) -> bool {
    let rest = rest.trim_ascii_start();
    match rest.first() {
        None => true,
        Some(b'}' | b']' | b')') => true,
        Some(b',') => true,
        Some(b':') => rest.starts_with(b": container"),
        Some(_) => false,
    }
}

fn number(word: &[u8]) -> Option<Parsed<'_>> {
    if let Some(digits) = word.strip_prefix(b"0x") {
        return hexadecimal(digits).map(Parsed::UInt);
    }
    if let Some(number) = signed(word) {
        return Some(Parsed::Int(number));
    }
    if let Some(number) = unsigned(word) {
        return Some(Parsed::UInt(number));
    }
    // Octal and binary numbers.
    let (digits, radix) = match word {
        [b'0', b'b', digits @ ..] => (digits, 2),
        [b'0', digits @ ..] => (digits, 8),
        _ => (&b""[..], 10),
    };
    let digits = std::str::from_utf8(digits).ok()?;
    if let Ok(number) = u64::from_str_radix(digits, radix) {
        return Some(Parsed::UInt(number));
    }
    let text = std::str::from_utf8(word).ok()?;
    text.parse().ok().map(Parsed::Float)
}

/// A string without C's escapes.
fn unescaped(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'\\') {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match rest.next() {
            Some(b'n') => out.push(b'\n'),
            Some(b't') => out.push(b'\t'),
            Some(b'r') => out.push(b'\r'),
            Some(b'a') => out.push(7),
            Some(b'b') => out.push(8),
            Some(b'f') => out.push(12),
            Some(b'v') => out.push(11),
            Some(b'e') => out.push(27),
            Some(b'x') => out.push(digits(&mut rest, 0, 16, 2)),
            Some(digit @ b'0'..=b'7') => out.push(digits(&mut rest, u32::from(digit - b'0'), 8, 2)),
            Some(other) => out.push(other),
            None => out.push(b'\\'),
        }
    }
    Cow::Owned(out)
}

fn digits(
    rest: &mut std::iter::Peekable<impl Iterator<Item = u8>>,
    first: u32,
    radix: u32,
    most: usize,
) -> u8 {
    let mut value = first;
    for _ in 0..most {
        let digit = rest
            .peek()
            .and_then(|byte| char::from(*byte).to_digit(radix));
        let Some(digit) = digit else { break };
        value = value * radix + digit;
        rest.next();
    }
    value as u8
}

/// A value as JSON, without blanks.
pub(super) fn json(value: &Parsed<'_>, out: &mut String) {
    match value {
        Parsed::Int(number) => out.push_str(&number.to_string()),
        Parsed::UInt(number) => out.push_str(&number.to_string()),
        Parsed::Float(number) if number.is_finite() => out.push_str(&number.to_string()),
        Parsed::Float(_) => out.push_str("null"),
        Parsed::Text(text) => {
            let text = String::from_utf8_lossy(text);
            out.push_str(&serde_json::Value::from(text.as_ref()).to_string());
        }
        Parsed::Labeled(_, number) => json(number, out),
        Parsed::Struct(members) => {
            out.push('{');
            for (place, (name, member)) in members.iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                let name = String::from_utf8_lossy(name);
                out.push_str(&serde_json::Value::from(name.as_ref()).to_string());
                out.push(':');
                json(member, out);
            }
            out.push('}');
        }
        Parsed::Array(items) => {
            out.push('[');
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                json(item, out);
            }
            out.push(']');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let mut scanner = Scanner::of(text.as_bytes());
        let members = scanner.members(0);
        let shown = members.map(|members| {
            let mut out = String::new();
            json(&Parsed::Struct(members), &mut out);
            out
        });
        assert_eq!(shown.as_deref().unwrap_or("none"), expected);
    }

    #[test]
    fn values() {
        check("{ }", "{}");
        check(
            "{ a = -1, b = 0xFF, c = 1.5, d = 18446744073709551615 }",
            r#"{"a":-1,"b":255,"c":1.5,"d":18446744073709551615}"#,
        );
        check(
            r#"{ a = "x\"y, } \n\x41\101", b = [ [0] = 1, [1] = 0x2 ], c = [ ] }"#,
            r#"{"a":"x\"y, } \nAA","b":[1,2],"c":[]}"#,
        );
        // babeltrace 1.
        check("{ who = \"b\"b\", next = 1 }", r#"{"who":"b\"b","next":1}"#);
        check(
            r#"{ c = ( "RED", "R" : container = 0 ), d = ( <unknown> : container = 9 ), e = { f = { g = 1 } } }"#,
            r#"{"c":0,"d":9,"e":{"f":{"g":1}}}"#,
        );
        check(
            r#"{ v = { "only" }, w = { 5 } }"#,
            r#"{"v":{"":"only"},"w":{"":5}}"#,
        );
        check("{ a = 1", "none");
        check("{ a = \"cut", "none");
        check(&"{ a = ".repeat(100), "none");
    }
}
