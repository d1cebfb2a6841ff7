//! Samples as the kernel wrote them, but for their length: without room that no copy fills, or with a mark at the end of their stack.

use super::{CONTEXT_USER, Layout, Parts, RECORD_MAX, parts_as_written};

/// Appends a sample to `out`, without the room for its copy that the kernel has not filled. Returns whether there was any.
pub(in crate::user_stacks) fn put_filled(
    record: &[u8],
    layout: &Layout,
    out: &mut Vec<u8>,
) -> bool {
    let Some((parts, _)) = parts_as_written(record, layout) else {
        return false;
    };
    let Some((_, memory)) = &parts.copy else {
        return false;
    };
    let (start, end) = parts.reserved;
    // Without any room, the number of valid bytes would not follow.
    let filled = memory.len().next_multiple_of(8).max(8);
    if start + filled >= end {
        return false;
    }
    let size = record.len() - (end - start - filled);
    let at = out.len();
    // The number of bytes of the room precedes it, and the number of those that are valid follows.
    for part in [
        record.get(..start - 8),
        Some(&(filled as u64).to_le_bytes()),
        record.get(start..start + filled),
        record.get(end..),
    ] {
        out.extend_from_slice(part.unwrap_or_default());
    }
    if let Some(place) = out.get_mut(at + 6..at + 8) {
        place.copy_from_slice(&(size as u16).to_ne_bytes());
    }
    true
}

/// Appends a sample to `out`, with the mark that its user stack, the end of its call chain, is cut.
pub(in crate::user_stacks) fn put_marked(record: &[u8], parts: &Parts<'_>, out: &mut Vec<u8>) {
    let (start, end) = parts.chain;
    let size = u16::try_from(record.len() + 8).ok();
    let (Some(size), Some(before), Some(chain), Some(after)) = (
        size.filter(|size| usize::from(*size) <= RECORD_MAX),
        record.get(..start),
        record.get(start + 8..end),
        record.get(end..),
    ) else {
        return out.extend_from_slice(record);
    };
    let at = out.len();
    out.extend_from_slice(before);
    out.extend_from_slice(&(chain.len() as u64 / 8 + 1).to_ne_bytes());
    out.extend_from_slice(chain);
    out.extend_from_slice(&CONTEXT_USER.to_ne_bytes());
    out.extend_from_slice(after);
    if let Some(place) = out.get_mut(at + 6..at + 8) {
        place.copy_from_slice(&size.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        ABI_64, CALLCHAIN, CONTEXT_KERNEL, OTHERS, PERIOD, RAW, REGS_USER, STACK_USER, parts,
    };
    use super::*;

    #[test]
    fn the_end_of_a_chain_is_marked() {
        let layout = Layout {
            sample_type: PERIOD | CALLCHAIN | RAW,
            registers: 0,
            words_per_value: 2,
            has_branch_index: false,
            keeps_registers: false,
            is_walked: false,
            is_followed: true,
        };
        let record = |chain: &[u64]| -> Vec<u8> {
            let head = [0, 1, 3 | 4 << 32, 4, 5, 6, chain.len() as u64];
            let words = [&head[..], chain, &[12 | 7 << 32, 8]].concat();
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let size = bytes.len() as u16;
            bytes[6..8].copy_from_slice(&size.to_le_bytes());
            bytes
        };
        let outermost = |chain: &[u64]| {
            let record = record(chain);
            parts(&record, &layout, None).unwrap().outermost(&record)
        };
        assert_eq!(
            outermost(&[CONTEXT_KERNEL, 1, CONTEXT_USER, 2, 3]),
            Some((3, false))
        );
        assert_eq!(outermost(&[CONTEXT_USER, 2]), Some((2, true)));
        assert_eq!(outermost(&[CONTEXT_KERNEL, 1]), None);
        assert_eq!(outermost(&[]), None);
        let whole = record(&[CONTEXT_KERNEL, 1, CONTEXT_USER, 2, 3]);
        let mut out = Vec::new();
        put_marked(&whole, &parts(&whole, &layout, None).unwrap(), &mut out);
        assert_eq!(
            out,
            record(&[CONTEXT_KERNEL, 1, CONTEXT_USER, 2, 3, CONTEXT_USER])
        );
    }

    #[test]
    fn room_that_is_not_filled_is_left_out() {
        let layout = Layout {
            sample_type: PERIOD | CALLCHAIN | RAW | REGS_USER | STACK_USER | OTHERS,
            registers: 0b101,
            words_per_value: 2,
            has_branch_index: false,
            keeps_registers: false,
            is_walked: false,
            is_followed: false,
        };
        let record = |reserved: &[u64], filled: u64| -> Vec<u8> {
            let head = [0, 1, 3 | 4 << 32, 4, 5, 6, 1, CONTEXT_KERNEL];
            let raw = [12 | 7 << 32, 8];
            let registers = [ABI_64, 40, 41];
            let after = [filled, 99];
            let words = [
                &head[..],
                &raw,
                &registers,
                &[reserved.len() as u64 * 8],
                reserved,
                &after,
            ];
            let mut bytes: Vec<u8> = words
                .concat()
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .collect();
            let size = bytes.len() as u16;
            bytes[6..8].copy_from_slice(&size.to_le_bytes());
            bytes
        };
        let whole = record(&[50, 51, 52, 53], 13);
        let mut out = vec![1; 3];
        assert!(put_filled(&whole, &layout, &mut out));
        assert_eq!(out[3..], record(&[50, 51], 13));
        let (before, after) = (
            parts(&whole, &layout, None),
            parts(&out[3..], &layout, None),
        );
        let memory =
            |parts: Option<Parts<'_>>| parts.and_then(|parts| Some(parts.copy?.1.to_vec()));
        assert_eq!(memory(after).map(|memory| memory.len()), Some(13));
        assert_eq!(memory(before), memory(parts(&out[3..], &layout, None)));
        for (reserved, filled) in [(&[50, 51][..], 13), (&[50, 51], 16), (&[50, 51], 99)] {
            assert!(!put_filled(&record(reserved, filled), &layout, &mut out));
        }
        assert!(!put_filled(&whole[..whole.len() - 40], &layout, &mut out));
        assert_eq!(out.len(), 3 + record(&[50, 51], 13).len());
        out.clear();
        assert!(put_filled(&record(&[50, 51, 52, 53], 0), &layout, &mut out));
        assert_eq!(out, record(&[50], 0));
    }
}
