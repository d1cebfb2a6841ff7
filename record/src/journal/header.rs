//! The head of the journal: events with IDs and names, facts about the host, formats, kernel mappings.

use perfquet_events::event::Selection;
use perfquet_events::wire::RECORDER;

use super::kernel_maps;
use super::own_records::OwnRecords;
use super::record::{Records, kind};
use super::tracing_data;
use crate::probe::{Kind, pmu_types};
use crate::recording::{OWN_ID, Recording, Track, attr_of_own_records};
use crate::sys::clock;
use crate::sys::host;
use crate::sys::perf_event::attr_bytes;
use crate::sys::tracefs::Tracefs;

/// `PERFILE2` in the host's byte order, which readers recognize by it.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"PERFILE2");
/// Size of the header; 16 identifies a pipe, in which records follow.
const PIPE_HEADER_BYTES: u64 = 16;
/// Maximum number of IDs in a HEADER_ATTR with the longest attr.
pub(super) const IDS_PER_ATTR: usize = 8000;

/// Kinds of EVENT_UPDATE.
pub(super) mod update {
    pub(in crate::journal) const NAME: u64 = 2;
    pub(super) use perfquet_events::wire::update::{
        BOOT, FILTER, FUNCTION, PURPOSE, RECORDED, SCOPE, SELECTION,
    };
}

/// Numbers of HEADER_FEATUREs (tools/perf/util/header.h).
pub(super) mod feature {
    pub(in crate::journal) const TRACING_DATA: u64 = 1;
    pub(in crate::journal) const BUILD_ID: u64 = 2;
    pub(super) const HOSTNAME: u64 = 3;
    pub(super) const OSRELEASE: u64 = 4;
    pub(super) const VERSION: u64 = 5;
    pub(super) const ARCH: u64 = 6;
    pub(super) const NRCPUS: u64 = 7;
    pub(super) const CPUDESC: u64 = 8;
    pub(super) const TOTAL_MEM: u64 = 10;
    pub(super) const CMDLINE: u64 = 11;
    pub(in crate::journal) const EVENT_DESC: u64 = 12;
    pub(super) const PMU_MAPPINGS: u64 = 16;
    pub(in crate::journal) const SAMPLE_TIME: u64 = 21;
    pub(super) const CLOCKID: u64 = 23;
    pub(super) const CLOCK_DATA: u64 = 29;
}

/// Returns everything known before the first event.
pub(crate) fn head(recording: &Recording, selection: &Selection) -> Vec<u8> {
    let mut head = Vec::new();
    head.extend(MAGIC.to_ne_bytes());
    head.extend(PIPE_HEADER_BYTES.to_ne_bytes());
    let mut records = Records::new();
    for track in recording.all() {
        add_event(&mut records, track);
    }
    add_own(&mut records, recording);
    add_features(&mut records);
    head.extend(records.bytes());
    add_formats(&mut head, recording);
    // After the parts that a perf.data in file format keeps in separate sections, because updates are data there.
    let mut updates = Records::new();
    for track in recording.all() {
        add_updates(&mut updates, track);
    }
    add_selection(&mut updates, recording, selection);
    add_whole(&mut updates, recording, update::SCOPE, &recording.scope);
    if let Some(id) = host::boot_id() {
        add_whole(&mut updates, recording, update::BOOT, &id);
    }
    head.extend(updates.bytes());
    if recording.has_addresses {
        head.extend(kernel_maps::records());
    }
    head
}

fn add_event(records: &mut Records, track: &Track) {
    let ids: Vec<u64> = track.events.iter().map(|opened| opened.id).collect();
    let attr = attr_bytes(&track.written_attr());
    for ids in ids.chunks(IDS_PER_ATTR) {
        records.add(kind::HEADER_ATTR, 0, |body| {
            body.raw(&attr);
            ids.iter().for_each(|id| body.u64(*id));
        });
    }
}

/// Declares the records of processes, pauses, counts and rates, which belong to no event of the kernel.
fn add_own(records: &mut Records, recording: &Recording) {
    let Some(id) = recording.own_id else {
        return;
    };
    declare_own(records, id);
}

/// Returns records that say that the recording ended before its time. A recording that has no records of its own so far declares
/// them.
pub(crate) fn early_end(has_own_records: bool) -> Vec<u8> {
    let mut declared = Records::new();
    if !has_own_records {
        declare_own(&mut declared, OWN_ID);
    }
    let mut records = OwnRecords::new(OWN_ID, clock::monotonic(), 0);
    records.early_end();
    let mut bytes = declared.into_bytes();
    bytes.extend(records.into_bytes());
    bytes
}

fn declare_own(records: &mut Records, id: u64) {
    records.add(kind::HEADER_ATTR, 0, |body| {
        body.raw(&attr_bytes(&attr_of_own_records()));
        body.u64(id);
    });
    records.add(kind::EVENT_UPDATE, 0, |body| {
        body.u64(update::NAME);
        body.u64(id);
        body.text(RECORDER.as_bytes());
    });
}

/// Adds information that the attr lacks. Any of an event's IDs identifies it.
fn add_updates(records: &mut Records, track: &Track) {
    let Some(first) = track.events.first() else {
        return;
    };
    let mut add_update = |kind: u64, text: &str| {
        records.add(kind::EVENT_UPDATE, 0, |body| {
            body.u64(kind);
            body.u64(first.id);
            body.text(text.as_bytes());
        })
    };
    add_update(update::NAME, &track.probe.name);
    if let Some(filter) = &track.probe.filter {
        add_update(update::FILTER, filter);
    }
    if let Kind::Tracepoint(tracepoint) = &track.probe.kind
        && let Some(purpose) = tracepoint.purpose.text()
    {
        add_update(update::PURPOSE, &purpose);
    }
    if let Kind::Output { functions, .. } = &track.probe.kind {
        for function in functions {
            add_update(update::FUNCTION, &function.text());
        }
    }
}

