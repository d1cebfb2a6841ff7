//! Checks whether a file without a recorded build ID is the mapped one, by its inode and age.
//!
//! ```text
//! recorded: device 254:0, inode 131342, first mapped at 12:00:07      the file at the path has
//!     inode 131342, born 11:58, changed 11:58                         the same: its names are right
//!     inode 131342, born 12:05                                        a later file: the inode was reused
//!     inode 140001                                                    another file has replaced it
//! recorded: the path alone, the recording began at 12:00:00
//!     last changed at 11:58                                           used, but unverified
//!     last changed at 12:01                                           not used
//! ```
//! A wrong name looks right, a missing one does not: a file must be proven or at least plausible.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::{SystemTime, UNIX_EPOCH};

use perfquet_events::event::Mapping;

use crate::store::Facts;

/// Host and time of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// Host name.
    pub host: Option<String>,
    /// Nanoseconds since 1970 at time 0 of the trace's clock.
    pub wall_offset: Option<i64>,
    /// Whether the offset was estimated from the age of the recording's file, and may be too large.
    pub is_estimated: bool,
    /// First time of the recording, on its own clock.
    pub began: Option<i64>,
}

/// A mapped file, as the kernel recorded it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileIdentity {
    /// Major and minor number of its device.
    pub device: (u32, u32),
    /// Inode.
    pub inode: u64,
}

impl FileIdentity {
    /// Whether an open file is this one. On overlayfs and btrfs, stat reports devices without a major number, unlike mappings.
    pub fn is_of(self, found: &Metadata) -> bool {
        let device = (libc::major(found.dev()), libc::minor(found.dev()));
        found.ino() == self.inode && (device == self.device || device.0 == 0)
    }

    /// The file identity in a mapping record.
    pub(crate) fn of(mapping: &Mapping<'_>) -> Option<FileIdentity> {
        Some(FileIdentity {
            device: mapping.device?,
            inode: mapping.inode.filter(|&inode| inode != 0)?,
        })
    }
}

/// Time of a file's first mapping, on the clock of the trace; `None` before the recording began.
pub type FirstMapped = Option<i64>;

/// Result of comparing a file with the recorded one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Likeness {
    /// The same file.
    Same,
    /// No evidence against it.
    Plausible,
    /// Another file, or possibly another; the reason, as part of a sentence.
    Other(String),
}

impl Origin {
    /// Origin from the facts in a trace's manifest; `first` is the first time in it.
    pub fn of_facts(facts: &Facts, first: Option<i64>) -> Origin {
        Origin {
            host: facts.host.clone(),
            wall_offset: facts.wall_offset,
            is_estimated: false,
            began: first,
        }
    }

    /// Estimates the time of day from the last change of the recording's file, which is at its end or later.
    pub fn estimate(&mut self, written: SystemTime, last: i64) {
        let written = written.duration_since(UNIX_EPOCH).ok();
        let written = written.and_then(|since| i64::try_from(since.as_nanos()).ok());
        self.wall_offset = written.and_then(|written| written.checked_sub(last));
        self.is_estimated = true;
    }

    /// Whether another host recorded.
    fn is_foreign(&self) -> bool {
        self.host.as_ref().is_some_and(|host| {
            let here = std::fs::read_to_string("/proc/sys/kernel/hostname");
            here.is_ok_and(|here| here.trim_end() != host)
        })
    }

    /// A time of the trace, or that of its beginning, in nanoseconds since 1970.
    fn wall(&self, time: FirstMapped) -> Option<i64> {
        self.wall_offset?.checked_add(time.or(self.began)?)
    }

    /// Compares a file at the recorded path with the recorded file.
    pub(super) fn judge(
        &self,
        found: &Metadata,
        recorded: Option<FileIdentity>,
        first_mapped: FirstMapped,
    ) -> Likeness {
        if self.is_foreign() {
            return Likeness::Other(
                "it has no build ID to compare, and was recorded on another host".into(),
            );
        }
        let changed = nanoseconds(found.mtime(), found.mtime_nsec());
        if let Some(recorded) = recorded {
            let device = (libc::major(found.dev()), libc::minor(found.dev()));
            let is_same_inode = found.ino() == recorded.inode;
            // On overlayfs and btrfs, stat reports devices without a major number, unlike mappings.
            let is_same_device = device == recorded.device;
            let may_differ = device.0 == 0;
            if is_same_inode && (is_same_device || may_differ) {
                return self.same_inode(found, changed, first_mapped);
            }
            if !may_differ || is_same_device {
                return Likeness::Other(format!(
                    "another file has replaced it (inode {}, recorded {})",
                    found.ino(),
                    recorded.inode
                ));
            }
        }
        // Renaming a file keeps its mtime, but updates its ctime.
        let placed = changed.max(nanoseconds(found.ctime(), found.ctime_nsec()));
        match self.wall(None) {
            None => {
                Likeness::Other("no build ID was recorded, nor the time of the recording".into())
            }
            Some(began) if placed > began => {
                Likeness::Other("no build ID was recorded, and it was changed after that".into())
            }
            Some(_) => Likeness::Plausible,
        }
    }

    /// The reason why a list of generated code in a temporary directory of this host is not that of the recorded
    /// process, whose first generated code was mapped at that time; `None` if it may be. Lists outlive their process,
    /// and PIDs are reused.
    pub(super) fn is_other_list(
        &self,
        found: &Metadata,
        first_mapped: FirstMapped,
    ) -> Option<&'static str> {
        /// A list may be written while memory is filled that is made executable only later.
        const SLACK: i64 = 1_000_000_000;
        if self.is_foreign() {
            return Some("recorded on another host");
        }
        let mapped = self.wall(Some(first_mapped?))?;
        let written = nanoseconds(found.mtime(), found.mtime_nsec());
        (!self.is_estimated && written < mapped.saturating_sub(SLACK))
            .then_some("it is older than the process")
    }

    /// Inodes are reused: the file must be older than its first mapping, and its contents too.
    fn same_inode(&self, found: &Metadata, changed: i64, first_mapped: FirstMapped) -> Likeness {
        let Some(mapped) = self.wall(first_mapped) else {
            return Likeness::Plausible;
        };
        let born = found.created().ok();
        let born = born.and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        let born = born.and_then(|since| i64::try_from(since.as_nanos()).ok());
        let born = born.unwrap_or_else(|| nanoseconds(found.ctime(), found.ctime_nsec()));
        if born > mapped {
            return Likeness::Other("a file created later has replaced it".into());
        }
        if changed > mapped {
            return Likeness::Other("its contents were changed after it was mapped".into());
        }
        match self.is_estimated {
            true => Likeness::Plausible,
            false => Likeness::Same,
        }
    }
}

fn nanoseconds(seconds: i64, rest: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}
