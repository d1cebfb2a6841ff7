//! `key=value key=value`: finds the keys.
//!
//! ```text
//! comm=opt cgu.00 pid=12 runtime=834492 [ns]   →   comm "opt cgu.00", pid "12", runtime "834492 [ns]"
//! function=f expires=4294 [timeout=25] flags=  →   function "f", expires "4294", timeout "25", flags ""
//! bdi (unknown): ino=90004                     →   text before the first key "bdi (unknown):", ino "90004"
//! ```
//! A key begins the text or follows a space or `[`. Its value extends to the space before the next key or, if it begins
//! with a quote, to a quote followed by a space or the end.

use perfquet_events::scan::{find, trim};

/// Far more than an event has; the last value then takes the rest.
const MAX_KEYS: usize = 1024;

/// A key, and its value.
pub(super) type Pair<'a> = (&'a [u8], &'a [u8]);

/// Finds all keys of `text`; returns the text before the first.
pub(super) fn scan<'a>(text: &'a [u8], pairs: &mut Vec<Pair<'a>>) -> &'a [u8] {
    pairs.clear();
    let Some((start, mut equals)) = next_key(text, 0) else {
        return trim(text);
    };
    let before = text.get(..start).unwrap_or_default();
    let mut key_start = start;
    loop {
        let key = text.get(key_start..equals).unwrap_or_default();
        let value_start = equals + 1;
        let skip = quoted_length(text.get(value_start..).unwrap_or_default());
        let next = next_key(text, value_start + skip).filter(|_| pairs.len() < MAX_KEYS);
        let value_end = next.map_or(text.len(), |(start, _)| start);
        let value = text.get(value_start..value_end).unwrap_or_default();
        pairs.push((key, clean(value, is_bracketed(text, key_start))));
        match next {
            Some(next) => (key_start, equals) = next,
            None => break,
        }
    }
    clean(before, false)
}

/// The value without separators.
fn clean(value: &[u8], in_brackets: bool) -> &[u8] {
    let mut value = trim(value);
    if in_brackets && let Some(inner) = value.strip_suffix(b"]") {
        value = inner;
    }
    if let Some(before) = value.strip_suffix(b"[") {
        value = trim(before);
    }
    value = value.strip_suffix(b" ==>").unwrap_or(value);
    value.strip_suffix(b",").unwrap_or(value)
}

fn is_bracketed(text: &[u8], key_start: usize) -> bool {
    key_start
        .checked_sub(1)
        .and_then(|place| text.get(place))
        .is_some_and(|&byte| byte == b'[')
}

/// Length of a quoted value including its quotes; 0 if it is not quoted.
fn quoted_length(value: &[u8]) -> usize {
    let Some(inner) = value.strip_prefix(b"\"") else {
        return 0;
    };
    let mut from = 0;
    while let Some(place) = inner.get(from..).and_then(|rest| find(rest, b'"')) {
        let end = from + place + 1;
        if matches!(inner.get(end), None | Some(b' ' | b',' | b'}')) {
            return end + 1;
        }
        from = end;
    }
    0
}

/// Offsets of the next key and of its `=`.
fn next_key(text: &[u8], from: usize) -> Option<(usize, usize)> {
    let mut search = from;
    loop {
        let equals = search + find(text.get(search..)?, b'=')?;
        search = equals + 1;
        let name = text
            .get(from..equals)?
            .iter()
            .rev()
            .take_while(|byte| is_name(**byte))
            .count();
        let start = equals - name;
        let first = text.get(start).copied().unwrap_or(b'=');
        let is_free = match start.checked_sub(1).and_then(|place| text.get(place)) {
            None => true,
            Some(byte) => start > from && matches!(byte, b' ' | b'[' | b'\t') || start == 0,
        };
        if name > 0 && is_free && !first.is_ascii_digit() {
            return Some((start, equals));
        }
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, before: &str, expected: &[(&str, &str)]) {
        let mut pairs = Vec::new();
        let found = scan(text.as_bytes(), &mut pairs);
        let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(key, value)| (show(key), show(value)))
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        assert_eq!(
            (show(found), pairs),
            (before.to_owned(), expected),
            "{text}"
        );
    }

    #[test]
    fn keys_and_values() {
        check("", "", &[]);
        check("no keys here", "no keys here", &[]);
        check("a=1 b=x y c=", "", &[("a", "1"), ("b", "x y"), ("c", "")]);
        check(
            "function=f expires=4294 [timeout=25] flags=",
            "",
            &[
                ("function", "f"),
                ("expires", "4294"),
                ("timeout", "25"),
                ("flags", ""),
            ],
        );
        check("bdi (unknown): ino=9", "bdi (unknown):", &[("ino", "9")]);
        check("path=/a=b x=1", "", &[("path", "/a=b"), ("x", "1")]);
        check(
            "name=\"a b=c\" d=1",
            "",
            &[("name", "\"a b=c\""), ("d", "1")],
        );
        check("s=R ==> n=2", "", &[("s", "R"), ("n", "2")]);
        check("a=1, b=2", "", &[("a", "1"), ("b", "2")]);
        check("=1 2=3", "=1 2=3", &[]);
    }
}
