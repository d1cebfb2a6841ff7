//! Lines of `thread_indent`: microseconds, the thread, blanks for each enclosing call, and what the script prints.
//!
//! ```text
//!  16366 calls(171):   -> fib(n=0x5)
//!  17280 calls(171):   <- fib return=0x5
//!      4 ls(24779): ->set_program_name argv0=0x7ffe166486e6
//! ```

use crate::lines::{hexadecimal, signed, unsigned};

/// A parsed line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Edge<'a> {
    /// Microseconds since the outermost call of the thread began.
    pub(super) elapsed_us: u64,
    pub(super) comm: &'a [u8],
    pub(super) tid: i32,
    /// Blanks before the arrow; the outermost call has 0 or 1, by the script.
    pub(super) blanks: u32,
    pub(super) is_entry: bool,
    pub(super) function: &'a [u8],
    /// Arguments, or what follows the function at its return.
    pub(super) rest: &'a [u8],
}

/// Parses a line; `None` if it is not one of `thread_indent` with an arrow.
pub(super) fn edge(line: &[u8]) -> Option<Edge<'_>> {
    let text = line.trim_ascii_start();
    let blank = text.iter().position(|&byte| byte == b' ')?;
    let elapsed_us = unsigned(text.get(..blank)?)?;
    let text = text.get(blank + 1..)?;
    let end = text.windows(2).position(|two| two == b"):")?;
    let thread = text.get(..end)?;
    let open = thread.iter().rposition(|&byte| byte == b'(')?;
    let comm = thread.get(..open)?;
    let tid = i32::try_from(unsigned(thread.get(open + 1..)?)?).ok()?;
    let text = text.get(end + 2..)?;
    let blanks = text.iter().take_while(|&&byte| byte == b' ').count();
    let text = text.get(blanks..)?;
    let (is_entry, text) = match text.strip_prefix(b"->") {
        Some(text) => (true, text),
        None => (false, text.strip_prefix(b"<-")?),
    };
    let text = text.trim_ascii();
    // The name of a C++ function has blanks and brackets; the last bracket of an entry begins its arguments.
    let end = match text.strip_suffix(b")").filter(|_| is_entry) {
        Some(inner) => opening(inner)?,
        None if is_entry => text
            .iter()
            .position(|&byte| byte == b' ')
            .unwrap_or(text.len()),
        None => memchr::memmem::find(text, b" return=").unwrap_or(text.len()),
    };
    let function = text.get(..end)?.trim_ascii();
    let rest = text.get(end..)?;
    let rest = rest
        .strip_prefix(b"(")
        .and_then(|rest| rest.strip_suffix(b")"))
        .unwrap_or(rest);
    (!function.is_empty()).then_some(Edge {
        elapsed_us,
        comm,
        tid,
        blanks: u32::try_from(blanks).ok()?,
        is_entry,
        function,
        rest: rest.trim_ascii(),
    })
}

/// The bracket that the end of the text closes.
fn opening(inner: &[u8]) -> Option<usize> {
    let mut depth = 1;
    for (place, byte) in inner.iter().enumerate().rev() {
        match byte {
            b')' => depth += 1,
            b'(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(place);
        }
    }
    None
}

/// Arguments `name=value`; a value in quotation marks or braces may have blanks.
pub(super) fn arguments(text: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let (mut start, mut depth, mut is_quoted, mut is_escaped) = (0, 0u32, false, false);
    for (place, byte) in text.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b'{' | b'[' if !is_quoted => depth += 1,
            b'}' | b']' if !is_quoted => depth = depth.saturating_sub(1),
            b' ' if !is_quoted && depth == 0 => {
                found.extend(text.get(start..place));
                start = place + 1;
            }
            _ => {}
        }
    }
    found.extend(text.get(start..));
    found.retain(|part| !part.is_empty());
    found
}

/// The value of `return=0x5`: 64 bits, as signed.
pub(super) fn returned(rest: &[u8]) -> Option<i64> {
    let value = rest.strip_prefix(b"return=")?;
    match value.strip_prefix(b"0x") {
        Some(digits) => hexadecimal(digits).map(u64::cast_signed),
        None => signed(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, blanks: u32, is_entry: bool, function: &str, rest: &str) {
        let edge = edge(line.as_bytes()).expect(line);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(
            (
                edge.blanks,
                edge.is_entry,
                text(edge.function),
                text(edge.rest)
            ),
            (blanks, is_entry, function.into(), rest.into())
        );
    }

    #[test]
    fn edges() {
        check(
            " 16366 calls(171):   -> fib(n=0x5)",
            3,
            true,
            "fib",
            "n=0x5",
        );
        check(
            " 17280 calls(171):   <- fib return=0x5",
            3,
            false,
            "fib",
            "return=0x5",
        );
        check(
            "     4 ls(24779): ->set_name argv0=0x7f",
            1,
            true,
            "set_name",
            "argv0=0x7f",
        );
        check("     0 a b(c)(7):->f ", 0, true, "f", "");
        check(
            "     0 x(7): -> ns::f<int>(int (*)(char))(p=0x1)",
            1,
            true,
            "ns::f<int>(int (*)(char))",
            "p=0x1",
        );
        for line in [
            "",
            "0 x(7) -> f",
            "a x(7): -> f",
            "0 x(b): -> f",
            "0 x(7): f",
            "0 x(7): -> ",
            "0 x(7): -> )",
        ] {
            assert_eq!(edge(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn values() {
        assert_eq!(
            arguments(b"a=0x1 s=\"x y\" t={.a=1, .b=2}"),
            [&b"a=0x1"[..], b"s=\"x y\"", b"t={.a=1, .b=2}"]
        );
        assert_eq!(arguments(b""), Vec::<&[u8]>::new());
        assert_eq!(returned(b"return=0xffffffffffffffff"), Some(-1));
        assert_eq!(returned(b"return=7"), Some(7));
        assert_eq!(returned(b"return=\"x\""), None);
    }
}
