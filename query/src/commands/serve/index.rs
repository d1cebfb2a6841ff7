//! The index of a trace (`store/mod.rs`): that of the cache, or a new one.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use perfquet::Session;
use perfquet::stacks::strings;

use super::Served;
use super::engine::{Gone, at, integers, stream};
use super::http::Peer;
use super::states::{STATE_BITS, grid};
use super::store::blocks::Period;
use super::store::cache::Place;
use super::store::counts::{Counter, Counts};
use super::store::writer::{Sink, Writer};
use super::store::{Damaged, Store, Track, Unwritable};
use super::tiles::event_tables;
use crate::thread_states::number_of;

/// Rows of a trace whose index is kept, and of an event table that is counted: fewer are read in no time.
const FEW: u64 = 50_000;
/// Time between two checks whether anybody still waits.
const STEP: Duration = Duration::from_millis(5);

/// How far the work is, in thousandths.
#[derive(Debug, Default)]
pub(super) struct Progress(AtomicI64);

impl Progress {
    const NONE: i64 = 0;

    /// The index is not in the cache: it is being computed.
    fn begin(&self) {
        self.0.store(1, Ordering::Relaxed);
    }

    fn reach(&self, done: i64, all: i64) {
        let part = (i128::from(done) * 1000 / i128::from(all.max(1))).clamp(1, 999);
        self.0.fetch_max(part as i64, Ordering::Relaxed);
    }

    /// `None` before the work, and if there is none.
    pub(super) fn thousandths(&self) -> Option<i64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&part| part != Progress::NONE)
    }
}

/// What the work needs; a thread has it, not a request.
struct Work {
    session: Arc<Session>,
    progress: Arc<Progress>,
    start: i64,
    end: i64,
    has_states: bool,
    /// Event tables that are counted.
    tables: Vec<String>,
    place: Option<Place>,
}

impl Served {
    /// Whether there is anything for an index.
    pub(super) fn has_index(&self) -> Result<bool> {
        Ok(self.has_states()? || event_tables(self).iter().any(|(_, rows)| *rows >= FEW))
    }

    fn work(&self) -> Result<Work> {
        let tables = event_tables(self).into_iter();
        Ok(Work {
            session: Arc::clone(&self.session),
            progress: Arc::clone(&self.progress),
            start: self.start,
            end: self.end,
            has_states: self.has_states()?,
            tables: tables
                .filter(|(_, rows)| *rows >= FEW)
                .map(|(table, _)| table)
                .collect(),
            place: self.place.clone(),
        })
    }

    /// Starts to open or compute the index.
    pub(super) fn start_index(&self) -> Result<()> {
        let work = self.work()?;
        self.index.start(move || work.store())
    }

    /// Calls `read` with the index, again with a new one if it is damaged.
    pub(super) fn with_index(
        &self,
        peer: &Peer<'_>,
        read: impl Fn(&Store) -> Result<Vec<u8>>,
    ) -> Result<Vec<u8>> {
        let work = self.work()?;
        let index = self.index.get(peer, move || work.store())?;
        match read(&index) {
            Err(error) if error.is::<Damaged>() => {}
            answer => return answer,
        }
        if let Some(place) = &self.place {
            place.remove();
        }
        self.index.forget(&index);
        let work = self.work()?;
        let index = self.index.get(peer, move || work.store())?;
        read(&index)
    }

    /// The index, unless it is still being computed, or cannot be.
    pub(super) fn index_if_ready(&self, peer: &Peer<'_>) -> Result<Option<Arc<Store>>> {
        if !self.has_index()? {
            return Ok(None);
        }
        self.start_index()?;
        loop {
            match self.index.known() {
                Some(Ok(index)) => return Ok(Some(index)),
                Some(Err(_)) => return Ok(None),
                None if self.progress.thousandths().is_some() => return Ok(None),
                None if peer.is_gone() => return Err(Gone.into()),
                None => std::thread::sleep(STEP),
            }
        }
    }
}

