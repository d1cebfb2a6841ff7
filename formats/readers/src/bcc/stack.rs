//! Stacks with a value: frames, leaf first, then the thread, then the value, each more indented than the last.
//!
//! ```text
//!     schedule                                  stackcount has two blanks; memleak prints the value above the frames
//!     --                                        the kernel's frames end here
//!     do_nanosleep+0x1f [libc-2.21.so]
//!     -                sleep (4711)
//!         1000123
//! ```

use perfquet_events::event::{AggregateValue, NamedFrame, Space};

use crate::lines::{Lines, hexadecimal, signed};

/// Far more lines than any stack has.
const LINES_MAX: usize = 4096;

/// A stack with its key and value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Valued<'a> {
    /// Leaf first.
    pub(super) frames: Vec<NamedFrame<'a>>,
    /// Name and ID of the thread or process.
    pub(super) key: Vec<&'a [u8]>,
    pub(super) value: AggregateValue,
    /// Number of lines.
    pub(super) lines: u64,
}

impl Valued<'_> {
    /// Whether all frames are names of functions, or unknown.
    pub(super) fn has_names(&self) -> bool {
        let is_name = |name: &[u8]| {
            let is_first = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
            let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.@$:".contains(byte);
            name.first().is_none_or(is_first) && name.iter().all(is_part)
        };
        let has_some = self.frames.iter().any(|frame| !frame.function.is_empty());
        has_some && self.frames.iter().all(|frame| is_name(frame.function))
    }
}

/// Number of blanks before the text.
fn indentation(line: &[u8]) -> usize {
    let is_blank = |byte: &&u8| matches!(byte, b' ' | b'\t');
    let blanks = line.iter().take_while(is_blank);
    blanks.map(|byte| if *byte == b'\t' { 8 } else { 1 }).sum()
}

/// The stack that begins on the first line; `lines` is left after it.
pub(super) fn valued<'a>(lines: &mut Lines<'a>) -> Option<Valued<'a>> {
    let mut texts: Vec<&'a [u8]> = Vec::new();
    for line in lines.clone() {
        if indentation(line.text) < 2
            || line.text.trim_ascii().is_empty()
            || texts.len() > LINES_MAX
        {
            break;
        }
        texts.push(line.text);
        lines.next();
        // The value is the only number that is further to the right than the frames.
        let is_deeper = texts
            .first()
            .is_some_and(|first| indentation(line.text) > indentation(first));
        if is_deeper && signed(line.text.trim_ascii()).is_some() {
            break;
        }
    }
    let count = texts.len() as u64;
    let (value, above) = texts.split_last()?;
    let first = above.first()?;
    let base = indentation(first);
    let value = signed(value.trim_ascii()).filter(|_| indentation(value) > base)?;
    let (key, frames) = match above.split_last() {
        Some((last, rest)) => match thread(last, base) {
            Some(key) => (key, rest),
            None => (Vec::new(), above),
        },
        None => (Vec::new(), above),
    };
    Some(Valued {
        frames: self::frames(frames)?,
        key,
        value: AggregateValue::Int(value),
        lines: count,
    })
}

/// `-                sleep (4711)`, or more indented than the frames: `tar [15069]`.
pub(super) fn thread(line: &[u8], base: usize) -> Option<Vec<&[u8]>> {
    let is_deeper = indentation(line) > base;
    let text = line.trim_ascii();
    let (text, open) = match text.strip_prefix(b"- ") {
        Some(rest) => (rest.trim_ascii().strip_suffix(b")")?, b'('),
        None if is_deeper => (text.strip_suffix(b"]")?, b'['),
        None => return None,
    };
    let open = text.iter().rposition(|&byte| byte == open)?;
    let (name, id) = (text.get(..open)?, text.get(open + 1..)?);
    signed(id)?;
    Some(vec![name.trim_ascii(), id])
}

/// Frames of lines; `None` if one of them is not a frame. `--` separates the kernel's from the user's.
fn frames<'a>(lines: &[&'a [u8]]) -> Option<Vec<NamedFrame<'a>>> {
    let is_delimiter = |line: &&[u8]| line.trim_ascii() == b"--";
    let delimiter = lines.iter().position(is_delimiter);
    let mut frames = Vec::with_capacity(lines.len());
    for (place, line) in lines.iter().enumerate() {
        let space = match delimiter {
            Some(end) if place < end => Space::Kernel,
            Some(_) => Space::User,
            None => Space::Unknown,
        };
        if !is_delimiter(line) {
            frames.push(frame(line, space)?);
        }
    }
    Some(frames)
}

