//! Per-CPU files left by a killed recorder: raw kernel pages without any description.
//!
//! ```text
//! trace.dat.cpu0  trace.dat.cpu1            the top-level buffer of `trace-cmd record -o trace.dat`
//! trace.dat.sched.cpu0                      an instance
//! trace-partial.dat                         heads and formats, written by `trace-cmd restore -c` on that host
//! .trace.dat.cpu0                           perfquet-record, whose head is trace.dat
//! ```
//! They are used if the trace.dat itself has no events: those named after it, or, for a file with another name, those
//! of the only recording in its directory. An empty file belongs to a CPU without events.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use perfquet_events::directory::directory_of;
use perfquet_events::input::Map;

use crate::trace_dat::head::{Buffer, CpuData};

/// The files of one recording, by instance and CPU.
type Found = BTreeMap<(String, u32), PathBuf>;

/// Files in the same directory.
#[derive(Default)]
pub(super) struct Beside {
    pub(super) buffers: Vec<Buffer>,
    /// The mapped files. Their indexes in [`CpuData::file`] begin at 1.
    pub(super) maps: Vec<Arc<Map>>,
    /// Files that cannot be read, with the reasons.
    pub(super) unreadable: Vec<String>,
}

/// Finds the files next to `path`, and the buffers that they make up.
pub(super) fn beside(path: &Path, clock: &[u8], page_size: u64) -> Beside {
    let mut beside = Beside::default();
    let Beside {
        buffers,
        maps,
        unreadable,
    } = &mut beside;
    for ((name, cpu), path) in find(path) {
        let is_empty = path.metadata().is_ok_and(|file| file.len() == 0);
        let map = match Map::foreign(&path) {
            Ok(map) => Some(map),
            Err(_) if is_empty => None,
            Err(error) => {
                unreadable.push(format!("{}: {error}", path.display()));
                continue;
            }
        };
        let name = name.into_bytes();
        if buffers.last().is_none_or(|buffer| buffer.name != name) {
            buffers.push(Buffer {
                name,
                clock: clock.to_vec(),
                page_size,
                cpus: Vec::new(),
            });
        }
        let size = map.as_ref().map_or(0, |map| map.len() as u64);
        maps.extend(map.map(Arc::new));
        if let Some(buffer) = buffers.last_mut() {
            buffer.cpus.push(CpuData {
                cpu: Some(cpu),
                file: maps.len(),
                offset: 0,
                size,
                packed: false,
            });
        }
    }
    beside
}

fn find(path: &Path) -> Found {
    let folder = directory_of(path);
    let own = path.file_name().unwrap_or_default().to_string_lossy();
    let mut recordings: BTreeMap<String, Found> = BTreeMap::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((stem, cpu)) = name.rsplit_once(".cpu") else {
            continue;
        };
        let Ok(cpu) = cpu.parse() else {
            continue;
        };
        // "trace.dat" or "trace.dat.INSTANCE"
        let (stem, instance) = match stem.find(".dat.") {
            Some(at) => (
                stem.get(..at + 4).unwrap_or_default(),
                stem.get(at + 5..).unwrap_or_default(),
            ),
            None => (stem, ""),
        };
        recordings
            .entry(stem.to_owned())
            .or_default()
            .insert((instance.to_owned(), cpu), entry.path());
    }
    let hidden = format!(".{own}");
    let by_name = recordings.remove(own.as_ref());
    match by_name.or_else(|| recordings.remove(&hidden)) {
        Some(found) => found,
        None if recordings.len() == 1 => recordings.into_values().next().unwrap_or_default(),
        None => Found::new(),
    }
}
