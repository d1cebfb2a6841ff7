//! Leaving our own activity out.
//!
//! A recorder that traces the system calls of the whole system also traces its own writing, which makes
//! more to write. In the kernel, our threads are left out by name where an event is the deed of the thread
//! it fires in. Events about others stay whole: without the switch from us to a thread, that thread would
//! seem to sleep for ever; an interrupt that hits us is not our doing.

use crate::sys::thread::COMM;

/// Systems whose events the running thread causes itself.
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
pub(crate) enum OwnActivity {
    /// All, if we are among those who are recorded.
    Recorded,
    /// All but the events that are our own deeds.
    WithoutOwnActions,
    /// Nothing.
    Excluded,
}

/// The kernel's filter for a tracepoint: the user's, and that it is not us. `COMM` is the name of the
/// running thread; our other threads' numbers are not known yet when the filter is set, and it can be set once.
pub(crate) fn filter(system: &str, users: Option<&str>, scope: OwnActivity) -> Option<String> {
    let is_left_out = match scope {
        OwnActivity::Recorded => false,
        OwnActivity::WithoutOwnActions => is_deed(system),
        OwnActivity::Excluded => true,
    };
    let own = is_left_out.then(|| format!("COMM != \"{COMM}\""));
    match (users, own) {
        (Some(users), Some(own)) => Some(format!("({users}) && {own}")),
        (Some(users), None) => Some(users.to_owned()),
        (None, own) => own,
    }
}

/// Applies to calls and triggers too: calls by the recorder count as its own, even those from an interrupt.
fn is_deed(system: &str) -> bool {
    let group = system.split('_').next().unwrap_or_default();
    ["call", "trigger"].contains(&group) || DEEDS.contains(&system)
}

#[cfg(test)]
mod tests {
    use super::{OwnActivity, filter};

    #[test]
    fn filters() {
        let own = "COMM != \"perfquet-record\"";
        assert_eq!(
            filter("syscalls", None, OwnActivity::WithoutOwnActions).as_deref(),
            Some(own)
        );
        assert_eq!(
            filter(
                "syscalls",
                Some("fd == 1 || fd == 2"),
                OwnActivity::WithoutOwnActions
            ),
            Some(format!("(fd == 1 || fd == 2) && {own}"))
        );
        assert_eq!(
            filter("syscalls", Some("fd == 1"), OwnActivity::Recorded).as_deref(),
            Some("fd == 1")
        );
        assert_eq!(filter("sched", None, OwnActivity::WithoutOwnActions), None);
        assert_eq!(
            filter("sched", None, OwnActivity::Excluded).as_deref(),
            Some(own)
        );
    }
}
