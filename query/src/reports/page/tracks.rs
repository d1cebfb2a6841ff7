//! Tracks of a page: what ran on each CPU, and the states of the busiest threads.
//!
//! ```text
//! stretches          ▁▁▁▁▁▁████▁█▁█▁▁████████     begin, length, state or thread
//! with a grain of 4  ▁▁▁▁▁▁████(2+2)▁████████     shorter ones: time of each state or thread in each 4 ns
//! ```
//! Sums over times that are multiples of the grain stay exact. The grain grows until the stretches fit a page.

use std::collections::BTreeMap;

use anyhow::Result;
use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Int32Type, Int64Type};
use perfquet_trace::count::grouped;
use serde_json::{Value, json};

use super::cells::Threads;
use super::unless_failed;
use crate::filter::Filters;
use crate::functions::in_fitting_unit;
use crate::reports::row_source::{has_rows, is_recorded};
use crate::session::Session;
use crate::text::strings;

/// Threads with a track of their states.
const THREADS: usize = 30;
/// CPUs with a track.
const CPUS: usize = 128;
/// Maximum number of stretches in a page.
const MOST: usize = 150_000;
/// Maximum number of stretches in memory.
const MOST_IN_MEMORY: usize = 8 * MOST;

/// The states of the view `thread_states`; the script has their colors.
const STATES: [&str; 10] = [
    "running",
    "runnable",
    "preempted",
    "uninterruptible",
    "interruptible",
    "stopped",
    "idle",
    "parked",
    "dead",
    "unknown",
];

/// The tracks, from scheduler events, otherwise from samples; null if there are neither.
pub(super) fn of(
    session: &Session,
    filters: &Filters,
    begin: i64,
    slot: i64,
    threads: &mut Threads,
    omitted: &mut Vec<String>,
) -> Result<Value> {
    let has_states = is_recorded(session, "thread_states")?;
    let of = if has_states { of_states } else { of_samples };
    let found = of(session, filters, begin, slot, threads);
    // A condition may have columns that only samples or calls have.
    let Some(mut found) = unless_failed(found, "tracks of CPUs and threads", omitted)? else {
        return Ok(Value::Null);
    };
    if found.tracks.all.is_empty() {
        return Ok(Value::Null);
    }
    found.tracks.shrink(MOST);
    let mut notes = Vec::new();
    let mut left_out = |kind: &str, most: usize, all: usize| {
        if all > most {
            notes.push(format!(
                "{most} of {} {kind}, those busy longest",
                grouped(all as u64)
            ));
        }
    };
    left_out("threads", THREADS, found.threads);
    left_out("CPUs", CPUS, found.cpus);
    let grain = found.tracks.grain();
    if grain > 0 && has_states {
        let grain = in_fitting_unit(grain as f64);
        notes.push(format!("stretches shorter than {grain} are merged"));
    }
    omitted.extend(notes.iter().map(|note| format!("tracks: {note}")));
    let command = match &found.source {
        None => vec!["utilization", "--by", "thread"],
        Some(event) => vec!["top", "--event", event, "--by", "comm"],
    };
    Ok(json!({
        "states": STATES,
        "grain": grain,
        "source": found.source,
        "notes": notes,
        "command": command,
        "all": found.tracks.json(),
    }))
}

struct Found {
    tracks: Tracks,
    /// What CPUs are known from, if not from scheduler events.
    source: Option<String>,
    /// Numbers of all.
    threads: usize,
    cpus: usize,
}

