//! One line → one call.
//!
//! ```text
//!       13    10979      19.3 0xffffffff80203f80               0x0000000010008094
//!       20   no exit     19  schedule                         io_schedule+0x24
//!        9          8        -1i    c0009a80   c0008704
//! ```

use perfquet_events::event::{Context, Function, Space};

use crate::console::without_prefix;
use crate::lines::{hexadecimal, signed, unsigned, words};

/// Bits of the PID below the CPU that KFT stores in it.
const PID_BITS: u32 = 24;
/// KFT's PID for interrupts, with the upper byte taken for the CPU.
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
    /// Whether unknown words follow.
    pub(super) has_more: bool,
}

/// The duration of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delta<'a> {
    /// Microseconds.
    Known(u64),
    /// -1
    NoExit,
    /// Any other text.
    Other(&'a [u8]),
}

/// The thread and CPU of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Who {
    /// `None` for an interrupt.
    pub(super) tid: Option<i32>,
    /// `None` if the suffix is absent or meaningless.
    pub(super) cpu: Option<u32>,
    /// Whether a CPU follows the PID.
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
    /// Parses a row; `None` if the line is not one.
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

    /// The duration in microseconds, if known.
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
        // kd accepts only one space between the words, so no other spacing is needed.
        let start = line.windows(7).position(|part| part == b"no exit")?;
        return Some(Delta::Other(line.get(start..start + 7)?));
    }
    Some(match signed(word) {
        Some(-1) => Delta::NoExit,
        Some(delta) if delta < 0 || delta == i64::from(u32::MAX) => Delta::Other(word),
        Some(delta) => Delta::Known(delta.unsigned_abs()),
        // A 64-bit -1 printed unsigned.
        None if unsigned(word).is_some() => Delta::Other(word),
        None => return None,
    })
}

/// `19`, `-1`, `-1i`, `19.3`, and `50331667`: TID 19 on CPU 3, as printed by KFT's console code.
fn who(word: &[u8]) -> Option<Who> {
    let word = word.strip_suffix(b"i").unwrap_or(word);
    let (pid, cpu) = match word {
        // The CPU is one character, `'0' + cpu`: a colon is CPU 10.
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

/// A function by name or address.
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

/// The calling function, without the offset.
pub(super) fn caller(word: &[u8]) -> Function<'_> {
    let end = word.iter().position(|&byte| byte == b'+');
    function(end.and_then(|end| word.get(..end)).unwrap_or(word))
}

/// The line without the console prefix and trailing spaces.
pub(super) fn without_console(line: &[u8]) -> &[u8] {
    without_prefix(line.trim_ascii_end())
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
}
