//! Whom to record: the whole system, a command, processes or threads, on which CPUs.

use crate::failure::{Failure, misuse};
use crate::sys::privileges::Scope;
use crate::sys::procfs;

/// Whom to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// Everything on the chosen CPUs.
    System,
    /// The command behind `--` and what it starts.
    Command,
    /// These processes and what they start.
    Processes(Vec<i32>),
    /// These threads and what they start.
    Threads(Vec<i32>),
}

/// Where one event is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Thread; -1: all.
    pub(crate) tid: i32,
    /// CPU. Always one: a ring that threads inherit must belong to one (the kernel refuses mmap otherwise).
    pub(crate) cpu: u32,
}

impl Target {
    /// Threads times CPUs. `command` is the pid of the waiting command.
    pub(crate) fn places(&self, command: Option<i32>, cpus: &[u32]) -> Result<Vec<Place>, Failure> {
        let tids = match self {
            Target::System => vec![-1],
            Target::Command => Vec::from_iter(command),
            Target::Processes(pids) => {
                let mut tids = Vec::new();
                for &pid in pids {
                    let threads = procfs::threads(pid);
                    if threads.is_empty() {
                        return Err(misuse(format!("no process {pid}")));
                    }
                    tids.extend(threads);
                }
                tids
            }
            Target::Threads(tids) => {
                if let Some(gone) = tids.iter().find(|tid| procfs::process_of(**tid).is_none()) {
                    return Err(misuse(format!("no thread {gone}")));
                }
                tids.clone()
            }
        };
        let on_cpus = |tid| cpus.iter().map(move |&cpu| Place { tid, cpu });
        Ok(tids.into_iter().flat_map(on_cpus).collect())
    }

    /// For the sentence when the kernel refuses.
    pub(crate) fn scope(&self) -> Scope {
        match self {
            Target::System => Scope::System,
            Target::Command => Scope::Command,
            Target::Processes(ids) | Target::Threads(ids) => {
                Scope::Task(ids.first().copied().unwrap_or(0))
            }
        }
    }

    /// Whether all that was to be recorded has ended. A command is waited for elsewhere.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Target::System | Target::Command => false,
            Target::Processes(pids) => !pids.iter().any(|&pid| procfs::is_process_alive(pid)),
            Target::Threads(tids) => !tids.iter().any(|&tid| procfs::is_alive(tid)),
        }
    }
}
