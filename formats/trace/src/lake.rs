//! Lakes: directories with the rows of many traces, each table above its partitions. `perfquet-convert --to lake` writes them.
//!
//! ```text
//! LAKE/samples/date=2026-11-22/host=h001/perf-1f….parquet   rows of a table
//! LAKE/_perfquet/lake.json                                  version and keys of the partition
//! LAKE/_perfquet/lock                                       held exclusively while files get their names, shared by readers
//! LAKE/_perfquet/pending.json                               a change that is decided: the next writer completes it
//! LAKE/_perfquet/traces/perf-1f….json                       the files of a published trace, host and date
//! LAKE/_perfquet/manifests/perf-1f….json                    its manifest; parts are rows of files of the lake
//! ```
//! A trace is in the lake if it has a record and no pending change. No path of a lake is followed through a symbolic link.
//!
//! An object store has neither renames nor locks. There, each writer gives its files names of their own, and the record, which it replaces
//! only if nobody else has, decides which of them are in the lake:
//! ```text
//! LAKE/samples/date=2026-11-22/host=h001/perf-1f….9a3c….parquet   written by 9a3c…, never replaced
//! LAKE/_perfquet/manifests/perf-1f….9a3c….json
//! LAKE/_perfquet/traces/perf-1f….json                             its files; those of a writer that is at work
//! ```

mod address;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use perfquet_events::Error;
use perfquet_events::event::Place;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::remote::{Remote, failure};
use crate::store::{Directory, Manifest, Root};

pub use address::{Address, Matches, few};

/// Version of the layout.
pub const VERSION: u32 = 2;
/// Directory of the lake's administration; engines ignore names with an underscore.
pub const OWN: &str = "_perfquet";
/// [`Head`].
pub const HEAD: &str = "_perfquet/lake.json";
/// Locked by writers and readers.
pub const LOCK: &str = "_perfquet/lock";
/// [`Change`].
pub const PENDING: &str = "_perfquet/pending.json";
/// A [`Record`] per trace.
pub const RECORDS: &str = "_perfquet/traces";
/// A manifest per trace.
pub const MANIFESTS: &str = "_perfquet/manifests";
/// The table with a row per trace.
const TRACES: &str = "traces";
/// Begins the names of files with the rows of several traces.
pub const SHARED: &str = "compact.";
/// The fact in the manifest of a trace that was published with summaries.
pub const SUMMARIES: &str = "lake.summaries";
/// Maximum size of a file of the administration.
const LARGEST: u64 = 256 << 20;

/// Version and keys of a lake.
#[derive(Debug, Serialize, Deserialize)]
pub struct Head {
    /// Version of the layout, [`VERSION`].
    pub version: u32,
    /// Keys of the partition, outermost first.
    pub partition: Vec<String>,
    /// Whether traces are published with summaries.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub summaries: bool,
}

/// A published trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its name in the lake.
    pub trace: String,
    /// Its own name; empty in lakes of version 1, which have no manifests.
    #[serde(default)]
    pub name: String,
    /// Checksum of what was published.
    pub content: String,
    /// Date of the recording, if known.
    pub date: Option<String>,
    /// Host, if known.
    #[serde(default)]
    pub host: Option<String>,
    /// Files with its rows, that of `traces` last. In an object store, none before the first writer of the trace is done, and after its removal.
    pub files: Vec<Entry>,
    /// Whether it was published with summaries.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub summaries: bool,
    /// The writer that is at work, or was killed, in an object store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// Former files that are still to be removed from an object store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leftover: Vec<String>,
}

/// A writer in an object store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Part of the names of its files.
    pub writer: String,
    /// Seconds since 1970 when it began.
    pub since: u64,
    /// Files that are in the lake only after it is done, or are being removed.
    pub files: Vec<String>,
}

impl Record {
    /// Returns whether the trace is in the lake.
    pub fn is_published(&self) -> bool {
        !self.files.is_empty()
    }

    /// Returns the path of its manifest.
    pub fn manifest(&self) -> String {
        let is_manifest = |entry: &&Entry| entry.path.starts_with(MANIFESTS);
        match self.files.iter().find(is_manifest) {
            Some(entry) => entry.path.clone(),
            None => format!("{MANIFESTS}/{}.json", self.trace),
        }
    }
}

