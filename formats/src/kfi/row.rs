//! One line → one call, and what consoles put before lines.
//!
//! ```text
//!       13    10979      19.3 0xffffffff80203f80               0x0000000010008094
//!       20   no exit     19  schedule                         io_schedule+0x24
//!        9          8        -1i    c0009a80   c0008704
//! ```

use crate::event::{Context, Function, Space};
use crate::lines::{hexadecimal, signed, unsigned, words};

/// Bits of a pid below the CPU that KFT hides in it.
const PID_BITS: u32 = 24;
/// KFT's pid of interrupts, its upper byte taken for the CPU.
const INTERRUPT_BITS: i64 = 0xff_ffff;

/// One row of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row<'a> {
    /// Microseconds since the start.
    pub(super) entry: u64,
    pub(super) delta: Delta<'a>,
    pub(super) who: Who,
    pub(super) function: &'a [u8],
    pub(super) caller: &'a [u8],
    /// Frame pointer and arguments, as written.
    pub(super) args: [&'a [u8]; 4],
    /// Words behind the last that is known.
    pub(super) has_more: bool,
}

/// How long a call took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delta<'a> {
    /// Microseconds.
    Known(u64),
    /// -1
    NoExit,
    /// What else was written there.
    Other(&'a [u8]),
}

/// Whose call it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Who {
    /// `None`: an interrupt.
    pub(super) tid: Option<i32>,
    /// `None`: no suffix, or one that means nothing.
    pub(super) cpu: Option<u32>,
    /// Whether a CPU was written behind the pid.
    pub(super) has_cpu: bool,
}

impl Who {
    pub(super) fn context(self) -> Context {
        match self.tid {
            Some(_) => Context::Task,
            None => Context::Irq,
        }
    }
}

impl<'a> Row<'a> {
    /// `None`: the line is no row.
    pub(super) fn of(line: &'a [u8]) -> Option<Row<'a>> {
        let mut words = words(line);
        let entry = unsigned(words.next()?)?;
        let delta = delta(words.next()?, line, &mut words)?;
        let mut who = who(words.next()?)?;
        if delta == Delta::NoExit {
            who.cpu = None;
        }
        let function = words.next().filter(|word| is_name(word))?;
        let caller = words.next().filter(|word| is_name(word))?;
        let mut args = [&b""[..]; 4];
        let mut has_more = false;
        for (place, word) in words.enumerate() {
            match args.get_mut(place) {
                Some(arg) if word.starts_with(b"0x") => *arg = word,
                _ => {
                    has_more = true;
                    break;
                }
            }
        }
        Some(Row {
            entry,
            delta,
            who,
            function,
            caller,
            args,
            has_more,
        })
    }

    /// Microseconds, where known.
    pub(super) fn duration(&self) -> Option<u64> {
        match self.delta {
            Delta::Known(duration) => Some(duration),
            Delta::NoExit | Delta::Other(_) => None,
        }
    }
}

fn delta<'a>(
    word: &'a [u8],
    line: &'a [u8],
    words: &mut impl Iterator<Item = &'a [u8]>,
) -> Option<Delta<'a>> {
    if word == b"no" {
        words.next().filter(|word| *word == b"exit")?;
        // Both words with the blanks between them are not needed: kd knows one blank only.
        let start = line.windows(7).position(|part| part == b"no exit")?;
        return Some(Delta::Other(line.get(start..start + 7)?));
    }
    Some(match signed(word) {
        Some(-1) => Delta::NoExit,
        Some(delta) if delta < 0 || delta == i64::from(u32::MAX) => Delta::Other(word),
        Some(delta) => Delta::Known(delta.unsigned_abs()),
        // -1 of 64 bits without its sign.
        None if unsigned(word).is_some() => Delta::Other(word),
        None => return None,
    })
}

/// `19`, `-1`, `-1i`, `19.3`, and what KFT's printer for consoles makes of 19 on CPU 3: `50331667`.
fn who(word: &[u8]) -> Option<Who> {
    let word = word.strip_suffix(b"i").unwrap_or(word);
    let (pid, cpu) = match word {
        // One character, `'0' + cpu`: a colon is CPU 10.
        [pid @ .., b'.', cpu] => (pid, Some(u32::from(cpu.checked_sub(b'0')?))),
        pid => (pid, None),
    };
    let pid = signed(pid)?;
    i32::try_from(pid).ok()?;
    let has_cpu = cpu.is_some();
    let (pid, cpu) = match cpu {
        None if pid >= INTERRUPT_BITS => (pid & INTERRUPT_BITS, Some((pid >> PID_BITS) as u32)),
        cpu => (pid, cpu),
    };
    Some(Who {
        tid: i32::try_from(pid)
            .ok()
            .filter(|tid| *tid >= 0 && pid != INTERRUPT_BITS),
        cpu,
        has_cpu,
    })
}

