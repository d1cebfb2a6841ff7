//! Build IDs of files that are mapped during the recording.
//!
//! ```text
//! ring      MMAP2 { pid 42, /usr/bin/srv, device 254:0, inode 4711, generation 9 }
//! journal   MMAP2 { pid 42, /usr/bin/srv, build ID 1a2b… }
//! ```
//! A thread reads them, so that slow files and disks do not delay the drain. The record of a file that was not read yet waits for
//! some milliseconds; without an answer it is written as it is.
//!
//! The kernel could write build IDs itself, but then it damages the records of other sessions (`recording/attr.rs`).

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use perfquet_events::bytes::{Cursor, Endian, before_nul};
use perfquet_trace::symbols::FileIdentity;
use perfquet_trace::symbols::limits::{WAITING_MAPPINGS_MAX, WAITING_MS_MAX};

use crate::journal::build_ids::{Inode, MappedAt, MappedFiles};
use crate::journal::record::{TRAILER_BYTES, kind, misc};
use crate::side_band::Watchers;
use crate::sieve::{Stitcher, size_of_record};

/// Offset of device, inode and generation in an MMAP2 record, which have the size of a build ID.
const IDENTITY_AT: usize = 8 + 8 + 3 * 8;
const IDENTITY_BYTES: usize = 24;
/// Time between two looks for the last answers.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);
/// Time between two passes while records wait.
const WHILE_WAITING: Duration = Duration::from_millis(20);

/// Writes bytes of the side-band.
type Write<'a> = &'a mut dyn FnMut(&[u8]) -> io::Result<()>;

/// Replaces inodes by build IDs in the side-band.
pub(crate) struct BuildIds {
    files: Arc<MappedFiles>,
    requests: SyncSender<MappedAt>,
    stitcher: Stitcher,
    waiting: VecDeque<Waiting>,
    watchers: Watchers,
}

/// A record that waits for a build ID.
struct Waiting {
    record: Vec<u8>,
    inode: Inode,
    until: Instant,
}

impl BuildIds {
    /// Starts the thread. It ends when this is dropped, or when the recorder exits.
    pub(crate) fn start(files: Arc<MappedFiles>, watchers: Watchers) -> BuildIds {
        let (requests, requested) = sync_channel(WAITING_MAPPINGS_MAX as usize);
        let of_thread = Arc::clone(&files);
        // Keeps the inherited thread name: the filter that excludes the recorder matches by name.
        std::thread::spawn(move || read_all(&of_thread, &requested));
        BuildIds {
            files,
            requests,
            stitcher: Stitcher::default(),
            waiting: VecDeque::new(),
            watchers,
        }
    }

    /// Passes on the records of a piece, except those that wait.
    pub(crate) fn take(&mut self, piece: &[u8], write: Write<'_>) -> io::Result<()> {
        let BuildIds {
            files,
            requests,
            stitcher,
            waiting,
            watchers,
        } = self;
        let mut written = Ok(());
        stitcher.feed(piece, |record| {
            if written.is_err() {
                return;
            }
            let at = mapped_at(record);
            watchers.look(record, at.as_ref());
            let Some(at) = at else {
                written = write(record);
                return;
            };
            let mut record = record.to_vec();
            // Of another session.
            mark(&mut record, false);
            if !files.set_build_id(&mut record, &at.inode)
                && (waiting.len() as u64) < WAITING_MAPPINGS_MAX
                && files.has_room()
            {
                let inode = at.inode;
                if requests.try_send(at).is_ok() {
                    waiting.push_back(Waiting {
                        record,
                        inode,
                        until: Instant::now() + Duration::from_millis(WAITING_MS_MAX),
                    });
                    return;
                }
            }
            written = write(&record);
        });
        written
    }

    /// Writes the records that have waited long enough, or all of them at the end. Returns the number of bytes.
    pub(crate) fn release(&mut self, is_last: bool, write: Write<'_>) -> io::Result<u64> {
        let mut bytes = 0;
        while let Some(first) = self.waiting.front_mut() {
            let is_set = self.files.set_build_id(&mut first.record, &first.inode);
            if !is_set && Instant::now() < first.until {
                if !is_last {
                    return Ok(bytes);
                }
                std::thread::sleep(BETWEEN_LOOKS);
                continue;
            }
            if let Some(first) = self.waiting.pop_front() {
                write(&first.record)?;
                bytes += first.record.len() as u64;
            }
        }
        Ok(bytes)
    }

    /// Sets the build IDs of the files that existed at the start.
    pub(crate) fn set_existing(&self, records: &mut [u8]) {
        let mut start = 0;
        while let Some(rest) = records.get_mut(start..)
            && let Some(size) = size_of_record(rest)
            && let Some(record) = rest.get_mut(..size)
        {
            if let Some(at) = mapped_at(record) {
                self.files.set_build_id(record, &at.inode);
            }
            start += size;
        }
    }

    /// Returns the time until the next pass, if records wait.
    pub(crate) fn soonest(&self) -> Option<Duration> {
        (!self.waiting.is_empty()).then_some(WHILE_WAITING)
    }
}

impl MappedFiles {
    /// Replaces the inode in an MMAP2 record by a build ID. Returns whether the file was read, even if it has none.
    fn set_build_id(&self, record: &mut [u8], inode: &Inode) -> bool {
        let Some(build_id) = self.build_id(inode) else {
            return false;
        };
        let place = record.get_mut(IDENTITY_AT..IDENTITY_AT + IDENTITY_BYTES);
        if let (Some(build_id), Some(place)) = (build_id, place)
            && build_id.len() <= IDENTITY_BYTES - 4
        {
            let (size, id) = place.split_at_mut(4);
            size.copy_from_slice(&[build_id.len() as u8, 0, 0, 0]);
            id.fill(0);
            id[..build_id.len()].copy_from_slice(&build_id);
            mark(record, true);
        }
        true
    }
}

