//! Tables for the code caches of JVMs: each covers generated code of one process, and is replaced when code was compiled.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use perfquet_ebpf::walk_tables::{FILES_MAX, ListRow, Table, WalkTables};
use perfquet_trace::symbols::limits::CODE_CACHES_MAX;

use super::hotspot::{Hotspots, Rules};

/// Their tables have the last numbers of files; real files never get that many.
const CACHES_MAX: u32 = CODE_CACHES_MAX as u32;
/// Processes that are remembered.
const SEEN_MAX: usize = 1 << 12;
/// Between two requests to look at a code cache.
const PAUSE: Duration = Duration::from_millis(20);
/// An answer takes no longer, if anything has changed.
const ANSWER: Duration = Duration::from_millis(50);

/// The code caches of processes.
#[derive(Default)]
pub(super) struct Caches {
    /// Started with the first JVM.
    hotspots: Option<Hotspots>,
    /// Processes that are read: which program of each.
    watched: HashMap<i32, u64>,
    watches: u64,
    /// When a code cache was last asked for.
    asked: Option<Instant>,
    known: HashMap<i32, Cache>,
    /// All that were known.
    seen: BTreeSet<i32>,
}

struct Cache {
    /// Of its table among those of files.
    number: u32,
    low: u64,
    high: u64,
    /// In each object.
    tables: Vec<Option<Table>>,
    looked: Instant,
}

impl Caches {
    /// Reads the code cache of a process from now on.
    pub(super) fn watch(&mut self, pid: i32) {
        let Caches {
            hotspots,
            watched,
            watches,
            asked,
            ..
        } = self;
        if let Entry::Vacant(free) = watched.entry(pid) {
            *watches += 1;
            free.insert(*watches);
            *asked = Some(Instant::now());
            let hotspots = hotspots.get_or_insert_with(Hotspots::start);
            hotspots.watch(pid, *watches);
        }
    }

    /// Looks at the code cache of a process soon, if it has one.
    pub(super) fn look(&mut self, pid: i32) {
        if let (Some(hotspots), Some(cache)) = (&self.hotspots, self.known.get_mut(&pid))
            && cache.looked.elapsed() > PAUSE
        {
            cache.looked = Instant::now();
            self.asked = Some(cache.looked);
            hotspots.look(pid);
        }
    }

    /// Whether rules are expected soon.
    pub(super) fn are_waiting(&self) -> bool {
        self.asked.is_some_and(|asked| asked.elapsed() < ANSWER)
    }

    /// The processes whose code had rules.
    pub(super) fn take_seen(&mut self) -> BTreeSet<i32> {
        std::mem::take(&mut self.seen)
    }

    /// Forgets a process.
    pub(super) fn forget(&mut self, pid: i32, objects: &mut [WalkTables]) {
        if let (Some(hotspots), Some(_)) = (&self.hotspots, self.watched.remove(&pid)) {
            hotspots.forget(pid);
        }
        let Some(cache) = self.known.remove(&pid) else {
            return;
        };
        for (object, table) in objects.iter_mut().zip(cache.tables) {
            if let Err(error) = object.remove_table(cache.number, table.unwrap_or_default()) {
                log::debug!("code cache of process {pid}: {error}");
            }
        }
    }

    /// Publishes what was read. Returns the processes whose list must be published again.
    pub(super) fn update(&mut self, objects: &mut [WalkTables]) -> Vec<i32> {
        let mut changed = Vec::new();
        while let Some(rules) = self.hotspots.as_ref().and_then(Hotspots::take) {
            changed.extend(self.add(&rules, objects));
        }
        changed
    }

    fn add(&mut self, rules: &Rules, objects: &mut [WalkTables]) -> Option<i32> {
        let pid = rules.pid;
        // Read before the process ended, or ran another program.
        if self.watched.get(&pid) != Some(&rules.watch) {
            return None;
        }
        let is_new = !self.known.contains_key(&pid);
        if is_new {
            let is_free = |number: &u32| self.known.values().all(|cache| cache.number != *number);
            let number = (FILES_MAX - CACHES_MAX..FILES_MAX).find(is_free)?;
            let cache = Cache {
                number,
                low: rules.low,
                high: rules.high,
                tables: Vec::new(),
                looked: Instant::now(),
            };
            self.known.insert(pid, cache);
            if self.seen.len() < SEEN_MAX {
                self.seen.insert(pid);
            }
        }
        let cache = self.known.get_mut(&pid)?;
        let has_moved = (cache.low, cache.high) != (rules.low, rules.high);
        (cache.low, cache.high) = (rules.low, rules.high);
        cache.tables.resize_with(objects.len(), || None);
        let wide: Vec<[u64; 2]> = rules.code.wide.iter().map(|rule| rule.words()).collect();
        for (object, table) in objects.iter_mut().zip(&mut cache.tables) {
            let rows = rules.code.rows.iter();
            let rows = rows.map(|row| {
                let value = u32::from(row.cfa) | u32::from(row.rbp as u16) << 16;
                (row.address, value)
            });
            let former = table.take().unwrap_or_default();
            match object.replace_table(cache.number, (rows, &wide, true), former) {
                Ok(added) => *table = added,
                Err(error) => log::debug!("code cache of process {pid}: {error}"),
            }
        }
        log::debug!(
            "code cache of process {pid}: {} rows",
            rules.code.rows.len()
        );
        (is_new || has_moved).then_some(pid)
    }

    /// Returns the row of a mapping inside of a process's code cache.
    pub(super) fn covers(&self, pid: i32, row: &ListRow) -> Option<ListRow> {
        let cache = self.known.get(&pid)?;
        if row.start < cache.low || row.end > cache.high {
            return None;
        }
        Some(ListRow {
            file: cache.number,
            file_start: u32::try_from(row.start - cache.low).ok()?,
            ..*row
        })
    }
}
