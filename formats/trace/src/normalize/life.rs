//! Threads and mappings together: the effect of events on both, and their rows.
//!
//! Mappings are kept as rows until the input ends, since build IDs may come last (in a pipe). In very long recordings
//! they are written earlier, with the build IDs known by then.

use perfquet_events::Error;
use perfquet_events::event::{Comm, Exit, Fork, KernelSymbol, Mapping};

use super::fixed_tables::FixedTables;
use super::limits::Limits;
use super::mappings::Mappings;
use super::modules::{ModuleId, Modules};
use super::process_details::Details;
use super::threads::{Thread, Threads};
use crate::store::Writer;
use crate::tables;

/// Threads, mappings and modules.
#[derive(Default)]
pub(crate) struct Life {
    pub(crate) threads: Threads,
    pub(crate) mappings: Mappings,
    pub(crate) modules: Modules,
    rows: Vec<MappingRow>,
    limits: Limits,
}

struct MappingRow {
    time: Option<i64>,
    pid: Option<i32>,
    start: u64,
    end: u64,
    file_offset: u64,
    module: ModuleId,
    inode: Option<u64>,
    protection: Option<i32>,
}

impl Life {
    /// Empty, with these limits.
    pub(crate) fn within(limits: Limits) -> Life {
        Life {
            limits,
            ..Life::default()
        }
    }

    pub(crate) fn comm(
        &mut self,
        comm: &Comm<'_>,
        writer: &mut Writer,
        fixed: &FixedTables,
    ) -> Result<(), Error> {
        self.know_comm(comm);
        self.write_some_threads(writer, fixed)
    }

    /// Handles a new name without writing rows.
    pub(super) fn know_comm(&mut self, comm: &Comm<'_>) {
        self.threads.comm(comm);
        if comm.exec {
            let pid = comm.pid.unwrap_or(comm.tid);
            self.mappings.forget(pid);
            self.threads.exec(pid, comm.time);
        }
    }

    pub(crate) fn fork(
        &mut self,
        fork: &Fork,
        writer: &mut Writer,
        fixed: &FixedTables,
    ) -> Result<(), Error> {
        self.threads.fork(fork);
        self.mappings.fork(fork);
        self.write_some_threads(writer, fixed)
    }

    pub(crate) fn exit(
        &mut self,
        exit: &Exit,
        writer: &mut Writer,
        fixed: &FixedTables,
    ) -> Result<(), Error> {
        self.know_exit(exit);
        self.write_some_threads(writer, fixed)
    }

    /// Handles the end of a thread without writing rows.
    pub(super) fn know_exit(&mut self, exit: &Exit) {
        let pid = self.threads.exit(exit);
        if let Some(pid) = pid.filter(|&pid| self.threads.is_over(pid)) {
            self.mappings.forget(pid);
        }
    }

    pub(crate) fn map(
        &mut self,
        mapping: &Mapping<'_>,
        writer: &mut Writer,
        fixed: &FixedTables,
    ) -> Result<(), Error> {
        let module = self.mappings.map(mapping, &mut self.modules);
        self.rows.push(MappingRow {
            time: mapping.time,
            pid: (mapping.pid >= 0).then_some(mapping.pid),
            start: mapping.start,
            end: mapping.start.saturating_add(mapping.length),
            file_offset: mapping.file_offset,
            module,
            inode: mapping.inode,
            protection: mapping.protection.map(|bits| bits as i32),
        });
        if self.rows.len() >= self.limits.rows {
            self.write_mappings(writer, fixed)?;
        }
        Ok(())
    }

    pub(crate) fn kernel_symbol(&mut self, symbol: &KernelSymbol<'_>) {
        self.mappings.kernel_symbol(symbol, &mut self.modules);
    }

    /// Writes all rows of threads and mappings.
    pub(crate) fn write_all(
        &mut self,
        writer: &mut Writer,
        fixed: &FixedTables,
    ) -> Result<(), Error> {
        let finished = self.threads.take_finished(true);
        self.write_threads(finished, writer, fixed)?;
        self.write_mappings(writer, fixed)
    }

    fn write_some_threads(
        &mut self,
        writer: &mut Writer,
        fixed: &FixedTables,
    ) -> Result<(), Error> {
        if !self.threads.is_full(self.limits.rows) {
            return Ok(());
        }
        let finished = self.threads.take_finished(false);
        self.write_threads(finished, writer, fixed)
    }

    fn write_threads(
        &self,
        mut rows: Vec<(Thread, Details)>,
        writer: &mut Writer,
        fixed: &FixedTables,
    ) -> Result<(), Error> {
        rows.sort_by_key(|(row, _)| (row.start, row.tid));
        let table = fixed.threads;
        for (row, details) in rows {
            let namespaces: Option<Vec<&[u8]>> = details
                .namespaces
                .as_ref()
                .map(|names| names.iter().map(|name| name.as_bytes()).collect());
            tables::threads::Row {
                tid: row.tid,
                pid: row.pid,
                parent: row.parent,
                comm: row.comm.map(|comm| self.threads.comm_bytes(comm)),
                start_time: row.start,
                end_time: row.end,
                exit_code: row.exit_code,
                cmdline: details.cmdline.as_deref(),
                cgroup: details.cgroup.as_deref(),
                namespaces: namespaces.as_deref(),
            }
            .push(writer.rows(table));
            writer.end_row(table)?;
        }
        Ok(())
    }

