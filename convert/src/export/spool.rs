//! Rows grouped by key in an unnamed temporary file, for formats that require one thread after another, column by
//! column.
//!
//! ```text
//! rows in time order   a1 b1 a2 c1 b2 …   ─►   file: a1 a2 | b1 b2 | c1 …   ─►   all of a, all of b, all of c
//! ```
//! Only the end of each group is in memory.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt as _;

use anyhow::{Context, Result};

/// Total size of all buffers at which large ones are written.
const BUFFERED_BYTES: usize = 32 << 20;
/// Minimum size of a chunk in the file if the buffers are full.
const CHUNK_BYTES: usize = 4 << 10;

/// Records by group.
pub(super) struct Spool {
    file: File,
    end: u64,
    groups: Vec<Group>,
    buffered: usize,
}

#[derive(Default)]
struct Group {
    /// Offset and size of chunks of whole records in the file.
    chunks: Vec<(u64, usize)>,
    buffer: Vec<u8>,
    records: u64,
}

impl Spool {
    pub(super) fn new() -> Result<Spool> {
        let file = tempfile::tempfile().with_context(|| {
            format!(
                "cannot create a temporary file in {}",
                std::env::temp_dir().display()
            )
        })?;
        Ok(Spool {
            file,
            end: 0,
            groups: Vec::new(),
            buffered: 0,
        })
    }

    /// Adds a record to a group. Groups are numbered from 0, without gaps.
    pub(super) fn push(&mut self, group: usize, record: &[u8]) -> Result<()> {
        if group >= self.groups.len() {
            self.groups.resize_with(group + 1, Group::default);
        }
        let group = &mut self.groups[group];
        let length = u32::try_from(record.len()).context("a record is too long")?;
        group.buffer.extend_from_slice(&length.to_le_bytes());
        group.buffer.extend_from_slice(record);
        group.records += 1;
        self.buffered += 4 + record.len();
        if self.buffered >= BUFFERED_BYTES {
            self.write_chunks(CHUNK_BYTES)?;
            // There are many small groups.
            if self.buffered >= BUFFERED_BYTES / 2 {
                self.write_chunks(1)?;
            }
        }
        Ok(())
    }

    /// Writes the buffers of at least this size.
    fn write_chunks(&mut self, smallest: usize) -> Result<()> {
        let full = || "cannot write a temporary file";
        self.file
            .seek(SeekFrom::Start(self.end))
            .with_context(full)?;
        for group in &mut self.groups {
            let length = group.buffer.len();
            if length < smallest {
                continue;
            }
            self.file.write_all(&group.buffer).with_context(full)?;
            group.chunks.push((self.end, length));
            self.end += length as u64;
            self.buffered -= length;
            group.buffer = Vec::new();
        }
        Ok(())
    }

    /// Returns the number of records in a group.
    pub(super) fn records(&self, group: usize) -> u64 {
        self.groups.get(group).map_or(0, |group| group.records)
    }

    /// Calls `pass` for the records of a group, in the order in which they were added.
    pub(super) fn each(
        &self,
        group: usize,
        mut pass: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let Some(group) = self.groups.get(group) else {
            return Ok(());
        };
        let mut bytes = Vec::new();
        for (place, length) in &group.chunks {
            bytes.resize(*length, 0);
            self.file
                .read_exact_at(&mut bytes, *place)
                .context("cannot read a temporary file")?;
            each_in(&bytes, &mut pass)?;
        }
        each_in(&group.buffer, &mut pass)
    }
}

/// Returns the bytes of a number in a record.
pub(super) fn part<const N: usize>(record: &[u8], place: usize) -> [u8; N] {
    let bytes = record.get(place..).and_then(|rest| rest.first_chunk());
    bytes.copied().unwrap_or([0; N])
}

fn each_in(bytes: &[u8], pass: &mut impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut rest = bytes;
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        let (record, next) = after.split_at_checked(length).context("a record is cut")?;
        pass(record)?;
        rest = next;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_come_back_in_order() {
        let mut spool = Spool::new().unwrap();
        let groups = 700;
        // Larger than the buffers, so that chunks are written more than once.
        let long = vec![b'x'; 1_000];
        for record in 0..100_000_u32 {
            let group = (record % groups) as usize;
            spool.push(group, &record.to_le_bytes()).unwrap();
            spool.push(group, &long).unwrap();
        }
        assert!(spool.groups[0].chunks.len() > 1);
        for group in 0..groups {
            let mut next = group;
            spool
                .each(group as usize, |record| {
                    if record.len() == 4 {
                        assert_eq!(record, next.to_le_bytes());
                        next += groups;
                    }
                    Ok(())
                })
                .unwrap();
            assert!(next >= 100_000);
        }
        assert_eq!(spool.records(9_999), 0);
    }
}
