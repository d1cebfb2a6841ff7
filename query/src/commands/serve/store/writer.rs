//! Writes a store: periods as they come, then what is known of their blocks.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use flate2::Crc;

use super::super::parallel::parallel;
use super::blocks::{BLOCK, Period, encode};
use super::counts::Counts;
use super::grid::{Grid, LEAST_PERIODS, LEAST_STEPS, MOST_STEPS};
use super::numbers::{put, put_signed};
use super::{Blocks, Chunk, Data, MAGIC, MOST_CHUNK, Store, Track, Unwritable};

/// Bytes of a chunk, which is read at once.
const CHUNK: usize = 16 << 10;
/// Bytes of unfinished chunks in memory.
const MOST_UNFINISHED: usize = 64 << 20;
/// Bytes of a store in memory.
const MOST_IN_MEMORY: u64 = 512 << 20;
/// Periods that are held back beyond a block: they may come slightly out of order.
const HELD_BACK: usize = 64;
/// Maximum number of periods in blocks that are not full yet. With more threads than fit, their blocks are smaller.
const MOST_PENDING: usize = if cfg!(test) { 4096 } else { 2 << 20 };
const SMALL_BLOCK: usize = 256;
/// Tracks whose grids are computed and in memory at one time: each takes up to some thirty megabytes, however many CPUs there are.
const GRIDS_AT_ONCE: usize = 4;

/// Where the bytes go.
pub(crate) enum Sink {
    File(File),
    Memory,
}

pub(crate) struct Writer {
    data: Data,
    at: u64,
    tracks: HashMap<Track, Unfinished, ahash::RandomState>,
    /// Bytes of unfinished chunks.
    unfinished: usize,
    /// Periods that are in no block.
    pending: usize,
    tids: Vec<i64>,
    places: HashMap<i64, u32, ahash::RandomState>,
    counts: HashMap<String, Arc<Counts>>,
}

#[derive(Default)]
struct Unfinished {
    pending: Vec<Period>,
    chunk: Vec<u8>,
    /// The latest begin of the periods in blocks.
    last: Option<i64>,
    track: Blocks,
}

