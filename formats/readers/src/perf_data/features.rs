//! Features: perf's information about the host and the recording, one numbered section each.
//!
//! In file mode, features follow the data; in a pipe, they are HEADER_FEATURE records with the same bodies
//! (tools/perf/util/header.c, `feat_ops`). Each one is optional, and a damaged one affects no other.

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::bytes::{Cursor, Short, before_nul};
use perfquet_events::event::{Fact, Place};

use crate::perf_data::attr::{Attr, clock_name};
use crate::perf_data::catalog::Catalog;
use crate::perf_data::output::{Fault, Output, missing};
use crate::perf_data::record::{HEADER_BYTES, RecordHeader};
use crate::perf_data::simpleperf;
use crate::perf_data::tool::build_id;

pub(super) const TRACING_DATA: u32 = 1;
pub(super) const BUILD_ID: u32 = 2;
const COMMAND_LINE: u32 = 11;
pub(super) const EVENT_DESC: u32 = 12;
const PMU_MAPPINGS: u32 = 16;
const CLOCK_DATA: u32 = 29;
const SIMPLEPERF_FIRST: u32 = 128;

/// A parsed feature, ready to be emitted.
enum Feature {
    Fact(Kind, String),
    Cpus(u32),
    Memory(u64),
    Nothing,
}

