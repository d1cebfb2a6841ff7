//! Layout of usual samples: those of tracepoints, counters and clocks without rare members.
//!
//! ```text
//! u64 id · u64 ip · u32 pid, tid · u64 time · u32 cpu, _ · u64 period · callchain · raw
//! ```

use perfquet_events::bytes::Endian;

use crate::perf_data::attr::{Attr, sample_type};
use crate::perf_data::record::HEADER_BYTES;

/// The words after the header at which an event's samples have their members.
#[derive(Debug, Clone, Copy)]
pub(super) struct UsualLayout {
    pub(super) ip: Word,
    /// PID and TID.
    pub(super) threads: Word,
    pub(super) time: Word,
    pub(super) cpu: Word,
    pub(super) period: Word,
    /// Bytes of the record's header and its fixed 8-byte members.
    pub(super) head_bytes: usize,
    pub(super) has_chain: bool,
    /// Whether the recorder has unwound the user stacks.
    pub(super) is_unwound: bool,
    pub(super) has_payload: bool,
    /// The period of an event whose samples do not include it.
    pub(super) fixed_period: Option<u64>,
}

/// The index of a word; past all words if the sample does not have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(usize);

impl Word {
    /// The word, if there is one.
    #[inline]
    pub(super) fn of(self, words: &[[u8; 8]]) -> Option<u64> {
        words.get(self.0).map(|word| Endian::Little.u64(*word))
    }
}

impl UsualLayout {
    /// Returns `None` if the samples of this event have other members, or no timestamp.
    pub(super) fn of(attr: &Attr) -> Option<UsualLayout> {
        use sample_type::*;
        const USUAL: u64 = IDENTIFIER | IP | TID | TIME | ID | CPU | PERIOD | CALLCHAIN | RAW;
        if attr.sample_type & !USUAL != 0 || !attr.has(TIME) {
            return None;
        }
        let mut words = 0;
        let mut place = |bit| match attr.has(bit) {
            true => {
                words += 1;
                Word(words - 1)
            }
            false => Word(usize::MAX),
        };
        place(IDENTIFIER);
        let (ip, threads, time) = (place(IP), place(TID), place(TIME));
        place(ID);
        let (cpu, period) = (place(CPU), place(PERIOD));
        Some(UsualLayout {
            ip,
            threads,
            time,
            cpu,
            period,
            head_bytes: HEADER_BYTES + 8 * words,
            has_chain: attr.has(CALLCHAIN),
            is_unwound: attr.exclude_callchain_user(),
            has_payload: attr.has(RAW),
            fixed_period: attr.fixed_period(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_words_in_the_kernels_order() {
        use sample_type::*;
        let of = |sample_type| UsualLayout::of(&Attr::of(sample_type, 0));
        let layout = of(IDENTIFIER | IP | TID | TIME | CPU | PERIOD | RAW).unwrap();
        assert_eq!((layout.ip, layout.threads), (Word(1), Word(2)));
        assert_eq!(
            (layout.time, layout.cpu, layout.period),
            (Word(3), Word(4), Word(5))
        );
        assert_eq!((layout.head_bytes, layout.has_chain), (56, false));
        let layout = of(TIME | ID | CPU | CALLCHAIN).unwrap();
        assert_eq!((layout.time, layout.cpu), (Word(0), Word(2)));
        assert_eq!(layout.ip.of(&[[1; 8]; 3]), None);
        assert_eq!(layout.time.of(&[[1, 0, 0, 0, 0, 0, 0, 0]]), Some(1));
        for unusual in [ADDR, READ, STREAM_ID, REGS_USER, WEIGHT] {
            assert!(of(TIME | unusual).is_none());
        }
        assert!(of(IP | TID).is_none());
    }
}
