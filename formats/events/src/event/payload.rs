//! Decoding of raw payloads into typed values, by the layout of their fields: bounds-checked and without allocation.
//!
//! Everything that depends only on the event type (byte order, width, sign, position) is computed once, in
//! [`Plan::new`]. Decoding a payload then costs one small `match` per field.

use super::{Context, Field, FieldPlace, FieldType, Flags, Layout, Value};
use crate::bytes::{Endian, array_at, before_nul};

/// A payload as recorded by the kernel, and the decoders of its fields. A field is decoded when it is accessed.
#[derive(Debug, Clone, Copy)]
pub struct Payload<'a> {
    /// The bytes, starting with `common_type`.
    pub bytes: &'a [u8],
    /// The decoders of the event type's fields.
    pub plan: &'a Plan,
}

impl<'a> Payload<'a> {
    /// Returns the value of a field; NULL if there is none.
    #[inline]
    pub fn value(&self, field: usize) -> Value<'a> {
        let op = self.plan.ops.get(field);
        op.map_or(Value::Null, |op| op.decode(self.bytes))
    }

    /// Returns the context in which the event occurred, from `common_flags`, the third byte (`struct trace_entry`).
    pub fn context(&self) -> Option<Context> {
        let flags = Flags {
            bits: *self.bytes.get(2)?,
            preempt_count: 0,
        };
        Some(flags.context())
    }
}

/// Decoders for all fields of one event type.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    ops: Vec<Op>,
}

impl Plan {
    /// Compiles the fields into one [`Op`] each, in order.
    pub fn new(fields: &[Field], big_endian: bool) -> Plan {
        let endian = Endian::of(big_endian);
        Plan {
            ops: fields.iter().map(|field| Op::new(field, endian)).collect(),
        }
    }

    /// Returns the decoders, one per field.
    #[inline]
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }
}

/// Decodes one field of a payload. For more than a few payloads, compile a [`Plan`].
pub fn decode_field<'a>(field: &Field, payload: &'a [u8], endian: Endian) -> Value<'a> {
    Op::new(field, endian).decode(payload)
}

/// An array of integers inside a payload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Array<'a> {
    bytes: &'a [u8],
    width: u8,
    endian: Endian,
}

impl<'a> Array<'a> {
    /// Returns the number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() / usize::from(self.width)
    }

    /// Whether the array is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Iterates over the elements, sign-extended.
    #[inline]
    pub fn signed(self) -> impl ExactSizeIterator<Item = i64> + 'a {
        let shift = 64 - 8 * u32::from(self.width);
        self.unsigned()
            .map(move |value| ((value << shift) as i64) >> shift)
    }

    /// Iterates over the elements, zero-extended.
    #[inline]
    pub fn unsigned(self) -> impl ExactSizeIterator<Item = u64> + 'a {
        self.bytes
            .chunks_exact(usize::from(self.width))
            .map(move |bytes| self.endian.unsigned(bytes))
    }
}

/// A little-endian integer at a fixed place of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Integer {
    /// Bytes from the start of the payload.
    pub offset: usize,
    /// 1, 2, 4 or 8 bytes.
    pub width: usize,
    /// Whether it has a sign.
    pub is_signed: bool,
}

/// A decoder for one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Op {
    offset: u32,
    size: u32,
    place: FieldPlace,
    kind: FieldType,
    endian: Endian,
    code: Code,
}

/// The common cases, each a single load, and `Other` for the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Code {
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    /// A string of fixed size.
    Text,
    /// `__data_loc char[]`
    DynamicText,
    Other,
    Null,
}

impl Op {
    /// Compiles the decoder of a field.
    pub fn new(field: &Field, endian: Endian) -> Op {
        let Some(layout) = field.layout else {
            return Op {
                offset: 0,
                size: 0,
                place: FieldPlace::Inline,
                kind: field.kind,
                endian,
                code: Code::Null,
            };
        };
        Op {
            offset: layout.offset,
            size: layout.size,
            place: layout.place,
            kind: field.kind,
            endian,
            code: code_of(field.kind, layout, endian),
        }
    }

    /// Whether the numbers, or elements, are signed.
    #[inline]
    pub fn is_signed(&self) -> bool {
        matches!(self.kind, FieldType::Int(_) | FieldType::IntList(_))
    }

    /// Its place, if it is an integer that one load decodes.
    pub fn integer(&self) -> Option<Integer> {
        let (width, is_signed) = match self.code {
            Code::U8 => (1, false),
            Code::U16 => (2, false),
            Code::U32 => (4, false),
            Code::U64 => (8, false),
            Code::I8 => (1, true),
            Code::I16 => (2, true),
            Code::I32 => (4, true),
            Code::I64 => (8, true),
            Code::Text | Code::DynamicText | Code::Other | Code::Null => return None,
        };
        Some(Integer {
            offset: self.offset as usize,
            width,
            is_signed,
        })
    }

