//! Output directories of exports, by the rules of output files.
//!
//! ```text
//! missing                    written as .NAME.perfquet-PID-N in the same directory, renamed when complete
//! an earlier export          rejected; with `force` replaced when the new one is complete
//! anything else              rejected: nothing that was not written here is removed
//! ```
//! The hidden file `.perfquet-export` marks an export. It is locked while the export is written: what a killed process left, the next
//! export to the same path removes, or restores if it is the only one. A process killed before it had the mark left an empty directory.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use perfquet_events::Error;
use perfquet_events::directory::directory_of;

/// Marks a directory that was written here.
const MARK: &str = ".perfquet-export";
/// Until it is locked.
const NEW_MARK: &str = ".perfquet-export-new";
/// In the name of an earlier export that is being replaced.
const OLD: &str = "old-";

/// A directory that gets its name only when it is complete.
#[derive(Debug)]
pub struct OutputDirectory {
    path: PathBuf,
    force: bool,
    temporary: PathBuf,
    /// Locked.
    _mark: File,
}

impl OutputDirectory {
    /// Creates the temporary directory for `path`. Fails on conflicts.
    pub fn create(path: &Path, force: bool) -> Result<OutputDirectory, Error> {
        clean_up(path)?;
        check(path, force)?;
        let (temporary, mark) = create_beside(path)?;
        Ok(OutputDirectory {
            path: path.to_owned(),
            force,
            _mark: mark,
            temporary,
        })
    }

    /// Returns the directory to write into, and to remove when a signal ends the process.
    pub fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Renames the directory to its name. Returns it, with the size of its files in bytes.
    pub fn finish(self) -> Result<(PathBuf, u64), Error> {
        let bytes = size_of(&self.temporary).map_err(Error::io(&self.temporary))?;
        // The name may have been taken in the meantime.
        check(&self.path, self.force)?;
        let mut former = None;
        if self.path.symlink_metadata().is_ok() {
            let aside = beside(&self.path, OLD)?;
            std::fs::rename(&self.path, &aside).map_err(Error::io(&self.path))?;
            former = Some(aside);
        }
        if let Err(error) = std::fs::rename(&self.temporary, &self.path) {
            if let Some(former) = former {
                // The previous export is restored; the returned error is that of the new one.
                let _ = std::fs::rename(former, &self.path);
            }
            return Err(Error::io(&self.path)(error));
        }
        if let Some(former) = former {
            std::fs::remove_dir_all(&former).map_err(Error::io(&former))?;
        }
        Ok((self.path.clone(), bytes))
    }
}

impl Drop for OutputDirectory {
    /// Removes an unfinished directory.
    fn drop(&mut self) {
        // After finishing it has another name.
        let _ = std::fs::remove_dir_all(&self.temporary);
    }
}

/// Creates the directory under its temporary name, with its locked mark.
fn create_beside(path: &Path) -> Result<(PathBuf, File), Error> {
    const ATTEMPTS: u32 = 4;
    let mut attempt = 1;
    loop {
        let temporary = beside(path, "")?;
        std::fs::create_dir(&temporary).map_err(Error::io(path))?;
        match mark(&temporary) {
            Ok(mark) => return Ok((temporary, mark)),
            // Another process took the directory without a mark for that of a killed one.
            Err(error) if error.kind() == io::ErrorKind::NotFound && attempt < ATTEMPTS => {
                attempt += 1;
            }
            Err(error) => {
                // The returned error is that of the mark.
                let _ = std::fs::remove_dir_all(&temporary);
                return Err(Error::io(path)(error));
            }
        }
    }
}

/// Marks a directory as being written.
fn mark(folder: &Path) -> io::Result<File> {
    let new = folder.join(NEW_MARK);
    let mark = File::create(&new)?;
    // File systems without locks: what is left there stays.
    if let Err(std::fs::TryLockError::Error(error)) = mark.try_lock() {
        log::debug!("{}: {error}", new.display());
        return Ok(mark);
    }
    std::fs::rename(new, folder.join(MARK))?;
    Ok(mark)
}

/// Removes what killed processes left of exports to `path`, or restores the earlier export if there is no other.
fn clean_up(path: &Path) -> Result<(), Error> {
    let Some(before) = name_before(path) else {
        return Ok(());
    };
    // An unreadable directory is reported when it is written to.
    let entries = std::fs::read_dir(directory_of(path));
    for entry in entries.into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix(&before) else {
            continue;
        };
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let Ok(mark) = File::open(entry.path().join(MARK)) else {
            if is_own_name(rest) {
                remove_unmarked(&entry.path());
            }
            continue;
        };
        if mark.try_lock().is_err() {
            continue;
        }
        let is_only = rest.starts_with(OLD) && path.symlink_metadata().is_err();
        let (done, what) = match is_only {
            true => (std::fs::rename(entry.path(), path), "restored"),
            false => (std::fs::remove_dir_all(entry.path()), "removed"),
        };
        done.map_err(Error::io(&entry.path()))?;
        log::info!("{what} {name}, left by a killed process");
    }
    Ok(())
}

