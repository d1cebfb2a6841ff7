//! Files of a lake, and the changes of them that are whole or not at all.
//!
//! ```text
//! LAKE/samples/date=2026-11-22/host=h001/perf-1f….parquet   a trace's rows of a table
//! LAKE/_perfquet/lake.json                                  version and keys of the partition
//! LAKE/_perfquet/lock                                       held while files get their names
//! LAKE/_perfquet/staging/x8…/3.part                         written by a running process, which holds a lock
//! LAKE/_perfquet/pending.json                               a change that is decided: the next process completes it
//! LAKE/_perfquet/manifests/perf-1f….json                    the manifest of a published trace; its parts are rows of files
//! LAKE/_perfquet/traces/perf-1f….json                       its files
//! ```
//! A change is decided when `pending.json` has its name: all of its files are complete and synced then. A process that is
//! killed before leaves the lake as it was, one that is killed later leaves a change that every later process completes
//! first. No path of a lake is followed through a symbolic link.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use perfquet_trace::lake::{
    self, Change, HEAD, Head, LOCK, OWN, PENDING, RECORDS, Record, VERSION, is_missing,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::partition::Partition;

const STAGING: &str = "_perfquet/staging";

/// A lake.
#[derive(Debug)]
pub(super) struct Lake {
    root: PathBuf,
    pub(super) partition: Partition,
    /// Whether traces are published with summaries.
    pub(super) summaries: bool,
}

/// A directory for files that are being written. Dropping it removes what has no other name.
pub(super) struct Stage {
    folder: tempfile::TempDir,
    name: String,
    _lock: File,
}

/// The right to change a lake.
pub(super) struct Locked<'l> {
    lake: &'l Lake,
    _lock: File,
}

impl Lake {
    /// Opens a lake, or creates one in an empty or missing directory, and completes what a killed process left. Without a partition, it is that of
    /// the lake. A lake that is opened once with summaries has them from then on.
    pub(super) fn open(
        root: &Path,
        partition: Option<&Partition>,
        summaries: bool,
    ) -> Result<Lake> {
        let failed = || format!("cannot create {}", root.display());
        std::fs::create_dir_all(root).with_context(failed)?;
        let root = root.canonicalize().with_context(failed)?;
        if root.join(OWN).symlink_metadata().is_err() {
            let mut entries = std::fs::read_dir(&root).with_context(failed)?;
            if entries.next().is_some() && root.join(OWN).symlink_metadata().is_err() {
                bail!(
                    "{}: expected a lake or an empty directory, found other files\nhint: use -o with another directory",
                    root.display()
                );
            }
        }
        let mut lake = Lake {
            root,
            partition: partition.cloned().unwrap_or_default(),
            summaries,
        };
        for folder in [OWN, STAGING, RECORDS] {
            lake.create_folders(folder)?;
        }
        let lock = lake.lock_file()?;
        let head = lake.read::<Head>(HEAD)?;
        // Earlier versions would lose the manifests of traces.
        let mut is_changed = head.as_ref().is_some_and(|head| head.version < VERSION);
        if let Some(head) = &head {
            is_changed |= summaries && !head.summaries;
            lake.summaries |= head.summaries;
        }
        match head {
            Some(head) if head.version > VERSION => bail!(
                "{}: unsupported version {} of a lake; the latest supported version is {VERSION}",
                lake.root.display(),
                head.version
            ),
            Some(head) => match partition {
                Some(partition) if partition.keys() != head.partition => bail!(
                    "{}: --partition {}: expected the keys of the lake, {}",
                    lake.root.display(),
                    partition.keys().join(","),
                    head.partition.join(",")
                ),
                Some(_) => {}
                None => {
                    lake.partition = Partition::parse(&head.partition.join(","))
                        .map_err(|message| anyhow::anyhow!("{HEAD}: {message}"))?;
                }
            },
            None => lake.write_head()?,
        }
        lake.complete()?;
        if is_changed {
            lake.write_head()?;
        }
        lake.remove_abandoned()?;
        drop(lock);
        Ok(lake)
    }

