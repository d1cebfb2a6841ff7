//! The strings of `trace_printk`: the kernel stores the address of the format, and the arguments in binary.
//!
//! ```text
//! 0xffffffff8246d2dd : "CPU_ON"              printk_formats: addresses and strings, escaped as in C
//! fmt = 0xffffffff8246d300  buf = 05 00 00 00 64 64 00     "%d of %s\n", 5, "dd"
//! ```
//! The arguments are laid out by `vbin_printf` of lib/vsprintf.c: each is aligned to its size, but to 4 at most;
//! strings are inline, with their NUL. `%p` with a suffix is stored as the formatted string, except for `%ps`, `%pS`,
//! `%px`, `%pK`, `%pe` (and `%pf`, `%pF` of kernels before 5.5), which are stored as addresses.

use hashbrown::HashMap;
use perfquet_events::bytes::{Endian, before_nul};
use perfquet_events::event::{Field, FieldType, Fields, Value};
use perfquet_events::event_format::print::{Names, PrintFormat, Record};

use crate::tracing_data::printk_formats::{self, unescaped};

/// More arguments than any format has.
const ARGUMENTS_MAX: usize = 64;

/// All formats of a file.
pub(super) struct Printk<'s> {
    texts: HashMap<u64, &'s str>,
    prepared: HashMap<u64, Prepared>,
    endian: Endian,
    long_size: u8,
}

/// A parsed format.
struct Prepared {
    arguments: Vec<Argument>,
    fields: Vec<Field>,
    print: PrintFormat,
    /// The format without escapes.
    plain: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Argument {
    /// Number of this many bytes; whether it is signed.
    Number(u8, bool),
    Text,
}

impl<'s> Printk<'s> {
    /// Parses `printk_formats`; also returns the number of invalid lines.
    pub(super) fn parse(text: &'s [u8], endian: Endian, long_size: u8) -> (Printk<'s>, u64) {
        let mut texts = HashMap::new();
        let mut bad = 0;
        for line in printk_formats::lines(text) {
            match line {
                Some((address, text)) => {
                    texts.insert(address, text);
                }
                None => bad += 1,
            }
        }
        let printk = Printk {
            texts,
            prepared: HashMap::new(),
            endian,
            long_size,
        };
        (printk, bad)
    }

    /// The string at an address, without escapes (`trace_puts`).
    pub(super) fn plain(&mut self, address: u64) -> Option<&[u8]> {
        Some(&self.prepare(address)?.plain)
    }

    fn prepare(&mut self, address: u64) -> Option<&Prepared> {
        let text = *self.texts.get(&address)?;
        let long_size = self.long_size;
        let made = self.prepared.entry(address);
        Some(made.or_insert_with(|| Prepared::new(text, long_size)))
    }

