//! Creates trace directories: overwrites only if requested, never by two writers at once, and removes only files
//! that were written here.
//!
//! ```text
//! a.pqt        absent              created
//!              exists              rejected; with `force` set aside as a.pqt.perfquet-old until the new one is complete
//!              only journal/, or   with `adopt` taken over: tables left by a killed writer are removed,
//!              state recording     the journal stays
//! ```
//! The name a.pqt.perfquet-old marks the file as perfquet's: other adjacent files, such as a.pqt.old, belong to the
//! user. It remains if a writer is killed between two steps. The next writer at this path restores it if nothing
//! replaced it, removes it if a complete trace did, and otherwise keeps it as the last complete trace. A trace is
//! removed file by file. A trace that contains foreign files is never renamed. The directory is locked (flock) while
//! its writer lives, so a trace that is still being recorded is not mistaken for an abandoned one.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use perfquet_events::Error;

use crate::output_file;

use super::files;
use super::manifest::{FILE_NAME, JOURNAL, Manifest, State};

/// Suffix of the previous trace.
const SET_ASIDE: &str = ".perfquet-old";

/// A trace directory locked for writing.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    /// Holds the lock until closed.
    _lock: File,
}

impl Place {
    /// Creates the directory with this mode, less the umask, or adopts it.
    pub(super) fn make(path: &Path, force: bool, adopt: bool, mode: u32) -> Result<Place, Error> {
        complete_overwriting(path)?;
        match files::create_directory(path, mode) {
            Ok(()) => {}
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Error::io(path)(error));
            }
            Err(_) if adopt && is_unfinished(path)? => {
                let lock = lock(path)?;
                Manifest::new().write(path, false)?;
                remove_parts(path, true).map_err(Error::io(path))?;
                return Ok(Place {
                    path: path.to_owned(),
                    _lock: lock,
                });
            }
            Err(_) if force => {
                set_aside(path)?;
                files::create_directory(path, mode).map_err(|error| {
                    put_back(path);
                    Error::io(path)(error)
                })?;
            }
            Err(_) => {
                return Err(Error::Exists {
                    path: path.to_owned(),
                });
            }
        }
        let lock = lock(path)?;
        Manifest::new().write(path, false).inspect_err(|_| {
            // The returned error is that of the manifest. Only an empty directory is removed.
            let _ = std::fs::remove_dir(path);
            put_back(path);
        })?;
        Ok(Place {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// Opens a complete trace to replace some of its tables.
    pub(super) fn open(path: &Path) -> Result<(Place, Manifest), Error> {
        let lock = lock(path)?;
        let manifest = Manifest::read(path)?;
        let place = Place {
            path: path.to_owned(),
            _lock: lock,
        };
        Ok((place, manifest))
    }

    /// Removes the previous trace, after the new one is complete. If that fails, the next writer tries again.
    pub(super) fn finished(self) {
        if let Err(error) = remove_set_aside(&self.path) {
            log::warn!("cannot remove the earlier trace: {error}");
        }
    }
}

fn lock(path: &Path) -> Result<File, Error> {
    let directory = File::open(path).map_err(Error::io(path))?;
    match directory.try_lock() {
        Ok(()) => Ok(directory),
        Err(TryLockError::WouldBlock) => Err(Error::Unsupported {
            input: path.display().to_string(),
            message: "another process is writing it\nhint: wait until it has finished".to_owned(),
        }),
        Err(TryLockError::Error(error)) => Err(Error::io(path)(error)),
    }
}

fn state(path: &Path) -> Option<State> {
    Manifest::read(path).ok().map(|manifest| manifest.state)
}

/// Whether a killed writer or a recorder left a directory that can be adopted.
fn is_unfinished(path: &Path) -> Result<bool, Error> {
    let kind = path.symlink_metadata().map_err(Error::io(path))?;
    if !kind.is_dir() {
        return Ok(false);
    }
    Ok(match state(path) {
        Some(state) => state == State::Recording,
        None => holds_only(path, &[JOURNAL])?,
    })
}

/// Whether the directory contains only these, and perhaps an unfinished manifest.
fn holds_only(path: &Path, names: &[&str]) -> Result<bool, Error> {
    let entries = std::fs::read_dir(path).map_err(Error::io(path))?;
    for entry in entries {
        let name = entry.map_err(Error::io(path))?.file_name();
        let begun = format!("{FILE_NAME}{}", files::TEMPORARY);
        if !names.iter().any(|known| name == *known) && name != *begun {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the path of the previous trace until the new one is complete.
fn aside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(SET_ASIDE);
    path.with_file_name(name)
}

/// Completes the steps of a writer of `path` that was killed between them.
pub fn complete_overwriting(path: &Path) -> Result<(), Error> {
    let aside = aside(path);
    if aside.symlink_metadata().is_err() {
        return Ok(());
    }
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::rename(&aside, path).map_err(Error::io(&aside))
        }
        _ if is_whole(path) => remove_set_aside(path),
        _ => Ok(()),
    }
}

/// The previous trace of `path`, if it was renamed and neither removed nor restored since.
pub fn earlier_trace(path: &Path) -> Option<PathBuf> {
    Some(aside(path)).filter(|aside| aside.symlink_metadata().is_ok())
}

/// Removes the previous trace of `path`, which is complete.
pub fn remove_set_aside(path: &Path) -> Result<(), Error> {
    let aside = aside(path);
    match aside.symlink_metadata() {
        Ok(found) if found.is_file() => std::fs::remove_file(&aside).map_err(Error::io(&aside)),
        Ok(_) => remove_trace(&aside),
        Err(_) => Ok(()),
    }
}

/// Restores the previous trace of `path` if nothing replaced it.
pub fn put_back(path: &Path) {
    let aside = aside(path);
    if aside.symlink_metadata().is_ok()
        && path.symlink_metadata().is_err()
        && let Err(error) = std::fs::rename(&aside, path)
    {
        log::warn!(
            "cannot restore {} from {}: {error}",
            path.display(),
            aside.display()
        );
    }
}

/// Renames an output file of the recorder, as [`set_aside`] does for a trace.
pub fn set_file_aside(path: &Path) -> Result<(), Error> {
    output_file::check(path, true)?;
    let aside = aside(path);
    let refused = |what: &str| Error::Unsupported {
        input: path.display().to_string(),
        message: format!("expected a file to overwrite, found {what}"),
    };
    match path.symlink_metadata() {
        Ok(found) if found.is_file() => {}
        _ => return Err(refused("another kind of file")),
    }
    match aside.symlink_metadata() {
        // An earlier overwriting was killed: the file that it set aside is the last complete one.
        Ok(_) => std::fs::remove_file(path).map_err(Error::io(path)),
        Err(_) => std::fs::rename(path, &aside).map_err(Error::io(path)),
    }
}

/// Renames the trace at `path`, to be removed when its replacement is complete. If an earlier overwrite was killed, the trace
/// that it renamed is the last complete one and stays; its unfinished trace at `path` is removed.
/// Used by the recorder, which creates its journal at `path` before the store writes there.
pub fn set_aside(path: &Path) -> Result<(), Error> {
    complete_overwriting(path)?;
    let is_directory = path.symlink_metadata().map_err(Error::io(path))?.is_dir();
    let is_trace = is_directory && (path.join(FILE_NAME).exists() || holds_only(path, &[JOURNAL])?);
    if !is_trace || path.file_name().is_none() {
        return Err(Error::Unsupported {
            input: path.display().to_string(),
            message: "exists and is not a trace directory\n\
                      hint: use another name, or remove it"
                .to_owned(),
        });
    }
    refuse_foreign(path, "overwritten", "move that file, or use another name")?;
    // No writer may be active; the lock moves with the renamed directory.
    let _lock = lock(path)?;
    let aside = aside(path);
    if aside.symlink_metadata().is_ok() {
        return remove_trace(path);
    }
    std::fs::rename(path, &aside).map_err(Error::io(path))
}

fn is_whole(path: &Path) -> bool {
    state(path).is_some_and(|state| state != State::Recording)
}

/// Returns a file below `folder` that does not belong to a trace, if there is one.
fn foreign_file(root: &Path, folder: &Path) -> Result<Option<PathBuf>, Error> {
    for entry in std::fs::read_dir(folder).map_err(Error::io(folder))? {
        let entry = entry.map_err(Error::io(folder))?;
        let (path, name) = (entry.path(), entry.file_name());
        let kind = entry.file_type().map_err(Error::io(&path))?;
        let inner = path.strip_prefix(root).unwrap_or(&path);
        if kind.is_dir() {
            if folder == root && name == JOURNAL {
                continue;
            }
            let found = foreign_file(root, &path)?;
            if found.is_some() {
                return Ok(found);
            }
        } else if !kind.is_file() || !is_of_trace(&name.to_string_lossy(), folder == root) {
            return Ok(Some(inner.to_owned()));
        }
    }
    Ok(None)
}

/// Whether a file is the manifest or a part, complete or not.
fn is_of_trace(name: &str, is_top: bool) -> bool {
    let name = name.strip_suffix(files::TEMPORARY).unwrap_or(name);
    match is_top {
        true => name == FILE_NAME,
        false => name.strip_suffix(".parquet").is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        }),
    }
}

