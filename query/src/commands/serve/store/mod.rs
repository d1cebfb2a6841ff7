//! A file with the states of all threads, and the numbers of events, of a trace: what a picture of any part of the time needs.
//!
//! ```text
//! magic, key | chunks of periods | threads, counts, blocks of each track | where those are, their checksum, magic
//! ```
//! The view `thread_states` follows every thread from the start of the trace, so its rows are read once, and kept in blocks (`blocks.rs`).
//! What is known of blocks is in memory; chunks of some blocks are read when they are needed. Everything that is read is
//! checked: the file may be damaged.

pub(super) mod blocks;
pub(super) mod cache;
pub(super) mod counts;
pub(super) mod grid;
mod numbers;
pub(super) mod writer;

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use anyhow::{Context, Result};
use flate2::Crc;

use blocks::{BLOCK, Block, Period, Sum, decode};
use counts::Counts;
use grid::Grid;
use numbers::Numbers;

/// The last digit is the version of the format.
const MAGIC: &[u8; 8] = b"pqindex2";
/// Length of the last bytes: length, place and checksum of the directory, magic.
const FOOT: usize = 8 + 8 + 4 + 8;
/// Bytes of a chunk that was written by this program.
const MOST_CHUNK: u32 = 4 << 20;
/// Bytes of a directory.
const MOST_DIRECTORY: u64 = 1 << 30;

/// What periods are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Track {
    /// The states of a thread, by its tid. Values: 4 bits of the state, then the CPU and 1, or 0.
    Thread(i64),
    /// The threads that ran on a CPU. Values: places of threads.
    Cpu(i64),
}

/// The file is not what was written.
#[derive(Debug)]
pub(super) struct Damaged;

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the index is damaged")
    }
}

impl std::error::Error for Damaged {}

/// The file cannot be written.
#[derive(Debug)]
pub(super) struct Unwritable;

impl fmt::Display for Unwritable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot write an index")
    }
}

impl std::error::Error for Unwritable {}

pub(super) struct Store {
    data: Data,
    tracks: HashMap<Track, Blocks, ahash::RandomState>,
    tids: Vec<i64>,
    counts: HashMap<String, Arc<Counts>>,
}

/// What is visited.
pub(super) enum Part<'a> {
    /// All periods of a block.
    Block(&'a Block, &'a [Sum]),
    Period(Period),
}

enum Data {
    File(File),
    Memory(Vec<u8>),
}

/// Blocks that are read at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Chunk {
    at: u64,
    bytes: u32,
    checksum: u32,
}

/// The blocks of a track, in the order of their begins.
#[derive(Debug, Default)]
struct Blocks {
    blocks: Vec<Block>,
    /// The latest end of a block and those before.
    reach: Vec<i64>,
    sums: Vec<Sum>,
    chunks: Vec<Chunk>,
    /// Its grids, by the bits of their step.
    grids: Vec<(u32, Chunk)>,
}

impl Blocks {
    fn complete(&mut self) {
        let mut latest = i64::MIN;
        let reach = self.blocks.iter().map(|block| {
            latest = latest.max(block.end);
            latest
        });
        self.reach = reach.collect();
    }
}

