//! The bytes of one part: a file, or a range of an archive.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

/// A Parquet file, or one inside of another file.
#[derive(Debug, Clone)]
pub struct PartFile {
    file: Arc<File>,
    offset: u64,
    bytes: u64,
}

impl PartFile {
    pub(super) fn new(file: Arc<File>, offset: u64, bytes: u64) -> PartFile {
        PartFile {
            file,
            offset,
            bytes,
        }
    }

    /// Opens a file. Links are not followed.
    pub fn open(path: &Path) -> io::Result<PartFile> {
        let file = File::options()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)?;
        let bytes = file.metadata()?.len();
        Ok(PartFile::new(Arc::new(file), 0, bytes))
    }

    /// Reads a range, which must be inside.
    pub fn range(&self, start: u64, count: u64) -> io::Result<Bytes> {
        let end = start.checked_add(count).filter(|&end| end <= self.bytes);
        let length = end.and_then(|_| usize::try_from(count).ok());
        let Some(length) = length else {
            let message = format!("expected {count} bytes at {start} of {}", self.bytes);
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
        };
        let mut bytes = vec![0; length];
        let offset = self.offset.saturating_add(start);
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes.into())
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
        let count = self.part.file.read_at(buffer, offset)?;
        self.position = self
            .position
            .saturating_add(u64::try_from(count).unwrap_or_default());
        Ok(count)
    }
}