/// Whether a file may have rows of several traces.
pub fn is_shared(path: &str) -> bool {
    let name = path.rsplit('/').next();
    name.is_some_and(|name| name.starts_with(SHARED))
}

/// A file of a lake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Below the lake.
    pub path: String,
    /// Size of the file.
    pub bytes: u64,
    /// The rows of the trace in the file; `None` if it has none, as its manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<EntryRows>,
}

/// Rows of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryRows {
    /// Number of rows of other traces before.
    pub first: u64,
    /// Number of rows.
    pub count: u64,
}

/// A decided change: files to rename, files to remove, and the records to write afterwards. Paths are relative to the lake.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Change {
    /// Files to remove before others get their names, which have their rows.
    #[serde(default)]
    pub first: Vec<String>,
    /// Files to rename.
    pub moves: Vec<(String, String)>,
    /// Files to remove.
    pub deletes: Vec<String>,
    /// Records to write.
    pub records: Vec<Record>,
    /// Names of traces that are no longer in the lake.
    pub forget: Vec<String>,
}

/// A lake that is being opened. Writers wait until it is dropped, except in object stores, which have no locks.
#[derive(Debug)]
pub struct Lake {
    place: LakePlace,
    /// `None` if the file system has no locks, or the lake no file for them.
    _lock: Option<File>,
    changing: BTreeSet<String>,
    partition: Vec<String>,
}

impl Lake {
    /// Opens the lake in a directory, and waits for a writer that is changing it.
    pub fn open(root: &Path) -> Result<Lake, Error> {
        let place = LakePlace::at(root)?;
        let unfit = |message: String| Error::Unsupported {
            input: place.path().display().to_string(),
            message,
        };
        let Some(head) = place.read::<Head>(HEAD)? else {
            return Err(unfit(format!(
                "expected a lake, found no {HEAD}\nhint: write one with: perfquet-convert TRACE... --to lake -o DIR"
            )));
        };
        if head.version > VERSION {
            return Err(unfit(format!(
                "unsupported version {} of a lake; the latest supported version is {VERSION}\nhint: use a newer perfquet",
                head.version
            )));
        }
        let lock = place.lock()?;
        let pending = place.read::<Change>(PENDING)?.unwrap_or_default();
        let records = pending.records.into_iter().map(|record| record.trace);
        let changing = records.chain(pending.forget).collect();
        Ok(Lake {
            place,
            partition: head.partition,
            _lock: lock,
            changing,
        })
    }

    /// Returns the directory, or the URL.
    pub fn root(&self) -> &Path {
        self.place.path()
    }

    /// Returns the names of the traces that a killed writer left half changed; also those that one is changing, without locks.
    pub fn changing(&self) -> &BTreeSet<String> {
        &self.changing
    }

    /// Returns the records of all traces but the changing ones, by name.
    pub fn records(&self) -> Result<Vec<Record>, Error> {
        let mut names: Vec<String> = Vec::new();
        for name in self.place.names(RECORDS)? {
            names.extend(name.strip_suffix(".json").map(str::to_owned));
        }
        names.sort();
        self.records_of(&names)
    }

    /// Returns the record of a trace; `None` if it is not in the lake, or changing.
    pub fn record(&self, trace: &str) -> Result<Option<Record>, Error> {
        Ok(self.records_of(&[trace.to_owned()])?.pop())
    }

    /// Returns the records of these traces, without those that are not in the lake, or changing.
    fn records_of(&self, traces: &[String]) -> Result<Vec<Record>, Error> {
        let is_there = |trace: &&String| !self.changing.contains(*trace) && is_trace_name(trace);
        let traces: Vec<&String> = traces.iter().filter(is_there).collect();
        let files: Vec<String> = traces
            .iter()
            .map(|trace| format!("{RECORDS}/{trace}.json"))
            .collect();
        let mut records = Vec::new();
        let read = self.place.read_all::<Record>(&files)?;
        for ((trace, file), record) in traces.into_iter().zip(files).zip(read) {
            match record {
                Some(record) if record.trace != *trace => {
                    return Err(Error::Damaged {
                        input: self.root().join(file).display().to_string(),
                        place: Place::Whole,
                        message: format!(
                            "expected the record of {trace}, found {:?}",
                            record.trace
                        ),
                    });
                }
                record => records.extend(record.filter(Record::is_published)),
            }
        }
        Ok(records)
    }

