//! Arguments and results of calls.
//!
//! ```text
//! 3, "a, b", {tv_sec=0, tv_nsec=9}    three arguments
//! -1 ENOENT (No such file or directory) <0.000010>
//! 3</etc/ld.so.cache> <0.000011>
//! ? ERESTARTSYS (To be restarted if SA_RESTART is set)
//! ```

use memchr::memmem;
use perfquet_events::errno;

use super::line::{seconds, string_end};
use crate::lines::{hexadecimal, signed, unsigned};

/// Far more than any system call has; a line of commas alone must not fill the memory.
const ARGUMENTS_MAX: usize = 64;

/// What a call returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Outcome<'a> {
    /// Return value, the negative error number of a failed call, also of one that the kernel restarts; `None` if strace does not know it.
    pub(super) value: Option<i64>,
    /// Name of the error.
    pub(super) error: Option<&'a [u8]>,
    /// Nanoseconds from entry to exit (`-T`).
    pub(super) duration: Option<i64>,
}

impl<'a> Outcome<'a> {
    /// Parses what follows `= `.
    pub(super) fn parse(text: &'a [u8]) -> Outcome<'a> {
        let text = text.trim_ascii();
        let (text, duration) = match timed(text) {
            Some((text, duration)) => (text.trim_ascii_end(), Some(duration)),
            None => (text, None),
        };
        let end = text
            .iter()
            .position(|byte| matches!(byte, b' ' | b'<' | b'\t'))
            .unwrap_or(text.len());
        let (number, rest) = text.split_at_checked(end).unwrap_or((text, b""));
        let word = rest.trim_ascii_start().split(|&byte| byte == b' ').next();
        let error = word.filter(|word| is_error(word));
        let value = match number.strip_prefix(b"0x") {
            // Results of 64 bits are signed in the tables.
            Some(digits) => hexadecimal(digits).map(|value| value as i64),
            None => signed(number).or_else(|| unsigned(number).map(|value| value as i64)),
        };
        // An error with an unknown name stays -1. A call that the kernel restarts has one without -1: `? ERESTARTSYS`.
        let negative = error.and_then(errno::number).and_then(i64::checked_neg);
        Outcome {
            value: match (value, number) {
                (Some(-1), _) => Some(negative.unwrap_or(-1)),
                (None, b"?") => negative,
                (other, _) => other,
            },
            error,
            duration,
        }
    }
}

fn is_error(word: &[u8]) -> bool {
    word.len() > 1
        && word.starts_with(b"E")
        && word
            .iter()
            .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_')
}

/// Splits off ` <0.000010>` at the end.
fn timed(text: &[u8]) -> Option<(&[u8], i64)> {
    let inside = text.strip_suffix(b">")?;
    let start = inside.iter().rposition(|&byte| byte == b'<')?;
    let duration = seconds(inside.get(start + 1..)?)?;
    Some((inside.get(..start)?, duration))
}

/// Splits arguments at commas outside of brackets, strings and the descriptions of descriptors (`-y`).
pub(super) fn arguments(text: &[u8]) -> Vec<&[u8]> {
    let mut found: Vec<&[u8]> = Vec::new();
    let (mut depth, mut start, mut place) = (0usize, 0, 0);
    while let Some(&byte) = text.get(place) {
        match byte {
            b'"' => {
                place = string_end(text, place);
                continue;
            }
            // Comments: `/* 2 vars */`.
            b'/' if text.get(place + 1) == Some(&b'*') => {
                let rest = text.get(place..).unwrap_or_default();
                place += memmem::find(rest, b"*/").map_or(rest.len(), |end| end + 2);
                continue;
            }
            b'<' if is_descriptor(text, place) => {
                let rest = text.get(place..).unwrap_or_default();
                place += memchr::memchr(b'>', rest).map_or(rest.len(), |end| end + 1);
                continue;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 && found.len() + 1 < ARGUMENTS_MAX => {
                found.push(text.get(start..place).unwrap_or_default().trim_ascii());
                start = place + 1;
            }
            _ => {}
        }
        place += 1;
    }
    let last = text.get(start..).unwrap_or_default().trim_ascii();
    if !last.is_empty() {
        found.push(last);
    }
    found
}

/// Whether `<` begins the file of a descriptor: `3</etc/passwd>`, `AT_FDCWD</opt>`.
fn is_descriptor(text: &[u8], place: usize) -> bool {
    let before = place.checked_sub(1).and_then(|before| text.get(before));
    before.is_some_and(|byte| byte.is_ascii_digit())
        || text
            .get(..place)
            .is_some_and(|text| text.ends_with(b"AT_FDCWD"))
}
