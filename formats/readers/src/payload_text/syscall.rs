//! Arguments of system calls: `fd: 1, buf: 0x55afc4d7e000 (61:0a) "a.", count: 2`.
//!
//! The names may be preceded by their types (trace option `verbose`). Since Linux 7.0, the data that a pointer refers to
//! follows it: text in quotes, or bytes in hexadecimal and as text. It becomes `__NAME_val`, as in the kernel's format
//! files.

use perfquet_events::scan::{find, find_text, trim};

/// One argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Argument<'a> {
    pub(super) name: &'a [u8],
    pub(super) value: &'a [u8],
    /// The data at the pointer, as text.
    pub(super) text: Option<&'a [u8]>,
    /// The data at the pointer, as hexadecimal bytes.
    pub(super) bytes: Option<&'a [u8]>,
}

/// Parses the arguments. Returns false if `text` is not a list of arguments.
pub(super) fn scan<'a>(text: &'a [u8], arguments: &mut Vec<Argument<'a>>) -> bool {
    arguments.clear();
    let mut rest = trim(text);
    while !rest.is_empty() {
        let Some(colon) = find_text(rest, b": ") else {
            return false;
        };
        let (Some(names), Some(after)) = (rest.get(..colon), rest.get(colon + 2..)) else {
            return false;
        };
        let name = names
            .rsplit(|byte| matches!(byte, b' ' | b'*'))
            .next()
            .unwrap_or(names);
        if name.is_empty() || !names.iter().all(|byte| is_declaration(*byte)) {
            return false;
        }
        let end = value_end(after);
        let (value, after) = after.split_at_checked(end).unwrap_or((after, &[]));
        arguments.push(argument(name, trim(value)));
        rest = trim(after.strip_prefix(b",").unwrap_or(after));
    }
    true
}

fn is_declaration(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b' ' | b'*')
}

/// Where the value ends: at the comma before the next name, or at the end. Text in quotes may contain anything.
fn value_end(text: &[u8]) -> usize {
    let from = quotes_begin(text).unwrap_or(0);
    let closing = |place: &usize| from == 0 || text.get(place - 1) == Some(&b'"');
    commas(text, from)
        .filter(|place| is_next(text.get(place + 1..).unwrap_or_default()))
        .find(closing)
        .unwrap_or(text.len())
}

/// Offset after the first quote of `0x55 (61:0a) "a."`, `12 "x"`.
fn quotes_begin(text: &[u8]) -> Option<usize> {
    let mut place = find(text, b' ')? + 1;
    if text.get(place) == Some(&b'(') {
        place += find(text.get(place..)?, b')')? + 2;
    }
    (text.get(place) == Some(&b'"')).then_some(place + 1)
}

fn commas(text: &[u8], from: usize) -> impl Iterator<Item = usize> {
    let after = text.iter().enumerate().skip(from);
    after.filter_map(|(place, byte)| (*byte == b',').then_some(place))
}

/// Whether ` name: ` follows.
fn is_next(text: &[u8]) -> bool {
    let Some(text) = text.strip_prefix(b" ") else {
        return false;
    };
    let name = text
        .iter()
        .take_while(|byte| is_declaration(**byte))
        .count();
    name > 0 && text.get(name..).is_some_and(|rest| rest.starts_with(b": "))
}

fn argument<'a>(name: &'a [u8], text: &'a [u8]) -> Argument<'a> {
    let mut argument = Argument {
        name,
        value: text,
        text: None,
        bytes: None,
    };
    let Some(blank) = find(text, b' ') else {
        return argument;
    };
    let (value, after) = text.split_at_checked(blank).unwrap_or((text, &[]));
    let after = trim(after);
    match after.first() {
        Some(b'"') => {
            argument.value = value;
            argument.text = Some(after);
        }
        Some(b'(') => {
            if let Some(close) = find(after, b')') {
                argument.value = value;
                argument.bytes = after.get(1..close);
            }
        }
        _ => {}
    }
    argument
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&[(&str, &str)]>) {
        let mut arguments = Vec::new();
        let found = scan(text.as_bytes(), &mut arguments).then(|| {
            arguments
                .iter()
                .map(|argument| {
                    let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    (show(argument.name), show(argument.value))
                })
                .collect::<Vec<_>>()
        });
        let expected = expected.map(|pairs| {
            pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect::<Vec<_>>()
        });
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn arguments() {
        check("", Some(&[]));
        check(
            "fd: 1, buf: 0x55, count: 0x2",
            Some(&[("fd", "1"), ("buf", "0x55"), ("count", "0x2")]),
        );
        check(
            "unsigned int fd: 1, const char * buf: 0x55 (61:0a) \"a, b: c\", count: 2",
            Some(&[("fd", "1"), ("buf", "0x55"), ("count", "2")]),
        );
        check(
            "dfd: 4294967196, filename: 94606582252080 \"/dev/null\", flags: O_WRONLY|O_CREAT, mode: 0666",
            Some(&[
                ("dfd", "4294967196"),
                ("filename", "94606582252080"),
                ("flags", "O_WRONLY|O_CREAT"),
                ("mode", "0666"),
            ]),
        );
        check("0x1", None);
        check("a=1", None);
    }

    #[test]
    fn data_of_pointers() {
        let mut arguments = Vec::new();
        assert!(scan(
            b"buf: 0x55 (61:0a) \"a.\", name: 12 \"x\"",
            &mut arguments
        ));
        assert_eq!(arguments[0].bytes, Some(&b"61:0a"[..]));
        assert_eq!(arguments[1].text, Some(&b"\"x\""[..]));
    }
}