    fn write_mappings(&mut self, writer: &mut Writer, fixed: &FixedTables) -> Result<(), Error> {
        let table = fixed.mappings;
        for row in std::mem::take(&mut self.rows) {
            let build_id = self.modules.build_id_of(row.module).map(hexadecimal);
            tables::mappings::Row {
                time: row.time,
                pid: row.pid,
                start_address: row.start,
                end_address: row.end,
                file_offset: row.file_offset,
                path: self.modules.path(row.module),
                build_id: build_id.as_deref().map(str::as_bytes),
                inode: row.inode,
                protection: row.protection,
            }
            .push(writer.rows(table));
            writer.end_row(table)?;
        }
        Ok(())
    }
}

/// Bytes as two hexadecimal digits each.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
    ];
    let digit = |value: u8| DIGITS.get(usize::from(value)).copied().unwrap_or('0');
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::threads::ThreadIndex;
    use super::*;
    use perfquet_events::event::Space;

    const P: i32 = 7;

    fn exit(tid: i32) -> Exit {
        let (time, code) = (Some(9), None);
        Exit {
            time,
            pid: Some(P),
            tid,
            code,
        }
    }

    fn comm(tid: i32, exec: bool) -> Comm<'static> {
        Comm {
            time: None,
            pid: Some(P),
            tid,
            comm: b"srv",
            exec,
        }
    }

    /// A process with a mapping, as the recorder found it.
    struct World(Life);

    impl World {
        fn attached() -> World {
            let mut life = Life::default();
            life.mappings.map(&mapping(), &mut life.modules);
            World(life)
        }

        fn comm(&mut self, comm: &Comm<'_>) {
            self.0.know_comm(comm);
        }

        fn exit(&mut self, tid: i32) {
            self.0.know_exit(&exit(tid));
        }

        fn seen(&mut self, tid: i32) -> ThreadIndex {
            self.0.threads.at(tid, Some(P))
        }

        fn is_mapped(&self) -> bool {
            let map = self.0.mappings.of(Some(P), Space::User);
            map.find(0x1000).is_some()
        }
    }

    fn mapping() -> Mapping<'static> {
        Mapping {
            time: None,
            pid: P,
            tid: P,
            space: Space::User,
            start: 0x1000,
            length: 0x1000,
            file_offset: 0,
            path: b"/srv",
            build_id: None,
            device: None,
            inode: None,
            protection: None,
            flags: None,
        }
    }

    #[test]
    fn a_process_ends_with_its_last_thread() {
        // perf record -p: names of all threads, no forks.
        let mut world = World::attached();
        for tid in [P, 8, 9] {
            world.comm(&comm(tid, false));
        }
        for tid in [8, P] {
            world.exit(tid);
            assert!(world.is_mapped(), "after the end of {tid}");
        }
        world.exit(9);
        assert!(!world.is_mapped());
    }

    #[test]
    fn a_thread_is_known_from_its_first_sample_or_fork() {
        let mut world = World::attached();
        world.seen(8);
        world.exit(P);
        assert!(world.is_mapped());
        let fork = Fork {
            time: Some(3),
            pid: P,
            tid: 9,
            parent_pid: P,
            parent_tid: 8,
        };
        world.0.threads.fork(&fork);
        world.exit(8);
        // An exiting thread is switched out after its exit was recorded.
        world.seen(8);
        assert!(world.is_mapped());
        world.exit(9);
        assert!(!world.is_mapped());
    }

    #[test]
    fn a_thread_that_ends_alone_is_not_the_process() {
        // Only the end of a thread of this process was recorded.
        let mut world = World::attached();
        world.exit(8);
        assert!(world.is_mapped());
        world.exit(P);
        assert!(!world.is_mapped());
    }

    #[test]
    fn an_exec_leaves_one_thread() {
        let mut world = World::attached();
        for tid in [P, 8] {
            world.comm(&comm(tid, false));
        }
        // Thread 8 calls exec: the first thread ends, and 8 takes over its ID.
        world.exit(P);
        world.comm(&comm(P, true));
        assert!(!world.is_mapped());
        let Life {
            mappings, modules, ..
        } = &mut world.0;
        mappings.map(&mapping(), modules);
        assert!(world.is_mapped());
        world.exit(P);
        assert!(!world.is_mapped());
    }

    #[test]
    fn digits_are_lower_case() {
        assert_eq!(hexadecimal(&[0x0a, 0xf9]), "0af9");
    }
}
