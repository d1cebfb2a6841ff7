//! RLE and bit-packing hybrid: keys of a dictionary, and levels.
//!
//! ```text
//! width 3, keys 5 5 5 5 5 5 5 5 5 5 1 2 3   →   14 05   (10 << 1: ten times 5)
//!                                               03 d1 00 00   (1 << 1 | 1: one group of 8, bit-packed)
//! ```
//! <https://parquet.apache.org/docs/file-format/data-pages/encodings/#RLE>

/// Bits that hold the numbers below `count`.
pub(super) fn width(count: usize) -> u32 {
    usize::BITS - count.saturating_sub(1).leading_zeros()
}

/// Appends `keys`, each below `1 << width`; width up to 16.
pub(super) fn encode(keys: &[u32], width: u32, output: &mut Vec<u8>) {
    // Not written yet: groups of 8 that are not all equal, then `rest`.
    let mut packed = keys;
    let mut rest = keys;
    while let Some((group, after)) = rest.split_first_chunk::<8>() {
        let [first, ..] = *group;
        if group.iter().any(|&key| key != first) {
            rest = after;
            continue;
        }
        let alike = after.iter().take_while(|&&key| key == first).count();
        let run = 8 + alike;
        pack_groups(before(packed, rest), width, output);
        write_varint((run as u64) << 1, output);
        write_value(first, width, output);
        rest = rest.get(run..).unwrap_or_default();
        packed = rest;
    }
    match packed {
        // One value, or several equal ones, at the end: a run is smaller than a group.
        [first, others @ ..] if others.iter().all(|key| key == first) => {
            write_varint((packed.len() as u64) << 1, output);
            write_value(*first, width, output);
        }
        _ => pack_groups(packed, width, output),
    }
}

/// A run of one value.
pub(super) fn encode_run(value: u32, count: usize, width: u32, output: &mut Vec<u8>) {
    write_varint((count as u64) << 1, output);
    write_value(value, width, output);
}

/// Bits that are already packed, 64 to a word: levels of width 1.
pub(super) fn encode_bits(words: &[u64], count: usize, output: &mut Vec<u8>) {
    let groups = count.div_ceil(8);
    write_varint((groups as u64) << 1 | 1, output);
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    output.extend(bytes.take(groups));
}

/// The part of `whole` before `rest`, which is its end.
fn before<'a>(whole: &'a [u32], rest: &[u32]) -> &'a [u32] {
    whole.get(..whole.len() - rest.len()).unwrap_or_default()
}

fn pack_groups(keys: &[u32], width: u32, output: &mut Vec<u8>) {
    if keys.is_empty() {
        return;
    }
    let groups = keys.len().div_ceil(8);
    write_varint((groups as u64) << 1 | 1, output);
    output.reserve(groups * width as usize + size_of::<u128>());
    let (whole, rest) = keys.as_chunks::<8>();
    for group in whole {
        pack(group, width, output);
    }
    if !rest.is_empty() {
        let mut group = [0; 8];
        for (place, &key) in group.iter_mut().zip(rest) {
            *place = key;
        }
        pack(&group, width, output);
    }
}

/// 8 values of `width` bits are `width` bytes.
#[inline]
fn pack(group: &[u32; 8], width: u32, output: &mut Vec<u8>) {
    let [a, b, c, d, e, f, g, h] = group.map(u64::from);
    // Two halves of at most 64 bits each, so that no shift overflows.
    let low = a | b << width | c << (2 * width) | d << (3 * width);
    let high = e | f << width | g << (2 * width) | h << (3 * width);
    let end = output.len() + width as usize;
    // Fixed-size copies, then a truncation: a copy of `width` bytes would be a call.
    if width <= 8 {
        output.extend_from_slice(&(low | high << (4 * width)).to_le_bytes());
    } else {
        let packed = u128::from(low) | u128::from(high) << (4 * width);
        output.extend_from_slice(&packed.to_le_bytes());
    }
    output.truncate(end);
}

fn write_value(value: u32, width: u32, output: &mut Vec<u8>) {
    let bytes = value.to_le_bytes();
    let used = width.div_ceil(8) as usize;
    output.extend_from_slice(bytes.get(..used).unwrap_or_default());
}

/// ULEB128.
pub(super) fn write_varint(mut value: u64, output: &mut Vec<u8>) {
    while value >= 0x80 {
        output.push(value as u8 | 0x80);
        value >>= 7;
    }
    output.push(value as u8);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read_varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }

    fn decode(mut bytes: &[u8], width: u32, count: usize) -> Vec<u32> {
        let mut keys = Vec::new();
        while keys.len() < count {
            let head = read_varint(&mut bytes);
            if head & 1 == 0 {
                let (value, rest) = bytes.split_at(width.div_ceil(8) as usize);
                bytes = rest;
                let value = value
                    .iter()
                    .rev()
                    .fold(0, |sum, &b| sum << 8 | u32::from(b));
                keys.extend(std::iter::repeat_n(value, (head >> 1) as usize));
            } else {
                for _ in 0..head >> 1 {
                    let (group, rest) = bytes.split_at(width as usize);
                    bytes = rest;
                    let bit = |at: u32| u32::from(group[at as usize / 8] >> (at % 8) & 1);
                    for key in 0..8 {
                        keys.push((0..width).map(|b| bit(key * width + b) << b).sum());
                    }
                }
            }
        }
        assert!(bytes.is_empty());
        keys.truncate(count);
        keys
    }

    fn check(keys: &[u32], width: u32) {
        let mut output = Vec::new();
        encode(keys, width, &mut output);
        assert_eq!(decode(&output, width, keys.len()), keys, "{output:02x?}");
    }

    #[test]
    fn sample_of_the_header() {
        let mut output = Vec::new();
        encode(&[5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 1, 2, 3], 3, &mut output);
        assert_eq!(output, [0x14, 5, 3, 0xd1, 0, 0]);
        check(&[], 0);
        check(&[0], 0);
        check(&[0; 100], 0);
        assert_eq!(
            [width(0), width(1), width(2), width(3), width(65_536)],
            [0, 0, 1, 2, 16]
        );
    }

    proptest! {
        #[test]
        fn any_keys(
            width in 1..=16u32,
            runs in prop::collection::vec((any::<u16>(), 1..40usize), 0..60),
        ) {
            let keys: Vec<u32> = runs
                .iter()
                .flat_map(|&(key, count)| {
                    let count = if count < 20 { 1 } else { count };
                    std::iter::repeat_n(u32::from(key) & ((1 << width) - 1), count)
                })
                .collect();
            check(&keys, width);
        }

        #[test]
        fn any_bits(words in prop::collection::vec(any::<u64>(), 1..10), cut in 0..64usize) {
            let count = words.len() * 64 - cut;
            let mut output = Vec::new();
            encode_bits(&words, count, &mut output);
            let bits: Vec<u32> = (0..count).map(|at| (words[at / 64] >> (at % 64) & 1) as u32).collect();
            prop_assert_eq!(decode(&output, 1, count), bits);
        }
    }
}
