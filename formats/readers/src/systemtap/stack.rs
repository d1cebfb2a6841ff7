//! Frames of `print_backtrace`, `print_stack` and `print_ubacktrace`.
//!
//! ```text
//!  0xffffffff8134d8f0 : ksys_write+0x0/0xe0 [kernel]
//!  0xffffffff81a03f4d : do_syscall_64+0x5d/0xc0 [kernel] (inexact)
//!  0x401136 : main+0x10/0x2a [/usr/bin/calls]
//!  0xffffffff81c00126 (inexact)
//! ```

use perfquet_events::event::{NamedFrame, Space};

use crate::lines::{Line, Lines, hexadecimal};

/// Far more frames than any stack has.
const FRAMES_MAX: usize = 4096;

/// Parses a frame; `None` if the line is not one.
pub(super) fn frame(line: &[u8]) -> Option<NamedFrame<'_>> {
    let text = line.strip_prefix(b" ")?.trim_ascii().strip_prefix(b"0x")?;
    let text = text
        .strip_suffix(b"(inexact)")
        .unwrap_or(text)
        .trim_ascii_end();
    let end = text
        .iter()
        .position(|&byte| byte == b' ')
        .unwrap_or(text.len());
    let address = hexadecimal(text.get(..end)?)?;
    let space = match address >> 63 {
        1 => Space::Kernel,
        _ => Space::User,
    };
    let frame = NamedFrame {
        address: Some(address),
        space,
        ..NamedFrame::default()
    };
    let symbol = text.get(end..)?.trim_ascii();
    if symbol.is_empty() {
        return Some(frame);
    }
    let symbol = symbol.strip_prefix(b": ")?;
    // Without symbols, the address is repeated.
    if symbol
        .strip_prefix(b"0x")
        .and_then(|rest| hexadecimal(rest.split(|&byte| byte == b' ').next()?))
        .is_some()
    {
        let module = module(symbol).map_or(&b""[..], |(_, module)| module);
        return Some(NamedFrame { module, ..frame });
    }
    let (symbol, module) = module(symbol).unwrap_or((symbol, b""));
    let (function, function_offset) = match symbol.windows(3).rposition(|part| part == b"+0x") {
        Some(plus) => {
            let offset = symbol.get(plus + 3..)?.split(|&byte| byte == b'/').next()?;
            (symbol.get(..plus)?, Some(hexadecimal(offset)?))
        }
        None => (symbol, None),
    };
    Some(NamedFrame {
        function,
        function_offset,
        module,
        ..frame
    })
}

/// `func+0x1/0x2 [module]`: the symbol and the module.
fn module(symbol: &[u8]) -> Option<(&[u8], &[u8])> {
    let inner = symbol.strip_suffix(b"]")?;
    let open = inner.windows(2).rposition(|two| two == b" [")?;
    Some((inner.get(..open)?, inner.get(open + 2..)?))
}

/// The frames from here on; `lines` is left after them.
pub(super) fn frames<'a>(lines: &mut Lines<'a>) -> Vec<NamedFrame<'a>> {
    let mut frames = Vec::new();
    loop {
        let mut ahead = lines.clone();
        let next: Option<Line<'a>> = ahead.next().filter(|_| frames.len() < FRAMES_MAX);
        let Some(frame) = next.and_then(|line| frame(line.text)) else {
            return frames;
        };
        *lines = ahead;
        frames.push(frame);
    }
}

/// Whether a line that is not a frame looks like a damaged one.
pub(super) fn is_like_frame(line: &[u8]) -> bool {
    let is_inexact = line.ends_with(b"(inexact)");
    line.starts_with(b" 0x") && (is_inexact || line.windows(3).any(|part| part == b" : "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_lines() {
        let found =
            frame(b" 0xffffffff8134d8f0 : ksys_write+0x1f/0xe0 [kernel] (inexact)").unwrap();
        assert_eq!(
            found,
            NamedFrame {
                function: b"ksys_write",
                function_offset: Some(0x1f),
                module: b"kernel",
                address: Some(0xffff_ffff_8134_d8f0),
                space: Space::Kernel,
                inlined: false,
                ..NamedFrame::default()
            }
        );
        assert_eq!(
            frame(b" 0x401136 : main+0x10/0x2a [/bin/x]").unwrap().space,
            Space::User
        );
        assert_eq!(
            frame(b" 0x401136 : 0x401136 [/bin/x]").unwrap().module,
            b"/bin/x"
        );
        assert_eq!(frame(b" 0x401136").unwrap().function, b"");
        for line in ["", "0x401136 : main", " 0xzz", " 0x1 x", " main"] {
            assert_eq!(frame(line.as_bytes()), None, "{line}");
        }
        assert!(is_like_frame(b" 0xfffffzz : f+0x1/0x2"));
    }
}
