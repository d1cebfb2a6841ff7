//! How many events of a table there are in any part of the time: counts of aligned intervals with at most some hundred events each.
//!
//! ```text
//! events    |||·|····|·······|      count 3 in 4 ns from 0, 1 at 4, 1 at 9, …
//! ```
//! An interval is as long as a power of two nanoseconds, and begins at a multiple of it; so are the steps of a picture. Each
//! interval is in one step, unless it is longer: the events of those that are longer are read.

use super::numbers::{Numbers, put};

/// Maximum number of events in an interval longer than one nanosecond; more in large tables, to save memory.
pub(crate) const MOST: usize = 256;
pub(crate) const MOST_OF_LARGE: usize = 1024;
/// Rows of a large table.
const LARGE: u64 = 100_000_000;
/// Times that are divided at once.
const PIECE: usize = 1 << 16;

/// Events within an aligned interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interval {
    /// Time of the first event.
    pub(crate) first: i64,
    /// Number of events, and in the lowest bits that of the length: there are millions of these in memory.
    size: u64,
}

const LENGTH_BITS: u32 = 6;

impl Interval {
    /// `None` if these are none of an interval.
    fn new(first: i64, bits: u32, count: u64) -> Option<Interval> {
        let size = count.checked_mul(1 << LENGTH_BITS)?;
        (bits < 1 << LENGTH_BITS).then_some(Interval {
            first,
            size: size | u64::from(bits),
        })
    }

    /// Its length is 2^bits.
    pub(crate) fn bits(self) -> u32 {
        (self.size & ((1 << LENGTH_BITS) - 1)) as u32
    }

    pub(crate) fn count(self) -> u64 {
        self.size >> LENGTH_BITS
    }
}

/// The intervals of a table, in order: no event of one is after the first of the next.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    intervals: Vec<Interval>,
}

/// What of a window is counted, and what must be read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) counted: Vec<Interval>,
    /// Half open ranges, in order.
    pub(crate) unread: Vec<(i64, i64)>,
}

/// More ranges are read as one.
const MOST_RANGES: usize = 32;

impl Counts {
    /// Divides times; `None` if they do not come in order.
    pub(crate) fn of(times: &[i64], most: usize) -> Option<Counts> {
        let mut intervals = Vec::new();
        times
            .is_sorted()
            .then(|| divide(times, most, &mut intervals))?;
        Some(Counts { intervals })
    }

    /// The intervals in a window of multiples of 2^bits.
    pub(crate) fn parts(&self, from: i64, to: i64, bits: u32) -> Parts {
        let after = self
            .intervals
            .partition_point(|interval| interval.first < to);
        let before = self
            .intervals
            .partition_point(|interval| interval.first < from);
        let mut parts = Parts::default();
        for at in before.saturating_sub(1)..after {
            let interval = self.intervals[at];
            let next = self.intervals.get(at + 1).map_or(to, |next| next.first);
            if interval.bits() <= bits {
                // It is in one step, so it is in the window or outside of it.
                if interval.first >= from {
                    parts.counted.push(interval);
                }
                continue;
            }
            let (begin, end) = (interval.first.max(from), next.min(to));
            match parts.unread.last_mut() {
                _ if begin >= end => {}
                Some(last) if last.1 == begin => last.1 = end,
                _ => parts.unread.push((begin, end)),
            }
        }
        if parts.unread.len() > MOST_RANGES {
            let hull = (parts.unread[0].0, parts.unread[parts.unread.len() - 1].1);
            parts
                .counted
                .retain(|interval| interval.first < hull.0 || interval.first >= hull.1);
            parts.unread = vec![hull];
        }
        parts
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        put(out, self.intervals.len() as u64);
        let mut first = 0;
        for interval in &self.intervals {
            put(out, interval.first.wrapping_sub(first).cast_unsigned());
            put(out, interval.bits().into());
            put(out, interval.count());
            first = interval.first;
        }
    }

    pub(super) fn read(numbers: &mut Numbers<'_>) -> Option<Counts> {
        let count = numbers.count()?;
        let mut intervals = Vec::with_capacity(count);
        let mut first = 0_i64;
        for _ in 0..count {
            first = first.wrapping_add(numbers.next()?.cast_signed());
            let bits = u32::try_from(numbers.next()?).ok()?;
            intervals.push(Interval::new(first, bits, numbers.next()?)?);
        }
        let is_sorted = intervals.is_sorted_by_key(|interval| interval.first);
        is_sorted.then_some(Counts { intervals })
    }
}

/// Divides times, which come in order.
#[derive(Debug)]
pub(crate) struct Counter {
    /// Events of an interval.
    most: usize,
    intervals: Vec<Interval>,
    times: Vec<i64>,
    last: Option<i64>,
}

impl Counter {
    /// Of a table with this many rows.
    pub(crate) fn of(rows: u64) -> Counter {
        Counter {
            most: match rows {
                ..LARGE => MOST,
                LARGE.. => MOST_OF_LARGE,
            },
            intervals: Vec::new(),
            times: Vec::new(),
            last: None,
        }
    }

