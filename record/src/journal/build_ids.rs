//! Mapped files and their build IDs, read from the files themselves.
//!
//! ```text
//! /proc/42/map_files/401000-402000    the very file, removed or replaced as it may be (CAP_CHECKPOINT_RESTORE)
//! /proc/42/exe                        the same for the program itself (ptrace rights)
//! /proc/42/root/usr/bin/srv           if it has the device, inode and generation that were mapped
//! /usr/bin/srv                        the same, after the process has ended
//! ```
//! Build IDs are read at once: later the path may lead to another program, whose names would look plausible. The files stay open
//! until symbolization, so that programs that only existed in memory, and those replaced or deleted while they ran, have names.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use perfquet_events::bytes::Cursor;
use perfquet_events::input::open_regular;
use perfquet_trace::symbols::limits::{HELD_BYTES_MAX, HELD_FILES_MAX, IDENTIFIED_FILES_MAX};
use perfquet_trace::symbols::{FileIdentity, Roots};

use super::record::{Records, kind, misc};
use crate::sys::procfs::Map;
use crate::sys::{file, host};

/// Maximum number of bytes read from a note segment; notes are small.
const MOST_NOTE_BYTES: u64 = 64 << 10;
/// Maximum number of program headers; linkers write about ten.
const MOST_HEADERS: u64 = 512;
const PT_NOTE: u32 = 4;
/// Longer build IDs do not fit into a mapping's record.
const LONGEST_BUILD_ID: usize = 20;
/// Time between two checks of the sizes of files held open.
const BETWEEN_CHECKS: Duration = Duration::from_secs(1);
const BLOCK_BYTES: u64 = 512;

/// Adds a BUILD_ID record for the file at a path.
pub(super) fn add_build_id(records: &mut Records, space: u16, path: &[u8], build_id: &[u8]) {
    let mut id = [0u8; 20];
    let Some(place) = id.get_mut(..build_id.len()) else {
        return; // longer than any that a linker makes
    };
    place.copy_from_slice(build_id);
    records.add(kind::BUILD_ID, space | misc::BUILD_ID_SIZE, |body| {
        body.i32(-1);
        body.raw(&id);
        body.u8(build_id.len() as u8);
        body.raw(&[0; 3]);
        let length = (path.len() + 1).next_multiple_of(64);
        body.raw(path);
        body.raw(&vec![0; length - path.len()]);
    });
}

/// A mapped file in the kernel's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Inode {
    /// Device and inode.
    pub(crate) identity: FileIdentity,
    /// Distinguishes files that had the same inode, one after the other; 0 if unknown.
    pub(crate) generation: u64,
}

/// Where a process maps a file.
#[derive(Debug, Clone)]
pub(crate) struct MappedAt {
    pub(crate) pid: i32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) path: Vec<u8>,
    pub(crate) inode: Inode,
}

/// Build ID of a file; `None` if it has none or is unreadable.
pub(crate) type BuildId = Option<Box<[u8]>>;

/// Mapped files and their build IDs, each read once.
pub(crate) struct MappedFiles {
    known: Mutex<Known>,
    /// Holds the files, so that symbolization finds them.
    roots: Roots,
}

#[derive(Default)]
struct Known {
    build_ids: HashMap<Inode, BuildId>,
    /// Files in `/proc/PID/maps`, which has no generations.
    existing: HashMap<FileIdentity, Inode>,
    checked: Option<Instant>,
}

impl MappedFiles {
    pub(crate) fn new(roots: Roots) -> MappedFiles {
        MappedFiles {
            known: Mutex::default(),
            roots,
        }
    }

    /// Returns the build ID of a file that was read.
    pub(crate) fn build_id(&self, inode: &Inode) -> Option<BuildId> {
        self.lock().build_ids.get(inode).cloned()
    }

    /// Reads the build ID of a file that existed at the start. Returns how the kernel will identify the file from now on.
    pub(super) fn add_existing(&self, pid: i32, map: &Map<'_>) -> Option<Inode> {
        if map.inode == 0 || !map.path.starts_with(b"/") {
            return None;
        }
        let identity = FileIdentity {
            device: map.device,
            inode: map.inode,
        };
        if let Some(inode) = self.lock().existing.get(&identity) {
            return Some(*inode);
        }
        let mut at = MappedAt {
            pid,
            start: map.start,
            end: map.end,
            path: map.path.to_vec(),
            inode: Inode {
                identity,
                generation: 0,
            },
        };
        let opened = open(&at);
        if let Some(file) = &opened {
            at.inode.generation = file::generation(file).unwrap_or(0);
        }
        self.add(&at.inode, opened);
        self.lock().existing.insert(identity, at.inode);
        Some(at.inode)
    }

