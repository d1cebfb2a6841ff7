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

pub(crate) mod build_ids;
pub(crate) mod follower;
pub(crate) mod header;
mod kernel_maps;
pub(crate) mod own_records;
mod packer;
mod perf_file;
pub(crate) mod processes;
pub(crate) mod record;
mod tracing_data;
mod walk;
mod writer;

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use perfquet_events::directory::directory_of;

use crate::probe::Kind;
use crate::recording::{Recording, Track};
use crate::sys::clock;
use crate::sys::file::allocate;
use record::{Records, kind};

pub(crate) use packer::{Packer, Packing};
pub(crate) use perf_file::complete as complete_file;
use walk::Walk;
pub(crate) use walk::samples_by_id;
pub(crate) use writer::Writer;

/// Space kept free on a full disk: a LOST_SAMPLES record takes 64 bytes per event and CPU.
const LAST_BYTES: u64 = 64 << 10;

/// A journal being written.
pub(crate) struct Journal {
    file: File,
    written: Arc<AtomicU64>,
    /// Length up to which nothing is truncated any more: readers beside the recording go no further.
    settled: Arc<AtomicU64>,
    /// An unlinked file that keeps the space of [`LAST_BYTES`].
    reserve: Option<File>,
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
            settled: Arc::default(),
            reserve: None,
        })
    }

    /// Keeps space beside the journal for the records that count the losses on a full disk.
    pub(crate) fn reserve(&mut self, journal: &Path) -> io::Result<()> {
        let folder = directory_of(journal);
        let reserve = OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_TMPFILE)
            .mode(0o600)
            .open(folder)?;
        allocate(&reserve, LAST_BYTES)?;
        self.reserve = Some(reserve);
        Ok(())
    }

    /// Returns the number of bytes written so far, for observers.
    pub(crate) fn written(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.written)
    }

    /// Returns the length up to which readers may follow the journal while it grows.
    pub(crate) fn settled(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.settled)
    }

    /// Settles what has been written: it consists of whole records, and is not truncated any more.
    pub(crate) fn settle(&self) {
        self.settled.store(self.length(), Ordering::Release);
    }

    /// Appends bytes that are whole records, or pieces that become whole with the next. Bytes that do not fit leave nothing.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(bytes) {
            self.truncate(self.length())?;
            return Err(error);
        }
        self.written
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the offset of the next byte.
    pub(crate) fn length(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Truncates the journal after a failed write to the end of a whole record, leaving room for the records that count
    /// the losses. Never truncates below the settled length.
    pub(crate) fn cut(&mut self) -> io::Result<()> {
        self.reserve = None;
        let settled = self.settled.load(Ordering::Relaxed);
        let limit = self.length().saturating_sub(LAST_BYTES);
        let mut walk = Walk::new(&self.file, settled)?;
        let mut length = settled;
        loop {
            match walk.next() {
                Ok(Some(_)) if walk.offset() <= limit => length = walk.offset(),
                // The bytes after the whole records cannot be a record.
                Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(error),
                Ok(_) | Err(_) => break,
            }
        }
        self.truncate(length)
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
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
        self.append(records.bytes())?;
        self.settle();
        Ok(())
    }

    /// Writes the losses per event and CPU, as counted by the kernel, and the missed hits of own probes. `written` has
    /// the number of samples per ID if the journal could not be written to its end: all other hits of tracepoints,
    /// which count every hit, are then lost. Returns the number of lost events, also if it cannot be written.
    pub(crate) fn losses(
        &mut self,
        recording: &Recording,
        missed: &[(String, u64)],
        written: Option<&HashMap<u64, u64>>,
    ) -> (u64, io::Result<()>) {
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
        (total, self.append(records.bytes()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::atomic::AtomicBool;

    use perfquet_events::Input;

    use super::*;

    fn records(count: usize, of: u8) -> Vec<u8> {
        let mut records = Records::new();
        for _ in 0..count {
            records.add(kind::COMM, 0, |body| body.raw(&[of; 56]));
        }
        records.into_bytes()
    }

    /// A follower that has reached the settled length when the disk is full continues with the records written after the truncation.
    #[test]
    fn a_follower_never_reads_what_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("perf.data");
        let mut journal = Journal::create(&path).unwrap();
        journal.reserve(&path).unwrap();
        journal.append(&records(1000, 1)).unwrap();
        journal.finish_round().unwrap();
        let settled = journal.length();
        // More than the room that a cut leaves, ending within a record.
        journal.append(&records(1500, 2)).unwrap();
        journal.append(&records(1, 3)[..20]).unwrap();
        let finished = Arc::new(AtomicBool::new(false));
        let mut input = Input::following(&path, journal.settled(), Arc::clone(&finished)).unwrap();
        let mut read = vec![0; settled as usize];
        input.read_exact(&mut read).unwrap();
        journal.cut().unwrap();
        let length = journal.length();
        assert_eq!((length - settled) % 64, 0);
        assert!(length > settled && length <= settled + 1500 * 64 - LAST_BYTES + 20);
        journal.append(&records(10, 4)).unwrap();
        finished.store(true, Ordering::Release);
        input.read_to_end(&mut read).unwrap();
        assert!(read == std::fs::read(&path).unwrap());
        assert!(read.ends_with(&records(10, 4)));
        // Less than the room was written since the last round.
        journal.finish_round().unwrap();
        let settled = journal.length();
        journal.append(&records(3, 5)).unwrap();
        journal.cut().unwrap();
        assert_eq!(journal.length(), settled);
    }
}
