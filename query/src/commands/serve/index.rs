//! The index of a trace (`store/mod.rs`): that of the cache, or a new one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use perfquet::Session;

use super::Served;
use super::engine::{Gone, integers, stream};
use super::http::Peer;
use super::periods::{COLUMNS, ThreadState, thread_states};
use super::sample::LEAST;
use super::states::grids;
use super::store::cache::Place;
use super::store::counts::{Counter, Counts};
use super::store::writer::{Sink, Writer};
use super::store::{Damaged, Store, Track, Unwritable};
use super::tiles::event_tables;

/// Rows of a trace whose index is kept, and of an event table that is counted: fewer are read in no time.
const FEW: u64 = 50_000;
/// Time between two checks whether anybody still waits.
const STEP: Duration = Duration::from_millis(5);

/// Time without requests before a long work begins, and the longest time until it does: the first picture comes first.
const QUIET: Duration = Duration::from_millis(250);
const MOST_WAIT: Duration = Duration::from_secs(10);
/// Longest time for which the work stops at once while requests are answered.
const MOST_WAY: Duration = Duration::from_secs(2);

/// The numbers of events of tables that are counted already: long before all states are read.
#[derive(Default)]
pub(super) struct Counted(Mutex<HashMap<String, Arc<Counts>>>);

impl Counted {
    pub(super) fn of(&self, table: &str) -> Option<Arc<Counts>> {
        let counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counted.get(table).cloned()
    }

    fn add(&self, table: &str, counts: Arc<Counts>) {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counted.insert(table.to_owned(), counts);
    }
}

/// How far the work is, and what goes before it.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// In thousandths.
    done: AtomicI64,
    /// Requests of pictures that are being answered, and all that have begun.
    requests: AtomicUsize,
    begun: AtomicUsize,
    /// The value of `begun` for which the work has waited long enough.
    waited_for: AtomicUsize,
}

/// A request that is being answered.
pub(super) struct Answering<'a>(&'a Progress);

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Progress {
    const NONE: i64 = 0;

    /// The work makes way until the result is dropped.
    pub(super) fn answering(&self) -> Answering<'_> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        Answering(self)
    }

    fn has_requests(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }

    /// Waits until there was no request for a moment.
    fn wait_for_quiet(&self) {
        let begin = Instant::now();
        let mut last = begin;
        while last.elapsed() < QUIET && begin.elapsed() < MOST_WAIT {
            std::thread::sleep(STEP);
            if self.has_requests() {
                last = Instant::now();
            }
        }
    }

    /// Waits as long as requests are answered, but not for long requests.
    fn make_way(&self) {
        let begin = Instant::now();
        let begun = self.begun.load(Ordering::Relaxed);
        while self.has_requests() && self.waited_for.load(Ordering::Relaxed) != begun {
            std::thread::sleep(STEP);
            if begin.elapsed() > MOST_WAY {
                self.waited_for.store(begun, Ordering::Relaxed);
            }
        }
    }

    /// The index is not in the cache: it is being computed.
    fn begin(&self) {
        self.done.store(1, Ordering::Relaxed);
    }

    fn reach(&self, done: i64, all: i64) {
        let part = (i128::from(done) * 1000 / i128::from(all.max(1))).clamp(1, 999);
        self.done.fetch_max(part as i64, Ordering::Relaxed);
    }

    /// `None` before the work, and if there is none.
    pub(super) fn thousandths(&self) -> Option<i64> {
        Some(self.done.load(Ordering::Relaxed)).filter(|&part| part != Progress::NONE)
    }
}

/// What the work needs; a thread has it, not a request.
struct Work {
    session: Arc<Session>,
    progress: Arc<Progress>,
    counted: Arc<Counted>,
    start: i64,
    end: i64,
    has_states: bool,
    /// Whether pictures are drawn without waiting for the work.
    is_long: bool,
    /// Event tables that are counted, and their rows.
    tables: Vec<(String, u64)>,
    place: Option<Place>,
}

impl Served {
    /// Whether there is anything for an index.
    pub(super) fn has_index(&self) -> Result<bool> {
        Ok(self.has_states()? || event_tables(self).iter().any(|(_, rows)| *rows >= FEW))
    }

    /// Whether pictures do not wait for the index.
    fn is_long(&self) -> bool {
        self.scheduler_events() >= LEAST
    }

    /// Whether states are read for the picture alone, since the index is being computed.
    pub(super) fn is_sampled(&self, peer: &Peer<'_>) -> Result<bool> {
        let is_computed = self.is_long() && self.index_if_ready(peer)?.is_none();
        // Its error is that of the tile.
        Ok(is_computed && self.index.known().is_none())
    }

    /// Whether the index will not change any more.
    pub(super) fn is_indexed(&self) -> bool {
        self.index.known().is_some()
    }

    fn work(&self) -> Result<Work> {
        let tables = event_tables(self).into_iter();
        Ok(Work {
            session: Arc::clone(&self.session),
            progress: Arc::clone(&self.progress),
            counted: Arc::clone(&self.counted),
            start: self.start,
            end: self.end,
            has_states: self.has_states()?,
            is_long: self.is_long(),
            tables: tables.filter(|(_, rows)| *rows >= FEW).collect(),
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
        if self.is_long {
            self.progress.wait_for_quiet();
        }
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
            self.make_way();
            grids(store, length, track, bits)
        })
    }

    /// Pictures come first, unless they wait for this.
    fn make_way(&self) {
        if self.is_long {
            self.progress.make_way();
        }
    }

    /// Reads the states of all threads.
    fn states(&self, writer: &mut Writer) -> Result<()> {
        let sql = format!("SELECT {COLUMNS} FROM thread_states");
        let length = self.end.saturating_sub(self.start);
        let each = |state: ThreadState| {
            writer.add(Track::Thread(state.tid), state.of_thread())?;
            if let Some(cpu) = state.runs_on() {
                let place = writer.thread(state.tid);
                writer.add(Track::Cpu(cpu), state.with_value(place))?;
            }
            Ok(())
        };
        thread_states(&self.session, &sql, self.start, each, |latest| {
            self.progress.reach(latest, length);
            self.make_way();
            Ok(())
        })
    }

    /// Counts the events of large tables.
    fn counts(&self) -> Result<Vec<(String, Arc<Counts>)>> {
        let mut all = Vec::new();
        for (table, rows) in &self.tables {
            let sql = format!("SELECT time FROM {table} WHERE time IS NOT NULL ORDER BY time");
            let mut counter = Counter::of(*rows);
            stream(&self.session, &sql, &Peer::NONE, |batch| {
                self.make_way();
                let times = integers(batch, 0)?;
                let is_sorted = (times.values().iter())
                    .all(|&time| counter.add(time.saturating_sub(self.start)));
                is_sorted.then_some(()).context("times are not sorted")
            })?;
            let counts = Arc::new(counter.finish());
            self.counted.add(table, Arc::clone(&counts));
            all.push((table.clone(), counts));
        }
        Ok(all)
    }
}
