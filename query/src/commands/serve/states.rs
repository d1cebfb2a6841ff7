//! States of threads in memory, and their tiles: what each thread did, and which thread ran on each CPU.
//!
//! ```text
//! start (48 bits) | state (4 bits) | CPU (12 bits)      one number for each period, sorted; it ends where the next one begins
//! ```
//! The view `thread_states` follows every thread from the start of the trace, whatever the window. So its rows are read once.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Result, bail};
use perfquet::Session;
use perfquet::stacks::strings;
use serde_json::{Value, json};

use super::engine::{at, integers, stream};
use super::http::Peer;
use super::tiles::Window;
use crate::thread_states::number_of;

/// Periods in memory, of 8 bytes each.
const MOST: usize = 48 << 20;
/// Bits of a start: 78 hours.
const TIME_BITS: u32 = 48;
const CPU_BITS: u32 = 12;
const NO_CPU: u64 = (1 << CPU_BITS) - 1;
/// Nothing is known.
const NONE: u64 = 15;

const RUNNING: usize = 0;

/// The periods of all threads.
pub(super) struct Index {
    threads: BTreeMap<i64, Vec<u64>>,
}

/// A period: begin and end relative to the start of the trace.
struct Period {
    begin: i64,
    end: i64,
    state: usize,
    cpu: Option<i64>,
}

fn packed(begin: i64, state: u64, cpu: Option<i64>) -> Option<u64> {
    let begin = u64::try_from(begin)
        .ok()
        .filter(|begin| begin >> TIME_BITS == 0)?;
    let cpu = cpu
        .and_then(|cpu| u64::try_from(cpu).ok())
        .unwrap_or(NO_CPU);
    Some(begin << 16 | state << CPU_BITS | cpu.min(NO_CPU))
}

fn begin_of(period: u64) -> i64 {
    (period >> 16) as i64
}

impl Index {
    /// Reads the states of a trace that starts at `start`.
    pub(super) fn of(session: &Session, start: i64) -> Result<Index> {
        let mut index = Index {
            threads: BTreeMap::new(),
        };
        let mut count = 0;
        let sql = "SELECT tid, time, duration, cpu, state FROM thread_states";
        stream(session, sql, &Peer::NONE, |batch| {
            let (tids, times) = (integers(batch, 0)?, integers(batch, 1)?);
            let (durations, cpus) = (integers(batch, 2)?, integers(batch, 3)?);
            let states = strings(batch.column(4))?;
            for (row, state) in states.iter().enumerate() {
                let (Some(tid), Some(time)) = (at(&tids, row), at(&times, row)) else {
                    continue;
                };
                let state = number_of(state);
                let cpu = at(&cpus, row);
                let periods = index.threads.entry(tid).or_default();
                let begin = time.saturating_sub(start);
                count += add(periods, begin, at(&durations, row), state as u64, cpu);
            }
            if count > MOST {
                bail!(
                    "more than {MOST} periods of threads: too many for this page\nhint: convert a part of the trace, or ask for states in SQL"
                );
            }
            Ok(())
        })?;
        for periods in index.threads.values_mut() {
            if !periods.is_sorted() {
                periods.sort_unstable();
            }
            periods.shrink_to_fit();
        }
        Ok(index)
    }

    /// Calls `visit` with the periods of a thread that overlap a window, in order.
    fn visit(&self, tid: i64, from: i64, to: i64, mut visit: impl FnMut(Period)) {
        let Some(periods) = self.threads.get(&tid) else {
            return;
        };
        let first = periods.partition_point(|&period| begin_of(period) <= from);
        for at in first.saturating_sub(1)..periods.len() {
            let begin = begin_of(periods[at]);
            if begin >= to {
                return;
            }
            let (state, cpu) = (periods[at] >> CPU_BITS & 15, periods[at] & NO_CPU);
            let end = periods.get(at + 1).map_or(begin, |&next| begin_of(next));
            if state != NONE && (end > from || begin >= from) {
                visit(Period {
                    begin,
                    end,
                    state: state as usize,
                    cpu: (cpu != NO_CPU).then_some(cpu as i64),
                });
            }
        }
    }

    /// The states of threads: long periods one by one, the others by step and state.
    pub(super) fn threads(&self, window: &Window, tids: &[i64]) -> Value {
        let rows = tids.iter().map(|&tid| {
            let mut long = Columns::<4>::default();
            let mut short: BTreeMap<(i64, usize), (i64, i64)> = BTreeMap::new();
            self.visit(tid, window.from, window.to, |period| {
                let length = period.end - period.begin;
                if length >= window.step {
                    let cpu = period.cpu.unwrap_or(-1);
                    long.push([period.begin, length, period.state as i64, cpu]);
                    return;
                }
                for (bin, inside, is_first) in window.bins(period.begin, period.end) {
                    let sum = short.entry((bin, period.state)).or_default();
                    sum.0 += inside;
                    sum.1 += i64::from(is_first);
                }
            });
            let [t, d, s, c] = long.0;
            let mut columns = Columns::<4>::default();
            for ((bin, state), (sum, count)) in short {
                columns.push([bin, state as i64, sum, count]);
            }
            let [x, y, sum, n] = columns.0;
            json!({ "id": tid, "t": t, "d": d, "s": s, "c": c, "x": x, "y": y, "sum": sum, "n": n })
        });
        json!({ "rows": rows.collect::<Vec<_>>() })
    }