/// `main+0x6d [allocs]`, `b'read'`, `[unknown]`, `ffffffff810cf1b1 schedule`, `0x7f5c1d`.
pub(super) fn frame(line: &[u8], space: Space) -> Option<NamedFrame<'_>> {
    let mut text = line.trim_ascii();
    if text.is_empty() || text.windows(2).any(|two| two == b"  ") {
        return None;
    }
    let mut address = None;
    let first = text.split(|&byte| byte == b' ').next()?;
    let digits = first.strip_prefix(b"0x").unwrap_or(first);
    if let Some(value) =
        hexadecimal(digits).filter(|_| digits.len() >= 8 || digits.len() < first.len())
    {
        address = Some(value);
        text = text.get(first.len()..)?.trim_ascii();
    }
    let mut module: &[u8] = b"";
    if let Some(inner) = text.strip_suffix(b"]")
        && let Some(open) = inner.windows(2).rposition(|two| two == b" [")
    {
        module = inner.get(open + 2..)?;
        text = inner.get(..open)?;
    }
    let mut function_offset = None;
    if let Some(plus) = text.windows(3).rposition(|part| part == b"+0x")
        && let Some(offset) = text.get(plus + 3..).and_then(hexadecimal)
    {
        function_offset = Some(offset);
        text = text.get(..plus)?;
    }
    let name = text
        .strip_prefix(b"b'")
        .and_then(|text| text.strip_suffix(b"'"))
        .unwrap_or(text);
    let is_missed = matches!(
        name,
        b"[unknown]" | b"[Missed Kernel Stack]" | b"[Missed User Stack]"
    );
    Some(NamedFrame {
        function: if is_missed { b"" } else { name },
        function_offset,
        module,
        address,
        space,
        inlined: false,
        ..NamedFrame::default()
    })
}

/// `64 bytes in 4 allocations from stack`: bytes and allocations.
pub(super) fn allocations(line: &[u8]) -> Option<[AggregateValue; 2]> {
    let text = std::str::from_utf8(line).ok()?.trim();
    let (bytes, rest) = text.split_once(" bytes in ")?;
    let count = rest.strip_suffix(" allocations from stack")?;
    let number = |text: &str| signed(text.as_bytes()).map(AggregateValue::Int);
    Some([number(bytes)?, number(count)?])
}

/// The frames below a line, which are more indented.
pub(super) fn frames_below<'a>(line: &[u8], lines: &mut Lines<'a>) -> Vec<NamedFrame<'a>> {
    let base = indentation(line);
    let mut frames = Vec::new();
    loop {
        let mut ahead = lines.clone();
        let next = ahead
            .next()
            .filter(|next| indentation(next.text) > base && frames.len() < LINES_MAX);
        let Some(frame) = next.and_then(|next| frame(next.text, Space::Unknown)) else {
            return frames;
        };
        *lines = ahead;
        frames.push(frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_lines() {
        let frame = |text: &'static str| frame(text.as_bytes(), Space::Unknown).unwrap();
        let found = frame(" main+0x6d [allocs]");
        assert_eq!(
            (found.function, found.function_offset, found.module),
            (&b"main"[..], Some(0x6d), &b"allocs"[..])
        );
        assert_eq!(frame("  b'read'").function, b"read");
        assert_eq!(frame("  [unknown]").function, b"");
        assert_eq!(frame("  [unknown] [libc.so]").module, b"libc.so");
        let found = frame("  ffffffff810cf1b1 schedule");
        assert_eq!(
            (found.address, found.function),
            (Some(0xffff_ffff_810c_f1b1), &b"schedule"[..])
        );
        assert_eq!(
            frame("  operator new(unsigned long)").function,
            b"operator new(unsigned long)"
        );
        // Not an address.
        assert_eq!(frame("  add").function, b"add");
        assert_eq!(super::frame(b"  two  words", Space::Unknown), None);
    }

    #[test]
    fn threads() {
        assert_eq!(
            thread(b"    -                my sh (7)", 4),
            Some(vec![&b"my sh"[..], b"7"])
        );
        assert_eq!(
            thread(b"    tar [15069]", 2),
            Some(vec![&b"tar"[..], b"15069"])
        );
        // Frames end with a module.
        assert_eq!(thread(b"  main [15069]", 2), None);
        assert_eq!(thread(b"    main [libc]", 2), None);
    }
}
