//! Records of perf in `perf-cpuN.dat`: context switches, names, creation and end of threads.
//!
//! ```text
//! 0e000000 0020 1800 | 84370000 84370000 501632b678000000        SWITCH, out, 24 bytes | pid, tid, time
//! 03000000 0020 2800 | 84370000 84370000 63616c6c73000000 | …    COMM after exec | pid, tid, "calls" | pid, tid, time
//! ```
//! The layout is that of `struct perf_event_header` with `sample_id_all` (linux/perf_event.h).

use perfquet_events::bytes::{Endian, before_nul};

const HEAD_BYTES: usize = 8;
const SAMPLE_ID_BYTES: usize = 16;
const SWITCH_OUT: u16 = 1 << 13;
const COMM_EXEC: u16 = 1 << 13;
const PREEMPTED: u16 = 1 << 14;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PerfRecord<'a> {
    pub(super) time: u64,
    pub(super) pid: i32,
    pub(super) tid: i32,
    pub(super) what: What<'a>,
    pub(super) bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What<'a> {
    Out { is_preempted: bool },
    In,
    Name { comm: &'a [u8], is_exec: bool },
    Fork { parent_pid: i32, parent_tid: i32 },
    Exit,
    Lost(u64),
    Other,
}

impl<'a> PerfRecord<'a> {
    /// The record at an offset; `None` if it is cut or none.
    pub(super) fn at(file: &'a [u8], offset: usize, endian: Endian) -> Option<PerfRecord<'a>> {
        let kind = endian.u32_at(file, offset)?;
        let misc = endian.u16_at(file, offset + 4)?;
        let size = usize::from(endian.u16_at(file, offset + 6)?);
        let body = file.get(offset + HEAD_BYTES..offset.checked_add(size)?)?;
        let id = body.len().checked_sub(SAMPLE_ID_BYTES)?;
        let number = |at| Some(endian.u32_at(body, at)?.cast_signed());
        let mut record = PerfRecord {
            time: endian.u64_at(body, id + 8)?,
            pid: number(id)?,
            tid: number(id + 4)?,
            what: What::Other,
            bytes: size,
        };
        match kind {
            14 if misc & SWITCH_OUT != 0 => {
                let is_preempted = misc & PREEMPTED != 0;
                record.what = What::Out { is_preempted };
            }
            14 => record.what = What::In,
            3 => {
                (record.pid, record.tid) = (number(0)?, number(4)?);
                record.what = What::Name {
                    comm: before_nul(body.get(8..id)?),
                    is_exec: misc & COMM_EXEC != 0,
                };
            }
            4 | 7 => {
                (record.pid, record.tid) = (number(0)?, number(8)?);
                // Their own time, a little later than that of the sample ID.
                record.time = endian.u64_at(body, 16)?;
                record.what = match kind {
                    4 => What::Exit,
                    _ => What::Fork {
                        parent_pid: number(4)?,
                        parent_tid: number(12)?,
                    },
                };
            }
            2 => record.what = What::Lost(endian.u64_at(body, 8)?),
            _ => {}
        }
        Some(record)
    }
}
