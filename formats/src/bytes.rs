//! Checked cursor over a slice: the only way to take a number out of foreign bytes.
//!
//! Each read checks what is left, knows where it stands, and swaps the byte order where the input
//! asks for it. Nothing here allocates, so no length from an input can make memory grow.

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
            Ok(match self.endian {
                Endian::Little => <$type>::from_le_bytes(*bytes),
                Endian::Big => <$type>::from_be_bytes(*bytes),
            })
        }
    };
}

impl<'a> Cursor<'a> {
    /// Stands at the first byte of `bytes`, which is at `offset` of the input.
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
    pub fn part(&mut self, count: u64) -> Result<Cursor<'a>, Short> {
        let (offset, endian) = (self.offset, self.endian);
        Ok(Cursor::new(self.bytes(count)?, offset, endian))
    }

    /// Takes text up to a NUL, which is taken too; without one, all that is left.
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
