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

fn with_length(output: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = output.len();
    output.extend_from_slice(&[0; 4]);
    write(output);
    let length = (output.len() - start - 4) as u32;
    if let Some(place) = output.get_mut(start..start + 4) {
        place.copy_from_slice(&length.to_le_bytes());
    }
}
