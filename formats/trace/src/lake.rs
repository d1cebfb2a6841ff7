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

mod address;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};

use perfquet_events::Error;
use perfquet_events::event::Place;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::store::{Directory, Manifest};

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
/// Maximum size of a file of the administration.
const LARGEST: u64 = 256 << 20;

/// Version and keys of a lake.
#[derive(Debug, Serialize, Deserialize)]
pub struct Head {
    /// Version of the layout, [`VERSION`].
    pub version: u32,
    /// Keys of the partition, outermost first.
    pub partition: Vec<String>,
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
    /// Files with its rows, that of `traces` last.
    pub files: Vec<Entry>,
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

/// A lake that is being opened. Writers wait until it is dropped.
#[derive(Debug)]
pub struct Lake {
    root: PathBuf,
    /// `None` if the file system has no locks, or the lake no file for them.
    _lock: Option<File>,
    changing: BTreeSet<String>,
}

impl Lake {
    /// Opens the lake in a directory, and waits for a writer that is changing it.
    pub fn open(root: &Path) -> Result<Lake, Error> {
        let root = root.canonicalize().map_err(Error::io(root))?;
        let unfit = |message: String| Error::Unsupported {
            input: root.display().to_string(),
            message,
        };
        let Some(head) = read::<Head>(&root, HEAD)? else {
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
        let path = inside(&root, LOCK)?;
        let lock = File::options()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(&path)
            .and_then(|file| file.lock_shared().map(|()| file));
        if let Err(error) = &lock {
            log::debug!("{}: {error}", path.display());
        }
        let pending = read::<Change>(&root, PENDING)?.unwrap_or_default();
        let records = pending.records.into_iter().map(|record| record.trace);
        let changing = records.chain(pending.forget).collect();
        Ok(Lake {
            root,
            _lock: lock.ok(),
            changing,
        })
    }

    /// Returns the directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the names of the traces that a killed writer left half changed; also those that one is changing, without locks.
    pub fn changing(&self) -> &BTreeSet<String> {
        &self.changing
    }

    /// Returns the records of all traces but the changing ones, by name.
    pub fn records(&self) -> Result<Vec<Record>, Error> {
        let folder = inside(&self.root, RECORDS)?;
        let mut names = Vec::new();
        match std::fs::read_dir(&folder) {
            Err(error) if is_missing(&error) => {}
            entries => {
                for entry in entries.map_err(Error::io(&folder))? {
                    let name = entry.map_err(Error::io(&folder))?.file_name();
                    let name = name.to_string_lossy();
                    names.extend(name.strip_suffix(".json").map(str::to_owned));
                }
            }
        }
        names.sort();
        let records = names.iter().map(|name| self.record(name));
        Ok(records
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .flatten()
            .collect())
    }

    /// Returns the record of a trace; `None` if it is not in the lake, or changing.
    pub fn record(&self, trace: &str) -> Result<Option<Record>, Error> {
        if self.changing.contains(trace) || !is_name(trace) {
            return Ok(None);
        }
        let name = format!("{RECORDS}/{trace}.json");
        let record: Option<Record> = read(&self.root, &name)?;
        match record {
            Some(record) if record.trace != trace => Err(Error::Damaged {
                input: self.root.join(name).display().to_string(),
                place: Place::Whole,
                message: format!("expected the record of {trace}, found {:?}", record.trace),
            }),
            record => Ok(record),
        }
    }

    /// Opens a trace; `None` if it was published without a manifest, by an earlier version.
    pub fn trace(&self, record: &Record) -> Result<Option<Directory>, Error> {
        let name = format!("{MANIFESTS}/{}.json", record.trace);
        let Some(manifest) = read::<Manifest>(&self.root, &name)? else {
            return Ok(None);
        };
        let manifest = manifest.of_lake(&self.root.join(name))?;
        Ok(Some(Directory::below(&self.root, manifest)))
    }
}

/// Whether this can be the name of a trace in a lake.
fn is_name(trace: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    !trace.is_empty() && trace.bytes().all(is_plain)
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
    match serde_json::from_slice(&text) {
        Ok(value) => Ok(Some(value)),
        Err(error) => Err(Error::Damaged {
            input: path.display().to_string(),
            place: Place::Line(error.line() as u64),
            message: format!("damaged: {error}"),
        }),
    }
}

/// Whether a file does not exist.
pub fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
