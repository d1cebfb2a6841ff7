//! What else the records about processes are needed for, besides the trace.

use std::sync::{Arc, Mutex, PoisonError};

use perfquet_events::bytes::Endian;

use crate::journal::build_ids::MappedAt;
use crate::journal::record::{kind, misc, trailer_time};
use crate::process_states::Newcomers;
use crate::rotation::Started;
use crate::runtimes::Sightings;

/// Looks at each record of the side-band.
#[derive(Default)]
pub(crate) struct Watchers {
    /// For hints on runtimes.
    pub(crate) sightings: Option<Sightings>,
    /// For command lines and open files.
    pub(crate) newcomers: Option<Newcomers>,
    /// For the next trace of a ring.
    pub(crate) started: Option<Arc<Mutex<Started>>>,
}

impl Watchers {
    /// Looks at a record; `mapped` is set if it maps a file as code.
    pub(crate) fn look(&mut self, record: &[u8], mapped: Option<&MappedAt>) {
        if let (Some(at), Some(sightings)) = (mapped, &mut self.sightings) {
            sightings.maps(at.pid, &at.path, trailer_time(record).unwrap_or(0));
        }
        let endian = match cfg!(target_endian = "little") {
            true => Endian::Little,
            false => Endian::Big,
        };
        // u32 type, u16 misc, u16 size; u32 pid, …
        let member = |at| endian.u32_at(record, at);
        let (Some(of_kind), Some(pid)) = (member(0), member(8)) else {
            return;
        };
        if let (kind::FORK | kind::EXIT, Some(started)) = (of_kind, &self.started) {
            // u32 pid, ppid, tid, ptid; u64 time
            let mut started = started.lock().unwrap_or_else(PoisonError::into_inner);
            match (of_kind, member(16), endian.u64_at(record, 24)) {
                (kind::FORK, Some(tid), Some(time)) => started.start(tid.cast_signed(), time),
                (kind::EXIT, Some(tid), _) => started.end(tid.cast_signed()),
                _ => {}
            }
        }
        match of_kind {
            // u32 pid, tid; name
            kind::COMM => {
                let bits = record.get(4..6).and_then(|bits| bits.try_into().ok());
                let is_exec = u16::from_ne_bytes(bits.unwrap_or_default()) & misc::COMM_EXEC != 0;
                if let (true, Some(newcomers)) = (is_exec, &self.newcomers) {
                    newcomers.executes(pid.cast_signed());
                }
            }
            // u32 pid, ppid, tid, ptid; u64 time
            kind::EXIT if member(16) == Some(pid) => {
                if let (Some(sightings), Some(time)) =
                    (&mut self.sightings, endian.u64_at(record, 24))
                {
                    sightings.ends(pid.cast_signed(), time);
                }
            }
            _ => {}
        }
    }
}
