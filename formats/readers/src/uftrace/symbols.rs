//! Symbol files: the functions of a module.
//!
//! ```text
//! # path name: /opt/demo/calls
//! # build-id: 84f9d8fcd1baea463348bd23d89156fe47ceeab4
//! 0000000000001030 00000010 P _exit          address, size, type (P: entry of the procedure linkage table), name
//! 0000000000001249 T fib                     without sizes, up to uftrace 0.13
//! ```

use crate::files::Files;
use crate::lines::{Lines, hexadecimal};

/// Symbols read from one file.
const SYMBOLS_MAX: usize = 8 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Symbol<'a> {
    pub(super) start: u64,
    /// Address after the symbol.
    end: u64,
    pub(super) name: &'a [u8],
    pub(super) is_library_call: bool,
}

/// A file with symbols.
#[derive(Debug)]
pub(super) struct SymbolFile<'a> {
    bytes: &'a [u8],
    path: &'a [u8],
    build_id: &'a [u8],
    /// Base name without `.sym`.
    stem: &'a str,
    /// Sorted; read when first needed.
    symbols: Option<Vec<Symbol<'a>>>,
}

impl<'a> SymbolFile<'a> {
    fn of(stem: &'a str, bytes: &'a [u8]) -> SymbolFile<'a> {
        let mut file = SymbolFile {
            bytes,
            path: b"",
            build_id: b"",
            stem,
            symbols: None,
        };
        for line in Lines::of(bytes).take_while(|line| line.text.starts_with(b"#")) {
            if let Some(path) = line.text.strip_prefix(b"# path name: ") {
                file.path = path;
            } else if let Some(build_id) = line.text.strip_prefix(b"# build-id: ") {
                file.build_id = build_id;
            }
        }
        file
    }

    /// The symbol that holds an address.
    pub(super) fn at(&mut self, address: u64) -> Option<Symbol<'a>> {
        let bytes = self.bytes;
        let symbols = self.symbols.get_or_insert_with(|| parse(bytes));
        let after = symbols.partition_point(|symbol| symbol.start <= address);
        let found = symbols.get(after.checked_sub(1)?)?;
        (address < found.end).then_some(*found)
    }
}

/// All symbol files of a directory.
pub(super) fn files<'a>(files: &'a Files, folder: &str) -> Vec<SymbolFile<'a>> {
    let mut found = Vec::new();
    for file in 0..files.len() {
        let stem = files.name(file).strip_prefix(folder);
        let stem = stem.and_then(|name| name.strip_suffix(".sym"));
        if let Some(stem) = stem.filter(|stem| !stem.contains('/')) {
            found.push(SymbolFile::of(stem, files.bytes(file)));
        }
    }
    found
}

/// The file of a module.
pub(super) fn file_of(files: &[SymbolFile<'_>], path: &[u8], build_id: &[u8]) -> Option<usize> {
    let is_other = |one: &[u8], other: &[u8]| !one.is_empty() && !other.is_empty() && one != other;
    let by_path = files
        .iter()
        .position(|file| file.path == path && !is_other(file.build_id, build_id));
    let base = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    by_path.or_else(|| {
        files
            .iter()
            .position(|file| file.path.is_empty() && file.stem.as_bytes() == base)
    })
}

fn parse(bytes: &[u8]) -> Vec<Symbol<'_>> {
    let mut symbols = Vec::new();
    for line in Lines::of(bytes) {
        if symbols.len() >= SYMBOLS_MAX {
            break;
        }
        if let Some(symbol) = parse_line(line.text) {
            symbols.push(symbol);
        }
    }
    if !symbols.is_sorted_by_key(|symbol: &Symbol<'_>| symbol.start) {
        symbols.sort_by_key(|symbol| symbol.start);
    }
    // Without sizes, a symbol reaches to the next one.
    let mut next = u64::MAX;
    for symbol in symbols.iter_mut().rev() {
        if symbol.end == symbol.start {
            symbol.end = next;
        }
        next = symbol.start;
    }
    // Those without a name only end the last one.
    symbols.retain(|symbol| {
        !matches!(
            symbol.name,
            b"__sym_end" | b"__dynsym_end" | b"__func_end" | b"__kernel_sym_end"
        )
    });
    symbols
}

fn parse_line(line: &[u8]) -> Option<Symbol<'_>> {
    let mut parts = line.splitn(4, |&byte| byte == b' ');
    let start = hexadecimal(parts.next()?)?;
    let second = parts.next()?;
    let (size, kind) = match second {
        [kind] => (0, *kind),
        size => {
            let &[kind] = parts.next()? else {
                return None;
            };
            (hexadecimal(size)?, kind)
        }
    };
    let after = memchr::memmem::find(line, &[b' ', kind, b' '])? + 3;
    let name = line.get(after..)?;
    let name = name.split(|&byte| byte == b'\t').next()?;
    Some(Symbol {
        start,
        end: start.saturating_add(size),
        name,
        is_library_call: kind == b'P',
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_and_without_sizes() {
        let text = b"# path name: /a\n0000000000000010 00000004 P a b\n0000000000000020 T c\n30 ? __sym_end\nx\n";
        let mut file = SymbolFile::of("a", text);
        let mut name = |address| file.at(address).map(|symbol| symbol.name);
        assert_eq!(name(0x10), Some(&b"a b"[..]));
        assert_eq!(name(0x14), None);
        assert_eq!(name(0x2f), Some(&b"c"[..]));
        assert_eq!(name(0x30), None);
        assert_eq!(name(0), None);
    }
}
