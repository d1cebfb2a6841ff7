//! The bytes of one part: a file, or a range of an archive; here or behind a URL.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use crate::remote::{Fetch, RemoteFile};

/// A Parquet file, or one inside of another file.
#[derive(Debug, Clone)]
pub struct PartFile {
    file: Bytewise,
    offset: u64,
    bytes: u64,
}

/// What ranges are read from.
#[derive(Debug, Clone)]
enum Bytewise {
    File(Arc<File>),
    Remote(Arc<dyn RemoteFile>),
}

impl PartFile {
    /// The whole of an open file.
    pub(super) fn of(file: File) -> io::Result<PartFile> {
        let bytes = file.metadata()?.len();
        Ok(PartFile {
            file: Bytewise::File(Arc::new(file)),
            offset: 0,
            bytes,
        })
    }

    /// The whole of a file behind a URL.
    pub(super) fn remote(file: Arc<dyn RemoteFile>) -> PartFile {
        PartFile {
            offset: 0,
            bytes: file.bytes(),
            file: Bytewise::Remote(file),
        }
    }

    /// A range of this one, which must be inside.
    pub(super) fn within(&self, offset: u64, bytes: u64) -> PartFile {
        PartFile {
            file: self.file.clone(),
            offset: self.offset.saturating_add(offset),
            bytes,
        }
    }

    /// Returns whether reading it means requests to a server.
    pub fn is_remote(&self) -> bool {
        matches!(self.file, Bytewise::Remote(_))
    }

    /// Reads ranges, those of a server at once.
    pub fn ranges(&self, ranges: &[Range<u64>]) -> Fetch {
        let inside = |range: &Range<u64>| range.start <= range.end && range.end <= self.bytes;
        match &self.file {
            Bytewise::Remote(file) if ranges.iter().all(inside) => {
                let moved = |range: &Range<u64>| {
                    let at = |place: u64| self.offset.saturating_add(place);
                    at(range.start)..at(range.end)
                };
                Arc::clone(file).ranges(ranges.iter().map(moved).collect())
            }
            _ => {
                let read = |range: &Range<u64>| {
                    self.range(range.start, range.end.saturating_sub(range.start))
                };
                let read = ranges.iter().map(read).collect();
                Box::pin(std::future::ready(read))
            }
        }
    }

    /// Opens a file. Links are not followed.
    pub fn open(path: &Path) -> io::Result<PartFile> {
        let file = File::options()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)?;
        PartFile::of(file)
    }

    /// Reads a range, which must be inside.
    pub fn range(&self, start: u64, count: u64) -> io::Result<Bytes> {
        let end = start.checked_add(count).filter(|&end| end <= self.bytes);
        let length = end.and_then(|_| usize::try_from(count).ok());
        let Some(length) = length else {
            let message = format!("expected {count} bytes at {start} of {}", self.bytes);
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
        };
        let offset = self.offset.saturating_add(start);
        match &self.file {
            Bytewise::File(file) => {
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, offset)?;
                Ok(bytes.into())
            }
            Bytewise::Remote(file) => file.range(offset, count),
        }
    }

    /// Returns a reader of the bytes from an offset.
    pub fn reader(&self, start: u64) -> impl Read + use<> {
        PartReader {
            part: self.clone(),
            position: start,
        }
    }
}

impl Length for PartFile {
    fn len(&self) -> u64 {
        self.bytes
    }
}

impl ChunkReader for PartFile {
    type T = BufReader<PartReader>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(BufReader::new(PartReader {
            part: self.clone(),
            position: start,
        }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let count = u64::try_from(length).unwrap_or(u64::MAX);
        Ok(self.range(start, count)?)
    }
}

/// Reads a part in order.
#[derive(Debug)]
pub struct PartReader {
    part: PartFile,
    position: u64,
}

impl Read for PartReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.part.bytes.saturating_sub(self.position);
        let most = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let offset = self.part.offset.saturating_add(self.position);
        let Some(buffer) = buffer.get_mut(..most) else {
            return Ok(0);
        };
        let count = match &self.part.file {
            Bytewise::File(file) => file.read_at(buffer, offset)?,
            Bytewise::Remote(file) => {
                let bytes = file.range(offset, buffer.len() as u64)?;
                buffer.copy_from_slice(&bytes);
                bytes.len()
            }
        };
        self.position = self
            .position
            .saturating_add(u64::try_from(count).unwrap_or_default());
        Ok(count)
    }
}
