//! Tiles of the states of threads: what each thread did, and which thread ran on each CPU.
//!
//! ```text
//! t, d, s, c    periods of at least a step
//! x, n, shares  of each step: number of shorter ones that begin in it, and the time of each state in 32nds of the step
//! ```

use anyhow::{Result, bail};

use super::columns::Rows;
use super::engine::Gone;
use super::http::Peer;
use super::store::blocks::{CLASSES, Period};
use super::store::grid::{Cell, Grid};
use super::store::{Damaged, Part, Store, Track};
use super::tiles::Window;

/// Bits of a period's value that are its state; the others are the CPU and 1.
pub(super) const STATE_BITS: u32 = 4;

/// The states that are drawn where they are shorter than a step; in the others, threads sleep or have ended.
pub(super) const DRAWN: [usize; 5] = [0, 1, 2, 3, 9];

/// The states of threads: long periods one by one, the others by step and state.
pub(super) fn threads(
    store: &Store,
    window: &Window,
    tids: &[i64],
    peer: &Peer<'_>,
) -> Result<Vec<u8>> {
    rows(tids, peer, |tids| {
        let mut rows = Rows::default();
        for &tid in tids {
            let grid = of_thread(store, tid, window)?;
            let mut long: [Vec<i64>; 4] = Default::default();
            for period in &grid.long {
                let state = period.value & ((1 << STATE_BITS) - 1);
                let cpu = i64::from(period.value >> STATE_BITS) - 1;
                let length = period.end() - period.begin;
                push(&mut long, [period.begin, length, state.into(), cpu]);
            }
            let [t, d, s, c] = &long;
            let (x, n) = steps(&grid, window);
            let columns: [(&str, &[i64]); 6] =
                [("t", t), ("d", d), ("s", s), ("c", c), ("x", &x), ("n", &n)];
            let mut shares: Vec<(String, Vec<i64>)> = Vec::new();
            for state in DRAWN {
                let time = |cell: &Cell| {
                    let mut times = cell.times.iter();
                    times
                        .find(|(of, _)| *of == state as u32)
                        .map_or(0, |(_, time)| *time)
                };
                let share: Vec<i64> = (grid.cells.iter())
                    .map(|cell| window.share(time(cell)))
                    .collect();
                if share.iter().any(|&share| share > 0) {
                    shares.push((state.to_string(), share));
                }
            }
            let shares: Vec<(&str, &[i64])> = (shares.iter())
                .map(|(state, share)| (state.as_str(), share.as_slice()))
                .collect();
            rows.add_with(&[("id", tid)], &columns, &[("shares", &shares)])?;
        }
        Ok(rows)
    })
}

/// What ran on CPUs: long periods one by one, of the others the thread that ran longest in each step.
pub(super) fn cpus(
    store: &Store,
    window: &Window,
    cpus: &[i64],
    peer: &Peer<'_>,
) -> Result<Vec<u8>> {
    rows(cpus, peer, |cpus| {
        let mut rows = Rows::default();
        for &cpu in cpus {
            let grid = of_cpu(store, cpu, window)?;
            let tid = |place| store.tid(place).ok_or(Damaged);
            let mut long: [Vec<i64>; 3] = Default::default();
            for period in &grid.long {
                let length = period.end() - period.begin;
                push(&mut long, [period.begin, length, tid(period.value)?]);
            }
            let mut short: [Vec<i64>; 2] = Default::default();
            for cell in &grid.cells {
                let &(place, time) = cell.times.first().ok_or(Damaged)?;
                push(&mut short, [tid(place)?, window.share(time)]);
            }
            let ([t, d, w], [y, share]) = (&long, &short);
            let (x, n) = steps(&grid, window);
            let columns: [(&str, &[i64]); 7] = [
                ("t", t),
                ("d", d),
                ("w", w),
                ("x", &x),
                ("n", &n),
                ("y", y),
                ("share", share),
            ];
            rows.add(&[("id", cpu)], &columns)?;
        }
        Ok(rows)
    })
}

