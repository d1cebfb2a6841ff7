//! The types of values printed as text, and their conversion.
//!
//! ```text
//! 120            Int        0x7ffc9d706000   UInt      00000000f169a282   Pointer (%p, hashed)
//! true           Bool       1.25             Float     0x78 (120)         Int (trace option `fields`)
//! {0x1,0x2}      UIntList   834492 [ns]      Int       (null)             Empty: NULL
//! (1)            Int        'A'(65)          Int       0xffff88800b5d2000 (-131391…)   Pointer
//! ```

use std::ops::Range;

use perfquet_events::event::{FieldType, Value};
use perfquet_events::scan::{bare_hex, decimal, find, prefixed_hex, signed, split_once, trim};

/// The types of a column; a wider type accepts the values of narrower ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Nothing but NULL so far.
    Empty,
    Bool,
    Int,
    /// Printed with `0x`.
    UInt,
    /// Sixteen hexadecimal digits without `0x`, as the kernel prints pointers.
    Pointer,
    Float,
    IntList,
    UIntList,
    /// Bytes in hexadecimal: `00:61:0a`.
    Binary,
    Text,
}

impl Class {
    /// The type of the column.
    pub(super) fn field_type(self) -> FieldType {
        match self {
            Class::Empty | Class::Text => FieldType::Text,
            Class::Bool => FieldType::Bool,
            Class::Int => FieldType::Int(8),
            Class::UInt | Class::Pointer => FieldType::UInt(8),
            Class::Float => FieldType::Float,
            Class::IntList => FieldType::IntList(8),
            Class::UIntList => FieldType::UIntList(8),
            Class::Binary => FieldType::Binary,
        }
    }

    /// The narrowest type for values of both.
    pub(super) fn with(self, other: Class) -> Class {
        use Class::{Empty, Float, Int, IntList, Pointer, Text, UInt, UIntList};
        match (self, other) {
            (one, two) if one == two => one,
            (Empty, one) | (one, Empty) => one,
            (Int, UInt) | (UInt, Int) => UInt,
            (Int, Pointer) | (Pointer, Int) => Pointer,
            (Int, Float) | (Float, Int) => Float,
            (IntList, UIntList) | (UIntList, IntList) => UIntList,
            _ => Text,
        }
    }

    /// The class of `text`, by its form.
    pub(super) fn of(text: &[u8]) -> Class {
        let text = trim(text);
        match text.first() {
            None => Class::Empty,
            Some(b'(') if text == b"(null)" => Class::Empty,
            Some(b'(') if unsigned(text).is_some() => Class::UInt,
            Some(b'(' | b'\'') if byte(text).is_some() => Class::Int,
            Some(b't' | b'f') if matches!(text, b"true" | b"false") => Class::Bool,
            Some(b'{') => Class::of_list(text),
            Some(b'0'..=b'9' | b'a'..=b'f' | b'-') => Class::of_number(text),
            Some(_) => Class::Text,
        }
    }

    fn of_number(text: &[u8]) -> Class {
        let is_bare = text.len() == 16 && bare_hex(text).is_some() && is_pointer(text);
        if is_bare || both_ways(text).is_some_and(is_kernel_address) {
            Class::Pointer
        } else if integer(text).is_some() {
            Class::Int
        } else if unsigned(text).is_some() {
            Class::UInt
        } else if float(text).is_some() {
            Class::Float
        } else {
            Class::Text
        }
    }

    fn of_list(text: &[u8]) -> Class {
        let Some(items) = items(text) else {
            return Class::Text;
        };
        items
            .map(|item| match Class::of(item) {
                Class::Int => Class::IntList,
                Class::UInt => Class::UIntList,
                _ => Class::Text,
            })
            .fold(Class::IntList, Class::with)
    }
}

/// Whether leading zeros or letters show that it is not a decimal number.
fn is_pointer(text: &[u8]) -> bool {
    text.starts_with(b"0") || !text.iter().all(u8::is_ascii_digit)
}