impl Work {
    fn store(self) -> Result<Store> {
        let place = self.place.as_ref();
        let key = place.map_or("", |place| &place.key);
        if let Some(file) = place.and_then(Place::open)
            && let Ok(Some(store)) = Store::open(file, key)
        {
            return Ok(store);
        }
        self.progress.begin();
        let trace = &self.session.traces()[0];
        let rows = trace.tables.iter().map(|table| table.rows());
        let is_kept = rows.fold(0, u64::saturating_add) >= FEW;
        let created = place.filter(|_| is_kept).map(Place::create);
        let (file, unfinished) = match created {
            Some(Ok((file, unfinished))) => (file, unfinished),
            Some(Err(error)) => {
                log::debug!("no index is kept: {error:#}");
                return self.computed(Sink::Memory, key);
            }
            None => return self.computed(Sink::Memory, key),
        };
        let store = match self.computed(Sink::File(file), key) {
            // A full disk, or a limit of files.
            Err(error) if error.is::<Unwritable>() => {
                log::debug!("no index is kept: {error:#}");
                drop(unfinished);
                return self.computed(Sink::Memory, key);
            }
            store => store?,
        };
        if let Some(place) = place
            && place.is_of(trace)
        {
            // Without a name, the file is still there as long as it is open.
            if let Err(error) = place.publish(unfinished) {
                log::debug!("no index is kept: {error:#}");
            }
        }
        Ok(store)
    }

    /// Reads the rows, and writes the index.
    fn computed(&self, sink: Sink, key: &str) -> Result<Store> {
        let mut writer = Writer::new(sink, key)?;
        let counts = std::thread::scope(|scope| {
            let counting = scope.spawn(|| self.counts());
            if self.has_states {
                self.states(&mut writer)?;
            }
            counting
                .join()
                .unwrap_or_else(|_| Err(anyhow!("the work ended unexpectedly")))
        })?;
        for (table, counts) in counts {
            writer.count(&table, counts);
        }
        let length = self.end.saturating_sub(self.start);
        writer.finish(length, |store, track, bits| {
            grid(store, length, track, bits)
        })
    }

    /// Reads the states of all threads.
    fn states(&self, writer: &mut Writer) -> Result<()> {
        let sql = "SELECT tid, time, duration, cpu, state FROM thread_states";
        stream(&self.session, sql, &Peer::NONE, |batch| {
            let (tids, times) = (integers(batch, 0)?, integers(batch, 1)?);
            let (durations, cpus) = (integers(batch, 2)?, integers(batch, 3)?);
            let states = strings(batch.column(4))?;
            let mut latest = 0;
            for (row, state) in states.iter().enumerate() {
                let (Some(tid), Some(time)) = (at(&tids, row), at(&times, row)) else {
                    continue;
                };
                let (state, cpu) = (number_of(state) as u32, at(&cpus, row));
                let begin = time.saturating_sub(self.start);
                latest = latest.max(begin);
                // Negative durations are none.
                let length = at(&durations, row).filter(|&length| length >= 0);
                let length = length.unwrap_or(-1);
                let number = cpu.and_then(|cpu| u32::try_from(cpu).ok());
                let number = number.map_or(0, |cpu| cpu.saturating_add(1));
                let period = |value| Period {
                    begin,
                    length,
                    value,
                };
                let value = number.min(u32::MAX >> STATE_BITS) << STATE_BITS | state;
                writer.add(Track::Thread(tid), period(value))?;
                if let (Some(cpu), 0) = (cpu, state) {
                    let place = writer.thread(tid);
                    writer.add(Track::Cpu(cpu), period(place))?;
                }
            }
            self.progress
                .reach(latest, self.end.saturating_sub(self.start));
            Ok(())
        })
    }

    /// Counts the events of large tables.
    fn counts(&self) -> Result<Vec<(String, Counts)>> {
        let mut all = Vec::new();
        for table in &self.tables {
            let sql = format!("SELECT time FROM {table} WHERE time IS NOT NULL ORDER BY time");
            let mut counter = Counter::default();
            stream(&self.session, &sql, &Peer::NONE, |batch| {
                let times = integers(batch, 0)?;
                let is_sorted = (times.values().iter())
                    .all(|&time| counter.add(time.saturating_sub(self.start)));
                is_sorted.then_some(()).context("times are not sorted")
            })?;
            all.push((table.clone(), counter.finish()));
        }
        Ok(all)
    }
}
