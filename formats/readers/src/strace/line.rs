//! A line: what precedes the event, and the kind of the event.
//!
//! ```text
//! [pid  1234] 16:00:33.549505 (+     0.000257) [  59] [00007f65b7e54ad7] execve("./sys", …) = 0 <0.002690>
//! ─── thread  ─── time         ─── difference   ─ nr   ─── address        ─── event
//! ```

use memchr::memmem;
use perfquet_events::signal;

use crate::lines::{hexadecimal, signed, unsigned};

const SECOND: i64 = 1_000_000_000;
/// Larger numbers at the beginning of a line are seconds since 1970, not threads: the kernel's limit is 2^22.
const THREAD_DIGITS: usize = 7;
/// Longer times since the preceding line are times of day or since 1970.
const DELTA_SECONDS: i64 = 100_000_000;

/// The time of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Time {
    /// Not recorded.
    #[default]
    None,
    /// Nanoseconds since 1970.
    Wall(i64),
    /// Nanoseconds since midnight.
    OfDay(i64),
    /// Nanoseconds since the preceding line.
    Delta(i64),
}

/// What precedes the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Prefix<'a> {
    pub(super) tid: Option<i32>,
    /// Thread name (`-Y`).
    pub(super) comm: Option<&'a [u8]>,
    pub(super) time: Time,
}

/// The event of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body<'a> {
    /// `read(3, "x", 1) = 1`
    Call {
        name: &'a [u8],
        args: &'a [u8],
        result: &'a [u8],
    },
    /// `read(3,  <unfinished ...>`; also `<detached ...>` and ltrace's `<no return ...>`.
    Unfinished { name: &'a [u8], args: &'a [u8] },
    /// `<... read resumed>"x", 1) = 1`
    Resumed {
        name: &'a [u8],
        args: &'a [u8],
        result: &'a [u8],
    },
    /// `<... read resumed> <unfinished ...>) = ?`: the thread ended in it.
    Abandoned { name: &'a [u8] },
    /// `--- SIGCHLD {si_signo=SIGCHLD, …} ---`, `--- stopped by SIGSTOP ---`
    Signal(&'a [u8]),
    /// `+++ exited with 7 +++`: status, or 128 and the signal's number, if known.
    Exited(Option<i32>),
    /// `+++ superseded by execve in pid 1234 +++`: the thread that called it.
    Superseded(Option<i32>),
    /// ` > /lib/libc.so.6(read+0x12) [0xfa392]`
    Frame(Frame<'a>),
    /// ` | 00000  7f 45 4c 46 …  .ELF             |`: data of the call above (`-e read=3`, `-e write=1`).
    Dump,
    /// `strace: Process 1234 attached`, `[ Process PID=1234 runs in 32 bit mode. ]`: the attached thread.
    Message(Option<i32>),
}

/// A frame of a stack (`-k`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) module: &'a [u8],
    /// Empty if unknown.
    pub(super) function: &'a [u8],
    pub(super) offset: Option<u64>,
}

/// Parses a line; `None` if it is not of strace.
pub(super) fn parse(text: &[u8]) -> Option<(Prefix<'_>, Body<'_>)> {
    if let Some(frame) = frame(text) {
        return Some((Prefix::default(), Body::Frame(frame)));
    }
    if is_dump(text) {
        return Some((Prefix::default(), Body::Dump));
    }
    if text.starts_with(b"strace: ") || text.starts_with(b"[ Process PID=") {
        let attached = between(text, b"strace: Process ", b" attached").and_then(unsigned);
        let tid = attached.and_then(|tid| i32::try_from(tid).ok());
        return Some((Prefix::default(), Body::Message(tid)));
    }
    let (prefix, rest) = prefix(text);
    Some((prefix, body(rest)?))
}

/// Like [`parse`], also if the output of the program precedes the line, without a line ending.
pub(super) fn parse_anywhere(text: &[u8]) -> Option<(Prefix<'_>, Body<'_>)> {
    parse(text).or_else(|| parse_inside(text))
}

/// Parses the line that follows output of the program.
pub(super) fn parse_inside(text: &[u8]) -> Option<(Prefix<'_>, Body<'_>)> {
    memmem::find_iter(text, b"[pid ").find_map(|start| parse(text.get(start..)?))
}

/// Whether a line begins a call, but does not end it.
pub(super) fn is_open(text: &[u8]) -> bool {
    let (prefix, rest) = prefix(text);
    let name = cut(rest, b"(").map(|(name, _)| name);
    prefix != Prefix::default() && name.is_some_and(is_name) && body(rest).is_none()
}

fn prefix(text: &[u8]) -> (Prefix<'_>, &[u8]) {
    let mut prefix = Prefix::default();
    let mut rest = text;
    let inside = rest.strip_prefix(b"[pid ");
    let end = match inside {
        Some(_) => &b"]"[..],
        None => b" ",
    };
    if let Some((tid, comm, after)) = thread(inside.unwrap_or(rest).trim_ascii_start())
        && let Some(after) = after.strip_prefix(end)
    {
        (prefix.tid, prefix.comm) = (Some(tid), comm);
        rest = after.trim_ascii_start();
    }
    if let Some((time, after)) = time(rest) {
        prefix.time = time;
        rest = after;
    }
    if let Some((_, after)) = rest.strip_prefix(b"(+").and_then(|rest| cut(rest, b") ")) {
        rest = after.trim_ascii_start();
    }
    // The number of the system call, then the address of the instruction.
    while let Some((inside, after)) = rest.strip_prefix(b"[").and_then(|rest| cut(rest, b"] ")) {
        let word = inside.trim_ascii();
        let is_address = match word.strip_prefix(b"0x") {
            // ltrace.
            Some(digits) => hexadecimal(digits).is_some(),
            None => matches!(word.len(), 8 | 16) && word.iter().all(is_hexadecimal),
        };
        if !is_address && unsigned(word).is_none() {
            break;
        }
        rest = after;
    }
    (prefix, rest)
}

/// Digits, or `?` where strace could not read the address.
fn is_hexadecimal(byte: &u8) -> bool {
    byte.is_ascii_hexdigit() || *byte == b'?'
}

/// A thread, its name, and the text after it.
type Named<'a> = (i32, Option<&'a [u8]>, &'a [u8]);

/// Parses a thread with its name: `1234<sh>`.
fn thread(text: &[u8]) -> Option<Named<'_>> {
    let (digits, rest) = digits(text);
    if digits.is_empty() || digits.len() > THREAD_DIGITS {
        return None;
    }
    let tid = i32::try_from(unsigned(digits)?).ok()?;
    if let Some((comm, rest)) = rest.strip_prefix(b"<").and_then(|rest| cut(rest, b">")) {
        return Some((tid, Some(comm), rest));
    }
    Some((tid, None, rest))
}