    /// Reads the build ID of a file, unless it is known.
    pub(crate) fn read(&self, at: &MappedAt) {
        if self.build_id(&at.inode).is_none() {
            let opened = open(at);
            self.add(&at.inode, opened);
        }
    }

    /// Whether there is room for another file.
    pub(crate) fn has_room(&self) -> bool {
        (self.lock().build_ids.len() as u64) < IDENTIFIED_FILES_MAX
    }

    /// Adds a file, and holds it if it is a program or library.
    fn add(&self, inode: &Inode, file: Option<File>) {
        let notes = file.as_ref().and_then(note_segments);
        let build_id = file.as_ref().zip(notes.as_ref());
        let build_id = build_id.and_then(|(file, notes)| build_id_in(file, notes));
        if let (Some(file), Some(_)) = (file, notes) {
            self.hold(file, inode.identity, build_id.clone());
        }
        let build_id = build_id.map(Vec::into_boxed_slice);
        self.lock().build_ids.insert(*inode, build_id);
    }

    /// Keeps a file open until the recorder exits, because symbolization comes last.
    fn hold(&self, file: File, identity: FileIdentity, build_id: Option<Vec<u8>>) {
        if (self.roots.held_count() as u64) < HELD_FILES_MAX {
            self.roots.add_file(identity, build_id, file);
        }
        let mut known = self.lock();
        let is_due = |checked: Instant| checked.elapsed() >= BETWEEN_CHECKS;
        if known.checked.is_none_or(is_due) {
            known.checked = Some(Instant::now());
            drop(known);
            self.release_large();
        }
    }

    /// Closes files that would not exist any more if they were not open, and are too large.
    pub(crate) fn release_large(&self) {
        let mut left = HELD_BYTES_MAX;
        self.roots.retain_files(|file| {
            let Ok(metadata) = file.metadata() else {
                return false;
            };
            if metadata.nlink() > 0 {
                return true;
            }
            let bytes = metadata.blocks().saturating_mul(BLOCK_BYTES);
            match left.checked_sub(bytes) {
                Some(rest) => {
                    left = rest;
                    true
                }
                None => {
                    log::info!("a deleted file of {bytes} bytes is not held open");
                    false
                }
            }
        });
    }

