//! JSON without a tree: values as slices of the input, members one by one. Nothing is copied until it is needed, and files end anywhere.

use std::borrow::Cow;

/// Deeper values are damage; the scanner itself needs no stack.
const DEPTH_MAX: u32 = 1 << 16;

/// A position in a text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scanner<'a> {
    text: &'a [u8],
    pub(crate) place: usize,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Scanner<'a> {
        Scanner { text, place: 0 }
    }

    /// The next byte that is not white space, without taking it.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<u8> {
        while let Some(&byte) = self.text.get(self.place) {
            if !byte.is_ascii_whitespace() {
                return Some(byte);
            }
            self.place += 1;
        }
        None
    }

    /// Takes the next byte if it is this one.
    #[inline]
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let is_it = self.peek() == Some(byte);
        self.place += usize::from(is_it);
        is_it
    }

    /// Takes a value; `None` at the end of the text, or if it ends inside of the value.
    pub(crate) fn value(&mut self) -> Option<&'a [u8]> {
        let first = self.peek()?;
        let start = self.place;
        match first {
            b'"' => self.skip_string()?,
            b'{' | b'[' => self.skip_nested()?,
            b'}' | b']' | b',' | b':' => return None,
            _ => {
                let rest = self.text.get(start..)?;
                let is_end = |byte: &u8| {
                    matches!(
                        byte,
                        b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t' | 0x0c
                    )
                };
                self.place = start + rest.iter().position(is_end)?;
            }
        }
        self.text.get(start..self.place)
    }

    fn skip_string(&mut self) -> Option<()> {
        let mut place = self.place + 1;
        loop {
            place += quote_or_escape(self.text.get(place..)?)?;
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
    pub(crate) fn next_key(&mut self) -> Option<&'a [u8]> {
        self.take(b',');
        match self.peek()? {
            b'"' => self.key(),
            _ => None,
        }
    }
}

/// The first byte that may end a string. Most are short, so that a call of memchr costs more than the search.
#[inline]
fn quote_or_escape(text: &[u8]) -> Option<usize> {
    let is_it = |byte: &u8| matches!(byte, b'"' | b'\\');
    let chunks = text.chunks_exact(16);
    let skipped = chunks
        .take_while(|chunk| !chunk.iter().fold(false, |any, byte| any | is_it(byte)))
        .count();
    let rest = text.get(16 * skipped..)?;
    Some(16 * skipped + rest.iter().position(is_it)?)
}

/// The members of an object.
pub(crate) fn members(object: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
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
pub(crate) fn text(value: &[u8]) -> Cow<'_, [u8]> {
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
pub(crate) fn inside(value: &[u8]) -> Option<&[u8]> {
    value.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

/// An integer, also in quotation marks.
pub(crate) fn integer(value: &[u8]) -> Option<i64> {
    let digits = inside(value).unwrap_or(value);
    crate::lines::signed(digits)
}

/// The elements of an array; none after damage.
pub(crate) fn elements(array: &[u8]) -> Elements<'_> {
    let mut scanner = Scanner::new(array);
    let is_array = scanner.take(b'[');
    Elements { scanner, is_array }
}

/// See [`elements`].
#[derive(Debug, Clone)]
pub(crate) struct Elements<'a> {
    scanner: Scanner<'a>,
    is_array: bool,
}

impl Elements<'_> {
    /// Bytes of the array that were read.
    pub(crate) fn place(&self) -> usize {
        self.scanner.place
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if !self.is_array {
            return None;
        }
        self.scanner.take(b',');
        let value = self.scanner.value();
        self.is_array = value.is_some();
        value
    }
}

/// Nanoseconds of a number of microseconds, which may be in quotation marks. Decimals beyond nanoseconds are dropped.
pub(crate) fn nanoseconds(value: &[u8]) -> Option<i64> {
    decimal(inside(value).unwrap_or(value), 3)
}