fn is_name(word: &[u8]) -> bool {
    function(word) != Function::Unknown
}

/// A function by name or by address.
pub(super) fn function(word: &[u8]) -> Function<'_> {
    let is_bare = matches!(word.len(), 8 | 16);
    let digits = match word.strip_prefix(b"0x") {
        Some(digits) => Some(digits),
        None => is_bare.then_some(word),
    };
    if let Some(address) = digits.and_then(hexadecimal) {
        let space = Space::Kernel;
        return Function::Address { space, address };
    }
    match word.first() {
        Some(b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'.' | b'$' | b'<' | b'?') => Function::named(word),
        _ => Function::Unknown,
    }
}

/// The function that called: without the place in it.
pub(super) fn caller(word: &[u8]) -> Function<'_> {
    let end = word.iter().position(|&byte| byte == b'+');
    function(end.and_then(|end| word.get(..end)).unwrap_or(word))
}

/// The line without what a console, `dmesg` or a log daemon put before it, and without blanks at its end.
pub(super) fn without_prefix(line: &[u8]) -> &[u8] {
    let mut rest = line.trim_ascii_end();
    if let Some(message) = behind_daemon(rest) {
        rest = message;
    }
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
        let behind = start.get(close + 1..).unwrap_or_default();
        rest = behind.strip_prefix(b" ").unwrap_or(behind);
    }
}

/// What stands behind `Jan  1 00:00:12 host kernel: `.
fn behind_daemon(line: &[u8]) -> Option<&[u8]> {
    const MARK: &[u8] = b" kernel: ";
    let head = line.get(..line.len().min(80))?;
    let start = head.windows(MARK.len()).position(|part| part == MARK)?;
    let has_time = head.get(..start)?.windows(3).any(|part| match part {
        [before, b':', behind] => before.is_ascii_digit() && behind.is_ascii_digit(),
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

    #[track_caller]
    fn check(line: &str, expected: Option<(u64, Delta<'_>, Option<i32>, Option<u32>)>) {
        let found = Row::of(line.as_bytes());
        let found = found.map(|row| (row.entry, row.delta, row.who.tid, row.who.cpu));
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn rows() {
        use Delta::{Known, NoExit, Other};
        check(
            "  9   8   19   c0009a80   c0008704",
            Some((9, Known(8), Some(19), None)),
        );
        check("9 0 -1i c0009a80 c0008704", Some((9, Known(0), None, None)));
        check("9 8 19.3 f g+0x1", Some((9, Known(8), Some(19), Some(3))));
        check("9 8 -1.: f g+0x1", Some((9, Known(8), None, Some(10))));
        check("9 -1 -1.9 f g+0x1", Some((9, NoExit, None, None)));
        check("9 -1 19.0 f g+0x1", Some((9, NoExit, Some(19), None)));
        check("9 -2 19 f g", Some((9, Other(b"-2"), Some(19), None)));
        check(
            "9 no exit 19 f g",
            Some((9, Other(b"no exit"), Some(19), None)),
        );
        check(
            "9 4294967295 19 f g",
            Some((9, Other(b"4294967295"), Some(19), None)),
        );
        check(
            "9 18446744073709551615 19 f g",
            Some((9, Other(b"18446744073709551615"), Some(19), None)),
        );
        check(
            "9 8 50331667 c0009a80 c0008704",
            Some((9, Known(8), Some(19), Some(3))),
        );
        check(
            "9 8 33554431 c0009a80 c0008704",
            Some((9, Known(8), None, Some(1))),
        );
        check("9 8 19 f", None);
        check("9 xx 19 f g", None);
        check("9 8 19 12 13", None);
        check("9 8 99999999999 f g", None);
        check("", None);
    }

    #[test]
    fn functions() {
        let address = |address| Function::Address {
            space: Space::Kernel,
            address,
        };
        assert_eq!(function(b"0xc0009a80"), address(0xc000_9a80));
        assert_eq!(function(b"c0009a80"), address(0xc000_9a80));
        assert_eq!(
            function(b"0xffffffff80203f80"),
            address(0xffff_ffff_8020_3f80)
        );
        assert_eq!(function(b"_end+0x10"), Function::named(b"_end+0x10"));
        assert_eq!(function(b"dead_beef"), Function::named(b"dead_beef"));
        assert_eq!(function(b"33"), Function::Unknown);
        assert_eq!(caller(b"vfs_read+0x5c"), Function::named(b"vfs_read"));
        assert_eq!(caller(b"L6+0x0"), Function::named(b"L6"));
        assert_eq!(caller(b"0x10008094"), address(0x1000_8094));
    }

    #[test]
    fn prefixes() {
        let check = |line: &str, expected: &str| {
            assert_eq!(without_prefix(line.as_bytes()), expected.as_bytes());
        };
        check("<0>   9 8 19 f g  ", "  9 8 19 f g");
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