/// The notation of a value, if it is known beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Notation {
    /// Determined by [`Class::of`].
    #[default]
    Plain,
    /// Hexadecimal, with or without `0x`.
    Hex,
    /// Hexadecimal of a signed 64-bit number.
    HexSigned,
    /// Arguments of system calls: hexadecimal with `0x`, octal with a leading 0, otherwise decimal.
    Argument,
    /// Arguments of system calls before 6.14: always hexadecimal.
    BareArgument,
    /// `8,16` or `8:16`, as the kernel's `dev_t`: major << 20 | minor.
    Device,
    /// `handled` 1, `unhandled` 0.
    Handled,
    /// `(b, 1, 55afe4d179bc)`: hexadecimal numbers.
    HexList,
}

/// A value that borrows nothing.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Raw<'a> {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Float(f64),
    Text(&'a [u8]),
    Ints(Range<usize>),
    UInts(Range<usize>),
    Bytes(Range<usize>),
}

/// Buffers for values that are not in the text literally.
#[derive(Debug, Default)]
pub(super) struct Arena {
    ints: Vec<i64>,
    uints: Vec<u64>,
    bytes: Vec<u8>,
}

impl Arena {
    pub(super) fn clear(&mut self) {
        self.ints.clear();
        self.uints.clear();
        self.bytes.clear();
    }

    /// The value as used in events.
    #[inline]
    pub(super) fn value<'v>(&'v self, raw: &Raw<'v>) -> Value<'v> {
        match raw {
            Raw::Null => Value::Null,
            Raw::Bool(value) => Value::Bool(*value),
            Raw::Int(value) => Value::Int(*value),
            Raw::UInt(value) => Value::UInt(*value),
            Raw::Float(value) => Value::Float(*value),
            Raw::Text(text) => Value::Bytes(text),
            Raw::Ints(range) => Value::IntList(self.ints.get(range.clone()).unwrap_or_default()),
            Raw::UInts(range) => Value::UIntList(self.uints.get(range.clone()).unwrap_or_default()),
            Raw::Bytes(range) => Value::Bytes(self.bytes.get(range.clone()).unwrap_or_default()),
        }
    }