/// The grids of a track over all of a trace of this length, at steps of 2^bits, each twice the one before.
pub(super) fn grids(store: &Store, length: i64, track: Track, bits: &[u32]) -> Result<Vec<Grid>> {
    let mut all: Vec<Grid> = Vec::new();
    for &bits in bits {
        let window = Window {
            from: 0,
            to: ((length + 2) >> bits << bits) + (1 << bits),
            step: 1 << bits,
        };
        all.push(match (track, all.last()) {
            (Track::Thread(_), Some(finer)) => coarser(finer, &window),
            (Track::Thread(tid), None) => of_thread(store, tid, &window)?,
            // Which thread ran longest in a step, its halves do not say.
            (Track::Cpu(cpu), _) => of_cpu(store, cpu, &window)?,
        });
    }
    Ok(all)
}

/// The grid of a thread at twice the step of another.
fn coarser(finer: &Grid, window: &Window) -> Grid {
    let mut grid = Grid::default();
    let mut sums = Sums::of(window);
    for cell in &finer.cells {
        let bin = cell.step >> 1;
        // Of the states that are not drawn, there is no time.
        sums.add(bin, DRAWN[0], 0, cell.count as u32);
        for &(state, time) in &cell.times {
            sums.add(bin, state as usize, time, 0);
        }
    }
    for &period in &finer.long {
        sums.add_period(period, window, &mut grid.long);
    }
    grid.cells = sums.cells(0);
    grid
}

/// Numbers of the steps of a window, and of the periods that begin in them.
fn steps(grid: &Grid, window: &Window) -> (Vec<i64>, Vec<i64>) {
    let first = window.from >> window.bits();
    let cells = grid.cells.iter();
    cells.map(|cell| (cell.step - first, cell.count)).unzip()
}

/// What of the grid of a track is in a window, if there is one at its step.
fn known(store: &Store, track: Track, window: &Window) -> Result<Option<Grid>> {
    let (from, to) = (window.from, window.to);
    let steps = from >> window.bits()..to >> window.bits();
    let Some(mut grid) = store.grid(track, window.bits(), &steps)? else {
        return Ok(None);
    };
    grid.long
        .retain(|period| period.begin < to && (period.end() > from || period.begin >= from));
    Ok(Some(grid))
}

fn of_thread(store: &Store, tid: i64, window: &Window) -> Result<Grid> {
    if let Some(grid) = known(store, Track::Thread(tid), window)? {
        return Ok(grid);
    }
    let mut grid = Grid::default();
    let mut sums = Sums::of(window);
    let range = (window.from, window.to);
    store.visit(Track::Thread(tid), range, |part| {
        let period = match part {
            Part::Block(block, of_block) => {
                // All of its periods are in one step, and shorter than it.
                let is_short = block.end - block.begin < window.step;
                let bin = window.only_bin(block.begin, block.end);
                let Some(bin) = bin.filter(|_| is_short) else {
                    return false;
                };
                for sum in of_block {
                    sums.add(bin, sum.class.into(), sum.time, sum.count);
                }
                return true;
            }
            Part::Period(period) => period,
        };
        sums.add_period(period, window, &mut grid.long);
        true
    })?;
    grid.cells = sums.cells(window.from >> window.bits());
    Ok(grid)
}

fn of_cpu(store: &Store, cpu: i64, window: &Window) -> Result<Grid> {
    if let Some(grid) = known(store, Track::Cpu(cpu), window)? {
        return Ok(grid);
    }
    let mut grid = Grid::default();
    let mut share = Share::of(store.threads());
    let mut is_wrong = false;
    let (range, first) = ((window.from, window.to), window.from >> window.bits());
    store.visit(Track::Cpu(cpu), range, |part| {
        // Which thread ran longest in a step, no sum says.
        let Part::Period(period) = part else {
            return false;
        };
        let (begin, end) = (period.begin, period.end());
        if end - begin >= window.step {
            grid.long.push(period);
            return true;
        }
        for (bin, inside, is_first) in window.bins(begin, end) {
            if bin != share.bin {
                // Periods of a CPU do not overlap.
                is_wrong |= bin < share.bin;
                share.finish(store, first, &mut grid.cells);
                share.bin = bin;
            }
            is_wrong |= !share.add(period.value, inside, is_first);
        }
        true
    })?;
    share.finish(store, first, &mut grid.cells);
    if is_wrong {
        bail!("CPU {cpu}: its periods are not in order");
    }
    Ok(grid)
}

