//! Build ids of the files that were mapped at the start. (Of what is mapped later, the kernel tells them.)
//!
//! Read after the recording, which they would disturb (a flight recorder runs for days and reads them at its start); a
//! file that is no longer the one that was mapped is left out.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use perfquet_formats::bytes::Cursor;

use super::header::add_build_id;
use super::processes::Files;
use super::record::{Records, misc};
use crate::sys::host;

/// Notes are small; a longer segment is not read to its end.
const MOST_NOTE_BYTES: u64 = 64 << 10;
const PT_NOTE: u32 = 4;

/// A BUILD_ID record for each file that has one.
pub(crate) fn records(files: &Files) -> Vec<u8> {
    let mut records = Records::new();
    for ((device, inode), path) in files {
        if let Some(build_id) = build_id_of(path, *device, *inode) {
            add_build_id(&mut records, misc::USER, path, &build_id);
        }
    }
    records.into_bytes()
}

/// The build id of a file, if it still is the one that was mapped.
pub(super) fn build_id_of(path: &[u8], device: (u32, u32), inode: u64) -> Option<Vec<u8>> {
    let file = File::open(Path::new(std::ffi::OsStr::from_bytes(path))).ok()?;
    let metadata = file.metadata().ok()?;
    let found = (libc::major(metadata.dev()), libc::minor(metadata.dev()));
    // btrfs and overlayfs show another device in maps than in stat; the inode alone must do there.
    if !metadata.is_file() || metadata.ino() != inode || (found != device && found.0 != 0) {
        return None;
    }
    note_segments(&file)?
        .into_iter()
        .find_map(|(offset, size)| {
            let mut notes = vec![0; size.min(MOST_NOTE_BYTES) as usize];
            file.read_exact_at(&mut notes, offset).ok()?;
            host::build_id_in_notes(&notes)
        })
}

/// Offsets and sizes of an ELF file's PT_NOTE segments. Files of a foreign byte order do not run here.
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

    #[test]
    fn of_this_very_program() {
        let path = std::env::current_exe().unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        let device = (libc::major(metadata.dev()), libc::minor(metadata.dev()));
        let bytes = path.as_os_str().as_bytes();
        let found = build_id_of(bytes, device, metadata.ino());
        // Linkers are told to write one on some systems only; where there is one, it has a known length.
        assert!(found.is_none_or(|id| (8..=20).contains(&id.len())));
        assert_eq!(build_id_of(bytes, device, metadata.ino() + 1), None);
    }
}
