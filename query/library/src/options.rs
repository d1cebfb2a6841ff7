//! Resource limits of a query: `--memory`, `--threads`.

use std::num::NonZeroUsize;

use clap::Args;
use perfquet_cli::quantity;

use crate::failure::Misuse;
use crate::library::LibraryOptions;

/// Resource limits of a query.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct Limits {
    /// Memory limit, at least 128M [default: half of the system's memory]
    ///
    /// Sorts, groups and joins beyond the limit spill to temporary files.
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    memory: Option<usize>,
    /// Number of threads [default: number of CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    #[command(flatten)]
    pub(crate) library: LibraryOptions,
}

impl Limits {
    /// Returns the memory pool for sorts, groups and joins in bytes. The rest is left for allocations outside the pool: the engine
    /// reserves a hash table only after doubling it, and never reserves rows that it decodes or writes. With all of 512M or 1G in the
    /// pool, it used 851 MB and 1.33 GB.
    pub(crate) fn pool_bytes(&self) -> usize {
        let limit = self.memory.unwrap_or_else(default_memory);
        limit.saturating_sub(PROGRAM_BYTES) / 2
    }

    pub(crate) fn threads(&self) -> usize {
        let available = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.threads.map_or_else(available, usize::from)
    }
}

/// Memory of the program before the first row: its code and its threads.
const PROGRAM_BYTES: usize = 64 << 20;

/// Parses a memory limit.
fn memory(text: &str) -> Result<usize, Misuse> {
    // Less could not be kept: the program itself, and a row group for each thread.
    const LEAST: u64 = 128 << 20;
    match quantity::size_bytes(text, 1) {
        Ok(bytes) if bytes < LEAST => Err(Misuse("expected at least 128M".to_owned())),
        Ok(bytes) => Ok(usize::try_from(bytes).unwrap_or(usize::MAX)),
        Err(error) => Err(Misuse(error)),
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_limits() {
        assert_eq!(memory("512M").unwrap(), 512 << 20);
        assert_eq!(memory("1.5GiB").unwrap(), 3 << 29);
        assert_eq!(memory("268435456").unwrap(), 256 << 20);
        for wrong in ["", "M", "12 apples", "1K", "64M", "-1G", "nan"] {
            assert!(memory(wrong).is_err(), "{wrong}");
        }
    }
}