fn of_states(
    session: &Session,
    filters: &Filters,
    begin: i64,
    slot: i64,
    threads: &mut Threads,
) -> Result<Found> {
    let condition = filters.condition(session)?;
    let ranking = |key: &str, states: &str| {
        ids(
            session,
            &format!(
                "SELECT {key}, sum(duration) AS total FROM thread_states WHERE {condition} AND state IN ({states}) \
                 AND {key} IS NOT NULL GROUP BY 1 ORDER BY 2 DESC NULLS LAST, 1"
            ),
        )
    };
    let mut tids = ranking(
        "tid",
        "'running', 'runnable', 'preempted', 'uninterruptible'",
    )?;
    let mut cpus = ranking("cpu", "'running'")?;
    let (of_threads, of_cpus) = (tids.len(), cpus.len());
    tids.truncate(THREADS);
    cpus.truncate(CPUS);
    cpus.sort_unstable();
    let list = |ids: &[i32]| {
        let texts: Vec<String> = ids.iter().map(ToString::to_string).collect();
        if texts.is_empty() {
            "NULL".to_owned()
        } else {
            texts.join(", ")
        }
    };
    let mut tracks = Tracks::new(slot);
    let of_cpu: BTreeMap<i32, usize> = cpus
        .iter()
        .map(|&cpu| (cpu, tracks.push(Place::Cpu(cpu))))
        .collect();
    let of_thread: BTreeMap<i32, usize> = tids
        .iter()
        .map(|&tid| (tid, tracks.push(Place::Thread(threads.of(tid)))))
        .collect();
    let sql = format!(
        "SELECT time - {begin} AS begin, duration, CAST(cpu AS INT) AS cpu, CAST(tid AS INT) AS tid, coalesce(state, 'unknown') AS state \
         FROM thread_states WHERE {condition} AND duration > 0 AND (state = 'running' AND cpu IN ({}) OR tid IN ({}))",
        list(&cpus),
        list(&tids)
    );
    let mut answer = session.query(&sql)?;
    while let Some(batch) = answer.next()? {
        let number = |column: usize| batch.column(column).as_primitive::<Int64Type>();
        let (begins, lengths) = (number(0), number(1));
        let id = |column: usize| batch.column(column).as_primitive::<Int32Type>();
        let (cpus, tids) = (id(2), id(3));
        let states = strings(batch.column(4))?;
        for row in 0..batch.num_rows() {
            let state = states.value(row);
            let tid = tids.is_valid(row).then(|| tids.value(row));
            let mut stretch = Stretch {
                begin: begins.value(row),
                length: lengths.value(row),
                what: 0,
            };
            if let Some(&track) = tid.and_then(|tid| of_thread.get(&tid)) {
                let state = STATES.iter().position(|&known| known == state);
                stretch.what = state.unwrap_or(STATES.len() - 1) as u32;
                tracks.add(track, stretch);
            }
            if state == "running"
                && let (Some(tid), true) = (tid, cpus.is_valid(row))
                && let Some(&track) = of_cpu.get(&cpus.value(row))
            {
                stretch.what = threads.of(tid);
                tracks.add(track, stretch);
            }
        }
    }
    Ok(Found {
        tracks,
        source: None,
        threads: of_threads,
        cpus: of_cpus,
    })
}

/// CPUs by their samples: the busiest slot of the trace counts as busy all the time.
fn of_samples(
    session: &Session,
    filters: &Filters,
    begin: i64,
    slot: i64,
    threads: &mut Threads,
) -> Result<Found> {
    let mut found = Found {
        tracks: Tracks::new(slot),
        source: None,
        threads: 0,
        cpus: 0,
    };
    if !has_rows(session, "samples") {
        return Ok(found);
    }
    let condition = filters.condition(session)?;
    let sql = format!(
        "SELECT event FROM samples WHERE {condition} AND cpu IS NOT NULL AND time IS NOT NULL GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 1"
    );
    let batches = session.collect(&sql)?;
    let Some(batch) = batches.iter().find(|batch| batch.num_rows() > 0) else {
        return Ok(found);
    };
    let event = strings(batch.column(0))?;
    let event = event.value(0).to_owned();
    let sql = format!(
        "SELECT CAST(cpu AS INT) AS cpu, (time - {begin}) / {slot} AS slot, CAST(coalesce(tid, -1) AS INT) AS tid, count(*) AS count FROM samples \
         WHERE {condition} AND event = {} AND cpu IS NOT NULL AND time IS NOT NULL GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
        crate::session::literal(&event)
    );
    let mut cells: BTreeMap<i32, Vec<(i64, u32, i64)>> = BTreeMap::new();
    let mut sums: BTreeMap<(i32, i64), i64> = BTreeMap::new();
    for batch in session.collect(&sql)? {
        let id = |column: usize| batch.column(column).as_primitive::<Int32Type>();
        let number = |column: usize| batch.column(column).as_primitive::<Int64Type>();
        let (cpus, tids, slots, counts) = (id(0), id(2), number(1), number(3));
        for row in 0..batch.num_rows() {
            let (cpu, slot, count) = (cpus.value(row), slots.value(row), counts.value(row));
            let cell = (slot, threads.of(tids.value(row)), count);
            cells.entry(cpu).or_default().push(cell);
            *sums.entry((cpu, slot)).or_default() += count;
        }
    }
    let most = sums.values().copied().max().unwrap_or(1).max(1);
    found.cpus = cells.len();
    found.source = Some(event);
    found.tracks.coarsen_to(slot);
    for (cpu, cells) in cells.into_iter().take(CPUS) {
        let track = found.tracks.push(Place::Cpu(cpu));
        for (cell, what, count) in cells {
            // Shorter than the slot, so that it is merged: a full one too.
            let share = i128::from(slot) * i128::from(count) / i128::from(most);
            let length = i64::try_from(share).unwrap_or(slot).clamp(1, slot);
            found.tracks.merge(track, cell, what, length);
        }
    }
    Ok(found)
}

