//! Levels: which rows are NULL, and which items belong to one list.
//!
//! ```text
//! list<text> that may be NULL:   NULL   []    [a, b]
//! definition                      0     1      2  2
//! repetition                      0     0      0  1
//! ```
//! Levels precede a page's values, repetition first, each with its length in bytes; omitted if there is only one level
//! (<https://parquet.apache.org/docs/file-format/nestedencoding/>).

use super::hybrid;
use crate::store::column::Presence;

/// Appends the definition levels of a nullable column.
pub(super) fn encode_presence(presence: &Presence, output: &mut Vec<u8>) {
    with_length(output, |output| match presence.bits() {
        Some(bits) => hybrid::encode_bits(bits, presence.rows(), output),
        None => {
            let level = u32::from(presence.nulls() == 0);
            hybrid::encode_run(level, presence.rows(), 1, output);
        }
    });
}

/// Appends the levels of lists of these lengths; returns their number.
pub(super) fn encode_lists(
    presence: &Presence,
    lengths: &[u32],
    nullable: bool,
    output: &mut Vec<u8>,
) -> usize {
    let empty = u32::from(nullable);
    if let Some(length) = length_of_all(presence, lengths) {
        return encode_equal_lists(lengths.len(), length, empty, output);
    }
    let (mut definition, mut repetition) = (Vec::new(), Vec::new());
    let mut lengths = lengths.iter();
    for row in 0..presence.rows() {
        repetition.push(0);
        if !presence.has(row) {
            definition.push(0);
            continue;
        }
        match lengths.next() {
            Some(&length @ 1..) => {
                definition.extend(std::iter::repeat_n(empty + 1, length as usize));
                repetition.extend(std::iter::repeat_n(1, length as usize - 1));
            }
            _ => definition.push(empty),
        }
    }
    with_length(output, |output| hybrid::encode(&repetition, 1, output));
    let width = if nullable { 2 } else { 1 };
    with_length(output, |output| hybrid::encode(&definition, width, output));
    definition.len()
}

/// The length of the lists if no row is NULL and all have the same, which is short. Longer ones have runs.
fn length_of_all(presence: &Presence, lengths: &[u32]) -> Option<u32> {
    let &length = lengths.first()?;
    let is_equal = presence.nulls() == 0 && lengths.iter().all(|&other| other == length);
    (is_equal && (1..=8).contains(&length)).then_some(length)
}

/// Appends the levels of lists of equal length: array fields of kernel events.
fn encode_equal_lists(count: usize, length: u32, empty: u32, output: &mut Vec<u8>) -> usize {
    let items = count * length as usize;
    with_length(output, |output| match length {
        1 => hybrid::encode_run(0, items, 1, output),
        _ => {
            // A bit is 0 where a list begins.
            let mut words = vec![u64::MAX; items.div_ceil(64)];
            for item in (0..items).step_by(length as usize) {
                if let Some(word) = words.get_mut(item / 64) {
                    *word &= !(1 << (item % 64));
                }
            }
            if let (Some(last), bits @ 1..) = (words.last_mut(), items % 64) {
                *last &= (1 << bits) - 1;
            }
            hybrid::encode_bits(&words, items, output);
        }
    });
    let width = empty + 1;
    with_length(output, |output| {
        hybrid::encode_run(empty + 1, items, width, output)
    });
    items
}

fn with_length(output: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = output.len();
    output.extend_from_slice(&[0; 4]);
    write(output);
    let length = (output.len() - start - 4) as u32;
    if let Some(place) = output.get_mut(start..start + 4) {
        place.copy_from_slice(&length.to_le_bytes());
    }
}