    /// Appends the format filled with its arguments to `out`. Returns `false` if the format is unknown.
    pub(super) fn print(
        &mut self,
        address: u64,
        arguments: &[u8],
        names: &Names<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        let endian = self.endian;
        let Some(prepared) = self.prepare(address) else {
            return false;
        };
        let values = values(&prepared.arguments, arguments, endian);
        let record = Record {
            fields: &prepared.fields,
            values: Fields::Values(&values),
            big_endian: false,
        };
        prepared.print.print(&record, Some(names), out);
        true
    }
}

impl Prepared {
    fn new(text: &str, long_size: u8) -> Prepared {
        let (template, arguments) = rewrite(text, long_size);
        let fields: Vec<Field> = arguments
            .iter()
            .enumerate()
            .map(|(index, argument)| Field {
                name: format!("a{index}"),
                kind: match argument {
                    Argument::Number(_, true) => FieldType::Int(8),
                    Argument::Number(_, false) => FieldType::UInt(8),
                    Argument::Text => FieldType::Text,
                },
                layout: None,
                declaration: String::new(),
            })
            .collect();
        let mut source = format!("\"{template}\"");
        for field in &fields {
            source.push_str(", REC->");
            source.push_str(&field.name);
        }
        Prepared {
            print: PrintFormat::new(&source, &fields),
            plain: unescaped(text),
            arguments,
            fields,
        }
    }
}

/// The template, with `%s` for values formatted by the kernel, and the arguments stored in the event.
fn rewrite(text: &str, long_size: u8) -> (String, Vec<Argument>) {
    let mut template = String::with_capacity(text.len());
    let mut arguments = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find('%') {
        let (before, conversion) = rest.split_at(start);
        template.push_str(before);
        let flags_end = conversion
            .find(|c: char| !matches!(c, '%' | '-' | '+' | ' ' | '#' | '0'..='9' | '.' | '*'))
            .unwrap_or(conversion.len());
        if conversion.starts_with("%%") {
            template.push_str("%%");
            rest = conversion.get(2..).unwrap_or_default();
            continue;
        }
        let (head, after) = conversion.split_at(flags_end);
        let stars = head.matches('*').count();
        arguments.extend(std::iter::repeat_n(Argument::Number(4, true), stars));
        let size_end = after
            .find(|c: char| !matches!(c, 'h' | 'l' | 'L' | 'z' | 'Z' | 't' | 'j'))
            .unwrap_or(after.len());
        let (size, after) = after.split_at(size_end);
        let bytes = match size {
            "hh" => 1,
            "h" => 2,
            "ll" | "L" | "j" => 8,
            "l" | "z" | "Z" | "t" => long_size,
            _ => 4,
        };
        let mut letters = after.chars();
        let kind = letters.next();
        rest = letters.as_str();
        template.push_str(head);
        match kind {
            Some('s') => {
                arguments.push(Argument::Text);
                template.push('s');
            }
            Some('c') => {
                arguments.push(Argument::Number(1, false));
                template.push('c');
            }
            Some('p') => {
                let end = rest
                    .find(|c: char| !c.is_ascii_alphanumeric())
                    .unwrap_or(rest.len());
                let (extension, after) = rest.split_at(end);
                rest = after;
                let is_address = match extension.chars().next() {
                    None | Some('s' | 'S' | 'x' | 'K' | 'e') => true,
                    Some('f' | 'F') => !extension.contains('w'),
                    _ => false,
                };
                if is_address {
                    arguments.push(Argument::Number(long_size, false));
                    template.push('p');
                    template.push_str(extension);
                } else {
                    arguments.push(Argument::Text);
                    template.push('s');
                }
            }
            Some(letter) => {
                arguments.push(Argument::Number(bytes, matches!(letter, 'd' | 'i')));
                template.push_str(size);
                template.push(letter);
            }
            None => {}
        }
        if arguments.len() > ARGUMENTS_MAX {
            break;
        }
    }
    template.push_str(rest);
    (template, arguments)
}

/// Decodes the arguments of an event; truncated ones are missing.
fn values<'a>(arguments: &[Argument], bytes: &'a [u8], endian: Endian) -> Vec<Value<'a>> {
    let mut values = Vec::with_capacity(arguments.len());
    let mut at = 0usize;
    for argument in arguments {
        match *argument {
            Argument::Text => {
                let text = before_nul(bytes.get(at..).unwrap_or_default());
                at = at.saturating_add(text.len() + 1);
                values.push(Value::Bytes(text));
            }
            Argument::Number(size, signed) => {
                let size = usize::from(size);
                at = at.next_multiple_of(size.clamp(1, 4));
                let Some(number) = bytes.get(at..).and_then(|rest| rest.get(..size)) else {
                    values.push(Value::Null);
                    continue;
                };
                at += size;
                let bits = endian.unsigned(number);
                let unused = 64 - 8 * size as u32;
                values.push(match signed {
                    true => Value::Int((bits << unused) as i64 >> unused),
                    false => Value::UInt(bits),
                });
            }
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(format: &str, arguments: &[u8], expected: &str) {
        let text = format!("0xffff : \"{format}\"\n");
        let (mut printk, bad) = Printk::parse(text.as_bytes(), Endian::Little, 8);
        assert_eq!(bad, 0);
        let mut out = Vec::new();
        let names = |address: u64| (address == 0x1234).then(|| ("vfs_read".to_owned(), 0));
        assert!(printk.print(0xffff, arguments, &names, &mut out));
        assert_eq!(String::from_utf8_lossy(&out), expected);
        for length in 0..arguments.len() {
            printk.print(0xffff, &arguments[..length], &names, &mut out); // must not panic
        }
    }

    #[test]
    fn arguments_are_aligned_as_in_the_kernel() {
        check("plain", b"", "plain");
        check("%d of %s\\n", b"\xfb\xff\xff\xffdd\0", "-5 of dd\n");
        // After a string, a number is aligned to 4.
        check("%s %u 100%%", b"dd\0\0\x07\0\0\0", "dd 7 100%");
        check("%llx %c", b"\x10\0\0\0\x01\0\0\0A", "100000010 A");
        check("%*d|", b"\x04\0\0\0\x07\0\0\0", "   7|");
        check("%pS!", b"\x34\x12\0\0\0\0\0\0", "vfs_read+0x0!");
        check(
            "from %pI4 to %d",
            b"10.0.0.1\0\0\0\0\x02\0\0\0",
            "from 10.0.0.1 to 2",
        );
        check("%hd", b"\xff\xff", "-1");
    }

    #[test]
    fn formats_that_are_missing_or_damaged() {
        let text = b"0x10 : \"a \\\"quoted\\\" one\"\n\nnonsense\n0x20 : \"open\n\0";
        let (mut printk, bad) = Printk::parse(text, Endian::Big, 4);
        assert_eq!(bad, 1);
        assert_eq!(printk.plain(0x10), Some(&b"a \"quoted\" one"[..]));
        assert_eq!(printk.plain(0x20), Some(&b"open"[..]));
        assert_eq!(printk.plain(0x30), None);
        assert!(!printk.print(0x30, b"", &|_| None, &mut Vec::new()));
    }
}
