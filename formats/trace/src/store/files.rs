//! Files of a trace directory: as open as the directory, and with their final name only when complete.
//!
//! ```text
//! samples/00000.parquet.tmp   being written: O_EXCL, O_NOFOLLOW
//! samples/00000.parquet       complete and synced; valid once the manifest lists it
//! ```
//! Recordings contain secrets and the recorder runs as root: their directory has mode 0700 while they are written. An
//! import shows what its input did, and follows the umask. A link in the path is an error, never followed.

use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use perfquet_events::directory::directory_of;

/// Extension of an incomplete file. `*.parquet` does not match it.
pub(super) const TEMPORARY: &str = ".tmp";

/// Creates a directory with this mode, less the umask; fails if the name exists.
pub(super) fn create_directory(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)
}

/// The mode of the directory in which `path` is or will be.
fn mode_around(path: &Path) -> io::Result<u32> {
    let found = directory_of(path).metadata()?;
    Ok(found.permissions().mode() & 0o777)
}

/// Creates the missing directories of `inner` below `root`.
pub(super) fn create_folders(root: &Path, inner: &str) -> io::Result<()> {
    let mut path = root.to_path_buf();
    for step in inner.split('/') {
        path.push(step);
        match create_directory(&path, mode_around(&path)?) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if !path.symlink_metadata()?.is_dir() {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Creates a file for writing; fails if the name exists.
pub(super) fn create(path: &Path) -> io::Result<File> {
    File::options()
        .write(true)
        .create_new(true)
        .mode(mode_around(path)? & 0o666)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

/// Reopens a file of this writer, to append to it.
pub(super) fn reopen(path: &Path) -> io::Result<File> {
    File::options()
        .append(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

/// `path` with `.tmp` appended.
pub(super) fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY);
    PathBuf::from(name)
}

/// Replaces a small file atomically: a reader sees the old or the new one, complete.
pub(super) fn replace(path: &Path, bytes: &[u8], sync: bool) -> io::Result<()> {
    let temporary = temporary(path);
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = create(&temporary)?;
    let written = file.write_all(bytes).and_then(|()| match sync {
        true => file.sync_all(),
        false => Ok(()),
    });
    if let Err(error) = written.and_then(|()| std::fs::rename(&temporary, path)) {
        // Removes the incomplete file, which would only use space on a full disk.
        let _ = std::fs::remove_file(&temporary);
        return Err(error);
    }
    match path.parent() {
        Some(folder) if sync => sync_directory(folder),
        _ => Ok(()),
    }
}

/// Makes the names in a directory durable.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Returns the directory of a table, below the trace directory: its name, with unsafe characters as `%XX`. Names of events come
/// from foreign files.
pub fn folder_of(table: &str) -> String {
    /// A file name has at most 255 bytes; a longer name becomes its beginning and a checksum.
    const LONGEST: usize = 160;
    let mut folder = String::new();
    for step in table.split('/') {
        if !folder.is_empty() {
            folder.push('/');
        }
        let start = folder.len();
        for (index, byte) in step.bytes().enumerate() {
            // No leading dot or dash; no `=`, which engines read as a partition; no wildcard.
            let plain = byte.is_ascii_alphanumeric()
                || byte == b'_'
                || (index > 0 && matches!(byte, b'-' | b'.' | b'+' | b':' | b'@'));
            if folder.len() - start > LONGEST {
                folder.push_str(&format!("%{:016x}", checksum(step)));
                break;
            }
            if plain {
                folder.push(char::from(byte));
            } else {
                folder.push_str(&format!("%{byte:02x}"));
            }
        }
        if step.is_empty() {
            folder.push('%');
        }
    }
    folder
}

/// FNV-1a: distinguishes two long names.
fn checksum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_stay_inside() {
        let check = |table: &str, expected: &str| assert_eq!(folder_of(table), expected);
        check("samples", "samples");
        check("events/sched/sched_switch", "events/sched/sched_switch");
        check("events/../x", "events/%2e./x");
        check("events//x", "events/%/x");
        check("/etc", "%/etc");
        check("events/a b/ü*=[", "events/a%20b/%c3%bc%2a%3d%5b");
        check("", "%");
        let long = "x".repeat(300);
        assert!(folder_of(&long).len() < 200);
        assert_ne!(folder_of(&long), folder_of(&format!("{long}y")));
    }

    #[test]
    fn links_in_the_path_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("target");
        std::fs::write(&target, "keep").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(create(&link).is_err());
        assert!(reopen(&link).is_err());
        assert!(create_directory(&link, 0o700).is_err());
        std::os::unix::fs::symlink(folder.path(), folder.path().join("loop")).unwrap();
        assert!(create_folders(folder.path(), "loop/inner").is_err());
        replace(&link, b"new", true).unwrap();
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "keep");
        assert_eq!(std::fs::read_to_string(&link).unwrap(), "new");
    }
}
