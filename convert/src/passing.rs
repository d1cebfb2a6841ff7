//! The directory of a trace that is exported and removed again: `perfquet-convert FILE --to FORMAT`; of a lake on its way to an object store.
//!
//! ```text
//! /tmp/perfquet-passing-Xb3k0a/passing.pqt
//! ```
//! The directory is locked (flock) while its process lives, so that one left by a killed process is known, and removed by the next.

use std::fs::File;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::interrupt;

const PREFIX: &str = "perfquet-passing-";

/// A directory for one trace, removed at the end.
pub(crate) struct Passing {
    folder: tempfile::TempDir,
    _lock: File,
}

impl Passing {
    /// Creates the directory, after removing those of killed processes.
    pub(crate) fn create() -> Result<Passing> {
        let parent = std::env::temp_dir();
        remove_abandoned(&parent);
        let cannot = || format!("cannot create a directory in {}", parent.display());
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&parent);
        let folder = folder.with_context(cannot)?;
        interrupt::remove_when_interrupted(folder.path())?;
        let lock = open(folder.path()).with_context(cannot)?;
        // Nobody else holds it. On a file system without locks, leftovers stay.
        let _ = lock.try_lock();
        Ok(Passing {
            folder,
            _lock: lock,
        })
    }

    /// Path of the trace.
    pub(crate) fn trace(&self) -> PathBuf {
        self.folder.path().join("passing.pqt")
    }

    /// Path of a lake.
    pub(crate) fn lake(&self) -> PathBuf {
        self.folder.path().join("lake")
    }
}

fn open(folder: &Path) -> std::io::Result<File> {
    File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_DIRECTORY)
        .open(folder)
}

/// Removes the directories that killed processes of the same user left.
fn remove_abandoned(parent: &Path) {
    let Ok(own) = std::fs::metadata("/proc/self").map(|found| found.uid()) else {
        return;
    };
    let entries = std::fs::read_dir(parent);
    for entry in entries.into_iter().flatten().flatten() {
        let is_passing = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let is_own = || entry.metadata().is_ok_and(|found| found.uid() == own);
        if !is_passing || !is_own() {
            continue;
        }
        // Another process holds the lock, or has just created the directory, and will.
        let Ok(folder) = open(&entry.path()) else {
            continue;
        };
        let is_empty =
            std::fs::read_dir(entry.path()).is_ok_and(|mut found| found.next().is_none());
        if (is_empty && is_young(&folder)) || folder.try_lock().is_err() {
            continue;
        }
        match std::fs::remove_dir_all(entry.path()) {
            Ok(()) => log::info!(
                "removed {}, left by a killed process",
                entry.path().display()
            ),
            Err(error) => log::debug!("{}: {error}", entry.path().display()),
        }
    }
}

fn is_young(folder: &File) -> bool {
    const MOMENT: Duration = Duration::from_secs(600);
    let changed = folder.metadata().and_then(|found| found.modified());
    changed.is_ok_and(|changed| changed.elapsed().is_ok_and(|age| age < MOMENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_ended_processes_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let folder = |name: &str, is_filled: bool| {
            let folder = parent.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            if is_filled {
                std::fs::create_dir(folder.join("passing.pqt")).unwrap();
            }
            folder
        };
        let abandoned = folder("perfquet-passing-a", true);
        let used = folder("perfquet-passing-b", true);
        let new = folder("perfquet-passing-c", false);
        let other = folder("another", true);
        let lock = open(&used).unwrap();
        lock.try_lock().unwrap();
        let link = parent.path().join("perfquet-passing-d");
        std::os::unix::fs::symlink(&other, &link).unwrap();
        remove_abandoned(parent.path());
        assert!(!abandoned.exists());
        assert!(used.exists() && new.exists() && link.exists());
        assert!(other.join("passing.pqt").exists());
    }
}