/// Whether a name ends as those of [`beside`].
fn is_own_name(rest: &str) -> bool {
    let numbers = rest.split_once('-');
    numbers.is_some_and(|(process, number)| {
        process.parse::<u32>().is_ok() && number.parse::<u32>().is_ok()
    })
}

/// Removes a directory that a process was killed for before it had its mark. Directories with other files stay.
fn remove_unmarked(folder: &Path) {
    let new = folder.join(NEW_MARK);
    if let Ok(mark) = File::open(&new) {
        if mark.try_lock().is_err() {
            return;
        }
        // Its process may still live: then it creates another directory.
        let _ = std::fs::remove_file(new);
    }
    if std::fs::remove_dir(folder).is_ok() {
        log::info!("removed {}, left by a killed process", folder.display());
    }
}

/// Checks whether a directory may be written at `path`.
fn check(path: &Path, force: bool) -> Result<(), Error> {
    let found = match path.symlink_metadata() {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io(path)(error)),
    };
    if !force {
        return Err(Error::Exists {
            path: path.to_owned(),
        });
    }
    if found.is_dir() && path.join(MARK).is_file() {
        return Ok(());
    }
    Err(Error::Unsupported {
        input: path.display().to_string(),
        message: "expected an earlier export, found something else; it is not overwritten"
            .to_owned(),
    })
}

/// A free name in the same directory.
fn beside(path: &Path, what: &str) -> Result<PathBuf, Error> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let Some(before) = name_before(path) else {
        return Err(Error::Unsupported {
            input: path.display().to_string(),
            message: "expected a name".to_owned(),
        });
    };
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{before}{what}{}-{number}", std::process::id());
    Ok(path.with_file_name(name))
}

/// The beginning of such names.
fn name_before(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_string_lossy();
    let name: String = name.chars().take(50).collect();
    Some(format!(".{name}.perfquet-"))
}

fn size_of(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let found = entry?.metadata()?;
        bytes += if found.is_file() { found.len() } else { 0 };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, force: bool, text: &str) -> Result<u64, Error> {
        let output = OutputDirectory::create(path, force)?;
        std::fs::write(output.temporary().join("a"), text).unwrap();
        Ok(output.finish()?.1)
    }

    #[test]
    fn what_killed_exports_left_is_removed_or_restored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ctf");
        let left = |name: &str, has_mark: bool| {
            let left = folder.path().join(name);
            std::fs::create_dir(&left).unwrap();
            std::fs::write(left.join("a"), "left").unwrap();
            if has_mark {
                std::fs::write(left.join(MARK), "").unwrap();
            }
            left
        };
        let unfinished = left(".a.ctf.perfquet-1-0", true);
        let foreign = left(".a.ctf.perfquet-1-1", false);
        let other = left(".b.ctf.perfquet-1-0", true);
        // Killed before the directory had its mark.
        let unmarked = [
            ".a.ctf.perfquet-1-5",
            ".a.ctf.perfquet-1-6",
            ".a.ctf.perfquet-mine",
        ];
        let unmarked = unmarked.map(|name| folder.path().join(name));
        for (index, folder) in unmarked.iter().enumerate() {
            std::fs::create_dir(folder).unwrap();
            if index == 1 {
                std::fs::write(folder.join(NEW_MARK), "").unwrap();
            }
        }
        let running = OutputDirectory::create(&path, false).unwrap();
        assert!(!unfinished.exists() && foreign.exists() && other.exists());
        assert_eq!(
            unmarked.each_ref().map(|folder| folder.exists()),
            [false, false, true]
        );
        // A second one beside the first, which still runs.
        let second = OutputDirectory::create(&path, false).unwrap();
        assert!(running.temporary().exists() && second.temporary().exists());
        drop((running, second));
        // Killed between the two renames: the earlier export is the only one.
        let former = left(".a.ctf.perfquet-old-1-2", true);
        let refused = OutputDirectory::create(&path, false);
        assert!(matches!(refused, Err(Error::Exists { .. })));
        assert!(!former.exists());
        assert_eq!(std::fs::read(path.join("a")).unwrap(), b"left");
        // Killed before the last step: the new export counts.
        let former = left(".a.ctf.perfquet-old-1-3", true);
        write(&path, true, "new").unwrap();
        assert!(!former.exists());
        assert_eq!(std::fs::read(path.join("a")).unwrap(), b"new");
    }

    #[test]
    fn only_an_earlier_export_is_replaced_and_only_by_a_complete_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ctf");
        let names = || std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(write(&path, false, "first").unwrap(), 5);
        assert!(matches!(
            write(&path, false, "second"),
            Err(Error::Exists { .. })
        ));
        drop(OutputDirectory::create(&path, true).unwrap());
        let read = || std::fs::read_to_string(path.join("a")).unwrap();
        assert_eq!(read(), "first");
        write(&path, true, "third").unwrap();
        assert_eq!((read().as_str(), names()), ("third", 1));
        std::fs::remove_file(path.join(MARK)).unwrap();
        assert!(matches!(
            write(&path, true, "fourth"),
            Err(Error::Unsupported { .. })
        ));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(write(&link, true, "fifth").is_err());
        assert_eq!((read().as_str(), names()), ("third", 2));
    }
}
