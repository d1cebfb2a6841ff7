//! Aggregates by interval, and their totals.
//!
//! ```text
//! interval 3 ends      programs begin with the cells of interval 4; those of 3 are read
//! interval 4 ends      those of 4 are read, and those of 3 again: a program may have been in the middle of an update
//! ```
//! Every hit is in one interval, and the intervals add up to the totals. Without `--every` there is one interval.

use std::collections::BTreeMap;

use perfquet_ebpf::layout::Cell;

/// Maximum number of keys in the totals of one aggregation.
const MOST_TOTALS: usize = 65_536;

/// Name of the probe or function, if it is part of the key, and the words of the other parts.
pub(super) type CellKey = (String, Vec<u64>);

/// Values by key and bar.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Cells(BTreeMap<CellKey, BTreeMap<i32, Cell>>);

/// A cell of a map with the merged values of its CPUs.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Number of its interval.
    pub(super) interval: u32,
    pub(super) key: CellKey,
    pub(super) bar: i32,
    pub(super) cell: Cell,
}

/// The intervals of one aggregation.
#[derive(Default)]
pub(super) struct Intervals {
    /// Number of the current interval.
    number: u32,
    /// Start of the current interval.
    since: u64,
    /// Values of the previous interval when it was read.
    before: Cells,
    totals: Cells,
    /// Number of keys printed since the last totals.
    printed: usize,
    /// Hits of keys that do not fit into the totals.
    given_up: u64,
}

/// Values to print.
pub(super) struct Printout<'a> {
    pub(super) cells: &'a Cells,
    /// Start of the period; `None`: totals.
    pub(super) since: Option<u64>,
}

impl Cells {
    fn add(&mut self, key: CellKey, bar: i32, cell: &Cell) {
        self.0
            .entry(key)
            .or_default()
            .entry(bar)
            .or_default()
            .add(cell);
    }

    /// Iterates over the keys and their bars, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&CellKey, &BTreeMap<i32, Cell>)> {
        self.0.iter()
    }

    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the increase since `before`.
    fn since(mut self, before: &Cells) -> Cells {
        for (key, bars) in &mut self.0 {
            for (bar, cell) in bars.iter_mut() {
                let earlier = before.0.get(key).and_then(|bars| bars.get(bar));
                if let Some(earlier) = earlier {
                    cell.subtract(earlier);
                }
            }
            bars.retain(|_, cell| cell.count > 0);
        }
        self.0.retain(|_, bars| !bars.is_empty());
        self
    }
}

impl FromIterator<Entry> for Cells {
    fn from_iter<I: IntoIterator<Item = Entry>>(entries: I) -> Cells {
        let mut cells = Cells::default();
        for entry in entries {
            cells.add(entry.key, entry.bar, &entry.cell);
        }
        cells
    }
}

impl Intervals {
    /// Begins the first interval.
    pub(super) fn begin(&mut self, now: u64) {
        self.since = now;
    }

    /// Returns the number of the current interval.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Returns the number of the next interval, for the programs.
    pub(super) fn next(&self) -> u32 {
        self.number.wrapping_add(1)
    }

    /// Returns whether the cells of an interval are read for the last time when the current one ends.
    pub(super) fn is_over(&self, interval: u32) -> bool {
        interval != self.number && interval != self.next()
    }

    /// Ends the current interval. `entries` contains its cells, and those of the previous one.
    pub(super) fn end(&mut self, entries: Vec<Entry>) -> Cells {
        let number = self.number;
        let next = self.next();
        let (own, others): (Vec<Entry>, Vec<Entry>) = entries
            .into_iter()
            .partition(|entry| entry.interval == number);
        let late = others.into_iter().filter(|entry| entry.interval != next);
        let late = late.collect::<Cells>().since(&self.before);
        let mut cells: Cells = own.into_iter().collect();
        self.before = cells.clone();
        for (key, bars) in late.0 {
            for (bar, cell) in bars {
                cells.add(key.clone(), bar, &cell);
            }
        }
        self.number = next;
        for (key, bars) in &cells.0 {
            if !self.totals.0.contains_key(key) && self.totals.len() >= MOST_TOTALS {
                self.given_up += bars.values().map(|cell| cell.count).max().unwrap_or(0);
                continue;
            }
            for (bar, cell) in bars {
                self.totals.add(key.clone(), *bar, cell);
            }
        }
        cells
    }