    /// What ran on CPUs: long periods one by one, of the others the thread that ran longest in each step.
    pub(super) fn cpus(&self, window: &Window, cpus: &[i64]) -> Value {
        let mut long: HashMap<i64, Vec<[i64; 3]>> = HashMap::new();
        let mut short: HashMap<(i64, i64), Share> = HashMap::new();
        for &tid in self.threads.keys() {
            self.visit(tid, window.from, window.to, |period| {
                let Some(cpu) = period.cpu.filter(|cpu| cpus.contains(cpu)) else {
                    return;
                };
                if period.state != RUNNING {
                    return;
                }
                let length = period.end - period.begin;
                if length >= window.step {
                    long.entry(cpu)
                        .or_default()
                        .push([period.begin, length, tid]);
                    return;
                }
                for (bin, inside, is_first) in window.bins(period.begin, period.end) {
                    short
                        .entry((cpu, bin))
                        .or_default()
                        .add(tid, inside, is_first);
                }
            });
        }
        let mut all: HashMap<i64, BTreeMap<i64, Share>> = HashMap::new();
        for ((cpu, bin), share) in short {
            all.entry(cpu).or_default().insert(bin, share);
        }
        let rows = cpus.iter().map(|cpu| {
            let mut periods = long.remove(cpu).unwrap_or_default();
            periods.sort_unstable();
            let mut columns = Columns::<3>::default();
            periods.into_iter().for_each(|period| columns.push(period));
            let [t, d, w] = columns.0;
            let mut columns = Columns::<4>::default();
            for (bin, share) in all.remove(cpu).unwrap_or_default() {
                columns.push([bin, share.longest.0, share.sum, share.count]);
            }
            let [x, y, sum, n] = columns.0;
            json!({ "id": cpu, "t": t, "d": d, "w": w, "x": x, "y": y, "sum": sum, "n": n })
        });
        json!({ "rows": rows.collect::<Vec<_>>() })
    }
}

/// Adds a period, and a gap between it and the one before; returns how many entries that are.
fn add(
    periods: &mut Vec<u64>,
    begin: i64,
    duration: Option<i64>,
    state: u64,
    cpu: Option<i64>,
) -> usize {
    let before = periods.len();
    // The period before ends here, unless there is a gap.
    if let Some(&last) = periods.last()
        && last >> CPU_BITS & 15 == NONE
        && begin_of(last) == begin
    {
        periods.pop();
    }
    periods.extend(packed(begin, state, cpu));
    let end = duration.map_or(begin.saturating_add(1), |duration| {
        begin.saturating_add(duration)
    });
    periods.extend(packed(end, NONE, None));
    periods.len() - before
}

/// What ran in a step on a CPU. Periods come thread by thread.
#[derive(Default)]
struct Share {
    sum: i64,
    count: i64,
    now: (i64, i64),
    /// The thread that ran longest, and its time.
    longest: (i64, i64),
}

impl Share {
    fn add(&mut self, tid: i64, inside: i64, is_first: bool) {
        self.sum += inside;
        self.count += i64::from(is_first);
        if self.now.0 != tid {
            self.now = (tid, 0);
        }
        self.now.1 += inside;
        if self.now.1 >= self.longest.1 {
            self.longest = self.now;
        }
    }
}

/// Columns of a tile.
struct Columns<const N: usize>([Vec<i64>; N]);

impl<const N: usize> Default for Columns<N> {
    fn default() -> Self {
        Columns(std::array::from_fn(|_| Vec::new()))
    }
}

impl<const N: usize> Columns<N> {
    fn push(&mut self, row: [i64; N]) {
        for (column, value) in self.0.iter_mut().zip(row) {
            column.push(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(periods: &[(i64, Option<i64>, u64)]) -> Index {
        let mut all = Vec::new();
        for &(begin, duration, state) in periods {
            add(&mut all, begin, duration, state, Some(1));
        }
        Index {
            threads: BTreeMap::from([(7, all)]),
        }
    }

    #[test]
    fn periods_have_their_ends_and_gaps() {
        let index = index(&[
            (10, Some(5), 0),
            (15, Some(5), 4),
            (30, None, 0),
            (50, Some(9), 1),
        ]);
        let found = |from, to| {
            let mut found = Vec::new();
            index.visit(7, from, to, |period| {
                found.push((period.begin, period.end, period.state));
            });
            found
        };
        let all = [(10, 15, 0), (15, 20, 4), (30, 31, 0), (50, 59, 1)];
        assert_eq!(found(0, 100), all);
        assert_eq!(found(12, 16), all[..2]);
        assert_eq!(found(15, 30), all[1..2]);
        assert_eq!(found(20, 30), []);
        assert_eq!(found(58, 59), all[3..]);
    }

    #[test]
    fn short_periods_are_sums_by_step() {
        let index = index(&[(0, Some(3), 0), (3, Some(4), 4), (7, Some(100), 0)]);
        let window = Window {
            from: 0,
            to: 1000,
            step: 5,
        };
        let tile = index.threads(&window, &[7]);
        let row = &tile["rows"][0];
        assert_eq!(row["t"], json!([7]));
        assert_eq!(row["d"], json!([100]));
        assert_eq!(row["x"], json!([0, 0, 1]));
        assert_eq!(row["y"], json!([0, 4, 4]));
        assert_eq!(row["sum"], json!([3, 2, 2]));
        assert_eq!(row["n"], json!([1, 1, 0]));
        let tile = index.cpus(&window, &[1]);
        assert_eq!(tile["rows"][0]["y"], json!([7]));
        assert_eq!(tile["rows"][0]["sum"], json!([3]));
    }
}
