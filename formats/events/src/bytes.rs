//! Decoding of numbers from input bytes. No other file assembles bytes into numbers; a tidy test enforces this.
//!
//! [`Cursor`] reads a slice from front to back: each read checks the remaining length, tracks the offset, and converts
//! from the input's byte order. [`Endian`] reads at an offset, for records whose members have fixed positions. Nothing
//! here allocates, so no length field of an input can exhaust memory.

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
    /// Returns [`Endian::Big`] if `is_big`.
    #[inline]
    pub fn of(is_big: bool) -> Endian {
        match is_big {
            true => Endian::Big,
            false => Endian::Little,
        }
    }

    endian_number!(
        u8,
        "Decodes a byte, for code that is generic over the width."
    );
    endian_number!(u16, "Decodes an unsigned 16-bit number.");
    endian_number!(u32, "Decodes an unsigned 32-bit number.");
    endian_number!(u64, "Decodes an unsigned 64-bit number.");
    endian_number!(i8, "Decodes a signed byte.");
    endian_number!(i16, "Decodes a signed 16-bit number.");
    endian_number!(i32, "Decodes a signed 32-bit number.");
    endian_number!(i64, "Decodes a signed 64-bit number.");

    /// Decodes up to 8 bytes as an unsigned number; further bytes are ignored.
    #[inline]
    pub fn unsigned(self, bytes: &[u8]) -> u64 {
        // Fast path: every element of an argument array is decoded here.
        if let (Endian::Little, Ok(bytes)) = (self, bytes.try_into()) {
            return self.u64(bytes);
        }
        let add = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        match self {
            Endian::Little => bytes.iter().take(8).rev().fold(0, add),
            Endian::Big => bytes.iter().take(8).fold(0, add),
        }
    }

    /// Reads an unsigned 16-bit number at `offset`; `None` if the slice ends before or inside it.
    #[inline]
    pub fn u16_at(self, bytes: &[u8], offset: usize) -> Option<u16> {
        Some(self.u16(array_at(bytes, offset)?))
    }

    /// Reads an unsigned 32-bit number at `offset`; `None` if the slice ends before or inside it.
    #[inline]
    pub fn u32_at(self, bytes: &[u8], offset: usize) -> Option<u32> {
        Some(self.u32(array_at(bytes, offset)?))
    }

    /// Reads an unsigned 64-bit number at `offset`; `None` if the slice ends before or inside it.
    #[inline]
    pub fn u64_at(self, bytes: &[u8], offset: usize) -> Option<u64> {
        Some(self.u64(array_at(bytes, offset)?))
    }
}

/// Returns the `N` bytes at `offset`; `None` if the slice is too short.
#[inline]
pub fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

/// Fewer bytes are left than were expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Short {
    /// Offset in the input.
    pub offset: u64,
    /// Number of expected bytes.
    pub wanted: u64,
    /// Number of bytes left.
    pub left: u64,
}

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {} bytes, found {}", self.wanted, self.left)
    }
}

/// A position in a slice, with the byte order of the input.
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
    /// Starts at the first byte of `bytes`, which has `offset` in the input.
    #[inline]
    pub fn new(bytes: &'a [u8], offset: u64, endian: Endian) -> Self {
        Cursor {
            rest: bytes,
            offset,
            endian,
        }
    }

    number!(u8, u8, "Reads a byte.");
    number!(u16, u16, "Reads an unsigned 16-bit number.");
    number!(u32, u32, "Reads an unsigned 32-bit number.");
    number!(u64, u64, "Reads an unsigned 64-bit number.");
    number!(i32, i32, "Reads a signed 32-bit number.");
    number!(i64, i64, "Reads a signed 64-bit number.");

    /// Reads `count` bytes.
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

    /// Reads `count` bytes as a separate cursor.
    #[inline]
    pub fn part(&mut self, count: u64) -> Result<Cursor<'a>, Short> {
        let (offset, endian) = (self.offset, self.endian);
        Ok(Cursor::new(self.bytes(count)?, offset, endian))
    }

    /// Reads a string up to a NUL, and skips the NUL; without one, reads to the end.
    #[inline]
    pub fn text_to_nul(&mut self) -> &'a [u8] {
        let text = before_nul(self.rest);
        let used = (text.len() + 1).min(self.rest.len());
        self.rest = self.rest.get(used..).unwrap_or_default();
        self.offset += used as u64;
        text
    }

    /// Returns the remaining bytes without reading them.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns the number of bytes left.
    #[inline]
    pub fn left(&self) -> u64 {
        self.rest.len() as u64
    }

    /// Whether no bytes are left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the offset in the input.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the byte order.
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

/// Returns the part of `text` before its first NUL.
#[inline]
pub fn before_nul(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_at_an_offset_are_complete_or_none() {
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
