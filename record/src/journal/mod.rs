//! The journal: the contents of the kernel's rings, as a perf.data in pipe format.
//!
//! ```text
//! "PERFILE2", u64 16            then records only, each { u32 type, u16 misc, u16 size, … }
//! HEADER_ATTR                   per event, with its ids
//! HEADER_FEATURE                host, kernel, CPUs, command line, clocks
//! TRACING_DATA                  the formats of the recorded tracepoints
//! EVENT_UPDATE                  per event: its name, its filter, what its hits are for
//! BUILD_ID, MMAP                the kernel and its modules
//! FORK, COMM, MMAP2             what existed at the start; then FINISHED_INIT
//! the rings' bytes              FINISHED_ROUND after each pass over all rings
//! LOST_SAMPLES                  at the end
//! ```
//! Nothing is ever rewritten, so the journal is a valid perf.data at every moment: the file of a killed recorder can be
//! imported like any other, and `perf report -i` opens it, unless its encoded part has been compressed ([`packer`]).
//! With `--format perf.data`, it is converted to perf's file format at the end ([`perf_file`]), because not all perf
//! commands read pipes. (tools/perf/Documentation/perf.data-file-format.txt)

mod build_ids;
pub(crate) mod header;
mod kernel_maps;
pub(crate) mod own_records;
mod packer;
mod perf_file;
pub(crate) mod processes;
pub(crate) mod record;
mod tracing_data;
mod walk;

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::probe::Kind;
use crate::recording::{Recording, Track};
use crate::sys::clock;
use record::{Records, kind};

pub(crate) use packer::Packer;
pub(crate) use perf_file::complete as complete_file;
use walk::Walk;
pub(crate) use walk::samples_by_id;

/// Space kept free on a full disk: a LOST_SAMPLES record takes 64 bytes per event and CPU.
const LAST_BYTES: u64 = 64 << 10;

/// A journal being written.
pub(crate) struct Journal {
    file: File,
    written: Arc<AtomicU64>,
}

impl Journal {
    /// Creates the journal. An existing file is an error, and links are not followed: traces contain secrets, and the
    /// recorder may be root.
    pub(crate) fn create(path: &Path) -> io::Result<Journal> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)?;
        Ok(Journal {
            file,
            written: Arc::default(),
        })
    }

    /// Returns the number of bytes written so far, for observers.
    pub(crate) fn written(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.written)
    }

    /// Appends bytes that are whole records, or pieces that become whole with the next.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.written
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the offset of the next byte.
    pub(crate) fn length(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Truncates the journal after a failed write to the end of a whole record, leaving room for the records that count
    /// the losses. A record begins at `from`, and only records were appended after it.
    pub(crate) fn cut(&mut self, from: u64) -> io::Result<()> {
        let limit = self.file.metadata()?.len().saturating_sub(LAST_BYTES);
        let mut walk = Walk::new(&self.file, from)?;
        let mut length = from;
        loop {
            match walk.next() {
                Ok(Some(_)) if walk.offset() <= limit => length = walk.offset(),
                // The bytes after the whole records cannot be a record.
                Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(error),
                Ok(_) | Err(_) => break,
            }
        }
        self.file.set_len(length)?;
        // Appending continues from there; the position of the file is past it.
        io::Seek::seek(&mut self.file, io::SeekFrom::Start(length))?;
        self.written.store(length, Ordering::Relaxed);
        Ok(())
    }

    /// Ends a pass over all rings. Later records are newer than the newest of the previous pass, so a reader can emit
    /// all records up to then in order.
    pub(crate) fn finish_round(&mut self) -> io::Result<()> {
        let mut records = Records::new();
        records.add(kind::FINISHED_ROUND, 0, |_| {});
        self.append(records.bytes())
    }

    /// Writes the losses per event and CPU, as counted by the kernel, and the missed hits of own probes. `written` has
    /// the number of samples per ID if the journal could not be written to its end: all other hits of tracepoints,
    /// which count every hit, are then lost.
    pub(crate) fn losses(
        &mut self,
        recording: &Recording,
        missed: &[(String, u64)],
        written: Option<&HashMap<u64, u64>>,
    ) -> io::Result<u64> {
        let written = written.filter(|_| !recording.has_doubles);
        let counted: Vec<_> = recording
            .counts()
            .map(|(track, opened, counts)| {
                let lost = match (written, &track.probe.kind) {
                    (Some(written), Kind::Tracepoint(_)) => {
                        let written = written.get(&opened.id).copied().unwrap_or(0);
                        Some(counts.value.saturating_sub(written))
                    }
                    _ => counts.lost,
                };
                (opened, lost)
            })
            .collect();
        let lost: u64 = counted.iter().filter_map(|(_, lost)| *lost).sum();
        let total = lost + missed.iter().map(|(_, count)| count).sum::<u64>();
        let mut records = Records::new();
        let time = clock::monotonic();
        for (opened, lost) in counted {
            // Include zero counts too: they record that nothing was lost, while the kernel attributes a loss in a ring
            // to whichever event comes next.
            let Some(lost) = lost else { continue };
            records.add(kind::LOST_SAMPLES, 0, |body| {
                body.u64(lost);
                // -1: reported by the recorder, not by the kernel at that time for that thread.
                body.trailer(-1, -1, time, opened.place.cpu, opened.id);
            });
        }
        for (name, count) in missed {
            let is_it = |track: &&Track| match &track.probe.kind {
                Kind::Tracepoint(tracepoint) => tracepoint.is_own && tracepoint.name == *name,
                Kind::Sampled | Kind::Output { .. } => false,
            };
            let track = recording.tracks.iter().find(is_it);
            let Some(opened) = track.and_then(|track| track.events.first()) else {
                continue;
            };
            records.add(kind::LOST_SAMPLES, 0, |body| {
                body.u64(*count);
                // ID 0: not one of the losses in rings, and on an unknown CPU.
                body.trailer(0, 0, time, u32::MAX, opened.id);
            });
        }
        self.append(records.bytes())?;
        Ok(total)
    }
}
