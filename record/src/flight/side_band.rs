//! Records of threads and mappings, which must be kept longer than the events that they name.
//!
//! Forks, names and mappings are kept as received. Records of a process are dropped once it ended before the oldest
//! kept event, unless a living process was forked from it and may have inherited its mappings.

use std::collections::{HashMap, HashSet};

use crate::journal::record::{self, Head, kind, misc};
use crate::sys::procfs;

/// Minimum size before records are dropped. Dropping scans everything, so it is done when the size has doubled since
/// the last time.
const LOOK_AT_BYTES: usize = 4 << 20;

/// The records, in the order in which they were drained.
#[derive(Default)]
pub(super) struct SideBand {
    bytes: Vec<u8>,
    /// Size after the last scan.
    left_bytes: usize,
}

impl SideBand {
    /// Adds bytes that are whole records when the pass over the rings is over.
    pub(super) fn add(&mut self, records: &[u8]) {
        self.bytes.extend_from_slice(records);
    }

    /// Returns all records.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Drops the records of processes that ended before this time, if there are enough of them. Returns whether it
    /// scanned.
    pub(super) fn forget_before(&mut self, horizon: u64) -> bool {
        if self.bytes.len() < LOOK_AT_BYTES.max(2 * self.left_bytes) {
            return false;
        }
        self.bytes = without_dead(&self.bytes, horizon, procfs::is_process_alive);
        self.left_bytes = self.bytes.len();
        true
    }
}

/// The records of all but the processes that ended before `horizon`.
fn without_dead(bytes: &[u8], horizon: u64, is_alive: impl Fn(i32) -> bool) -> Vec<u8> {
    let mut ends: HashMap<i32, u64> = HashMap::new();
    for record in record::walk(bytes) {
        if record.kind == kind::EXIT && record.pid == record.tid && record.time < horizon {
            ends.insert(record.pid, record.time);
        }
    }
    // A leader may end before its other threads.
    ends.retain(|&pid, _| !is_alive(pid));
    // A PID may have been reused: a record after the end belongs to another process.
    let is_dead = |ends: &HashMap<i32, u64>, record: &Head<'_>| {
        ends.get(&record.pid).is_some_and(|end| record.time <= *end)
    };
    while let Some(parents) = needed(bytes, &ends, is_dead) {
        ends.retain(|pid, _| !parents.contains(pid));
    }
    let mut left = Vec::with_capacity(bytes.len() / 2);
    for record in record::walk(bytes) {
        if !record.is_of_process() || !is_dead(&ends, &record) {
            left.extend_from_slice(record.bytes);
        }
    }
    left
}

/// Returns the processes about to be dropped whose living children run inherited code.
fn needed(
    bytes: &[u8],
    ends: &HashMap<i32, u64>,
    is_dead: impl Fn(&HashMap<i32, u64>, &Head<'_>) -> bool,
) -> Option<HashSet<i32>> {
    let mut parents: HashMap<i32, i32> = HashMap::new();
    for record in record::walk(bytes) {
        if !record.is_of_process() || is_dead(ends, &record) {
            continue;
        }
        match record.kind {
            kind::FORK if record.pid != record.parent => {
                parents.insert(record.pid, record.parent);
            }
            kind::COMM if record.misc & misc::COMM_EXEC != 0 => {
                parents.remove(&record.pid);
            }
            _ => {}
        }
    }
    let needed: HashSet<i32> = parents
        .into_values()
        .filter(|pid| ends.contains_key(pid))
        .collect();
    (!needed.is_empty()).then_some(needed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::record::Records;

    const SHELL: i32 = 10;
    const CHILD: i32 = 11;

    fn fork(records: &mut Records, pid: i32, parent: i32, time: u64) {
        records.add(kind::FORK, 0, |body| {
            for number in [pid, parent, pid, parent] {
                body.i32(number);
            }
            body.u64(time);
            body.trailer(pid, pid, time, 0, 0);
        });
    }

    fn exit(records: &mut Records, pid: i32, time: u64) {
        records.add(kind::EXIT, 0, |body| {
            for number in [pid, 1, pid, 1] {
                body.i32(number);
            }
            body.u64(time);
            body.trailer(pid, pid, time, 0, 0);
        });
    }

    fn comm(records: &mut Records, pid: i32, time: u64, bits: u16) {
        records.add(kind::COMM, bits, |body| {
            body.i32(pid);
            body.i32(pid);
            body.text(b"name");
            body.trailer(pid, pid, time, 0, 0);
        });
    }

    fn left(records: Records, horizon: u64) -> Vec<(u32, i32, u64)> {
        let left = without_dead(&records.into_bytes(), horizon, |_| false);
        record::walk(&left)
            .map(|head| (head.kind, head.pid, head.time))
            .collect()
    }

    #[test]
    fn ended_process_is_dropped() {
        let mut records = Records::new();
        comm(&mut records, SHELL, 0, 0);
        fork(&mut records, CHILD, SHELL, 5);
        comm(&mut records, CHILD, 6, misc::COMM_EXEC);
        exit(&mut records, CHILD, 8);
        // The PID is reused.
        comm(&mut records, CHILD, 9, 0);
        assert_eq!(
            left(records, 100),
            [(kind::COMM, SHELL, 0), (kind::COMM, CHILD, 9)]
        );
    }

    #[test]
    fn process_that_ended_recently_is_kept() {
        let mut records = Records::new();
        comm(&mut records, CHILD, 6, 0);
        exit(&mut records, CHILD, 8);
        assert_eq!(left(records, 8).len(), 2);
    }

    #[test]
    fn parent_is_kept_while_its_child_runs_inherited_code() {
        let mut records = Records::new();
        comm(&mut records, SHELL, 0, 0);
        fork(&mut records, CHILD, SHELL, 5);
        exit(&mut records, SHELL, 7);
        assert_eq!(left(records, 100).len(), 3);

        let mut records = Records::new();
        comm(&mut records, SHELL, 0, 0);
        fork(&mut records, CHILD, SHELL, 5);
        comm(&mut records, CHILD, 6, misc::COMM_EXEC);
        exit(&mut records, SHELL, 7);
        assert_eq!(
            left(records, 100),
            [(kind::FORK, CHILD, 5), (kind::COMM, CHILD, 6)]
        );
    }
}
