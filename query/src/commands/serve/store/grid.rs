//! A track at one step, for all of the time: what a picture of much time shows of it.
//!
//! ```text
//! periods of at least a step | step, number of shorter ones that begin in it, times by class or of a thread
//! ```
//! Pictures of fewer periods are made of these, so a grid is written only where a step has many periods.

use std::ops::Range;

use super::blocks::Period;
use super::numbers::{Numbers, put, put_signed};

/// A grid has at most this many steps; there is one for each step of which the trace has up to this many, and at least [`LEAST_STEPS`].
pub(super) const MOST_STEPS: i64 = 1 << 16;
pub(super) const LEAST_STEPS: i64 = 256;
/// Periods for each step of a track with a grid.
pub(super) const LEAST_PERIODS: u64 = 64;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Grid {
    pub(crate) long: Vec<Period>,
    pub(crate) cells: Vec<Cell>,
}

/// A step of a grid.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    /// Its number, from the start of the trace.
    pub(crate) step: i64,
    /// Shorter periods that begin in it.
    pub(crate) count: i64,
    /// Time by class, or the time of all and the thread that has most of it.
    pub(crate) times: Vec<(u32, i64)>,
}

impl Grid {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, self.long.len() as u64);
        let mut begin = 0;
        for period in &self.long {
            put_signed(&mut out, period.begin.wrapping_sub(begin));
            put_signed(&mut out, period.length);
            put(&mut out, period.value.into());
            begin = period.begin;
        }
        put(&mut out, self.cells.len() as u64);
        let mut step = 0;
        for cell in &self.cells {
            put_signed(&mut out, cell.step.wrapping_sub(step));
            put_signed(&mut out, cell.count);
            put(&mut out, cell.times.len() as u64);
            for &(what, time) in &cell.times {
                put(&mut out, what.into());
                put_signed(&mut out, time);
            }
            step = cell.step;
        }
        out
    }

    /// Reads the cells of some steps, and all long periods. `None` if the bytes are none of a grid.
    pub(super) fn read(bytes: &[u8], steps: &Range<i64>) -> Option<Grid> {
        let mut numbers = Numbers::new(bytes);
        let mut grid = Grid::default();
        let mut begin = 0_i64;
        for _ in 0..numbers.count()? {
            begin = begin.wrapping_add(numbers.signed()?);
            grid.long.push(Period {
                begin,
                length: numbers.signed()?,
                value: u32::try_from(numbers.next()?).ok()?,
            });
        }
        let mut step = 0_i64;
        for _ in 0..numbers.count()? {
            step = step.wrapping_add(numbers.signed()?);
            let count = numbers.signed()?;
            let mut times = Vec::new();
            for _ in 0..numbers.count()? {
                let time = (u32::try_from(numbers.next()?).ok()?, numbers.signed()?);
                // A picture has some of thousands: the others cost no allocation.
                if steps.contains(&step) {
                    times.push(time);
                }
            }
            if steps.contains(&step) {
                grid.cells.push(Cell { step, count, times });
            }
        }
        Some(grid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_are_read_as_they_were_written() {
        let period = |begin, length| Period {
            begin,
            length,
            value: 3,
        };
        let cell = |step, times: &[(u32, i64)]| Cell {
            step,
            count: 7,
            times: times.to_vec(),
        };
        let grid = Grid {
            long: vec![period(-4, 9), period(5, -1), period(1 << 40, 1 << 50)],
            cells: vec![cell(0, &[]), cell(3, &[(0, 5), (9, 1 << 40)])],
        };
        let bytes = grid.write();
        let all = 0..1 << 60;
        for length in 0..bytes.len() {
            assert_eq!(Grid::read(&bytes[..length], &all), None);
        }
        assert_eq!(Grid::read(&bytes, &all).as_ref(), Some(&grid));
        let some = Grid::read(&bytes, &(1..4)).unwrap();
        assert_eq!(
            (some.long, some.cells),
            (grid.long, grid.cells[1..].to_vec())
        );
    }
}