    /// Its place, if it is an array of 64-bit integers of a fixed size: offset and number of elements.
    pub fn words(&self) -> Option<(usize, usize)> {
        let is_words = matches!(self.kind, FieldType::IntList(8) | FieldType::UIntList(8))
            && self.place == FieldPlace::Inline
            && self.endian == Endian::Little
            && self.size.is_multiple_of(8);
        is_words.then_some((self.offset as usize, self.size as usize / 8))
    }

    /// Decodes the field's value in this payload.
    #[inline]
    pub fn decode<'a>(&self, payload: &'a [u8]) -> Value<'a> {
        macro_rules! load {
            ($type:ident, $variant:ident) => {
                match array_at(payload, self.offset as usize) {
                    Some(bytes) => Value::$variant(Endian::Little.$type(bytes).into()),
                    None => Value::Null,
                }
            };
        }
        match self.code {
            Code::U8 => load!(u8, UInt),
            Code::U16 => load!(u16, UInt),
            Code::U32 => load!(u32, UInt),
            Code::U64 => load!(u64, UInt),
            Code::I8 => load!(i8, Int),
            Code::I16 => load!(i16, Int),
            Code::I32 => load!(i32, Int),
            Code::I64 => load!(i64, Int),
            Code::Text => match range(payload, self.offset, self.size) {
                Some(text) => Value::Bytes(text_of(text)),
                None => Value::Null,
            },
            Code::DynamicText => match Endian::Little.u32_at(payload, self.offset as usize) {
                // Even an empty string has its NUL: a probe could not read this one, which the kernel prints as (fault).
                Some(word) if word >> 16 == 0 => Value::Null,
                Some(word) => match range(payload, word & 0xffff, word >> 16) {
                    Some(text) => Value::Bytes(text_of(text)),
                    None => Value::Null,
                },
                None => Value::Null,
            },
            Code::Other => self.decode_any(payload),
            Code::Null => Value::Null,
        }
    }

    #[inline]
    fn decode_any<'a>(&self, payload: &'a [u8]) -> Value<'a> {
        let Some(bytes) = self.bytes(payload) else {
            return Value::Null;
        };
        match self.kind {
            FieldType::Bool => Value::Bool(bytes.iter().any(|&byte| byte != 0)),
            FieldType::Int(width) => match bytes.get(..usize::from(width)) {
                Some(bytes) => {
                    let shift = 64u32.saturating_sub(8 * u32::from(width)).min(63);
                    Value::Int(((self.endian.unsigned(bytes) << shift) as i64) >> shift)
                }
                None => Value::Null,
            },
            FieldType::UInt(width) => match bytes.get(..usize::from(width)) {
                Some(bytes) => Value::UInt(self.endian.unsigned(bytes)),
                None => Value::Null,
            },
            FieldType::Float => match bytes.len() {
                4 => Value::Float(f32::from_bits(self.endian.unsigned(bytes) as u32).into()),
                8 => Value::Float(f64::from_bits(self.endian.unsigned(bytes))),
                _ => Value::Null,
            },
            FieldType::Text if bytes.is_empty() && self.place != FieldPlace::Rest => Value::Null,
            FieldType::Text => Value::Bytes(text_of(bytes)),
            FieldType::Binary | FieldType::TextList => Value::Bytes(bytes),
            FieldType::IntList(width) | FieldType::UIntList(width) => {
                if width == 0 || width > 8 {
                    return Value::Null;
                }
                Value::Array(Array {
                    bytes,
                    width,
                    endian: self.endian,
                })
            }
        }
    }

    /// Returns the bytes of the value.
    #[inline]
    fn bytes<'a>(&self, payload: &'a [u8]) -> Option<&'a [u8]> {
        match self.place {
            FieldPlace::Inline => range(payload, self.offset, self.size),
            FieldPlace::DataLoc => {
                let word = self.word(payload)?;
                range(payload, word & 0xffff, word >> 16)
            }
            FieldPlace::RelLoc => {
                let word = self.word(payload)?;
                let base = self.offset.checked_add(4)?;
                range(payload, base.checked_add(word & 0xffff)?, word >> 16)
            }
            FieldPlace::Rest => payload.get(self.offset as usize..),
        }
    }

    #[inline]
    fn word(&self, payload: &[u8]) -> Option<u32> {
        self.endian.u32_at(payload, self.offset as usize)
    }
}

fn code_of(kind: FieldType, layout: Layout, endian: Endian) -> Code {
    if endian == Endian::Big {
        return Code::Other;
    }
    match (layout.place, kind, layout.size) {
        (FieldPlace::Inline, FieldType::UInt(1), 1) => Code::U8,
        (FieldPlace::Inline, FieldType::UInt(2), 2) => Code::U16,
        (FieldPlace::Inline, FieldType::UInt(4), 4) => Code::U32,
        (FieldPlace::Inline, FieldType::UInt(8), 8) => Code::U64,
        (FieldPlace::Inline, FieldType::Int(1), 1) => Code::I8,
        (FieldPlace::Inline, FieldType::Int(2), 2) => Code::I16,
        (FieldPlace::Inline, FieldType::Int(4), 4) => Code::I32,
        (FieldPlace::Inline, FieldType::Int(8), 8) => Code::I64,
        (FieldPlace::Inline, FieldType::Text, _) => Code::Text,
        (FieldPlace::DataLoc, FieldType::Text, _) => Code::DynamicText,
        _ => Code::Other,
    }
}

