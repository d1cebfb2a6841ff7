//! Executable memory of processes.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use perfquet_events::bytes::Endian;
use perfquet_trace::symbols::Machine;
use perfquet_trace::symbols::limits::KEPT_PROCESSES_MAX;

use crate::sys::clock;
use crate::sys::procfs;

/// Ends of the numbers that are read of a program's head: EI_CLASS, EI_DATA, e_machine.
const HEAD_BYTES: usize = 20;
const MACHINE_AT: u64 = 18;
/// Start times of processes have ticks of 10 ms.
const TICK: Duration = Duration::from_millis(20);

/// The processes whose memory was read.
#[derive(Default)]
pub(super) struct Memories {
    processes: HashMap<i32, Process>,
    maps: Vec<u8>,
}

/// An open process. The handle is of one address space: after an exec or the end, it reads nothing.
struct Process {
    memory: File,
    machine: Machine,
    /// Executable ranges; `None` until they are read again.
    code: Option<Vec<Range<u64>>>,
}

impl Memories {
    /// Looks at the mappings again before the next read.
    pub(super) fn forget_mappings(&mut self) {
        for process in self.processes.values_mut() {
            process.code = None;
        }
    }

    /// Reads executable memory of the process that had a sample at a time; less if the rest is not executable.
    pub(super) fn read(
        &mut self,
        pid: i32,
        range: Range<u64>,
        sampled: i64,
    ) -> Result<(Machine, Vec<u8>), &'static str> {
        let read = self.read_once(pid, &range, sampled);
        if read.is_ok() || self.processes.remove(&pid).is_none() {
            return read;
        }
        // It may have executed another program.
        self.read_once(pid, &range, sampled)
    }

    fn read_once(
        &mut self,
        pid: i32,
        range: &Range<u64>,
        sampled: i64,
    ) -> Result<(Machine, Vec<u8>), &'static str> {
        if !self.processes.contains_key(&pid) {
            if self.processes.len() as u64 >= KEPT_PROCESSES_MAX {
                self.processes.clear();
            }
            self.processes.insert(pid, Process::open(pid, sampled)?);
        }
        let maps = &mut self.maps;
        let process = self.processes.get_mut(&pid).ok_or(GONE)?;
        let code = process.code.get_or_insert_with(|| executable(pid, maps));
        let end = executable_end(code, range).ok_or("its memory was not executable any more")?;
        let mut bytes = vec![0; usize::try_from(end - range.start).unwrap_or_default()];
        process
            .memory
            .read_exact_at(&mut bytes, range.start)
            .map_err(|_| GONE)?;
        Ok((process.machine, bytes))
    }
}

const GONE: &str = "the process had ended";

impl Process {
    fn open(pid: i32, sampled: i64) -> Result<Process, &'static str> {
        let memory =
            File::open(format!("/proc/{pid}/mem")).map_err(|error| match error.kind() {
                std::io::ErrorKind::PermissionDenied => "the process may not be read",
                _ => GONE,
            })?;
        // From here on, the handle is of the process with this start time.
        let start = procfs::start_ticks(pid).ok_or(GONE)?;
        let ago = clock::monotonic().saturating_sub(u64::try_from(sampled).unwrap_or(0));
        if procfs::age(start) + TICK < Duration::from_nanos(ago) {
            // Another one has got its PID.
            return Err(GONE);
        }
        Ok(Process {
            memory,
            machine: machine_of(pid).ok_or(GONE)?,
            code: None,
        })
    }
}

/// The instruction set of a process's program.
fn machine_of(pid: i32) -> Option<Machine> {
    let mut head = [0; HEAD_BYTES];
    let mut program = File::open(format!("/proc/{pid}/exe")).ok()?;
    program.read_exact(&mut head).ok()?;
    let endian = match head {
        [0x7f, b'E', b'L', b'F', _, 1, ..] => Endian::Little,
        [0x7f, b'E', b'L', b'F', _, 2, ..] => Endian::Big,
        _ => return None,
    };
    endian
        .u16_at(&head, MACHINE_AT as usize)
        .map(Machine::of_number)
}

/// Executable ranges of a process, in order; neighbors are one.
fn executable(pid: i32, maps: &mut Vec<u8>) -> Vec<Range<u64>> {
    procfs::read_maps(pid, maps);
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for map in procfs::parse_maps(maps) {
        if map.protection & libc::PROT_EXEC as u32 == 0 {
            continue;
        }
        match ranges.last_mut() {
            Some(last) if last.end == map.start => last.end = map.end,
            _ => ranges.push(map.start..map.end),
        }
    }
    ranges
}

/// How far a range is executable; `None` if not even its start is.
fn executable_end(code: &[Range<u64>], range: &Range<u64>) -> Option<u64> {
    let next = code.partition_point(|one| one.start <= range.start);
    let at = code.get(next.checked_sub(1)?)?;
    (range.start < at.end && range.start < range.end).then(|| range.end.min(at.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_executable_memory_is_read() {
        let check = |range: Range<u64>, expected: Option<u64>| {
            let code = [0x1000..0x3000, 0x5000..0x6000];
            assert_eq!(executable_end(&code, &range), expected, "{range:x?}");
        };
        check(0x1000..0x1010, Some(0x1010));
        check(0x2ff0..0x3010, Some(0x3000));
        check(0x3000..0x3010, None);
        check(0x0..0x10, None);
        check(0x5ff0..u64::MAX, Some(0x6000));
        check(0x5000..0x5000, None);
    }

    #[test]
    fn own_code_is_read_and_data_is_not() {
        let pid = std::process::id() as i32;
        let now = i64::try_from(clock::monotonic()).unwrap();
        let code = only_executable_memory_is_read as *const () as u64;
        let mut memories = Memories::default();
        let (machine, bytes) = memories.read(pid, code..code + 16, now).unwrap();
        assert_eq!(bytes.len(), 16);
        assert!(machine.name() == std::env::consts::ARCH);
        let data = [7_u8; 64];
        let at = data.as_ptr() as u64;
        assert!(memories.read(pid, at..at + 16, now).is_err());
        // A sample from before this process: it has another one's PID.
        assert_eq!(
            Memories::default()
                .read(pid, code..code + 16, 1)
                .unwrap_err(),
            GONE
        );
        assert_eq!(
            memories.read(i32::MAX, code..code + 16, now).unwrap_err(),
            GONE
        );
    }
}
