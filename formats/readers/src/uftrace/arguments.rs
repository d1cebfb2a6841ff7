//! Arguments and return values: their specifications, and the bytes after a record.
//!
//! ```text
//! argspec:fib@arg1;greet@arg1/s,arg2/c,arg3/u;area@fparg1/64,fparg2/32      info, also retspec, argauto, retauto
//! F: 1259 fib
//! A: @arg1%rdi                                                              calls.dbg, recorded with -a
//! 06 00 77 c3 b6 72 6c 64 | 78 00 00 00 | ff ff ff ff ff ff ff ff           arg1=wörld arg2=x arg3=18446744073709551615
//! ```
//! Strings have a length before them. Each value is padded to four bytes, all of them together to eight.

use std::io::Write as _;

use hashbrown::HashMap;
use perfquet_events::bytes::Endian;

use super::info::Info;
use super::pattern::{Style, matches};
use crate::lines::{Lines, hexadecimal, unsigned};

/// Rules read from one list.
const RULES_MAX: usize = 20_000;
/// Values of one function.
const VALUES_MAX: usize = 64;
/// Functions with specifications in debug information.
const DEBUG_MAX: usize = 1 << 20;
/// Largest structure passed by value.
const STRUCT_BYTES_MAX: u64 = 1 << 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// Without a letter, or `d`: the bits of a register, of any type of integer.
    Automatic,
    Signed,
    Unsigned,
    Hex,
    Octal,
    Char,
    Text,
    Float,
    Struct,
}

/// The specification of one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spec<'a> {
    /// `arg1`, `fparg2`, `retval`.
    name: &'a [u8],
    format: Format,
    size: usize,
}

impl<'a> Spec<'a> {
    /// `arg1`, `arg2/x32`, `fparg1/80%xmm0`, `retval/s`, `arg3/t16:point%RDI+RSI`.
    fn parse(text: &'a [u8], word_bytes: usize) -> Option<Spec<'a>> {
        let end = text.iter().position(|byte| matches!(byte, b'/' | b'%'));
        let (name, rest) = text.split_at_checked(end.unwrap_or(text.len()))?;
        let number = name.strip_prefix(b"fparg").or(name.strip_prefix(b"arg"));
        if name != b"retval" && unsigned(number?).is_none() {
            return None;
        }
        let is_float = name.starts_with(b"fp");
        let mut spec = Spec {
            name,
            format: match is_float {
                true => Format::Float,
                false => Format::Automatic,
            },
            size: if is_float { 8 } else { word_bytes },
        };
        let Some(rest) = rest.strip_prefix(b"/") else {
            return Some(spec);
        };
        let rest = rest.split(|&byte| byte == b'%').next().unwrap_or_default();
        let (&letter, mut bits) = rest.split_first()?;
        spec.format = match letter {
            b'd' => Format::Automatic,
            b'i' => Format::Signed,
            b'u' => Format::Unsigned,
            b'x' | b'p' => Format::Hex,
            b'o' => Format::Octal,
            b's' | b'S' => Format::Text,
            b'c' => {
                spec.size = 1;
                Format::Char
            }
            b'f' => {
                spec.size = 8;
                Format::Float
            }
            // An enumeration: `e:color`. Its number is kept.
            b'e' => return Some(spec),
            b't' => {
                let digits = bits.split(|&byte| byte == b':').next().unwrap_or_default();
                let size = unsigned(digits).filter(|size| *size <= STRUCT_BYTES_MAX)?;
                spec.format = Format::Struct;
                spec.size = usize::try_from(size).ok()?;
                return Some(spec);
            }
            b'0'..=b'9' if is_float => {
                bits = rest;
                Format::Float
            }
            _ => return None,
        };
        match unsigned(bits) {
            None => {}
            Some(80) if spec.format == Format::Float => spec.size = 10,
            Some(bits @ (8 | 16 | 32 | 64)) => spec.size = bits as usize / 8,
            Some(_) => return None,
        }
        Some(spec)
    }

    fn is_returned(&self) -> bool {
        self.name == b"retval"
    }
}

/// `PATTERN@spec,spec,MODULE`
#[derive(Debug)]
struct Rule<'a> {
    pattern: &'a [u8],
    module: Option<&'a [u8]>,
    values: Vec<Spec<'a>>,
}

