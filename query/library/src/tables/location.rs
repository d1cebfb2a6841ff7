//! Paths of parts for the object store, which takes only UTF-8.
//!
//! ```text
//! /srv/traces/a.pqt/samples/0.parquet        itself
//! /srv/caf\xe9/a.pqt/samples/0.parquet       /proc/self/fd/7/a.pqt/samples/0.parquet, where 7 is /srv/caf\xe9
//! ```
//! Such a directory stays open until the process ends, as plans and caches have its paths.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::fd::AsRawFd;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use datafusion::object_store::path::Path as ObjectPath;

/// Open directories whose paths are not UTF-8.
static DIRECTORIES: Mutex<BTreeMap<PathBuf, File>> = Mutex::new(BTreeMap::new());

/// The place of a file; errors name it.
pub(super) fn of(path: &Path) -> Result<ObjectPath, Error> {
    let place = |error: Error| Error::new(error.kind(), format!("{}: {error}", path.display()));
    let whole = std::fs::canonicalize(path).map_err(place)?;
    let readable = match whole.to_str() {
        Some(_) => whole,
        None => through_descriptor(&whole).map_err(place)?,
    };
    ObjectPath::from_absolute_path(readable)
        .map_err(|error| place(Error::new(ErrorKind::InvalidInput, error)))
}

/// The path by the number of the last directory whose name is not UTF-8.
fn through_descriptor(path: &Path) -> Result<PathBuf, Error> {
    let parts: Vec<Component<'_>> = path.components().collect();
    let is_other = |part: &Component<'_>| part.as_os_str().to_str().is_none();
    let count = parts.iter().rposition(is_other).map_or(0, |last| last + 1);
    let rest: PathBuf = parts[count..].iter().collect();
    if count == 0 || count == parts.len() || !Path::new("/proc/self/fd").is_dir() {
        let message = "the path is not UTF-8; rename it, or open it by a link";
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    let directory: PathBuf = parts[..count].iter().collect();
    let mut open = DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner);
    let number = match open.get(&directory) {
        Some(known) => known.as_raw_fd(),
        None => {
            let opened = File::open(&directory)?;
            let number = opened.as_raw_fd();
            open.insert(directory, opened);
            number
        }
    };
    Ok(Path::new("/proc/self/fd")
        .join(number.to_string())
        .join(rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn files_in_directories_that_are_not_utf8_are_readable() {
        let root = tempfile::tempdir().unwrap();
        for (directory, is_utf8) in [(&b"a b"[..], true), (b"caf\xe9", false), (b"\xff", false)] {
            let directory = root.path().join(OsStr::from_bytes(directory)).join("a.pqt");
            std::fs::create_dir_all(&directory).unwrap();
            let file = directory.join("0 50%.parquet");
            std::fs::write(&file, directory.as_os_str().as_bytes()).unwrap();
            // The store opens what the location says, decoded.
            let location = of(&file).unwrap();
            let store = datafusion::object_store::local::LocalFileSystem::new();
            let opened = store.path_to_filesystem(&location).unwrap();
            assert_eq!(
                std::fs::read(&opened).unwrap(),
                directory.as_os_str().as_bytes()
            );
            assert_eq!(opened.starts_with("/proc/self/fd"), !is_utf8, "{opened:?}");
            // It is the same for the caches.
            assert_eq!(of(&file).unwrap(), location);
        }
        let missing = of(&root.path().join("missing")).unwrap_err().to_string();
        assert!(missing.contains("missing: "), "{missing}");
    }

    #[test]
    fn a_file_whose_own_name_is_not_utf8_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join(OsStr::from_bytes(b"\xe9"));
        std::fs::write(&file, b"").unwrap();
        let error = of(&file).unwrap_err().to_string();
        assert!(
            error.ends_with("rename it, or open it by a link"),
            "{error}"
        );
    }
}
