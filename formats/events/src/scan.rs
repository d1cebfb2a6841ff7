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
        if after(text.get(place..)?, needle).is_some() {
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

/// Whether two short texts are equal. Compares names of fields and events without the call of `memcmp` that `==` makes
/// for lengths that the compiler does not know: such calls took a fifth of an import of ftrace text.
#[inline]
pub fn same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let halves = |one: &[u8], other: &[u8]| {
        let heads = (one.first_chunk::<4>(), other.first_chunk::<4>());
        let tails = (one.last_chunk::<4>(), other.last_chunk::<4>());
        heads.0.is_some() && heads.0 == heads.1 && tails.0 == tails.1
    };
    match (one.last_chunk::<8>(), other.last_chunk::<8>()) {
        (Some(end), Some(other_end)) => {
            let (chunks, others) = (one.as_chunks::<8>().0, other.as_chunks::<8>().0);
            end == other_end && chunks.iter().zip(others).all(|(one, other)| one == other)
        }
        _ if one.len() >= 4 => halves(one, other),
        _ => one.iter().zip(other).all(|(one, other)| one == other),
    }
}

/// The text after a short `prefix`, by [`same`].
#[inline]
pub fn after<'a>(text: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (head, rest) = text.split_at_checked(prefix.len())?;
    same(head, prefix).then_some(rest)
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

/// The value of each hexadecimal digit; 0xff for other bytes.
static HEX_DIGITS: [u8; 256] = {
    let mut table = [0xff; 256];
    let (mut rest, mut byte) = (table.as_mut_slice(), 0u8);
    while let [digit, others @ ..] = rest {
        if let Some(value) = (byte as char).to_digit(16) {
            *digit = value as u8;
        }
        (rest, byte) = (others, byte.wrapping_add(1));
    }
    table
};

/// Parses all of `text` as at most 16 hexadecimal digits, without `0x`.
#[inline]
pub fn bare_hex(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 16 {
        return None;
    }
    let (mut value, mut wrong) = (0, 0);
    for &byte in text {
        let digit = HEX_DIGITS.get(usize::from(byte)).copied()?;
        wrong |= digit;
        value = value << 4 | u64::from(digit & 0xf);
    }
    (wrong <= 0xf).then_some(value)
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
    match leading_seconds(text)? {
        (time, []) => Some(time),
        _ => None,
    }
}

/// Splits off leading seconds with one to nine fractional digits, in nanoseconds.
#[inline]
pub fn leading_seconds(text: &[u8]) -> Option<(i64, &[u8])> {
    const SCALES: [u64; 9] = [
        100_000_000,
        10_000_000,
        1_000_000,
        100_000,
        10_000,
        1000,
        100,
        10,
        1,
    ];
    let (whole, rest) = leading_decimal(text)?;
    let digits = rest.strip_prefix(b".")?;
    let (fraction, rest) = leading_decimal(digits)?;
    let scale = SCALES.get(digits.len() - rest.len() - 1)?;
    let nanoseconds = whole
        .saturating_mul(1_000_000_000)
        .saturating_add(fraction * scale);
    Some((time_of(nanoseconds), rest))
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
    fn equal_texts() {
        let text: Vec<u8> = (0..40).collect();
        for length in 0..=40 {
            let one = &text[..length];
            let mut other = one.to_vec();
            assert!(same(one, &other), "{length}");
            for place in 0..length {
                other[place] ^= 1;
                assert!(!same(one, &other), "{place} of {length}");
                other[place] ^= 1;
            }
        }
        assert!(!same(b"ab", b"abc"));
        assert_eq!(after(b"comm=dd", b"comm"), Some(&b"=dd"[..]));
        assert_eq!(after(b"com", b"comm"), None);
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
