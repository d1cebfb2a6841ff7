//! A frame of a stack: address, symbol and module.
//!
//! ```text
//!         ffffffff81c95a7f __memset+0xf ([kernel.kallsyms])
//!                   401186 <a::B as std::io::Write>::write_all+0x1a0 (/w/workload)
//!                   401186 main (inlined)
//!             7f1674019090 [unknown] (/memfd:x (deleted))
//! ```
//! A symbol may contain anything: spaces, parentheses, `+0x`. The address is the first word, the module the last pair
//! of parentheses.

use perfquet_events::event::{NamedFrame, Space};
use perfquet_events::scan::{
    bare_hex, find_text, prefixed_hex, rsplit_once, trim, trim_end, trim_start, word,
};

use crate::placeholder::is_kernel_module;

/// A frame, and whether its address is doubtful.
#[derive(Debug, Clone, Copy)]
pub(super) struct Printed<'a> {
    pub(super) frame: NamedFrame<'a>,
}

impl<'a> Printed<'a> {
    /// The frame as part of a call chain: there perf prints user addresses as file offsets. Such a number is not an
    /// address, and is kept only if nothing else distinguishes the frames.
    pub(super) fn in_chain(self) -> NamedFrame<'a> {
        let is_offset = self.frame.space == Space::User
            && !self.frame.function.is_empty()
            && !self.frame.module.starts_with(b"[");
        NamedFrame {
            address: self.frame.address.filter(|_| !is_offset),
            ..self.frame
        }
    }
}

/// Parses a line; `None` if it is not a frame.
#[inline]
pub(super) fn frame(line: &[u8]) -> Option<Printed<'_>> {
    let (address, rest) = word(line)?;
    let address = bare_hex(address)?;
    if rest.is_empty() {
        // With `-F ip`, a frame is only an address.
        let is_indented = matches!(line.first(), Some(b' ' | b'\t'));
        let frame = NamedFrame {
            address: Some(address),
            space: space(address, b""),
            ..NamedFrame::default()
        };
        return is_indented.then_some(Printed { frame });
    }
    let rest = trim(rest);
    // The instructions of `-F +brstackinsn`.
    if rest.starts_with(b"insn:") {
        return None;
    }
    let frame = symbol(address, rest);
    Some(Printed { frame })
}

/// A frame whose address was parsed; `text` is symbol and module, or empty.
pub(super) fn located(address: u64, text: &[u8]) -> NamedFrame<'_> {
    symbol(address, text)
}

fn symbol(address: u64, text: &[u8]) -> NamedFrame<'_> {
    let (name, module) = parts(text);
    let mut frame = NamedFrame {
        function: name,
        address: Some(address),
        ..NamedFrame::default()
    };
    if module == b"inlined" {
        frame.inlined = true;
    } else if module != b"[unknown]" {
        frame.module = module;
    }
    if let Some((name, offset)) = rsplit_once(name, b"+0x")
        && let Some(offset) = bare_hex(offset)
    {
        frame.function = name;
        frame.function_offset = Some(offset);
    }
    if frame.function == b"[unknown]" {
        frame.function = b"";
    }
    frame.space = space(address, module);
    frame
}

/// Splits symbol and module.
fn parts(text: &[u8]) -> (&[u8], &[u8]) {
    let Some(inner) = text.strip_suffix(b")") else {
        return (text, b"");
    };
    // `[unknown] ([unknown])`, `f(int) (/lib/x.so)`; without a module: `f(int)`.
    match module_start(text) {
        Some(start) => (
            trim_end(text.get(..start).unwrap_or_default()),
            inner.get(start + 1..).unwrap_or_default(),
        ),
        None => (text, b""),
    }
}

