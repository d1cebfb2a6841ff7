//! Output files of the programs: exports, images, perf.data. All follow the same rule.
//!
//! ```text
//! missing                written as .NAME.perfquet-PID-N in the same directory, renamed when complete
//! a file                 rejected; with `force` likewise, so the old one stays until the new one is complete
//! a pipe, a terminal     written directly
//! a directory, a disk    rejected
//! a symbolic link        rejected, since it may point anywhere; /dev/stdout and similar are followed
//! ```
//! The file is locked (flock) while being written. A file of a killed writer is recognized by its name and
//! missing lock, and removed when the same output is written again.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use perfquet_events::Error;
use perfquet_events::directory::directory_of;

/// A file that gets its name only when it is complete.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    force: bool,
    /// `None` only after finishing.
    out: Option<BufWriter<File>>,
    /// Temporary name; `None` if written directly.
    temporary: Option<PathBuf>,
}

/// What exists at the path of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Nothing.
    Nothing,
    /// A file that may be replaced.
    File,
    /// A pipe or a terminal, which is written directly.
    Special,
}

/// Checks whether a file may be written at `path`.
pub fn check(path: &Path, force: bool) -> Result<Existing, Error> {
    let unfit = |message: String| {
        Err(Error::Unsupported {
            input: path.display().to_string(),
            message,
        })
    };
    let found = match path.symlink_metadata() {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Existing::Nothing),
        Err(error) => return Err(Error::io(path)(error)),
    };
    if found.is_symlink() {
        return match is_of_system(path) {
            true => Ok(Existing::Special),
            false => {
                let target = path.read_link().unwrap_or_default();
                unfit(format!(
                    "a symbolic link to {}, which is not followed\nhint: use that path, or remove the link",
                    target.display()
                ))
            }
        };
    }
    let kind = found.file_type();
    if kind.is_dir() {
        unfit("expected a file name, found a directory".to_owned())
    } else if kind.is_block_device() {
        unfit("expected a file name, found a block device".to_owned())
    } else if !kind.is_file() {
        Ok(Existing::Special)
    } else if force {
        Ok(Existing::File)
    } else {
        Err(Error::Exists {
            path: path.to_owned(),
        })
    }
}

/// Whether a link is made by the kernel, such as /dev/stdout.
fn is_of_system(path: &Path) -> bool {
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    folder.is_some_and(|folder| folder.starts_with("/dev") || folder.starts_with("/proc"))
}

impl OutputFile {
    /// Creates the temporary file for `path`. Fails on conflicts.
    pub fn create(path: &Path, force: bool) -> Result<OutputFile, Error> {
        let (file, temporary) = match check(path, force)? {
            Existing::Special => {
                let file = File::options().append(true).open(path);
                (file.map_err(Error::io(path))?, None)
            }
            Existing::Nothing | Existing::File => {
                let (file, temporary) = create_beside(path)?;
                (file, Some(temporary))
            }
        };
        Ok(OutputFile {
            path: path.to_owned(),
            force,
            out: Some(BufWriter::with_capacity(1 << 16, file)),
            temporary,
        })
    }

    /// Returns the temporary file, to remove when a signal ends the process.
    pub fn temporary(&self) -> Option<&Path> {
        self.temporary.as_deref()
    }

    /// Flushes the file, and renames it to its name.
    pub fn finish(mut self) -> Result<(), Error> {
        let written = match self.out.take() {
            Some(out) => out.into_inner().map_err(io::IntoInnerError::into_error),
            None => return Ok(()),
        };
        // Keep the lock until the file has its name.
        let _file = written.map_err(Error::io(&self.path))?;
        let Some(temporary) = &self.temporary else {
            return Ok(());
        };
        match self.force {
            true => std::fs::rename(temporary, &self.path).map_err(Error::io(&self.path))?,
            false => name_new(temporary, &self.path)?,
        }
        self.temporary = None;
        Ok(())
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.out {
            Some(out) => out.write(bytes),
            None => Ok(0),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Drop for OutputFile {
    /// Removes an unfinished file.
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // It may already be gone.
            let _ = std::fs::remove_file(temporary);
        }
    }
}

/// Renames the file, unless another file has taken the name.
fn name_new(temporary: &Path, path: &Path) -> Result<(), Error> {
    match std::fs::hard_link(temporary, path) {
        Ok(()) => {
            // The file is complete: the next writer of the same output removes the other name.
            if let Err(error) = std::fs::remove_file(temporary) {
                log::warn!("cannot remove {}: {error}", temporary.display());
            }
            Ok(())
        }
        // Not every file system has hard links.
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            check(path, false)?;
            std::fs::rename(temporary, path).map_err(Error::io(path))
        }
        Err(_) => Err(Error::Exists {
            path: path.to_owned(),
        }),
    }
}

