//! Files that have another path than the recorded one: below the roots of containers and chroots, or none at all since
//! they were replaced while they ran.
//!
//! ```text
//! /proc/4711/root      usr/bin/app of that container; its process 4711 is process 7 in there
//! ```
//! Whoever records adds them while it runs; a name may be asked for after the process has ended, so a root is best
//! a path that holds on (`/proc/self/fd/12`).

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::origin::FileIdentity;

/// Roots, shared with whoever adds to them.
#[derive(Debug, Clone, Default)]
pub struct Roots(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    roots: Vec<PathBuf>,
    /// Process → its root, and its number in there.
    processes: HashMap<i32, (usize, i32)>,
    /// Files that were mapped but have no path any more.
    files: Vec<HeldFile>,
}

#[derive(Debug)]
struct HeldFile {
    identity: FileIdentity,
    build_id: Option<Vec<u8>>,
    path: PathBuf,
}

impl Roots {
    /// Adds a root; the number is for [`Roots::add_process`].
    pub fn add(&self, root: PathBuf) -> usize {
        let mut known = self.lock();
        known.roots.push(root);
        known.roots.len() - 1
    }

    /// Tells which root a process has, and which number it has in there.
    pub fn add_process(&self, pid: i32, root: usize, pid_inside: i32) {
        self.lock().processes.insert(pid, (root, pid_inside));
    }

    /// Adds a mapped file that no path leads to, by one that opens it all the same.
    pub fn add_file(&self, identity: FileIdentity, build_id: Option<Vec<u8>>, path: PathBuf) {
        self.lock().files.push(HeldFile {
            identity,
            build_id,
            path,
        });
    }

    /// A path that opens such a file: by its build ID, or where none was recorded by its inode.
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
        known.files.iter().find(is_it).map(|file| file.path.clone())
    }

    /// All roots.
    pub(super) fn all(&self) -> Vec<PathBuf> {
        self.lock().roots.clone()
    }

    /// Root of a process, and its number in there.
    pub(super) fn of(&self, pid: i32) -> Option<(PathBuf, i32)> {
        let known = self.lock();
        let &(root, inside) = known.processes.get(&pid)?;
        Some((known.roots.get(root)?.clone(), inside))
    }

    /// Additions leave it whole, whoever panicked.
    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