    /// Returns the printouts at the end of an interval: the interval itself, and the totals at the end of the
    /// recording, and whenever as many keys were printed as the totals have, so that a killed recorder leaves totals.
    /// `are_wanted`: intervals are printed, not only totals.
    pub(super) fn printouts<'a>(
        &'a mut self,
        cells: &'a Cells,
        now: u64,
        (are_wanted, is_last): (bool, bool),
    ) -> Vec<Printout<'a>> {
        let since = std::mem::replace(&mut self.since, now);
        let mut printouts = Vec::new();
        if are_wanted {
            self.printed += cells.len();
            printouts.push(Printout {
                cells,
                since: Some(since),
            });
        }
        if is_last || self.printed >= self.totals.len() {
            self.printed = 0;
            printouts.push(Printout {
                cells: &self.totals,
                since: None,
            });
        }
        printouts
    }

    /// Returns the number of hits that are in their intervals, but not in the totals.
    pub(super) fn given_up(&self) -> u64 {
        self.given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(interval: u32, word: u64, count: u64) -> Entry {
        Entry {
            interval,
            key: (String::new(), vec![word]),
            bar: 0,
            cell: Cell {
                count,
                sum: 10 * count,
                inverted_least: count,
                biased_most: count,
                ..Cell::default()
            },
        }
    }

    fn counts(cells: &Cells) -> Vec<(u64, u64, u64)> {
        let shown = cells.iter().map(|((_, words), bars)| {
            let cell = &bars[&0];
            (words[0], cell.count, cell.sum)
        });
        shown.collect()
    }

    #[test]
    fn every_hit_is_in_one_interval() {
        let mut intervals = Intervals::default();
        intervals.begin(100);
        // One hit of the next interval has already arrived.
        let first = intervals.end(vec![entry(0, 7, 3), entry(0, 8, 1), entry(1, 7, 1)]);
        assert_eq!(counts(&first), [(7, 3, 30), (8, 1, 10)]);
        // Two more hits arrived late.
        let second = intervals.end(vec![entry(0, 7, 5), entry(0, 8, 1), entry(1, 7, 4)]);
        assert_eq!(counts(&second), [(7, 6, 60)]);
        let over: Vec<u32> = (0..4).filter(|&number| intervals.is_over(number)).collect();
        assert_eq!(over, [0, 1]);
        let last = intervals.end(vec![entry(1, 7, 4)]);
        assert_eq!(counts(&last), []);
        assert_eq!(counts(&intervals.totals), [(7, 9, 90), (8, 1, 10)]);
    }

    #[test]
    fn totals_are_printed_from_time_to_time() {
        let mut intervals = Intervals::default();
        intervals.begin(100);
        let mut printed = |number, keys: std::ops::Range<u64>, is_last| {
            let cells = intervals.end(keys.map(|key| entry(number, key, 1)).collect());
            let now = 200 + 100 * u64::from(number);
            let printouts = intervals.printouts(&cells, now, (true, is_last));
            let shown = |printout: &Printout<'_>| (printout.since, printout.cells.len());
            printouts.iter().map(shown).collect::<Vec<_>>()
        };
        assert_eq!(printed(0, 0..4, false), [(Some(100), 4), (None, 4)]);
        assert_eq!(printed(1, 0..2, false), [(Some(200), 2)]);
        assert_eq!(printed(2, 0..2, false), [(Some(300), 2), (None, 4)]);
        assert_eq!(printed(3, 4..5, true), [(Some(400), 1), (None, 5)]);
    }

    #[test]
    fn totals_have_a_limit() {
        let mut intervals = Intervals::default();
        let all = 0..MOST_TOTALS as u64 + 2;
        let cells = intervals.end(all.map(|key| entry(0, key, 3)).collect());
        assert_eq!(cells.len(), MOST_TOTALS + 2);
        assert_eq!(
            (intervals.totals.len(), intervals.given_up()),
            (MOST_TOTALS, 6)
        );
    }
}