    /// Parses `text` as `class`; `None` if it does not fit.
    #[inline]
    pub(super) fn fit<'a>(
        &mut self,
        class: Class,
        notation: Notation,
        text: &'a [u8],
    ) -> Option<Raw<'a>> {
        if text.is_empty() {
            return Some(Raw::Null);
        }
        match class {
            Class::Int if notation == Notation::Plain => match signed(text) {
                Some(value) => Some(Raw::Int(value)),
                None => self.fit_slowly(class, notation, text),
            },
            Class::UInt
                if let [b'0', b'x', digits @ ..] = text
                    && let Some(value) = bare_hex(digits) =>
            {
                Some(Raw::UInt(value))
            }
            Class::Text => Some(Raw::Text(unquoted(text)))
                .filter(|_| text != b"(null)")
                .or(Some(Raw::Null)),
            _ => self.fit_slowly(class, notation, text),
        }
    }

    fn fit_slowly<'a>(
        &mut self,
        class: Class,
        notation: Notation,
        text: &'a [u8],
    ) -> Option<Raw<'a>> {
        let text = trim(text);
        if text.is_empty() || text == b"(null)" {
            return Some(Raw::Null);
        }
        match (class, notation) {
            (Class::Empty, _) => None,
            (Class::Bool, _) => {
                Some(Raw::Bool(text == b"true")).filter(|_| matches!(text, b"true" | b"false"))
            }
            (Class::Int, Notation::Plain) => integer(text)
                .filter(|_| !both_ways(text).is_some_and(is_kernel_address))
                .map(Raw::Int),
            (Class::Int, Notation::Device) => device(text).map(Raw::Int),
            (Class::Int, Notation::Handled) => handled(text).map(Raw::Int),
            (Class::Int, Notation::HexSigned) => {
                let value = prefixed_hex(text).or_else(|| bare_hex(text));
                let value = value.map(u64::cast_signed).or_else(|| integer(text))?;
                Some(Raw::Int(value))
            }
            (Class::UInt, Notation::Plain) => unsigned(text).map(Raw::UInt),
            (Class::UInt, Notation::Hex) => {
                prefixed_hex(text).or_else(|| bare_hex(text)).map(Raw::UInt)
            }
            (Class::UInt, Notation::BareArgument) => {
                bare_hex(text).or_else(|| argument(text)).map(Raw::UInt)
            }
            (Class::UInt, Notation::Argument) => argument(text).map(Raw::UInt),
            (Class::Pointer, _) => Some(text)
                .filter(|text| text.len() == 16)
                .and_then(bare_hex)
                .or_else(|| prefixed_hex(text))
                .or_else(|| both_ways(text))
                .map(Raw::UInt),
            (Class::Float, _) => float(text)
                .or_else(|| signed(text).map(|value| value as f64))
                .map(Raw::Float),
            (Class::IntList, _) => self.signed_list(text),
            (Class::UIntList, notation) => self.unsigned_list(text, notation),
            (Class::Binary, _) => self.binary(text),
            (Class::Text, _) => Some(Raw::Text(unquoted(text))),
            // A notation that does not match the class, which has been widened since.
            (Class::Int, _) => integer(text).map(Raw::Int),
            (Class::UInt, _) => unsigned(text).map(Raw::UInt),
        }
    }

    fn signed_list(&mut self, text: &[u8]) -> Option<Raw<'static>> {
        let start = self.ints.len();
        for item in items(text)? {
            self.ints.push(integer(item)?);
        }
        Some(Raw::Ints(start..self.ints.len()))
    }

    fn unsigned_list(&mut self, text: &[u8], notation: Notation) -> Option<Raw<'static>> {
        let start = self.uints.len();
        if notation == Notation::HexList {
            for item in text.split(|&byte| byte == b',') {
                let item = trim(item);
                let value = bare_hex(item).or_else(|| prefixed_hex(item));
                self.uints.push(value?);
            }
        } else {
            for item in items(text)? {
                self.uints.push(unsigned(item)?);
            }
        }
        Some(Raw::UInts(start..self.uints.len()))
    }

    fn binary(&mut self, text: &[u8]) -> Option<Raw<'static>> {
        let start = self.bytes.len();
        // The kernel prints the first 64.
        let text = text.strip_suffix(b", ...").unwrap_or(text);
        for pair in text.split(|byte| matches!(byte, b':' | b' ')) {
            let byte = bare_hex(pair).filter(|_| pair.len() == 2)?;
            self.bytes.push(byte as u8);
        }
        Some(Raw::Bytes(start..self.bytes.len()))
    }
}

/// The items of `{1,2}`, `{1 2}`, `{{1 2}}`.
fn items(text: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let mut inner = text;
    while let Some(stripped) = inner
        .strip_prefix(b"{")
        .and_then(|inner| inner.strip_suffix(b"}"))
    {
        inner = stripped;
    }
    if inner.len() == text.len() || inner.contains(&b'{') {
        return None;
    }
    let items = inner.split(|byte| matches!(byte, b',' | b' '));
    Some(items.filter(|item| !item.is_empty()))
}

/// A byte as printed by the trace option `fields` (kernel/trace/trace_output.c, `print_fields`): `(1)`, `'A'(65)`.
fn byte(text: &[u8]) -> Option<i64> {
    let number = match text {
        [b'\'', b' '..=b'~', b'\'', number @ ..] => number,
        number => number,
    };
    signed(number.strip_prefix(b"(")?.strip_suffix(b")")?)
}

