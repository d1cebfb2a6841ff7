//! Emission of kernel records that are event types themselves (`recorder.rs`).

use perfquet_events::bytes::Cursor;
use perfquet_events::event::{Cgroup, Event, Loss, Namespaces, ReadValue, Value};

use crate::perf_data::catalog::Catalog;
use crate::perf_data::emit::Emission;
use crate::perf_data::output::{Fault, Output};
use crate::perf_data::record::{MISC_BIT_13, MISC_BIT_14, RecordHeader, Trailer, kind};
use crate::perf_data::recorder::{NAMESPACES, RecorderEvent};
use crate::perf_data::sample;
use crate::perf_data::values::{emit_values, known_cpu, signed, when};

impl Emission<'_> {
    pub(super) fn emit_recorder_event(
        &mut self,
        catalog: &mut Catalog,
        header: RecordHeader,
        mut body: Cursor<'_>,
        trailer: &Trailer,
    ) -> Result<(), Fault> {
        let mut trailer = *trailer;
        let (event, values): (_, &[Value<'_>]) = match header.kind {
            kind::READ => {
                trailer.pid = Some(body.i32()?);
                trailer.tid = Some(body.i32()?);
                return emit_read(catalog, body, &trailer, &mut self.out);
            }
            kind::THROTTLE | kind::UNTHROTTLE => {
                return emit_throttle(catalog, header, body, trailer, &mut self.out);
            }
            kind::SWITCH => (RecorderEvent::Switch, &switch_values(header.misc, None)),
            kind::SWITCH_CPU_WIDE => {
                let other = (body.i32()?, body.i32()?);
                let values = switch_values(header.misc, Some(other));
                (RecorderEvent::Switch, &{ values })
            }
            kind::NAMESPACES => {
                trailer.pid = Some(body.i32()?);
                trailer.tid = Some(body.i32()?);
                let count = body.u64()?;
                let mut values = [Value::Null; 2 * NAMESPACES.len()];
                for slot in values.iter_mut().take(count.saturating_mul(2) as usize) {
                    *slot = Value::UInt(body.u64()?);
                }
                emit_namespaces(&trailer, &values, &mut self.out)?;
                (RecorderEvent::Namespaces, &{ values })
            }
            kind::CGROUP => {
                let id = body.u64()?;
                let path = body.text_to_nul();
                self.out.event(Event::Cgroup(Cgroup { id, path }))?;
                (
                    RecorderEvent::Cgroup,
                    &[Value::UInt(id), Value::Bytes(path)],
                )
            }
            kind::BPF_EVENT => {
                let (action, flags) = (body.u16()?, body.u16()?);
                let (id, tag) = (body.u32()?, body.bytes(8)?);
                let action = match action {
                    1 => Value::Bytes(b"load"),
                    2 => Value::Bytes(b"unload"),
                    _ => Value::Null,
                };
                let (id, flags) = (Value::UInt(id.into()), Value::UInt(flags.into()));
                (
                    RecorderEvent::BpfEvent,
                    &[action, id, flags, Value::Bytes(tag)],
                )
            }
            kind::TEXT_POKE => {
                let addr = body.u64()?;
                let (old, new) = (body.u16()?, body.u16()?);
                let old = Value::Bytes(body.bytes(old.into())?);
                let new = Value::Bytes(body.bytes(new.into())?);
                (RecorderEvent::TextPoke, &[Value::UInt(addr), old, new])
            }
            kind::AUX => {
                let words = [body.u64()?, body.u64()?, body.u64()?];
                (RecorderEvent::Aux, &words.map(Value::UInt))
            }
            kind::ITRACE_START => {
                trailer.pid = Some(body.i32()?);
                trailer.tid = Some(body.i32()?);
                (RecorderEvent::ItraceStart, &[])
            }
            kind::AUX_OUTPUT_HW_ID => {
                let id = body.u64()?;
                (RecorderEvent::AuxOutputHwId, &[Value::UInt(id)])
            }
            unknown => {
                self.undecoded.add_record(unknown);
                return Ok(());
            }
        };
        let declared = &mut catalog.declared;
        emit_values(event, &trailer, values, declared, &mut self.out)?;
        Ok(())
    }
}

/// Passes the inodes of a thread's namespaces on; `values` has device and inode of each.
fn emit_namespaces(
    trailer: &Trailer,
    values: &[Value<'_>],
    out: &mut Output<'_>,
) -> Result<(), Fault> {
    let inodes: Vec<(&str, u64)> = NAMESPACES
        .into_iter()
        .zip(values.as_chunks::<2>().0)
        .filter_map(|(name, place)| match place {
            [_, Value::UInt(inode)] => Some((name, *inode)),
            _ => None,
        })
        .collect();
    let Some(tid) = trailer.tid else {
        return Ok(());
    };
    out.event(Event::Namespaces(Namespaces {
        tid,
        pid: trailer.pid,
        inodes: &inodes,
    }))?;
    Ok(())
}

fn emit_throttle(
    catalog: &mut Catalog,
    header: RecordHeader,
    mut body: Cursor<'_>,
    mut trailer: Trailer,
    out: &mut Output<'_>,
) -> Result<(), Fault> {
    let own_time = body.u64()?;
    let (id, stream_id) = (Some(body.u64()?), body.u64()?);
    trailer.time = trailer.time.or(Some(own_time));
    let name = catalog.name_of_id(id);
    let event = match header.kind {
        kind::THROTTLE => RecorderEvent::Throttle,
        _ => RecorderEvent::Unthrottle,
    };
    if header.kind == kind::THROTTLE {
        let event = catalog.event_of_id(id, out)?;
        out.event(Event::Loss(Loss {
            time: when(&trailer),
            cpu: known_cpu(trailer.cpu),
            event,
            count: None,
            in_all: None,
            reason: Loss::THROTTLED,
        }))?;
    }
    let values = [Value::Bytes(name.as_bytes()), Value::UInt(stream_id)];
    emit_values(event, &trailer, &values, &mut catalog.declared, out)?;
    Ok(())
}

/// PERF_RECORD_READ: final counts of a thread (`perf record -s`).
fn emit_read(
    catalog: &mut Catalog,
    mut body: Cursor<'_>,
    trailer: &Trailer,
    out: &mut Output<'_>,
) -> Result<(), Fault> {
    let index = catalog.index_of_id(trailer.id).unwrap_or(0);
    let event = catalog.get(index);
    let format = event.map_or(0, |event| event.attr.read_format);
    let mut values: Vec<ReadValue> = Vec::new();
    let times = sample::read_counters(&mut body, format, trailer.id, &mut values)?;
    let optional = |word: Option<u64>| word.and_then(signed).map_or(Value::Null, Value::Int);
    for value in values {
        let name = catalog.name_of_id(value.id);
        let row = [
            Value::Bytes(name.as_bytes()),
            Value::UInt(value.value),
            optional(times.enabled),
            optional(times.running),
            optional(value.lost),
        ];
        let declared = &mut catalog.declared;
        emit_values(RecorderEvent::Read, trailer, &row, declared, out)?;
    }
    Ok(())
}

fn switch_values(misc: u16, other: Option<(i32, i32)>) -> [Value<'static>; 4] {
    let [pid, tid] = match other {
        Some((pid, tid)) => [Value::Int(pid.into()), Value::Int(tid.into())],
        None => [Value::Null; 2],
    };
    [
        Value::Bool(misc & MISC_BIT_13 != 0),
        Value::Bool(misc & MISC_BIT_14 != 0),
        pid,
        tid,
    ]
}