/// Returns the selection, which is written again when more of it is known.
pub(crate) fn selection(recording: &Recording, selection: &Selection) -> Vec<u8> {
    let mut records = Records::new();
    add_selection(&mut records, recording, selection);
    records.into_bytes()
}

fn add_selection(records: &mut Records, recording: &Recording, selection: &Selection) {
    let text = selection.text();
    if !text.is_empty() {
        add_whole(records, recording, update::SELECTION, &text);
    }
}

/// Returns an update of the whole recording, which is known at its end only.
pub(crate) fn whole(recording: &Recording, kind: u64, text: &str) -> Vec<u8> {
    let mut records = Records::new();
    add_whole(&mut records, recording, kind, text);
    records.into_bytes()
}

/// Adds an update of the whole recording.
fn add_whole(records: &mut Records, recording: &Recording, kind: u64, text: &str) {
    if let Some(id) = any_id(recording) {
        add_update(records, (kind, id), text);
    }
}

/// The ID of an event. Updates of the whole recording must belong to one; any one will do.
pub(crate) fn any_id(recording: &Recording) -> Option<u64> {
    let mut all = recording.all();
    all.find_map(|track| Some(track.events.first()?.id))
}

/// Returns the record of the ranges of time that were recorded.
pub(crate) fn recorded(id: u64, ranges: &str) -> Vec<u8> {
    let mut records = Records::new();
    add_update(&mut records, (update::RECORDED, id), ranges);
    records.into_bytes()
}

fn add_update(records: &mut Records, (kind, id): (u64, u64), text: &str) {
    records.add(kind::EVENT_UPDATE, 0, |body| {
        body.u64(kind);
        body.u64(id);
        body.text(text.as_bytes());
    });
}

fn add_features(records: &mut Records) {
    let mut text = |feature: u64, text: &str| {
        records.add(kind::HEADER_FEATURE, 0, |body| {
            body.u64(feature);
            body.header_text(text);
        });
    };
    let names = host::names();
    text(feature::HOSTNAME, &names.host);
    text(feature::OSRELEASE, &names.release);
    text(
        feature::VERSION,
        concat!("perfquet-record ", env!("CARGO_PKG_VERSION")),
    );
    text(feature::ARCH, &names.machine);
    if let Some(model) = host::cpu_model() {
        text(feature::CPUDESC, &model);
    }
    let (present, online) = (host::present_cpus().len(), host::online_cpus().len());
    records.add(kind::HEADER_FEATURE, 0, |body| {
        body.u64(feature::NRCPUS);
        body.u32(present as u32);
        body.u32(online as u32);
    });
    if let Some(kib) = host::memory_kib() {
        records.add(kind::HEADER_FEATURE, 0, |body| {
            body.u64(feature::TOTAL_MEM);
            body.u64(kib);
        });
    }
    add_command_line(records);
    add_pmus(records);
    add_clock(records);
}

fn add_command_line(records: &mut Records) {
    let arguments: Vec<String> = std::env::args_os()
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    // Truncate a command of 60 KiB or more, because a record cannot hold it.
    let mut room = 48 << 10;
    let fitting: Vec<&String> = arguments
        .iter()
        .take_while(|argument| {
            room -= argument.len() as i64 + 70;
            room > 0
        })
        .collect();
    records.add(kind::HEADER_FEATURE, 0, |body| {
        body.u64(feature::CMDLINE);
        body.u32(fitting.len() as u32);
        fitting
            .iter()
            .for_each(|argument| body.header_text(argument));
    });
}

fn add_pmus(records: &mut Records) {
    let pmus = pmu_types();
    records.add(kind::HEADER_FEATURE, 0, |body| {
        body.u64(feature::PMU_MAPPINGS);
        body.u32(pmus.len() as u32);
        for (number, name) in &pmus {
            body.u32(*number);
            body.header_text(name);
        }
    });
}

/// Adds the clock, with its time at one moment of wall-clock time.
fn add_clock(records: &mut Records) {
    records.add(kind::HEADER_FEATURE, 0, |body| {
        body.u64(feature::CLOCKID);
        body.u64(1); // its resolution, ns
    });
    let (wall, monotonic) = clock::wall_and_monotonic();
    records.add(kind::HEADER_FEATURE, 0, |body| {
        body.u64(feature::CLOCK_DATA);
        body.u32(1); // version
        body.u32(libc::CLOCK_MONOTONIC as u32);
        body.u64(wall);
        body.u64(monotonic);
    });
}

/// TRACING_DATA: the record has the size of the data that follows it.
fn add_formats(head: &mut Vec<u8>, recording: &Recording) {
    let tracepoints = || {
        recording
            .tracks
            .iter()
            .filter_map(|track| match &track.probe.kind {
                Kind::Tracepoint(tracepoint) => Some(tracepoint),
                Kind::Sampled | Kind::Output { .. } => None,
            })
    };
    if tracepoints().next().is_none() {
        return;
    }
    let Ok(tracefs) = Tracefs::open() else {
        return; // the tracepoints were opened through it
    };
    let section = tracing_data::section(&tracefs, tracepoints());
    // 12 bytes, not 16: perf's own record is not padded.
    head.extend(kind::TRACING_DATA.to_ne_bytes());
    head.extend(0u16.to_ne_bytes());
    head.extend(12u16.to_ne_bytes());
    head.extend((section.len() as u32).to_ne_bytes());
    head.extend(section);
}
