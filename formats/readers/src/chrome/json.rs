//! JSON without a tree: values as slices of the input, members one by one. Nothing is copied until it is needed, and files end anywhere.

use std::borrow::Cow;

/// Deeper values are damage; the scanner itself needs no stack.
const DEPTH_MAX: u32 = 1 << 16;

/// A position in a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scanner<'a> {
    text: &'a [u8],
    pub(super) place: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a [u8]) -> Scanner<'a> {
        Scanner { text, place: 0 }
    }

    /// The next byte that is not white space, without taking it.
    pub(super) fn peek(&mut self) -> Option<u8> {
        while let Some(&byte) = self.text.get(self.place) {
            if !byte.is_ascii_whitespace() {
                return Some(byte);
            }
            self.place += 1;
        }
        None
    }

    /// Takes the next byte if it is this one.
    pub(super) fn take(&mut self, byte: u8) -> bool {
        let is_it = self.peek() == Some(byte);
        self.place += usize::from(is_it);
        is_it
    }

    /// Takes a value; `None` at the end of the text, or if it ends inside of the value.
    pub(super) fn value(&mut self) -> Option<&'a [u8]> {
        let first = self.peek()?;
        let start = self.place;
        match first {
            b'"' => self.skip_string()?,
            b'{' | b'[' => self.skip_nested()?,
            b'}' | b']' | b',' | b':' => return None,
            _ => {
                let rest = self.text.get(start..)?;
                let end = rest.iter().position(|byte| {
                    matches!(byte, b',' | b'}' | b']') || byte.is_ascii_whitespace()
                });
                self.place = start + end?;
            }
        }
        self.text.get(start..self.place)
    }

    fn skip_string(&mut self) -> Option<()> {
        let mut place = self.place + 1;
        loop {
            place += memchr::memchr2(b'"', b'\\', self.text.get(place..)?)?;
            match self.text.get(place)? {
                b'"' => break,
                _ => place += 2,
            }
        }
        self.place = place + 1;
        Some(())
    }

    fn skip_nested(&mut self) -> Option<()> {
        let mut depth = 0;
        loop {
            match self.text.get(self.place)? {
                b'"' => {
                    self.skip_string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.place += 1;
            if depth == 0 {
                return Some(());
            }
            if depth > DEPTH_MAX {
                return None;
            }
        }
    }

    /// Takes `"key":`, and returns the key without quotation marks.
    fn key(&mut self) -> Option<&'a [u8]> {
        if self.peek()? != b'"' {
            return None;
        }
        let key = self.value()?;
        self.take(b':').then_some(())?;
        inside(key)
    }

    /// Takes the next key of an object whose opening bracket was taken; `None` at its end, or at damage.
    pub(super) fn next_key(&mut self) -> Option<&'a [u8]> {
        self.take(b',');
        match self.peek()? {
            b'"' => self.key(),
            _ => None,
        }
    }
}

/// The members of an object.
pub(super) fn members(object: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut scanner = Scanner::new(object);
    let is_object = scanner.take(b'{');
    std::iter::from_fn(move || {
        if !is_object {
            return None;
        }
        Some((scanner.next_key()?, scanner.value()?))
    })
}

/// The text of a string; of other values, their JSON.
pub(super) fn text(value: &[u8]) -> Cow<'_, [u8]> {
    match inside(value) {
        Some(plain) if memchr::memchr(b'\\', plain).is_none() => Cow::Borrowed(plain),
        Some(plain) => match serde_json::from_slice::<String>(value) {
            Ok(text) => Cow::Owned(text.into_bytes()),
            // Lone surrogates and bytes that are no UTF-8.
            Err(_) => Cow::Borrowed(plain),
        },
        None => Cow::Borrowed(value),
    }
}

/// A string without its quotation marks.
pub(super) fn inside(value: &[u8]) -> Option<&[u8]> {
    value.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

/// An integer, also in quotation marks.
pub(super) fn integer(value: &[u8]) -> Option<i64> {
    let digits = inside(value).unwrap_or(value);
    crate::lines::signed(digits)
}

/// Nanoseconds of a number of microseconds, which may be in quotation marks. Decimals beyond nanoseconds are dropped.
pub(super) fn nanoseconds(value: &[u8]) -> Option<i64> {
    let number = inside(value).unwrap_or(value);
    if number.iter().any(|byte| matches!(byte, b'e' | b'E')) {
        let number: f64 = std::str::from_utf8(number).ok()?.parse().ok()?;
        let nanoseconds = number * 1000.0;
        // Exact beyond this only by chance.
        return (nanoseconds.abs() < 9e18).then_some(nanoseconds as i64);
    }
    let (is_negative, digits) = match number.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, number),
    };
    let mut parts = digits.splitn(2, |&byte| byte == b'.');
    let whole = i64::try_from(crate::lines::unsigned(parts.next()?)?).ok()?;
    let decimals = parts.next().unwrap_or_default();
    let mut fraction = 0;
    for place in 0..3 {
        let digit = match decimals.get(place) {
            Some(digit) if digit.is_ascii_digit() => digit - b'0',
            Some(_) => return None,
            None => 0,
        };
        fraction = fraction * 10 + i64::from(digit);
    }
    let nanoseconds = whole.checked_mul(1000)?.checked_add(fraction)?;
    Some(if is_negative {
        -nanoseconds
    } else {
        nanoseconds
    })
}
