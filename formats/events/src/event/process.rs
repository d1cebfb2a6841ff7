//! Processes beyond their creation and end: what they run, where, and with which files.

/// The state of a process at a time, as far as it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessState<'a> {
    /// Time at which it was looked at.
    pub time: Option<i64>,
    /// Process ID.
    pub pid: i32,
    /// Command line, its words separated by spaces.
    pub cmdline: Option<&'a [u8]>,
    /// Path of the cgroup.
    pub cgroup: Option<&'a [u8]>,
    /// Exit status, as a shell reports it.
    pub exit_code: Option<i32>,
}

/// A file that was open in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFile<'a> {
    /// Time at which the process was looked at.
    pub time: Option<i64>,
    /// Process ID.
    pub pid: i32,
    /// File descriptor.
    pub fd: i32,
    /// Path, or the kernel's name of what is no file (`socket:[4711]`).
    pub path: &'a [u8],
}

/// The namespaces of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespaces<'a> {
    /// Thread.
    pub tid: i32,
    /// Its process.
    pub pid: Option<i32>,
    /// Name and inode of each: `("pid", 4026531836)`.
    pub inodes: &'a [(&'a str, u64)],
}

/// A cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cgroup<'a> {
    /// ID, as in [`super::Sample::cgroup`].
    pub id: u64,
    /// Path below the root of cgroups.
    pub path: &'a [u8],
}
