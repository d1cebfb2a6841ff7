//! The directory of a ring: its traces, their sizes, and the removal of the oldest.
//!
//! ```text
//! 000042-20261125T135000Z.pqt            number and start, UTC
//! .000041-20261125T134000Z.pqt.removed   being removed
//! ```
//! Only names of this form are touched; everything else counts as used space of others and stays.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use perfquet_import::{Found, look_into};
use perfquet_trace::store::JOURNAL;

use crate::failure::failed;
use crate::limit::Limit;

const REMOVED: &str = ".removed";

/// State of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Its recorder runs.
    Live,
    /// Its recorder was killed.
    Abandoned,
    Complete,
}

/// A trace of the ring.
#[derive(Debug, Clone)]
pub(super) struct Trace {
    pub(super) bytes: u64,
    pub(super) state: State,
    /// When it was completed.
    modified: SystemTime,
}

/// The directory, locked for one supervisor.
pub(super) struct Folder {
    path: PathBuf,
    _lock: File,
    traces: BTreeMap<PathBuf, Trace>,
    last_number: u64,
    /// Complete traces have a journal, too.
    keeps_journals: bool,
}

impl Folder {
    /// Opens the directory, and creates it if it does not exist. Removals that were interrupted are completed.
    pub(super) fn open(path: &Path, keeps_journals: bool) -> Result<Folder> {
        let name = path.display();
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error).with_context(|| format!("cannot create {name}"));
            }
            Ok(()) | Err(_) => {}
        }
        if look_into(path) != Found::Nothing {
            return Err(
                failed(format!("{name}: a trace, not a directory of traces"))
                    .hint("choose another directory with -o DIR")
                    .into(),
            );
        }
        let lock = File::open(path).with_context(|| format!("cannot open {name}"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(
                    failed(format!("{name}: another recorder rotates its traces here"))
                        .hint("choose another directory with -o DIR")
                        .into(),
                );
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {name}"));
            }
        }
        let mut folder = Folder {
            path: path.to_owned(),
            _lock: lock,
            traces: BTreeMap::new(),
            last_number: 0,
            keeps_journals,
        };
        for entry in fs::read_dir(path)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let removed = name
                .strip_prefix('.')
                .and_then(|name| name.strip_suffix(REMOVED));
            if removed.and_then(number).is_some() {
                remove_tree(&entry.path())?;
            }
        }
        Ok(folder.look().map(|()| folder)?)
    }

    /// Finds the traces and measures those that may have changed.
    pub(super) fn look(&mut self) -> io::Result<()> {
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let Some(number) = entry.file_name().to_str().and_then(number) else {
                continue;
            };
            self.last_number = self.last_number.max(number);
            let path = entry.path();
            let known = self.traces.remove(&path);
            let trace = match known {
                Some(trace) if trace.state == State::Complete => trace,
                _ => measured(&path, self.keeps_journals),
            };
            found.insert(path, trace);
        }
        self.traces = found;
        Ok(())
    }

    /// Returns the path of a new trace.
    pub(super) fn next_path(&mut self) -> PathBuf {
        self.last_number += 1;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let name = name_of(self.last_number, now.unwrap_or_default().as_secs());
        self.path.join(name)
    }

    /// The disk space of all traces.
    pub(super) fn bytes(&self) -> u64 {
        self.traces.values().map(|trace| trace.bytes).sum()
    }

    /// The disk space of one trace.
    pub(super) fn bytes_of(&self, path: &Path) -> u64 {
        self.traces.get(path).map_or(0, |trace| trace.bytes)
    }

    /// Paths of the traces in this state, the oldest first.
    pub(super) fn in_state(&self, state: State) -> Vec<PathBuf> {
        let traces = self.traces.iter().filter(|(_, trace)| trace.state == state);
        traces.map(|(path, _)| path.clone()).collect()
    }

    /// A trace that is completed as far as possible.
    pub(super) fn complete(&mut self, path: &Path) {
        if let Some(trace) = self.traces.get_mut(path) {
            let (bytes, modified) = disk_space(path);
            *trace = Trace {
                bytes,
                state: State::Complete,
                modified,
            };
        }
    }

    /// Removes the oldest traces until the others fit, with `free_bytes` to spare. Returns whether they fit. Traces that are
    /// `busy` or live stay.
    pub(super) fn trim(
        &mut self,
        keep: Limit,
        free_bytes: u64,
        busy: &[PathBuf],
    ) -> io::Result<bool> {
        let most_bytes = keep.bytes.map(|bytes| bytes.saturating_sub(free_bytes));
        let removable =
            |(path, trace): &(&PathBuf, &Trace)| trace.state != State::Live && !busy.contains(path);
        let removable: Vec<PathBuf> = self
            .traces
            .iter()
            .filter(removable)
            .map(|(path, _)| path.clone())
            .collect();
        for path in removable {
            let is_old = keep.time.is_some_and(|time| self.age_of(&path) > time);
            if !is_old && most_bytes.is_none_or(|most| self.bytes() <= most) {
                continue;
            }
            self.remove(&path)?;
        }
        Ok(most_bytes.is_none_or(|most| self.bytes() <= most))
    }

    /// Removes a trace; at every moment it is either there or not.
    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let removed = self.path.join(format!(".{name}{REMOVED}"));
        fs::rename(path, &removed)?;
        remove_tree(&removed)?;
        self.traces.remove(path);
        log::info!("removed {}", path.display());
        Ok(())
    }

    fn age_of(&self, path: &Path) -> Duration {
        let modified = self.traces.get(path).map(|trace| trace.modified);
        // A clock that was set back makes nothing old.
        modified
            .and_then(|time| time.elapsed().ok())
            .unwrap_or_default()
    }
}