/// Creates the file under its temporary name.
fn create_beside(path: &Path) -> Result<(File, PathBuf), Error> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let Some(name) = path.file_name() else {
        return Err(Error::Unsupported {
            input: path.display().to_string(),
            message: "expected a file name".to_owned(),
        });
    };
    // A name has at most 255 bytes.
    let name: String = name.to_string_lossy().chars().take(50).collect();
    let prefix = format!(".{name}.perfquet-");
    let folder = directory_of(path);
    remove_abandoned(folder, &prefix);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let temporary = folder.join(format!("{prefix}{}-{number}", std::process::id()));
    let file = File::options()
        .write(true)
        .create_new(true)
        // The umask applies, as for any new file.
        .mode(0o666)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&temporary)
        .map_err(Error::io(path))?;
    // Cannot conflict: no other process knows the name yet. A file system without locks is acceptable.
    let _ = file.try_lock();
    Ok((file, temporary))
}

/// Removes temporary files of killed writers of the same output.
fn remove_abandoned(folder: &Path, prefix: &str) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(prefix));
        let is_ours =
            rest.and_then(|rest| rest.split_once('-'))
                .is_some_and(|(process, number)| {
                    process.parse::<u32>().is_ok() && number.parse::<u32>().is_ok()
                });
        if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let file = File::options()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(entry.path());
        if file.is_ok_and(|file| file.try_lock().is_ok()) {
            // Another process may do the same.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(path).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn write(path: &Path, force: bool, text: &str) -> Result<(), Error> {
        let mut file = OutputFile::create(path, force)?;
        file.write_all(text.as_bytes()).unwrap();
        file.finish()
    }

    #[test]
    fn a_file_is_replaced_only_with_force_and_only_by_a_complete_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.svg");
        write(&path, false, "first").unwrap();
        assert!(matches!(
            write(&path, false, "second"),
            Err(Error::Exists { .. })
        ));
        let mut given_up = OutputFile::create(&path, true).unwrap();
        given_up.write_all(b"half").unwrap();
        given_up.flush().unwrap();
        assert_eq!(names(folder.path()).len(), 2);
        drop(given_up);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "first");
        write(&path, true, "third").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "third");
        assert_eq!(names(folder.path()), ["a.svg"]);
    }

    #[test]
    fn a_file_created_in_between_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.svg");
        let file = OutputFile::create(&path, false).unwrap();
        std::fs::write(&path, "another's").unwrap();
        assert!(matches!(file.finish(), Err(Error::Exists { .. })));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "another's");
        assert_eq!(names(folder.path()), ["a.svg"]);
    }

    #[test]
    fn links_and_directories_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("target");
        std::fs::write(&target, "keep").unwrap();
        for (name, target) in [("link", "target"), ("dangling", "nothing")] {
            let link = folder.path().join(name);
            std::os::unix::fs::symlink(target, &link).unwrap();
            for force in [false, true] {
                let refused = write(&link, force, "new").unwrap_err().to_string();
                assert!(refused.contains("a symbolic link to"), "{refused}");
            }
            assert!(link.is_symlink());
        }
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "keep");
        assert!(write(folder.path(), true, "new").is_err());
        assert!(write(&folder.path().join("none/a.svg"), true, "new").is_err());
    }

    #[test]
    fn the_file_of_a_killed_writer_is_removed_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.svg");
        for name in [
            ".a.svg.perfquet-7-0",
            ".a.svg.perfquet-mine",
            ".b.svg.perfquet-7-0",
        ] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let living = OutputFile::create(&path, false).unwrap();
        write(&path, false, "new").unwrap();
        let left = names(folder.path());
        assert!(
            !left.contains(&".a.svg.perfquet-7-0".to_owned()),
            "{left:?}"
        );
        assert_eq!(left.len(), 4, "{left:?}");
        drop(living);
    }

    #[test]
    fn pipe_is_written_directly() {
        assert_eq!(
            check(Path::new("/dev/null"), false).unwrap(),
            Existing::Special
        );
        write(Path::new("/dev/null"), false, "gone").unwrap();
        assert_eq!(
            check(Path::new("/dev/stdout"), false).unwrap(),
            Existing::Special
        );
    }
}
