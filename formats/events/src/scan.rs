//! Search, words and numbers in a line of text, without allocation.
//!
//! ```text
//! split_once("fd: 0x1f", ": ")   →   "fd", "0x1f"         prefixed_hex("0x1f")   →   31
//! ```

use crate::event::time_of;

/// Finds the first byte `needle` in `text`.
#[inline]
pub fn find(text: &[u8], needle: u8) -> Option<usize> {
    text.iter().position(|&byte| byte == needle)
}

/// Finds the first occurrence of the bytes `needle` in `text`.
#[inline]
pub fn find_text(text: &[u8], needle: &[u8]) -> Option<usize> {
    let first = *needle.first()?;
    let mut from = 0;
    loop {
        let rest = text.get(from..)?;
        let place = from + find(rest, first)?;
        if text.get(place..)?.starts_with(needle) {
            return Some(place);
        }
        from = place + 1;
    }
}

/// Finds the last occurrence of the bytes `needle` in `text`.
#[inline]
pub fn rfind_text(text: &[u8], needle: &[u8]) -> Option<usize> {
    let Some((first, others)) = needle.split_first() else {
        return Some(text.len());
    };
    let mut end = text.len().checked_sub(others.len())?;
    loop {
        end = text.get(..end)?.iter().rposition(|byte| byte == first)?;
        if text.get(end + 1..)?.starts_with(others) {
            return Some(end);
        }
    }
}

/// Splits `text` at the first `needle`, which is in neither part.
#[inline]
pub fn split_once<'a>(text: &'a [u8], needle: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let place = find_text(text, needle)?;
    Some((text.get(..place)?, text.get(place + needle.len()..)?))
}

/// Splits `text` at the last `needle`.
#[inline]
pub fn rsplit_once<'a>(text: &'a [u8], needle: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let place = rfind_text(text, needle)?;
    Some((text.get(..place)?, text.get(place + needle.len()..)?))
}

/// Splits off the first word; words are separated by spaces and tabs.
#[inline]
pub fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = trim_start(text);
    if text.is_empty() {
        return None;
    }
    let end = text
        .iter()
        .position(|byte| matches!(byte, b' ' | b'\t'))
        .unwrap_or(text.len());
    text.split_at_checked(end)
}

/// Removes leading spaces and tabs.
#[inline]
pub fn trim_start(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    text
}

/// Removes trailing spaces and tabs.
#[inline]
pub fn trim_end(mut text: &[u8]) -> &[u8] {
    while let [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// Removes leading and trailing spaces and tabs.
#[inline]
pub fn trim(text: &[u8]) -> &[u8] {
    trim_end(trim_start(text))
}

/// Splits off leading decimal digits, as a number.
#[inline]
pub fn leading_decimal(text: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    let mut count = 0;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        // Nineteen digits always fit.
        value = if count < 19 {
            value * 10 + u64::from(digit)
        } else {
            value.checked_mul(10)?.checked_add(u64::from(digit))?
        };
        count += 1;
    }
    (count > 0).then_some((value, text.get(count..)?))
}

/// Parses all of `text` as a decimal number.
#[inline]
pub fn decimal(text: &[u8]) -> Option<u64> {
    match leading_decimal(text)? {
        (value, []) => Some(value),
        _ => None,
    }
}

/// Parses all of `text` as a decimal number with optional sign.
#[inline]
pub fn signed(text: &[u8]) -> Option<i64> {
    match text.split_first() {
        Some((b'-', digits)) => decimal(digits).and_then(|value| 0i64.checked_sub_unsigned(value)),
        _ => decimal(text)?.try_into().ok(),
    }
}

/// Parses all of `text` as at most 16 hexadecimal digits, without `0x`.
#[inline]
pub fn bare_hex(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 16 {
        return None;
    }
    let mut value = 0;
    for byte in text {
        let digit = char::from(*byte).to_digit(16)?;
        value = value << 4 | u64::from(digit);
    }
    Some(value)
}

/// Parses all of `text` as hexadecimal digits after `0x`.
#[inline]
pub fn prefixed_hex(text: &[u8]) -> Option<u64> {
    bare_hex(text.strip_prefix(b"0x")?)
}

/// Parses seconds with up to nine fractional digits into nanoseconds: `12.000345`. More than a time can hold gives
/// [`crate::event::TIME_BEYOND`].
#[inline]
pub fn seconds(text: &[u8]) -> Option<i64> {
    let (whole, rest) = leading_decimal(text)?;
    let digits = rest.strip_prefix(b".")?;
    if digits.is_empty() || digits.len() > 9 {
        return None;
    }
    let fraction = decimal(digits)?;
    let scale = 10u64.pow(9 - digits.len() as u32);
    let nanoseconds = whole
        .saturating_mul(1_000_000_000)
        .saturating_add(fraction * scale);
    Some(time_of(nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::TIME_BEYOND;

    #[test]
    fn numbers() {
        assert_eq!(decimal(b"007"), Some(7));
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(decimal(b"18446744073709551616"), None);
        assert_eq!(decimal(b""), None);
        assert_eq!(decimal(b"1a"), None);
        assert_eq!(signed(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(signed(b"9223372036854775808"), None);
        assert_eq!(signed(b"-"), None);
        assert_eq!(bare_hex(b"fF"), Some(255));
        assert_eq!(bare_hex(b"00000000000000001"), None);
        assert_eq!(prefixed_hex(b"0x10"), Some(16));
        assert_eq!(prefixed_hex(b"10"), None);
    }

    #[test]
    fn times() {
        assert_eq!(seconds(b"1.000001"), Some(1_000_001_000));
        assert_eq!(seconds(b"0.5"), Some(500_000_000));
        assert_eq!(seconds(b"668.619500700"), Some(668_619_500_700));
        assert_eq!(seconds(b"12"), None);
        assert_eq!(seconds(b"1."), None);
        assert_eq!(seconds(b"9223372036.854775806"), Some(i64::MAX - 1));
        for beyond in [
            "9223372036.854775808",
            "18446744073.709551615",
            "99999999999.0",
        ] {
            assert_eq!(seconds(beyond.as_bytes()), Some(TIME_BEYOND));
        }
    }

    #[test]
    fn places() {
        assert_eq!(find_text(b"aab", b"ab"), Some(1));
        assert_eq!(find_text(b"aa", b"ab"), None);
        assert_eq!(rfind_text(b"a b a b", b" b"), Some(5));
        assert_eq!(rfind_text(b"a", b"ab"), None);
        assert_eq!(
            split_once(b"k: v: w", b": "),
            Some((&b"k"[..], &b"v: w"[..]))
        );
        assert_eq!(
            rsplit_once(b"k: v: w", b": "),
            Some((&b"k: v"[..], &b"w"[..]))
        );
        assert_eq!(word(b"  ab cd"), Some((&b"ab"[..], &b" cd"[..])));
        assert_eq!(word(b"  "), None);
    }
}
