//! Records of a task's file.
//!
//! ```text
//! 1c82 04b7 7800 0000 | 6c00 5692 4c19 3b56    time 518466601500 | type 0 (entry), more 1, magic 5, depth 1, address 0x563b194c9256
//! 0500 0000 0000 0000                          its arguments, of which only the specification knows the size
//! ```
//! Bits are packed from the least significant one; on big-endian machines, from the most significant one.

use perfquet_events::bytes::Endian;

pub(super) const RECORD_BYTES: usize = 16;
const MAGIC: u64 = 5;
/// In a search for the next record, its time is within this distance of the last one.
const NEAR_NS: u64 = 600_000_000_000;
/// Records lost at once.
const LOST_MAX: u64 = 1 << 32;
/// Bytes searched for the next record.
const SEARCHED_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Entry,
    Exit,
    Lost,
    Event,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) time: u64,
    pub(super) kind: Kind,
    /// Data follow.
    pub(super) has_more: bool,
    pub(super) depth: u32,
    /// The function, the number of lost records, or the ID of the event.
    pub(super) address: u64,
}

impl Record {
    /// The record at an offset; `None` if there is none.
    #[inline]
    pub(super) fn at(bytes: &[u8], offset: usize, endian: Endian) -> Option<Record> {
        let time = endian.u64_at(bytes, offset)?;
        let word = endian.u64_at(bytes, offset + 8)?;
        let (kind, more, magic, depth, address) = match endian {
            Endian::Little => (
                word & 3,
                word >> 2 & 1,
                word >> 3 & 7,
                word >> 6 & 0x3ff,
                word >> 16,
            ),
            Endian::Big => (
                word >> 62,
                word >> 61 & 1,
                word >> 58 & 7,
                word >> 48 & 0x3ff,
                word & 0xffff_ffff_ffff,
            ),
        };
        // Three bits alone are right by chance too often.
        let is_possible = i64::try_from(time).is_ok() && (kind != 2 || address < LOST_MAX);
        (magic == MAGIC && is_possible).then_some(Record {
            time,
            kind: match kind {
                0 => Kind::Entry,
                1 => Kind::Exit,
                2 => Kind::Lost,
                _ => Kind::Event,
            },
            has_more: more == 1,
            depth: depth as u32,
            address,
        })
    }

    /// Finds the next offset at which a record may follow `last`.
    pub(super) fn find(
        bytes: &[u8],
        from: usize,
        last: Option<Record>,
        endian: Endian,
        is_known: impl Fn(&Record) -> bool,
    ) -> Option<usize> {
        let from = from.next_multiple_of(8);
        let end = bytes.len().min(from.saturating_add(SEARCHED_BYTES));
        let is_next = |offset: &usize| {
            let Some(record) = Record::at(bytes, *offset, endian) else {
                return false;
            };
            let is_near = last.is_none_or(|last| {
                (last.time..=last.time.saturating_add(NEAR_NS)).contains(&record.time)
                    && record.depth <= last.depth + 1
            });
            is_near && is_known(&record)
        };
        (from..end).step_by(8).find(is_next)
    }
}