#[inline]
fn range(payload: &[u8], offset: u32, size: u32) -> Option<&[u8]> {
    payload.get(offset as usize..)?.get(..size as usize)
}

/// Truncates a string at its NUL. Most strings have 16 bytes (comm); at that size, a plain loop is faster than
/// `memchr`.
#[inline]
fn text_of(bytes: &[u8]) -> &[u8] {
    before_nul(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(kind: FieldType, offset: u32, size: u32, place: FieldPlace) -> Field {
        Field {
            name: "f".into(),
            kind,
            layout: Some(Layout {
                offset,
                size,
                place,
            }),
            declaration: String::new(),
        }
    }

    #[track_caller]
    fn check(kind: FieldType, offset: u32, size: u32, place: FieldPlace, expected: Value<'_>) {
        // 2: -2i32; 6: "ab\0c"; 10: data_loc (offset 18, length 3); 14: rel_loc (offset 0, length 3); 18: "xy\0"
        let little = b"\x01\x02\xfe\xff\xff\xffab\0c\x12\0\x03\0\0\0\x03\0xy\0";
        let field = field(kind, offset, size, place);
        assert_eq!(decode_field(&field, little, Endian::Little), expected);
        for length in 0..little.len() {
            decode_field(&field, &little[..length], Endian::Little); // must not panic
        }
    }

    #[test]
    fn decodes_in_place() {
        use FieldPlace::*;
        check(FieldType::UInt(1), 1, 1, Inline, Value::UInt(2));
        check(FieldType::Int(4), 2, 4, Inline, Value::Int(-2));
        check(FieldType::UInt(4), 2, 4, Inline, Value::UInt(0xffff_fffe));
        check(FieldType::Int(2), 2, 4, Inline, Value::Int(-2));
        check(FieldType::Text, 6, 4, Inline, Value::Bytes(b"ab"));
        check(FieldType::Binary, 6, 4, Inline, Value::Bytes(b"ab\0c"));
        check(FieldType::Bool, 0, 1, Inline, Value::Bool(true));
        check(FieldType::UInt(8), 18, 8, Inline, Value::Null);
        check(FieldType::UInt(8), u32::MAX, 8, Inline, Value::Null);
        check(FieldType::Binary, 4, u32::MAX, Inline, Value::Null);
    }

    #[test]
    fn contexts_of_payloads() {
        let plan = Plan::default();
        let of = |bytes: &[u8]| Payload { bytes, plan: &plan }.context();
        let contexts = [0x00, 0x11, 0x18, 0x49].map(|flags| of(&[1, 0, flags, 0, 0, 0, 0, 0]));
        let expected = [Context::Task, Context::Softirq, Context::Irq, Context::Nmi];
        assert_eq!(contexts, expected.map(Some));
        assert_eq!(of(&[1, 0]), None);
    }

    #[test]
    fn follows_locations() {
        use FieldPlace::*;
        check(FieldType::Text, 10, 4, DataLoc, Value::Bytes(b"xy"));
        check(FieldType::Binary, 10, 4, DataLoc, Value::Bytes(b"xy\0"));
        check(FieldType::Text, 14, 4, RelLoc, Value::Bytes(b"xy"));
        check(FieldType::Text, 18, 0, Rest, Value::Bytes(b"xy"));
        check(FieldType::Text, u32::MAX, 4, RelLoc, Value::Null);
        check(FieldType::Text, 2, 4, DataLoc, Value::Null);
        // Length 0: the kernel could not read the string.
        check(FieldType::Text, 12, 4, DataLoc, Value::Null);
        check(FieldType::Text, 12, 4, RelLoc, Value::Null);
    }

    #[test]
    fn reads_lists_in_both_orders() {
        let numbers = field(FieldType::IntList(2), 1, 4, FieldPlace::Inline);
        let bytes = b"\0\xff\xfe\x01\x02";
        let list = |endian| match decode_field(&numbers, bytes, endian) {
            Value::Array(array) => array.signed().collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        assert_eq!(list(Endian::Little), [-257, 0x201]);
        assert_eq!(list(Endian::Big), [-2, 0x102]);
        let long = field(FieldType::UInt(8), 0, 8, FieldPlace::Inline);
        let value = decode_field(&long, &[0, 0, 0, 0, 0, 0, 1, 2], Endian::Big);
        assert_eq!(value, Value::UInt(0x102));
    }
}
