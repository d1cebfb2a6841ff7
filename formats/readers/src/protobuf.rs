//! Messages of protocol buffers, field by field and without a schema.
//!
//! ```text
//! 0a 04 08 01 10 02      field 1, 4 bytes: { field 1: 1, field 2: 2 }
//! ```
//! Specification: <https://protobuf.dev/programming-guides/encoding>. Groups are damage: no format here has them.

use perfquet_events::bytes::Endian;

/// Fields of a message, in order. After damage, there are no more.
#[derive(Debug, Clone)]
pub(crate) struct Message<'a> {
    bytes: &'a [u8],
    place: usize,
    /// Offset of the message in the input.
    base: u64,
    is_damaged: bool,
}

/// A field with its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field<'a> {
    pub(crate) number: u64,
    pub(crate) value: Value<'a>,
    /// Offset of the value in the input.
    pub(crate) offset: u64,
}

/// A value as it is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Number(u64),
    Fixed64(u64),
    Fixed32(u32),
    /// A string, a message, or packed numbers.
    Bytes(&'a [u8]),
}

/// Where a message is damaged, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Damage {
    pub(crate) offset: u64,
    pub(crate) message: &'static str,
}

impl<'a> Message<'a> {
    /// The message in `bytes`, which have `offset` in the input.
    pub(crate) fn new(bytes: &'a [u8], offset: u64) -> Message<'a> {
        Message {
            bytes,
            place: 0,
            base: offset,
            is_damaged: false,
        }
    }

    /// Number of bytes read.
    pub(crate) fn place(&self) -> usize {
        self.place
    }

    fn field(&mut self) -> Result<Field<'a>, &'static str> {
        let key = self.number().ok_or("expected the number of a field")?;
        let number = key >> 3;
        if number == 0 || number >= 1 << 29 {
            return Err("expected the number of a field");
        }
        let start = self.place;
        let value = match key & 7 {
            0 => Value::Number(self.number().ok_or("expected a number")?),
            1 => {
                let value = Endian::Little.u64_at(self.bytes, start);
                self.place += 8;
                Value::Fixed64(value.ok_or("expected 8 bytes")?)
            }
            5 => {
                let value = Endian::Little.u32_at(self.bytes, start);
                self.place += 4;
                Value::Fixed32(value.ok_or("expected 4 bytes")?)
            }
            2 => {
                let length = self.number().ok_or("expected the length of a field")?;
                let end = usize::try_from(length)
                    .ok()
                    .and_then(|length| self.place.checked_add(length));
                let bytes = end.and_then(|end| self.bytes.get(self.place..end));
                let bytes = bytes.ok_or("a field is longer than its message")?;
                let offset = self.base + self.place as u64;
                self.place += bytes.len();
                return Ok(Field {
                    number,
                    value: Value::Bytes(bytes),
                    offset,
                });
            }
            _ => return Err("expected the type of a field"),
        };
        Ok(Field {
            number,
            value,
            offset: self.base + start as u64,
        })
    }

    fn number(&mut self) -> Option<u64> {
        let (value, length) = number(self.bytes.get(self.place..)?)?;
        self.place += length;
        Some(value)
    }
}

impl<'a> Iterator for Message<'a> {
    type Item = Result<Field<'a>, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_damaged || self.place >= self.bytes.len() {
            return None;
        }
        let start = self.place;
        let field = self.field();
        self.is_damaged = field.is_err();
        let offset = self.base + start as u64;
        Some(field.map_err(|message| Damage { offset, message }))
    }
}

impl<'a> Value<'a> {
    /// The numbers of a repeated field: one, or packed. Those after damage are missing.
    pub(crate) fn numbers(self) -> impl Iterator<Item = u64> + use<'a> {
        let (one, mut packed) = match self {
            Value::Number(value) => (Some(value), &[][..]),
            Value::Bytes(bytes) => (None, bytes),
            Value::Fixed64(value) => (Some(value), &[][..]),
            Value::Fixed32(value) => (Some(u64::from(value)), &[][..]),
        };
        one.into_iter().chain(std::iter::from_fn(move || {
            let (value, length) = number(packed)?;
            packed = packed.get(length..)?;
            Some(value)
        }))
    }

    /// The bytes of a string or message.
    pub(crate) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Value::Bytes(bytes) => Some(bytes),
            Value::Number(_) | Value::Fixed64(_) | Value::Fixed32(_) => None,
        }
    }

    /// A number of variable length.
    pub(crate) fn number(self) -> Option<u64> {
        match self {
            Value::Number(value) => Some(value),
            Value::Bytes(_) | Value::Fixed64(_) | Value::Fixed32(_) => None,
        }
    }
}

/// A number of variable length, and its number of bytes.
fn number(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (place, byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some((value, place + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        let bytes = [
            0x0a, 2, b'h', b'i', 0x10, 0xac, 0x02, 0x19, 1, 0, 0, 0, 0, 0, 0, 0,
        ];
        let found: Vec<_> = Message::new(&bytes, 100).map(Result::unwrap).collect();
        let field = |number, value, offset| Field {
            number,
            value,
            offset,
        };
        assert_eq!(
            found,
            [
                field(1, Value::Bytes(b"hi"), 102),
                field(2, Value::Number(300), 105),
                field(3, Value::Fixed64(1), 108),
            ]
        );
        assert_eq!(
            Value::Bytes(&[1, 0xac, 2, 0x80])
                .numbers()
                .collect::<Vec<_>>(),
            [1, 300]
        );
    }

    #[test]
    fn damage() {
        let check = |bytes: &[u8], offset, message| {
            let found = Message::new(bytes, 0).last().unwrap();
            assert_eq!(found, Err(Damage { offset, message }));
        };
        check(
            &[0x08, 1, 0x0a, 5, 1],
            2,
            "a field is longer than its message",
        );
        check(&[0x0b], 0, "expected the type of a field");
        check(&[0x00], 0, "expected the number of a field");
        check(&[0x08, 0xff], 0, "expected a number");
        check(&[0x09, 1], 0, "expected 8 bytes");
        check(
            &[
                0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1,
            ],
            0,
            "a field is longer than its message",
        );
    }
}
