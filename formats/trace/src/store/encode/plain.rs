//! PLAIN: values as they are, little-endian; strings preceded by their length; booleans 8 to a byte.

/// Appends 32-bit values.
pub(super) fn encode_narrow(values: &[u32], output: &mut Vec<u8>) {
    let start = output.len();
    output.resize(start + values.len() * 4, 0);
    let (places, _) = output.get_mut(start..).unwrap_or_default().as_chunks_mut();
    for (place, value) in places.iter_mut().zip(values) {
        *place = value.to_le_bytes();
    }
}

/// Appends 64-bit values.
pub(super) fn encode_wide(values: &[u64], output: &mut Vec<u8>) {
    let start = output.len();
    output.resize(start + values.len() * 8, 0);
    let (places, _) = output.get_mut(start..).unwrap_or_default().as_chunks_mut();
    for (place, value) in places.iter_mut().zip(values) {
        *place = value.to_le_bytes();
    }
}

/// Appends booleans, the first one in the lowest bit.
pub(super) fn encode_truth(values: &[u32], output: &mut Vec<u8>) {
    for group in values.chunks(8) {
        let bits = group
            .iter()
            .rev()
            .fold(0, |bits, &value| bits << 1 | (value & 1) as u8);
        output.push(bits);
    }
}

/// Appends a string.
pub(super) fn encode_text(text: &[u8], output: &mut Vec<u8>) {
    output.extend_from_slice(&(text.len() as u32).to_le_bytes());
    output.extend_from_slice(text);
}
