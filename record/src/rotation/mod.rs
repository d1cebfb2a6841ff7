//! `--rotate` and `--keep`: a ring of traces, for a recorder that is left on.
//!
//! ```text
//! perfquet-record -a --rotate 10m --keep 24h,20G -o ring
//! ring/000041-20261125T134000Z.pqt      complete
//! ring/000042-20261125T135000Z.pqt      being recorded
//! ```
//! Each trace is an ordinary recording by a separate recorder, a child of the [`supervisor`], so it has everything that a
//! trace needs: names, mappings, stacks, losses. The next recorder is ready before the last one ends, and begins where that
//! one ends ([`handover`]): each event is in one trace, except that the kernel stamps a hit once per recorder. One whose two times
//! are on both sides of the boundary is in both traces or in neither. [`folder`] holds the directory within its limits, and finds the
//! traces of killed recorders, which are completed. [`publishing`] passes complete traces on to a lake. A recorder whose supervisor was killed completes its trace and ends.

mod children;
mod folder;
mod handover;
mod publishing;
mod recovery;
mod supervisor;

use std::fs::File;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use perfquet_cli::{paths, quantity};
use perfquet_events::event::Selection;
use perfquet_trace::store::JOURNAL;

use crate::failure::{Failure, misuse};
use crate::limit::{Limit, limit};
use crate::sys::procfs;
use crate::target::Family;

pub(crate) use handover::{Beginning, Handover, Started, Tasks};
pub(crate) use publishing::Destination;
pub(crate) use supervisor::{End, Request, run};

/// Smallest size of --keep: a trace has some dozen files, and the next one grows while the oldest is removed.
const LEAST_KEPT_BYTES: u64 = 16 << 20;
/// Part of the size of --keep that a trace may have, and that is reserved for the data written between two checks.
const PARTS: u64 = 8;
/// Default of --backlog.
const DEFAULT_BACKLOG_BYTES: u64 = 8 << 30;

/// Command-line options.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RotationOptions {
    /// Start a new trace in OUT after TIME, SIZE or SIGUSR2 (10m, 1G, or 10m,1G)
    ///
    /// OUT is a directory of traces, numbered and named by their start. A trace begins where the last one ends.
    /// Started again, the recorder completes the traces of a killed one. [default: an eighth of the size of --keep]
    #[arg(long, visible_alias = "switch-output", value_name = "LIMIT", value_parser = limit)]
    rotate: Option<Limit>,
    /// With --rotate: remove the oldest traces beyond TIME or SIZE (24h, 20G, or 24h,20G)
    ///
    /// SIZE limits the disk space of OUT, including the trace being recorded.
    #[arg(long, value_name = "LIMIT", value_parser = limit)]
    keep: Option<Limit>,
    /// With --rotate or --keep: publish each complete trace in the lake at PLACE, a directory or s3://, gs:// or az://
    ///
    /// By perfquet-convert --to lake, and perfquet-query for URLs, which must be installed beside this program or in PATH. They have the
    /// lowest priority. Traces wait while the lake cannot be reached, also until the next start; recording does not wait.
    #[arg(long, value_name = "PLACE", value_parser = paths::written_or_stored())]
    publish: Option<PathBuf>,
    /// With --publish: drop the oldest waiting traces beyond SIZE [default: 8G]
    ///
    /// They stay in OUT. Waiting traces that --keep removes are counted as dropped, too.
    #[arg(long, value_name = "SIZE", value_parser = backlog, requires = "publish")]
    backlog: Option<u64>,
    /// Record one trace of a ring.
    #[arg(long, value_name = "PATH", hide = true)]
    segment: Option<PathBuf>,
    /// Processes that those of the target have started since the ring began.
    #[arg(long, value_name = "PID", value_delimiter = ',', hide = true)]
    family: Vec<i32>,
    /// The trace follows others of the ring.
    #[arg(long, hide = true)]
    follows: bool,
}

fn backlog(text: &str) -> Result<u64, String> {
    quantity::size_bytes(text, 1)
}

/// The limits of a ring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Of one trace.
    rotate: Limit,
    /// Of all.
    keep: Option<Limit>,
}

impl RotationOptions {
    /// Whether the traces of a ring are to be recorded.
    pub(crate) fn are_given(&self) -> bool {
        self.segment.is_none() && (self.rotate.is_some() || self.keep.is_some())
    }

