//! Frames of stacks.
//!
//! ```text
//!               genunix`kmem_cpu_reload+0x20       a function and how far into it
//!               unix`0xfffffffffb8001d6            an address that no symbol is known for
//!               0x104d08831                        not even a module
//!               test`foo->bar                      bar, inlined into foo (ustack helpers)
//! ```

use perfquet_events::event::{NamedFrame, Space};

use crate::lines::hexadecimal;

/// Whether a line is the first frame of a stack.
pub(super) fn is_frame(line: &[u8]) -> bool {
    let Some(text) = indented(line) else {
        return is_bare(line);
    };
    match text.iter().position(|&byte| byte == b'`') {
        Some(0) => false,
        Some(end) => !text.get(..end).is_some_and(|module| module.contains(&b' ')),
        None => address(text).is_some() || offset_in_module(text).is_some(),
    }
}

/// Whether a line is a frame that lost its indentation, as in slides: one word with a backtick inside.
fn is_bare(line: &[u8]) -> bool {
    let text = line.trim_ascii_end();
    let Some(tick) = text.iter().position(|&byte| byte == b'`') else {
        return false;
    };
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.-+:@/".contains(byte);
    let is_symbol = |byte: &u8| is_name(byte) || b"~$<>*&,()=".contains(byte);
    let (module, symbol) = (text.get(..tick), text.get(tick + 1..));
    module.is_some_and(|module| {
        module.iter().any(u8::is_ascii_alphabetic) && module.iter().all(is_name)
    }) && symbol.is_some_and(|symbol| {
        let is_first = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.~$<".contains(byte);
        symbol.first().is_some_and(is_first) && symbol.iter().all(is_symbol)
    })
}

/// The text of an indented line.
pub(super) fn indented(line: &[u8]) -> Option<&[u8]> {
    let text = line.trim_ascii();
    (line.starts_with(b"  ") && !text.is_empty()).then_some(text)
}

fn address(text: &[u8]) -> Option<u64> {
    hexadecimal(text.strip_prefix(b"0x")?)
}

/// `lib.so:0x1234`, as printed with `-x noresolve`.
fn offset_in_module(text: &[u8]) -> Option<&[u8]> {
    let colon = text.iter().rposition(|&byte| byte == b':')?;
    address(text.get(colon + 1..)?)?;
    let module = text.get(..colon)?;
    (!module.contains(&b' ') && !module.is_empty()).then_some(module)
}

/// Adds the frames of a line, leaf first: inlined functions precede the function they are inlined into.
pub(super) fn add<'a>(line: &'a [u8], space: Space, frames: &mut Vec<NamedFrame<'a>>) {
    let text = line.trim_ascii();
    let inlined_from = frames.len();
    let frame = NamedFrame {
        space,
        ..NamedFrame::default()
    };
    let mut rest = text;
    while let Some(arrow) = arrow(rest) {
        let (outer, inner) = rest.split_at_checked(arrow).unwrap_or_default();
        add_one(outer, frame, frames);
        rest = inner.get(2..).unwrap_or_default();
    }
    add_one(rest, frame, frames);
    // The line has the outermost function first; the leaf must come first.
    let added = frames.get_mut(inlined_from..).unwrap_or_default();
    for frame in added.iter_mut().skip(1) {
        frame.inlined = true;
    }
    added.reverse();
}

/// Position of the `->` between two functions; the one in `operator->` does not count.
fn arrow(text: &[u8]) -> Option<usize> {
    if !text.contains(&b'>') {
        return None;
    }
    let arrow = text.windows(2).position(|two| two == b"->")?;
    let before = text.get(..arrow)?;
    let after = text.get(arrow + 2..)?;
    let is_name = before.ends_with(b"operator") || before.is_empty() || after.is_empty();
    (!is_name).then_some(arrow)
}

fn add_one<'a>(text: &'a [u8], frame: NamedFrame<'a>, frames: &mut Vec<NamedFrame<'a>>) {
    if let Some(module) = offset_in_module(text) {
        let function = text.get(module.len() + 1..).unwrap_or_default();
        frames.push(NamedFrame {
            module,
            function,
            ..frame
        });
        return;
    }
    let (module, name) = match text.iter().position(|&byte| byte == b'`') {
        Some(tick) => (text.get(..tick), text.get(tick + 1..)),
        None => (None, Some(text)),
    };
    let module = module.unwrap_or_default();
    let name = name.unwrap_or_default();
    if let Some(address) = address(name) {
        frames.push(NamedFrame {
            module,
            address: Some(address),
            ..frame
        });
        return;
    }
    let (function, function_offset) = without_offset(name);
    frames.push(NamedFrame {
        module,
        function,
        function_offset,
        ..frame
    });
}