/// Returns the number of a trace's name.
fn number(name: &str) -> Option<u64> {
    let (number, start) = name.strip_suffix(".pqt")?.split_once('-')?;
    let is_start = start.len() == 16
        && start.bytes().enumerate().all(|(at, byte)| match at {
            8 => byte == b'T',
            15 => byte == b'Z',
            _ => byte.is_ascii_digit(),
        });
    let is_number = number.len() >= 6 && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_start && is_number).then(|| number.parse().ok())?
}

fn name_of(number: u64, seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{number:06}-{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z.pqt")
}

/// Returns year, month and day of a number of days since 1970, counted in years that begin on 1 March.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // since 0000-03-01
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

/// Whether no process has locked the journal: the recorder has ended, or has completed the trace.
fn is_released(path: &Path) -> bool {
    match File::open(path.join(JOURNAL)) {
        Ok(journal) => journal.try_lock().is_ok(),
        Err(_) => true,
    }
}

fn measured(path: &Path, keeps_journals: bool) -> Trace {
    // Before the bytes: what a recorder writes until it ends is counted.
    let is_released = is_released(path);
    let (bytes, modified) = disk_space(path);
    let has_ended = || keeps_journals || !path.join(JOURNAL).exists();
    let state = match is_released {
        false => State::Live,
        true if look_into(path) == Found::Whole && has_ended() => State::Complete,
        true => State::Abandoned,
    };
    Trace {
        bytes,
        state,
        modified,
    }
}

/// Returns the disk space of a tree and the last change in it. What disappears meanwhile counts no more.
fn disk_space(path: &Path) -> (u64, SystemTime) {
    let Ok(metadata) = path.symlink_metadata() else {
        return (0, UNIX_EPOCH);
    };
    let own = metadata.len().max(metadata.blocks() * 512);
    let mut total = (own, metadata.modified().unwrap_or(UNIX_EPOCH));
    if metadata.is_dir() {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            let (bytes, modified) = disk_space(&entry.path());
            total = (total.0 + bytes, total.1.max(modified));
        }
    }
    total
}

fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_number_and_a_start() {
        let names = [
            (0, "000001-19700101T000000Z.pqt"),
            (951_782_400, "000001-20000229T000000Z.pqt"),
            (1_795_613_999, "000001-20261125T133959Z.pqt"),
            (4_107_542_399, "000001-21000228T235959Z.pqt"),
        ];
        for (seconds, name) in names {
            assert_eq!(name_of(1, seconds), name);
            assert_eq!(number(name), Some(1));
        }
        assert_eq!(number("1000000-20261125T133959Z.pqt"), Some(1_000_000));
        for other in [
            "trace.pqt",
            "000001-20261125.pqt",
            "1-20261125T133959Z.pqt",
            "000001",
        ] {
            assert_eq!(number(other), None, "{other}");
        }
    }

    /// A trace that is complete, as far as the ring is concerned.
    fn complete(bytes: u64) -> Trace {
        Trace {
            bytes,
            state: State::Complete,
            modified: SystemTime::now(),
        }
    }

    #[test]
    fn oldest_traces_are_removed_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("ring");
        let mut folder = Folder::open(&path, false).unwrap();
        assert!(Folder::open(&path, false).is_err(), "locked");
        fs::write(path.join("notes.txt"), "mine").unwrap();
        let paths: Vec<PathBuf> = (0..4).map(|_| folder.next_path()).collect();
        for path in &paths {
            fs::create_dir(path).unwrap();
            folder.traces.insert(path.clone(), complete(100));
        }
        let keep = Limit {
            time: None,
            bytes: Some(350),
        };
        assert!(folder.trim(keep, 100, &[]).unwrap());
        assert_eq!(folder.in_state(State::Complete), paths[2..]);
        assert!(!paths[1].exists() && paths[2].exists() && path.join("notes.txt").exists());
        // A trace that is being recorded is never removed.
        folder.traces.get_mut(&paths[3]).unwrap().state = State::Live;
        folder.traces.get_mut(&paths[3]).unwrap().bytes = 400;
        assert!(!folder.trim(keep, 100, &[]).unwrap());
        assert!(paths[3].exists() && !paths[2].exists());
        drop(folder);
        fs::rename(&paths[3], path.join(format!(".{}.removed", name_of(4, 0)))).unwrap();
        let mut folder = Folder::open(&path, false).unwrap();
        assert_eq!(
            fs::read_dir(&path).unwrap().count(),
            1,
            "a removal was completed"
        );
        assert!(folder.next_path().to_string_lossy().contains("/000001-"));
    }
}
