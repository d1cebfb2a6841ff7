//! Processes with a runtime, by the kernel's records.
//!
//! ```text
//! MMAP2  { pid 42, /usr/bin/node, executable }   at 1.2 s
//! EXIT   { pid 42 }                              at 2.9 s   → node 42 ran for 1.7 s
//! ```
//! The drain passes the records, so a process counts however little CPU time the recorder gets.

use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::Sender;
use std::time::Duration;

use perfquet_trace::symbols::limits::SIGHTED_PROCESSES_MAX;

use super::process::{Clue, Runtime};
use super::{FIRST_LOOK, Message};

/// A process that has mapped a runtime, and has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sighting {
    pub(super) pid: i32,
    pub(super) runtime: Runtime,
}

impl Sighting {
    /// Whether it has left a perf map where processes outside of containers do.
    pub(super) fn has_map(self) -> bool {
        Path::new(&format!("/tmp/perf-{}.map", self.pid)).exists()
    }
}

/// Looks at the records of mapped files and ends of processes.
pub(crate) struct Sightings {
    ended: Sender<Message>,
    /// By PID: the clue of its files, and the time of the first.
    running: HashMap<i32, (Clue, u64)>,
}

impl Sightings {
    pub(super) fn new(ended: Sender<Message>) -> Sightings {
        Sightings {
            ended,
            running: HashMap::new(),
        }
    }

    /// A process has mapped a file as code.
    pub(crate) fn maps(&mut self, pid: i32, path: &[u8], time: u64) {
        let Some(clue) = Clue::of(path) else {
            return;
        };
        let has_room = (self.running.len() as u64) < SIGHTED_PROCESSES_MAX;
        match self.running.get_mut(&pid) {
            Some((known, _)) => {
                // Applications of other kinds embed node, but not the other way around.
                let is_weaker = clue == Clue::Runs(Runtime::Node);
                if *known != Clue::NoPerfMap && !is_weaker {
                    *known = clue;
                }
            }
            None if has_room => {
                self.running.insert(pid, (clue, time));
            }
            None => {}
        }
    }

    /// A process has ended. One that ran only briefly has compiled next to nothing.
    pub(crate) fn ends(&mut self, pid: i32, time: u64) {
        if let Some((Clue::Runs(runtime), since)) = self.running.remove(&pid)
            && Duration::from_nanos(time.saturating_sub(since)) >= FIRST_LOOK
        {
            // The thread ends only after its last message.
            let _ = self.ended.send(Message::Ended(Sighting { pid, runtime }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn processes_with_a_runtime_are_known_by_their_files() {
        let (sender, received) = channel();
        let mut sightings = Sightings::new(sender);
        let second = 1_000_000_000;
        let mut maps = |pid, path: &str| sightings.maps(pid, path.as_bytes(), second);
        maps(1, "/usr/bin/node");
        maps(1, "/usr/lib/libc.so.6");
        maps(2, "/usr/bin/node");
        maps(3, "/usr/bin/java");
        maps(3, "/opt/lib/libjvm.so");
        maps(4, "/opt/j9/libjvm.so");
        maps(4, "/opt/j9/libj9vm29.so");
        maps(4, "/opt/j9/libjvm.so");
        maps(5, "/usr/bin/sh");
        // An application that embeds both.
        maps(6, "/usr/lib/libcoreclr.so");
        maps(6, "/usr/lib/libnode.so.108");
        sightings.ends(2, second + second / 2); // too early
        for pid in [1, 3, 4, 5, 6, 1] {
            sightings.ends(pid, 2 * second);
        }
        drop(sightings);
        let ended = received.into_iter().filter_map(|message| match message {
            Message::Ended(sighting) => Some((sighting.pid, sighting.runtime)),
            _ => None,
        });
        let expected = [(1, Runtime::Node), (3, Runtime::Java), (6, Runtime::DotNet)];
        assert_eq!(ended.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_process_without_an_end_costs_no_memory_without_limit() {
        let (sender, _received) = channel();
        let mut sightings = Sightings::new(sender);
        for pid in 0..2 * SIGHTED_PROCESSES_MAX as i32 {
            sightings.maps(pid, b"/usr/bin/node", 1);
        }
        assert_eq!(sightings.running.len() as u64, SIGHTED_PROCESSES_MAX);
    }
}
