//! Files not reachable at their recorded path: below the roots of containers and chroots, or left without a path
//! because they were replaced while mapped.
//!
//! ```text
//! /proc/4711/root      usr/bin/app of that container; PID 4711 is PID 7 inside it
//! ```
//! A recorder adds them while it runs. Names may be looked up after the process has ended, so a root should be a
//! lasting path (`/proc/self/fd/12`).

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::origin::FileIdentity;

/// Roots, shared between the recorder and the symbolizer.
#[derive(Debug, Clone, Default)]
pub struct Roots(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    roots: Vec<PathBuf>,
    /// PID → its root, and its PID inside.
    processes: HashMap<i32, (usize, i32)>,
    /// Mapped files, most of which also have a path.
    files: Vec<HeldFile>,
}

#[derive(Debug)]
struct HeldFile {
    identity: FileIdentity,
    build_id: Option<Vec<u8>>,
    file: File,
}

impl Roots {
    /// Adds a root; the result is for [`Roots::add_process`].
    pub fn add(&self, root: PathBuf) -> usize {
        let mut known = self.lock();
        known.roots.push(root);
        known.roots.len() - 1
    }

    /// Sets the root of a process, and its PID inside.
    pub fn add_process(&self, pid: i32, root: usize, pid_inside: i32) {
        self.lock().processes.insert(pid, (root, pid_inside));
    }

    /// Adds a mapped file, which may be removed or replaced, and holds it open.
    pub fn add_file(&self, identity: FileIdentity, build_id: Option<Vec<u8>>, file: File) {
        self.lock().files.push(HeldFile {
            identity,
            build_id,
            file,
        });
    }

    /// Number of files held open.
    pub fn held_count(&self) -> usize {
        self.lock().files.len()
    }

    /// Closes the files that are not wanted any more.
    pub fn retain_files(&self, mut is_wanted: impl FnMut(&File) -> bool) {
        self.lock().files.retain(|held| is_wanted(&held.file));
    }

    /// Whether the recorder holds this mapped file, and thus knows that it is a program or library.
    pub(crate) fn holds(&self, identity: FileIdentity) -> bool {
        let known = self.lock();
        known.files.iter().any(|file| file.identity == identity)
    }

    /// A path that opens such a file: by its build ID, or by its inode if none was recorded.
    pub(super) fn held(
        &self,
        build_id: Option<&[u8]>,
        identity: Option<FileIdentity>,
    ) -> Option<PathBuf> {
        let known = self.lock();
        let is_it = |file: &&HeldFile| match build_id {
            Some(_) => file.build_id.as_deref() == build_id,
            None => Some(file.identity) == identity,
        };
        let held = known.files.iter().find(is_it)?;
        let descriptor = held.file.as_raw_fd();
        Some(PathBuf::from(format!("/proc/self/fd/{descriptor}")))
    }

    /// All roots.
    pub(super) fn all(&self) -> Vec<PathBuf> {
        self.lock().roots.clone()
    }

    /// The root of a process, and its PID inside.
    pub(super) fn of(&self, pid: i32) -> Option<(PathBuf, i32)> {
        let known = self.lock();
        let &(root, inside) = known.processes.get(&pid)?;
        Some((known.roots.get(root)?.clone(), inside))
    }

    /// Additions cannot leave it inconsistent, even if a thread panicked.
    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