/// Computes rows on all CPUs.
fn rows(
    ids: &[i64],
    peer: &Peer<'_>,
    compute: impl Fn(&[i64]) -> Result<Rows> + Sync,
) -> Result<Vec<u8>> {
    const AT_ONCE: usize = 16;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut all = Rows::default();
    for ids in ids.chunks(AT_ONCE * cpus) {
        let size = ids.len().div_ceil(cpus).max(1);
        let found: Vec<Result<Rows>> = std::thread::scope(|scope| {
            let compute = &compute;
            let started: Vec<_> = ids
                .chunks(size)
                .map(|ids| scope.spawn(move || compute(ids)))
                .collect();
            let finished = started.into_iter().map(|thread| match thread.join() {
                Ok(rows) => rows,
                Err(_) => bail!("the work ended unexpectedly"),
            });
            finished.collect()
        });
        for rows in found {
            all.append(rows?);
        }
        if peer.is_gone() {
            return Err(Gone.into());
        }
    }
    Ok(all.finish(""))
}

fn push<const N: usize>(columns: &mut [Vec<i64>; N], row: [i64; N]) {
    for (column, value) in columns.iter_mut().zip(row) {
        column.push(value);
    }
}

/// Times and numbers of short periods by step and state.
struct Sums {
    bins: Vec<(i64, u32)>,
    /// The steps that have any: from the first to the last.
    range: Option<(usize, usize)>,
}

impl Sums {
    fn of(window: &Window) -> Sums {
        Sums {
            bins: vec![(0, 0); window.count() * CLASSES],
            range: None,
        }
    }

    #[inline]
    fn add(&mut self, bin: i64, state: usize, time: i64, count: u32) {
        let bin = bin as usize;
        if let Some(sum) = self.bins.get_mut(bin * CLASSES + state % CLASSES) {
            sum.0 += time;
            sum.1 += count;
            let (first, last) = self.range.unwrap_or((bin, bin));
            self.range = Some((first.min(bin), last.max(bin)));
        }
    }

    /// Adds a period of less than a step; others are long ones.
    #[inline]
    fn add_period(&mut self, period: Period, window: &Window, long: &mut Vec<Period>) {
        let (begin, end) = (period.begin, period.end());
        if end - begin >= window.step {
            long.push(period);
            return;
        }
        let state = period.value & ((1 << STATE_BITS) - 1);
        for (bin, inside, is_first) in window.bins(begin, end) {
            self.add(bin, state as usize, inside, is_first.into());
        }
    }

    /// The steps that have any; `first` is the number of the first one.
    fn cells(&self, first: i64) -> Vec<Cell> {
        let mut cells = Vec::new();
        let Some((begin, end)) = self.range else {
            return cells;
        };
        for bin in begin..=end {
            let of_bin = &self.bins[bin * CLASSES..(bin + 1) * CLASSES];
            let count: u32 = of_bin.iter().map(|(_, count)| count).sum();
            let times = DRAWN.iter().map(|&state| (state as u32, of_bin[state].0));
            let times: Vec<(u32, i64)> = times.filter(|(_, time)| *time > 0).collect();
            if count > 0 || !times.is_empty() {
                cells.push(Cell {
                    step: first + bin as i64,
                    count: count.into(),
                    times,
                });
            }
        }
        cells
    }
}

/// What ran in a step on a CPU.
struct Share {
    bin: i64,
    /// Time of each thread, by its place; and those that have any.
    times: Vec<i64>,
    places: Vec<u32>,
    sum: i64,
    count: i64,
}

impl Share {
    fn of(threads: usize) -> Share {
        Share {
            bin: -1,
            times: vec![-1; threads],
            places: Vec::new(),
            sum: 0,
            count: 0,
        }
    }

    /// Adds a time; `false` if there is no such thread.
    #[inline]
    fn add(&mut self, place: u32, inside: i64, is_first: bool) -> bool {
        let Some(time) = self.times.get_mut(place as usize) else {
            return false;
        };
        if *time < 0 {
            *time = 0;
            self.places.push(place);
        }
        *time += inside;
        self.sum += inside;
        self.count += i64::from(is_first);
        true
    }

