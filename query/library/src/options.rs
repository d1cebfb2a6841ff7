//! Options of a session: memory, threads, views and macros of the user.

use std::num::NonZeroUsize;

use crate::views::definitions::Definitions;

/// Options of a [`Session`](crate::Session). The default is half of the system's memory, all CPUs, and the user's own
/// views and macros.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Memory limit in bytes, of the whole process. Sorts, groups and joins beyond the limit spill to temporary files.
    pub memory: Option<usize>,
    /// Number of threads.
    pub threads: Option<usize>,
    /// Views and macros to define.
    pub definitions: Definitions,
    /// Whether a line on stderr shows the progress of long queries, if stderr is a terminal.
    pub progress: bool,
    /// Whether statements other than queries are errors, such as CREATE and SET.
    pub queries_only: bool,
    /// Whether the queries are those of a report, of which users write only fragments: errors show only the fragments.
    #[doc(hidden)]
    pub is_report: bool,
}

impl Options {
    /// The memory pool for sorts, groups and joins in bytes. The rest is left for allocations outside the pool: the engine
    /// reserves a hash table only after doubling it, and never reserves rows that it decodes or writes. With all of 512M or 1G in the
    /// pool, it used 851 MB and 1.33 GB.
    pub(crate) fn pool_bytes(&self) -> usize {
        let limit = self.memory.unwrap_or_else(default_memory);
        limit.saturating_sub(PROGRAM_BYTES) / 2
    }

    pub(crate) fn threads(&self) -> usize {
        let available = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.threads.unwrap_or_else(available).max(1)
    }
}

/// Memory of the program before the first row: its code and its threads.
const PROGRAM_BYTES: usize = 64 << 20;

/// Returns half of the system's memory in bytes; 2 GiB if it cannot be read.
fn default_memory() -> usize {
    let total_kib = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("MemTotal:"))?;
            line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()
        });
    total_kib.map_or(2 << 30, |kib| kib * 1024 / 2)
}
