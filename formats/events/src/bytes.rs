//! Numbers out of foreign bytes: this file alone puts bytes together, and the tidy test holds that.
//!
//! [`Cursor`] goes through a slice: each read checks what is left, knows where it stands, and swaps the byte order where
//! the input asks for it. [`Endian`] does the same at one place of a slice, for records whose members lie at known
//! offsets. Nothing here allocates, so no length from an input can make memory grow.

use std::fmt;

/// Byte order of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Endian {
    /// Least significant byte first.
    #[default]
    Little,
    /// Most significant byte first.
    Big,
}

macro_rules! endian_number {
    ($name:ident, $doc:literal) => {
        #[doc = $doc]
        #[inline]
        pub fn $name(self, bytes: [u8; size_of::<$name>()]) -> $name {
            match self {
                Endian::Little => $name::from_le_bytes(bytes),
                Endian::Big => $name::from_be_bytes(bytes),
            }
        }
    };
}

impl Endian {
    /// The order of an input that is said to be big-endian, or not.
    #[inline]
    pub fn of(is_big: bool) -> Endian {
        match is_big {
            true => Endian::Big,
            false => Endian::Little,
        }
    }

    endian_number!(u8, "The byte, for code that is the same for all widths.");
    endian_number!(u16, "The unsigned number in these bytes.");
    endian_number!(u32, "The unsigned number in these bytes.");
    endian_number!(u64, "The unsigned number in these bytes.");
    endian_number!(i8, "The signed number in this byte.");
    endian_number!(i16, "The signed number in these bytes.");
    endian_number!(i32, "The signed number in these bytes.");
    endian_number!(i64, "The signed number in these bytes.");

    /// The unsigned number in up to 8 bytes; more are not looked at.
    #[inline]
    pub fn unsigned(self, bytes: &[u8]) -> u64 {
        // Arrays of arguments are of this kind, and each element comes through here.
        if let (Endian::Little, Ok(bytes)) = (self, bytes.try_into()) {
            return self.u64(bytes);
        }
        let add = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        match self {
            Endian::Little => bytes.iter().take(8).rev().fold(0, add),
            Endian::Big => bytes.iter().take(8).fold(0, add),
        }
    }

    /// The unsigned 16-bit number at `offset`, if it is whole.
    #[inline]
    pub fn u16_at(self, bytes: &[u8], offset: usize) -> Option<u16> {
        Some(self.u16(array_at(bytes, offset)?))
    }

    /// The unsigned 32-bit number at `offset`, if it is whole.
    #[inline]
    pub fn u32_at(self, bytes: &[u8], offset: usize) -> Option<u32> {
        Some(self.u32(array_at(bytes, offset)?))
    }

    /// The unsigned 64-bit number at `offset`, if it is whole.
    #[inline]
    pub fn u64_at(self, bytes: &[u8], offset: usize) -> Option<u64> {
        Some(self.u64(array_at(bytes, offset)?))
    }
}

/// `N` bytes at `offset`, if they are there.
#[inline]
pub fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

/// More bytes were expected than are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Short {
    /// Offset in the input where they were expected.
    pub offset: u64,
    /// How many.
    pub wanted: u64,
    /// How many are left.
    pub left: u64,
}

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {} bytes, found {}", self.wanted, self.left)
    }
}

/// A place in a slice, and the byte order to read it in.
#[derive(Debug, Clone, Copy)]
pub struct Cursor<'a> {
    rest: &'a [u8],
    /// Offset of `rest` in the input.
    offset: u64,
    endian: Endian,
}

macro_rules! number {
    ($name:ident, $type:ty, $doc:literal) => {
        #[doc = $doc]
        #[inline]
        pub fn $name(&mut self) -> Result<$type, Short> {
            const SIZE: usize = size_of::<$type>();
            let Some((bytes, rest)) = self.rest.split_first_chunk::<SIZE>() else {
                return Err(self.short(SIZE as u64));
            };
            self.rest = rest;
            self.offset += SIZE as u64;
            Ok(self.endian.$name(*bytes))
        }
    };
}

impl<'a> Cursor<'a> {
    /// Stands at the first byte of `bytes`, which is at `offset` of the input.
    #[inline]
    pub fn new(bytes: &'a [u8], offset: u64, endian: Endian) -> Self {
        Cursor {
            rest: bytes,
            offset,
            endian,
        }
    }

    number!(u8, u8, "Takes a byte.");
    number!(u16, u16, "Takes an unsigned 16-bit number.");
    number!(u32, u32, "Takes an unsigned 32-bit number.");
    number!(u64, u64, "Takes an unsigned 64-bit number.");
    number!(i32, i32, "Takes a signed 32-bit number.");
    number!(i64, i64, "Takes a signed 64-bit number.");

    /// Takes `count` bytes.
    #[inline]
    pub fn bytes(&mut self, count: u64) -> Result<&'a [u8], Short> {
        match usize::try_from(count)
            .ok()
            .and_then(|count| self.rest.split_at_checked(count))
        {
            Some((bytes, rest)) => {
                self.rest = rest;
                self.offset += count;
                Ok(bytes)
            }
            None => Err(self.short(count)),
        }
    }

    /// Takes `count` bytes as a cursor of its own.
    #[inline]
    pub fn part(&mut self, count: u64) -> Result<Cursor<'a>, Short> {
        let (offset, endian) = (self.offset, self.endian);
        Ok(Cursor::new(self.bytes(count)?, offset, endian))
    }

    /// Takes text up to a NUL, which is taken too; without one, all that is left.
    #[inline]
    pub fn text_to_nul(&mut self) -> &'a [u8] {
        let text = before_nul(self.rest);
        let used = (text.len() + 1).min(self.rest.len());
        self.rest = self.rest.get(used..).unwrap_or_default();
        self.offset += used as u64;
        text
    }

    /// What is left, without taking it.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// How many bytes are left.
    #[inline]
    pub fn left(&self) -> u64 {
        self.rest.len() as u64
    }

    /// Whether nothing is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Offset in the input.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Byte order.
    #[inline]
    pub fn endian(&self) -> Endian {
        self.endian
    }

    #[cold]
    fn short(&self, wanted: u64) -> Short {
        Short {
            offset: self.offset,
            wanted,
            left: self.left(),
        }
    }
}

/// The part of `text` before its first NUL.
#[inline]
pub fn before_nul(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_at_a_place_are_whole_or_none() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        assert_eq!(Endian::Little.u16_at(&bytes, 7), Some(0x0908));
        assert_eq!(Endian::Big.u16_at(&bytes, 7), Some(0x0809));
        assert_eq!(Endian::Little.u32_at(&bytes, 5), Some(0x0908_0706));
        assert_eq!(Endian::Big.u64_at(&bytes, 1), Some(0x0203_0405_0607_0809));
        assert_eq!(Endian::Little.u16_at(&bytes, 8), None);
        assert_eq!(Endian::Little.u32_at(&bytes, 6), None);
        assert_eq!(Endian::Big.u64_at(&bytes, 2), None);
        assert_eq!(Endian::Big.u64_at(&bytes, usize::MAX), None);
        assert_eq!(Endian::Little.unsigned(&bytes[..3]), 0x03_0201);
        assert_eq!(Endian::Big.unsigned(&bytes[..3]), 0x01_0203);
        assert_eq!(Endian::Big.unsigned(&bytes), 0x0102_0304_0506_0708);
        assert_eq!(Endian::Little.unsigned(&[]), 0);
        assert_eq!(Endian::Little.i32([0xfe, 0xff, 0xff, 0xff]), -2);
    }
}