    /// Returns the names of the traces whose partitions are selected, by the names of directories alone. `None` if the lake is here, where
    /// records are read as fast, or if files have the rows of several traces.
    fn names_in(&self, selects: &dyn Fn(&str, &str) -> bool) -> Result<Option<Vec<String>>, Error> {
        if !matches!(self.place, LakePlace::Remote(_)) {
            return Ok(None);
        }
        let mut folders = vec![TRACES.to_owned()];
        for key in &self.partition {
            let mut next = Vec::new();
            for folder in folders {
                for name in self.place.names(&folder)? {
                    let value = name.strip_prefix(key.as_str());
                    let value = value.and_then(|rest| rest.strip_prefix('='));
                    if value.is_some_and(|value| selects(key, value)) {
                        next.push(format!("{folder}/{name}"));
                    }
                }
            }
            folders = next;
        }
        let mut traces = BTreeSet::new();
        for folder in folders {
            for name in self.place.names(&folder)? {
                match trace_of(&name) {
                    _ if is_shared(&name) => return Ok(None),
                    Some(trace) => traces.insert(trace.to_owned()),
                    None => continue,
                };
            }
        }
        Ok(Some(traces.into_iter().collect()))
    }

    /// Opens a trace; `None` if it was published without a manifest, by an earlier version.
    pub fn trace(&self, record: &Record) -> Result<Option<Directory>, Error> {
        Ok(self.traces(std::slice::from_ref(record))?.pop().flatten())
    }

    /// Opens traces, as [`Self::trace`].
    pub fn traces(&self, records: &[Record]) -> Result<Vec<Option<Directory>>, Error> {
        let files: Vec<String> = records.iter().map(Record::manifest).collect();
        let manifests = self.place.read_all::<Manifest>(&files)?;
        let opened = manifests.into_iter().zip(files).map(|(manifest, file)| {
            let Some(manifest) = manifest else {
                return Ok(None);
            };
            let manifest = manifest.of_lake(&self.root().join(file))?;
            Ok(Some(Directory::rooted(self.place.root(), manifest)))
        });
        opened.collect()
    }
}

/// Where the files of a lake are.
#[derive(Debug)]
enum LakePlace {
    Here(Arc<Path>),
    Remote(Arc<Remote>),
}

impl LakePlace {
    fn at(root: &Path) -> Result<LakePlace, Error> {
        match Remote::at(root) {
            Some(remote) => Ok(LakePlace::Remote(Arc::new(remote?))),
            None => {
                let root = root.canonicalize().map_err(Error::io(root))?;
                Ok(LakePlace::Here(root.into()))
            }
        }
    }

    fn path(&self) -> &Path {
        match self {
            LakePlace::Here(path) => path,
            LakePlace::Remote(remote) => remote.url(),
        }
    }

    fn root(&self) -> Root {
        match self {
            LakePlace::Here(path) => Root::Directory(Arc::clone(path)),
            LakePlace::Remote(remote) => Root::Remote(Arc::clone(remote)),
        }
    }

