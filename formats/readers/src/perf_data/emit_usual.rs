//! Usual samples → hits: those of tracepoints, counters and clocks without rare members.
//!
//! ```text
//! u64 id · u64 ip · u32 pid, tid · u64 time · u32 cpu, _ · u64 period · callchain · raw
//! ```
//! This path skips the setup that only other samples need. It leaves all other samples, including damaged ones, to
//! `emit_sample.rs`.

use perfquet_events::Error;
use perfquet_events::bytes::{Cursor, Endian};
use perfquet_events::event::{Hit, Id, Payload, Stacks, time_of};

use crate::perf_data::catalog::Catalog;
use crate::perf_data::emit::Emission;
use crate::perf_data::record::{HEADER_BYTES, RecordHeader};
use crate::perf_data::resync::is_sane_place;
use crate::perf_data::sample::{read_chain, space_of};
use crate::perf_data::values::known_cpu;

impl Emission<'_> {
    /// Emits a usual sample of a little-endian file. Returns `false` for any other.
    #[inline]
    pub(super) fn emit_usual(
        &mut self,
        catalog: &Catalog,
        header: RecordHeader,
        record: &[u8],
    ) -> Result<bool, Error> {
        let Some(event) = catalog.usual_event(record) else {
            return Ok(false);
        };
        let (Some(layout), Some(id)) = (event.usual(), event.id) else {
            return Ok(false);
        };
        let Some((head, mut rest)) = record.split_at_checked(layout.head_bytes) else {
            return Ok(false);
        };
        let (words, _) = head
            .get(HEADER_BYTES..)
            .unwrap_or_default()
            .as_chunks::<8>();
        let cpu = layout.cpu.of(words).map_or(u32::MAX, |word| word as u32);
        let threads = layout.threads.of(words);
        let (pid, tid) = threads.map_or((-1, -1), |word| (word as i32, (word >> 32) as i32));
        if !is_sane_place(Some(cpu), Some(pid), Some(tid)) {
            return Ok(false);
        }
        let space = space_of(header.misc);
        let mut stacks = None;
        if layout.has_chain {
            let mut cursor = Cursor::new(rest, 0, Endian::Little);
            self.lists.clear_stacks();
            match read_chain(&mut cursor, space, &mut self.lists) {
                Ok(None) => rest = cursor.rest(),
                // Its user stack follows in another record, or the chain is too short.
                _ => return Ok(false),
            }
            self.lists.set_unwound(layout.is_unwound);
            stacks = Some(Stacks {
                kernel: self.lists.kernel_stack(),
                user: self.lists.user_stack(),
            });
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
        let period = layout.period.of(words).or(layout.fixed_period);
        event.add_unsampled(period);
        let thread = |id| threads.map_or(Id::NONE, |_| Id::of(id));
        self.out.sink.hit(&Hit {
            event: id,
            cpu: Id::of_cpu(known_cpu(Some(cpu))),
            pid: thread(pid),
            tid: thread(tid),
            time: time_of(layout.time.of(words).unwrap_or_default()),
            stacks,
            space,
            ip: layout.ip.of(words),
            period,
            payload,
        })?;
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
