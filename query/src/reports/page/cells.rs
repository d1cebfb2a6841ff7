//! Weights by time, thread and stack, which the page adds up for a selection.

use std::collections::HashMap;

use anyhow::Result;
use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Int32Type};
use serde_json::{Value, json};

use perfquet::Session;
use perfquet::stacks::strings;

use crate::render::columns::Columns;

/// Maximum number of cells of all profiles, to keep a page small enough for mail; with more, time slots are merged.
const MOST: usize = 200_000;

/// One cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cell {
    /// From the start of the trace; -1 without a time.
    pub(super) slot: i64,
    /// Index in [`Threads`].
    pub(super) thread: u32,
    /// Node of a tree, or index of a function and its bar.
    pub(super) node: u32,
    pub(super) bar: u32,
    pub(super) weight: u128,
    pub(super) count: u64,
}

/// Cells in the order of time.
#[derive(Debug, Default, Clone)]
pub(super) struct Cells(pub(super) Vec<Cell>);

impl Cells {
    /// The cells of rows, whose nodes are the indexes of `leaves`.
    pub(super) fn of_rows(mut cells: Vec<Cell>, leaves: &[u32]) -> Cells {
        for cell in &mut cells {
            cell.node = leaves[cell.node as usize];
        }
        let mut cells = Cells(cells);
        cells.coarsen(1);
        cells
    }

    /// Joins `steps` slots to one.
    pub(super) fn coarsen(&mut self, steps: i64) {
        for cell in &mut self.0 {
            cell.slot = cell.slot.div_euclid(steps).max(-1);
        }
        self.0.sort_unstable();
        self.0.dedup_by(|next, kept| {
            let key = |cell: &Cell| (cell.slot, cell.thread, cell.node, cell.bar);
            let is_same = key(next) == key(kept);
            if is_same {
                kept.weight += next.weight;
                kept.count += next.count;
            }
            is_same
        });
    }

    /// Joins `steps` slots of `slot` nanoseconds to one. A cell whose `bar` is above 0 is that many slots, all of them full: what
    /// remains full stays one cell, and its ends join the slots that they are in.
    pub(super) fn coarsen_spans(&mut self, steps: i64, slot: i64) {
        let mut parts = Vec::new();
        for cell in self.0.iter_mut().filter(|cell| cell.bar > 0) {
            let end = cell.slot + i64::from(cell.bar);
            let (first, last) = (-(-cell.slot).div_euclid(steps), end.div_euclid(steps));
            let part = |from: i64, to: i64| Cell {
                slot: from,
                bar: 0,
                weight: u128::from((to - from).unsigned_abs()) * u128::from(slot.unsigned_abs()),
                count: 0,
                ..*cell
            };
            let full = cell.weight / u128::from(cell.bar) / u128::from(slot.unsigned_abs()).max(1);
            let times = |cell: Cell| Cell {
                weight: cell.weight * full,
                ..cell
            };
            if first >= last {
                let middle = end.min((cell.slot.div_euclid(steps) + 1) * steps);
                parts.push(times(part(cell.slot, middle)));
                parts.push(times(part(middle, end)));
            } else {
                parts.push(times(part(cell.slot, first * steps)));
                parts.push(times(Cell {
                    bar: u32::try_from(last - first).unwrap_or(u32::MAX),
                    ..part(first * steps, last * steps)
                }));
                parts.push(times(part(last * steps, end)));
            }
            cell.weight = 0;
        }
        self.0.retain(|cell| cell.bar == 0);
        self.0
            .extend(parts.into_iter().filter(|cell| cell.weight > 0));
        // Whole slots of one cell are their first slot here: `coarsen` divides that alone.
        self.coarsen(steps);
    }

