//! JIT code in the address maps: the code of a jitdump is mapped at its creation time.
//!
//! ```text
//! 4711 maps /tmp/jit-4711.dump               the dump is opened and followed
//! its LOAD: time 50, 0x7f2c1000, 420 bytes   from time 50, these addresses map the dump's file, at the code's offset
//! ```
//! The runtime's own mappings of that memory have less information and do not replace the dump's, as in `perf inject
//! --jit`. A dump with another clock than the trace's names code by address alone, and so do records that reached the
//! file too late.

use perfquet_events::event::{Mapping, Space};

use super::life::Life;
use crate::symbols::{Change, Follower, Options, is_dump};

/// PROT_EXEC
const EXECUTABLE: u32 = 4;
/// Maximum number of open dumps: each holds a file.
const DUMPS: usize = 256;

/// The dumps of one input.
#[derive(Default)]
pub(crate) struct Generated {
    /// The trace's clock.
    pub(crate) clock: String,
    dumps: Vec<Dump>,
}

struct Dump {
    pid: i32,
    path: String,
    follower: Option<Follower>,
}

impl Generated {
    /// Checks whether a mapping is that of a jitdump. Returns the reason if it cannot be followed.
    pub(crate) fn mapped(&mut self, mapping: &Mapping<'_>, options: &Options) -> Option<String> {
        let path = str::from_utf8(mapping.path)
            .ok()
            .filter(|path| is_dump(path))?;
        let is_known = |dump: &Dump| dump.pid == mapping.pid && dump.path == path;
        if mapping.pid < 0 || self.dumps.iter().any(is_known) {
            return None;
        }
        let follower = match Follower::open(path, options) {
            _ if self.dumps.len() >= DUMPS => Err("too many jitdumps".to_owned()),
            Ok(_) if self.clock != "monotonic" => {
                Err("the trace does not use the clock of its times (monotonic)".to_owned())
            }
            opened => opened,
        };
        let (follower, problem) = match follower {
            Ok(follower) => (Some(follower), None),
            Err(reason) => (
                None,
                Some(format!(
                    "{path}: JIT code of different times is not distinguished: {reason}"
                )),
            ),
        };
        self.dumps.push(Dump {
            pid: mapping.pid,
            path: path.to_owned(),
            follower,
        });
        problem
    }

    /// Whether any dump is followed.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.dumps.is_empty()
    }

    /// Maps the code created up to a time.
    pub(crate) fn advance(&mut self, time: i64, life: &mut Life) {
        let Ok(time) = u64::try_from(time) else {
            return;
        };
        for dump in &mut self.dumps {
            let Some(follower) = &mut dump.follower else {
                continue;
            };
            while let Some(change) = follower.next_until(time) {
                let mapping = mapping_of(dump.pid, &dump.path, change);
                life.mappings.map(&mapping, &mut life.modules);
            }
        }
    }

    /// Whether a mapping without a file covers code of a dump.
    pub(crate) fn covers(&self, mapping: &Mapping<'_>, life: &Life) -> bool {
        let mut own = self.dumps.iter().filter(|dump| dump.pid == mapping.pid);
        let has_file = mapping.path.starts_with(b"/") && !mapping.path.starts_with(b"//");
        if own.next().is_none() || has_file {
            return false;
        }
        let map = life.mappings.of(Some(mapping.pid), Space::User);
        let end = mapping.start.saturating_add(mapping.length);
        map.overlapping(mapping.start, end).any(|range| {
            let path = str::from_utf8(life.modules.path(range.module));
            path.is_ok_and(is_dump)
        })
    }

    /// PIDs and their dumps.
    pub(crate) fn dumps(&self) -> impl Iterator<Item = (i32, &str)> {
        self.dumps.iter().map(|dump| (dump.pid, dump.path.as_str()))
    }
}

fn mapping_of(pid: i32, path: &str, change: Change) -> Mapping<'_> {
    Mapping {
        time: i64::try_from(change.time).ok(),
        pid,
        tid: pid,
        space: Space::User,
        start: change.address,
        length: change.bytes,
        file_offset: change.offset,
        path: path.as_bytes(),
        build_id: None,
        device: None,
        inode: None,
        protection: Some(EXECUTABLE),
        flags: None,
    }
}