/// Sets whether a record has a build ID.
fn mark(record: &mut [u8], has_build_id: bool) {
    // u32 type, u16 misc; the mark is in the second byte of misc on little-endian hosts.
    let at = if cfg!(target_endian = "little") { 5 } else { 4 };
    let bit = (misc::MMAP_BUILD_ID >> 8) as u8;
    if let Some(byte) = record.get_mut(at) {
        *byte = *byte & !bit | if has_build_id { bit } else { 0 };
    }
}

/// Returns the file that an MMAP2 record maps as code; `None` for other records and memory.
fn mapped_at(record: &[u8]) -> Option<MappedAt> {
    let endian = if cfg!(target_endian = "little") {
        Endian::Little
    } else {
        Endian::Big
    };
    if endian.u32_at(record, 0) != Some(kind::MMAP2) {
        return None;
    }
    let body = record.get(8..record.len().checked_sub(TRAILER_BYTES)?)?;
    let mut body = Cursor::new(body, 8, endian);
    let (pid, _tid) = (body.i32().ok()?, body.u32().ok()?);
    let (start, length) = (body.u64().ok()?, body.u64().ok()?);
    let _file_offset = body.u64().ok()?;
    let device = (body.u32().ok()?, body.u32().ok()?);
    let (inode, generation) = (body.u64().ok()?, body.u64().ok()?);
    let protection = body.u32().ok()?;
    let _flags = body.u32().ok()?;
    let path = before_nul(body.rest());
    let is_code = protection & libc::PROT_EXEC as u32 != 0;
    let is_file = inode != 0 && path.starts_with(b"/") && !path.starts_with(b"//");
    (is_code && is_file && pid > 0).then(|| MappedAt {
        pid,
        start,
        end: start.saturating_add(length),
        path: path.to_vec(),
        inode: Inode {
            identity: FileIdentity { device, inode },
            generation,
        },
    })
}

fn read_all(files: &MappedFiles, requested: &Receiver<MappedAt>) {
    for at in requested {
        files.read(&at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use perfquet_trace::symbols::Roots;

    use crate::journal::record::Records;

    /// A record of this process that maps a file; `has_mark` is that of another session.
    fn record(path: &Path, inode: u64, has_mark: bool) -> Vec<u8> {
        let device = File::open(path).unwrap().metadata().unwrap().dev();
        let mut records = Records::new();
        let mark = if has_mark { misc::MMAP_BUILD_ID } else { 0 };
        records.add(kind::MMAP2, misc::USER | mark, |body| {
            let pid = std::process::id() as i32;
            body.i32(pid);
            body.i32(pid);
            body.u64(0x1000);
            body.u64(0x1000);
            body.u64(0);
            body.u32(libc::major(device));
            body.u32(libc::minor(device));
            body.u64(inode);
            body.u64(0);
            body.u32(libc::PROT_EXEC as u32);
            body.u32(libc::MAP_PRIVATE as u32);
            body.text(path.as_os_str().as_bytes());
            body.trailer(pid, pid, 5, 0, 0);
        });
        records.into_bytes()
    }

    fn has_mark(record: &[u8]) -> bool {
        record[5] & 0x40 != 0
    }

    #[test]
    fn inodes_become_build_ids_and_marks_of_others_are_removed() {
        let path = std::env::current_exe().unwrap();
        let inode = File::open(&path).unwrap().metadata().unwrap().ino();
        let known = record(&path, inode, true);
        let files = Arc::new(MappedFiles::new(Roots::default()));
        let mut build_ids = BuildIds::start(Arc::clone(&files), Watchers::default());
        let mut written = Vec::new();
        let mut write = |bytes: &[u8]| {
            written.extend_from_slice(bytes);
            Ok(())
        };
        // In two pieces, as at the end of a ring; then one that is known by now.
        let (first, second) = known.split_at(20);
        build_ids.take(first, &mut write).unwrap();
        build_ids.take(second, &mut write).unwrap();
        build_ids.release(true, &mut write).unwrap();
        build_ids.take(&known, &mut write).unwrap();
        assert!(build_ids.waiting.is_empty());
        assert_eq!(written.len(), 2 * known.len());
        let at = mapped_at(&known).unwrap();
        let build_id = files.build_id(&at.inode).unwrap();
        for record in written.chunks(known.len()) {
            assert_eq!(has_mark(record), build_id.is_some());
            let place = &record[IDENTITY_AT..IDENTITY_AT + IDENTITY_BYTES];
            if let Some(build_id) = &build_id {
                assert_eq!(usize::from(place[0]), build_id.len());
                assert_eq!(place[4..4 + build_id.len()], **build_id);
            }
            assert_eq!(
                record[IDENTITY_AT + IDENTITY_BYTES..],
                known[IDENTITY_AT + IDENTITY_BYTES..]
            );
        }
    }

    #[test]
    fn a_file_that_is_gone_keeps_its_inode() {
        let path = std::env::current_exe().unwrap();
        let unknown = record(&path, 1, true);
        let mut build_ids = BuildIds::start(
            Arc::new(MappedFiles::new(Roots::default())),
            Watchers::default(),
        );
        let mut written = Vec::new();
        let mut write = |bytes: &[u8]| {
            written.extend_from_slice(bytes);
            Ok(())
        };
        build_ids.take(&unknown, &mut write).unwrap();
        build_ids.release(true, &mut write).unwrap();
        assert!(!has_mark(&written));
        assert_eq!(written[8..], unknown[8..]);
    }
}
