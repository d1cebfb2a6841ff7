//! The packed sections of a trace.dat of version 7: each is one block, lost as a whole if a byte of it is damaged.
//!
//! ```text
//! head  u16 id, u16 flags (1: packed), u32 name, u64 size, body        one section after another up to the end
//! ```

use std::ops::Range;

const HEAD_BYTES: usize = 16;
/// Magic, version, byte order, size of `long`, page size.
const START: &[u8] = b"\x17\x08\x44tracing7\0";

/// The bodies of packed sections; none in another file.
pub(crate) fn packed_sections(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut packed = Vec::new();
    if !bytes.starts_with(START) {
        return packed;
    }
    // Byte order, size of `long`, page size; the names of the compression and of its version; the offset of the options.
    let mut offset = START.len() + 6;
    for _ in 0..2 {
        offset += bytes[offset..].iter().position(|&byte| byte == 0).unwrap() + 1;
    }
    offset += 8;
    while let Some(head) = bytes.get(offset..offset + HEAD_BYTES) {
        let flags = u16::from_le_bytes([head[2], head[3]]);
        let size = u64::from_le_bytes(head[8..].try_into().unwrap());
        let body = offset + HEAD_BYTES;
        let end = body + usize::try_from(size).unwrap();
        if flags & 1 != 0 {
            packed.push(body..end);
        }
        offset = end;
    }
    packed
}
