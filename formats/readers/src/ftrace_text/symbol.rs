//! Functions and frames as printed by the kernel.
//!
//! ```text
//! vfs_read                         vfs_read+0x4/0x370            vfs_read+0x4/0x370 <ffffffff81442060>
//! ext4_create [ext4]               0xffffffffc0203099            vfs_write (ffffffff81445d59)      trace-cmd
//!  => /lib/libc.so.6[+0x1234] <00007f7154>                        =>  <00007f2101fd6350>           user space
//! ```

use perfquet_events::event::{Function, NamedFrame, Space};
use perfquet_events::scan::{bare_hex, find, prefixed_hex, rsplit_once, split_once, trim};

/// A kernel function, or an address in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Symbol<'a> {
    pub(super) name: &'a [u8],
    pub(super) module: &'a [u8],
    pub(super) offset: Option<u64>,
    pub(super) address: Option<u64>,
}

impl<'a> Symbol<'a> {
    /// Parses the text.
    #[inline]
    pub(super) fn new(text: &'a [u8]) -> Symbol<'a> {
        let text = trim(text);
        // Most often the text is a plain name.
        let is_plain = text
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'));
        if is_plain && !text.starts_with(b"0x") {
            return Symbol {
                name: text,
                ..Symbol::default()
            };
        }
        Symbol::with_details(text)
    }

    fn with_details(text: &'a [u8]) -> Symbol<'a> {
        let mut symbol = Symbol::default();
        let mut text = text;
        for (open, close) in [(b'<', b'>'), (b'(', b')')] {
            let inner = text
                .strip_suffix(&[close])
                .and_then(|rest| rsplit_once(rest, &[open]));
            if let Some((before, address)) = inner
                && let Some(address) = bare_hex(address).or_else(|| prefixed_hex(address))
            {
                symbol.address = Some(address);
                text = trim(before);
            }
        }
        if let Some((before, module)) = text
            .strip_suffix(b"]")
            .and_then(|rest| rsplit_once(rest, b" ["))
        {
            symbol.module = module;
            text = trim(before);
        }
        if let Some((name, offset)) = rsplit_once(text, b"+0x") {
            let digits = find(offset, b'/').and_then(|slash| offset.get(..slash));
            if let Some(offset) = bare_hex(digits.unwrap_or(offset)) {
                symbol.offset = Some(offset);
                text = name;
            }
        }
        match prefixed_hex(text) {
            Some(address) => symbol.address = Some(address),
            None => symbol.name = text,
        }
        symbol
    }

    /// The function as the callee or caller of a call.
    pub(super) fn function(&self) -> Function<'a> {
        match (self.name, self.address) {
            (b"" | b"0", None | Some(0)) => Function::Unknown,
            (b"", Some(address)) => Function::Address {
                space: Space::Kernel,
                address,
            },
            (name, _) => Function::Named {
                name,
                module: self.module,
            },
        }
    }
}

/// A frame of a stack, from the part after `=>`. `None` for a placeholder (address 0).
pub(super) fn frame(text: &[u8], is_user: bool) -> Option<NamedFrame<'_>> {
    let text = trim(text);
    if is_user {
        return user_frame(text);
    }
    let mut symbol = Symbol::new(text);
    // trace-cmd prints addresses without a symbol as bare digits.
    if symbol.address.is_none() && symbol.name.len() >= 8 && symbol.module.is_empty() {
        symbol.address = bare_hex(symbol.name);
        if symbol.address.is_some() {
            symbol.name = b"";
        }
    }
    if symbol.name.is_empty() && symbol.address == Some(0) {
        return None;
    }
    Some(NamedFrame {
        function: symbol.name,
        function_offset: symbol.offset,
        module: symbol.module,
        address: symbol.address,
        space: Space::Kernel,
        inlined: false,
        ..NamedFrame::default()
    })
}

fn user_frame(text: &[u8]) -> Option<NamedFrame<'_>> {
    let mut frame = NamedFrame {
        space: Space::User,
        ..NamedFrame::default()
    };
    let mut text = text;
    if let Some((before, address)) = text
        .strip_suffix(b">")
        .and_then(|rest| rsplit_once(rest, b"<"))
        && let Some(address) = bare_hex(address)
    {
        frame.address = Some(address);
        text = trim(before);
    }
    if let Some(address) = prefixed_hex(text) {
        frame.address = Some(address);
        text = b"";
    }
    let path = split_once(text, b"[+0x").map_or(text, |(path, _)| path);
    if path != b"??" {
        frame.module = path;
    }
    (frame.address != Some(0)).then_some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(
        text: &'static str,
        name: &str,
        module: &str,
        offset: Option<u64>,
        address: Option<u64>,
    ) {
        let expected = Symbol {
            name: name.as_bytes(),
            module: module.as_bytes(),
            offset,
            address,
        };
        assert_eq!(Symbol::new(text.as_bytes()), expected, "{text}");
    }

    #[test]
    fn symbols() {
        check("vfs_read", "vfs_read", "", None, None);
        check("a.isra.0+0x4/0x370", "a.isra.0", "", Some(4), None);
        check(
            "f+0x4/0x370 <ffffffff81442060>",
            "f",
            "",
            Some(4),
            Some(0xffff_ffff_8144_2060),
        );
        check(
            "f <ffffffff81442060>",
            "f",
            "",
            None,
            Some(0xffff_ffff_8144_2060),
        );
        check(
            "f (ffffffff81442060)",
            "f",
            "",
            None,
            Some(0xffff_ffff_8144_2060),
        );
        check("ext4_create [ext4]", "ext4_create", "ext4", None, None);
        check(
            "ext4_create+0x1/0x2 [ext4]",
            "ext4_create",
            "ext4",
            Some(1),
            None,
        );
        check(
            "0xffffffffc0203099",
            "",
            "",
            None,
            Some(0xffff_ffff_c020_3099),
        );
        check("[FTRACE TRAMPOLINE]", "[FTRACE TRAMPOLINE]", "", None, None);
    }

    #[test]
    fn frames() {
        let frame = |text: &'static str, is_user| frame(text.as_bytes(), is_user);
        assert_eq!(frame(" 0x0", true), None);
        assert_eq!(
            frame(" <00007f2101fd6350>", true).unwrap().address,
            Some(0x7f21_01fd_6350)
        );
        let mapped = frame(" /lib/libc.so.6[+0x1234] <7f7154>", true).unwrap();
        assert_eq!(
            (mapped.module, mapped.address),
            (&b"/lib/libc.so.6"[..], Some(0x7f_7154))
        );
        assert_eq!(
            frame(" ??", true).unwrap(),
            NamedFrame {
                space: Space::User,
                ..NamedFrame::default()
            }
        );
        assert_eq!(frame("7fffffff", false).unwrap().address, Some(0x7fff_ffff));
        assert_eq!(frame("schedule", false).unwrap().function, b"schedule");
    }

    #[test]
    fn functions() {
        assert_eq!(Symbol::new(b"0").function(), Function::Unknown);
        assert_eq!(Symbol::new(b"0x0").function(), Function::Unknown);
        assert_eq!(Symbol::new(b"f").function(), Function::named(b"f"));
    }
}