    /// Adds a time; `false` if it is before the last one.
    #[inline]
    pub(crate) fn add(&mut self, time: i64) -> bool {
        if self.last.is_some_and(|last| time < last) {
            return false;
        }
        self.last = Some(time);
        self.times.push(time);
        if self.times.len() >= PIECE {
            self.divide_all();
            // The events of the last interval may have others near them.
            let last = self.intervals.pop().map_or(0, Interval::count);
            // Of the same time, any number.
            if last as usize >= PIECE / 2 {
                self.times.clear();
                self.intervals.extend(Interval::new(time, 0, last));
            } else {
                self.times.drain(..self.times.len() - last as usize);
            }
        }
        true
    }

    fn divide_all(&mut self) {
        let times = std::mem::take(&mut self.times);
        divide(&times, self.most, &mut self.intervals);
        self.times = times;
    }

    pub(crate) fn finish(mut self) -> Counts {
        self.divide_all();
        self.intervals.shrink_to_fit();
        Counts {
            intervals: self.intervals,
        }
    }
}

/// Adds the intervals of sorted times: the shortest ones around at most this many of them.
fn divide(times: &[i64], most: usize, intervals: &mut Vec<Interval>) {
    let (Some(&first), Some(&last)) = (times.first(), times.last()) else {
        return;
    };
    // The highest bit in which they differ.
    let bits = (first ^ last).checked_ilog2().map_or(0, |bit| bit + 1);
    // Times with different signs are in no common interval.
    let is_one = (first < 0) == (last < 0);
    if is_one && (times.len() <= most || bits == 0) {
        intervals.extend(Interval::new(first, bits, times.len() as u64));
        return;
    }
    let middle = if is_one {
        last >> (bits - 1) << (bits - 1)
    } else {
        0
    };
    let place = times.partition_point(|&time| time < middle);
    divide(&times[..place], most, intervals);
    divide(&times[place..], most, intervals);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(times: &[i64]) -> Counts {
        let mut counter = Counter::of(0);
        assert!(times.iter().all(|&time| counter.add(time)));
        counter.finish()
    }

    /// The number of times in each step, by intervals and by times.
    fn check(times: &[i64], from: i64, to: i64, bits: u32) -> usize {
        let parts = counts(times).parts(from, to, bits);
        let mut found = std::collections::BTreeMap::new();
        for interval in &parts.counted {
            *found.entry(interval.first >> bits).or_insert(0) += interval.count();
        }
        let mut read = 0;
        for &(begin, end) in &parts.unread {
            for &time in times.iter().filter(|&&time| time >= begin && time < end) {
                *found.entry(time >> bits).or_insert(0) += 1;
                read += 1;
            }
        }
        let mut expected = std::collections::BTreeMap::new();
        for time in times.iter().filter(|&&time| time >= from && time < to) {
            *expected.entry(time >> bits).or_insert(0) += 1;
        }
        assert_eq!(found, expected, "{from}..{to} by 2^{bits}");
        read
    }

    #[test]
    fn counts_are_those_of_the_times() {
        let mut state = 7_u64;
        let mut random = |limit: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % limit
        };
        // Bursts, silence, and many events of the same time.
        let mut times = vec![-9, -9, -1, 0];
        let mut time = 0;
        for _ in 0..150_000 {
            time += match random(1000) {
                0 => 1 << random(24),
                1..400 => 0,
                _ => random(9) as i64,
            };
            times.push(time);
        }
        times.extend(std::iter::repeat_n(time + 5, 100_000));
        for bits in 0..30 {
            for _ in 0..4 {
                let from = (random(time as u64 + 10) as i64 >> bits << bits) - (8 << bits);
                let to = from + ((1 + random(2000) as i64) << bits);
                let read = check(&times, from, to, bits);
                assert!(read <= 2000 * MOST, "{read}");
            }
        }
        assert_eq!(check(&times, -(1 << 30), 1 << 40, 30), 0);
        let all = counts(&times);
        // Times that come at once are divided in the same way, in as many intervals.
        let large = Counts::of(&times, MOST_OF_LARGE).unwrap();
        let events =
            |counts: &Counts| -> u64 { counts.intervals.iter().map(|one| one.count()).sum() };
        assert_eq!(events(&large), events(&all));
        assert!(2 * large.intervals.len() < all.intervals.len());
        let mut bytes = Vec::new();
        all.write(&mut bytes);
        assert_eq!(Counts::read(&mut Numbers::new(&bytes)).unwrap(), all);
        assert!(
            all.intervals.len() < times.len() / 40,
            "{}",
            all.intervals.len()
        );
    }

    #[test]
    fn a_time_before_the_last_one_is_refused() {
        let mut counter = Counter::of(0);
        assert!(counter.add(5) && counter.add(5) && !counter.add(4));
        assert_eq!(Counts::of(&[5, 4], MOST), None);
        assert_eq!(counts(&[]).parts(0, 8, 3), Parts::default());
    }
}
