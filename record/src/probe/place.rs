//! Splitting of a probe's place into its parts. Names of C++ and Rust may contain colons, spaces, brackets and
//! operators.
//!
//! ```text
//! ./prog : std::map<int, char>::at : 12      object, function, line
//! ./prog : A::operator+ + 0x10               object, function, offset
//! ```

use std::path::Path;

/// Letters that may follow `operator`.
const SIGNS: &[u8] = b"<>=-+*/%^&|!~,";

/// Splits the place from the arguments, at the first space outside brackets.
pub(crate) fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = outside(text)
        .find(|(_, byte)| byte.is_ascii_whitespace())
        .map_or(text.len(), |(at, _)| at);
    text.split_at(end)
}

/// Splits off the program, library or module; `None` if there is none.
pub(crate) fn object(place: &str) -> Option<(&str, &str)> {
    let at = single_colon(place.bytes().enumerate())?;
    let (object, rest) = (place.get(..at)?, place.get(at + 1..)?);
    (!object.is_empty() && !rest.is_empty()).then_some((object, rest))
}

/// Splits into function and line.
pub(crate) fn line(place: &str) -> Option<(&str, &str)> {
    let at = single_colon(outside(place))?;
    Some((place.get(..at)?, place.get(at + 1..)?))
}

/// Splits into function and offset.
pub(crate) fn offset(place: &str) -> Option<(&str, &str)> {
    let at = outside(place).filter(|(_, byte)| *byte == b'+').last()?.0;
    Some((place.get(..at)?, place.get(at + 1..)?))
}

/// Whether the text is a line number, or empty.
pub(crate) fn is_line(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether the text is a valid event name.
pub(crate) fn is_identifier(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !text.is_empty() && text.bytes().all(is_letter)
}

/// Whether the function is in a program or library, OBJECT:FUNC; FUNC, FUNC:LINE and MODULE:FUNC are in the kernel.
pub(crate) fn is_of_program(text: &str) -> bool {
    let (place, _) = split(text);
    match object(place) {
        Some((object, rest)) => !is_line(rest) && !is_module(object),
        // "./prog:" gets the error for a program.
        None => place.contains(['/', ':']),
    }
}

/// Whether a kernel module with this name is loaded.
pub(crate) fn is_module(name: &str) -> bool {
    let is_name = !name.is_empty() && !name.contains(['/', '.']);
    // The kernel's name of a module has underscores; its file name may have dashes instead.
    let folder = Path::new("/sys/module").join(name.replace('-', "_"));
    // Built-in modules do not have this file.
    is_name && folder.join("initstate").exists()
}

/// Finds the first colon that is not part of `::`.
fn single_colon(bytes: impl Iterator<Item = (usize, u8)>) -> Option<usize> {
    let mut waiting: Option<usize> = None;
    for (at, byte) in bytes {
        match (waiting, byte) {
            (Some(before), b':') if before + 1 == at => waiting = None,
            (Some(before), _) => return Some(before),
            (None, b':') => waiting = Some(at),
            (None, _) => {}
        }
    }
    waiting
}

/// Iterates over the bytes outside brackets, with their positions. The text after `operator` belongs to its name.
fn outside(text: &str) -> impl Iterator<Item = (usize, u8)> {
    let bytes = text.as_bytes();
    let mut depth = 0usize;
    let mut skipped = 0;
    let byte_at = move |at: usize| bytes.get(at).copied().unwrap_or(b' ');
    bytes.iter().enumerate().filter_map(move |(at, &byte)| {
        if at < skipped {
            return None;
        }
        if depth == 0 && is_after_operator(bytes, at) {
            let end = end_of_operator(bytes, at);
            if end > at {
                skipped = end;
                return None;
            }
        }
        match byte {
            b'<' | b'(' | b'{' | b'[' => depth += 1,
            b'>' if at > 0 && byte_at(at - 1) == b'-' => {}
            b'>' | b')' | b'}' | b']' => depth = depth.saturating_sub(1),
            _ if depth == 0 => return Some((at, byte)),
            _ => {}
        }
        None
    })
}

fn is_after_operator(bytes: &[u8], at: usize) -> bool {
    const WORD: &[u8] = b"operator";
    let before = bytes.get(..at).unwrap_or_default();
    let Some(rest) = before.strip_suffix(WORD) else {
        return false;
    };
    rest.last()
        .is_none_or(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_')
}

/// Returns the end of `()`, `[]`, an operator, ` new`, ` delete`, ` bool`.
fn end_of_operator(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    if rest.starts_with(b"()") || rest.starts_with(b"[]") {
        return at + 2;
    }
    let signs = rest.iter().take_while(|byte| SIGNS.contains(byte)).count();
    if signs > 0 {
        return at + signs;
    }
    match rest.strip_prefix(b" ") {
        Some(word) => {
            let is_letter = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
            at + 1 + word.iter().take_while(is_letter).count()
        }
        None => at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_the_kernel() {
        for (text, expected) in [
            ("vfs_read", false),
            ("vfs_read:12", false),
            ("vfs_read count $retval", false),
            ("./prog:work", true),
            ("libc.so.6:malloc n=%di", true),
            ("./prog:ns::over", true),
            ("1234:work", true),
            ("./prog", true),
            ("./prog:", true),
        ] {
            assert_eq!(is_of_program(text), expected, "{text}");
        }
        assert!(!is_module("no such module") && !is_module("") && !is_module("../module"));
    }

    #[test]
    fn parts_of_a_place() {
        assert_eq!(split("f a b"), ("f", " a b"));
        assert_eq!(split(" A::operator new n"), ("A::operator new", " n"));
        assert_eq!(object("a::b:c"), Some(("a::b", "c")));
        assert_eq!(object("a::b"), None);
        assert_eq!(line("ns::f<a::b>:3"), Some(("ns::f<a::b>", "3")));
        assert_eq!(offset("operator+"), None);
        assert_eq!(offset("operator++0x4"), None);
        assert_eq!(
            offset("operator+(int)+0x4"),
            Some(("operator+(int)", "0x4"))
        );
    }
}