impl Writer {
    /// `key` names what the store is of.
    pub(crate) fn new(sink: Sink, key: &str) -> Result<Writer> {
        let mut writer = Writer {
            data: match sink {
                Sink::File(file) => Data::File(file),
                Sink::Memory => Data::Memory(Vec::new()),
            },
            at: 0,
            tracks: HashMap::default(),
            unfinished: 0,
            pending: 0,
            tids: Vec::new(),
            places: HashMap::default(),
            counts: HashMap::new(),
        };
        let mut head = MAGIC.to_vec();
        put(&mut head, key.len() as u64);
        head.extend_from_slice(key.as_bytes());
        writer.write(&head)?;
        Ok(writer)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match &mut self.data {
            Data::File(file) => file.write_all(bytes).context(Unwritable)?,
            Data::Memory(all) if self.at + bytes.len() as u64 > MOST_IN_MEMORY => {
                bail!(
                    "the index needs more than {} MiB, and no file of it can be written: {} MiB are read",
                    MOST_IN_MEMORY >> 20,
                    all.len() >> 20
                );
            }
            Data::Memory(all) => all.extend_from_slice(bytes),
        }
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// The place of a thread, which is its number in the periods of CPUs.
    pub(crate) fn thread(&mut self, tid: i64) -> u32 {
        let tids = &mut self.tids;
        *self.places.entry(tid).or_insert_with(|| {
            tids.push(tid);
            (tids.len() - 1) as u32
        })
    }

    /// Adds a period. Those of a track come in the order of their begins, or nearly.
    pub(crate) fn add(&mut self, track: Track, period: Period) -> Result<()> {
        let of_track = self.tracks.entry(track).or_default();
        of_track.pending.push(period);
        self.pending += 1;
        let block = match self.pending {
            ..=MOST_PENDING => BLOCK,
            _ => SMALL_BLOCK,
        };
        let count = of_track.pending.len().saturating_sub(HELD_BACK).min(BLOCK);
        if count < block {
            return Ok(());
        }
        self.pending -= count;
        self.unfinished += of_track.finish_block(count)?;
        if of_track.chunk.len() >= CHUNK {
            self.finish_chunk(track)?;
        }
        if self.unfinished >= MOST_UNFINISHED {
            let all: Vec<Track> = self.tracks.keys().copied().collect();
            for track in all {
                self.finish_chunk(track)?;
            }
        }
        Ok(())
    }

    pub(crate) fn count(&mut self, table: &str, counts: Arc<Counts>) {
        self.counts.insert(table.to_owned(), counts);
    }

    fn finish_chunk(&mut self, track: Track) -> Result<()> {
        let Some(of_track) = self.tracks.get_mut(&track) else {
            return Ok(());
        };
        let bytes = std::mem::take(&mut of_track.chunk);
        if bytes.is_empty() {
            return Ok(());
        }
        self.unfinished -= bytes.len();
        of_track.track.chunks.push(Chunk {
            at: self.at,
            bytes: bytes.len() as u32,
            checksum: checksum(&bytes),
        });
        self.write(&bytes)
    }

    /// Completes the store of a trace of this length, of which `make` computes grids: of a track, at steps of 2^bits, each twice the one before.
    pub(crate) fn finish(
        mut self,
        length: i64,
        make: impl Fn(&Store, Track, &[u32]) -> Result<Vec<Grid>> + Sync,
    ) -> Result<Store> {
        let all: Vec<Track> = self.tracks.keys().copied().collect();
        for track in all {
            if let Some(of_track) = self.tracks.get_mut(&track) {
                while !of_track.pending.is_empty() {
                    let count = of_track.pending.len().min(BLOCK);
                    self.unfinished += of_track.finish_block(count)?;
                }
            }
            self.finish_chunk(track)?;
        }
        let tracks = std::mem::take(&mut self.tracks).into_iter();
        let tracks = tracks.map(|(track, mut unfinished)| {
            unfinished.track.complete();
            unfinished.track.blocks.shrink_to_fit();
            unfinished.track.sums.shrink_to_fit();
            (track, unfinished.track)
        });
        // A store of what is there so far, for the grids.
        let mut store = Store {
            data: std::mem::replace(&mut self.data, Data::Memory(Vec::new())),
            tracks: tracks.collect(),
            tids: std::mem::take(&mut self.tids),
            counts: std::mem::take(&mut self.counts),
        };
        for tracks in with_grids(&store, length).chunks(GRIDS_AT_ONCE) {
            let grids = grids(&store, tracks, &make)?;
            self.data = std::mem::replace(&mut store.data, Data::Memory(Vec::new()));
            for (track, bits, bytes) in grids {
                let chunk = Chunk {
                    at: self.at,
                    bytes: bytes.len() as u32,
                    checksum: checksum(&bytes),
                };
                // It would be refused when it is read.
                if chunk.bytes > MOST_CHUNK {
                    continue;
                }
                self.write(&bytes)?;
                if let Some(blocks) = store.tracks.get_mut(&track) {
                    blocks.grids.push((bits, chunk));
                }
            }
            store.data = std::mem::replace(&mut self.data, Data::Memory(Vec::new()));
        }
        self.data = std::mem::replace(&mut store.data, Data::Memory(Vec::new()));
        let mut bytes = Vec::new();
        put(&mut bytes, store.tids.len() as u64);
        store
            .tids
            .iter()
            .for_each(|&tid| put_signed(&mut bytes, tid));
        put(&mut bytes, store.counts.len() as u64);
        for (table, counts) in &store.counts {
            put(&mut bytes, table.len() as u64);
            bytes.extend_from_slice(table.as_bytes());
            counts.write(&mut bytes);
        }
        put(&mut bytes, store.tracks.len() as u64);
        for (track, blocks) in &store.tracks {
            write_blocks(*track, blocks, &mut bytes);
        }
        let at = self.at;
        let mut foot = bytes.len().to_le_bytes().to_vec();
        foot.extend(at.to_le_bytes());
        foot.extend(checksum(&bytes).to_le_bytes());
        foot.extend(MAGIC);
        self.write(&bytes)?;
        self.write(&foot)?;
        store.data = self.data;
        Ok(store)
    }
}

/// The tracks that have many periods in a step, and the bits of such steps; the ones with most periods first.
fn with_grids(store: &Store, length: i64) -> Vec<(Track, Vec<u32>)> {
    let mut wanted = Vec::new();
    for (&track, blocks) in &store.tracks {
        let periods: u64 = blocks
            .blocks
            .iter()
            .map(|block| u64::from(block.count))
            .sum();
        let is_wanted = |bits: &u32| {
            let steps = length >> bits;
            (LEAST_STEPS..MOST_STEPS).contains(&steps)
                && periods >= LEAST_PERIODS * steps.unsigned_abs()
        };
        let bits: Vec<u32> = (0..62).filter(is_wanted).collect();
        if !bits.is_empty() {
            wanted.push((periods, track, bits));
        }
    }
    // The longest work first.
    wanted.sort_unstable_by_key(|(periods, ..)| std::cmp::Reverse(*periods));
    let wanted = wanted.into_iter();
    wanted.map(|(_, track, bits)| (track, bits)).collect()
}

/// The grids of some tracks, as bytes.
fn grids(
    store: &Store,
    tracks: &[(Track, Vec<u32>)],
    make: &(impl Fn(&Store, Track, &[u32]) -> Result<Vec<Grid>> + Sync),
) -> Result<Vec<(Track, u32, Vec<u8>)>> {
    let made = parallel(tracks.len(), |at| {
        let (track, bits) = &tracks[at];
        let grids = make(store, *track, bits)?.into_iter();
        let grids = bits.iter().zip(grids);
        Ok(grids
            .map(|(&bits, grid)| (*track, bits, grid.write()))
            .collect::<Vec<_>>())
    })?;
    Ok(made.into_iter().flatten().collect())
}

impl Unfinished {
    /// Encodes the first periods. Returns the number of bytes.
    fn finish_block(&mut self, count: usize) -> Result<usize> {
        if !self.pending.is_sorted_by_key(|period| period.begin) {
            self.pending.sort_by_key(|period| period.begin);
        }
        let periods = &self.pending[..count];
        if self.last.is_some_and(|last| periods[0].begin < last) {
            bail!("periods are not in the order of time");
        }
        self.last = periods.last().map(|period| period.begin);
        let before = self.chunk.len();
        let mut block = encode(periods, &mut self.chunk, &mut self.track.sums);
        block.chunk = self.track.chunks.len() as u32;
        block.offset = before as u32;
        self.track.blocks.push(block);
        self.pending.drain(..count);
        Ok(self.chunk.len() - before)
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut sum = Crc::new();
    sum.update(bytes);
    sum.sum()
}

fn write_blocks(track: Track, blocks: &Blocks, out: &mut Vec<u8>) {
    let (kind, id) = match track {
        Track::Thread(tid) => (0, tid),
        Track::Cpu(cpu) => (1, cpu),
    };
    out.push(kind);
    put_signed(out, id);
    put(out, blocks.chunks.len() as u64);
    for chunk in &blocks.chunks {
        put(out, chunk.at);
        put(out, chunk.bytes.into());
        put(out, chunk.checksum.into());
    }
    put(out, blocks.grids.len() as u64);
    for (bits, chunk) in &blocks.grids {
        put(out, (*bits).into());
        put(out, chunk.at);
        put(out, chunk.bytes.into());
        put(out, chunk.checksum.into());
    }
    put(out, blocks.blocks.len() as u64);
    let mut sums = blocks.sums.as_slice();
    for (at, block) in blocks.blocks.iter().enumerate() {
        put_signed(out, block.begin);
        put_signed(out, block.last.wrapping_sub(block.begin));
        put_signed(out, block.end.wrapping_sub(block.begin));
        put(out, block.count.into());
        put(out, block.chunk.into());
        put(out, block.offset.into());
        let next = blocks.blocks.get(at + 1);
        let end = next.map_or(blocks.sums.len(), |next| next.sums as usize);
        let (own, rest) = sums.split_at(end - block.sums as usize);
        sums = rest;
        put(out, own.len() as u64);
        for sum in own {
            out.push(sum.class);
            put(out, sum.count.into());
            put_signed(out, sum.time);
        }
    }
}
