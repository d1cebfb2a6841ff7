//! Limits of the process that reads debug info: CPU time and memory, in proportion to the file.
//!
//! ```text
//! 120 MB of debug info   →   12 s of CPU time, 2 GiB above the current size of the process
//! ```
//! blazesym reads 100 MB in a second or two and keeps about as many bytes as it reads.

use std::io;

use rlimit::Resource;

/// CPU seconds for a file of any size.
pub(super) const SMALL_FILE_S: u64 = 5;
/// Total seconds that small files of a trace may waste before later ones get less.
pub(super) const ALL_FILES_S: u64 = 30;
/// Size of debug info for one more second.
const BYTES_PER_S: u64 = 16 << 20;

const MEMORY_BYTES: u64 = 1 << 30;
const MEMORY_PER_BYTE: u64 = 8;

/// Seconds for a file, out of those left.
pub(super) fn seconds(patience_s: u64, bytes: u64) -> u64 {
    SMALL_FILE_S.min(patience_s).max(1) + bytes / BYTES_PER_S
}

/// Limits this process to this much CPU time since its start, and to the memory that debug info of this size should
/// take.
pub(super) fn set(seconds: u64, bytes: u64) -> io::Result<()> {
    // Too small for any file, and the one limit at which the kernel starts no core dump handler.
    lower(Resource::CORE, 1)?;
    // The signal is SIGXCPU, which the parent recognizes.
    lower(Resource::CPU, seconds)?;
    let more = MEMORY_BYTES.saturating_add(bytes.saturating_mul(MEMORY_PER_BYTE));
    lower(Resource::AS, taken_bytes()?.saturating_add(more))
}

/// Sets the soft limit, which a process may raise again: this one does so for larger files.
fn lower(resource: Resource, soft: u64) -> io::Result<()> {
    let hard = resource.get_hard()?;
    resource.set(soft.min(hard), hard)
}

/// Address space in use: "VmSize:     8192 kB".
fn taken_bytes() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let size = status
        .lines()
        .find_map(|line| line.strip_prefix("VmSize:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|kib| kib.parse::<u64>().ok());
    Ok(size.unwrap_or(0).saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gets_time_for_its_size_and_hostile_ones_less_and_less() {
        assert_eq!(seconds(ALL_FILES_S, 0), 5);
        assert_eq!(seconds(ALL_FILES_S, 1 << 30), 69);
        assert_eq!(seconds(4, 0), 4);
        assert_eq!(seconds(0, 0), 1);
    }

    #[test]
    fn the_size_of_this_process_is_known() {
        assert!(taken_bytes().unwrap() > 1 << 20);
    }
}