    /// Adds the step, if there is any, with the thread that ran longest.
    fn finish(&mut self, store: &Store, first: i64, cells: &mut Vec<Cell>) {
        let mut longest = (-1, i64::MIN, 0);
        for &place in &self.places {
            let time = std::mem::replace(&mut self.times[place as usize], -1);
            longest = longest.max((time, store.tid(place).unwrap_or(-1), place));
        }
        if !self.places.is_empty() {
            cells.push(Cell {
                step: first + self.bin,
                count: self.count,
                times: vec![(longest.2, self.sum)],
            });
        }
        self.places.clear();
        (self.sum, self.count) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::store::writer::{Sink, Writer};
    use super::*;

    fn tile(tile: Result<Vec<u8>>) -> Value {
        serde_json::from_slice(&tile.unwrap()).unwrap()
    }

    #[test]
    fn short_periods_are_sums_by_step() {
        let mut writer = Writer::new(Sink::Memory, "").unwrap();
        let place = writer.thread(7);
        for (begin, length, state) in [(0, 3, 0), (3, 4, 4), (7, 100, 0), (107, -1, 1)] {
            let period = |value| Period {
                begin,
                length,
                value,
            };
            writer
                .add(Track::Thread(7), period(2 << STATE_BITS | state))
                .unwrap();
            if state == 0 {
                writer.add(Track::Cpu(1), period(place)).unwrap();
            }
        }
        let store = writer.finish(0, |_, _, _| Ok(Vec::new())).unwrap();
        let window = Window {
            from: 0,
            to: 1024,
            step: 4,
        };
        let found = tile(threads(&store, &window, &[7, 8], &Peer::NONE));
        let row = &found["rows"][0];
        // Differences: the second period, which is as long as a step, begins at 3, the third at 7.
        assert_eq!(row["t"], json!([3, 4]));
        assert_eq!(row["d"], json!([4, 100]));
        assert_eq!(row["s"], json!([4, 0]));
        assert_eq!(row["c"], json!([1, 1]));
        assert_eq!(found["rows"][1]["t"], json!([]));
        let window = Window { step: 8, ..window };
        let found = tile(threads(&store, &window, &[7], &Peer::NONE));
        let row = &found["rows"][0];
        assert_eq!(row["t"], json!([7]));
        assert_eq!(row["x"], json!([0, 13]));
        assert_eq!(row["n"], json!([2, 1]));
        assert_eq!(row["shares"], json!({ "0": [3, 0], "1": [0, 1] }));
        let found = tile(cpus(&store, &window, &[1], &Peer::NONE));
        assert_eq!(found["rows"][0]["w"], json!([7]));
        assert_eq!(found["rows"][0]["y"], json!([7]));
        assert_eq!(found["rows"][0]["share"], json!([3]));
    }

    #[test]
    fn pictures_of_grids_are_those_of_periods() {
        let written = |length| {
            let mut writer = Writer::new(Sink::Memory, "").unwrap();
            let places = [writer.thread(7), writer.thread(9)];
            let (mut begin, mut state) = (0, 1_u64);
            for number in 0..400_000_u32 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let random = (state >> 40) as i64;
                let length = match random % 1000 {
                    0 => 10_000,
                    1..20 => -1,
                    _ => random % 30,
                };
                let period = |value| Period {
                    begin,
                    length,
                    value,
                };
                let value = (number % 10) | (3 << STATE_BITS);
                writer.add(Track::Thread(7), period(value)).unwrap();
                let place = places[(random % 2) as usize];
                writer.add(Track::Cpu(0), period(place)).unwrap();
                begin += random % 3 + if length < 0 { 1 } else { length };
            }
            let make = |store: &Store, track, bits: &[u32]| grids(store, begin, track, bits);
            let store = writer.finish(if length { begin } else { 0 }, make).unwrap();
            (store, begin)
        };
        let ((plain, length), (with_grids, _)) = (written(false), written(true));
        let mut seen = 0;
        for bits in 0..30 {
            for part in 0..5 {
                let from = (length * part / 4) >> bits << bits;
                let window = Window {
                    from: from - (1 << bits) * part,
                    to: from + ((1 + 700 * (part & 1)) << bits),
                    step: 1 << bits,
                };
                seen += usize::from(
                    with_grids
                        .grid(Track::Cpu(0), bits, &(0..1))
                        .unwrap()
                        .is_some(),
                );
                let of = |store| {
                    let threads = tile(threads(store, &window, &[7], &Peer::NONE));
                    (threads, tile(cpus(store, &window, &[0], &Peer::NONE)))
                };
                assert_eq!(of(&with_grids), of(&plain), "{window:?}");
            }
        }
        assert!(seen >= 15, "{seen}");
    }
}
