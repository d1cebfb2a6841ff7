//! The address spaces of all processes, built from side-band records: the mappings at the time of the last record.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use perfquet_events::bytes::{Cursor, Endian, before_nul};
use perfquet_events::event::{Mapping, Registers, Space};
use perfquet_trace::symbols::{
    FileIdentity, MappedCode, Options, Origin, Roots, StackMemory, TableSource, Unwinder, Unwound,
};

use crate::journal::record::{TRAILER_BYTES, kind, misc, trailer_time};
use crate::sys::clock;

/// Address spaces, in the unwinder.
pub(super) struct Spaces {
    unwinder: Unwinder,
    /// Running threads of each process.
    threads: HashMap<i32, HashSet<i32>>,
}

/// Returns the time of a side-band record; `None` for kinds that do not change address spaces.
pub(super) fn time_of(record: &[u8]) -> Option<u64> {
    let kind = Endian::Little.u32_at(record, 0)?;
    let is_wanted = matches!(
        kind,
        kind::COMM | kind::EXIT | kind::FORK | kind::MMAP | kind::MMAP2
    );
    trailer_time(record).filter(|_| is_wanted)
}

impl Spaces {
    pub(super) fn new(roots: &Roots) -> Spaces {
        let options = Options {
            roots: roots.clone(),
            ..Options::default()
        };
        let now = clock::monotonic();
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let wall_offset = wall.ok().map(|wall| wall.as_nanos() as i64 - now as i64);
        let origin = Origin {
            wall_offset,
            began: Some(now as i64),
            ..Origin::default()
        };
        let mut unwinder = Unwinder::new(&options, origin, std::env::consts::ARCH);
        unwinder.set_live();
        Spaces {
            unwinder,
            threads: HashMap::new(),
        }
    }

    /// Applies a side-band record. Returns the process whose mappings have changed.
    pub(super) fn apply(&mut self, record: &[u8]) -> Option<i32> {
        let head = Endian::Little.u32_at(record, 0)?;
        let flags = (Endian::Little.u32_at(record, 4)? & 0xffff) as u16;
        let body = record.get(8..record.len().checked_sub(TRAILER_BYTES)?)?;
        let mut body = Cursor::new(body, 8, Endian::Little);
        match head {
            kind::FORK => {
                let (pid, parent) = (body.i32().ok()?, body.i32().ok()?);
                let tid = body.i32().ok()?;
                let is_new = !self.threads.contains_key(&pid);
                self.threads.entry(pid).or_default().insert(tid);
                // Processes that existed at the start have their own mapping records.
                let existed = flags & misc::FORK_EXEC != 0;
                if pid == parent || !is_new || existed {
                    return None;
                }
                self.unwinder.clear(pid);
                self.unwinder.fork(parent, pid);
                Some(pid)
            }
            kind::EXIT => {
                let (pid, _parent) = (body.i32().ok()?, body.i32().ok()?);
                let tid = body.i32().ok()?;
                let threads = self.threads.get_mut(&pid)?;
                threads.remove(&tid);
                if !threads.is_empty() {
                    return None;
                }
                self.threads.remove(&pid);
                self.unwinder.clear(pid);
                Some(pid)
            }
            kind::COMM if flags & misc::COMM_EXEC != 0 => {
                let pid = body.i32().ok()?;
                // exec ends all other threads, and the remaining one takes the ID of the process.
                self.threads.insert(pid, HashSet::from([pid]));
                self.unwinder.clear(pid);
                Some(pid)
            }
            kind::MMAP2 => self.map(body),
            _ => None,
        }
    }

    fn map(&mut self, mut body: Cursor<'_>) -> Option<i32> {
        let (pid, tid) = (body.i32().ok()?, body.i32().ok()?);
        let (start, length) = (body.u64().ok()?, body.u64().ok()?);
        let file_offset = body.u64().ok()?;
        // Records arrive here before build IDs replace inodes.
        let device = (body.u32().ok()?, body.u32().ok()?);
        let (inode, generation) = (body.u64().ok()?, body.u64().ok()?);
        let protection = body.u32().ok()?;
        body.u32().ok()?; // flags
        if pid < 0 {
            return None;
        }
        let mapping = Mapping {
            time: None,
            pid,
            tid,
            space: Space::User,
            start,
            length,
            file_offset,
            path: before_nul(body.rest()),
            build_id: None,
            device: Some(device),
            inode: Some(inode),
            protection: Some(protection),
            flags: None,
        };
        self.unwinder.add_mapping_of(&mapping, generation);
        Some(pid)
    }

    /// Unwinds a copy of a stack.
    pub(super) fn unwind(
        &mut self,
        pid: i32,
        registers: &Registers<'_>,
        memory: &[u8],
        addresses: &mut Vec<u64>,
    ) -> Unwound {
        self.unwinder.unwind(pid, registers, memory, addresses)
    }

    /// Unwinds a copy of parts of a stack.
    pub(super) fn unwind_parts(
        &mut self,
        pid: i32,
        registers: &Registers<'_>,
        memory: StackMemory<'_>,
        addresses: &mut Vec<u64>,
    ) -> Unwound {
        self.unwinder
            .unwind_parts(pid, registers, memory, addresses)
    }

    /// Returns whether the outermost frame of a stack by frame pointers is at the start of a thread, as far as is known.
    pub(super) fn is_at_root(&mut self, pid: i32, address: u64, is_innermost: bool) -> bool {
        self.unwinder.is_at_root(pid, address, is_innermost)
    }

    /// Returns whether a process has code at an address.
    pub(super) fn has_code(&self, pid: i32, address: u64) -> bool {
        self.unwinder.has_code(pid, address)
    }

    /// Returns whether a process has code of a file with such a path.
    pub(super) fn has_code_of(&self, pid: i32, is_path: impl Fn(&[u8]) -> bool) -> bool {
        self.unwinder.has_code_of(pid, is_path)
    }

    /// Adds a file that processes will map, and returns its number.
    pub(super) fn add_file(
        &mut self,
        path: &Path,
        identity: FileIdentity,
        generation: u64,
    ) -> Option<u32> {
        self.unwinder.add_file(path, identity, generation)
    }

    /// Returns the mappings of a process's code.
    pub(super) fn mapped_code(&mut self, pid: i32) -> Vec<MappedCode> {
        self.unwinder.mapped_code(pid)
    }

    /// Returns the source of a file's table.
    pub(super) fn table_source(&self, file: u32) -> Option<TableSource> {
        self.unwinder.table_source(file)
    }

    /// Returns the modules without a file, with the reasons.
    pub(super) fn missing(&self) -> impl Iterator<Item = (&str, &str)> {
        self.unwinder.missing()
    }
}
