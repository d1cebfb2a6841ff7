//! Arguments as strace prints them.
//!
//! ```text
//! 3</etc/ld.so.cache>          the descriptor 3 of a file
//! "/etc/\"a\"\n"               a string; `...` follows if it is longer
//! O_RDONLY|O_CLOEXEC           flags, of which those matter that descriptors depend on
//! ```

use std::borrow::Cow;

/// Names of values that decide which file a descriptor has.
const NUMBERS: &[(&str, i64)] = &[
    ("AT_FDCWD", -100),
    ("NULL", 0),
    ("O_CLOEXEC", 0o2_000_000),
    ("EPOLL_CLOEXEC", 0o2_000_000),
    ("SOCK_CLOEXEC", 0o2_000_000),
    ("F_DUPFD", 0),
    ("F_SETFD", 2),
    ("F_DUPFD_CLOEXEC", 1030),
    ("FD_CLOEXEC", 1),
    ("CLOSE_RANGE_CLOEXEC", 4),
];

/// The number of an argument; `None` if it is something else. Of flags, only those in [`NUMBERS`] count.
pub(super) fn number(text: &str) -> Option<i64> {
    let text = text.split('<').next()?;
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16)
            .ok()
            .map(|value| value as i64);
    }
    if let Ok(value) = text.parse() {
        return Some(value);
    }
    let known = |name: &str| NUMBERS.iter().find(|(other, _)| *other == name);
    let names = text.split('|').filter_map(known);
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'|');
    (text.starts_with(|first: char| first.is_ascii_uppercase()) && text.bytes().all(is_word))
        .then(|| names.fold(0, |sum, (_, value)| sum | value))
}

/// The text of a string that is printed whole.
pub(super) fn string(text: &str) -> Option<Cow<'_, str>> {
    let inside = text.strip_prefix('"')?.strip_suffix('"')?;
    if !inside.contains('\\') {
        return Some(Cow::Borrowed(inside));
    }
    let mut bytes = Vec::with_capacity(inside.len());
    let mut rest = inside.bytes().peekable();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let escaped = rest.next()?;
        let mut digits = |first: u32, radix: u32, most: usize| {
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
        };
        bytes.push(match escaped {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'v' => 0x0b,
            b'f' => 0x0c,
            b'0'..=b'7' => digits(u32::from(escaped - b'0'), 8, 2),
            b'x' => digits(0, 16, 2),
            other => other,
        });
    }
    Some(Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()))
}

/// The file of a descriptor (`-y`): `3</etc/passwd>`.
pub(super) fn file(text: &str) -> Option<&str> {
    let (number, file) = text.strip_suffix('>')?.split_once('<')?;
    number.parse::<i32>().ok()?;
    // `-yy` adds the device: `1</dev/null<char 1:3>`.
    Some(file.split('<').next().unwrap_or(file))
}

/// An argument with its name, unless strace has printed a name: `flags=CLONE_VM`.
pub(super) fn with_name<'t>(name: &str, text: &'t str) -> Cow<'t, str> {
    let is_name = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    match text.split_once('=') {
        Some((own, _)) if is_name(own) => Cow::Borrowed(text),
        _ => Cow::Owned(format!("{name}={text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_strace() {
        let numbers = [
            "3</a>",
            "AT_FDCWD</opt>",
            "0x10",
            "O_RDONLY|O_CLOEXEC",
            "-1",
            "{a=1}",
            "\"3\"",
        ];
        let expected = [
            Some(3),
            Some(-100),
            Some(16),
            Some(0o2_000_000),
            Some(-1),
            None,
            None,
        ];
        assert_eq!(numbers.map(number), expected);
        assert_eq!(
            string(r#""/a\"b\n\303\274\x41""#).as_deref(),
            Some("/a\"b\nüA")
        );
        assert_eq!(string("\"/a\"..."), None);
        assert_eq!(file("1</dev/null<char 1:3>>"), Some("/dev/null"));
        assert_eq!(file("AT_FDCWD</opt>"), None);
        assert_eq!(with_name("fd", "3"), "fd=3");
        assert_eq!(with_name("fd", "flags=CLONE_VM|2"), "flags=CLONE_VM|2");
        assert_eq!(with_name("ts", "{tv_sec=0}"), "ts={tv_sec=0}");
    }
}