    /// Waits until no other process changes the lake, and completes what a killed one left.
    pub(super) fn lock(&self) -> Result<Locked<'_>> {
        let locked = Locked {
            lake: self,
            _lock: self.lock_file()?,
        };
        self.complete()?;
        Ok(locked)
    }

    /// Completes a change that a killed process decided. The lock is held.
    fn complete(&self) -> Result<()> {
        if let Some(change) = self.read::<Change>(PENDING)? {
            self.apply(&change)?;
            log::info!(
                "{}: completed a change of a killed process",
                self.root.display()
            );
        }
        Ok(())
    }

    fn write_head(&self) -> Result<()> {
        let head = Head {
            version: VERSION,
            partition: self.partition.keys(),
            summaries: self.summaries,
        };
        self.replace(HEAD, &head)
    }

    fn lock_file(&self) -> Result<File> {
        let path = self.inside(LOCK)?;
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(NO_FOLLOW)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        let locked = file.lock();
        locked.with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(file)
    }

    /// Removes the files of killed processes. The lock is held, and no change is pending, which would need them.
    fn remove_abandoned(&self) -> Result<()> {
        let staging = self.inside(STAGING)?;
        for entry in std::fs::read_dir(&staging)?.flatten() {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let lock = is_folder.then(|| File::open(entry.path().join("lock")));
            if matches!(&lock, Some(Ok(lock)) if lock.try_lock().is_err()) {
                continue;
            }
            // Its process may be removing it at this moment.
            if let Err(error) = std::fs::remove_dir_all(entry.path()) {
                log::debug!("{}: {error}", entry.path().display());
            }
        }
        Ok(())
    }

    /// Creates a directory for new files.
    pub(super) fn stage(&self) -> Result<Stage> {
        step()?;
        let locked = self.lock()?;
        let staging = self.inside(STAGING)?;
        let folder = tempfile::Builder::new()
            .prefix("x")
            .tempdir_in(&staging)
            .with_context(|| format!("cannot create a directory in {}", staging.display()))?;
        let lock = File::create(folder.path().join("lock"))?;
        lock.lock()?;
        let name = folder.path().file_name().unwrap_or_default();
        let name = format!("{STAGING}/{}", name.to_string_lossy());
        drop(locked);
        Ok(Stage {
            folder,
            name,
            _lock: lock,
        })
    }

    /// The record of a trace.
    pub(super) fn record(&self, trace: &str) -> Result<Option<Record>> {
        self.read(&format!("{RECORDS}/{trace}.json"))
    }

    /// Whether all files of a trace are there.
    pub(super) fn is_whole(&self, record: &Record) -> bool {
        record.files.iter().all(|entry| {
            let path = self.inside(&entry.path);
            let found = path.and_then(|path| Ok(path.symlink_metadata()?));
            found.is_ok_and(|found| found.is_file() && found.len() == entry.bytes)
        })
    }

    /// Makes a decided change. It may have been made in part before.
    fn apply(&self, change: &Change) -> Result<()> {
        let mut folders = BTreeSet::new();
        for path in &change.first {
            step()?;
            self.remove(path)?;
            folders.insert(parent(path).to_owned());
        }
        for (from, to) in &change.moves {
            step()?;
            let source = self.inside(from)?;
            if source.symlink_metadata().is_err() {
                continue;
            }
            let folder = parent(to);
            self.create_folders(folder)?;
            let target = self.inside(to)?;
            std::fs::rename(source, &target)
                .with_context(|| format!("cannot write {}", target.display()))?;
            folders.insert(folder.to_owned());
        }
        for path in &change.deletes {
            step()?;
            self.remove(path)?;
            folders.insert(parent(path).to_owned());
        }
        for folder in folders {
            let target = self.inside(&folder)?;
            match File::open(&target).and_then(|folder| folder.sync_all()) {
                Err(error) if !is_missing(&error) => {
                    return Err(error).with_context(|| format!("cannot sync {}", target.display()));
                }
                _ => self.remove_empty(&folder)?,
            }
        }
        for record in &change.records {
            step()?;
            self.replace(&format!("{RECORDS}/{}.json", record.trace), record)?;
        }
        for trace in &change.forget {
            step()?;
            let path = self.inside(&format!("{RECORDS}/{trace}.json"))?;
            match std::fs::remove_file(&path) {
                Err(error) if !is_missing(&error) => return Err(error.into()),
                _ => {}
            }
        }
        step()?;
        match std::fs::remove_file(self.inside(PENDING)?) {
            Err(error) if !is_missing(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn remove(&self, path: &str) -> Result<()> {
        let target = self.inside(path)?;
        match std::fs::remove_file(&target) {
            Err(error) if !is_missing(&error) => {
                Err(error).with_context(|| format!("cannot remove {}", target.display()))
            }
            _ => Ok(()),
        }
    }

    /// Removes the empty folders of a partition; one with files stays.
    fn remove_empty(&self, folder: &str) -> Result<()> {
        let mut folder = folder;
        while folder.contains('=') && std::fs::remove_dir(self.inside(folder)?).is_ok() {
            folder = parent(folder);
        }
        Ok(())
    }

    /// The path of a name below the lake, which contains no link.
    pub(super) fn inside(&self, name: &str) -> Result<PathBuf> {
        Ok(lake::inside(&self.root, name)?)
    }

    fn create_folders(&self, name: &str) -> Result<()> {
        let mut end = 0;
        while let Some(next) = name.get(end..).filter(|rest| !rest.is_empty()) {
            end += next.find('/').unwrap_or(next.len());
            let path = self.inside(&name[..end])?;
            match std::fs::create_dir(&path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(error).with_context(|| format!("cannot create {}", path.display()));
                }
                _ => end += 1,
            }
        }
        Ok(())
    }

    /// Reads a file of the administration; `None` if there is none.
    pub(super) fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        Ok(lake::read(&self.root, name)?)
    }

    /// Replaces a file of the administration: a reader sees the old or the new one.
    fn replace(&self, name: &str, value: &impl Serialize) -> Result<()> {
        let path = self.inside(name)?;
        let folder = self.inside(parent(name))?;
        let failed = || format!("cannot write {}", path.display());
        let mut file = tempfile::Builder::new()
            .prefix(".new")
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666))
            .tempfile_in(&folder)
            .with_context(failed)?;
        serde_json::to_writer(&mut file, value).with_context(failed)?;
        file.flush().with_context(failed)?;
        file.as_file().sync_all().with_context(failed)?;
        file.persist(&path).with_context(failed)?;
        File::open(&folder)
            .and_then(|folder| folder.sync_all())
            .with_context(failed)
    }
}