    /// Additions cannot leave it inconsistent.
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens the file mapped there.
fn open(at: &MappedAt) -> Option<File> {
    let MappedAt {
        pid,
        start,
        end,
        path,
        inode,
    } = at;
    let mapped = PathBuf::from(format!("/proc/{pid}/map_files/{start:x}-{end:x}"));
    let program = PathBuf::from(format!("/proc/{pid}/exe"));
    let mut below_root = format!("/proc/{pid}/root").into_bytes();
    below_root.extend(path);
    let below_root = PathBuf::from(std::ffi::OsString::from_vec(below_root));
    let itself = PathBuf::from(std::ffi::OsString::from_vec(path.clone()));
    [mapped, program, below_root, itself]
        .iter()
        .filter_map(|path| open_regular(path).ok())
        .find(|file| is(file, inode))
}

/// Whether a file is the mapped one.
fn is(file: &File, inode: &Inode) -> bool {
    let is_it = |metadata| inode.identity.is_of(&metadata);
    if !file.metadata().is_ok_and(is_it) {
        return false;
    }
    // The kernel and the file system may use different numbers of bits.
    let found = file::generation(file).filter(|&found| found != 0 && inode.generation != 0);
    found.is_none_or(|found| found as u32 == inode.generation as u32)
}

/// Returns the build ID in the notes of an ELF file.
fn build_id_in(file: &File, notes: &[(u64, u64)]) -> Option<Vec<u8>> {
    let build_id = notes.iter().find_map(|&(offset, size)| {
        let mut notes = vec![0; size.min(MOST_NOTE_BYTES) as usize];
        file.read_exact_at(&mut notes, offset).ok()?;
        host::build_id_in_notes(&notes)
    });
    build_id.filter(|id| id.len() <= LONGEST_BUILD_ID)
}

/// Returns offsets and sizes of an ELF file's PT_NOTE segments. Files of the other byte order do not run on this host.
fn note_segments(file: &File) -> Option<Vec<(u64, u64)>> {
    let mut head = [0u8; 64];
    file.read_exact_at(&mut head, 0).ok()?;
    let is_64_bit = match head.get(..5)? {
        [0x7f, b'E', b'L', b'F', class] => *class == 2,
        _ => return None,
    };
    // e_phoff, then e_phentsize and e_phnum (elf(5)).
    let mut at = Cursor::new(
        head.get(if is_64_bit { 32 } else { 28 }..)?,
        0,
        host::native_endian(),
    );
    let table = if is_64_bit {
        at.u64().ok()?
    } else {
        at.u32().ok()?.into()
    };
    let mut at = Cursor::new(
        head.get(if is_64_bit { 54 } else { 42 }..)?,
        0,
        host::native_endian(),
    );
    let (entry_bytes, count) = (at.u16().ok()?, at.u16().ok()?);
    let mut segments = Vec::new();
    for index in 0..u64::from(count).min(MOST_HEADERS) {
        let mut entry = [0u8; 56];
        let wanted = entry.get_mut(..if is_64_bit { 56 } else { 32 })?;
        file.read_exact_at(wanted, table.checked_add(index * u64::from(entry_bytes))?)
            .ok()?;
        let mut at = Cursor::new(&entry, 0, host::native_endian());
        if at.u32().ok()? != PT_NOTE {
            continue;
        }
        segments.push(if is_64_bit {
            let _flags = at.u32().ok()?;
            let offset = at.u64().ok()?;
            let (_virtual, _physical) = (at.u64().ok()?, at.u64().ok()?);
            (offset, at.u64().ok()?)
        } else {
            let offset = at.u32().ok()?;
            let (_virtual, _physical) = (at.u32().ok()?, at.u32().ok()?);
            (offset.into(), at.u32().ok()?.into())
        });
    }
    Some(segments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    use crate::sys::procfs;

    #[test]
    fn build_id_of_this_program() {
        let mut maps = Vec::new();
        let pid = std::process::id() as i32;
        procfs::read_maps(pid, &mut maps);
        let path = std::env::current_exe().unwrap();
        let is_own = |map: &Map<'_>| map.path == path.as_os_str().as_bytes();
        let map = procfs::parse_maps(&maps).find(is_own).unwrap();
        let roots = Roots::default();
        let file = File::open(&path).unwrap();
        let files = MappedFiles::new(roots.clone());
        let inode = files.add_existing(pid, &map).unwrap();
        let found = files.build_id(&inode).unwrap();
        let expected = build_id_in(&file, &note_segments(&file).unwrap());
        assert_eq!(found.as_deref(), expected.as_deref());
        // Linkers write a build ID only on some systems; its length is known.
        assert!(found.is_none_or(|id| (8..=20).contains(&id.len())));
        assert_eq!(roots.held_count(), 1);
        let mut other = inode;
        assert!(is(&file, &other));
        other.identity.inode += 1;
        assert!(!is(&file, &other));
        if inode.generation != 0 {
            let mut later = inode;
            later.generation += 1;
            assert!(!is(&file, &later));
        }
    }

    #[test]
    fn deleted_files_are_held_up_to_a_size() {
        let roots = Roots::default();
        let files = MappedFiles::new(roots.clone());
        let folder = tempfile::tempdir().unwrap();
        let hold = |name: &str, is_removed: bool, inode: u64| {
            let path = folder.path().join(name);
            std::fs::write(&path, "x").unwrap();
            let identity = FileIdentity {
                device: (0, 0),
                inode,
            };
            roots.add_file(identity, None, File::open(&path).unwrap());
            let file = File::options().write(true).open(&path).unwrap();
            if is_removed {
                std::fs::remove_file(path).unwrap();
            }
            file
        };
        hold("stays", false, 1);
        hold("small", true, 2);
        let grows = hold("grows", true, 3);
        files.release_large();
        assert_eq!(roots.held_count(), 3);
        // Without room on the disk, there is nothing to test.
        if file::allocate(&grows, HELD_BYTES_MAX + (1 << 20)).is_ok() {
            files.release_large();
            assert_eq!(roots.held_count(), 2);
        }
    }
}
