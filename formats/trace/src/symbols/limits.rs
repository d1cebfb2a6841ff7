//! All limits of what other users' files and processes can cost.
//!
//! ```text
//! /tmp/a.so   a .gnu_debuglink to a sparse file of 4 TB      not read: 4 TB on 0 blocks
//! PID 4711    a perf map of 250 MB, one byte per name        its first million functions
//! ```
//! A recorder of the system runs as root and looks into the files and the memory of every process. Each thing that it reads has its
//! limit here, per file or process and in all, and what happens beyond it. The table in docs/limits.md is generated from this
//! list.

use std::fmt;

/// The unit of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// A number of things.
    Count,
    /// Milliseconds.
    Milliseconds,
    /// Percent.
    Percent,
}

/// A limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// What is limited.
    pub what: &'static str,
    /// The largest value.
    pub value: u64,
    /// Its unit.
    pub unit: Unit,
    /// What happens beyond it.
    pub beyond: &'static str,
}

macro_rules! limits {
    ($($(#[doc = $what:literal])+ $name:ident = $value:expr, $unit:ident, $beyond:literal;)+) => {
        $($(#[doc = $what])+ pub const $name: u64 = $value;)+

        /// All limits, in the order of the documentation.
        pub const LIMITS: &[Limit] = &[$(Limit {
            what: concat!($($what),+),
            value: $name,
            unit: Unit::$unit,
            beyond: $beyond,
        }),+];
    };
}

limits! {
    /// Length of a program, library or debug file
    FILE_BYTES_MAX = 16 << 30, Bytes, "the file is not read";
    /// Length of such a file, in multiples of its size on the disk
    SPARSE_RATIO_MAX = 16, Count, "the file is not read, unless it is shorter than 64 MiB";
    /// Sections or segments of such a file
    SECTIONS_MAX = 1 << 18, Count, "the file is not read";
    /// Bytes of notes with its build ID
    NOTE_BYTES_MAX = 1 << 20, Bytes, "the rest is not read";
    /// Symbols of a file
    SYMBOLS_MAX = 2 << 20, Count, "the rest is not read";
    /// Length of a function name
    NAME_BYTES_MAX = 16 << 10, Bytes, "the name is cut, and ends in its length";
    /// Length of a debug file that has a checksum instead of a build ID
    CHECKSUM_BYTES_MAX = 1 << 30, Bytes, "the file is not used";
    /// Total length of such files in a trace
    CHECKSUMS_BYTES_MAX = 4 << 30, Bytes, "later ones are not used";
    /// Call frame information of a file
    FRAME_BYTES_MAX = 48 << 20, Bytes, "the rest is not read; stacks end there";
    /// Code of a file without call frame information whose instructions are read
    INSTRUCTION_BYTES_MAX = 4 << 20, Bytes, "stacks end in the rest";
    /// Total call frame information in memory
    FRAMES_BYTES_MAX = 96 << 20, Bytes, "all of it is released, and read again when needed";
    /// Call frame information read for one process
    PROCESS_FRAME_BYTES_MAX = 128 << 20, Bytes, "its stacks end in its other files";
    /// Call frame information examined for frame pointers while recording
    CHAIN_BYTES_MAX = 8 << 20, Bytes, "frame pointers of the file are not followed outside of it";
    /// Call frame information examined for the start of a thread while recording
    ROOT_FRAME_BYTES_MAX = 256 << 10, Bytes, "stacks by frame pointers that end in it, but not at its entry point, are marked as cut";
    /// Files opened to unwind stacks
    UNWOUND_FILES_MAX = 2048, Count, "stacks end in other files";
    /// Mapped files held open until the recording ends
    HELD_FILES_MAX = 1024, Count, "others must still exist at the end to give names";
    /// Size of those that are deleted or in memory
    HELD_BYTES_MAX = 256 << 20, Bytes, "the largest are closed";
    /// Mapped files whose build ID is read
    IDENTIFIED_FILES_MAX = 1 << 16, Count, "others are identified by inode";
    /// Mappings that wait for a build ID
    WAITING_MAPPINGS_MAX = 4096, Count, "others are identified by inode";
    /// Time that a mapping waits for a build ID
    WAITING_MS_MAX = 250, Milliseconds, "the mapping is identified by inode";
    /// Length of a perf map
    MAP_BYTES_MAX = 256 << 20, Bytes, "the rest is not read";
    /// Functions of a perf map
    MAP_FUNCTIONS_MAX = 1 << 20, Count, "the rest is not read";
    /// Total length of the perf maps of a trace
    MAPS_BYTES_MAX = 1 << 30, Bytes, "functions of other processes have no names";
    /// Length of a Python, Ruby or JavaScript function or file name, in characters (Ruby: bytes)
    INTERPRETED_TEXT_MAX = 4096, Count, "the interpreter's frame remains";
    /// Line table of a Python or Ruby function
    INTERPRETED_LINES_BYTES_MAX = 128 << 10, Bytes, "the interpreter's frame remains";
    /// Text of a script of JavaScript in which lines are counted, in characters
    SCRIPT_CHARACTERS_MAX = 1 << 24, Count, "its functions have no lines";
    /// Python, Ruby and JavaScript functions of a process in memory
    INTERPRETED_PROCESS_BYTES_MAX = 16 << 20, Bytes, "interpreter frames remain";
    /// Python, Ruby and JavaScript functions of all processes in memory
    INTERPRETED_BYTES_MAX = 48 << 20, Bytes, "interpreter frames remain";
    /// Python, Ruby and JavaScript functions and lines in a trace, in bytes of their names
    INTERPRETED_NAMES_BYTES_MAX = 32 << 20, Bytes, "interpreter frames remain";
    /// CPU time for the Python, Ruby and JavaScript frames of a process
    INTERPRETED_PROCESS_PERCENT_MAX = 2, Percent, "interpreter frames remain until it is below";
    /// CPU time for the Python, Ruby and JavaScript frames of all processes
    INTERPRETED_PERCENT_MAX = 10, Percent, "interpreter frames remain until it is below";
    /// Records in memory that wait for their user stacks
    WAITING_BYTES_MAX = 32 << 20, Bytes, "later ones stay in the rings; before that, stacks are copied no more, and are cut where they cannot be walked";
    /// JVMs whose code cache is read for unwind rules
    CODE_CACHES_MAX = 64, Count, "stacks of the others end in compiled code";
    /// Unwind rules of a JVM's code cache
    CODE_CACHE_RULES_MAX = 1 << 17, Count, "stacks end in other code";
    /// CPU time for reading code caches
    CODE_CACHES_PERCENT_MAX = 10, Percent, "newly compiled code has no rules until it is below";
    /// Code kept of a function
    KEPT_FUNCTION_BYTES_MAX = 48 << 10, Bytes, "the rest is not kept";
    /// Code kept of a process
    KEPT_PROCESS_BYTES_MAX = 8 << 20, Bytes, "later functions and versions are not kept";
    /// Code kept in a trace
    KEPT_BYTES_MAX = 64 << 20, Bytes, "later functions and versions are not kept";
    /// Sampled instructions whose code is looked for
    KEPT_PLACES_MAX = 1 << 17, Count, "functions of later ones are not kept";
    /// Processes whose memory is held open for their code
    KEPT_PROCESSES_MAX = 256, Count, "those held so far are closed, and opened again when needed";
    /// CPU time for finding and reading code
    KEPT_PERCENT_MAX = 5, Percent, "later functions are read when it is below, or at the end";
    /// Time for keeping code when the recording ends
    KEPT_LAST_MS_MAX = 3000, Milliseconds, "the rest is not kept";
    /// Mappings of a process that existed at the start, as text
    MAPPINGS_BYTES_MAX = 16 << 20, Bytes, "addresses in the others have no module";
    /// Length of a command line
    CMDLINE_BYTES_MAX = 4096, Bytes, "the rest is not read";
    /// Open files of a process
    PROCESS_FILES_MAX = 4096, Count, "paths of the other descriptors are unknown";
    /// Total length of the paths of open files in a recording
    OPEN_FILES_BYTES_MAX = 64 << 20, Bytes, "paths of descriptors opened before are unknown in later processes";
    /// Processes that wait until their command lines are read
    WAITING_PROCESSES_MAX = 4096, Count, "others have no command line";
    /// CPU time for command lines, cgroups and open files of new programs
    PROCESSES_PERCENT_MAX = 2, Percent, "later ones have none until it is below";
    /// Time for the answer of a runtime that is asked for a perf map
    ANSWER_MS_MAX = 1500, Milliseconds, "the process is not asked again";
    /// Time for the last requests, when the recording ends
    LAST_REQUESTS_MS_MAX = 1500, Milliseconds, "maps may lack the functions compiled last";
    /// Time for the last request to one process
    LAST_REQUEST_MS_MAX = 500, Milliseconds, "its map may lack the functions compiled last";
    /// Running processes that are known to have started a runtime during the recording
    SIGHTED_PROCESSES_MAX = 4096, Count, "no hint on others that end before a request";
    /// Roots of containers held open
    ROOTS_MAX = 256, Count, "files of other containers are not found";
    /// Length of a file from a debuginfod server
    DEBUGINFOD_FILE_BYTES_MAX = 2 << 30, Bytes, "the transfer is ended";
    /// Files that debuginfod servers are asked for, per trace
    DEBUGINFOD_FILES_MAX = 1024, Count, "functions of other files have no names";
    /// Time of all transfers from debuginfod servers
    DEBUGINFOD_MS_MAX = 1_200_000, Milliseconds, "functions of other files have no names";
    /// Size of a trace fetched from another host, relative to the free space here
    FETCHED_PERCENT_MAX = 90, Percent, "the trace stays on the other host";
}

/// A shorter sparse file is read.
pub(super) const SPARSE_BYTES_MIN: u64 = 64 << 20;

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value;
        match self.unit {
            Unit::Bytes if value.is_multiple_of(1 << 30) => write!(f, "{} GiB", value >> 30),
            Unit::Bytes if value.is_multiple_of(1 << 20) => write!(f, "{} MiB", value >> 20),
            Unit::Bytes => write!(f, "{} KiB", value >> 10),
            Unit::Count => f.write_str(&crate::count::grouped(value)),
            Unit::Milliseconds if value.is_multiple_of(60_000) => {
                write!(f, "{} minutes", value / 60_000)
            }
            Unit::Milliseconds => write!(f, "{value} ms"),
            Unit::Percent => write!(f, "{value}%"),
        }
    }
}

/// The table in docs/limits.md.
pub fn table() -> String {
    let mut text = "| what | limit | beyond it |\n| --- | --- | --- |\n".to_owned();
    for limit in LIMITS {
        let Limit { what, beyond, .. } = limit;
        text += &format!("| {} | {limit} | {beyond} |\n", what.trim());
    }
    text
}

/// Whether the length of a file is out of proportion to its size on the disk: reading it would cost much, and writing it nothing.
pub(super) fn is_hollow(bytes: u64, on_disk: u64) -> bool {
    bytes > FILE_BYTES_MAX || bytes > SPARSE_BYTES_MIN && bytes / SPARSE_RATIO_MAX > on_disk
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_has_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/limits.md");
        let text = std::fs::read_to_string(path).unwrap();
        assert!(
            text.contains(&table()),
            "expected in docs/limits.md:\n{}",
            table()
        );
    }

    #[test]
    fn sparse_files_are_hollow() {
        assert!(is_hollow(4 << 40, 0));
        assert!(is_hollow(1 << 30, 1 << 20));
        assert!(!is_hollow(1 << 30, 300 << 20));
        assert!(!is_hollow(1 << 20, 0));
        assert!(is_hollow(FILE_BYTES_MAX + 1, FILE_BYTES_MAX));
    }
}
