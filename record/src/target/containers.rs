//! Processes with a different view of the file system: containers, chroots, mount namespaces.
//!
//! ```text
//! /proc/4711/ns/mnt   mnt:[4026532871], ours is mnt:[4026531841]      /proc/4711/root  → /var/lib/image
//! ```
//! The files mapped by such a process are below its root, and its list of generated code is named after its PID inside
//! the container. A container may end before symbolization, so the recorder holds its root and mounts open.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use perfquet_trace::symbols::Roots;

use crate::sys::procfs::{self, View};
use crate::target::Target;

/// Maximum number of held roots; each needs two descriptors.
const MOST_ROOTS: usize = 256;
/// Scanning all processes takes some milliseconds, so it is done rarely.
const TICKS_BETWEEN: u32 = 16;

/// The processes seen so far.
pub(crate) struct Containers {
    roots: Roots,
    own: Option<View>,
    known: HashMap<View, usize>,
    processes: HashMap<i32, View>,
    ticks: u32,
}

impl Containers {
    pub(crate) fn new() -> Containers {
        Containers {
            roots: Roots::default(),
            own: procfs::view_of(std::process::id() as i32),
            known: HashMap::new(),
            processes: HashMap::new(),
            ticks: 0,
        }
    }

    /// Returns the roots, for symbolization.
    pub(crate) fn roots(&self) -> Roots {
        self.roots.clone()
    }

    /// Checks the recorded processes: on every call for a command, processes or threads, otherwise only on every nth call.
    /// Returns those that run, without threads of the kernel.
    pub(crate) fn look(&mut self, target: &Target, command: Option<i32>) -> Option<Vec<i32>> {
        let is_due = self.ticks.is_multiple_of(TICKS_BETWEEN);
        self.ticks = self.ticks.wrapping_add(1);
        let is_narrow = matches!(
            target,
            Target::Command | Target::Processes(_) | Target::Family(_) | Target::Threads(_)
        );
        if !is_narrow && !is_due {
            return None;
        }
        let mut pids = target.processes(command);
        match is_narrow {
            true => procfs::add_descendants(&mut pids),
            false => {
                // Most of the processes of a small machine, without anything to look at.
                let of_kernel = procfs::kernel_threads();
                let of_kernel: HashSet<i32> = of_kernel.into_iter().collect();
                pids.retain(|pid| !of_kernel.contains(pid));
            }
        }
        for &pid in &pids {
            self.look_at(pid);
        }
        let running: HashSet<i32> = pids.iter().copied().collect();
        self.processes.retain(|pid, _| running.contains(pid));
        Some(pids)
    }

    fn look_at(&mut self, pid: i32) {
        let Some(view) = procfs::view_of(pid) else {
            return; // gone, or not accessible
        };
        if self.processes.get(&pid) == Some(&view) {
            return;
        }
        self.processes.insert(pid, view.clone());
        let inside = procfs::number_inside(pid).unwrap_or(pid);
        let is_ours = self.own.as_ref() == Some(&view);
        if is_ours && inside == pid {
            return;
        }
        let root = match self.known.get(&view) {
            Some(&root) => root,
            None if self.known.len() >= MOST_ROOTS => return,
            None => {
                let path = match is_ours {
                    true => PathBuf::from("/"),
                    false => match hold(pid) {
                        Some(path) => path,
                        None => return,
                    },
                };
                log::info!("process {pid} has its own root: symbolizing with the files there");
                let root = self.roots.add(path);
                self.known.insert(view, root);
                root
            }
        };
        self.roots.add_process(pid, root, inside);
    }
}

/// Returns a path to the root of a process that remains valid after the process has ended. The descriptor stays open
/// until the recorder exits, because symbolization comes last.
fn hold(pid: i32) -> Option<PathBuf> {
    // With it the mounts below the root stay.
    let mounts = File::open(format!("/proc/{pid}/ns/mnt")).ok()?;
    let root = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
        .open(format!("/proc/{pid}/root"))
        .ok()?;
    let _ = mounts.into_raw_fd();
    Some(PathBuf::from(format!(
        "/proc/self/fd/{}",
        root.into_raw_fd()
    )))
}
