//! Time in which any call of a thread ran, by slot: calls within calls count once, so that no thread is busy longer than the trace.
//!
//! ```text
//! calls   read ├───────────────┤      ├───┤
//!          vfs_read ├───────┤
//! busy         ├───────────────┤      ├───┤
//! ```

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;
use arrow::array::{Array, AsArray};
use arrow::datatypes::{Int32Type, Int64Type};
use perfquet::Session;

use super::cells::{Cell, Cells, NO_THREAD, Threads};
use super::since::Since;

/// The cells of calls that fulfill a condition; a cell whose `bar` is above 0 is that many whole slots. Calls without a time are
/// in slot -1, with the time in themselves if it is known.
pub(super) fn of(
    session: &Session,
    condition: &str,
    since: Since,
    slot: i64,
    threads: &mut Threads,
) -> Result<Cells> {
    // Calls of inputs without threads nest by CPU.
    let sql = format!(
        "SELECT {} AS begin, greatest(duration, 0) AS duration, coalesce(self_time, duration) AS self_time, \
         CAST(coalesce(tid, {NO_THREAD}) AS INT) AS tid, CAST(CASE WHEN tid IS NULL THEN cpu END AS INT) AS cpu \
         FROM calls WHERE {condition} AND duration IS NOT NULL ORDER BY time",
        since.of("time")
    );
    let mut busy = Busy::new(slot);
    let mut answer = session.query(&sql)?;
    while let Some(batch) = answer.next_batch()? {
        let number = |column: usize| batch.column(column).as_primitive::<Int64Type>();
        let (begins, lengths, own) = (number(0), number(1), number(2));
        let id = |column: usize| batch.column(column).as_primitive::<Int32Type>();
        let (tids, cpus) = (id(3), id(4));
        for row in 0..batch.num_rows() {
            let thread = threads.of(tids.value(row));
            if begins.is_null(row) {
                busy.add_part(-1, thread, own.value(row).max(0));
            } else {
                let cpu = cpus.is_valid(row).then(|| cpus.value(row));
                busy.add((thread, cpu), begins.value(row), lengths.value(row));
            }
        }
    }
    Ok(busy.cells())
}

struct Busy {
    slot: i64,
    /// End of the calls so far, by thread, or by CPU of calls without a thread.
    ends: HashMap<(u32, Option<i32>), i64>,
    /// By slot and thread.
    parts: BTreeMap<(i64, u32), u128>,
    /// Whole slots: the first one, and how many.
    whole: Vec<(i64, u32, u32)>,
}

impl Busy {
    fn new(slot: i64) -> Busy {
        Busy {
            slot: slot.max(1),
            ends: HashMap::new(),
            parts: BTreeMap::new(),
            whole: Vec::new(),
        }
    }

    /// Adds a call; calls come in the order of their begins.
    fn add(&mut self, (thread, cpu): (u32, Option<i32>), begin: i64, length: i64) {
        let end = begin.saturating_add(length);
        let before = self.ends.entry((thread, cpu)).or_insert(i64::MIN);
        let from = begin.max(*before);
        *before = end.max(*before);
        if from >= end {
            return;
        }
        let slot = self.slot;
        let (first, last) = (from.div_euclid(slot), end.div_euclid(slot));
        if first == last {
            return self.add_part(first, thread, end - from);
        }
        let after_first = (first + 1).saturating_mul(slot);
        self.add_part(first, thread, after_first - from);
        if let Ok(count @ 1..) = u32::try_from(last - first - 1) {
            self.whole.push((first + 1, thread, count));
        }
        self.add_part(last, thread, end - last.saturating_mul(slot));
    }

    fn add_part(&mut self, slot: i64, thread: u32, length: i64) {
        if length > 0 {
            *self.parts.entry((slot.max(-1), thread)).or_default() +=
                u128::from(length.unsigned_abs());
        }
    }

    fn cells(self) -> Cells {
        let cell = |slot: i64, thread: u32, bar: u32, weight: u128| Cell {
            slot,
            thread,
            node: 0,
            bar,
            weight,
            count: 0,
        };
        let parts = self.parts.iter();
        let parts = parts.map(|(&(slot, thread), &weight)| cell(slot, thread, 0, weight));
        let length = u128::from(self.slot.unsigned_abs());
        let whole = self.whole.iter();
        let whole = whole
            .map(|&(first, thread, count)| cell(first, thread, count, u128::from(count) * length));
        let mut cells = Cells(parts.chain(whole).collect());
        cells.coarsen(1);
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nests_or_overlaps_counts_once() {
        let mut busy = Busy::new(100);
        for (thread, cpu, begin, length) in [
            (0, None, 10, 50),
            (0, None, 20, 10),
            (1, None, 30, 5),
            (0, None, 50, 20),
            (0, None, 90, 460),
            (0, None, 150, 40),
            (0, None, 550, 0),
            // Calls of two CPUs, whose threads are unknown.
            (2, Some(0), 560, 40),
            (2, Some(1), 560, 40),
        ] {
            busy.add((thread, cpu), begin, length);
        }
        busy.add_part(-1, 1, 7);
        let cells = busy.cells().0;
        let found: Vec<_> = (cells.iter())
            .map(|cell| (cell.slot, cell.thread, cell.bar, cell.weight))
            .collect();
        let expected = [
            (-1, 1, 0, 7),
            (0, 0, 0, 60 + 10),
            (0, 1, 0, 5),
            (1, 0, 4, 400),
            (5, 0, 0, 50),
            (5, 2, 0, 80),
        ];
        assert_eq!(found, expected);
    }
}
