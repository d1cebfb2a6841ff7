//! The key of a map: strings and stacks.
//!
//! ```text
//! dd, 4711                       "dd", "4711"
//! \n    vfs_read+1\n, dd         a stack, "dd"
//! , \n    main+4\n               an empty stack, a stack
//! ```

use perfquet_events::event::{NamedFrame, Space};

use crate::lines::{hexadecimal, unsigned};

/// A key, split into its parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Key<'a> {
    pub(super) texts: Vec<&'a [u8]>,
    pub(super) stacks: Vec<Vec<NamedFrame<'a>>>,
}

/// Splits a key at `separator`; the lines of a stack begin with a newline.
fn parts<'a>(key: &'a [u8], separator: &[u8]) -> Vec<&'a [u8]> {
    let mut parts = Vec::new();
    let (mut start, mut place) = (0, 0);
    let mut is_stack = key.starts_with(b"\n");
    while place < key.len() {
        let rest = key.get(place..).unwrap_or_default();
        if is_stack {
            // Frames are indented; an unindented line ends the stack.
            let is_end = rest.starts_with(b"\n") && !matches!(rest.get(1), Some(b' ' | b'\t'));
            place += 1;
            if is_end {
                is_stack = false;
            }
            continue;
        }
        if rest.starts_with(separator) {
            parts.push(key.get(start..place).unwrap_or_default());
            place += separator.len();
            start = place;
            is_stack = key.get(start..).is_some_and(|rest| rest.starts_with(b"\n"));
            continue;
        }
        place += 1;
    }
    parts.push(key.get(start..).unwrap_or_default());
    parts
}

/// Splits off empty parts at the beginning where other keys have stacks; the rest stays whole.
fn leading_stacks<'a>(key: &'a [u8], separator: &[u8], shape: &Shape) -> Vec<&'a [u8]> {
    let mut parts = Vec::new();
    let mut rest = key;
    while let Some(after) = rest.strip_prefix(separator)
        && shape.is_stack(parts.len(), false)
    {
        parts.push(&[][..]);
        rest = after;
    }
    parts.push(rest);
    parts
}

/// What the keys of one map have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Shape {
    /// Number of parts, if all keys seem to have the same; otherwise strings contain separators.
    count: Option<usize>,
    is_uneven: bool,
    /// Positions at which some key has a stack: bit n is part n.
    stacks: u64,
    /// Positions at which some key has a string that is not empty.
    texts: u64,
}

impl Shape {
    /// Learns from a key.
    pub(super) fn add(&mut self, key: &[u8], separator: &[u8]) {
        let parts = parts(key, separator);
        self.is_uneven |= *self.count.get_or_insert(parts.len()) != parts.len();
        for (place, part) in (0..64).zip(parts) {
            match part {
                [] => {}
                [b'\n', ..] => self.stacks |= 1 << place,
                _ => self.texts |= 1 << place,
            }
        }
    }

    /// Whether an empty part at this position is an empty stack. `by_default`: where no key tells.
    fn is_stack(self, place: usize, by_default: bool) -> bool {
        let has = |positions: u64| place < 64 && positions >> place & 1 == 1;
        match (has(self.stacks), has(self.texts)) {
            (true, false) => true,
            (_, true) => false,
            (false, false) => by_default,
        }
    }
}

impl<'a> Key<'a> {
    /// Splits a key of a map with this shape. Where the numbers of parts differ, only stacks are split off.
    pub(super) fn of(key: &'a [u8], separator: &[u8], shape: &Shape) -> Key<'a> {
        let has_stack = key.contains(&b'\n');
        let parts = match !shape.is_uneven || has_stack {
            true => parts(key, separator),
            false => leading_stacks(key, separator, shape),
        };
        let mut cut = Key::default();
        for (place, part) in parts.into_iter().enumerate() {
            if part.starts_with(b"\n") {
                cut.stacks.push(stack(part));
            } else if part.is_empty() && shape.is_stack(place, has_stack) {
                cut.stacks.push(Vec::new());
            } else {
                cut.texts.push(part);
            }
        }
        cut.report_spaces();
        cut
    }

    /// The key of an empty stack.
    pub(super) fn empty_stack() -> Key<'a> {
        Key {
            texts: Vec::new(),
            stacks: vec![Vec::new()],
        }
    }

    fn report_spaces(&mut self) {
        let count = self.stacks.len();
        for (place, frames) in self.stacks.iter_mut().enumerate() {
            let space = match (frames.iter().find_map(space_of), count, place) {
                (Some(space), _, _) => space,
                (None, 2, 0) => Space::Kernel,
                (None, 2, _) => Space::User,
                (None, ..) => Space::Unknown,
            };
            for frame in frames {
                frame.space = space;
            }
        }
    }
}

/// Kernel addresses are in the upper half.
fn space_of(frame: &NamedFrame<'_>) -> Option<Space> {
    let address = frame.address?;
    Some(match address >> 63 {
        1 => Space::Kernel,
        _ => Space::User,
    })
}

/// The frames of a part, leaf first.
fn stack(part: &[u8]) -> Vec<NamedFrame<'_>> {
    part.split(|&byte| byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .filter(|line| !line.is_empty())
        .map(frame)
        .collect()
}

