//! Traces and lakes at URLs. This crate has no HTTP client: a program that can read URLs installs one.
//!
//! ```text
//! s3://bucket/runs/a.pqt         a trace directory in an object store (also gs:// and az://)
//! https://host/a.pqtz            a trace as one file
//! lake:s3://bucket/lake?host=h*  a lake
//! ```
//! Nothing is listed to open a trace: its manifest names the parts and their sizes.

use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use perfquet_events::Error;

/// What begins the URLs of places.
pub const SCHEMES: [&str; 8] = [
    "s3://", "s3a://", "gs://", "az://", "azure://", "abfss://", "https://", "http://",
];

/// Ranges of a file that are being read.
pub type Fetch = Pin<Box<dyn Future<Output = io::Result<Vec<Bytes>>> + Send>>;

/// A file behind a URL.
pub trait RemoteFile: Debug + Send + Sync {
    /// Returns its size.
    fn bytes(&self) -> u64;

    /// Returns what tells its versions apart, and when it was written, as far as the server says so.
    fn version(&self) -> String;

    /// Reads a range, and waits for it.
    ///
    /// # Errors
    ///
    /// The server does not answer, or not with these bytes of a file of that size.
    fn range(&self, start: u64, count: u64) -> io::Result<Bytes>;

    /// Reads ranges at once.
    fn ranges(self: Arc<Self>, ranges: Vec<Range<u64>>) -> Fetch;
}

/// A directory behind a URL.
pub trait RemotePlace: Debug + Send + Sync {
    /// Returns the URL without password and query.
    fn shown(&self) -> &str;

    /// Reads a small file whole; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// The server refuses or does not answer, or the file is larger than `most`.
    fn read(&self, name: &str, most: u64) -> io::Result<Option<Bytes>>;

    /// [`Self::read`] of many files, several at once, in the order of their names.
    ///
    /// # Errors
    ///
    /// Those of `read`.
    fn read_all(&self, names: &[String], most: u64) -> io::Result<Vec<Option<Bytes>>>;

    /// Returns the names of the files in a directory.
    ///
    /// # Errors
    ///
    /// The server refuses, does not answer, or cannot list.
    fn names(&self, folder: &str) -> io::Result<Vec<String>>;

    /// Opens a file of a known size without asking the server.
    ///
    /// # Errors
    ///
    /// The name is invalid.
    fn file(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn RemoteFile>>;

    /// Asks for the size of the file that the URL itself names.
    ///
    /// # Errors
    ///
    /// There is none, or the server refuses or does not answer.
    fn whole(&self) -> io::Result<Arc<dyn RemoteFile>>;
}

/// A client for URLs.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    /// Opens the directory or file at a URL, without asking the server.
    pub open: fn(url: &str) -> io::Result<Arc<dyn RemotePlace>>,
}

static OPENED: AtomicU64 = AtomicU64::new(0);
static CLIENT: OnceLock<Client> = OnceLock::new();

/// Sets the client of this process. Only the first is used.
pub fn install(client: Client) {
    let _ = CLIENT.set(client);
}

/// A directory, or a trace as one file, behind a URL.
#[derive(Debug)]
pub struct Remote {
    url: PathBuf,
    number: u64,
    place: Arc<dyn RemotePlace>,
}

impl Remote {
    /// Returns the place of a URL; `None` if the path is a local one.
    pub fn at(path: &Path) -> Option<Result<Remote, Error>> {
        let url = path.to_str().filter(|url| is_url(url))?;
        let failed = |message: String| Error::Unsupported {
            input: url.to_owned(),
            message,
        };
        let Some(client) = CLIENT.get() else {
            return Some(Err(failed(
                "this program reads no URLs\nhint: perfquet-query does".to_owned(),
            )));
        };
        let place = (client.open)(url).map_err(|error| failure(path, &error));
        Some(place.map(|place| Remote {
            url: place.shown().into(),
            number: OPENED.fetch_add(1, Ordering::Relaxed),
            place,
        }))
    }

    /// Returns the URL, without password and query.
    pub fn url(&self) -> &Path {
        &self.url
    }

    /// Returns a number that no other place of this process has.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the files.
    pub fn place(&self) -> &dyn RemotePlace {
        self.place.as_ref()
    }
}

/// An error of a server, whose text may begin in the URL of a file.
pub(crate) fn failure(url: &Path, error: &io::Error) -> Error {
    let (url, text) = (url.to_string_lossy(), error.to_string());
    let below = text.strip_prefix(url.as_ref());
    let (input, message) = match below.and_then(|below| below.split_once(": ")) {
        Some((file, message)) => (format!("{url}{file}"), message.to_owned()),
        None => (url.into_owned(), text.clone()),
    };
    Error::Unsupported { input, message }
}

/// Whether a path is a URL that a client may open. A file or directory with that name is a local one.
pub fn is_url(path: &str) -> bool {
    SCHEMES.iter().any(|scheme| path.starts_with(scheme))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_name_the_file_once() {
        let check = |text: &str, expected: &str| {
            let error = failure(Path::new("s3://b/a"), &io::Error::other(text));
            assert_eq!(error.to_string(), expected);
        };
        check("s3://b/a/x: gone", "s3://b/a/x: gone");
        check("gone: x", "s3://b/a: gone: x");
    }

    #[test]
    fn urls_are_told_from_paths_and_need_a_client() {
        assert!(is_url("s3://b/a.pqt") && is_url("https://h/a.pqtz"));
        assert!(!is_url("s3:/b/a.pqt") && !is_url("/s3://b") && !is_url("file:///a.pqt"));
        assert!(Remote::at(Path::new("a.pqt")).is_none());
        let error = Remote::at(Path::new("s3://b/a.pqt")).unwrap().unwrap_err();
        assert!(error.to_string().contains("reads no URLs"), "{error}");
    }
}
