//! Finds the next record behind damaged bytes.
//!
//! Records are multiples of 8 bytes and begin at such places. Three plausible headers in a row, or fewer up to
//! the very end, are taken for records: a single one is met by chance in stack dumps and counts.

use crate::bytes::Endian;
use crate::perf_data::record::{HEADER_BYTES, RecordHeader, kind};

/// Headers in a row that convince.
const CHAIN: usize = 3;

/// Offset in `bytes` of the first record behind the damaged one at its front.
pub(super) fn next_record(bytes: &[u8], endian: Endian) -> Option<usize> {
    (8..bytes.len()).step_by(8).find(|&offset| {
        bytes
            .get(offset..)
            .is_some_and(|bytes| is_chain(bytes, endian))
    })
}

fn is_chain(mut bytes: &[u8], endian: Endian) -> bool {
    for _ in 0..CHAIN {
        match plausible(bytes, endian) {
            Some(header) => {
                let Some(behind) = bytes.get(header.size..) else {
                    return false;
                };
                if behind.is_empty() || header.kind == kind::AUXTRACE {
                    return true;
                }
                bytes = behind;
            }
            None => return false,
        }
    }
    true
}

/// The header at the front, if it looks like one of those that perf and simpleperf write.
pub(super) fn plausible(bytes: &[u8], endian: Endian) -> Option<RecordHeader> {
    let header = RecordHeader::parse(bytes, endian)?;
    let is_known = match header.kind {
        1..=kind::KERNEL_LAST => header.size.is_multiple_of(8) && header.misc & 0x0ff8 == 0,
        kind::HEADER_ATTR..=kind::TOOL_LAST => header.size.is_multiple_of(8) && header.misc <= 7,
        kind::KERNEL_SYMBOL..=kind::DEBUG => header.size < 1 << 24,
        _ => false,
    };
    let empty_allowed = matches!(
        header.kind,
        kind::FINISHED_ROUND | kind::FINISHED_INIT | kind::SPLIT_END
    );
    let least = if empty_allowed { HEADER_BYTES } else { 16 };
    (is_known && header.size >= least).then_some(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, size: u8) -> Vec<u8> {
        let mut bytes = vec![0; size.into()];
        bytes[0] = kind;
        bytes[6] = size;
        bytes
    }

    #[test]
    fn three_in_a_row_convince() {
        let mut bytes = vec![0xff; 24];
        bytes.extend(record(9, 16)); // by chance: what follows is none
        bytes.extend([0xff; 16]);
        for _ in 0..3 {
            bytes.extend(record(9, 40));
        }
        bytes.extend([0xff; 8]);
        assert_eq!(next_record(&bytes, Endian::Little), Some(56));
    }

    #[test]
    fn fewer_do_at_the_end() {
        let mut bytes = vec![0; 32];
        bytes.extend(record(68, 8));
        assert_eq!(next_record(&bytes, Endian::Little), Some(32));
        bytes.push(1);
        assert_eq!(next_record(&bytes, Endian::Little), None);
    }
}
