//! Iteration over the records of a journal.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use perfquet_import::Unpacked;

use super::record::kind;

/// Counts the samples of each event in a journal, parts of which may be compressed.
pub(crate) fn samples_by_id(path: &Path) -> io::Result<HashMap<u64, u64>> {
    let mut reader = BufReader::with_capacity(1 << 20, Unpacked::open(path)?);
    pass_over(&mut reader, 16)?;
    let mut samples = HashMap::new();
    let mut head = [0; 16];
    // Ends before the first incomplete record.
    while reader.read_exact(&mut head[..8]).is_ok() {
        let [a, b, c, d, _, _, g, h, ..] = head;
        let kind = u32::from_ne_bytes([a, b, c, d]);
        let mut left = u64::from(u16::from_ne_bytes([g, h]));
        if left < 8 {
            let message = format!("a record of {left} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        left -= 8;
        let front = left.min(8);
        if reader.read_exact(&mut head[8..8 + front as usize]).is_err() {
            break;
        }
        left -= front;
        let [.., a, b, c, d, e, f, g, h] = head;
        if kind == kind::TRACING_DATA {
            left += u64::from(u32::from_ne_bytes([a, b, c, d]));
        }
        if pass_over(&mut reader, left)? < left {
            break;
        }
        if kind == kind::SAMPLE {
            // The identifier comes first in the recorder's samples.
            let id = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
            *samples.entry(id).or_default() += 1;
        }
    }
    Ok(samples)
}

/// Skips bytes; returns how many there were.
fn pass_over(reader: &mut impl BufRead, bytes: u64) -> io::Result<u64> {
    let mut passed = 0;
    while passed < bytes {
        let there = reader.fill_buf()?.len();
        if there == 0 {
            break;
        }
        let step = (bytes - passed).min(there as u64);
        reader.consume(step as usize);
        passed += step;
    }
    Ok(passed)
}

/// The head of a record, and its offset.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    pub(super) kind: u32,
    pub(super) misc: u16,
    pub(super) size: u16,
    pub(super) offset: u64,
    /// Number of bytes that follow the record without being part of it.
    pub(super) extra_bytes: u64,
}

/// Iterates over a journal, up to the first incomplete record.
pub(super) struct Walk<'f> {
    reader: BufReader<&'f File>,
    /// Offset of the next record.
    next: u64,
    /// Offset of the reader.
    at: u64,
    length: u64,
    current: Option<Record>,
}

impl<'f> Walk<'f> {
    /// Starts at an offset.
    pub(super) fn new(file: &'f File, offset: u64) -> io::Result<Walk<'f>> {
        let length = file.metadata()?.len();
        let mut reader = BufReader::with_capacity(1 << 20, file);
        reader.seek(SeekFrom::Start(offset))?;
        Ok(Walk {
            reader,
            next: offset,
            at: offset,
            length,
            current: None,
        })
    }

    /// Returns the offset of the end of the last record.
    pub(super) fn offset(&self) -> u64 {
        self.next
    }

    /// Returns the next record.
    pub(super) fn next(&mut self) -> io::Result<Option<Record>> {
        if self.next + 8 > self.length {
            return Ok(None);
        }
        self.go_to(self.next)?;
        let head: [u8; 8] = self.take()?;
        let [a, b, c, d, e, f, g, h] = head;
        let mut record = Record {
            kind: u32::from_ne_bytes([a, b, c, d]),
            misc: u16::from_ne_bytes([e, f]),
            size: u16::from_ne_bytes([g, h]),
            offset: self.next,
            extra_bytes: 0,
        };
        if record.size < 8 {
            let message = format!("a record of {} bytes at {:#x}", record.size, self.next);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        if record.kind == kind::TRACING_DATA {
            record.extra_bytes = u32::from_ne_bytes(self.take()?).into();
        }
        let end = self.next + u64::from(record.size) + record.extra_bytes;
        if end > self.length {
            return Ok(None);
        }
        self.next = end;
        self.current = Some(record);
        Ok(Some(record))
    }

    /// Returns the body of the last record.
    pub(super) fn body(&mut self) -> io::Result<Vec<u8>> {
        self.from(8)
    }

    /// Returns the last record with its head.
    pub(super) fn whole(&mut self) -> io::Result<Vec<u8>> {
        self.from(0)
    }

    fn from(&mut self, begin: u16) -> io::Result<Vec<u8>> {
        let Some(record) = self.current else {
            return Ok(Vec::new());
        };
        self.go_to(record.offset + u64::from(begin))?;
        let mut bytes = vec![0; usize::from(record.size.saturating_sub(begin))];
        self.reader.read_exact(&mut bytes)?;
        self.at += bytes.len() as u64;
        Ok(bytes)
    }

    /// Returns the first bytes of the body, padded with zeros.
    pub(super) fn front<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut front = [0; N];
        if let Some(record) = self.current {
            self.go_to(record.offset + 8)?;
            let length = N.min(usize::from(record.size) - 8);
            self.reader.read_exact(&mut front[..length])?;
            self.at += length as u64;
        }
        Ok(front)
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes)?;
        self.at += N as u64;
        Ok(bytes)
    }

    /// Usually stays within the buffer.
    fn go_to(&mut self, offset: u64) -> io::Result<()> {
        self.reader
            .seek_relative(offset.wrapping_sub(self.at) as i64)?;
        self.at = offset;
        Ok(())
    }
}
