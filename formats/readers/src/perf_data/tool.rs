//! Records that perf itself writes: events, build IDs, threads, clocks.

use perfquet_events::bytes::{Cursor, Short, before_nul};
use perfquet_events::event::{BuildId, Comm, Event, Fact, Place, Space, Value};

use crate::perf_data::attr::{ATTR_BYTES_MAX, ATTR_BYTES_MIN, Attr};
use crate::perf_data::catalog::{Catalog, Declared};
use crate::perf_data::formats::Formats;
use crate::perf_data::output::{Fault, Output};
use crate::perf_data::record::{MISC_BIT_15, RecordHeader, Trailer};
use crate::perf_data::recorder::RecorderEvent;
use crate::perf_data::sample::space_of;
use crate::perf_data::stat::Stat;
use crate::perf_data::values::emit_values;

/// HEADER_ATTR: an attr, then the ids of its counters.
pub(super) fn header_attr(
    body: Cursor<'_>,
    catalog: &mut Catalog,
    out: &mut Output<'_>,
) -> Result<(), Fault> {
    catalog.is_listed = true;
    let mut probe = body;
    let size = match probe.u32().and_then(|_| probe.u32())? {
        0 => ATTR_BYTES_MIN,
        size => u64::from(size),
    };
    let size = size.clamp(ATTR_BYTES_MIN, ATTR_BYTES_MAX);
    let mut ids = body;
    // Missing members of a short attr are zero.
    let attr = ids.bytes(size.min(ids.left()))?;
    if !Attr::is_plausible(attr, body.endian()) {
        // The samples with its IDs must not be read as those of another event.
        catalog.is_damaged = true;
        out.problem(Place::Offset(body.offset()), "attr", || {
            "expected the settings of an event, found other bytes".into()
        })?;
        return Ok(());
    }
    let attr = Attr::parse(attr, body.endian());
    catalog.add(attr, std::iter::from_fn(|| ids.u64().ok()), out)?;
    Ok(())
}

/// HEADER_EVENT_TYPE, obsolete: `u64 config, char name[64]`.
pub(super) fn header_event_type(mut body: Cursor<'_>, catalog: &mut Catalog) -> Result<(), Short> {
    let config = body.u64()?;
    let name = String::from_utf8_lossy(before_nul(body.rest()));
    let names = &mut catalog.names.event_types;
    names.insert(config, name.into_owned());
    Ok(())
}

/// TRACING_DATA: `u32 size`, then the data, inside the record or after it.
pub(super) fn tracing_data(
    mut body: Cursor<'_>,
    extra: &[u8],
    formats: &mut Formats,
    out: &mut Output<'_>,
) -> Result<(), Fault> {
    body.u32()?;
    if extra.is_empty() {
        formats.add(body.rest(), body.offset(), out)?;
    } else {
        formats.add(extra, body.offset() + body.left(), out)?;
    }
    Ok(())
}

/// BUILD_ID: `i32 pid, u8 id[20], u8 size, u8[3], char path[]`. The first version of perf wrote no PID.
pub(super) fn build_id(
    header: RecordHeader,
    mut body: Cursor<'_>,
    has_pid: bool,
    out: &mut Output<'_>,
) -> Result<(), Fault> {
    let pid = match has_pid {
        true => body.i32()?,
        false => -1,
    };
    let id = body.bytes(24)?;
    let size = id
        .get(20)
        .copied()
        .filter(|_| header.misc & MISC_BIT_15 != 0);
    let size = usize::from(size.unwrap_or(20)).min(20);
    let build_id = id.get(..size).unwrap_or(id);
    let path = before_nul(body.rest());
    let space = space_of(header.misc);
    if space == Space::Kernel && path.starts_with(b"[kernel.kallsyms]") {
        out.fact(Fact::KernelBuildId(build_id))?;
    }
    out.event(Event::BuildId(BuildId {
        pid,
        space,
        path,
        build_id,
    }))?;
    Ok(())
}

/// AUXTRACE_INFO: `u32 type, …`.
pub(super) fn auxtrace_info(mut body: Cursor<'_>, out: &mut Output<'_>) -> Result<(), Fault> {
    // enum auxtrace_type, tools/perf/util/auxtrace.h
    let name = match body.u32()? {
        1 => "intel_pt",
        2 => "intel_bts",
        3 => "cs_etm",
        4 => "arm_spe",
        5 => "s390_cpumsf",
        6 => "hisi_ptt",
        _ => "unknown",
    };
    out.other_fact("perf.auxtrace", name)?;
    Ok(())
}

/// AUXTRACE_ERROR: `u32 type, code, cpu, pid, tid, fmt; u64 ip, time; char msg[]`.
pub(super) fn auxtrace_error(
    mut body: Cursor<'_>,
    declared: &mut Declared,
    out: &mut Output<'_>,
) -> Result<(), Fault> {
    let (error, code, cpu) = (body.u32()?, body.u32()?, body.u32()?);
    let (pid, tid, format) = (body.i32()?, body.i32()?, body.u32()?);
    let ip = body.u64()?;
    // Before format 1, there was no time.
    let time = if format == 0 { 0 } else { body.u64()? };
    let trailer = Trailer {
        pid: Some(pid),
        tid: Some(tid),
        time: Some(time),
        cpu: Some(cpu),
        ..Trailer::default()
    };
    let values = [
        Value::UInt(error.into()),
        Value::UInt(code.into()),
        Value::UInt(ip),
        Value::Bytes(before_nul(body.rest())),
    ];
    let event = RecorderEvent::AuxtraceError;
    emit_values(event, &trailer, &values, declared, out)?;
    Ok(())
}

/// THREAD_MAP: `u64 n; {u64 tid, char comm[16]}[n]`, the selected threads.
pub(super) fn thread_map(mut body: Cursor<'_>, out: &mut Output<'_>) -> Result<(), Fault> {
    body.u64()?;
    while body.left() >= 24 {
        let (Ok(tid), Ok(comm)) = (body.i64(), body.bytes(16)) else {
            break;
        };
        let comm = before_nul(comm);
        // -1: all threads.
        if let Ok(tid @ 0..) = i32::try_from(tid)
            && !comm.is_empty()
        {
            out.event(Event::Comm(Comm {
                time: None,
                pid: None,
                tid,
                comm,
                exec: false,
            }))?;
        }
    }
    Ok(())
}

/// STAT_CONFIG: `u64 n; {u64 tag, u64 value}[n]`.
pub(super) fn stat_config(
    mut body: Cursor<'_>,
    stat: &mut Stat,
    out: &mut Output<'_>,
) -> Result<(), Fault> {
    body.u64()?;
    while let (Ok(tag), Ok(value)) = (body.u64(), body.u64()) {
        let name = match tag {
            0 => {
                stat.set_aggregation(value);
                "perf.stat_aggregation"
            }
            1 => "perf.stat_interval_ms",
            2 => "perf.stat_scale",
            _ => continue,
        };
        out.other_fact(name, &value.to_string())?;
    }
    Ok(())
}

/// TIME_CONV: `u64 shift, mult, zero`: time = zero + (tsc · mult >> shift).
pub(super) fn time_conv(mut body: Cursor<'_>, out: &mut Output<'_>) -> Result<(), Fault> {
    let (shift, mult, zero) = (body.u64()?, body.u64()?, body.u64()?);
    let text = format!("shift={shift} mult={mult} zero={zero}");
    out.other_fact("perf.time_conv", &text)?;
    Ok(())
}