/// The first column of the rows of a ranking.
fn ids(session: &Session, sql: &str) -> Result<Vec<i32>> {
    let mut ids = Vec::new();
    for batch in session.collect(sql)? {
        let column = arrow::compute::cast(batch.column(0), &DataType::Int32)?;
        ids.extend(column.as_primitive::<Int32Type>().values());
    }
    Ok(ids)
}

/// What a track is of.
#[derive(Debug, Clone, Copy)]
enum Place {
    Cpu(i32),
    /// Index in [`Threads`].
    Thread(u32),
}

/// A time in one state, or of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Stretch {
    begin: i64,
    length: i64,
    what: u32,
}

#[derive(Debug)]
struct Track {
    place: Place,
    exact: Vec<Stretch>,
    /// Nanoseconds by cell, which is as long as the grain, and by what was there.
    merged: BTreeMap<(i64, u32), i64>,
}

/// Tracks under construction.
#[derive(Debug)]
struct Tracks {
    all: Vec<Track>,
    /// Each divides the next one.
    grains: Vec<i64>,
    /// Index of the grain in use.
    level: usize,
    count: usize,
}

impl Tracks {
    fn new(slot: i64) -> Tracks {
        let divisors = [1000, 500, 100, 50, 10, 5, 1];
        let parts = divisors
            .into_iter()
            .filter(|divisor| slot % divisor == 0)
            .map(|divisor| slot / divisor);
        let wholes =
            [5, 10, 50, 100, 500, 1000, 5000, 10_000].map(|many| slot.saturating_mul(many));
        Tracks {
            all: Vec::new(),
            grains: std::iter::once(0).chain(parts).chain(wholes).collect(),
            level: 0,
            count: 0,
        }
    }

    fn grain(&self) -> i64 {
        self.grains[self.level]
    }

    fn push(&mut self, place: Place) -> usize {
        self.all.push(Track {
            place,
            exact: Vec::new(),
            merged: BTreeMap::new(),
        });
        self.all.len() - 1
    }

    fn add(&mut self, track: usize, stretch: Stretch) {
        if stretch.length >= self.grain() {
            self.all[track].exact.push(stretch);
            self.count += 1;
        } else {
            self.split(track, stretch);
        }
        if self.count > MOST_IN_MEMORY {
            self.shrink(MOST_IN_MEMORY / 2);
        }
    }

    /// Adds a stretch to the cells that it touches.
    fn split(&mut self, track: usize, stretch: Stretch) {
        let grain = self.grain();
        let end = stretch.begin.saturating_add(stretch.length);
        let mut from = stretch.begin;
        while from < end {
            let cell = from.div_euclid(grain);
            let to = end.min((cell + 1).saturating_mul(grain));
            self.merge(track, cell, stretch.what, to - from);
            from = to;
        }
    }

    fn merge(&mut self, track: usize, cell: i64, what: u32, length: i64) {
        let sum = self.all[track]
            .merged
            .entry((cell, what))
            .or_insert_with(|| {
                self.count += 1;
                0
            });
        *sum += length;
    }

    /// Grows the grain until no stretches are too many.
    fn shrink(&mut self, most: usize) {
        while self.count > most && self.level + 1 < self.grains.len() {
            self.coarsen();
        }
    }

    fn coarsen_to(&mut self, grain: i64) {
        while self.grain() < grain && self.level + 1 < self.grains.len() {
            self.coarsen();
        }
    }

