//! The journal: what the kernel's rings held, as a perf.data in pipe format.
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
//! Nothing is ever rewritten, so it is a whole perf.data at every moment: a recorder that was killed leaves
//! a file that imports like any other, and `perf report -i` opens it, unless so much was recorded that what was encoded
//! is packed ([`packer`]). With `--format perf.data` it becomes a file's at the
//! end ([`perf_file`]), since not all of perf's commands read a pipe's. (tools/perf/Documentation/perf.data-file-format.txt)

mod build_ids;
pub(crate) mod header;
mod kernel_maps;
mod packer;
mod perf_file;
pub(crate) mod processes;
pub(crate) mod record;
pub(crate) mod told;
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

/// Left free when a disk is full: a LOST_SAMPLES record takes 64 bytes for each event and CPU.
const LAST_BYTES: u64 = 64 << 10;

/// A journal that is being written.
pub(crate) struct Journal {
    file: File,
    written: Arc<AtomicU64>,
}

impl Journal {
    /// Creates it; an existing file is an error, a link is not followed: traces hold secrets, and we may be root.
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

    /// Bytes written so far, for whoever watches.
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

    /// Where the next byte goes.
    pub(crate) fn length(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// After a failed write: back to the end of a whole record, with room for the records that count the losses. A record
    /// begins at `from`, and from there on only records were appended.
    pub(crate) fn cut(&mut self, from: u64) -> io::Result<()> {
        let limit = self.file.metadata()?.len().saturating_sub(LAST_BYTES);
        let mut walk = Walk::new(&self.file, from)?;
        let mut length = from;
        loop {
            match walk.next() {
                Ok(Some(_)) if walk.offset() <= limit => length = walk.offset(),
                // What no record can be follows the whole ones.
                Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(error),
                Ok(_) | Err(_) => break,
            }
        }
        self.file.set_len(length)?;
        // Appending goes on from there; the position of the file is past it.
        io::Seek::seek(&mut self.file, io::SeekFrom::Start(length))?;
        self.written.store(length, Ordering::Relaxed);
        Ok(())
    }

    /// Ends a pass over all rings: whatever follows is younger than the youngest of the pass before, so a
    /// reader can hand out in order what it has read until then.
    pub(crate) fn finish_round(&mut self) -> io::Result<()> {
        let mut records = Records::new();
        records.add(kind::FINISHED_ROUND, 0, |_| {});
        self.append(records.bytes())
    }

    /// Writes what was lost per event and CPU, as the kernel counted it, and what it could not serve of our probes.
    /// `written` has the samples of each id where a journal could not be written to its end: of tracepoints, which count every
    /// hit, all others are lost.
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
            // Those that lost nothing too: "none" is recorded, and the kernel writes a loss in a ring to whichever event
            // comes next.
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
                // 0: not among what the rings lost, and of no CPU that is known.
                body.trailer(0, 0, time, u32::MAX, opened.id);
            });
        }
        self.append(records.bytes())?;
        Ok(total)
    }
}