fn time(text: &[u8]) -> Option<(Time, &[u8])> {
    let is_padded = text.starts_with(b" ");
    let (word, rest) = cut(text.trim_ascii_start(), b" ")?;
    let (whole, fraction) = match cut(word, b".") {
        Some((whole, fraction)) => (whole, nanoseconds(fraction)?),
        None => (word, 0),
    };
    let time = if whole.contains(&b':') {
        let mut parts = whole.split(|&byte| byte == b':').map(unsigned);
        let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
        if parts.next().is_some() || hours > 23 || minutes > 59 || seconds > 60 {
            return None;
        }
        let seconds = i64::try_from(hours * 3600 + minutes * 60 + seconds).ok()?;
        Time::OfDay(seconds * SECOND + fraction)
    } else {
        let seconds = i64::try_from(unsigned(whole)?).ok()?;
        let nanoseconds = seconds.checked_mul(SECOND)?.checked_add(fraction)?;
        match seconds < DELTA_SECONDS {
            true if whole.len() == word.len() && !is_padded => return None,
            true => Time::Delta(nanoseconds),
            false => Time::Wall(nanoseconds),
        }
    };
    Some((time, rest.trim_ascii_start()))
}

/// Nanoseconds of decimals after a point, at most nine.
fn nanoseconds(decimals: &[u8]) -> Option<i64> {
    let power = u32::try_from(9usize.checked_sub(decimals.len())?).ok()?;
    let number = i64::try_from(unsigned(decimals)?).ok()?;
    Some(number * 10i64.pow(power))
}

/// Nanoseconds of `0.000147`.
pub(super) fn seconds(text: &[u8]) -> Option<i64> {
    let (whole, decimals) = cut(text, b".")?;
    let whole = i64::try_from(unsigned(whole)?).ok()?;
    whole
        .checked_mul(SECOND)?
        .checked_add(nanoseconds(decimals)?)
}

fn body(text: &[u8]) -> Option<Body<'_>> {
    let text = text.trim_ascii_end();
    if let Some(inside) = between(text, b"--- ", b" ---") {
        return Some(Body::Signal(inside));
    }
    if let Some(inside) = between(text, b"+++ ", b" +++") {
        return ended(inside);
    }
    if let Some(rest) = text.strip_prefix(b"<... ") {
        let (name, rest) = cut(rest, b" resumed>")?;
        // Until 4.x, a blank follows: `<... read resumed> "x", 1) = 1`.
        if rest.trim_ascii_start().starts_with(b"<unfinished ...>") {
            return Some(Body::Abandoned { name });
        }
        let (args, result) = closed(rest)?;
        return Some(Body::Resumed { name, args, result });
    }
    let (name, rest) = cut(text, b"(")?;
    if !is_name(name) {
        return None;
    }
    for mark in [
        &b"<unfinished ...>"[..],
        b"<detached ...>",
        b"<no return ...>",
    ] {
        if let Some(args) = rest.strip_suffix(mark) {
            return Some(Body::Unfinished { name, args });
        }
    }
    // `exit_group(0) = ?` is printed by some versions as `exit_group(0 <unfinished ...>) = ?`.
    let (args, result) = closed(rest)?;
    let args = args.strip_suffix(b"<unfinished ...>").unwrap_or(args);
    Some(Body::Call { name, args, result })
}

