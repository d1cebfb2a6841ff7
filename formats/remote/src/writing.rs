//! Files written to an object store: small ones whole, large ones in pieces, and records on the condition that nobody else has written them.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::StreamExt as _;
use object_store::path::Path;
use object_store::{
    Error, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, PutResult, UpdateVersion,
    WriteMultipart,
};

use crate::client::LARGEST;
use crate::reading::Inner;

/// Larger files are sent in pieces of this size.
pub(crate) const PIECE: u64 = 8 << 20;
/// Pieces that are sent at once.
const AT_ONCE: usize = 4;
/// Attempts to send a file, each with the repeated requests of the client.
const ATTEMPTS: u32 = 3;
/// Pause after the first attempt, doubled by the next one.
const PAUSE: Duration = Duration::from_millis(500);
/// Maximum number of files in a list.
const MOST_FILES: usize = 100_000_000;

/// The version of a file that was read or written; it changes with each write.
#[derive(Debug, Clone)]
pub struct Version(UpdateVersion);

impl Version {
    fn of(written: PutResult) -> Version {
        Version(UpdateVersion {
            e_tag: written.e_tag,
            version: written.version,
        })
    }
}

/// A file to write.
#[derive(Debug, Clone)]
pub struct Upload {
    /// Name below the place.
    pub name: String,
    /// What it contains.
    pub content: Content,
}

/// Content of a file to write.
#[derive(Debug, Clone)]
pub enum Content {
    /// A small text.
    Text(Vec<u8>),
    /// A local file of this size.
    File(PathBuf, u64),
}

impl Content {
    /// Returns the size.
    pub fn bytes(&self) -> u64 {
        match self {
            Content::Text(text) => text.len() as u64,
            Content::File(_, bytes) => *bytes,
        }
    }
}

/// A file in a list.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Name below the place.
    pub name: String,
    /// Size of the file.
    pub bytes: u64,
    /// When it was written, by the clock of the store.
    pub modified: SystemTime,
}

impl Inner {
    /// Reads a small file and its version; `None` if it does not exist.
    pub(crate) async fn versioned(&self, file: &Path) -> io::Result<Option<(Bytes, Version)>> {
        let result = match self.store().get(file).await {
            Ok(result) => result,
            Err(Error::NotFound { source, .. }) if !source.to_string().contains("NoSuchBucket") => {
                return Ok(None);
            }
            Err(error) => return Err(self.failed(&error)),
        };
        let version = Version(UpdateVersion {
            e_tag: result.meta.e_tag.clone(),
            version: result.meta.version.clone(),
        });
        let size = result.meta.size;
        if size > LARGEST {
            return Err(io::Error::other("expected a small file"));
        }
        Ok(Some((self.body(result, size).await?, version)))
    }

    /// Writes a small file if it still has this version, or without one, if it does not exist. `None` if somebody else has written it since.
    pub(crate) async fn replace(
        &self,
        file: &Path,
        text: Bytes,
        former: Option<Version>,
    ) -> io::Result<Option<Version>> {
        let mode = match &former {
            Some(Version(version)) => PutMode::Update(version.clone()),
            None => PutMode::Create,
        };
        let mut attempt = 1;
        loop {
            let options = PutOptions::from(mode.clone());
            let payload = PutPayload::from(text.clone());
            let error = match self.store().put_opts(file, payload, options).await {
                Ok(written) => return Ok(Some(Version::of(written))),
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {
                    // An answer that was lost makes the repeated request meet its own file.
                    let found = self.versioned(file).await?;
                    let found = found.filter(|(found, _)| *found == text);
                    return Ok(found.map(|(_, version)| version));
                }
                // The user has turned conditions off.
                Err(Error::NotImplemented { .. }) => {
                    let put = self.store().put(file, text.clone().into()).await;
                    return put
                        .map(|written| Some(Version::of(written)))
                        .map_err(|error| self.failed(&error));
                }
                Err(error) => self.failed(&error),
            };
            if error.to_string().contains("501 Not Implemented") {
                let hint = "hint: the store has no conditional writes; with AWS_CONDITIONAL_PUT=disabled, one process at a time may publish";
                return Err(io::Error::other(format!("{error}\n{hint}")));
            }
            if attempt == ATTEMPTS || !may_pass(&error) {
                return Err(error);
            }
            pause(attempt).await;
            attempt += 1;
        }
    }

