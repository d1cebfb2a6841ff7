//! A directory behind a URL.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use perfquet_trace::remote::{RemoteFile, RemotePlace};

use crate::address::Address;
use crate::file::File;
use crate::reading::{Inner, version};
use crate::running;
use crate::writing::{Listed, PIECE, Upload, Version};

/// Small files that are read at once.
const AT_ONCE: usize = 32;
/// Small files that are written at once.
const UPLOADS: usize = 8;
/// The end of an archive: its directory, if it is not large.
const TAIL: u64 = 128 << 10;
/// Maximum number of files in a directory.
const MOST_NAMES: usize = 10_000_000;

/// A directory, or a file, behind a URL.
#[derive(Debug)]
pub struct Place {
    shown: String,
    key: Path,
    lists: bool,
    inner: Arc<Inner>,
}

impl Place {
    /// Opens the place at a URL. Nothing is asked of the server.
    ///
    /// # Errors
    ///
    /// The URL is invalid, or the environment has invalid settings of its store.
    pub fn open(url: &str) -> io::Result<Place> {
        let address = Address::parse(url)?;
        Ok(Place {
            shown: address.shown,
            key: address.key,
            lists: address.lists,
            inner: Arc::new(Inner::new(address.store, address.secrets)),
        })
    }

    /// Returns whether files can be written: in an object store, not over HTTP.
    pub fn is_writable(&self) -> bool {
        self.lists
    }

    /// Reads a small file and its version; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// The server refuses or does not answer.
    pub fn read_versioned(&self, name: &str) -> io::Result<Option<(Bytes, Version)>> {
        let (key, inner) = (self.key(name)?, Arc::clone(&self.inner));
        let read = running::wait(async move { inner.versioned(&key).await });
        read.map_err(|error| self.named(name, &error))
    }

    /// Writes a small file if it still has this version, or without one, if it does not exist. Returns its new version; `None` if another
    /// process has written it since.
    ///
    /// # Errors
    ///
    /// The server refuses or does not answer.
    pub fn replace(
        &self,
        name: &str,
        text: Vec<u8>,
        former: Option<Version>,
    ) -> io::Result<Option<Version>> {
        let (key, inner) = (self.key(name)?, Arc::clone(&self.inner));
        let written = running::wait(async move { inner.replace(&key, text.into(), former).await });
        written.map_err(|error| self.named(name, &error))
    }

    /// Writes files, small ones several at once, each in place of what has its name.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or the server refuses or does not answer.
    pub fn upload(&self, files: Vec<Upload>) -> io::Result<()> {
        let (small, large): (Vec<Upload>, Vec<Upload>) = files
            .into_iter()
            .partition(|file| file.content.bytes() <= PIECE);
        self.upload_at_once(small, UPLOADS)?;
        // Of a large one, several pieces are in memory.
        self.upload_at_once(large, 1)
    }

    fn upload_at_once(&self, files: Vec<Upload>, at_once: usize) -> io::Result<()> {
        let keyed = |file: Upload| Ok((self.key(&file.name)?, file));
        let files: Vec<(Path, Upload)> = files.into_iter().map(keyed).collect::<io::Result<_>>()?;
        let inner = Arc::clone(&self.inner);
        let sent = running::wait(async move {
            let sent = stream::iter(files).map(|(key, file)| {
                let inner = Arc::clone(&inner);
                async move {
                    let sent = inner.upload(&key, &file.content).await;
                    sent.map_err(|error| {
                        io::Error::new(error.kind(), format!("{}: {error}", file.name))
                    })
                }
            });
            let sent = sent.buffer_unordered(at_once);
            sent.try_collect::<Vec<()>>().await
        });
        sent.map(drop)
            .map_err(|error| io::Error::new(error.kind(), format!("{}/{error}", self.shown)))
    }

    /// Removes files; those that do not exist are no errors.
    ///
    /// # Errors
    ///
    /// The server refuses or does not answer.
    pub fn remove(&self, names: &[String]) -> io::Result<()> {
        let keys = names.iter().map(|name| self.key(name));
        let keys: Vec<Path> = keys.collect::<io::Result<_>>()?;
        let inner = Arc::clone(&self.inner);
        let removed = running::wait(async move { inner.remove(keys).await });
        removed.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.shown)))
    }

    /// Returns all files below.
    ///
    /// # Errors
    ///
    /// The server refuses, does not answer, or cannot list.
    pub fn all(&self) -> io::Result<Vec<Listed>> {
        let (key, inner) = (self.key.clone(), Arc::clone(&self.inner));
        let listed = running::wait(async move { inner.all(&key).await });
        listed.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.shown)))
    }

    /// The key of a file below.
    fn key(&self, name: &str) -> io::Result<Path> {
        let invalid = |error: object_store::path::Error| {
            io::Error::new(ErrorKind::InvalidInput, error.to_string())
        };
        let below = Path::parse(name).map_err(invalid)?;
        Ok(Path::from_iter(self.key.parts().chain(below.parts())))
    }

    fn named(&self, name: &str, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}/{name}: {error}", self.shown))
    }
}