impl<'a> Rule<'a> {
    fn parse(text: &'a [u8], word_bytes: usize) -> Option<Rule<'a>> {
        let at = memchr::memchr(b'@', text)?;
        let mut rule = Rule {
            pattern: text.get(..at)?,
            module: None,
            values: Vec::new(),
        };
        for part in text.get(at + 1..)?.split(|&byte| byte == b',') {
            match Spec::parse(part, word_bytes) {
                Some(spec) if rule.values.len() < VALUES_MAX => rule.values.push(spec),
                Some(_) => {}
                None if is_module(part) => rule.module = Some(part),
                None => {}
            }
        }
        Some(rule)
    }
}

/// Whether a part is no action of a trigger (`depth=2`, `filter`).
fn is_module(part: &[u8]) -> bool {
    part == b"PLT" || memchr::memmem::find(part, b".so").is_some()
}

/// A function to find the specifications of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Named<'a> {
    pub(super) name: &'a [u8],
    /// Base name of the module's file.
    pub(super) module: &'a [u8],
    /// Address in the module.
    pub(super) address: u64,
    /// A call of a library, through the procedure linkage table.
    pub(super) is_library_call: bool,
}

/// Specifications of arguments, and of return values, of a function.
#[derive(Debug, Default, Clone)]
pub(super) struct Signature<'a> {
    pub(super) arguments: Vec<Spec<'a>>,
    pub(super) returned: Vec<Spec<'a>>,
}

/// All specifications of a trace.
#[derive(Debug)]
pub(super) struct Signatures<'a> {
    style: Style,
    given: Vec<Rule<'a>>,
    automatic: Vec<Rule<'a>>,
    /// By base name of the module and address.
    debug: HashMap<(&'a [u8], u64), Signature<'a>>,
}

impl<'a> Signatures<'a> {
    pub(super) fn of(info: &Info<'a>) -> Signatures<'a> {
        let rules = |keys: [&str; 2]| {
            let lists = keys.into_iter().filter_map(|key| info.value(key));
            let rules = lists.flat_map(|list| list.split(|&byte| byte == b';'));
            rules
                .take(RULES_MAX)
                .filter_map(|rule| Rule::parse(rule, info.word_bytes))
                .collect()
        };
        Signatures {
            style: Style::of(info.value("pattern_type")),
            given: rules(["argspec", "retspec"]),
            automatic: rules(["argauto", "retauto"]),
            debug: HashMap::new(),
        }
    }

    /// Adds those of a file of debug information, whose name is that of the module.
    pub(super) fn add_debug(&mut self, module: &'a [u8], file: &'a [u8], word_bytes: usize) {
        let mut address = None;
        for line in Lines::of(file) {
            let Some((kind, rest)) = line.text.split_at_checked(3) else {
                continue;
            };
            if kind == b"F: " {
                let digits = rest.split(|&byte| byte == b' ').next();
                address = digits.and_then(hexadecimal);
            }
            let (Some(address), b"A: " | b"R: ") = (address, kind) else {
                continue;
            };
            if self.debug.len() >= DEBUG_MAX {
                return;
            }
            let Some(rule) = Rule::parse(rest, word_bytes) else {
                continue;
            };
            let signature = self.debug.entry((module, address)).or_default();
            match kind {
                b"A: " => signature.arguments = rule.values,
                _ => signature.returned = rule.values,
            }
        }
    }

    /// The specifications of a function: those given by the user, otherwise those of the debug information, otherwise the built-in ones.
    pub(super) fn signature(&self, function: &Named<'a>) -> Signature<'a> {
        let mut found = self.by_rules(&self.given, function);
        let debug = self.debug.get(&(function.module, function.address));
        let automatic = || self.by_rules(&self.automatic, function);
        if found.arguments.is_empty() {
            let debug = debug.map(|debug| debug.arguments.clone());
            found.arguments = debug
                .filter(|values| !values.is_empty())
                .unwrap_or_else(|| automatic().arguments);
        }
        if found.returned.is_empty() {
            let debug = debug.map(|debug| debug.returned.clone());
            found.returned = debug
                .filter(|values| !values.is_empty())
                .unwrap_or_else(|| automatic().returned);
        }
        found
    }

    fn by_rules(&self, rules: &[Rule<'a>], function: &Named<'a>) -> Signature<'a> {
        let mut found = Signature::default();
        for rule in rules {
            let is_in = rule.module.is_none_or(|module| match module {
                b"PLT" => function.is_library_call,
                module => function.module.starts_with(module),
            });
            if !is_in || !matches(self.style, rule.pattern, function.name) {
                continue;
            }
            for spec in &rule.values {
                let values = match spec.is_returned() {
                    true => &mut found.returned,
                    false => &mut found.arguments,
                };
                // A later rule for the same value replaces the first.
                match values.iter_mut().find(|known| known.name == spec.name) {
                    Some(known) => *known = spec.clone(),
                    None => values.push(spec.clone()),
                }
            }
        }
        found
    }
}

/// A decoded value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Decoded {
    Integer(i64),
    /// Only the text holds it.
    Other,
}

/// Texts of the values of one record: `arg1=5`, or only `5` for a return value.
#[derive(Debug, Default)]
pub(super) struct Texts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Texts {
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let ranges = starts.zip(&self.ends);
        ranges.map(|(start, &end)| self.bytes.get(start..end).unwrap_or_default())
    }
}