    /// Writes a file, whatever is there.
    pub(crate) async fn upload(&self, file: &Path, content: &Content) -> io::Result<()> {
        let mut attempt = 1;
        loop {
            let sent = match content {
                Content::Text(text) => self.put(file, text.clone()).await,
                Content::File(from, bytes) => {
                    let source = File::open(from)?;
                    let found = source.metadata()?.len();
                    if found != *bytes {
                        return Err(io::Error::new(
                            ErrorKind::InvalidData,
                            format!(
                                "expected {bytes} bytes in {}, found {found}",
                                from.display()
                            ),
                        ));
                    }
                    match found <= PIECE {
                        true => {
                            let mut content = Vec::new();
                            source.take(PIECE).read_to_end(&mut content)?;
                            self.put(file, content).await
                        }
                        false => self.put_in_pieces(file, source).await,
                    }
                }
            };
            match sent {
                Err(error) if attempt < ATTEMPTS && may_pass(&error) => {
                    log::debug!("{file}: {error}");
                    pause(attempt).await;
                    attempt += 1;
                }
                sent => return sent,
            }
        }
    }

    async fn put(&self, file: &Path, content: Vec<u8>) -> io::Result<()> {
        let put = self.store().put(file, PutPayload::from(content)).await;
        put.map(drop).map_err(|error| self.failed(&error))
    }

    async fn put_in_pieces(&self, file: &Path, mut source: File) -> io::Result<()> {
        let begun = self.store().put_multipart(file).await;
        let begun = begun.map_err(|error| self.failed(&error))?;
        let mut writer = WriteMultipart::new_with_chunk_size(begun, PIECE as usize);
        let mut piece = vec![0; PIECE as usize];
        let sent = loop {
            let count = match source.read(&mut piece) {
                Ok(0) => break Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => break Err(error),
            };
            if let Err(error) = writer.wait_for_capacity(AT_ONCE).await {
                break Err(self.failed(&error));
            }
            writer.write(piece.get(..count).unwrap_or_default());
        };
        if let Err(error) = sent {
            let _ = writer.abort().await;
            return Err(error);
        }
        // An error aborts the upload.
        let finished = writer.finish().await;
        finished.map(drop).map_err(|error| self.failed(&error))
    }

    /// Removes files, those that exist: in a store that can, many with one request.
    pub(crate) async fn remove(&self, files: Vec<Path>) -> io::Result<()> {
        let files = futures::stream::iter(files.into_iter().map(Ok)).boxed();
        let mut removed = self.store().delete_stream(files);
        while let Some(removed) = removed.next().await {
            match removed {
                Ok(_) | Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(self.failed(&error)),
            }
        }
        Ok(())
    }

    /// All files below a directory.
    pub(crate) async fn all(&self, folder: &Path) -> io::Result<Vec<Listed>> {
        let mut files = Vec::new();
        let mut listed = self.store().list(Some(folder));
        while let Some(file) = listed.next().await {
            let file = file.map_err(|error| self.failed(&error))?;
            let below = file.location.prefix_match(folder);
            let Some(below) = below else {
                continue;
            };
            files.push(Listed {
                name: Path::from_iter(below).as_ref().to_owned(),
                bytes: file.size,
                modified: file.last_modified.into(),
            });
            if files.len() > MOST_FILES {
                return Err(io::Error::other("the directory has too many files"));
            }
        }
        Ok(files)
    }
}

/// Whether the next attempt may not have this error.
fn may_pass(error: &io::Error) -> bool {
    !matches!(
        error.kind(),
        ErrorKind::NotFound
            | ErrorKind::PermissionDenied
            | ErrorKind::InvalidInput
            | ErrorKind::InvalidData
    )
}

async fn pause(attempt: u32) {
    tokio::time::sleep(PAUSE * 2_u32.pow(attempt - 1)).await;
}