enum Kind {
    Host,
    OsRelease,
    Recorder,
    Architecture,
    CpuModel,
    CommandLine,
    Other(&'static str),
}

/// Reads one feature.
pub(super) fn feature(
    bit: u32,
    body: Cursor<'_>,
    catalog: &mut Catalog,
    out: &mut Output<'_>,
) -> Result<(), Error> {
    let offset = body.offset();
    if bit == COMMAND_LINE {
        catalog.is_switched = texts(&mut body.clone()).is_ok_and(|words| is_switched(&words));
    }
    let result = match bit {
        TRACING_DATA => return catalog.formats.add(body.rest(), offset, out),
        BUILD_ID => return build_ids(body, out),
        EVENT_DESC => event_descriptions(body, catalog, out),
        PMU_MAPPINGS => pmu_mappings(body, &mut catalog.names.pmus, out),
        CLOCK_DATA => clock_data(body, out),
        SIMPLEPERF_FIRST.. => {
            let names = &mut catalog.names.simpleperf;
            return simpleperf::feature(bit, body, names, out);
        }
        _ => match describe(bit, body) {
            Ok(feature) => return emit(feature, out),
            Err(short) => Err(short.into()),
        },
    };
    match missing(result)? {
        None => Ok(()),
        Some(short) => out.problem(Place::Offset(offset), "feature", || {
            format!("header feature {bit}: {short}")
        }),
    }
}

/// Whether perf's command line has `--switch-output`, also shortened, with or without a value. Words after `--` are those of the command.
fn is_switched(words: &[String]) -> bool {
    let mut own = words.iter().take_while(|word| *word != "--");
    own.any(|word| word.starts_with("--switch-o"))
}

/// HEADER_FEATURE: `u64 bit`, then the feature.
pub(super) fn header_feature(
    mut body: Cursor<'_>,
    catalog: &mut Catalog,
    out: &mut Output<'_>,
) -> Result<(), Fault> {
    let bit = u32::try_from(body.u64()?).unwrap_or(u32::MAX);
    feature(bit, body, catalog, out)?;
    Ok(())
}

fn emit(feature: Feature, out: &mut Output<'_>) -> Result<(), Error> {
    let (kind, text) = match feature {
        Feature::Fact(kind, text) if !text.is_empty() => (kind, text),
        Feature::Cpus(count) => return out.fact(Fact::Cpus(count)),
        Feature::Memory(bytes) => return out.fact(Fact::MemoryBytes(bytes)),
        Feature::Fact(..) | Feature::Nothing => return Ok(()),
    };
    out.fact(match kind {
        Kind::Host => Fact::Host(&text),
        Kind::OsRelease => Fact::OsRelease(&text),
        Kind::Recorder => Fact::Recorder(&text),
        Kind::Architecture => Fact::Architecture(&text),
        Kind::CpuModel => Fact::CpuModel(&text),
        Kind::CommandLine => Fact::CommandLine(&text),
        Kind::Other(name) => Fact::Other { name, value: &text },
    })
}

/// Reads a sequence of BUILD_ID records. The first version of perf wrote no PID, which makes the kernel's path look
/// truncated.
fn build_ids(body: Cursor<'_>, out: &mut Output<'_>) -> Result<(), Error> {
    let mut records = Vec::new();
    let mut cursor = body;
    while let Some(header) = RecordHeader::parse(cursor.rest(), cursor.endian()) {
        let size = header.size as u64;
        if header.size < HEADER_BYTES || cursor.left() < size {
            let left = cursor.left();
            out.problem(Place::Offset(cursor.offset()), "feature", || {
                format!("build ids: expected a record of {size} bytes, found {left}")
            })?;
            break;
        }
        let Ok(mut record) = cursor.part(size) else {
            break;
        };
        if record.bytes(HEADER_BYTES as u64).is_ok() {
            records.push((header, record));
        }
    }
    let has_pid = !records.iter().any(|(_, record)| {
        let path = record.rest().get(28..).unwrap_or_default();
        path.starts_with(b"nel.kallsyms]")
    });
    for (header, record) in records {
        if let Some(short) = missing(build_id(header, record, has_pid, out))? {
            out.short("build ids", short)?;
        }
    }
    Ok(())
}

/// `u32 n, u32 attr_size; {attr[attr_size], u32 n_ids, string name, u64 ids[n_ids]}[n]`.
fn event_descriptions(
    mut body: Cursor<'_>,
    catalog: &mut Catalog,
    out: &mut Output<'_>,
) -> Result<(), Fault> {
    let mut lost = Vec::new();
    let read = read_descriptions(&mut body, catalog, &mut lost);
    for (attr, ids) in lost {
        catalog.add(attr, ids, out)?;
    }
    Ok(read?)
}

/// Reads the descriptions; events whose own record is lost are added to `lost`.
fn read_descriptions(
    body: &mut Cursor<'_>,
    catalog: &mut Catalog,
    lost: &mut Vec<(Attr, Vec<u64>)>,
) -> Result<(), Short> {
    let endian = body.endian();
    let count = body.u32()?;
    let attr_size = body.u32()?;
    for index in 0..count as usize {
        let attr = body.bytes(attr_size.into())?;
        let id_count = body.u32()?;
        let name = text(body)?;
        let mut ids_part = body.part(u64::from(id_count) * 8)?;
        let ids: Vec<u64> = std::iter::from_fn(|| ids_part.u64().ok()).collect();
        let is_known = ids.iter().any(|id| catalog.has_id(*id));
        if catalog.is_damaged && !ids.is_empty() && !is_known && Attr::is_plausible(attr, endian) {
            lost.push((Attr::parse(attr, endian), ids.clone()));
        } else if !catalog.is_damaged {
            // Some files have their IDs only here.
            ids.iter().for_each(|&id| catalog.add_id(id, index));
        }
        catalog.names.descriptions.push((name, ids));
    }
    Ok(())
}

/// `u32 n; {u32 type, string name}[n]`.
fn pmu_mappings(
    mut body: Cursor<'_>,
    pmus: &mut HashMap<u32, String>,
    out: &mut Output<'_>,
) -> Result<(), Fault> {
    let mut said = Vec::new();
    for _ in 0..body.u32()? {
        let (kind, name) = (body.u32()?, text(&mut body)?);
        said.push(format!("{name}={kind}"));
        pmus.insert(kind, name);
    }
    out.other_fact("perf.pmu_mappings", &said.join(" "))?;
    Ok(())
}

/// `u32 version, u32 clockid, u64 wall_ns, u64 clock_ns`: the same moment on two clocks.
fn clock_data(mut body: Cursor<'_>, out: &mut Output<'_>) -> Result<(), Fault> {
    body.u32()?;
    let (clock, wall, time) = (body.i32()?, body.u64()?, body.u64()?);
    // perf stat writes the feature without having read the clocks.
    if (wall, time) == (0, 0) {
        return Ok(());
    }
    out.fact(Fact::Clock(clock_name(clock)))?;
    out.fact(Fact::WallOffset(wall.wrapping_sub(time) as i64))?;
    Ok(())
}

/// `u32 length, bytes`, ended by NUL inside.
pub(super) fn text(body: &mut Cursor<'_>) -> Result<String, Short> {
    let length = body.u32()?;
    let bytes = before_nul(body.bytes(length.into())?);
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

/// `u32 n, strings`.
fn texts(body: &mut Cursor<'_>) -> Result<Vec<String>, Short> {
    let mut all = Vec::new();
    for _ in 0..body.u32()? {
        all.push(text(body)?);
    }
    Ok(all)
}

/// Parses the features that consist of facts only.
fn describe(bit: u32, mut body: Cursor<'_>) -> Result<Feature, Short> {
    let body = &mut body;
    let other = |name, text| Feature::Fact(Kind::Other(name), text);
    Ok(match bit {
        3 => Feature::Fact(Kind::Host, text(body)?),
        4 => Feature::Fact(Kind::OsRelease, text(body)?),
        5 => Feature::Fact(Kind::Recorder, recorder(&text(body)?)),
        6 => Feature::Fact(Kind::Architecture, text(body)?),
        7 => {
            // Available CPUs precede the online ones, contrary to perf.data-file-format.txt.
            body.u32()?;
            Feature::Cpus(body.u32()?)
        }
        8 => Feature::Fact(Kind::CpuModel, text(body)?),
        9 => other("perf.cpuid", text(body)?),
        10 => Feature::Memory(body.u64()?.saturating_mul(1024)),
        COMMAND_LINE => Feature::Fact(Kind::CommandLine, texts(body)?.join(" ")),
        13 => {
            let (cores, threads) = (texts(body)?.join(" "), texts(body)?.join(" "));
            other(
                "perf.cpu_topology",
                format!("cores {cores}; threads {threads}"),
            )
        }
        14 => other("perf.numa_topology", numa(body)?),
        17 => other("perf.groups", groups(body)?),
        20 => other("perf.caches", caches(body)?),
        21 => {
            let (first, last) = (body.u64()?, body.u64()?);
            // perf writes zeros if it did not count: in pipes, and in perf stat.
            let text = match last {
                0 => String::new(),
                _ => format!("{first} {last}"),
            };
            other("perf.sample_time", text)
        }
        22 => {
            let (_, block, nodes) = (body.u64()?, body.u64()?, body.u64()?);
            other(
                "perf.memory_topology",
                format!("{nodes} nodes, blocks of {block} bytes"),
            )
        }
        23 => other("perf.clock_resolution_ns", count(body.u64()?)),
        25 => other("perf.bpf_programs", count(body.u32()?.into())),
        26 => other("perf.bpf_btf", count(body.u32()?.into())),
        27 => {
            let (_, kind, level) = (body.u32()?, body.u32()?, body.u32()?);
            let ratio = body.u32()?;
            let text = match kind {
                0 => String::new(),
                _ => format!("type {kind} level {level} ratio {ratio}"),
            };
            other("perf.compressed", text)
        }
        28 => {
            let count = body.u32()?;
            other("perf.cpu_pmu_caps", pairs(body, count)?)
        }
        30 => {
            let count = body.u32()?;
            other("perf.hybrid_topology", pairs(body, count)?)
        }
        31 => {
            let mut all = Vec::new();
            for _ in 0..body.u32()? {
                let count = body.u32()?;
                let caps = pairs(body, count)?;
                all.push(format!("{}: {caps}", text(body)?));
            }
            other("perf.pmu_caps", all.join("; "))
        }
        33 => other("perf.elf_machine", body.u32()?.to_string()),
        34 => other("perf.cache_line_bytes", body.u32()?.to_string()),
        // Flags without a body, locations of AUX buffers, and features of newer versions.
        _ => Feature::Nothing,
    })
}

/// A nonzero number; empty for zero.
fn count(number: u64) -> String {
    match number {
        0 => String::new(),
        _ => number.to_string(),
    }
}

fn pairs(body: &mut Cursor<'_>, count: u32) -> Result<String, Short> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(format!("{}={}", text(body)?, text(body)?));
    }
    Ok(all.join(" "))
}

fn numa(body: &mut Cursor<'_>) -> Result<String, Short> {
    let mut all = Vec::new();
    for _ in 0..body.u32()? {
        let (node, total, free) = (body.u32()?, body.u64()?, body.u64()?);
        let cpus = text(body)?;
        all.push(format!(
            "node {node}: {total} kB, {free} kB free, cpus {cpus}"
        ));
    }
    Ok(all.join("; "))
}

fn groups(body: &mut Cursor<'_>) -> Result<String, Short> {
    let mut all = Vec::new();
    for _ in 0..body.u32()? {
        let name = text(body)?;
        let (leader, members) = (body.u32()?, body.u32()?);
        all.push(format!("{name}: {members} events from number {leader} on"));
    }
    Ok(all.join("; "))
}

fn caches(body: &mut Cursor<'_>) -> Result<String, Short> {
    body.u32()?;
    let mut all = Vec::new();
    for _ in 0..body.u32()? {
        let level = body.u32()?;
        let (line, _sets, _ways) = (body.u32()?, body.u32()?, body.u32()?);
        let (kind, size, cpus) = (text(body)?, text(body)?, text(body)?);
        all.push(format!(
            "L{level} {kind} {size}, lines of {line}, cpus {cpus}"
        ));
    }
    Ok(all.join("; "))
}

/// perf writes only its version; perfquet-record writes its name too.
fn recorder(version: &str) -> String {
    match version.starts_with("perfquet") {
        true => version.to_owned(),
        false => format!("perf {version}"),
    }
}
