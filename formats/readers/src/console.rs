//! Prefixes that a console, `dmesg` or a log daemon puts before each line.
//!
//! ```text
//! [   12.345678] …    <4>[   12.345678] [    T1] …    Jan  1 00:00:12 host kernel: [   12.345678] …
//! ```

/// The line without its prefixes.
pub(crate) fn without_prefix(line: &[u8]) -> &[u8] {
    let mut rest = after_daemon(line).unwrap_or(line);
    loop {
        let start = rest.trim_ascii_start();
        let close = match start.first() {
            Some(b'<') => start.iter().position(|&byte| byte == b'>'),
            Some(b'[') => start.iter().position(|&byte| byte == b']'),
            _ => None,
        };
        let Some(close) = close else { return rest };
        let inside = start.get(1..close).unwrap_or_default();
        if !is_stamp(inside) {
            return rest;
        }
        let after = start.get(close + 1..).unwrap_or_default();
        rest = after.strip_prefix(b" ").unwrap_or(after);
    }
}

/// The part after `Jan  1 00:00:12 host kernel: `.
fn after_daemon(line: &[u8]) -> Option<&[u8]> {
    const MARK: &[u8] = b" kernel: ";
    let head = line.get(..line.len().min(80))?;
    let start = head.windows(MARK.len()).position(|part| part == MARK)?;
    let has_time = head.get(..start)?.windows(3).any(|part| match part {
        [before, b':', after] => before.is_ascii_digit() && after.is_ascii_digit(),
        _ => false,
    });
    has_time.then(|| line.get(start + MARK.len()..)).flatten()
}

/// A level, a time, a date, a thread (`T1`) or CPU (`C0`).
fn is_stamp(inside: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_digit() || b" .:-+/TCZ".contains(byte);
    inside.iter().any(u8::is_ascii_digit) && inside.iter().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes() {
        let check = |line: &str, expected: &str| {
            assert_eq!(without_prefix(line.as_bytes()), expected.as_bytes());
        };
        check("<0>   9 8 19 f g  ", "  9 8 19 f g  ");
        check("[   12.345678]  9 8 19 f g", " 9 8 19 f g");
        check("<4>[   12.345678] [    T1] x", "x");
        check("[2006-05-04 12:00:01.123] x", "x");
        check("Jan  1 00:00:12 ebony kernel:  9 8 19 f g", " 9 8 19 f g");
        check("Jan  1 00:00:12 ebony kernel: [   1.2] x", "x");
        check(" 9 8 19 f g", " 9 8 19 f g");
        check("[...]", "[...]");
        check("<stdin>", "<stdin>");
    }
}