/// Decodes the values after a record; returns their number of bytes and the last value. `None`: nothing specifies them, or
/// the file ends before.
pub(super) fn decode(
    bytes: &[u8],
    specs: &[Spec<'_>],
    endian: Endian,
    texts: &mut Texts,
) -> Option<(usize, Decoded)> {
    texts.bytes.clear();
    texts.ends.clear();
    if specs.is_empty() {
        return None;
    }
    let mut at = 0;
    let mut last = Decoded::Other;
    for spec in specs {
        if spec.size == 0 {
            continue;
        }
        let mut size = spec.size;
        if spec.format == Format::Text {
            size = usize::from(endian.u16_at(bytes, at)?);
            at += 2;
        }
        let value = bytes.get(at..at.checked_add(size)?)?;
        if !spec.is_returned() {
            texts.bytes.extend_from_slice(spec.name);
            texts.bytes.push(b'=');
        }
        last = show(spec, value, endian, &mut texts.bytes);
        texts.ends.push(texts.bytes.len());
        at = (at + size).next_multiple_of(4);
    }
    let length = at.next_multiple_of(8);
    (length <= bytes.len()).then_some((length, last))
}

fn show(spec: &Spec<'_>, value: &[u8], endian: Endian, text: &mut Vec<u8>) -> Decoded {
    let bits = endian.unsigned(value);
    let unused = 64_usize.saturating_sub(value.len() * 8).min(63);
    let signed = (bits << unused).cast_signed() >> unused;
    let signed = match spec.format {
        Format::Automatic => narrow(signed),
        _ => signed,
    };
    // Writing to memory does not fail.
    let _ = match spec.format {
        Format::Automatic | Format::Signed => write!(text, "{signed}"),
        Format::Unsigned => write!(text, "{bits}"),
        Format::Hex => write!(text, "{bits:#x}"),
        Format::Octal => write!(text, "{bits:#o}"),
        Format::Char => match u8::try_from(bits & 0xff) {
            Ok(letter) => write!(text, "'{}'", letter.escape_ascii()),
            Err(_) => Ok(()),
        },
        Format::Text => text.write_all(value),
        Format::Float => match value.len() {
            4 => write!(text, "{}", f32::from_bits(bits as u32)),
            8 => write!(text, "{}", f64::from_bits(bits)),
            _ => write!(text, "{}", extended(value, endian)),
        },
        Format::Struct => value.iter().try_for_each(|byte| write!(text, "{byte:02x}")),
    };
    match spec.format {
        Format::Automatic | Format::Signed => Decoded::Integer(signed),
        Format::Unsigned | Format::Hex | Format::Octal | Format::Char => {
            Decoded::Integer(bits.cast_signed())
        }
        Format::Text | Format::Float | Format::Struct => Decoded::Other,
    }
}

/// The value of a register whose type uftrace does not record: a small negative number of 32 bits leaves the upper half
/// zero. `uftrace replay` decides the same way.
fn narrow(value: i64) -> i64 {
    match value {
        0xffff_0000..=0xffff_ffff => value - (1 << 32),
        value => value,
    }
}

/// A floating-point number of 80 bits, to the precision of 64.
fn extended(value: &[u8], endian: Endian) -> f64 {
    let (Some(mantissa), Some(head)) = (endian.u64_at(value, 0), endian.u16_at(value, 8)) else {
        return f64::NAN;
    };
    let sign = if head & 0x8000 == 0 { 1.0 } else { -1.0 };
    match (head & 0x7fff, mantissa << 1) {
        (0x7fff, 0) => sign * f64::INFINITY,
        (0x7fff, _) => f64::NAN,
        (exponent, _) => sign * mantissa as f64 * 2_f64.powi(i32::from(exponent) - 16383 - 63),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(specs: &str, bytes: &[u8]) -> String {
        let specs: Vec<Spec<'_>> = specs
            .split(',')
            .map(|spec| Spec::parse(spec.as_bytes(), 8).unwrap())
            .collect();
        let mut texts = Texts::default();
        match decode(bytes, &specs, Endian::Little, &mut texts) {
            Some((length, _)) => {
                let texts: Vec<_> = texts.iter().map(String::from_utf8_lossy).collect();
                format!("{length}: {}", texts.join(" "))
            }
            None => "cut".to_owned(),
        }
    }

    #[test]
    fn values() {
        let minus = [0xff; 8];
        assert_eq!(shown("arg1", &minus), "8: arg1=-1");
        // The register of an int, whose upper half is zero.
        let of_int = [0xfe, 0xff, 0xff, 0xff, 0, 0, 0, 0];
        assert_eq!(shown("arg1", &of_int), "8: arg1=-2");
        assert_eq!(shown("retval/e:color", &of_int), "8: -2");
        assert_eq!(shown("retval/u", &of_int), "8: 4294967294");
        assert_eq!(shown("arg1/i64", &of_int), "8: arg1=4294967294");
        let large = [0, 0x28, 0x6b, 0xee, 0, 0, 0, 0];
        assert_eq!(shown("arg1", &large), "8: arg1=4000000000");
        assert_eq!(shown("arg1/u", &minus), "8: arg1=18446744073709551615");
        assert_eq!(shown("arg1/i32,arg2/x16", &minus), "8: arg1=-1 arg2=0xffff");
        assert_eq!(shown("arg1/c%rdi", b"x\0\0\0\0\0\0\0"), "8: arg1='x'");
        assert_eq!(
            shown("arg1/s,arg2/d8", b"\x05\0ab\ncd\0\x80\0\0\0\0\0\0\0"),
            "16: arg1=ab\ncd arg2=-128"
        );
        assert_eq!(shown("arg1/s", b"\xff\xffab\0\0\0\0"), "cut");
        assert_eq!(shown("arg1/o,arg2/p", &[8; 8]), "cut");
        let float = 4.5_f64.to_le_bytes();
        assert_eq!(shown("fparg1", &float), "8: fparg1=4.5");
        assert_eq!(shown("retval/f", &float), "8: 4.5");
        let long = [0, 0, 0, 0, 0, 0, 0, 0x90, 1, 0x40, 0, 0, 0, 0, 0, 0];
        assert_eq!(shown("fparg1/80", &long), "16: fparg1=4.5");
        assert_eq!(
            shown("arg1/t4:point%RDI+RSI,arg2/e:color%rsi", &[1; 16]),
            "16: arg1=01010101 arg2=72340172838076673"
        );
    }

    #[test]
    fn specifications_that_are_none() {
        for text in ["", "arg", "argx", "arg1/q", "arg1/x7", "arg1/", "depth=2"] {
            assert_eq!(Spec::parse(text.as_bytes(), 8), None, "{text}");
        }
    }
}
