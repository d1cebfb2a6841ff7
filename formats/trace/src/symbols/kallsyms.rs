//! `/proc/kallsyms` and `System.map`: the kernel's functions by address, one per line.
//!
//! ```text
//! ffffffff81442060 t do_sys_openat2
//! ffffffffc0a5e000 t ext4_file_read_iter [ext4]
//! ```
//! Type letters as in nm(1): `T` code, `W` weak, lower case local. A list has no lengths: a function extends to the
//! next symbol, and the last one of a module to the end of its page. Addresses are zero for unprivileged users (sysctl
//! kernel.kptr_restrict).

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::elf::Part;
use super::table::{Symbol, Table, name_in};

/// More than any kernel has: a quarter of a million symbols take 14 MB.
const FILE_MAX: u64 = 1 << 30;

/// The contents of such a file.
pub(super) struct Kallsyms {
    pub(super) table: Table,
    /// Whether the addresses are hidden.
    pub(super) hidden: bool,
    /// Number of lines that are not symbols.
    pub(super) bad_lines: u64,
}

/// Reads a file of that form. (`/proc/kallsyms` has size 0, so it is read, not mapped.)
pub(super) fn read(path: &Path, with_modules: bool) -> io::Result<Kallsyms> {
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    let mut text = Vec::new();
    file.take(FILE_MAX).read_to_end(&mut text)?;
    Ok(parse(text, with_modules))
}

/// Parses such text; includes the symbols of modules only `with_modules`.
pub(super) fn parse(text: Vec<u8>, with_modules: bool) -> Kallsyms {
    let mut symbols = Vec::new();
    let mut hidden = 0u64;
    let mut bad_lines = 0;
    let mut at = 0usize;
    for line in text.split(|&byte| byte == b'\n') {
        let start_of_line = at;
        at += line.len() + 1;
        match parse_line(line) {
            Some(Line { address: 0, .. }) => hidden += 1,
            Some(found) => {
                let in_module = found.in_module;
                if !is_kept(found.letter, found.name) || (in_module && !with_modules) {
                    continue;
                }
                let (Ok(name), Ok(length)) = (
                    u32::try_from(start_of_line + found.name_at),
                    u32::try_from(found.name.len()),
                ) else {
                    break;
                };
                let symbol = Symbol::new(found.address, found.address, name, length);
                symbols.push(symbol.with_type_letter(found.letter));
            }
            None if line.is_empty() => {}
            None => bad_lines += 1,
        }
    }
    let hidden = symbols.is_empty() && hidden > 0;
    let table = Table::new(symbols, Part::owned(text), |text, symbol, next| {
        module_in(text, symbol) == module_in(text, next)
    });
    Kallsyms {
        table,
        hidden,
        bad_lines,
    }
}

struct Line<'l> {
    address: u64,
    letter: u8,
    name: &'l [u8],
    name_at: usize,
    in_module: bool,
}

fn parse_line(line: &[u8]) -> Option<Line<'_>> {
    let digits = line.iter().position(|&byte| byte == b' ')?;
    let address = hexadecimal(line.get(..digits)?)?;
    let letter = *line.get(digits + 1)?;
    if *line.get(digits + 2)? != b' ' || !letter.is_ascii_alphabetic() && letter != b'?' {
        return None;
    }
    let rest = line.get(digits + 3..)?;
    let name = rest
        .split(|&byte| byte == b'\t' || byte == b' ' || byte == b'\r')
        .next()?;
    (!name.is_empty()).then_some(Line {
        address,
        letter,
        name,
        name_at: digits + 3,
        in_module: rest.get(name.len()) == Some(&b'\t'),
    })
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &digit| {
        Some(value << 4 | u64::from((digit as char).to_digit(16)?))
    })
}

/// perf's choice (`symbol_type__filter`): code, and data where code ends; no mapping symbols of ARM.
fn is_kept(letter: u8, name: &[u8]) -> bool {
    matches!(letter.to_ascii_uppercase(), b'T' | b'W' | b'D' | b'B') && !name.starts_with(b"$")
}

/// `[ext4]`, or empty for the core kernel.
fn module_in<'t>(text: &'t [u8], symbol: &Symbol) -> &'t [u8] {
    let name_end = symbol.name as usize + name_in(text, symbol).len();
    let rest = text.get(name_end..).unwrap_or_default();
    let rest = rest.split(|&byte| byte == b'\n').next().unwrap_or_default();
    rest.strip_prefix(b"\t").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, address: u64, expected: Option<&str>) {
        let kallsyms = parse(text.as_bytes().to_vec(), true);
        let found = kallsyms.table.at(address).map(|symbol| {
            let name = String::from_utf8_lossy(kallsyms.table.name(symbol));
            format!("{name}+{:#x}", address - symbol.start)
        });
        assert_eq!(found.as_deref(), expected, "{address:#x} in {text}");
    }

    const TEXT: &str = "ffffffff81000000 T _text\nffffffff81000100 t second\nffffffff81000180 r data_only\n\
                        ffffffffc0001000 t first_of_ext4\t[ext4]\nffffffffc0001010 t last_of_ext4\t[ext4]\n\
                        ffffffffc0009000 t other\t[xfs]\n";

    #[test]
    fn symbol_extends_to_the_next() {
        check(TEXT, 0xffff_ffff_8100_0000, Some("_text+0x0"));
        check(TEXT, 0xffff_ffff_8100_00ff, Some("_text+0xff"));
        check(TEXT, 0xffff_ffff_8100_0190, Some("second+0x90"));
        check(TEXT, 0xffff_ffff_80ff_ffff, None);
    }

    #[test]
    fn last_symbol_of_a_module_ends_with_its_page() {
        check(TEXT, 0xffff_ffff_8100_0fff, Some("second+0xeff"));
        check(TEXT, 0xffff_ffff_8100_3000, None);
        check(TEXT, 0xffff_ffff_c000_1011, Some("last_of_ext4+0x1"));
        check(TEXT, 0xffff_ffff_c000_4000, None);
        check(TEXT, 0xffff_ffff_c000_9001, Some("other+0x1"));
    }

    #[test]
    fn one_of_several_names_is_chosen() {
        // Without lengths, only the last of the aliases has an extent, so perf uses it.
        let aliases =
            "0000000000001000 t __do\n0000000000001000 T do_it\n0000000000002000 T next\n";
        check(aliases, 0x1008, Some("do_it+0x8"));
    }

    #[test]
    fn hidden_addresses() {
        let kallsyms = parse(
            b"0000000000000000 T _text\n0000000000000000 t x\n".to_vec(),
            true,
        );
        assert!(kallsyms.hidden && kallsyms.table.is_empty());
        let kallsyms = parse(TEXT.into(), true);
        assert!(!kallsyms.hidden);
    }

    #[test]
    fn invalid_lines() {
        let kallsyms = parse(
            b"xyz\n\nffffffff81000000\nffffffff81000000 T\n12 TT a\n1 T a b\r\n".to_vec(),
            true,
        );
        assert_eq!(kallsyms.bad_lines, 4);
        assert_eq!(kallsyms.table.len(), 1);
    }

    #[test]
    fn modules_can_be_excluded() {
        let kallsyms = parse(TEXT.into(), false);
        assert_eq!(kallsyms.table.len(), 2);
    }
}