    /// Number of cells after [`Cells::coarsen`].
    fn len_of(&self, steps: i64) -> usize {
        let mut keys: Vec<(i64, u32, u32, u32)> = self
            .0
            .iter()
            .map(|cell| {
                (
                    cell.slot.div_euclid(steps),
                    cell.thread,
                    cell.node,
                    cell.bar,
                )
            })
            .collect();
        keys.sort_unstable();
        keys.dedup();
        keys.len()
    }

    /// Column by column, in the order of threads and nodes: together with the tree, which is in the same order, that takes a third
    /// less than the order of time. Weights are divided by `scale`.
    pub(super) fn json(&self, scale: u128, columns: &mut Columns) -> Value {
        let mut cells = self.0.clone();
        cells.sort_unstable_by_key(|cell| (cell.thread, cell.node, cell.bar, cell.slot));
        json!({
            "slot": columns.add(cells.iter().map(|cell| cell.slot)),
            "thread": columns.add(cells.iter().map(|cell| cell.thread)),
            "node": columns.add(cells.iter().map(|cell| cell.node)),
            "bar": columns.add(cells.iter().map(|cell| cell.bar)),
            "weight": columns.add(cells.iter().map(|cell| (cell.weight / scale) as u64)),
            "count": columns.add(cells.iter().map(|cell| cell.count)),
        })
    }
}

/// The smallest number of slots to join such that there are not too many cells: a divisor of `rows`, or a multiple of it that is
/// at most `longest`. If none suffices, slots are joined only if that halves the cells: distinct stacks remain distinct.
pub(super) fn fitting_steps(all: &[&Cells], rows: i64, longest: i64, part: usize) -> i64 {
    let most = MOST / part;
    let count = |steps| -> usize { all.iter().map(|cells| cells.len_of(steps)).sum() };
    let unjoined: usize = all.iter().map(|cells| cells.0.len()).sum();
    if unjoined <= most {
        return 1;
    }
    let divisors = (2..=rows).filter(|steps| rows % steps == 0);
    let multiples = [10, 100, 1000].map(|many| rows * many);
    let mut last = None;
    for steps in divisors.chain(multiples).filter(|&steps| steps <= longest) {
        let joined = count(steps);
        if joined <= most {
            return steps;
        }
        last = Some((steps, joined));
    }
    match last {
        Some((steps, joined)) if joined < unjoined / 2 => steps,
        _ => 1,
    }
}

/// Threads by their ID.
#[derive(Debug, Default)]
pub(super) struct Threads {
    all: Vec<Thread>,
    /// By trace and ID.
    indexes: HashMap<(usize, i32), u32>,
    /// The trace of the threads that are added now, by its number on the page.
    trace: usize,
    /// Process and last name of each thread in that trace.
    known: HashMap<i32, (Option<i32>, Option<String>)>,
}

#[derive(Debug)]
struct Thread {
    tid: i32,
    pid: Option<i32>,
    comm: Option<String>,
    trace: usize,
}

/// Thread ID of rows that have none.
pub(super) const NO_THREAD: i32 = -1;
/// Thread ID of all threads that a track does not name.
const OTHER_THREADS: i32 = -2;

impl Threads {
    /// Adds threads of a trace from now on, by its number on the page.
    pub(super) fn enter(&mut self, session: &Session, trace: usize) -> Result<()> {
        self.trace = trace;
        self.known.clear();
        let sql = "SELECT tid, pid, comm FROM threads WHERE tid IS NOT NULL ORDER BY start_time";
        for batch in session.collect(sql)? {
            let number =
                |column: usize| arrow::compute::cast(batch.column(column), &DataType::Int32);
            let (tids, pids) = (number(0)?, number(1)?);
            let (tids, pids) = (
                tids.as_primitive::<Int32Type>(),
                pids.as_primitive::<Int32Type>(),
            );
            let comms = strings(batch.column(2))?;
            for row in 0..batch.num_rows() {
                let pid = pids.is_valid(row).then(|| pids.value(row));
                let comm = comms.is_valid(row).then(|| comms.value(row).to_owned());
                self.known.insert(tids.value(row), (pid, comm));
            }
        }
        Ok(())
    }

