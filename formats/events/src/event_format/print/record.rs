//! One event's fields, from the kernel's payload or from typed values.

use std::borrow::Cow;

use super::number::Number;
use crate::bytes::{Endian, before_nul};
use crate::event::{Field, FieldPlace, FieldType, Fields, Layout, Value};

/// The fields of one event to print.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// The event type's fields.
    pub fields: &'a [Field],
    /// Their values.
    pub values: Fields<'a>,
    /// Byte order of a raw payload.
    pub big_endian: bool,
}

impl<'a> Record<'a> {
    /// Returns the byte order of [`Record::bytes`].
    pub(super) fn big_endian(&self) -> bool {
        self.big_endian && matches!(self.values, Fields::Raw(_))
    }

    /// Decodes at most 8 `bytes` as a number.
    pub(super) fn integer(&self, bytes: &[u8], signed: bool) -> Number {
        let unused = 64 - 8 * bytes.len().clamp(1, 8) as u32;
        let bits = Endian::of(self.big_endian()).unsigned(bytes);
        match signed {
            true => Number::signed(((bits << unused) as i64 >> unused) as u64),
            false => Number::unsigned(bits),
        }
    }

    /// Returns the field as a number. Strings and lists are addresses in C, and therefore true.
    pub(super) fn number(&self, index: usize) -> Number {
        let Some(field) = self.fields.get(index) else {
            return Number::default();
        };
        let signed = matches!(field.kind, FieldType::Int(_));
        match field.kind {
            FieldType::Bool | FieldType::Int(_) | FieldType::UInt(_) | FieldType::Float => {}
            FieldType::Text
            | FieldType::Binary
            | FieldType::IntList(_)
            | FieldType::UIntList(_)
            | FieldType::TextList => return Number::unsigned(1),
        }
        match self.values {
            Fields::None => Number::default(),
            Fields::Raw(payload) => match field
                .layout
                .and_then(|layout| place(layout, payload.bytes, self.big_endian))
            {
                Some(bytes) => self.integer(bytes, signed),
                None => Number::default(),
            },
            Fields::Values(values) => match values.get(index) {
                Some(Value::Bool(truth)) => Number::unsigned(u64::from(*truth)),
                Some(Value::Int(value)) => Number::signed(*value as u64),
                Some(Value::UInt(value)) => Number::unsigned(*value),
                Some(Value::Float(value)) => Number::signed(*value as i64 as u64),
                _ => Number::default(),
            },
        }
    }

    /// Returns the bytes of the field, or those that it points to.
    pub(super) fn bytes(&self, index: usize) -> Option<Cow<'a, [u8]>> {
        let field = self.fields.get(index)?;
        match self.values {
            Fields::None => None,
            Fields::Raw(payload) => {
                place(field.layout?, payload.bytes, self.big_endian).map(Cow::Borrowed)
            }
            Fields::Values(values) => {
                let width = usize::from(self.element(index).0.clamp(1, 8));
                let low = |value: u64| value.to_le_bytes().into_iter().take(width);
                Some(match values.get(index)? {
                    Value::Bytes(bytes) => Cow::Borrowed(*bytes),
                    Value::Int(value) => low(*value as u64).collect::<Vec<u8>>().into(),
                    Value::UInt(value) => low(*value).collect::<Vec<u8>>().into(),
                    Value::IntList(list) => list
                        .iter()
                        .flat_map(|value| low(*value as u64))
                        .collect::<Vec<u8>>()
                        .into(),
                    Value::UIntList(list) => list
                        .iter()
                        .flat_map(|value| low(*value))
                        .collect::<Vec<u8>>()
                        .into(),
                    Value::Array(list) => {
                        let numbers = list.unsigned().flat_map(low);
                        numbers.collect::<Vec<u8>>().into()
                    }
                    Value::Null | Value::Bool(_) | Value::Float(_) | Value::TextList(_) => {
                        return None;
                    }
                })
            }
        }
    }

    /// Returns width and sign of the field's elements.
    pub(super) fn element(&self, index: usize) -> (u8, bool) {
        match self.fields.get(index).map(|field| field.kind) {
            Some(FieldType::Int(width) | FieldType::IntList(width)) => (width, true),
            Some(FieldType::UInt(width) | FieldType::UIntList(width)) => (width, false),
            Some(FieldType::Float) => (8, true),
            Some(FieldType::Bool | FieldType::Text | FieldType::Binary | FieldType::TextList)
            | None => (1, false),
        }
    }

    /// Prints the field as `%s` does: up to a NUL; a pointer as its address, because the string was not recorded.
    pub(super) fn text(&self, index: usize, out: &mut Vec<u8>) {
        let kind = self.fields.get(index).map(|field| field.kind);
        match kind {
            Some(FieldType::Bool | FieldType::Int(_) | FieldType::UInt(_) | FieldType::Float) => {
                let value = self.number(index).bits;
                out.extend_from_slice(format!("{value:x}").as_bytes());
            }
            _ => {
                let bytes = self.bytes(index).unwrap_or_default();
                out.extend_from_slice(before_nul(&bytes));
            }
        }
    }

    /// Appends ` name=value` for each field with a value, as libtraceevent prints an event whose format it cannot
    /// parse.
    pub fn pairs(&self, out: &mut Vec<u8>) {
        for (index, field) in self.fields.iter().enumerate() {
            // The kernel does not print its common fields.
            if field.name.starts_with("common_") {
                continue;
            }
            if let Fields::Values(values) = self.values
                && matches!(values.get(index), None | Some(Value::Null))
            {
                continue;
            }
            out.extend_from_slice(format!(" {}=", field.name).as_bytes());
            self.pair(index, field, out);
        }
    }

    fn pair(&self, index: usize, field: &Field, out: &mut Vec<u8>) {
        let is_long = field.declaration.split(' ').any(|word| word == "long");
        let text = match field.kind {
            FieldType::Bool | FieldType::Int(_) | FieldType::UInt(_) | FieldType::Float => {
                let number = self.number(index);
                if field.declaration.contains('*') || is_long && number.unsigned {
                    format!("{:#x}", number.bits)
                } else if number.unsigned {
                    number.bits.to_string()
                } else {
                    (number.bits as i64).to_string()
                }
            }
            FieldType::Text | FieldType::TextList => {
                let bytes = self.bytes(index).unwrap_or_default();
                out.extend_from_slice(before_nul(&bytes));
                return;
            }
            FieldType::Binary | FieldType::IntList(_) | FieldType::UIntList(_) => {
                out.extend_from_slice(b"ARRAY[");
                super::address::hex(&self.bytes(index).unwrap_or_default(), ", ", out);
                "]".to_owned()
            }
        };
        out.extend_from_slice(text.as_bytes());
    }
}

/// Returns the bytes of a payload at `layout`; `None` if they are out of bounds.
fn place(layout: Layout, payload: &[u8], big_endian: bool) -> Option<&[u8]> {
    let start = usize::try_from(layout.offset).ok()?;
    let from_here = payload.get(start..)?;
    if layout.place == FieldPlace::Rest {
        return Some(from_here);
    }
    let own = from_here.get(..usize::try_from(layout.size).ok()?)?;
    let base = match layout.place {
        FieldPlace::Inline => return Some(own),
        FieldPlace::DataLoc => 0,
        FieldPlace::RelLoc => start.checked_add(own.len())?,
        FieldPlace::Rest => return Some(from_here),
    };
    let word = Endian::of(big_endian).u32_at(own, 0)?;
    let (offset, length) = ((word & 0xffff) as usize, (word >> 16) as usize);
    payload.get(base.checked_add(offset)?..)?.get(..length)
}