impl Locked<'_> {
    /// The records of all traces, by name.
    pub(super) fn records(&self) -> Result<Vec<Record>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.lake.inside(RECORDS)?)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            names.extend(name.strip_suffix(".json").map(str::to_owned));
        }
        names.sort();
        let records = names.iter().map(|name| self.lake.record(name));
        Ok(records
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .flatten()
            .collect())
    }

    /// Decides a change, and makes it. Its files are synced.
    ///
    /// If it fails from here on, the next process needs the files of the stage to complete it.
    pub(super) fn commit(&self, change: &Change, stage: Option<&mut Stage>) -> Result<()> {
        step()?;
        let mut stage = stage;
        if let Some(stage) = &mut stage {
            crate::interrupt::keep_when_interrupted(stage.path());
            stage.folder.disable_cleanup(true);
        }
        self.lake.replace(PENDING, change)?;
        self.lake.apply(change)?;
        if let Some(stage) = stage {
            stage.folder.disable_cleanup(false);
        }
        Ok(())
    }
}

impl Stage {
    /// A path for the file with this number, and its name below the lake.
    pub(super) fn file(&self, number: usize) -> (PathBuf, String) {
        let file = format!("{number}.part");
        (
            self.folder.path().join(&file),
            format!("{}/{file}", self.name),
        )
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

const NO_FOLLOW: i32 = libc::O_NOFOLLOW;

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

#[cfg(test)]
pub(super) use steps::{KILL_IN, STEPS_LEFT};

/// Called before each operation on files.
pub(super) fn step() -> Result<()> {
    #[cfg(test)]
    steps::step()?;
    Ok(())
}

/// Tests end a writer before any of its operations.
#[cfg(test)]
mod steps {
    use std::cell::Cell;

    use anyhow::{Result, bail};

    std::thread_local! {
        /// Number of steps until a writer fails.
        pub(in super::super) static STEPS_LEFT: Cell<Option<usize>> = const { Cell::new(None) };
        /// Number of steps until the process is killed.
        pub(in super::super) static KILL_IN: Cell<Option<usize>> = const { Cell::new(None) };
    }

    pub(super) fn step() -> Result<()> {
        if let Some(left) = STEPS_LEFT.get() {
            match left.checked_sub(1) {
                Some(left) => STEPS_LEFT.set(Some(left)),
                None => bail!("stopped"),
            }
        }
        if let Some(left) = KILL_IN.get() {
            if left == 0 {
                let own = std::process::id().to_string();
                let killed = std::process::Command::new("kill")
                    .args(["-9", &own])
                    .status();
                bail!("not killed: {killed:?}");
            }
            KILL_IN.set(Some(left - 1));
        }
        Ok(())
    }
}
