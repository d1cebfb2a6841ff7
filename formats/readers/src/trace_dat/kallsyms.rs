//! Names of kernel functions, from the copy of `/proc/kallsyms` in the file.
//!
//! ```text
//! ffffffff81445d50 T vfs_write
//! ffffffffc0a5e000 t ext4_file_read_iter  [ext4]
//! ```
//! If an address has several names, the first is used, as in the kernel's own output (`kallsyms_lookup`). Entries
//! without an address (kptr_restrict), `A` (offsets of per-CPU variables) and `$x` (mapping symbols of ARM's linker)
//! are skipped. If the next line is damaged or missing, the end of a function is unknown: then only its first address
//! gets its name.

use std::cell::Cell;

/// Number of slots in the lookup cache.
const SLOTS: usize = 1 << 12;
/// Assumed length of the last symbol.
const LAST_BYTES: u64 = 4096;

#[derive(Debug, Clone, Copy)]
struct Symbol {
    address: u64,
    /// Offset of the name in the text.
    at: u32,
    length: u16,
    /// Length of the module's name, which follows in brackets after a tab; 0 if there is none.
    module_length: u16,
}

/// A symbol table.
pub(super) struct Kallsyms<'s> {
    text: &'s [u8],
    symbols: Vec<Symbol>,
    /// Addresses looked up before, with the index of their symbol + 1.
    slots: Vec<Cell<(u64, u32)>>,
}

/// A function of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Named<'s> {
    pub(super) name: &'s [u8],
    /// Empty for the core kernel.
    pub(super) module: &'s [u8],
}

impl<'s> Kallsyms<'s> {
    /// Parses the lines; also returns the number of lines that are not symbols.
    pub(super) fn parse(text: &'s [u8]) -> (Kallsyms<'s>, u64) {
        let mut symbols = Vec::new();
        let mut bad = 0;
        let mut start = 0usize;
        // The last good line, and whether a damaged line follows each symbol.
        let (mut last, mut ends) = (None, Vec::new());
        let is_cut = !text.is_empty() && !text.ends_with(b"\n") && !text.ends_with(b"\0");
        for line in text.split(|&byte| byte == b'\n') {
            let at = start;
            start += line.len() + 1;
            match parse_line(line) {
                Some((0, _, _)) => {}
                Some((address, name_at, length)) => {
                    let after = line.get(name_at + length..).unwrap_or_default();
                    let module = module_of(after).len();
                    if let (Ok(at), Ok(length), Ok(module_length)) = (
                        u32::try_from(at + name_at),
                        length.try_into(),
                        module.try_into(),
                    ) {
                        symbols.push(Symbol {
                            address,
                            at,
                            length,
                            module_length,
                        });
                        last = Some(address);
                        if is_cut && start > text.len() {
                            // The name may be truncated.
                            symbols.pop();
                            ends.push(address.saturating_sub(1));
                        }
                    }
                }
                None if line.is_empty() || line == b"\0" => {}
                None if is_passed_over(line) => {}
                None => {
                    bad += 1;
                    ends.extend(last);
                }
            }
        }
        symbols.extend(ends.into_iter().map(|last| Symbol {
            address: last.saturating_add(1),
            at: 0,
            length: 0,
            module_length: 0,
        }));
        symbols.sort_by_key(|symbol| symbol.address);
        symbols.dedup_by_key(|symbol| symbol.address);
        let slots = match symbols.len() {
            0 => Vec::new(),
            _ => vec![Cell::new((0, 0)); SLOTS],
        };
        let kallsyms = Kallsyms {
            text,
            symbols,
            slots,
        };
        (kallsyms, bad)
    }

