//! Programs whose recording the kernel ends at their exec.
//!
//! ```text
//! COMM exec 18553 su      the program begins
//! EXIT 18553              without a mapping before: the kernel has ended the events of this process, which goes on
//! MMAP2 18553 /bin/su     only where whole CPUs are recorded
//! ```
//! The kernel closes the events of a task that executes a program with more rights than its user, or one that its user may not read
//! (`begin_new_exec` in fs/exec.c: `perf_event_exit_task` unless the process is dumpable), and writes the record of an exit, to events of
//! CPUs, too. Every other program maps its file first.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::event::Loss;

use crate::perf_data::output::Output;

/// Maximum number of names that are reported.
const NAMES_MAX: usize = 100;
/// Maximum number of processes between an exec and their first mapping.
const BEGUN_MAX: usize = 1 << 16;

#[derive(Default)]
pub(super) struct Execs {
    /// Processes that have mapped nothing since their exec, and the names of their programs.
    begun: HashMap<i32, String>,
    /// Those of them whose events were closed.
    closed: HashMap<i32, String>,
    /// How often each program was not recorded.
    unrecorded: BTreeMap<String, u64>,
}

impl Execs {
    /// A process executes a program.
    pub(super) fn exec(&mut self, pid: i32, name: &[u8]) {
        self.begins(pid);
        if self.begun.len() < BEGUN_MAX {
            let name = String::from_utf8_lossy(name).into_owned();
            self.begun.insert(pid, name);
        }
    }

    /// Another process has this ID, or another program.
    pub(super) fn begins(&mut self, pid: i32) {
        if let Some(earlier) = self.closed.remove(&pid) {
            self.count(earlier);
        }
    }

    /// A process maps a file.
    #[inline]
    pub(super) fn mapped(&mut self, pid: i32) {
        if !self.begun.is_empty() {
            self.begun.remove(&pid);
        }
        if !self.closed.is_empty() {
            self.closed.remove(&pid);
        }
    }

    /// Whether the exit of the first thread of a process is that of its events alone.
    pub(super) fn is_of_events(&mut self, pid: i32) -> bool {
        let name = self.begun.remove(&pid);
        let goes_on = name.is_some();
        match name {
            Some(name) if self.closed.len() < BEGUN_MAX => {
                self.closed.insert(pid, name);
            }
            Some(name) => self.count(name),
            // It was killed before it mapped anything.
            None => {
                self.closed.remove(&pid);
            }
        }
        goes_on
    }

    fn count(&mut self, name: String) {
        let has_room = self.unrecorded.len() < NAMES_MAX || self.unrecorded.contains_key(&name);
        let name = if has_room { name } else { "others".to_owned() };
        *self.unrecorded.entry(name).or_default() += 1;
    }

    /// Reports the programs.
    pub(super) fn finish(mut self, out: &mut Output<'_>) -> Result<(), Error> {
        for (_, name) in std::mem::take(&mut self.closed) {
            self.count(name);
        }
        for (name, count) in self.unrecorded {
            let times = match count {
                1 => String::new(),
                count => format!(" ({count} times)"),
            };
            let reason = format!(
                "{}{name}{times}, as programs that are set-user-ID, have capabilities, or are not readable",
                Loss::UNRECORDED_PROGRAM
            );
            out.missing(&reason)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_ends_before_it_maps_its_file_is_not_recorded() {
        let mut execs = Execs::default();
        for (pid, name) in [(1, "true"), (2, "su"), (3, "su"), (4, "killed")] {
            execs.exec(pid, name.as_bytes());
        }
        execs.mapped(1);
        assert!(!execs.is_of_events(1));
        for pid in [2, 3, 4] {
            assert!(execs.is_of_events(pid));
        }
        // Whole CPUs are recorded, and with them the rest of it.
        execs.mapped(3);
        assert!(!execs.is_of_events(3));
        assert!(!execs.is_of_events(4));
        // Another process has the ID.
        execs.exec(2, b"su");
        assert!(execs.is_of_events(2));
        execs.begins(2);
        assert!(!execs.is_of_events(2));
        assert_eq!(execs.unrecorded, BTreeMap::from([("su".to_owned(), 2)]));
    }
}