    fn coarsen(&mut self) {
        let old = self.grain();
        self.level += 1;
        let grain = self.grain();
        self.count = 0;
        for track in 0..self.all.len() {
            let stretches = std::mem::take(&mut self.all[track].exact);
            let merged = std::mem::take(&mut self.all[track].merged);
            for ((cell, what), length) in merged {
                self.merge(track, (cell * old).div_euclid(grain), what, length);
            }
            let (exact, short) = stretches
                .into_iter()
                .partition::<Vec<Stretch>, _>(|stretch| stretch.length >= grain);
            self.count += exact.len();
            self.all[track].exact = exact;
            for stretch in short {
                self.split(track, stretch);
            }
        }
    }

    /// Tracks column by column. A begin is the distance from the end of the stretch before.
    fn json(mut self) -> Value {
        let tracks = self.all.iter_mut().map(|track| {
            track.exact.sort_unstable();
            let mut end = 0;
            let gaps: Vec<i64> = track
                .exact
                .iter()
                .map(|stretch| {
                    let gap = stretch.begin - end;
                    end = stretch.begin + stretch.length;
                    gap
                })
                .collect();
            let mut last = 0;
            let cells: Vec<i64> = track
                .merged
                .keys()
                .map(|&(cell, _)| cell - std::mem::replace(&mut last, cell))
                .collect();
            let (kind, id) = match track.place {
                Place::Cpu(cpu) => ("cpu", i64::from(cpu)),
                Place::Thread(thread) => ("thread", i64::from(thread)),
            };
            json!({
                "kind": kind,
                "id": id,
                "gap": gaps,
                "length": track.exact.iter().map(|stretch| stretch.length).collect::<Vec<i64>>(),
                "what": track.exact.iter().map(|stretch| stretch.what).collect::<Vec<u32>>(),
                "cell": cells,
                "cell_what": track.merged.keys().map(|&(_, what)| what).collect::<Vec<u32>>(),
                "cell_time": track.merged.values().copied().collect::<Vec<i64>>(),
            })
        });
        tracks.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time of each state from `from` to `to`, which are multiples of the grain.
    fn sums(track: &Track, grain: i64, from: i64, to: i64) -> [i64; 2] {
        let mut sums = [0, 0];
        for stretch in &track.exact {
            let end = (stretch.begin + stretch.length).min(to);
            sums[stretch.what as usize] += (end - stretch.begin.max(from)).max(0);
        }
        for (&(cell, what), &length) in &track.merged {
            if cell * grain >= from && cell * grain < to {
                sums[what as usize] += length;
            }
        }
        sums
    }

    #[test]
    fn merged_stretches_keep_their_sums() {
        let slot = 20_000;
        let mut tracks = Tracks::new(slot);
        tracks.push(Place::Cpu(0));
        let mut begin = 0;
        for number in 0..200_000i64 {
            let length = 1 + (number * 7919) % if number % 10 == 0 { 30_000 } else { 300 };
            let what = (number % 2) as u32;
            tracks.add(
                0,
                Stretch {
                    begin,
                    length,
                    what,
                },
            );
            begin += length;
        }
        let before = |from, to| sums(&tracks.all[0], 0, from, to);
        let ranges = [
            (0, 5 * slot),
            (3 * slot, 700 * slot),
            (0, begin / slot * slot),
        ];
        let expected = ranges.map(|(from, to)| before(from, to));
        tracks.shrink(50_000);
        assert!(tracks.count <= 50_000, "{}", tracks.count);
        let grain = tracks.grain();
        assert!(grain > 0 && slot % grain == 0, "{grain}");
        assert_eq!(
            tracks.count,
            tracks.all[0].exact.len() + tracks.all[0].merged.len()
        );
        let found = ranges.map(|(from, to)| sums(&tracks.all[0], grain, from, to));
        assert_eq!(found, expected);
    }

    #[test]
    fn grains_divide_each_other() {
        for slot in [1, 20_000, 200_000, 20_000_000, 72_000_000_000] {
            let grains = Tracks::new(slot).grains;
            assert!(grains[1..].windows(2).all(|two| two[1] % two[0] == 0));
            assert!(grains[1..].windows(2).all(|two| two[1] > two[0]));
        }
    }
}