    /// The index of a thread of the trace that was entered last.
    pub(super) fn of(&mut self, tid: i32) -> u32 {
        let next = self.all.len() as u32;
        let index = *self.indexes.entry((self.trace, tid)).or_insert(next);
        if index == next {
            let (pid, comm) = self.known.get(&tid).cloned().unwrap_or_default();
            let trace = self.trace;
            self.all.push(Thread {
                tid,
                pid,
                comm,
                trace,
            });
        }
        index
    }

    /// The index that stands for threads without a name in a track.
    pub(super) fn others(&mut self) -> u32 {
        self.of(OTHER_THREADS)
    }

    /// Thread ID, process ID and name of each; of several traces, also the number of its trace.
    pub(super) fn json(&self) -> Value {
        let is_one = self.trace == 0;
        let thread = |thread: &Thread| match is_one {
            true => json!([thread.tid, thread.pid, thread.comm]),
            false => json!([thread.tid, thread.pid, thread.comm, thread.trace]),
        };
        self.all.iter().map(thread).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(slot: i64, thread: u32) -> Cell {
        Cell {
            slot,
            thread,
            node: 1,
            bar: 0,
            weight: 10,
            count: 1,
        }
    }

    #[test]
    fn joined_slots_lose_no_weight() {
        let mut cells = Cells(vec![
            cell(0, 0),
            cell(4, 1),
            cell(-1, 0),
            cell(3, 1),
            cell(5, 1),
        ]);
        assert_eq!(cells.len_of(5), 4);
        cells.coarsen(5);
        let found: Vec<_> = cells
            .0
            .iter()
            .map(|c| (c.slot, c.thread, c.weight, c.count))
            .collect();
        assert_eq!(
            found,
            [(-1, 0, 10, 1), (0, 0, 10, 1), (0, 1, 20, 2), (1, 1, 10, 1)]
        );
    }

    #[test]
    fn whole_slots_stay_whole_or_become_parts() {
        let span = |slot, bar, weight| Cell {
            bar,
            weight,
            count: 0,
            ..cell(slot, 0)
        };
        let spans = |cells: Vec<Cell>| {
            let mut cells = Cells(cells);
            cells.coarsen_spans(5, 100);
            let found = cells
                .0
                .iter()
                .map(|cell| (cell.slot, cell.bar, cell.weight));
            found.collect::<Vec<_>>()
        };
        // From 3 to 19 of the old slots: 2 in slot 0, 3 whole ones less the last, 4 in slot 3.
        let found = spans(vec![span(2, 0, 40), span(3, 16, 1600), span(19, 0, 30)]);
        assert_eq!(found, [(0, 0, 240), (1, 2, 1000), (3, 0, 430)]);
        // Within one slot, and across a border without a whole slot.
        assert_eq!(spans(vec![span(1, 3, 300)]), [(0, 0, 300)]);
        assert_eq!(spans(vec![span(3, 4, 400)]), [(0, 0, 200), (1, 0, 200)]);
        assert_eq!(spans(vec![span(5, 5, 500)]), [(1, 1, 500)]);
    }

    #[test]
    fn slots_are_as_short_as_the_limit_allows() {
        let many = Cells((0..2 * MOST as i64).map(|slot| cell(slot, 0)).collect());
        assert_eq!(fitting_steps(&[&Cells::default(), &many], 50, 1000, 1), 2);
        assert_eq!(fitting_steps(&[&many, &many], 50, 1000, 1), 5);
        assert_eq!(fitting_steps(&[&many], 50, 1000, 4), 10);
        assert_eq!(fitting_steps(&[&Cells::default()], 50, 1000, 1), 1);
        // A thread for each cell: joining slots does not help.
        let distinct = (0..2 * MOST as u32).map(|thread| cell(thread.into(), thread));
        assert_eq!(fitting_steps(&[&Cells(distinct.collect())], 50, 1000, 1), 1);
    }
}