impl Store {
    /// Opens the file of a store; `None` if it is of something else than `key`, of another version, or damaged.
    pub(super) fn open(file: File, key: &str) -> Result<Option<Store>> {
        let length = file.metadata()?.len();
        let mut head = vec![0; MAGIC.len() + 10 + key.len()];
        let foot_at = length.checked_sub(FOOT as u64);
        let Some(foot_at) = foot_at.filter(|&at| at >= head.len() as u64) else {
            return Ok(None);
        };
        file.read_exact_at(&mut head, 0)?;
        let mut numbers = Numbers::new(&head[MAGIC.len()..]);
        if !head.starts_with(MAGIC) || numbers.next() != Some(key.len() as u64) {
            return Ok(None);
        }
        let mut expected = Vec::new();
        numbers::put(&mut expected, key.len() as u64);
        expected.extend_from_slice(key.as_bytes());
        if !head[MAGIC.len()..].starts_with(&expected) {
            return Ok(None);
        }
        let mut foot = [0; FOOT];
        file.read_exact_at(&mut foot, foot_at)?;
        let number = |at: usize, size: usize| {
            let mut bytes = [0; 8];
            bytes[..size].copy_from_slice(&foot[at..at + size]);
            u64::from_le_bytes(bytes)
        };
        let (bytes, at, checksum) = (number(0, 8), number(8, 8), number(16, 4));
        let is_there = at.checked_add(bytes) == Some(foot_at) && bytes <= MOST_DIRECTORY;
        if !is_there || !foot.ends_with(MAGIC) {
            return Ok(None);
        }
        let mut directory = vec![0; bytes as usize];
        file.read_exact_at(&mut directory, at)?;
        if u64::from(sum(&directory)) != checksum {
            return Ok(None);
        }
        Ok(Store::read(&mut Numbers::new(&directory), at, file))
    }

    fn read(numbers: &mut Numbers<'_>, end: u64, file: File) -> Option<Store> {
        let tids: Option<Vec<i64>> = (0..numbers.count()?).map(|_| numbers.signed()).collect();
        let mut counts = HashMap::new();
        for _ in 0..numbers.count()? {
            let table = str::from_utf8(numbers.bytes()?).ok()?;
            counts.insert(table.to_owned(), Arc::new(Counts::read(numbers)?));
        }
        let mut tracks: HashMap<Track, Blocks, ahash::RandomState> = HashMap::default();
        for _ in 0..numbers.count()? {
            let (kind, id) = (numbers.next()?, numbers.signed()?);
            let track = match kind {
                0 => Track::Thread(id),
                1 => Track::Cpu(id),
                _ => return None,
            };
            tracks.insert(track, read_blocks(numbers, end)?);
        }
        Some(Store {
            data: Data::File(file),
            tracks,
            tids: tids?,
            counts,
        })
    }

    /// The tid of a thread in the periods of CPUs.
    pub(super) fn tid(&self, place: u32) -> Option<i64> {
        self.tids.get(place as usize).copied()
    }

    /// Number of threads in the periods of CPUs.
    pub(super) fn threads(&self) -> usize {
        self.tids.len()
    }

    /// The threads that have periods.
    pub(super) fn tids_of_tracks(&self) -> impl Iterator<Item = i64> {
        self.tracks.keys().filter_map(|track| match track {
            Track::Thread(tid) => Some(*tid),
            Track::Cpu(_) => None,
        })
    }

    /// Whether a period of a thread begins in a window, or one overlaps it whose value is wanted.
    pub(super) fn is_active(
        &self,
        tid: i64,
        (from, to): (i64, i64),
        is_wanted: impl Fn(u32) -> bool,
    ) -> Result<bool> {
        let track = Track::Thread(tid);
        let Some(blocks) = self.tracks.get(&track) else {
            return Ok(false);
        };
        // The begin of a block is that of its first period.
        let next = blocks.blocks.partition_point(|block| block.begin < from);
        if (blocks.blocks.get(next)).is_some_and(|block| block.begin < to) {
            return Ok(true);
        }
        let mut is_active = false;
        self.visit(track, (from, to), |part| {
            if let Part::Period(period) = part {
                is_active |= period.begin >= from || is_wanted(period.value);
            }
            false
        })?;
        Ok(is_active)
    }

    /// The counts of a table, if they were kept.
    pub(super) fn counts(&self, table: &str) -> Option<Arc<Counts>> {
        self.counts.get(table).cloned()
    }