/// Fails if a trace directory contains foreign files; it is then not `done` (removed, overwritten).
fn refuse_foreign(path: &Path, done: &str, hint: &str) -> Result<(), Error> {
    let Some(foreign) = foreign_file(path, path)? else {
        return Ok(());
    };
    Err(Error::Unsupported {
        input: path.display().to_string(),
        message: format!(
            "contains {}, which is not part of a trace, so it is not {done}\nhint: {hint}",
            foreign.display()
        ),
    })
}

/// Removes a trace: its parts, journal, manifest, and the directories that become empty. Fails if there are other files,
/// which stay.
pub fn remove_trace(path: &Path) -> Result<(), Error> {
    refuse_foreign(path, "removed", "move that file, then remove the directory")?;
    std::fs::remove_dir_all(path).map_err(Error::io(path))
}

/// Removes parts, complete or not, and the directories that become empty; nothing else.
fn remove_parts(folder: &Path, top: bool) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if entry.file_type()?.is_dir() {
            if top && name == JOURNAL {
                continue;
            }
            remove_parts(&entry.path(), false)?;
            // Other files keep the directory.
            let _ = std::fs::remove_dir(entry.path());
        } else if !top && is_of_trace(&name, false) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the names in a directory, sorted.
    fn names(path: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(path).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn complete(path: &Path) {
        let mut manifest = Manifest::read(path).unwrap();
        manifest.state = State::Complete;
        manifest.write(path, false).unwrap();
    }

    #[test]
    fn refuses_and_sets_aside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pqt");
        Place::make(&path, false, false, 0o700).unwrap();
        complete(&path);
        assert!(matches!(
            Place::make(&path, false, true, 0o700),
            Err(Error::Exists { .. })
        ));
        // The second one is killed; the third must keep the complete one.
        drop(Place::make(&path, true, false, 0o700).unwrap());
        assert_eq!(names(folder.path()), ["a.pqt", "a.pqt.perfquet-old"]);
        let place = Place::make(&path, true, false, 0o700).unwrap();
        assert_eq!(state(&aside(&path)), Some(State::Complete));
        complete(&path);
        place.finished();
        assert_eq!(names(folder.path()), ["a.pqt"]);
    }

    #[test]
    fn removes_only_files_of_the_store() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pqt");
        drop(Place::make(&path, false, false, 0o700).unwrap());
        complete(&path);
        // A user's copy, and a directory that is not a trace.
        let own = folder.path().join("a.pqt.old");
        std::fs::create_dir(&own).unwrap();
        std::fs::write(own.join("thesis"), "").unwrap();
        let place = Place::make(&path, true, false, 0o700).unwrap();
        complete(&path);
        place.finished();
        assert!(own.join("thesis").exists());
        // A foreign file inside the trace.
        std::fs::create_dir(path.join("samples")).unwrap();
        for foreign in ["notes", "samples/mine.parquet"] {
            std::fs::write(path.join(foreign), "").unwrap();
            let refused = Place::make(&path, true, false, 0o700)
                .unwrap_err()
                .to_string();
            assert!(
                refused.contains(&format!("contains {foreign}")),
                "{refused}"
            );
            std::fs::remove_file(path.join(foreign)).unwrap();
        }
        std::os::unix::fs::symlink(&own, path.join("samples/00000.parquet")).unwrap();
        assert!(Place::make(&path, true, false, 0o700).is_err());
        assert!(own.join("thesis").exists());
    }

    #[test]
    fn interrupted_replacement_is_completed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pqt");
        drop(Place::make(&path, false, false, 0o700).unwrap());
        complete(&path);
        // Killed after setting aside: the trace is restored, and then rejected like any other.
        set_aside(&path).unwrap();
        assert_eq!(names(folder.path()), ["a.pqt.perfquet-old"]);
        let refused = Place::make(&path, false, false, 0o700);
        assert!(matches!(refused, Err(Error::Exists { .. })));
        assert_eq!(names(folder.path()), ["a.pqt"]);
        // Killed after the new one was complete: the old one is removed.
        set_aside(&path).unwrap();
        files::create_directory(&path, 0o700).unwrap();
        Manifest::new().write(&path, false).unwrap();
        complete(&path);
        let refused = Place::make(&path, false, false, 0o700);
        assert!(matches!(refused, Err(Error::Exists { .. })));
        assert_eq!(names(folder.path()), ["a.pqt"]);
    }

    #[test]
    fn overwrites_no_foreign_directory() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("thesis"), "").unwrap();
        let refused = Place::make(folder.path(), true, true, 0o700).unwrap_err();
        assert!(refused.to_string().contains("not a trace directory"));
        let file = folder.path().join("thesis");
        assert!(Place::make(&file, true, true, 0o700).is_err());
    }

    #[test]
    fn adopts_the_directory_of_a_killed_writer_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pqt");
        std::fs::create_dir_all(path.join("journal")).unwrap();
        std::fs::write(path.join("journal/perf.data"), "raw.parquet").unwrap();
        let place = Place::make(&path, false, true, 0o700).unwrap();
        std::fs::create_dir_all(path.join("events/sched/x")).unwrap();
        std::fs::write(path.join("events/sched/x/00000.parquet.tmp"), "").unwrap();
        std::fs::write(path.join("events/sched/00001.parquet"), "").unwrap();
        assert!(
            Place::make(&path, false, true, 0o700)
                .unwrap_err()
                .to_string()
                .contains("another process")
        );
        drop(place);
        Place::make(&path, false, true, 0o700).unwrap();
        assert_eq!(names(&path), ["journal", "manifest.json"]);
        assert_eq!(names(&path.join("journal")), ["perf.data"]);
    }
}
