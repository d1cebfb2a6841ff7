//! Stretches of time in tracks, as many as a page holds.
//!
//! ```text
//! stretches          ▁▁▁▁▁▁████▁█▁█▁▁████████     begin, length, state or thread
//! with a grain of 4  ▁▁▁▁▁▁████(2+2)▁████████     shorter ones: time of each state or thread in each 4 ns
//! ```
//! Sums over times that are multiples of the grain stay exact. The grain grows until the stretches fit a page. Beyond a slot of the page, a CPU names the
//! threads with the most time in each cell: where thousands ran for a moment each, the grain would grow to the length of the trace.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::render::columns::Columns;

/// Maximum number of stretches in a page.
pub(super) const MOST: usize = 150_000;
/// Threads that a CPU names in a cell, once it does not name all.
const NAMED: usize = 4;
/// Maximum number of stretches in memory.
const MOST_IN_MEMORY: usize = 8 * MOST;

/// What a track is of.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    Cpu(i32),
    /// Index of the thread in the page.
    Thread(u32),
}

/// A time in one state, or of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stretch {
    pub(super) begin: i64,
    pub(super) length: i64,
    pub(super) what: u32,
}

#[derive(Debug)]
pub(super) struct Track {
    place: Place,
    exact: Vec<Stretch>,
    /// Nanoseconds by cell, which is as long as the grain, and by what was there.
    merged: BTreeMap<(i64, u32), i64>,
}

/// Tracks under construction.
#[derive(Debug)]
pub(super) struct Tracks {
    pub(super) all: Vec<Track>,
    /// Each divides the next one.
    grains: Vec<i64>,
    /// Index of the grain in use.
    level: usize,
    count: usize,
    /// Nanoseconds of a slot of the page.
    slot: i64,
    /// What stands for the threads that CPUs do not name; `None` while they name all.
    others: Option<u32>,
}

impl Tracks {
    pub(super) fn new(slot: i64) -> Tracks {
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
            slot,
            others: None,
        }
    }

    pub(super) fn grain(&self) -> i64 {
        self.grains[self.level]
    }

    pub(super) fn push(&mut self, place: Place) -> usize {
        self.all.push(Track {
            place,
            exact: Vec::new(),
            merged: BTreeMap::new(),
        });
        self.all.len() - 1
    }

    pub(super) fn add(&mut self, track: usize, stretch: Stretch) {
        if stretch.length >= self.grain() {
            self.all[track].exact.push(stretch);
            self.count += 1;
        } else {
            self.split(track, stretch);
        }
        if self.count > MOST_IN_MEMORY {
            while self.count > MOST_IN_MEMORY / 2 && self.level + 1 < self.grains.len() {
                self.coarsen();
            }
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

    pub(super) fn merge(&mut self, track: usize, cell: i64, what: u32, length: i64) {
        let sum = self.all[track]
            .merged
            .entry((cell, what))
            .or_insert_with(|| {
                self.count += 1;
                0
            });
        *sum += length;
    }

    /// Grows the grain until no stretches are too many. `others` is what stands for threads that CPUs do not name then.
    pub(super) fn shrink(&mut self, most: usize, mut others: impl FnMut() -> u32) {
        while self.count > most && self.level + 1 < self.grains.len() {
            match self.others {
                None if self.grains[self.level + 1] > self.slot => self.others = Some(others()),
                _ => self.coarsen(),
            }
            self.name_few();
        }
    }

    /// Whether CPUs name only the threads with the most time.
    pub(super) fn names_few(&self) -> bool {
        self.others.is_some()
    }

    /// Merges the threads of each cell of a CPU, but those with the most time.
    fn name_few(&mut self) {
        let Some(others) = self.others else {
            return;
        };
        let is_cpu = |track: &&mut Track| matches!(track.place, Place::Cpu(_));
        for track in self.all.iter_mut().filter(is_cpu) {
            let mut cells: BTreeMap<i64, Vec<(i64, u32)>> = BTreeMap::new();
            for ((cell, what), length) in std::mem::take(&mut track.merged) {
                cells.entry(cell).or_default().push((length, what));
            }
            for (cell, mut parts) in cells {
                // Those merged before stay last.
                parts.sort_unstable_by_key(|&(length, what)| (what == others, -length, what));
                for (place, (length, what)) in parts.into_iter().enumerate() {
                    let what = if place < NAMED { what } else { others };
                    *track.merged.entry((cell, what)).or_default() += length;
                }
            }
        }
        let count = |track: &Track| track.exact.len() + track.merged.len();
        self.count = self.all.iter().map(count).sum();
    }

    pub(super) fn coarsen_to(&mut self, grain: i64) {
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
    pub(super) fn json(&mut self, columns: &mut Columns) -> Vec<Value> {
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
            let (kind, id) = match track.place {
                Place::Cpu(cpu) => ("cpu", i64::from(cpu)),
                Place::Thread(thread) => ("thread", i64::from(thread)),
            };
            json!({
                "kind": kind,
                "id": id,
                "gap": columns.add(gaps),
                "length": columns.add(track.exact.iter().map(|stretch| stretch.length)),
                "what": columns.add(track.exact.iter().map(|stretch| stretch.what)),
                "cell": columns.add(track.merged.keys().map(|&(cell, _)| cell)),
                "cell_what": columns.add(track.merged.keys().map(|&(_, what)| what)),
                "cell_time": columns.add(track.merged.values().copied()),
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
        tracks.shrink(50_000, || unreachable!("two are few"));
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
    fn thousands_of_threads_leave_a_grain_that_shows_something() {
        const OTHERS: u32 = 1_000_000;
        let slot = 1_000_000;
        let mut tracks = Tracks::new(slot);
        tracks.push(Place::Cpu(0));
        // Each slot has one long stretch of thread 0, and twenty of threads that never run again.
        let (mut what, mut total) = (0, 0);
        for number in 0..2_000i64 {
            let begin = number * slot;
            let add = |tracks: &mut Tracks, begin, length, what| {
                tracks.add(
                    0,
                    Stretch {
                        begin,
                        length,
                        what,
                    },
                );
            };
            add(&mut tracks, begin, slot / 2, 0);
            for place in 0..20 {
                what += 1;
                add(&mut tracks, begin + slot / 2 + place * 1_000, 900, what);
                total += 900;
            }
        }
        tracks.shrink(10_000, || OTHERS);
        assert!(tracks.count <= 10_000 && tracks.names_few());
        assert!(tracks.grain() <= 5 * slot, "{}", tracks.grain());
        let merged = &tracks.all[0].merged;
        let of = |is: &dyn Fn(u32) -> bool| -> i64 {
            let chosen = merged.iter().filter(|((_, what), _)| is(*what));
            chosen.map(|(_, length)| length).sum()
        };
        assert_eq!(of(&|what| what != 0), total);
        assert!(of(&|what| what == OTHERS) > total / 2);
        let exact: i64 = tracks.all[0]
            .exact
            .iter()
            .map(|stretch| stretch.length)
            .sum();
        assert_eq!(of(&|what| what == 0) + exact, 2_000 * slot / 2);
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