    /// Visits the periods of a track that overlap a window, or begin in it: blocks that are all inside, and the periods of the
    /// others, and of those blocks for which `visit` returns false.
    pub(super) fn visit(
        &self,
        track: Track,
        (from, to): (i64, i64),
        mut visit: impl FnMut(Part<'_>) -> bool,
    ) -> Result<()> {
        let Some(blocks) = self.tracks.get(&track) else {
            return Ok(());
        };
        let first = blocks.reach.partition_point(|&reach| reach <= from);
        let last = blocks.blocks.partition_point(|block| block.begin < to);
        let (mut chunk, mut bytes) = (None, Vec::new());
        for at in first..last.max(first) {
            let block = &blocks.blocks[at];
            if block.end <= from && block.last < from {
                continue;
            }
            let next = blocks.blocks.get(at + 1);
            let end = next.map_or(blocks.sums.len(), |next| next.sums as usize);
            if block.begin >= from
                && block.end <= to
                && visit(Part::Block(block, &blocks.sums[block.sums as usize..end]))
            {
                continue;
            }
            if chunk != Some(block.chunk) {
                self.chunk(&blocks.chunks[block.chunk as usize], &mut bytes)?;
                chunk = Some(block.chunk);
            }
            let bytes = bytes.get(block.offset as usize..).unwrap_or_default();
            decode(bytes, block, |period| {
                if period.begin < to && (period.end() > from || period.begin >= from) {
                    visit(Part::Period(period));
                }
            })
            .ok_or(Damaged)?;
        }
        Ok(())
    }

    /// Some steps of the grid of a track at a step of 2^bits, and its long periods, if there is one.
    pub(super) fn grid(&self, track: Track, bits: u32, steps: &Range<i64>) -> Result<Option<Grid>> {
        let grids = self.tracks.get(&track).map(|blocks| &blocks.grids);
        let mut grids = grids.into_iter().flatten();
        let Some((_, chunk)) = grids.find(|(of, _)| *of == bits) else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        self.chunk(chunk, &mut bytes)?;
        Ok(Some(Grid::read(&bytes, steps).ok_or(Damaged)?))
    }

    fn chunk(&self, chunk: &Chunk, bytes: &mut Vec<u8>) -> Result<()> {
        bytes.resize(chunk.bytes as usize, 0);
        match &self.data {
            Data::File(file) => file.read_exact_at(bytes, chunk.at).context(Damaged)?,
            Data::Memory(all) => {
                let at = chunk.at as usize;
                let found = all.get(at..at + bytes.len()).ok_or(Damaged)?;
                bytes.copy_from_slice(found);
                return Ok(());
            }
        }
        match sum(bytes) == chunk.checksum {
            true => Ok(()),
            false => Err(Damaged.into()),
        }
    }
}

fn sum(bytes: &[u8]) -> u32 {
    let mut sum = Crc::new();
    sum.update(bytes);
    sum.sum()
}

fn read_blocks(numbers: &mut Numbers<'_>, end: u64) -> Option<Blocks> {
    let small = |number: u64| u32::try_from(number).ok();
    let mut all = Blocks::default();
    let chunk = |numbers: &mut Numbers<'_>| {
        let (at, bytes) = (numbers.next()?, small(numbers.next()?)?);
        let checksum = small(numbers.next()?)?;
        let is_there = bytes <= MOST_CHUNK && at.checked_add(bytes.into())? <= end;
        is_there.then_some(Chunk {
            at,
            bytes,
            checksum,
        })
    };
    for _ in 0..numbers.count()? {
        all.chunks.push(chunk(numbers)?);
    }
    for _ in 0..numbers.count()? {
        let bits = small(numbers.next()?)?;
        all.grids.push((bits, chunk(numbers)?));
    }
    for _ in 0..numbers.count()? {
        let begin = numbers.signed()?;
        let block = Block {
            begin,
            last: begin.wrapping_add(numbers.signed()?),
            end: begin.wrapping_add(numbers.signed()?),
            count: small(numbers.next()?)?,
            chunk: small(numbers.next()?)?,
            offset: small(numbers.next()?)?,
            sums: all.sums.len() as u32,
        };
        let is_possible = block.count as usize <= BLOCK
            && (block.chunk as usize) < all.chunks.len()
            && block.last >= block.begin
            && block.end >= block.begin;
        let is_next = all.blocks.last().is_none_or(|last| last.last <= begin);
        if !is_possible || !is_next {
            return None;
        }
        for _ in 0..numbers.count()? {
            all.sums.push(Sum {
                class: u8::try_from(numbers.next()?)
                    .ok()
                    .filter(|&class| usize::from(class) < blocks::CLASSES)?,
                count: small(numbers.next()?)?,
                time: numbers.signed()?,
            });
        }
        all.blocks.push(block);
    }
    all.complete();
    Some(all)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::writer::{Sink, Writer};
    use super::*;

