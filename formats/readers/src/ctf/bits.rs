//! Integers of 1 to 64 bits at any bit.
//!
//! ```text
//! bytes  b3 5a      5 bits at bit 0:  low bits first 0x13, high bits first 0x16
//! ```

use perfquet_events::bytes::Endian;

/// The integer at a bit offset; `None` if the bytes end before or inside of it.
#[inline]
pub(super) fn unsigned(bytes: &[u8], at: u64, size: u32, endian: Endian) -> Option<u64> {
    let start = usize::try_from(at / 8).ok()?;
    let shift = (at % 8) as u32;
    let rest = bytes.get(start..)?;
    if shift == 0 && size.is_multiple_of(8) {
        return Some(endian.unsigned(rest.get(..(size / 8) as usize)?));
    }
    let bits = shift + size;
    let whole = rest.get(..bits.div_ceil(8) as usize)?;
    let mask = u64::MAX >> (64 - size.clamp(1, 64));
    let first = whole.get(..whole.len().min(8)).unwrap_or_default();
    let ninth = whole.get(8).copied().map(u64::from);
    let low = endian.unsigned(first);
    let value = match (endian, ninth) {
        (Endian::Little, None) => low >> shift,
        (Endian::Little, Some(ninth)) => low >> shift | ninth << (64 - shift),
        (Endian::Big, None) => low >> (first.len() as u32 * 8 - bits),
        (Endian::Big, Some(ninth)) => low << (bits - 64) | ninth >> (72 - bits),
    };
    Some(value & mask)
}

/// Extends the sign of an integer.
#[inline]
pub(super) fn signed(value: u64, size: u32) -> i64 {
    let shift = 64 - size.clamp(1, 64);
    (value << shift).cast_signed() >> shift
}

/// The full number of cycles after `last` whose low bits are `value`.
#[inline]
pub(super) fn extended(last: u64, value: u64, size: u32) -> u64 {
    if size >= 64 {
        return value;
    }
    let span = 1_u64 << size;
    let cycles = last & !(span - 1) | value;
    match cycles < last {
        true => cycles.wrapping_add(span),
        false => cycles,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit by bit.
    fn slow(bytes: &[u8], at: u64, size: u32, endian: Endian) -> Option<u64> {
        let mut value = 0;
        for number in 0..u64::from(size) {
            let place = at + number;
            let byte = u64::from(*bytes.get((place / 8) as usize)?);
            match endian {
                Endian::Little => value |= (byte >> (place % 8) & 1) << number,
                Endian::Big => value = value << 1 | byte >> (7 - place % 8) & 1,
            }
        }
        Some(value)
    }

    #[test]
    fn integers_of_every_size_at_every_bit() {
        let bytes: Vec<u8> = (0..20_u8).map(|n| n.wrapping_mul(73) ^ 0xa5).collect();
        for endian in [Endian::Little, Endian::Big] {
            for at in 0..160 {
                for size in 1..=64 {
                    // Whole bytes in low-bits-first order are the bits in order, too.
                    let expected = slow(&bytes, at, size, endian);
                    assert_eq!(unsigned(&bytes, at, size, endian), expected, "{at} {size}");
                }
            }
        }
        assert_eq!(unsigned(&bytes, u64::MAX, 8, Endian::Little), None);
    }

    #[test]
    fn signs_and_clocks() {
        assert_eq!(signed(0x1f, 5), -1);
        assert_eq!(signed(0x0f, 5), 15);
        assert_eq!(signed(u64::MAX, 64), -1);
        assert_eq!(extended(0x1_0010, 0x20, 8), 0x1_0020);
        assert_eq!(extended(0x1_00f0, 0x20, 8), 0x1_0120);
        assert_eq!(extended(7, 7, 27), 7);
        assert_eq!(extended(99, 5, 64), 5);
        assert_eq!(extended(u64::MAX, 0, 8), 0);
    }
}
