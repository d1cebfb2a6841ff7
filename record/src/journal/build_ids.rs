//! Identification of files that were mapped before the recording, which the kernel does not identify.
//!
//! ```text
//! /proc/42/map_files/401000-402000    the very file, removed or replaced as it may be (CAP_CHECKPOINT_RESTORE)
//! /proc/42/exe                        the same for the program itself (ptrace rights)
//! /proc/42/root/usr/bin/srv           if it has the device and inode that were mapped
//! ```
//! Build IDs are read at once: later the path may lead to another program, whose names would look plausible.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use perfquet_events::bytes::Cursor;
use perfquet_trace::symbols::{FileIdentity, Roots};

use super::record::{Records, kind, misc};
use crate::sys::host;
use crate::sys::procfs::Map;

/// Maximum number of bytes read from a note segment; notes are small.
const MOST_NOTE_BYTES: u64 = 64 << 10;
const PT_NOTE: u32 = 4;

/// Maximum number of unlinked files held open until the recording ends, with a descriptor each.
const MOST_HELD: usize = 256;
/// The kernel's suffix for the path of a deleted file.
const DELETED: &[u8] = b" (deleted)";

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

/// Mapped files and their build IDs, each read once.
pub(super) struct MappedFiles<'r> {
    known: BTreeMap<FileIdentity, Option<Vec<u8>>>,
    /// Receives the files without a path, so that symbolization finds them.
    roots: &'r Roots,
    held: usize,
}

impl<'r> MappedFiles<'r> {
    pub(super) fn new(roots: &'r Roots) -> MappedFiles<'r> {
        MappedFiles {
            known: BTreeMap::new(),
            roots,
            held: 0,
        }
    }

    /// Returns the build ID of a mapped file; `None` if it has none or is unreadable.
    pub(super) fn build_id(&mut self, pid: i32, map: &Map<'_>) -> Option<&[u8]> {
        if map.inode == 0 || !map.path.starts_with(b"/") {
            return None;
        }
        let identity = FileIdentity {
            device: map.device,
            inode: map.inode,
        };
        if !self.known.contains_key(&identity) {
            let file = open(pid, map, identity);
            let build_id = file.as_ref().and_then(build_id_of);
            // Anonymous memory files (memfd) are unlinked as well; holding them would hold their contents.
            let is_removed = map.path.ends_with(DELETED);
            if let Some(file) = file.filter(|file| is_removed && note_segments(file).is_some()) {
                self.hold(file, identity, build_id.clone());
            }
            self.known.insert(identity, build_id);
        }
        self.known.get(&identity)?.as_deref()
    }

    /// Keeps a descriptor open until the recorder exits, because symbolization comes last.
    fn hold(&mut self, file: File, identity: FileIdentity, build_id: Option<Vec<u8>>) {
        if self.held < MOST_HELD {
            self.held += 1;
            let path = PathBuf::from(format!("/proc/self/fd/{}", file.into_raw_fd()));
            self.roots.add_file(identity, build_id, path);
        }
    }
}

/// Opens the file mapped there.
fn open(pid: i32, map: &Map<'_>, identity: FileIdentity) -> Option<File> {
    let mapped = format!("/proc/{pid}/map_files/{:x}-{:x}", map.start, map.end);
    if let Some(file) = regular(Path::new(&mapped)) {
        return Some(file);
    }
    let mut below_root = format!("/proc/{pid}/root").into_bytes();
    below_root.extend(map.path);
    let below_root = PathBuf::from(std::ffi::OsString::from_vec(below_root));
    [PathBuf::from(format!("/proc/{pid}/exe")), below_root]
        .iter()
        .filter_map(|path| regular(path))
        .find(|file| is(file, identity))
}

/// Opens a regular file; the path may lead to a pipe or a device by now.
fn regular(path: &Path) -> Option<File> {
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

/// Whether a file is the mapped one.
fn is(file: &File, identity: FileIdentity) -> bool {
    let Ok(metadata) = file.metadata() else {
        return false;
    };
    let device = (libc::major(metadata.dev()), libc::minor(metadata.dev()));
    // btrfs and overlayfs show different devices in maps and in stat; there, the inode alone must match.
    metadata.ino() == identity.inode && (device == identity.device || device.0 == 0)
}

/// Returns the build ID of an ELF file.
fn build_id_of(file: &File) -> Option<Vec<u8>> {
    let notes = note_segments(file)?;
    notes.into_iter().find_map(|(offset, size)| {
        let mut notes = vec![0; size.min(MOST_NOTE_BYTES) as usize];
        file.read_exact_at(&mut notes, offset).ok()?;
        host::build_id_in_notes(&notes)
    })
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
    for index in 0..u64::from(count) {
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
        let mut files = MappedFiles::new(&roots);
        let found = files.build_id(pid, &map).map(<[u8]>::to_vec);
        assert_eq!(found, build_id_of(&file));
        // Linkers write a build ID only on some systems; its length is known.
        assert!(found.is_none_or(|id| (8..=20).contains(&id.len())));
        let mut identity = FileIdentity {
            device: map.device,
            inode: map.inode,
        };
        assert!(is(&file, identity));
        identity.inode += 1;
        assert!(!is(&file, identity));
    }
}