    fn random(state: &mut u64, limit: u64) -> u64 {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (*state >> 33) % limit
    }

    /// Periods of some threads: with gaps, of unknown length, of none, and short ones as well as long ones.
    fn periods(state: &mut u64) -> Vec<(Track, Period)> {
        let mut all = Vec::new();
        for tid in 0..3 {
            let mut begin = 0;
            for _ in 0..4000 * tid {
                begin += [0, 0, 0, random(state, 90) as i64][random(state, 4) as usize];
                let length = match random(state, 40) {
                    0 => -1,
                    1 => 0,
                    2 => random(state, 100_000) as i64,
                    _ => random(state, 50) as i64,
                };
                let value = (random(state, 9) << 4 | random(state, 5)) as u32;
                let period = Period {
                    begin,
                    length,
                    value,
                };
                all.push((Track::Thread(tid), period));
                begin = period.end();
            }
        }
        all
    }

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn written(all: &[(Track, Period)], sink: Sink) -> Store {
        let mut writer = Writer::new(sink, "key").unwrap();
        for &(track, period) in all {
            writer.add(track, period).unwrap();
        }
        writer.thread(77);
        let mut counter = counts::Counter::of(0);
        (0..1000).for_each(|time| assert!(counter.add(time)));
        writer.count("a.b", Arc::new(counter.finish()));
        writer.finish(0, |_, _, _| Ok(Vec::new())).unwrap()
    }

    /// Number and time of the periods in a window, of whole blocks by their sums or not.
    fn visited(store: &Store, tid: i64, window: (i64, i64), by_sums: bool) -> Result<(u64, i64)> {
        let mut found = (0, 0);
        store.visit(Track::Thread(tid), window, |part| {
            match part {
                Part::Block(..) if !by_sums => return false,
                Part::Block(_, sums) => {
                    for sum in sums {
                        found.0 += u64::from(sum.count);
                        found.1 += sum.time;
                    }
                }
                Part::Period(period) => {
                    found.0 += 1;
                    found.1 += period.end() - period.begin;
                }
            }
            true
        })?;
        Ok(found)
    }

    #[test]
    fn windows_have_the_periods_that_were_written() {
        let mut state = 1;
        let all = periods(&mut state);
        let in_memory = written(&all, Sink::Memory);
        let Data::Memory(bytes) = &in_memory.data else {
            panic!("not in memory");
        };
        let opened = Store::open(file(bytes), "key").unwrap().unwrap();
        assert_eq!(opened.counts, in_memory.counts);
        assert_eq!((opened.tid(0), opened.tid(1)), (Some(77), None));
        for store in [&in_memory, &opened] {
            for _ in 0..2000 {
                let tid = random(&mut state, 4) as i64;
                let longest = 1 << random(&mut state, 22);
                let from = random(&mut state, 12_000_000) as i64 - 1000;
                let window = (from, from + 1 + random(&mut state, longest) as i64);
                let mut expected = (0, 0);
                for (track, period) in &all {
                    let is_inside = period.begin < window.1
                        && (period.end() > window.0 || period.begin >= window.0);
                    if *track == Track::Thread(tid) && is_inside {
                        expected.0 += 1;
                        expected.1 += period.end() - period.begin;
                    }
                }
                for by_sums in [true, false] {
                    let found = visited(store, tid, window, by_sums).unwrap();
                    assert_eq!(found, expected, "{tid} {window:?}");
                }
            }
        }
    }