/// `f+0x10`, and `f+{ptr}` from DTrace's own tests, which mask the offset.
fn without_offset(name: &[u8]) -> (&[u8], Option<u64>) {
    let Some(plus) = name.iter().rposition(|&byte| byte == b'+') else {
        return (name, None);
    };
    let offset = name.get(plus + 1..).unwrap_or_default();
    let function = name.get(..plus).unwrap_or_default();
    match offset {
        b"{ptr}" => (function, None),
        _ => match address(offset) {
            Some(offset) => (function, Some(offset)),
            None => (name, None),
        },
    }
}

/// The space of a stack, from the modules that kernels consist of; `Unknown` if they do not determine it.
pub(super) fn space_of(module: &[u8]) -> Space {
    const KERNELS: [&[u8]; 5] = [b"genunix", b"unix", b"kernel", b"vmlinux", b"mach_kernel"];
    let holds = |part: &[u8]| module.windows(part.len()).any(|window| window == part);
    if KERNELS.contains(&module) || module.ends_with(b".ko") {
        Space::Kernel
    } else if holds(b".so") || holds(b".dylib") || module == b"a.out" {
        Space::User
    } else {
        Space::Unknown
    }
}

/// The common space of all stacks in a text, from their modules; `Unknown` if both occur.
pub(super) fn space_of_all(text: &[u8]) -> Space {
    let mut all = Space::Unknown;
    for line in text.split(|&byte| byte == b'\n') {
        if !is_frame(line) {
            continue;
        }
        let line = line.trim_ascii();
        let tick = line.iter().position(|&byte| byte == b'`');
        let module = tick.and_then(|tick| line.get(..tick)).unwrap_or_default();
        match (all, space_of(module)) {
            (_, Space::Unknown) => {}
            (Space::Unknown, space) => all = space,
            (all, space) if all == space => {}
            _ => return Space::Unknown,
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_frames() {
        for line in [
            "              genunix`open+0x25",
            "  test`baz",
            "              0x104d08831",
            "              unix`0xfffffffffb8001d6",
            "              libc.so.6:0x1234",
            "     -[NSObject init]`x",
            // Without indentation, as in slides.
            "kernel`sys_vfork+0x2c",
            "genunix`open",
        ] {
            let expected = !line.contains("init");
            assert_eq!(is_frame(line.as_bytes()), expected, "{line}");
        }
        for line in [
            "", "a `b", "`b", "a`", "a`b`", "0`:", "0`x", "see a`b", "  12", "  a b", "  a b`c",
            "  0x", "  a:b",
        ] {
            assert!(!is_frame(line.as_bytes()), "{line}");
        }
    }

    #[track_caller]
    fn check(line: &str, expected: &[(&str, &str, Option<u64>, bool)]) {
        let mut frames = Vec::new();
        add(line.as_bytes(), Space::User, &mut frames);
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let found: Vec<_> = frames
            .iter()
            .map(|frame| {
                let number = frame.function_offset.or(frame.address);
                (
                    text(frame.module),
                    text(frame.function),
                    number,
                    frame.inlined,
                )
            })
            .collect();
        let found: Vec<_> = found
            .iter()
            .map(|(module, function, number, inlined)| {
                (module.as_str(), function.as_str(), *number, *inlined)
            })
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn frames() {
        check(
            "  genunix`open+0x25",
            &[("genunix", "open", Some(0x25), false)],
        );
        check("  genunix`open", &[("genunix", "open", None, false)]);
        check("  a`f+{ptr}", &[("a", "f", None, false)]);
        check("  unix`0xfb80", &[("unix", "", Some(0xfb80), false)]);
        check("  0xfb80", &[("", "", Some(0xfb80), false)]);
        check("  l.so:0x10", &[("l.so", "0x10", None, false)]);
        check(
            "  t`foo->bar",
            &[("", "bar", None, true), ("t", "foo", None, false)],
        );
        check(
            "  a`P<X>::operator->() const+0x4",
            &[("a", "P<X>::operator->() const", Some(4), false)],
        );
        check(
            "  a`operator+(int)",
            &[("a", "operator+(int)", None, false)],
        );
        check("  [ note ]", &[("", "[ note ]", None, false)]);
    }

    #[test]
    fn spaces() {
        assert_eq!(space_of_all(b"  ip`f\n  unix`g\n 12\n"), Space::Kernel);
        assert_eq!(space_of_all(b"  libc.so.6`f\n  x`g\n"), Space::User);
        assert_eq!(space_of_all(b"  libc.so.6`f\n  unix`g\n"), Space::Unknown);
        assert_eq!(space_of_all(b""), Space::Unknown);
    }
}
