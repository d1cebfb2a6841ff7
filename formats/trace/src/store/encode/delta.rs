//! DELTA_BINARY_PACKED: times and row IDs, whose differences are small.
//!
//! ```text
//! head:   128 values in a block, 4 miniblocks, number of values, the first one (zigzag)
//! block:  smallest difference (zigzag), 4 widths, 4 × 32 differences less the smallest, bit-packed
//! ```
//! Differences wrap, so that any values can be encoded.
//! <https://parquet.apache.org/docs/file-format/data-pages/encodings/#DELTAENC>

use super::hybrid::write_varint;

const BLOCK: usize = 128;
const MINIBLOCK: usize = 32;

/// Appends 64-bit values.
pub(super) fn encode_wide(values: &[u64], output: &mut Vec<u8>) {
    encode::<false>(values.iter().map(|&value| value as i64), output);
}

/// Appends 32-bit values. Their differences wrap at 32 bits: no reader expects wider ones in an INT32 column.
pub(super) fn encode_narrow(values: &[u32], output: &mut Vec<u8>) {
    encode::<true>(values.iter().map(|&value| i64::from(value as i32)), output);
}

fn encode<const NARROW: bool>(
    mut values: impl ExactSizeIterator<Item = i64>,
    output: &mut Vec<u8>,
) {
    write_varint(BLOCK as u64, output);
    write_varint((BLOCK / MINIBLOCK) as u64, output);
    write_varint(values.len() as u64, output);
    let mut last = values.next().unwrap_or(0);
    write_varint(zigzag(last), output);
    let mut differences = [0; BLOCK];
    while values.len() > 0 {
        let mut count = 0;
        for (place, value) in differences.iter_mut().zip(values.by_ref().take(BLOCK)) {
            *place = subtract::<NARROW>(value, last);
            last = value;
            count += 1;
        }
        write_block::<NARROW>(&mut differences, count, output);
    }
}

fn write_block<const NARROW: bool>(
    differences: &mut [i64; BLOCK],
    count: usize,
    output: &mut Vec<u8>,
) {
    let (used, unused) = differences.split_at_mut(count);
    let smallest = used.iter().copied().min().unwrap_or(0);
    write_varint(zigzag(smallest), output);
    for place in used {
        *place = subtract::<NARROW>(*place, smallest);
    }
    unused.fill(0);
    let (miniblocks, _) = differences.as_chunks::<MINIBLOCK>();
    let mut widths = [0; BLOCK / MINIBLOCK];
    for (width, miniblock) in widths.iter_mut().zip(miniblocks) {
        let bits = miniblock
            .iter()
            .fold(0, |bits, &d| bits | bits_of::<NARROW>(d));
        *width = (u64::BITS - bits.leading_zeros()) as u8;
    }
    output.extend_from_slice(&widths);
    let begun = count.div_ceil(MINIBLOCK);
    for (&width, miniblock) in widths.iter().zip(miniblocks).take(begun) {
        pack::<NARROW>(miniblock, u32::from(width), output);
    }
}

#[inline]
fn subtract<const NARROW: bool>(a: i64, b: i64) -> i64 {
    let difference = a.wrapping_sub(b);
    if NARROW {
        i64::from(difference as i32)
    } else {
        difference
    }
}

/// Encodes a difference minus the smallest one, as unsigned, in the column's width.
#[inline]
fn bits_of<const NARROW: bool>(difference: i64) -> u64 {
    if NARROW {
        u64::from(difference as u32)
    } else {
        difference as u64
    }
}

fn pack<const NARROW: bool>(miniblock: &[i64; MINIBLOCK], width: u32, output: &mut Vec<u8>) {
    let mut bits: u128 = 0;
    let mut count = 0;
    for &difference in miniblock {
        bits |= u128::from(bits_of::<NARROW>(difference)) << count;
        count += width;
        if count >= 64 {
            output.extend_from_slice(&(bits as u64).to_le_bytes());
            bits >>= 64;
            count -= 64;
        }
    }
    // 32 values of any width fill whole bytes.
    let rest = (bits as u64).to_le_bytes();
    output.extend_from_slice(rest.get(..count as usize / 8).unwrap_or_default());
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}