    #[test]
    fn damaged_files_are_recognized() {
        let all = periods(&mut 2);
        let store = written(&all, Sink::Memory);
        let Data::Memory(bytes) = &store.data else {
            panic!("not in memory");
        };
        assert!(Store::open(file(bytes), "other").unwrap().is_none());
        assert!(Store::open(file(bytes), "ke").unwrap().is_none());
        for length in [0, 7, FOOT, bytes.len() / 2, bytes.len() - 1] {
            let found = Store::open(file(&bytes[..length]), "key");
            assert!(found.unwrap().is_none());
        }
        let all = (i64::MIN, i64::MAX);
        let mut state = 3;
        for _ in 0..400 {
            let mut bytes = bytes.clone();
            let at = random(&mut state, bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random(&mut state, 8);
            let Some(damaged) = Store::open(file(&bytes), "key").unwrap() else {
                continue;
            };
            let is_seen = (0..3).any(|tid| {
                visited(&damaged, tid, all, false).is_err_and(|error| error.is::<Damaged>())
            });
            assert!(is_seen, "{at}");
        }
        assert!(visited(&store, 1, all, false).is_ok());
        // With right checksums, a directory may say anything.
        let foot = bytes.len() - FOOT;
        let mut at = [0; 8];
        at.copy_from_slice(&bytes[foot + 8..foot + 16]);
        let begin = u64::from_le_bytes(at) as usize;
        for _ in 0..2000 {
            let mut bytes = bytes.clone();
            let at = begin + random(&mut state, (foot - begin) as u64) as usize;
            bytes[at] = random(&mut state, 256) as u8;
            let checksum = sum(&bytes[begin..foot]);
            bytes[foot + 16..foot + 20].copy_from_slice(&checksum.to_le_bytes());
            if let Some(wrong) = Store::open(file(&bytes), "key").unwrap() {
                for tid in 0..3 {
                    let _ = visited(&wrong, tid, all, tid == 0);
                }
            }
        }
    }

    #[test]
    fn periods_have_their_ends_and_gaps() {
        let mut writer = Writer::new(Sink::Memory, "").unwrap();
        let all = [(10, 5, 0), (15, 5, 4), (30, -1, 0), (50, 9, 1)];
        for (begin, length, value) in all {
            let period = Period {
                begin,
                length,
                value,
            };
            writer.add(Track::Thread(7), period).unwrap();
        }
        let store = writer.finish(0, |_, _, _| Ok(Vec::new())).unwrap();
        let found = |from, to| {
            let mut found = Vec::new();
            let visited = store.visit(Track::Thread(7), (from, to), |part| match part {
                Part::Block(..) => false,
                Part::Period(period) => {
                    found.push((period.begin, period.end(), period.value));
                    true
                }
            });
            visited.unwrap();
            found
        };
        let all = [(10, 15, 0), (15, 20, 4), (30, 31, 0), (50, 59, 1)];
        assert_eq!(found(0, 100), all);
        assert_eq!(found(12, 16), all[..2]);
        assert_eq!(found(15, 30), all[1..2]);
        assert_eq!(found(20, 30), []);
        assert_eq!(found(58, 59), all[3..]);
        let mut writer = Writer::new(Sink::Memory, "").unwrap();
        let late = (0..5000).map(|time| (5000 - time) * 10);
        let refused = late.map(|begin| {
            let period = Period {
                begin,
                length: 1,
                value: 0,
            };
            writer.add(Track::Cpu(0), period)
        });
        assert!(refused.into_iter().any(|result| result.is_err()));
    }
}
