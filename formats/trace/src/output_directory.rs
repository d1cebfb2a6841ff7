//! Output directories of exports, by the rules of output files.
//!
//! ```text
//! missing                    written as .NAME.perfquet-PID-N in the same directory, renamed when complete
//! an earlier export          rejected; with `force` replaced when the new one is complete
//! anything else              rejected: nothing that was not written here is removed
//! ```
//! The hidden file `.perfquet-export` marks an export.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use perfquet_events::Error;

/// Marks a directory that was written here.
const MARK: &str = ".perfquet-export";

/// A directory that gets its name only when it is complete.
#[derive(Debug)]
pub struct OutputDirectory {
    path: PathBuf,
    force: bool,
    temporary: PathBuf,
}

impl OutputDirectory {
    /// Creates the temporary directory for `path`. Fails on conflicts.
    pub fn create(path: &Path, force: bool) -> Result<OutputDirectory, Error> {
        check(path, force)?;
        let temporary = beside(path)?;
        std::fs::create_dir(&temporary).map_err(Error::io(path))?;
        let output = OutputDirectory {
            path: path.to_owned(),
            force,
            temporary,
        };
        File::create(output.temporary.join(MARK)).map_err(Error::io(path))?;
        Ok(output)
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
            let aside = beside(&self.path)?;
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
fn beside(path: &Path) -> Result<PathBuf, Error> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let Some(name) = path.file_name() else {
        return Err(Error::Unsupported {
            input: path.display().to_string(),
            message: "expected a name".to_owned(),
        });
    };
    let name: String = name.to_string_lossy().chars().take(50).collect();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!(".{name}.perfquet-{}-{number}", std::process::id());
    Ok(path.with_file_name(name))
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
