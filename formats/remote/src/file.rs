//! A file behind a URL: small ones are read whole and kept, of large ones the ranges that are needed.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use perfquet_trace::remote::{Fetch, RemoteFile};

use crate::reading::Inner;
use crate::running;

/// Smaller files are read whole: another request would cost more than their bytes.
const SMALL: u64 = 1 << 20;
/// Ranges with a smaller gap are read as one.
const GAP: u64 = 256 << 10;
/// Maximum size of one request.
const LARGEST: u64 = 8 << 20;
/// Bytes that are fetched at once of a large file that is read sequentially.
const BLOCK: u64 = 4 << 20;
/// Requests at once.
const AT_ONCE: usize = 8;

#[derive(Debug, Clone)]
pub(crate) struct File {
    pub(crate) inner: Arc<Inner>,
    pub(crate) key: Path,
    pub(crate) shown: String,
    pub(crate) bytes: u64,
    /// Its last bytes, if they were read to find its size.
    pub(crate) tail: Bytes,
    pub(crate) version: String,
}

impl File {
    fn check(&self, range: &Range<u64>) -> io::Result<()> {
        if range.start <= range.end && range.end <= self.bytes {
            return Ok(());
        }
        let message = format!("expected bytes {range:?} of {}", self.bytes);
        Err(io::Error::new(ErrorKind::UnexpectedEof, message))
    }

    async fn fetch(&self, ranges: Vec<Range<u64>>) -> io::Result<Vec<Bytes>> {
        for range in &ranges {
            self.check(range)?;
        }
        if self.bytes <= SMALL {
            let all = self.block(0..self.bytes).await?;
            let part = |range: Range<u64>| all.slice(range.start as usize..range.end as usize);
            return Ok(ranges.into_iter().map(part).collect());
        }
        let requests: Vec<Range<u64>> = requests(&ranges);
        let read = stream::iter(requests.clone()).map(|request| self.read(request));
        let read: Vec<Bytes> = read.buffered(AT_ONCE).try_collect().await?;
        let parts = requests.into_iter().zip(read).collect::<Vec<_>>();
        Ok(ranges
            .iter()
            .map(|range| assembled(range, &parts))
            .collect())
    }

    async fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        let tail_start = self.bytes.saturating_sub(self.tail.len() as u64);
        if range.start >= tail_start {
            let (start, end) = (range.start - tail_start, range.end - tail_start);
            return Ok(self.tail.slice(start as usize..end as usize));
        }
        let read = self.inner.range(&self.key, range, self.bytes).await;
        read.map_err(|error| self.named(&error))
    }

    /// A block of the file, which is kept.
    async fn block(&self, range: Range<u64>) -> io::Result<Bytes> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let bytes = range.end - range.start;
        let block = self.inner.block_of(&self.key, range.start, bytes);
        let read = block.get_or_try_init(|| self.read(range)).await?;
        Ok(read.clone())
    }

    async fn through_blocks(&self, range: Range<u64>) -> io::Result<Bytes> {
        self.check(&range)?;
        let size = if self.bytes <= SMALL { SMALL } else { BLOCK };
        let mut parts = Vec::new();
        let mut start = range.start / size * size;
        while start < range.end {
            let whole = start..self.bytes.min(start + size);
            let block = self.block(whole.clone()).await?;
            parts.push((whole, block));
            start += size;
        }
        Ok(assembled(&range, &parts))
    }

    fn named(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.shown))
    }
}

impl RemoteFile for File {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn version(&self) -> String {
        self.version.clone()
    }

    fn range(&self, start: u64, count: u64) -> io::Result<Bytes> {
        let file = self.clone();
        running::wait(async move {
            file.through_blocks(start..start.saturating_add(count))
                .await
        })
    }

    fn ranges(self: Arc<Self>, ranges: Vec<Range<u64>>) -> Fetch {
        Box::pin(running::start(async move { self.fetch(ranges).await }))
    }
}

/// Requests that cover ranges, in order: near ones as one, large ones in pieces.
fn requests(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted: Vec<_> = ranges
        .iter()
        .filter(|range| !range.is_empty())
        .cloned()
        .collect();
    sorted.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match joined.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(GAP) => {
                last.end = last.end.max(range.end)
            }
            _ => joined.push(range),
        }
    }
    let pieces = |range: Range<u64>| {
        let starts = (range.start..range.end).step_by(LARGEST as usize);
        starts.map(move |start| start..range.end.min(start + LARGEST))
    };
    joined.into_iter().flat_map(pieces).collect()
}

/// A range from adjacent parts that cover it.
fn assembled(range: &Range<u64>, parts: &[(Range<u64>, Bytes)]) -> Bytes {
    let within = parts
        .iter()
        .filter(|(part, _)| part.start < range.end && range.start < part.end);
    let slices: Vec<Bytes> = within
        .map(|(part, bytes)| {
            let start = range.start.max(part.start) - part.start;
            let end = range.end.min(part.end) - part.start;
            bytes.slice(start as usize..end as usize)
        })
        .collect();
    match slices.as_slice() {
        [one] => one.clone(),
        several => {
            let mut all = BytesMut::with_capacity((range.end - range.start) as usize);
            several
                .iter()
                .for_each(|slice| all.extend_from_slice(slice));
            all.freeze()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_ranges_are_one_request_and_large_ones_several() {
        assert_eq!(requests(&[]), []);
        let near = requests(&[500..510, 0..10, 3..3]);
        assert_eq!((near.len(), &near[0]), (1, &(0..510)));
        assert_eq!(requests(&[0..10, 10 + GAP + 1..10 + GAP + 2]).len(), 2);
        let large = requests(std::slice::from_ref(&(5..5 + 2 * LARGEST + 1)));
        assert_eq!(large.len(), 3);
        assert_eq!(large.last().unwrap().end, 5 + 2 * LARGEST + 1);
    }

    #[test]
    fn ranges_are_assembled_from_parts() {
        let bytes = Bytes::from_static(b"0123456789");
        let parts: Vec<_> = [(0..4), (4..8), (8..10)]
            .into_iter()
            .map(|range: Range<u64>| {
                (
                    range.clone(),
                    bytes.slice(range.start as usize..range.end as usize),
                )
            })
            .collect();
        for start in 0..10 {
            for end in start..=10 {
                assert_eq!(
                    assembled(&(start..end), &parts),
                    bytes[start as usize..end as usize]
                );
            }
        }
    }
}