/// A number as printed by that option, `0x1b91 (7057)`: its bits. The decimal part is always signed.
fn both_ways(text: &[u8]) -> Option<u64> {
    let (hex, number) = split_once(text, b" (")?;
    signed(number.strip_suffix(b")")?)?;
    prefixed_hex(hex)
}

/// Whether a negative number is more likely a kernel address: kernel addresses begin at the upper half on arm64, and
/// code and fixed maps of x86-64 end there (Documentation/arch/x86/x86_64/mm.rst).
fn is_kernel_address(bits: u64) -> bool {
    (0xffff_0000_0000_0000..0xffff_ffff_ff60_0000).contains(&bits)
}

/// A decimal number; one followed by ` [ns]`; a byte; or the decimal part of `0x1b91 (7057)`.
fn integer(text: &[u8]) -> Option<i64> {
    if let Some(value) = signed(text) {
        return Some(value);
    }
    if let Some(number) = text.strip_suffix(b" [ns]") {
        return signed(number);
    }
    let decimal_part = || {
        let (hex, number) = split_once(text, b" (")?;
        prefixed_hex(hex)?;
        signed(number.strip_suffix(b")")?)
    };
    byte(text).or_else(decimal_part)
}

/// A hexadecimal number with `0x`, or a decimal one; the first of `0x1b91 (7057)`; `(0xffff8880065e201c)`.
fn unsigned(text: &[u8]) -> Option<u64> {
    if let Some(inner) = text.strip_prefix(b"(") {
        return prefixed_hex(inner.strip_suffix(b")")?);
    }
    prefixed_hex(text)
        .or_else(|| decimal(text))
        .or_else(|| both_ways(text))
}

fn float(text: &[u8]) -> Option<f64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let point = find(digits, b'.')?;
    let (whole, fraction) = (digits.get(..point)?, digits.get(point + 1..)?);
    let are_digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    if !are_digits(whole) || !are_digits(fraction) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn argument(text: &[u8]) -> Option<u64> {
    match text {
        [b'0', b'0'..=b'7', ..] => text.iter().try_fold(0u64, |value, byte| {
            let digit = byte.checked_sub(b'0').filter(|digit| *digit < 8)?;
            value.checked_mul(8)?.checked_add(u64::from(digit))
        }),
        _ => prefixed_hex(text)
            .or_else(|| decimal(text))
            .or_else(|| signed(text).map(i64::cast_unsigned)),
    }
}

fn device(text: &[u8]) -> Option<i64> {
    let place = text.iter().position(|byte| matches!(byte, b',' | b':'))?;
    let major = decimal(text.get(..place)?).filter(|major| *major < 1 << 12)?;
    let minor = decimal(text.get(place + 1..)?).filter(|minor| *minor < 1 << 20)?;
    i64::try_from(major << 20 | minor).ok()
}

fn handled(text: &[u8]) -> Option<i64> {
    match text {
        b"handled" => Some(1),
        b"unhandled" => Some(0),
        _ => None,
    }
}