/// Offset of the parenthesis that begins the module: the one that the last parenthesis closes, since symbols like
/// `f(int)` and paths like `/a (deleted)` contain others. A path like `/a (b` has one too many.
fn module_start(text: &[u8]) -> Option<usize> {
    let begins = |start: usize| match start.checked_sub(1) {
        Some(before) => text.get(before) == Some(&b' '),
        None => true,
    };
    let balanced = balanced_start(text).filter(|start| begins(*start));
    let is_path = |start: usize| matches!(text.get(start + 1), Some(b'/' | b'['));
    if balanced.is_some_and(is_path) {
        return balanced;
    }
    let path = find_text(text, b" (/").map(|blank| blank + 1);
    path.or(balanced)
}

/// Offset of the parenthesis that the last one closes.
fn balanced_start(text: &[u8]) -> Option<usize> {
    let mut depth = 0usize;
    for (place, byte) in text.iter().enumerate().rev() {
        match byte {
            b')' => depth += 1,
            b'(' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(place);
                }
            }
            _ => {}
        }
    }
    None
}

/// The space of an address: 64-bit kernels use the upper half; for 32-bit kernels, the module decides.
fn space(address: u64, module: &[u8]) -> Space {
    let is_file_of_kernel = module.ends_with(b"vmlinux")
        || module.ends_with(b".ko")
        || module.ends_with(b".ko.xz")
        || module.ends_with(b".ko.zst")
        || module.ends_with(b".ko.gz");
    if address >> 63 == 1 || is_file_of_kernel || is_kernel_module(module) {
        Space::Kernel
    } else {
        Space::User
    }
}

/// Splits off the frame that `perf script -F ip,sym,trace` prints after a payload without a call chain: an address of
/// sixteen columns and a symbol. Returns the payload and the frame.
pub(super) fn after_payload(payload: &[u8]) -> Option<(&[u8], NamedFrame<'_>)> {
    /// `%16lx` and the blank before it.
    const WIDTH: usize = 17;
    let mut end = payload.len();
    // Symbols of C++ and Rust have several words, but not many.
    for _ in 0..64 {
        let before = payload.get(..end)?;
        let start = before.iter().rposition(|&byte| byte == b' ')? + 1;
        let word = before.get(start..)?;
        let kept = trim_end(before.get(..start)?);
        if bare_hex(word).is_some() && end - kept.len() >= WIDTH {
            let symbol_text = trim_start(payload.get(end..)?);
            let is_symbol = !symbol_text.is_empty()
                && !symbol_text.contains(&b'=')
                && find_text(symbol_text, b": ").is_none();
            if is_symbol {
                return Some((kept, symbol(bare_hex(word)?, symbol_text)));
            }
        }
        end = kept.len();
    }
    None
}