/// A number times 10^`digits`. Further decimals are dropped.
pub(crate) fn decimal(number: &[u8], digits: u32) -> Option<i64> {
    if let Some(scaled) = short_decimal(number, digits) {
        return Some(scaled);
    }
    if number.iter().any(|byte| matches!(byte, b'e' | b'E')) {
        let number: f64 = std::str::from_utf8(number).ok()?.parse().ok()?;
        let scaled = number * 10f64.powi(i32::try_from(digits).ok()?);
        // Exact beyond this only by chance.
        return (scaled.abs() < 9e18).then_some(scaled.round() as i64);
    }
    let (is_negative, unsigned) = match number.strip_prefix(b"-") {
        Some(unsigned) => (true, unsigned),
        None => (false, number),
    };
    let mut parts = unsigned.splitn(2, |&byte| byte == b'.');
    let whole = i64::try_from(crate::lines::unsigned(parts.next()?)?).ok()?;
    let decimals = parts.next().unwrap_or_default();
    if !decimals.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mut scaled = whole;
    for place in 0..usize::try_from(digits).ok()? {
        let digit = decimals.get(place).map_or(0, |digit| digit - b'0');
        scaled = scaled.checked_mul(10)?.checked_add(i64::from(digit))?;
    }
    Some(if is_negative { -scaled } else { scaled })
}

/// The same for numbers without sign and exponent, and with no more decimals than wanted, as most are.
#[inline]
fn short_decimal(number: &[u8], digits: u32) -> Option<i64> {
    if number.is_empty() || number.len() > 19 || number.first() == Some(&b'.') {
        return None;
    }
    let mut value = 0_i64;
    let mut decimals = None;
    for byte in number {
        match (byte, &mut decimals) {
            (b'0'..=b'9', count) => {
                value = value.checked_mul(10)?.checked_add(i64::from(byte - b'0'))?;
                if let Some(count) = count {
                    *count += 1;
                }
            }
            (b'.', None) => decimals = Some(0_u32),
            _ => return None,
        }
    }
    let missing = digits.checked_sub(decimals.unwrap_or(0))?;
    (0..missing).try_fold(value, |value, _| value.checked_mul(10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_end_at_their_quotation_mark() {
        for length in 0..70 {
            let inside = "x".repeat(length);
            for (text, left) in [
                (format!("\"{inside}\",1"), ",1"),
                (format!("\"{inside}\\\"{inside}\\\\\"]"), "]"),
            ] {
                let mut scanner = Scanner::new(text.as_bytes());
                let value = scanner.value().unwrap();
                assert_eq!(value, text.strip_suffix(left).unwrap().as_bytes());
            }
            let open = format!("\"{inside}");
            assert!(Scanner::new(open.as_bytes()).value().is_none());
        }
    }

    #[test]
    fn arrays() {
        let found: Vec<_> = elements(b" [1, \"a]\", [2,3] , {} ]").collect();
        assert_eq!(found, [&b"1"[..], b"\"a]\"", b"[2,3]", b"{}"]);
        assert_eq!(elements(b"[1, 2").count(), 1);
        assert_eq!(elements(b"{}").count(), 0);
    }

    #[test]
    fn decimals() {
        assert_eq!(decimal(b"1.25", 3), Some(1250));
        assert_eq!(decimal(b"-1.2519", 3), Some(-1251));
        assert_eq!(decimal(b"1e-3", 9), Some(1_000_000));
        assert_eq!(decimal(b"7", 0), Some(7));
        assert_eq!(decimal(b"7.", 2), Some(700));
        assert_eq!(decimal(b"0.07", 2), Some(7));
        assert_eq!(
            decimal(b"1700000000000000.125", 3),
            Some(1_700_000_000_000_000_125)
        );
        for text in [
            "",
            "x",
            "1.x",
            "99999999999999999999",
            "9223372036854775807.5",
        ] {
            assert_eq!(decimal(text.as_bytes(), 1), None, "{text}");
        }
    }
}