/// Strips the quotes.
#[inline]
fn unquoted(text: &[u8]) -> &[u8] {
    match text {
        [b'"', inner @ .., b'"'] => inner,
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes() {
        let check = |text: &str, expected: Class| {
            assert_eq!(Class::of(text.as_bytes()), expected, "{text}");
        };
        check("", Class::Empty);
        check("(null)", Class::Empty);
        check("007", Class::Int);
        check("-2", Class::Int);
        check("834492 [ns]", Class::Int);
        check("0x1b91 (7057)", Class::Int);
        check("0xfffffffffffffffe (-2)", Class::Int);
        check("(1)", Class::Int);
        check("'A'(65)", Class::Int);
        check("' '(32)", Class::Int);
        check("'AB'(65)", Class::Text);
        check("(x)", Class::Text);
        check("0xffff88800b5d2000 (-131391448866816)", Class::Pointer);
        check("0xffffffff810c9a10 (-2129880560)", Class::Pointer);
        check("18446744073709551615", Class::UInt);
        check("0x10", Class::UInt);
        check("00000000f169a282", Class::Pointer);
        check("ffff88803e621ef8", Class::Pointer);
        check("1234567890123456", Class::Int);
        check("5.123456", Class::Float);
        check("true", Class::Bool);
        check("{0x0,0x1}", Class::UIntList);
        check("{36 49 48 7}", Class::IntList);
        check("{{0x0 0x1}}", Class::UIntList);
        check("{a}", Class::Text);
        check("254:0", Class::Text);
        check("R+", Class::Text);
        check("dd", Class::Text);
        check("1.2.3", Class::Text);
    }

    #[track_caller]
    fn fits(class: Class, notation: Notation, text: &'static str, expected: Option<Raw<'static>>) {
        let mut arena = Arena::default();
        assert_eq!(
            arena.fit(class, notation, text.as_bytes()),
            expected,
            "{text}"
        );
    }

    #[test]
    fn values() {
        use Notation::*;
        fits(Class::Int, Plain, "12", Some(Raw::Int(12)));
        fits(Class::Int, Plain, "0x78 (120)", Some(Raw::Int(120)));
        fits(Class::Int, Plain, "x", None);
        fits(Class::Int, Plain, "(0)", Some(Raw::Int(0)));
        fits(Class::Int, Plain, "'A'(65)", Some(Raw::Int(65)));
        // Only the decimal part of an int's four bytes fits.
        fits(Class::Int, Plain, "0xfffffffe (-2)", Some(Raw::Int(-2)));
        let address = "0xffff88800b5d2000 (-131391448866816)";
        fits(Class::Int, Plain, address, None);
        let bits = Some(Raw::UInt(0xffff_8880_0b5d_2000));
        fits(Class::Pointer, Plain, address, bits);
        fits(Class::Pointer, Plain, "0x0 (0)", Some(Raw::UInt(0)));
        fits(
            Class::Int,
            HexSigned,
            "0xfffffffffffffffe",
            Some(Raw::Int(-2)),
        );
        fits(Class::Int, Device, "8,16", Some(Raw::Int(8 << 20 | 16)));
        fits(Class::Int, Device, "254:0", Some(Raw::Int(254 << 20)));
        fits(Class::Int, Handled, "handled", Some(Raw::Int(1)));
        fits(Class::UInt, Argument, "0666", Some(Raw::UInt(0o666)));
        fits(Class::UInt, Argument, "0", Some(Raw::UInt(0)));
        fits(Class::UInt, BareArgument, "1000", Some(Raw::UInt(0x1000)));
        fits(
            Class::UInt,
            Hex,
            "55c0a0a48dc0",
            Some(Raw::UInt(0x55c0_a0a4_8dc0)),
        );
        fits(Class::UInt, Plain, "-1", None);
        fits(
            Class::Pointer,
            Plain,
            "0000000000000012",
            Some(Raw::UInt(18)),
        );
        fits(Class::Pointer, Plain, "12", None);
        fits(Class::Float, Plain, "3", Some(Raw::Float(3.0)));
        fits(Class::Text, Plain, "\"a b\"", Some(Raw::Text(b"a b")));
        fits(Class::Text, Plain, "(null)", Some(Raw::Null));
        fits(Class::Binary, Plain, "61:0a", Some(Raw::Bytes(0..2)));
        fits(
            Class::UIntList,
            HexList,
            "b, 1, 55af",
            Some(Raw::UInts(0..3)),
        );
        fits(Class::UIntList, HexList, "b, x", None);
    }

    #[test]
    fn wider_takes_both() {
        assert_eq!(Class::Int.with(Class::UInt), Class::UInt);
        assert_eq!(Class::Empty.with(Class::Bool), Class::Bool);
        assert_eq!(Class::Bool.with(Class::Int), Class::Text);
        assert_eq!(Class::IntList.with(Class::UIntList), Class::UIntList);
    }
}
