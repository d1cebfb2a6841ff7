//! Where stores are kept: a directory of the user, not of the trace. Files next to a trace may come from whoever sent it, and say anything.
//!
//! ```text
//! ~/.cache/perfquet/explorer/5c07…e1.index     the store of a trace, named by its path; its head says of which files it is
//!                            5c07…e1.tracks    the rows of its timeline
//! ```
//! A file is written under another name, and renamed when it is complete, so that several servers may write the same one.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::Result;
use perfquet::Trace;
use perfquet::interrupt;

/// Bytes of all files; the ones that were not used for longest are removed.
const MOST_BYTES: u64 = 8 << 30;
/// Unfinished files of this age have no writer any more.
const OLD: Duration = Duration::from_secs(24 * 60 * 60);
/// Bytes of a small file.
const MOST_SMALL: u64 = 256 << 20;
const STORE: &str = "index";
/// The ending of unfinished files.
const UNFINISHED: &str = "unfinished";

/// The cache files of a trace.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    directory: PathBuf,
    name: String,
    /// Identifies the trace and its files.
    pub(crate) key: String,
}

/// A file that is being written; removed unless it is published.
#[derive(Debug)]
pub(crate) struct Unfinished {
    path: PathBuf,
    place: PathBuf,
    is_published: bool,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_published {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Place {
    /// The place for a trace; `None` if there is none, or the trace may still change.
    pub(crate) fn of(trace: &Trace) -> Option<Place> {
        Place::within(directory()?, trace)
    }

    fn within(directory: PathBuf, trace: &Trace) -> Option<Place> {
        if !trace.is_complete() {
            return None;
        }
        let (path, files) = trace.identity().ok()?;
        let key = format!("perfquet {}\n{path}\n{files}", env!("CARGO_PKG_VERSION"));
        Some(Place {
            directory,
            name: format!("{:016x}", hash(path.as_bytes())),
            key,
        })
    }

    /// Whether the trace is still the same.
    pub(crate) fn is_of(&self, trace: &Trace) -> bool {
        let now = Place::within(self.directory.clone(), trace);
        now.is_some_and(|now| now.key == self.key)
    }

    fn path(&self, ending: &str) -> PathBuf {
        self.directory.join(format!("{}.{ending}", self.name))
    }

    /// Opens the store, if there is a file.
    pub(crate) fn open(&self) -> Option<File> {
        let file = File::open(self.path(STORE)).ok()?;
        // The time of the last use; of no consequence if it cannot be set.
        let _ = file.set_modified(SystemTime::now());
        Some(file)
    }

    pub(crate) fn remove(&self) {
        let _ = std::fs::remove_file(self.path(STORE));
    }

    /// Creates the file of a store.
    pub(crate) fn create(&self) -> Result<(File, Unfinished)> {
        self.create_for(STORE)
    }

    fn create_for(&self, ending: &str) -> Result<(File, Unfinished)> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.directory)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let unique = format!("{}-{number}", std::process::id());
        let path = self
            .directory
            .join(format!("{}.{unique}.{UNFINISHED}", self.name));
        // Left by a process of the same number, if there is any.
        let _ = std::fs::remove_file(&path);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        let removed = path.clone();
        interrupt::remove_at_end(move || vec![removed.clone()]);
        let unfinished = Unfinished {
            path,
            place: self.path(ending),
            is_published: false,
        };
        Ok((file, unfinished))
    }

    /// Gives a complete file its name.
    pub(crate) fn publish(&self, mut file: Unfinished) -> Result<()> {
        std::fs::rename(&file.path, &file.place)?;
        file.is_published = true;
        tidy(&self.directory, &file.place, MOST_BYTES);
        Ok(())
    }

    /// Reads a small file of the trace.
    pub(crate) fn read(&self, ending: &str) -> Option<Vec<u8>> {
        let file = File::open(self.path(ending)).ok()?;
        let mut bytes = Vec::new();
        file.take(MOST_SMALL).read_to_end(&mut bytes).ok()?;
        let rest = bytes.strip_prefix(self.key.as_bytes())?;
        let (sum, content) = rest.strip_prefix(b"\n")?.split_at_checked(16)?;
        (sum == format!("{:016x}", hash(content)).as_bytes()).then(|| content.to_owned())
    }

    /// Writes a small file of the trace; nothing happens if it cannot be written.
    pub(crate) fn write(&self, ending: &str, content: &[u8]) {
        let written = || -> Result<()> {
            let (mut file, unfinished) = self.create_for(ending)?;
            write!(file, "{}\n{:016x}", self.key, hash(content))?;
            file.write_all(content)?;
            self.publish(unfinished)
        };
        if let Err(error) = written() {
            log::debug!("{}: {error}", self.path(ending).display());
        }
    }
}

/// The directory, which need not exist.
fn directory() -> Option<PathBuf> {
    let folder = |name: &str| {
        let value = std::env::var_os(name).map(PathBuf::from);
        value.filter(|path| path.is_absolute())
    };
    let caches = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
    Some(caches.join("perfquet/explorer"))
}

/// Removes the least recently used files beyond the limit, but not the one at `kept`.
fn tidy(directory: &Path, kept: &Path, most_bytes: u64) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    let now = SystemTime::now();
    let mut files = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(found) = entry.metadata() else {
            continue;
        };
        let used = found.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let ending = path.extension().and_then(|ending| ending.to_str());
        match ending {
            Some(UNFINISHED) if now.duration_since(used).is_ok_and(|age| age > OLD) => {
                let _ = std::fs::remove_file(&path);
            }
            // Nothing else is ours.
            Some(STORE | "tracks") if found.is_file() => files.push((used, found.len(), path)),
            _ => {}
        }
    }
    files.sort();
    let mut bytes: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    for (_, size, path) in files {
        if bytes <= most_bytes {
            return;
        }
        if path != kept && std::fs::remove_file(&path).is_ok() {
            bytes -= size;
        }
    }
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(directory: &Path, key: &str) -> Place {
        Place {
            directory: directory.to_owned(),
            name: "a".to_owned(),
            key: key.to_owned(),
        }
    }

    #[test]
    fn small_files_are_of_their_key_and_whole() {
        let directory = tempfile::tempdir().unwrap();
        let (here, other) = (place(directory.path(), "x"), place(directory.path(), "y"));
        assert_eq!(here.read("tracks"), None);
        here.write("tracks", b"content");
        assert_eq!(here.read("tracks").unwrap(), b"content");
        assert_eq!(other.read("tracks"), None);
        let path = here.path("tracks");
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, &damaged).unwrap();
            assert_eq!(here.read("tracks"), None, "{at}");
            std::fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(here.read("tracks"), None, "{at}");
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_files_of_longest_ago_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, size: usize, age: u64| {
            let path = directory.path().join(name);
            std::fs::write(&path, vec![0; size]).unwrap();
            let time = SystemTime::now() - Duration::from_secs(age);
            File::open(&path).unwrap().set_modified(time).unwrap();
            path
        };
        let kept = file("a.index", 90, 500);
        file("b.index", 20, 400);
        file("c.tracks", 20, 300);
        file("d.index", 20, 200);
        file("e.1-0.unfinished", 5, 90_000);
        file("f.1-0.unfinished", 5, 100);
        file("of-others.txt", 1000, 900);
        tidy(directory.path(), &kept, 130);
        let mut left: Vec<String> = std::fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(
            left,
            [
                "a.index",
                "c.tracks",
                "d.index",
                "f.1-0.unfinished",
                "of-others.txt"
            ]
        );
    }
}