impl RemotePlace for Place {
    fn shown(&self) -> &str {
        &self.shown
    }

    fn read(&self, name: &str, most: u64) -> io::Result<Option<Bytes>> {
        let (key, inner) = (self.key(name)?, Arc::clone(&self.inner));
        let read = running::wait(async move { inner.small(&key, most).await });
        read.map_err(|error| self.named(name, &error))
    }

    fn read_all(&self, names: &[String], most: u64) -> io::Result<Vec<Option<Bytes>>> {
        let keys = names.iter().map(|name| self.key(name));
        let keys: Vec<Path> = keys.collect::<io::Result<_>>()?;
        let inner = Arc::clone(&self.inner);
        let read = running::wait(async move {
            let read = stream::iter(keys).map(|key| {
                let inner = Arc::clone(&inner);
                async move {
                    let read = inner.small(&key, most).await;
                    read.map_err(|error| io::Error::new(error.kind(), format!("{key}: {error}")))
                }
            });
            read.buffered(AT_ONCE).try_collect().await
        });
        read.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.shown)))
    }

    fn names(&self, folder: &str) -> io::Result<Vec<String>> {
        if !self.lists {
            let message = format!("{}: directories cannot be listed over HTTP", self.shown);
            return Err(io::Error::new(ErrorKind::Unsupported, message));
        }
        let folder_key = match folder {
            "" => self.key.clone(),
            folder => self.key(folder)?,
        };
        let inner = Arc::clone(&self.inner);
        let listed = running::wait(async move {
            let mut names = Vec::new();
            let result = inner.list(&folder_key).await?;
            for key in result
                .common_prefixes
                .iter()
                .chain(result.objects.iter().map(|object| &object.location))
            {
                names.extend(key.filename().map(str::to_owned));
            }
            if names.len() > MOST_NAMES {
                return Err(io::Error::other("the directory has too many files"));
            }
            names.sort();
            Ok(names)
        });
        listed.map_err(|error| self.named(folder, &error))
    }

    fn file(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn RemoteFile>> {
        Ok(Arc::new(File {
            inner: Arc::clone(&self.inner),
            key: self.key(name)?,
            shown: format!("{}/{name}", self.shown),
            bytes,
            tail: Bytes::new(),
            version: String::new(),
        }))
    }

    fn whole(&self) -> io::Result<Arc<dyn RemoteFile>> {
        let (key, inner) = (self.key.clone(), Arc::clone(&self.inner));
        let (meta, tail) = running::wait(async move { inner.tail(&key, TAIL).await })?;
        Ok(Arc::new(File {
            inner: Arc::clone(&self.inner),
            key: self.key.clone(),
            shown: self.shown.clone(),
            bytes: meta.size,
            tail,
            version: version(&meta),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;

    /// A server of one file, which ignores ranges, as Python's does.
    fn server_without_ranges(content: &'static [u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/a.pqtz", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                // A client that closes a connection, or keeps one open, ends nothing but that.
                std::thread::spawn(move || {
                    let reader = BufReader::new(stream.try_clone().unwrap());
                    let mut lines = reader.lines().map_while(Result::ok);
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
                        content.len()
                    );
                    while lines.any(|line| line.is_empty()) {
                        let sent = stream.write_all(head.as_bytes());
                        if sent.and_then(|()| stream.write_all(content)).is_err() {
                            break;
                        }
                    }
                });
            }
        });
        url
    }

    #[test]
    fn servers_without_ranges_send_files_whole() {
        static LARGE: [u8; 3 << 20] = [7; 3 << 20];
        for content in [&b"0123456789"[..], &LARGE] {
            let place = Place::open(&server_without_ranges(content)).unwrap();
            let file = place.whole().unwrap();
            let bytes = content.len() as u64;
            assert_eq!(file.bytes(), bytes);
            assert_eq!(file.range(2, 5).unwrap(), content[2..7]);
            assert_eq!(file.range(0, bytes).unwrap(), content);
            let read = running::wait(file.ranges(vec![0..1, bytes - 3..bytes])).unwrap();
            assert_eq!(read, [&content[..1], &content[content.len() - 3..]]);
        }
    }
}