    /// The function at an address.
    #[inline]
    pub(super) fn at(&self, address: u64) -> Option<Named<'s>> {
        let slot = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
        let slot = self.slots.get(slot as usize)?;
        let (known, index) = slot.get();
        let index = if known == address {
            index
        } else {
            let index = self.search(address).map_or(0, |index| index as u32 + 1);
            slot.set((address, index));
            index
        };
        let symbol = self.symbols.get(index.checked_sub(1)? as usize)?;
        (symbol.length > 0).then(|| self.named(symbol))
    }

    fn search(&self, address: u64) -> Option<usize> {
        let after = self
            .symbols
            .partition_point(|symbol| symbol.address <= address);
        let index = after.checked_sub(1)?;
        let is_last = after == self.symbols.len();
        let start = self.symbols.get(index)?.address;
        (!is_last || address - start < LAST_BYTES).then_some(index)
    }

    #[inline]
    fn named(&self, symbol: &Symbol) -> Named<'s> {
        let part = |start: usize, length: u16| {
            let rest = self.text.get(start..).unwrap_or_default();
            rest.get(..usize::from(length)).unwrap_or_default()
        };
        let start = symbol.at as usize;
        Named {
            name: part(start, symbol.length),
            module: match symbol.module_length {
                0 => b"",
                length => part(start + usize::from(symbol.length) + 2, length),
            },
        }
    }

    /// All symbols with their addresses and lengths; 0 means up to the next.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64, Named<'s>)> {
        let after = self.symbols.iter().skip(1).map(Some).chain([None]);
        let symbols = self.symbols.iter().zip(after);
        symbols
            .filter(|(symbol, _)| symbol.length > 0)
            .map(|(symbol, after)| {
                let is_followed_by_damage = after.is_some_and(|after| after.length == 0);
                let length = u64::from(is_followed_by_damage);
                (symbol.address, length, self.named(symbol))
            })
    }
}

/// The module's name in the text after a name: `\t[ext4]`.
fn module_of(after: &[u8]) -> &[u8] {
    let inside = after.strip_prefix(b"\t[").or(after.strip_prefix(b" ["));
    let inside = inside.and_then(|rest| rest.split(|&byte| byte == b']').next());
    inside.unwrap_or_default()
}

/// Whether a symbol does not name a location of code or data.
fn is_passed_over(line: &[u8]) -> bool {
    let mut words = line.split(|&byte| byte == b' ');
    let (_, letter, name) = (words.next(), words.next(), words.next());
    matches!(letter, Some(b"A" | b"a")) || name.is_some_and(|name| name.starts_with(b"$"))
}

/// The address, and the range of the name in the line.
fn parse_line(line: &[u8]) -> Option<(u64, usize, usize)> {
    let digits = line.iter().position(|&byte| byte == b' ')?;
    let hexadecimal = str::from_utf8(line.get(..digits)?).ok()?;
    let address = u64::from_str_radix(hexadecimal, 16).ok()?;
    let (letter, name) = match line.get(digits + 1..)? {
        [letter, b' ', name @ ..] => (letter, name),
        _ => return None,
    };
    let length = name
        .iter()
        .position(|byte| byte.is_ascii_whitespace() || *byte == 0)
        .unwrap_or(name.len());
    if length == 0 || matches!(letter, b'A' | b'a') || name.starts_with(b"$") {
        return None;
    }
    Some((address, digits + 3, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"0000000000000000 A fixed_percpu_data\n\
        0000000000001000 T first\n\
        0000000000001000 t also_first\n\
        0000000000001000 t $x\n\
        0000000000000000 T hidden\n\
        0000000000003000 t probe\t[ext4]\n\
        garbage\n\
        0000000000002000 T second\n\0";

    #[test]
    fn finds_the_first_of_several_names() {
        let (kallsyms, bad) = Kallsyms::parse(TEXT);
        assert_eq!(bad, 1);
        let name = |address| {
            let found = kallsyms.at(address)?;
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            Some(format!("{} {}", text(found.name), text(found.module)))
        };
        for _ in 0..2 {
            assert_eq!(name(0xfff), None);
            assert_eq!(name(0x1000).as_deref(), Some("first "));
            assert_eq!(name(0x1fff).as_deref(), Some("first "));
            assert_eq!(name(0x2001).as_deref(), Some("second "));
            assert_eq!(name(0x3000).as_deref(), Some("probe ext4"));
            // The damaged line may be a following function.
            assert_eq!(name(0x3001), None);
            assert_eq!(name(0x4000), None);
        }
        let lengths: Vec<u64> = kallsyms.iter().map(|(_, length, _)| length).collect();
        assert_eq!(lengths, [0, 0, 1]);
        let (cut, bad) = Kallsyms::parse(b"0000000000001000 T first\n0000000000002000 T sec");
        assert_eq!(bad, 0);
        assert_eq!(cut.at(0x1fff).map(|found| found.name), Some(&b"first"[..]));
        assert_eq!(cut.at(0x2000), None);
        assert_eq!(Kallsyms::parse(b"").0.at(0), None);
    }
}
