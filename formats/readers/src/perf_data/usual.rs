//! Layout of usual samples: those of tracepoints, counters and clocks without rare members.
//!
//! ```text
//! u64 id · u64 ip · u32 pid, tid · u64 time · u32 cpu, _ · u64 period · callchain · raw
//! ```

use crate::perf_data::attr::{Attr, sample_type};
use crate::perf_data::record::HEADER_BYTES;

/// Offsets of the members in an event's samples, in bytes from the start of the record.
#[derive(Debug, Clone, Copy)]
pub(super) struct UsualLayout {
    pub(super) ip: Option<usize>,
    /// The PID; the TID follows.
    pub(super) threads: Option<usize>,
    pub(super) time: usize,
    pub(super) cpu: Option<usize>,
    pub(super) period: Option<usize>,
    /// Bytes of the record's header and its fixed 8-byte members.
    pub(super) head_bytes: usize,
    pub(super) has_chain: bool,
    pub(super) has_payload: bool,
    /// The period of an event whose samples do not include it.
    pub(super) fixed_period: Option<u64>,
}

impl UsualLayout {
    /// Returns `None` if the samples of this event have other members, or no timestamp.
    pub(super) fn of(attr: &Attr) -> Option<UsualLayout> {
        use sample_type::*;
        const USUAL: u64 = IDENTIFIER | IP | TID | TIME | ID | CPU | PERIOD | CALLCHAIN | RAW;
        if attr.sample_type & !USUAL != 0 {
            return None;
        }
        let mut head_bytes = HEADER_BYTES;
        let mut place = |bit| {
            let here = head_bytes;
            attr.has(bit).then(|| {
                head_bytes += 8;
                here
            })
        };
        place(IDENTIFIER);
        let (ip, threads, time) = (place(IP), place(TID), place(TIME));
        place(ID);
        let (cpu, period) = (place(CPU), place(PERIOD));
        Some(UsualLayout {
            ip,
            threads,
            time: time?,
            cpu,
            period,
            head_bytes,
            has_chain: attr.has(CALLCHAIN),
            has_payload: attr.has(RAW),
            fixed_period: attr.fixed_period(),
        })
    }
}
