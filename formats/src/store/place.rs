//! Where a trace directory is made: nothing is overwritten unasked, and never by two at once.
//!
//! ```text
//! a.pqt        absent              made
//!              exists              refused; with `force` set aside as a.pqt.old until the new one is whole
//!              only journal/, or   with `adopt` taken over: what a dead writer left of the tables is removed,
//!              state recording     the journal stays
//! ```
//! The directory is locked (flock) as long as its writer lives, so a trace that is still being recorded is not
//! taken for a dead one.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::Error;

use super::files;
use super::manifest::{FILE_NAME, Manifest, State};

/// Folder of the recorder's raw file, which the store leaves alone.
pub const JOURNAL: &str = "journal";

/// A directory that is ours to write.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    /// The trace that stood here before.
    old: Option<PathBuf>,
    /// Locked until it is closed.
    _lock: File,
}

impl Place {
    /// Makes the directory, or takes it over.
    pub(super) fn make(path: &Path, force: bool, adopt: bool) -> Result<Place, Error> {
        let mut old = None;
        match files::create_directory(path) {
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
                    old,
                    _lock: lock,
                });
            }
            Err(_) if force => {
                old = Some(set_aside(path)?);
                files::create_directory(path).map_err(Error::io(path))?;
            }
            Err(_) => {
                return Err(Error::Exists {
                    path: path.to_owned(),
                });
            }
        }
        let lock = lock(path)?;
        Manifest::new().write(path, false)?;
        Ok(Place {
            path: path.to_owned(),
            old,
            _lock: lock,
        })
    }

    /// Takes a trace that is whole, to replace some of its tables.
    pub(super) fn open(path: &Path) -> Result<(Place, Manifest), Error> {
        let lock = lock(path)?;
        let manifest = Manifest::read(path)?;
        let place = Place {
            path: path.to_owned(),
            old: None,
            _lock: lock,
        };
        Ok((place, manifest))
    }

    /// The new trace is whole: the one that it replaces goes.
    pub(super) fn finished(self) -> Result<(), Error> {
        match self.old {
            Some(old) => std::fs::remove_dir_all(&old).map_err(Error::io(old)),
            None => Ok(()),
        }
    }
}

fn lock(path: &Path) -> Result<File, Error> {
    let directory = File::open(path).map_err(Error::io(path))?;
    match directory.try_lock() {
        Ok(()) => Ok(directory),
        Err(TryLockError::WouldBlock) => Err(Error::Unsupported {
            input: path.display().to_string(),
            message: "being written by another process\nhint: wait until it has finished"
                .to_owned(),
        }),
        Err(TryLockError::Error(error)) => Err(Error::io(path)(error)),
    }
}

fn state(path: &Path) -> Option<State> {
    Manifest::read(path).ok().map(|manifest| manifest.state)
}

/// What a writer left that died, or that a recorder prepared.
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

/// Whether nothing but these is in the directory, and perhaps a manifest that was never finished.
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

/// Renames the trace at `path` to `.old`. If an earlier overwriting died, `.old` is the last whole one and stays.
/// For a recorder, whose journal stands at `path` before the store writes there.
pub fn set_aside(path: &Path) -> Result<PathBuf, Error> {
    let is_directory = path.symlink_metadata().map_err(Error::io(path))?.is_dir();
    let is_trace = is_directory && (path.join(FILE_NAME).exists() || holds_only(path, &[JOURNAL])?);
    let Some(name) = path.file_name().filter(|_| is_trace) else {
        return Err(Error::Unsupported {
            input: path.display().to_string(),
            message: "exists and is no trace directory, so it is not overwritten\n\
                      hint: choose another name, or remove it yourself"
                .to_owned(),
        });
    };
    // Nobody may be writing it; the lock goes with the renamed directory.
    let _lock = lock(path)?;
    let mut name = name.to_owned();
    name.push(".old");
    let old = path.with_file_name(name);
    let is_whole = state(path).is_some_and(|state| state != State::Recording);
    if old.symlink_metadata().is_ok() {
        let spent = if is_whole { &old } else { path };
        std::fs::remove_dir_all(spent).map_err(Error::io(spent))?;
        if !is_whole {
            return Ok(old);
        }
    }
    std::fs::rename(path, &old).map_err(Error::io(path))?;
    Ok(old)
}

/// Removes parts, whole or not, and the folders that become empty; nothing else.
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
            // Whatever else lies in it keeps it.
            let _ = std::fs::remove_dir(entry.path());
        } else if name.ends_with(".parquet") || name.ends_with(".parquet.tmp") {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names in a directory, sorted.
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
        Place::make(&path, false, false).unwrap();
        complete(&path);
        assert!(matches!(
            Place::make(&path, false, true),
            Err(Error::Exists { .. })
        ));
        // The second one dies, the third must keep what was whole.
        drop(Place::make(&path, true, false).unwrap());
        assert_eq!(names(folder.path()), ["a.pqt", "a.pqt.old"]);
        let place = Place::make(&path, true, false).unwrap();
        assert_eq!(
            state(&folder.path().join("a.pqt.old")),
            Some(State::Complete)
        );
        complete(&path);
        place.finished().unwrap();
        assert_eq!(names(folder.path()), ["a.pqt"]);
    }

    #[test]
    fn overwrites_no_foreign_directory() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("thesis"), "").unwrap();
        let refused = Place::make(folder.path(), true, true).unwrap_err();
        assert!(refused.to_string().contains("no trace directory"));
        let file = folder.path().join("thesis");
        assert!(Place::make(&file, true, true).is_err());
    }

    #[test]
    fn adopts_what_a_dead_writer_left_but_not_a_live_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pqt");
        std::fs::create_dir_all(path.join("journal")).unwrap();
        std::fs::write(path.join("journal/perf.data"), "raw.parquet").unwrap();
        let place = Place::make(&path, false, true).unwrap();
        std::fs::create_dir_all(path.join("events/sched/x")).unwrap();
        std::fs::write(path.join("events/sched/x/00000.parquet.tmp"), "").unwrap();
        std::fs::write(path.join("events/sched/00001.parquet"), "").unwrap();
        assert!(
            Place::make(&path, false, true)
                .unwrap_err()
                .to_string()
                .contains("another process")
        );
        drop(place);
        Place::make(&path, false, true).unwrap();
        assert_eq!(names(&path), ["journal", "manifest.json"]);
        assert_eq!(names(&path.join("journal")), ["perf.data"]);
    }
}
