//! One request for bytes: the answer is checked against what is known of the file, and bounded.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, GetResult, ListResult, ObjectMeta, ObjectStore};

use crate::blocks::{Block, Blocks, Key};
use crate::client::LARGEST;
use crate::failure;

/// A million files take a minute.
const LONGEST_LIST: Duration = Duration::from_secs(300);

/// Place of the block that is the whole of a file, which the reading of another block may need.
const WHOLE: u64 = u64::MAX;

/// A store, and what was read of it.
#[derive(Debug)]
pub(crate) struct Inner {
    store: Arc<dyn ObjectStore>,
    secrets: Vec<String>,
    blocks: Blocks,
    versions: Mutex<HashMap<Path, String>>,
    has_no_ranges: AtomicBool,
}

impl Inner {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, secrets: Vec<String>) -> Inner {
        Inner {
            store,
            secrets,
            blocks: Blocks::default(),
            versions: Mutex::default(),
            has_no_ranges: AtomicBool::new(false),
        }
    }

    pub(crate) fn store(&self) -> &dyn ObjectStore {
        self.store.as_ref()
    }

    pub(crate) fn block_of(&self, file: &Path, start: u64, bytes: u64) -> Block {
        let file = file.clone();
        self.blocks.block(Key { file, start }, bytes)
    }

    fn has_no_ranges(&self) -> bool {
        self.has_no_ranges.load(Ordering::Relaxed)
    }

    fn set_no_ranges(&self) {
        self.has_no_ranges.store(true, Ordering::Relaxed);
    }

    /// Whether earlier answers had the same version of a file.
    fn is_known_version(&self, file: &Path, version: String) -> bool {
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        *versions
            .entry(file.clone())
            .or_insert_with(|| version.clone())
            == version
    }
}

/// Version of a file by its server.
pub(crate) fn version(meta: &ObjectMeta) -> String {
    format!("{:?} {:?} {}", meta.e_tag, meta.version, meta.last_modified)
}

impl Inner {
    /// Sends a list request.
    pub(crate) async fn list(&self, folder: &Path) -> io::Result<ListResult> {
        let listed = self.store.list_with_delimiter(Some(folder));
        match tokio::time::timeout(LONGEST_LIST, listed).await {
            Ok(listed) => listed.map_err(|error| self.failed(&error)),
            Err(_) => Err(io::Error::other("the list of the directory does not end")),
        }
    }

    /// Reads a file that is not large; `None` if it does not exist.
    pub(crate) async fn small(&self, file: &Path, most: u64) -> io::Result<Option<Bytes>> {
        let result = match self.store.get_opts(file, GetOptions::default()).await {
            Ok(result) => result,
            Err(Error::NotFound { source, .. }) if !source.to_string().contains("NoSuchBucket") => {
                return Ok(None);
            }
            Err(error) => return Err(self.failed(&error)),
        };
        if result.meta.size > most.min(LARGEST) {
            let message = format!(
                "expected a small file, found one of {} bytes",
                result.meta.size
            );
            return Err(io::Error::other(message));
        }
        let size = result.meta.size;
        self.body(result, size).await.map(Some)
    }

    /// Reads a range of a file that has `total` bytes.
    pub(crate) async fn range(
        &self,
        file: &Path,
        range: Range<u64>,
        total: u64,
    ) -> io::Result<Bytes> {
        if self.has_no_ranges() {
            return self.range_of_all(file, range, total).await;
        }
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            ..GetOptions::default()
        };
        match self.store.get_opts(file, options).await {
            Ok(result) => {
                self.check(file, &result.meta, total)?;
                self.body(result, range.end - range.start).await
            }
            Err(Error::NotSupported { .. }) => {
                self.set_no_ranges();
                self.range_of_all(file, range, total).await
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// The last bytes of a file, at most `most`, with its metadata.
    pub(crate) async fn tail(&self, file: &Path, most: u64) -> io::Result<(ObjectMeta, Bytes)> {
        let options = GetOptions {
            range: Some(GetRange::Suffix(most)),
            ..GetOptions::default()
        };
        let result = match self.store.get_opts(file, options).await {
            Ok(result) => result,
            Err(Error::NotSupported { .. }) => {
                self.set_no_ranges();
                let result = self.store.get_opts(file, GetOptions::default()).await;
                result.map_err(|error| self.failed(&error))?
            }
            Err(error) => return Err(self.failed(&error)),
        };
        let meta = result.meta.clone();
        self.check(file, &meta, meta.size)?;
        let count = result.range.end.saturating_sub(result.range.start);
        Ok((meta, self.body(result, count).await?))
    }

    /// A range from a server that only sends whole files.
    async fn range_of_all(&self, file: &Path, range: Range<u64>, total: u64) -> io::Result<Bytes> {
        if total > LARGEST {
            let message = format!(
                "the server sends no ranges of files, and this one has {} MiB\nhint: download it",
                total >> 20
            );
            return Err(io::Error::other(message));
        }
        let all = self
            .block_of(file, WHOLE, total)
            .get_or_try_init(|| async {
                let result = self.store.get_opts(file, GetOptions::default()).await;
                let result = result.map_err(|error| self.failed(&error))?;
                self.check(file, &result.meta, total)?;
                self.body(result, total).await
            })
            .await?
            .clone();
        Ok(all.slice(range.start as usize..range.end as usize))
    }

    /// The bytes of an answer, which must be as many as expected.
    pub(crate) async fn body(&self, result: GetResult, expected: u64) -> io::Result<Bytes> {
        let mut stream = result.into_stream();
        let mut bytes = BytesMut::new();
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(|error| self.failed(&error))?;
            bytes.extend_from_slice(&chunk);
            if bytes.len() as u64 > expected {
                break;
            }
        }
        let found = bytes.len() as u64;
        if found == expected {
            return Ok(bytes.freeze());
        }
        let more = if found > expected { "more" } else { "fewer" };
        Err(io::Error::other(format!(
            "expected {expected} bytes, and the server sends {more}"
        )))
    }

    /// Whether the file is still that of the manifest, and of earlier answers.
    fn check(&self, file: &Path, meta: &ObjectMeta, total: u64) -> io::Result<()> {
        let is_same = self.is_known_version(file, version(meta));
        if meta.size == total && is_same {
            return Ok(());
        }
        let message = match is_same {
            true => format!(
                "expected a file of {total} bytes, as in the manifest, found {}",
                meta.size
            ),
            false => "the file changed while it was read".to_owned(),
        };
        Err(io::Error::other(format!(
            "{message}\nhint: open it again: it may have been replaced"
        )))
    }

    pub(crate) fn failed(&self, error: &Error) -> io::Error {
        failure::of(error, &self.secrets)
    }
}