    /// Returns where complete traces go, if anywhere.
    pub(crate) fn destination(&self) -> Option<Destination> {
        let place = self.publish.clone()?;
        Some(Destination {
            place,
            backlog_bytes: self.backlog.unwrap_or(DEFAULT_BACKLOG_BYTES),
        })
    }

    /// Fails for options that need a ring.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self.publish.is_some() && self.segment.is_none() && !self.are_given() {
            true => Err(misuse("--publish: requires --rotate or --keep")
                .hint("add --rotate 10m; a single trace is published by perfquet-convert TRACE --to lake -o PLACE")),
            false => Ok(()),
        }
    }

    /// Returns the path if one trace of a ring is to be recorded.
    pub(crate) fn segment(&self) -> Option<&Path> {
        self.segment.as_deref()
    }

    /// Whether one trace of a ring is to be recorded that follows others: the target existed, and may have ended since.
    pub(crate) fn is_following(&self) -> bool {
        self.segment.is_some() && self.follows
    }

    /// Returns what to record of processes, if one trace of a ring is to be recorded.
    pub(crate) fn family(&self, roots: &[i32]) -> Option<Family> {
        self.segment.as_ref()?;
        Some(Family {
            roots: roots.to_vec(),
            known: self.family.clone(),
            since: procfs::start_ticks(parent_id() as i32)?,
        })
    }

    /// Returns the limits; fails for contradictions.
    pub(crate) fn limits(&self) -> Result<Limits, Failure> {
        let kept_bytes = self.keep.and_then(|keep| keep.bytes);
        if let Some(bytes) = kept_bytes
            && bytes < LEAST_KEPT_BYTES
        {
            return Err(misuse(format!(
                "--keep: expected at least {} MiB",
                LEAST_KEPT_BYTES >> 20
            )));
        }
        let part_bytes = kept_bytes.map(|bytes| bytes / PARTS);
        let mut rotate = self.rotate.unwrap_or(Limit {
            time: None,
            bytes: None,
        });
        if let (Some(bytes), Some(part_bytes)) = (rotate.bytes, part_bytes)
            && bytes > part_bytes
        {
            return Err(
                misuse("--rotate: expected at most an eighth of the size of --keep")
                    .hint(format!("use --rotate {}M", (part_bytes >> 20).max(1))),
            );
        }
        rotate.bytes = rotate.bytes.or(part_bytes);
        if rotate.time.is_none() && rotate.bytes.is_none() {
            return Err(misuse("--keep TIME requires --rotate")
                .hint("add --rotate 10m, or a size to --keep"));
        }
        Ok(Limits {
            rotate,
            keep: self.keep,
        })
    }
}

/// Whether nothing was to be recorded: the recording was over before this trace began. The supervisor removes it.
pub(crate) fn is_unwanted(selection: &Selection) -> bool {
    selection.begin == Some(handover::NEVER)
}

/// Marks a trace as being recorded until the file is closed. The writer of the tables locks the trace itself.
pub(crate) fn lock(path: &Path) -> Result<File> {
    let path = path.join(JOURNAL);
    let locked = File::open(&path).and_then(|folder| folder.lock().map(|()| folder));
    locked.with_context(|| format!("cannot lock {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(rotate: Option<&str>, keep: Option<&str>) -> Result<Limits, Failure> {
        let read = |text: &str| limit(text).unwrap();
        let options = RotationOptions {
            rotate: rotate.map(read),
            keep: keep.map(read),
            ..RotationOptions::default()
        };
        options.limits()
    }

    #[test]
    fn limits_of_a_ring() {
        let both = limits(Some("10m"), Some("24h,16G")).unwrap();
        assert_eq!(both.rotate, limit("10m,2G").unwrap());
        assert_eq!(
            limits(Some("1G"), None).unwrap().rotate,
            limit("1G").unwrap()
        );
        assert_eq!(
            limits(None, Some("1G")).unwrap().rotate,
            limit("128M").unwrap()
        );
        for (rotate, keep) in [(None, "24h"), (Some("1G"), "4G"), (Some("1m"), "1M")] {
            assert!(limits(rotate, Some(keep)).is_err(), "{rotate:?} {keep}");
        }
    }
}