    /// `None` if the file system has no locks, or the lake no file for them.
    fn lock(&self) -> Result<Option<File>, Error> {
        let LakePlace::Here(root) = self else {
            return Ok(None);
        };
        let path = inside(root, LOCK)?;
        let lock = File::options()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(&path)
            .and_then(|file| file.lock_shared().map(|()| file));
        if let Err(error) = &lock {
            log::debug!("{}: {error}", path.display());
        }
        Ok(lock.ok())
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Error> {
        Ok(self.read_all(&[name.to_owned()])?.pop().flatten())
    }

    /// Reads files of the administration; `None` for those that do not exist.
    fn read_all<T: DeserializeOwned>(&self, names: &[String]) -> Result<Vec<Option<T>>, Error> {
        let remote = match self {
            LakePlace::Here(root) => return names.iter().map(|name| read(root, name)).collect(),
            LakePlace::Remote(remote) => remote,
        };
        let texts = remote.place().read_all(names, LARGEST);
        let texts = texts.map_err(|error| failure(remote.url(), &error))?;
        let value = |(name, text): (&String, Option<Bytes>)| match text {
            Some(text) => parse(&text, &remote.url().join(name)).map(Some),
            None => Ok(None),
        };
        names.iter().zip(texts).map(value).collect()
    }

    /// The names of files in a directory; none if it does not exist.
    fn names(&self, folder: &str) -> Result<Vec<String>, Error> {
        let root = match self {
            LakePlace::Here(root) => root,
            LakePlace::Remote(remote) => {
                let names = remote.place().names(folder);
                return names.map_err(|error| failure(remote.url(), &error));
            }
        };
        let folder = inside(root, folder)?;
        let mut names = Vec::new();
        match std::fs::read_dir(&folder) {
            Err(error) if is_missing(&error) => {}
            entries => {
                for entry in entries.map_err(Error::io(&folder))? {
                    let name = entry.map_err(Error::io(&folder))?.file_name();
                    names.push(name.to_string_lossy().into_owned());
                }
            }
        }
        Ok(names)
    }
}

/// Whether this can be the name of a trace in a lake: letters, digits, `_` and `-`.
pub fn is_trace_name(trace: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    !trace.is_empty() && trace.bytes().all(is_plain)
}

/// The trace with rows in a file: `perf-1f.parquet`, or `perf-1f.9a3c.parquet` by a writer in an object store.
fn trace_of(file: &str) -> Option<&str> {
    let name = file.strip_suffix(".parquet")?;
    let (trace, writer) = name.split_once('.').unwrap_or((name, "x"));
    (is_trace_name(trace) && is_trace_name(writer)).then_some(trace)
}

/// Returns the path of a name below a lake, which contains no link.
pub fn inside(root: &Path, name: &str) -> Result<PathBuf, Error> {
    let unfit = |path: &Path, message: String| {
        Err(Error::Unsupported {
            input: path.display().to_string(),
            message,
        })
    };
    let mut path = root.to_owned();
    let mut steps = Path::new(name).components().peekable();
    if steps.peek().is_none() {
        let message = "expected a path inside of the lake, found none";
        return unfit(root, message.to_owned());
    }
    while let Some(step) = steps.next() {
        let Component::Normal(step) = step else {
            return unfit(
                root,
                format!("expected a path inside of the lake, found {name:?}"),
            );
        };
        path.push(step);
        let found = path.symlink_metadata();
        if found.as_ref().is_ok_and(|found| found.is_symlink()) {
            let message = "expected no symbolic link in a lake";
            return unfit(&path, message.to_owned());
        }
        if steps.peek().is_some() && found.is_ok_and(|found| !found.is_dir()) {
            return unfit(&path, "expected a directory".to_owned());
        }
    }
    Ok(path)
}

/// Reads a file of the administration of a lake; `None` if there is none.
pub fn read<T: DeserializeOwned>(root: &Path, name: &str) -> Result<Option<T>, Error> {
    let path = inside(root, name)?;
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(&path);
    let file = match file {
        Err(error) if is_missing(&error) => return Ok(None),
        file => file.map_err(Error::io(&path))?,
    };
    let found = file.metadata().map_err(Error::io(&path))?;
    if !found.is_file() || found.len() > LARGEST {
        let error = io::Error::other("expected a small file, found a large or special one");
        return Err(Error::io(&path)(error));
    }
    let mut text = Vec::new();
    file.take(LARGEST)
        .read_to_end(&mut text)
        .map_err(Error::io(&path))?;
    parse(&text, &path).map(Some)
}

fn parse<T: DeserializeOwned>(text: &[u8], path: &Path) -> Result<T, Error> {
    serde_json::from_slice(text).map_err(|error| Error::Damaged {
        input: path.display().to_string(),
        place: Place::Line(error.line() as u64),
        message: format!("damaged: {error}"),
    })
}

/// Whether a file does not exist.
pub fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_the_names_of_their_traces() {
        let check = |file: &str, trace: Option<&str>| assert_eq!(trace_of(file), trace, "{file}");
        check("a_b-1f.parquet", Some("a_b-1f"));
        check("a-1f.9a3c.parquet", Some("a-1f"));
        check("a-1f.9a.3c.parquet", None);
        check("a-1f.json", None);
        check(".parquet", None);
        assert!(is_shared("samples/host=a/compact.1f.parquet"));
        assert!(!is_shared("samples/compact.1f/a.parquet"));
    }
}