fn ended(text: &[u8]) -> Option<Body<'_>> {
    if let Some(status) = text.strip_prefix(b"exited with ") {
        return Some(Body::Exited(Some(i32::try_from(signed(status)?).ok()?)));
    }
    // ltrace.
    if let Some(status) = between(text, b"exited (status ", b")") {
        return Some(Body::Exited(Some(i32::try_from(signed(status)?).ok()?)));
    }
    if let Some(rest) = text.strip_prefix(b"killed by ") {
        let name = rest.split(|&byte| byte == b' ').next()?;
        let number = signal::number(name).and_then(|number| i32::try_from(number).ok());
        return Some(Body::Exited(number.map(|number| 128 + number)));
    }
    let by = text.strip_prefix(b"superseded by ")?;
    let by = by.rsplit(|&byte| byte == b' ').next().and_then(thread);
    Some(Body::Superseded(by.map(|(tid, ..)| tid)))
}

/// Splits `args) = result` at the last closing parenthesis outside of strings that a result follows.
fn closed(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut found = None;
    let mut place = 0;
    while let Some(next) = memchr::memchr2(b'"', b')', text.get(place..)?) {
        place += next;
        if text.get(place) == Some(&b'"') {
            place = string_end(text, place);
            continue;
        }
        let after = text.get(place + 1..).unwrap_or_default().trim_ascii_start();
        if let Some(result) = after.strip_prefix(b"= ") {
            found = Some((text.get(..place)?, result));
        }
        place += 1;
    }
    found
}

/// Position after a string; the end of the text if it is not closed.
pub(super) fn string_end(text: &[u8], start: usize) -> usize {
    let mut place = start + 1;
    while let Some(next) = text
        .get(place..)
        .and_then(|rest| memchr::memchr2(b'\\', b'"', rest))
    {
        place += next;
        match text.get(place) {
            Some(b'"') => return place + 1,
            _ => place += 2,
        }
    }
    text.len()
}

/// ` > FILE(FUNCTION+0xOFFSET) [0xADDRESS]`; the function may be missing.
pub(super) fn frame(text: &[u8]) -> Option<Frame<'_>> {
    let text = text.trim_ascii_end().strip_prefix(b" > ")?;
    let Some(start) = memmem::rfind(text, b" [0x") else {
        return Some(Frame {
            module: b"",
            function: text,
            offset: None,
        });
    };
    let (place, address) = text.split_at_checked(start)?;
    // An offset in the file or an address, depending on the version.
    hexadecimal(between(address, b" [0x", b"]")?)?;
    let (module, place) = match place.iter().rposition(|&byte| byte == b'(') {
        Some(open) => (place.get(..open)?, between(place.get(open..)?, b"(", b")")?),
        None => (place, &b""[..]),
    };
    let (function, offset) = match memmem::rfind(place, b"+0x") {
        Some(plus) => (place.get(..plus)?, hexadecimal(place.get(plus + 3..)?)),
        None => (place, None),
    };
    Some(Frame {
        module,
        function,
        offset,
    })
}

/// A line of data that was read or written: an offset, sixteen bytes, and the same as text. The lines of several buffers
/// have a head: ` * 5 bytes in buffer 0`.
pub(super) fn is_dump(text: &[u8]) -> bool {
    let text = text.trim_ascii_end();
    if let Some(rest) = text.strip_prefix(b" * ") {
        return memmem::find(rest, b" bytes in buffer ").is_some();
    }
    let Some(inside) = between(text, b" | ", b" |") else {
        return false;
    };
    let digits = inside.iter().take_while(|byte| byte.is_ascii_hexdigit());
    let digits = digits.count();
    digits >= 5 && inside.get(digits..digits + 2) == Some(b"  ")
}

/// Names of system calls, of ltrace's functions (`libc.so.6->malloc`, `operator new`, `SYS_read`).
fn is_name(name: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.@->:~<*&, ".contains(byte);
    name.first()
        .is_some_and(|first| first.is_ascii_alphabetic() || *first == b'_')
        && name.iter().all(is_part)
        && !name.windows(2).any(|pair| pair == b": ")
}

fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit());
    text.split_at_checked(end.unwrap_or(text.len()))
        .unwrap_or((text, b""))
}

/// The parts before and after the first occurrence.
pub(super) fn cut<'a>(text: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let place = memmem::find(text, separator)?;
    Some((text.get(..place)?, text.get(place + separator.len()..)?))
}

fn between<'a>(text: &'a [u8], start: &[u8], end: &[u8]) -> Option<&'a [u8]> {
    text.strip_prefix(start)?.strip_suffix(end)
}