/// A branch: `0x401186/0x4011a0/P/-/-/12`.
pub(super) fn branch(word: &[u8]) -> Option<perfquet_events::event::Branch> {
    let mut parts = word.split(|&byte| byte == b'/');
    let from = prefixed_hex(parts.next()?)?;
    let to = prefixed_hex(parts.next()?)?;
    let mut flags = match parts.next()? {
        b"M" => 1u64,
        b"P" => 2,
        b"-" => 0,
        _ => return None,
    };
    if parts.next()? == b"X" {
        flags |= 4;
    }
    if parts.next()? == b"A" {
        flags |= 8;
    }
    if let Some(cycles) = parts.next().and_then(perfquet_events::scan::decimal) {
        flags |= (cycles & 0xffff) << 4;
    }
    Some(perfquet_events::event::Branch { from, to, flags })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &'static str, expected: Option<(&str, Option<u64>, &str, bool, Space)>) {
        let found = frame(line.as_bytes()).map(|printed| {
            let frame = printed.frame;
            let text = |bytes: &'static [u8]| std::str::from_utf8(bytes).unwrap();
            (
                text(frame.function),
                frame.function_offset,
                text(frame.module),
                frame.inlined,
                frame.space,
            )
        });
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn frames() {
        let kernel = Space::Kernel;
        let user = Space::User;
        check(
            "\tffffffff81c95a7f __memset+0xf ([kernel.kallsyms])",
            Some(("__memset", Some(15), "[kernel.kallsyms]", false, kernel)),
        );
        check(
            "  401186 <a::B as std::io::Write>::write_all+0x1a0 (/w/w)",
            Some((
                "<a::B as std::io::Write>::write_all",
                Some(0x1a0),
                "/w/w",
                false,
                user,
            )),
        );
        check(
            "  401186 f(int, char (*)()) (/w/a b)",
            Some(("f(int, char (*)())", None, "/w/a b", false, user)),
        );
        check(
            "  401186 main (inlined)",
            Some(("main", None, "", true, user)),
        );
        check(
            "  0 [unknown] ([unknown])",
            Some(("", None, "", false, user)),
        );
        check(
            "  7f16 [unknown] (/memfd:x (deleted))",
            Some(("", None, "/memfd:x (deleted)", false, user)),
        );
        check(
            "  414b3b fsnotify (/lib/modules/4.1.0/build/vmlinux)",
            Some((
                "fsnotify",
                None,
                "/lib/modules/4.1.0/build/vmlinux",
                false,
                kernel,
            )),
        );
        check(
            "\tffffffff8157bab0 perf_swevent_event",
            Some(("perf_swevent_event", None, "", false, kernel)),
        );
        check("\t401186", Some(("", None, "", false, user)));
        for (line, function, module) in [
            ("  1 g (/a b (c)/d)", "g", "/a b (c)/d"),
            (
                "  1 f(int, char (*)()) (/a (b)",
                "f(int, char (*)())",
                "/a (b",
            ),
            ("  1 f(int) (/a) b)", "f(int)", "/a) b"),
            (
                "  1 Lazy:~ (/h/x.js:12) (/tmp/perf-1.map)",
                "Lazy:~ (/h/x.js:12)",
                "/tmp/perf-1.map",
            ),
            (
                "  1 (anonymous namespace)::f",
                "(anonymous namespace)::f",
                "",
            ),
        ] {
            check(line, Some((function, None, module, false, user)));
        }
        for module in [
            "[JIT app cache]",
            "[anon:dalvik-jit-code-cache]",
            "[uprobes]",
            "[vectors]",
            "[sigpage]",
            "[vdso32]",
            "[stack:77]",
        ] {
            let line: &'static str = format!("  9c51 f ({module})").leak();
            check(line, Some(("f", None, module, false, user)));
        }
        check(
            "  bf00 f ([ext4])",
            Some(("f", None, "[ext4]", false, kernel)),
        );
        check("\t00007f31 insn: 48 89 e7", None);
        check("\tTHIS_IS_A_WEIRD_LINE", None);
        check("", None);
    }

    #[test]
    fn frames_after_payloads() {
        let (payload, frame) =
            after_payload(b"next_prio=120 ffffffff81c9 x ffffffff81114a38 a::b<c d>").unwrap();
        assert_eq!(payload, b"next_prio=120 ffffffff81c9 x");
        assert_eq!(
            (frame.function, frame.address),
            (&b"a::b<c d>"[..], Some(0xffff_ffff_8111_4a38))
        );
        let (payload, frame) = after_payload(b"count: 0x00000040     7f47b573338f write").unwrap();
        assert_eq!(
            (payload, frame.function),
            (&b"count: 0x00000040"[..], &b"write"[..])
        );
        assert!(
            after_payload(b"x86/fpu: 00000000c5b3cc2c load: 1 xcomp_bv: 80000000000200e7")
                .is_none()
        );
        assert!(after_payload(b"value f6").is_none());
    }

    #[test]
    fn branches() {
        let branch = branch(b"0x401186/0x4011a0/M/X/-/3").unwrap();
        assert_eq!(
            (branch.from, branch.to, branch.flags),
            (0x40_1186, 0x40_11a0, 1 | 4 | 3 << 4)
        );
        assert!(super::branch(b"a/b").is_none());
    }
}