/// `vfs_read+1`, `0x7fdc1e800352`, and with `kstack(perf)`: `ffffffff81234567 vfs_read+1 ([kernel.kallsyms])`.
fn frame(line: &[u8]) -> NamedFrame<'_> {
    if let Some(address) = line.strip_prefix(b"0x").and_then(hexadecimal) {
        return NamedFrame {
            address: Some(address),
            ..NamedFrame::default()
        };
    }
    let (address, rest) = address_first(line).unwrap_or((None, line));
    let (name, module) = match address.and_then(|_| module_last(rest)) {
        Some((name, module)) => (name, module),
        None => (rest, &b""[..]),
    };
    let plus = name.iter().rposition(|&byte| byte == b'+');
    let offset = plus.and_then(|plus| unsigned(name.get(plus + 1..)?));
    let function = match (plus, offset) {
        (Some(plus), Some(_)) => name.get(..plus).unwrap_or_default(),
        _ => name,
    };
    NamedFrame {
        function: if function == b"[unknown]" {
            b""
        } else {
            function
        },
        function_offset: offset,
        module: if module == b"[unknown]" { b"" } else { module },
        address,
        ..NamedFrame::default()
    }
}

fn address_first(line: &[u8]) -> Option<(Option<u64>, &[u8])> {
    let blank = line.iter().position(|&byte| byte == b' ')?;
    let word = line.get(..blank)?;
    let address = hexadecimal(word).filter(|_| word.len() >= 6)?;
    Some((Some(address), line.get(blank + 1..)?.trim_ascii()))
}

fn module_last(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let inside = text.strip_suffix(b")")?;
    let open = inside.windows(2).rposition(|two| two == b" (")?;
    Some((inside.get(..open)?, inside.get(open + 2..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `others`: the other keys of the map.
    #[track_caller]
    fn check(key: &str, others: &[&str], texts: &[&str], depths: &[usize]) {
        let mut shape = Shape::default();
        for key in others.iter().chain([&key]) {
            shape.add(key.as_bytes(), b", ");
        }
        let found = Key::of(key.as_bytes(), b", ", &shape);
        let found_texts: Vec<_> = found
            .texts
            .iter()
            .map(|text| String::from_utf8_lossy(text))
            .collect();
        let found_depths: Vec<_> = found.stacks.iter().map(Vec::len).collect();
        assert_eq!(
            (found_texts, found_depths.as_slice()),
            (texts.iter().map(|text| (*text).into()).collect(), depths)
        );
    }

    #[test]
    fn keys() {
        check("dd, 4711", &["a, 1"], &["dd", "4711"], &[]);
        check("a, b, 2", &["a, 2"], &["a, b, 2"], &[]);
        check("", &[], &[""], &[]);
        check("\n    vfs_read+1\n    a, b+2\n", &[], &[], &[2]);
        check("\n    vfs_read+1\n, dd", &["a, b, c"], &["dd"], &[1]);
        check("dd, \n    f+1\n", &[], &["dd"], &[1]);
        check(", \n    main+4\n    0x7fdc1e800352\n", &[], &[], &[0, 2]);
        check("\n    main+4\n, ", &[], &[], &[1, 0]);
    }

    #[test]
    fn empty_stacks_by_the_other_keys() {
        let stack = "\n    f+1\n";
        let with_name = format!("{stack}, app");
        check(", kworker/0:1", &[&with_name], &["kworker/0:1"], &[0]);
        let both = format!("{stack}, {stack}, app");
        check(", , swapper/0", &[&both], &["swapper/0"], &[0, 0]);
        check(&format!("{stack}, , b"), &[&both], &["b"], &[1, 0]);
        let last = format!("app, {stack}");
        check("kworker/0:1, ", &[&last], &["kworker/0:1"], &[0]);
        check("", &[stack], &[], &[0]);
        // The numbers of parts differ: a string with a comma stays whole.
        check(", a, b", &[&with_name], &["a, b"], &[0]);
        // Empty strings where other keys have strings.
        let text_last = format!("{stack}, , x");
        check(&text_last, &[&format!("{stack}, y, x")], &["", "x"], &[1]);
        check(", x", &["a, x"], &["", "x"], &[]);
    }

    #[test]
    fn frames() {
        let found = frame(b"vfs_read+25");
        assert_eq!(
            (found.function, found.function_offset),
            (&b"vfs_read"[..], Some(25))
        );
        let found = frame(b"std::x<a, b>::operator+(int)");
        assert_eq!(
            (found.function, found.function_offset),
            (&b"std::x<a, b>::operator+(int)"[..], None)
        );
        assert_eq!(frame(b"0x7fdc1e800352").address, Some(0x7fdc_1e80_0352));
        let found = frame(b"ffffffff81234567 vfs_read+1 ([kernel.kallsyms])");
        assert_eq!(
            (found.function, found.module, found.address),
            (
                &b"vfs_read"[..],
                &b"[kernel.kallsyms]"[..],
                Some(0xffff_ffff_8123_4567)
            )
        );
    }
}
