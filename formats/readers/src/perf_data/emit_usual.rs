//! Usual samples → hits: those of tracepoints, counters and clocks without rare members.
//!
//! ```text
//! u64 id · u64 ip · u32 pid, tid · u64 time · u32 cpu, _ · u64 period · callchain · raw
//! ```
//! This path skips the setup that only other samples need. It leaves all other samples, including damaged ones, to
//! `emit_sample.rs`.

use perfquet_events::Error;
use perfquet_events::bytes::{Cursor, Endian};
use perfquet_events::event::{Hit, Payload, Stack, time_of};

use crate::perf_data::catalog::Catalog;
use crate::perf_data::emit::Emission;
use crate::perf_data::record::RecordHeader;
use crate::perf_data::resync::is_sane_place;
use crate::perf_data::sample::{read_chain, space_of};
use crate::perf_data::values::known_cpu;

impl Emission<'_> {
    /// Emits a usual sample. Returns `false` for any other.
    #[inline]
    pub(super) fn emit_usual(
        &mut self,
        catalog: &Catalog,
        index: usize,
        header: RecordHeader,
        record: &[u8],
    ) -> Result<bool, Error> {
        let Some(event) = catalog.get(index) else {
            return Ok(false);
        };
        let (Some(layout), Some(id)) = (event.usual(), event.id) else {
            return Ok(false);
        };
        // One byte order: support for both doubles the number of instructions.
        let endian = Endian::Little;
        if record.len() < layout.head_bytes || catalog.endian != endian {
            return Ok(false);
        }
        let word = |at: Option<usize>| at.and_then(|at| endian.u64_at(record, at));
        let id_at = |at: usize| endian.u32_at(record, at).map(|id| id as i32);
        let cpu = layout.cpu.and_then(|at| endian.u32_at(record, at));
        let pid = layout.threads.and_then(id_at);
        let tid = layout.threads.and_then(|at| id_at(at + 4));
        let time = word(Some(layout.time)).unwrap_or_default();
        if !is_sane_place(cpu, pid, tid) {
            return Ok(false);
        }
        let space = space_of(header.misc);
        let mut rest = record.get(layout.head_bytes..).unwrap_or_default();
        if layout.has_chain {
            let mut cursor = Cursor::new(rest, 0, endian);
            self.lists.clear_stacks();
            match read_chain(&mut cursor, space, &mut self.lists) {
                Ok(None) => rest = cursor.rest(),
                // Its user stack follows in another record, or the chain is too short.
                _ => return Ok(false),
            }
        }
        let mut payload = None;
        if layout.has_payload {
            let Some(bytes) = payload_of(rest) else {
                return Ok(false);
            };
            let plan = &event.plan;
            payload = Some(Payload { bytes, plan });
        } else if !rest.is_empty() {
            return Ok(false);
        }
        let (kernel_stack, user_stack) = match layout.has_chain {
            true => (self.lists.kernel_stack(), self.lists.user_stack()),
            false => (Stack::None, Stack::None),
        };
        let hit = Hit {
            event: id,
            time: time_of(time),
            cpu: known_cpu(cpu),
            pid,
            tid,
            kernel_stack,
            user_stack,
            space,
            ip: word(layout.ip),
            period: word(layout.period).or(layout.fixed_period),
            payload,
        };
        self.out.sink.hit(&hit)?;
        Ok(true)
    }
}

/// Parses `u32 size` and that number of bytes, which end the record.
#[inline]
fn payload_of(bytes: &[u8]) -> Option<&[u8]> {
    let size = Endian::Little.u32_at(bytes, 0)?;
    let payload = bytes.get(4..)?;
    (payload.len() == size as usize).then_some(payload)
}
