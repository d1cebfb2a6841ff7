//! Exclusion of the recorder's own activity.
//!
//! A recorder that traces the system calls of the whole system also traces its own writes, which cause more writes. The
//! kernel excludes the recorder's threads by name, for events caused by the running thread. Other events are complete:
//! without the switch from the recorder to another thread, that thread would seem to sleep forever, and an interrupt
//! during the recorder is not caused by it.

use crate::sys::thread::COMM;

/// Bits of `common_flags` of events in interrupts: hard, soft, NMI (include/linux/trace_events.h, `enum trace_flag_type`).
/// A disk completes requests while any thread runs: half a second of completions was missing, while the recorder loaded
/// unwind tables on the CPU of the disk's interrupt.
const IN_INTERRUPT: u8 = 0x08 | 0x10 | 0x40;

/// Systems whose events are caused by the running thread.
const DEEDS: &[&str] = &[
    "block",
    "btrfs",
    "cifs",
    "compaction",
    "erofs",
    "exceptions",
    "ext4",
    "f2fs",
    "filelock",
    "filemap",
    "fs_dax",
    "fuse",
    "huge_memory",
    "io_uring",
    "iomap",
    "jbd2",
    "kmem",
    "lock",
    "maple_tree",
    "mmap",
    "mmap_lock",
    "nfs",
    "nfs4",
    "overlayfs",
    "pagemap",
    "percpu",
    "random",
    "raw_syscalls",
    "readahead",
    "sunrpc",
    "syscalls",
    "vmalloc",
    "vmscan",
    "writeback",
    "xfs",
];

/// How much of the recorder's own activity is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SelfExclusion {
    /// All of it, if the recorder is part of the target.
    Recorded,
    /// All but the events that the recorder causes.
    WithoutOwnActions,
    /// None of it.
    Excluded,
}

/// Returns the kernel filter of a tracepoint: the user's, combined with the exclusion of the recorder. `COMM` is the
/// name of the running thread. Names are used because the TIDs of the recorder's threads are not known when the filter
/// is set, and a filter can be set only once.
pub(crate) fn filter(system: &str, users: Option<&str>, scope: SelfExclusion) -> Option<String> {
    let others = format!("COMM != \"{COMM}\"");
    let own = match scope {
        SelfExclusion::Recorded => None,
        SelfExclusion::WithoutOwnActions if is_call(system) => Some(others),
        SelfExclusion::WithoutOwnActions => DEEDS
            .contains(&system)
            .then(|| format!("({others} || common_flags & {IN_INTERRUPT})")),
        SelfExclusion::Excluded => Some(others),
    };
    match (users, own) {
        (Some(users), Some(own)) => Some(format!("({users}) && {own}")),
        (Some(users), None) => Some(users.to_owned()),
        (None, own) => own,
    }
}

/// Calls by the recorder count as its own, even those from an interrupt; so do triggers.
fn is_call(system: &str) -> bool {
    let group = system.split('_').next().unwrap_or_default();
    ["call", "trigger"].contains(&group)
}

#[cfg(test)]
mod tests {
    use super::{SelfExclusion, filter};

    #[test]
    fn events_in_interrupts_are_nobodys_own() {
        let own = "COMM != \"perfquet-record\"";
        let tasks = "(COMM != \"perfquet-record\" || common_flags & 88)";
        assert_eq!(
            filter("syscalls", None, SelfExclusion::WithoutOwnActions).as_deref(),
            Some(tasks)
        );
        assert_eq!(
            filter("call_7", None, SelfExclusion::WithoutOwnActions).as_deref(),
            Some(own)
        );
        assert_eq!(
            filter(
                "syscalls",
                Some("fd == 1 || fd == 2"),
                SelfExclusion::WithoutOwnActions
            ),
            Some(format!("(fd == 1 || fd == 2) && {tasks}"))
        );
        assert_eq!(
            filter("syscalls", Some("fd == 1"), SelfExclusion::Recorded).as_deref(),
            Some("fd == 1")
        );
        assert_eq!(
            filter("sched", None, SelfExclusion::WithoutOwnActions),
            None
        );
        assert_eq!(
            filter("sched", None, SelfExclusion::Excluded).as_deref(),
            Some(own)
        );
    }
}
