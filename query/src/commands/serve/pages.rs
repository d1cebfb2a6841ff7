//! Times of large tables by the pages of their files: a page whose rows are all in one step is counted, and not read.
//!
//! ```text
//! steps     |        |        |        |
//! pages     ══════╪══════╪═╪═══════╪═══     the index of pages has their first and last times
//! read            ······   ·······          those with a border of a step in them
//! ```
//! The fewer borders a window has for its pages, the less is read: of one event, none outside of its page. A page that was read is divided into short
//! intervals (`store/counts.rs`), so that it is not read again for other borders.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, bail};
use arrow::array::{Array, Int64Array};
use perfquet::Trace;
use perfquet_trace::store::TimePage;

use super::engine::Gone;
use super::http::Peer;
use super::parallel::parallel;
use super::store::counts::Counts;

/// Rows that are read at once, about.
const AT_ONCE: u64 = 4_000_000;
/// Events of an interval of a page that was read.
const MOST_OF_INTERVAL: usize = 2048;

/// The pages of a table.
#[derive(Default)]
pub(super) struct Pages {
    /// By part.
    parts: Vec<Vec<TimePage>>,
    /// Of pages that were read, the numbers of their events, by part and page. Of one whose times are not sorted, there is nothing.
    read: Mutex<HashMap<(usize, usize), Arc<Counts>>>,
}

impl Pages {
    fn new(parts: Vec<Vec<TimePage>>) -> Pages {
        Pages {
            parts,
            read: Mutex::default(),
        }
    }

    fn all(&self) -> impl Iterator<Item = &TimePage> {
        self.parts.iter().flatten()
    }

    fn keep(&self, place: (usize, usize), counts: Counts) {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.insert(place, Arc::new(counts));
    }

    /// Adds the events of a page that was read; `false` if it must be read for these steps.
    fn add_read(&self, place: (usize, usize), steps: &Steps, bins: &mut Bins) -> bool {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(counts) = read.get(&place).map(Arc::clone) else {
            return false;
        };
        drop(read);
        add_counts(&counts, steps, bins)
    }
}

/// Adds the events of intervals; `false` if one of them is not in one step.
fn add_counts(counts: &Counts, steps: &Steps, bins: &mut Bins) -> bool {
    let (from, to) = steps.window();
    let parts = counts.parts(from, to, steps.bits);
    if !parts.unread.is_empty() {
        return false;
    }
    for interval in parts.counted {
        let bin = (interval.first - from) >> steps.bits;
        add(bins, bin, interval.count() as i64, interval.first);
    }
    true
}

/// The pages of tables, read once each.
#[derive(Default)]
pub(super) struct KnownPages(Mutex<HashMap<String, Option<Arc<Pages>>>>);

impl KnownPages {
    /// The pages of a table, by its name in the manifest; `None` if they are not known, or the trace still grows.
    pub(super) fn of(&self, trace: &Trace, table: &str) -> Option<Arc<Pages>> {
        if !trace.is_complete() {
            return None;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(table) {
            return known.clone();
        }
        // A query of the table says what is wrong with it.
        let found = trace.time_pages(table).ok().flatten();
        let found = found.map(|parts| Arc::new(Pages::new(parts)));
        known.insert(table.to_owned(), found.clone());
        found
    }
}

/// Of a row, the number of events of each step, and the time of the first one.
pub(super) type Bins = BTreeMap<i64, (i64, i64)>;

/// Adds events of a step.
fn add(bins: &mut Bins, bin: i64, count: i64, first: i64) {
    let sum = bins.entry(bin).or_insert((0, first));
    *sum = (sum.0 + count, sum.1.min(first));
}

/// Steps of a window on the clock of the trace.
#[derive(Debug, Clone, Copy)]
pub(super) struct Steps {
    pub(super) from: i64,
    pub(super) to: i64,
    /// A step is 2^bits.
    pub(super) bits: u32,
    /// Time of the first event, from which the times of single events count.
    pub(super) start: i64,
}

impl Steps {
    fn bin(&self, time: i64) -> i64 {
        time.wrapping_sub(self.from) >> self.bits
    }

    /// The window from the start of the trace.
    fn window(&self) -> (i64, i64) {
        let relative = |time: i64| time.saturating_sub(self.start);
        (relative(self.from), relative(self.to))
    }

    /// Counts times from the start of the trace, most of which are in the same step as the ones next to them.
    fn count(&self, times: &[i64], bins: &mut Bins) {
        let (is_sorted, (from, to)) = (times.is_sorted(), self.window());
        let mut rest = times;
        while let [first, ..] = rest {
            let bin = first.wrapping_sub(from) >> self.bits;
            let is_same = |time: &i64| time.wrapping_sub(from) >> self.bits == bin;
            let length = match is_sorted {
                true => rest.partition_point(is_same),
                false => rest.iter().take_while(|time| is_same(time)).count(),
            };
            let (of_bin, others) = rest.split_at(length.max(1));
            if (from..to).contains(first) {
                let least = match is_sorted {
                    true => *first,
                    false => of_bin.iter().copied().min().unwrap_or(*first),
                };
                add(bins, bin, of_bin.len() as i64, least);
            }
            rest = others;
        }
    }

    pub(super) fn count_array(&self, times: &Int64Array, bins: &mut Bins) {
        let mut relative = Vec::new();
        self.add_times(times, &mut relative);
        self.count(&relative, bins);
    }

    /// Adds times from the start of the trace, without NULLs.
    fn add_times(&self, times: &Int64Array, out: &mut Vec<i64>) {
        let relative = |time: i64| time.saturating_sub(self.start);
        match times.null_count() {
            0 => out.extend(times.values().iter().map(|&time| relative(time))),
            _ => out.extend(times.iter().flatten().map(relative)),
        }
    }
}

/// Pages of a part that must be read, in order.
struct Unread {
    part: usize,
    pages: Vec<usize>,
}

/// Counts pages that are within a step, or were read before, and returns what must be read.
fn by_pages(pages: &Pages, steps: &Steps, bins: &mut Bins) -> Vec<Unread> {
    let mut all: Vec<Unread> = Vec::new();
    for (part, of_part) in pages.parts.iter().enumerate() {
        let mut unread: Vec<usize> = Vec::new();
        let mut count = 0;
        for (number, page) in of_part.iter().enumerate() {
            let Some((least, most)) = page.times else {
                continue;
            };
            if most < steps.from || least >= steps.to {
                continue;
            }
            let is_inside = least >= steps.from && most < steps.to;
            if is_inside && steps.bin(least) == steps.bin(most) {
                let events = page.rows.saturating_sub(page.nulls);
                add(bins, steps.bin(least), events as i64, least - steps.start);
                continue;
            }
            if pages.add_read((part, number), steps, bins) {
                continue;
            }
            if count > AT_ONCE {
                let pages = std::mem::take(&mut unread);
                all.push(Unread { part, pages });
                count = 0;
            }
            count += page.rows;
            unread.push(number);
        }
        if !unread.is_empty() {
            let pages = unread;
            all.push(Unread { part, pages });
        }
    }
    all
}

/// Takes the times of pages as they are read, in pieces of any length.
struct Reading<'a> {
    pages: &'a Pages,
    unread: &'a Unread,
    /// The place of the page in `unread`, and its times so far, from the start of the trace.
    page: usize,
    rows: u64,
    times: Vec<i64>,
}

impl<'a> Reading<'a> {
    fn of(pages: &'a Pages, unread: &'a Unread) -> Reading<'a> {
        Reading {
            pages,
            unread,
            page: 0,
            rows: 0,
            times: Vec::new(),
        }
    }

    /// The rows to read.
    fn ranges(&self) -> Vec<Range<u64>> {
        let mut rows: Vec<Range<u64>> = Vec::new();
        for page in self.unread.pages.iter().filter_map(|&page| self.page(page)) {
            let end = page.first_row.saturating_add(page.rows);
            match rows.last_mut() {
                Some(last) if last.end == page.first_row => last.end = end,
                _ => rows.push(page.first_row..end),
            }
        }
        rows
    }

    fn page(&self, number: usize) -> Option<&TimePage> {
        self.pages.parts.get(self.unread.part)?.get(number)
    }

    /// Counts the times of each page that is complete, and keeps their numbers.
    fn take(&mut self, times: &Int64Array, steps: &Steps, bins: &mut Bins) {
        let mut at = 0;
        while at < times.len()
            && let Some(&number) = self.unread.pages.get(self.page)
            && let Some(page) = self.page(number).copied()
        {
            let rest = usize::try_from(page.rows - self.rows).unwrap_or(usize::MAX);
            let piece = times.slice(at, rest.min(times.len() - at));
            steps.add_times(&piece, &mut self.times);
            at += piece.len();
            self.rows += piece.len() as u64;
            if self.rows < page.rows {
                return;
            }
            let counts = Counts::of(&self.times, MOST_OF_INTERVAL);
            let is_counted =
                (counts.as_ref()).is_some_and(|counts| add_counts(counts, steps, bins));
            if !is_counted {
                steps.count(&self.times, bins);
            }
            if let Some(counts) = counts {
                self.pages.keep((self.unread.part, number), counts);
            }
            (self.page, self.rows) = (self.page + 1, 0);
            self.times.clear();
        }
    }

    /// Whether all pages were complete.
    fn is_done(&self) -> bool {
        self.page == self.unread.pages.len()
    }
}

/// The numbers of events of tables in the steps of a window.
pub(super) fn count(
    trace: &Trace,
    steps: &Steps,
    tables: &[(String, Arc<Pages>)],
    peer: &Peer<'_>,
) -> Result<Vec<Bins>> {
    let mut counted = vec![Bins::new(); tables.len()];
    let mut unread = Vec::new();
    for (number, (_, pages)) in tables.iter().enumerate() {
        let of_table = by_pages(pages, steps, &mut counted[number]);
        unread.extend(of_table.into_iter().map(|unread| (number, unread)));
    }
    let read = parallel(unread.len(), |at| {
        if peer.is_gone() {
            return Err(Gone.into());
        }
        let (number, unread) = &unread[at];
        let mut bins = Bins::new();
        let (table, pages) = &tables[*number];
        let mut reading = Reading::of(pages, unread);
        let rows = reading.ranges();
        trace.integers_of_rows(table, unread.part, "time", &rows, |times| {
            reading.take(times, steps, &mut bins);
        })?;
        if !reading.is_done() {
            bail!("{table}: fewer rows than in the index of pages");
        }
        Ok((*number, bins))
    })?;
    for (number, bins) in read {
        for (bin, (count, first)) in bins {
            add(&mut counted[number], bin, count, first);
        }
    }
    Ok(counted)
}

/// About the number of rows in a range of time, half open: those of pages at its ends by their share of time.
pub(super) fn about(pages: &Pages, from: i64, to: i64) -> u64 {
    let of_page = |page: &TimePage| {
        let (least, most) = page.times?;
        let rows = page.rows.saturating_sub(page.nulls);
        let inside = i128::from(most.saturating_add(1).min(to)) - i128::from(least.max(from));
        let length = i128::from(most) - i128::from(least) + 1;
        let share = i128::from(rows) * inside.max(0) / length;
        u64::try_from(share).ok()
    };
    pages.all().filter_map(of_page).sum()
}

/// About how many rows of a table have each value of a column of integers, by some of its pages.
pub(super) fn sampled(
    trace: &Trace,
    table: &str,
    pages: &Pages,
    column: &str,
) -> Result<HashMap<i64, u64>> {
    /// Pages that are read.
    const MOST: usize = 24;
    let all: Vec<(usize, &TimePage)> = (pages.parts.iter().enumerate())
        .flat_map(|(part, pages)| pages.iter().map(move |page| (part, page)))
        .collect();
    let step = all.len().div_ceil(MOST).max(1);
    let chosen: Vec<&(usize, &TimePage)> = all.iter().skip(step / 2).step_by(step).collect();
    let read = parallel(chosen.len(), |at| {
        let (part, page) = chosen[at];
        let mut counts: HashMap<i64, u64> = HashMap::new();
        let rows = page.first_row..page.first_row.saturating_add(page.rows);
        trace.integers_of_rows(table, *part, column, &[rows], |values| {
            for value in values.iter().flatten() {
                *counts.entry(value).or_default() += 1;
            }
        })?;
        Ok((page.rows, counts))
    })?;
    let rows: u64 = all.iter().map(|(_, page)| page.rows).sum();
    let (mut seen, mut counts) = (0, HashMap::new());
    for (of_page, found) in read {
        seen += of_page;
        for (value, count) in found {
            *counts.entry(value).or_default() += count;
        }
    }
    for count in counts.values_mut() {
        let share = u128::from(*count) * u128::from(rows) / u128::from(seen.max(1));
        *count = u64::try_from(share).unwrap_or(u64::MAX);
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(first_row: u64, times: &[i64]) -> TimePage {
        TimePage {
            first_row,
            rows: times.len() as u64,
            nulls: 0,
            times: times.iter().copied().min().zip(times.iter().copied().max()),
        }
    }

    /// Counts by pages, and by the rows that they leave, are those of all rows, in windows and steps of every kind.
    #[test]
    fn pages_have_the_counts_of_their_rows() {
        let mut state = 7_u64;
        let mut random = |limit: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % limit
        };
        let mut parts: Vec<Vec<i64>> = vec![Vec::new(), Vec::new()];
        for part in &mut parts {
            let mut time = 1000;
            for _ in 0..20_000 {
                time += match random(100) {
                    0 => random(1 << 14) as i64,
                    1..60 => 0,
                    _ => random(9) as i64,
                };
                part.push(time);
            }
        }
        // One that is not sorted.
        parts[1].swap(40, 9000);
        let all_pages = (parts.iter()).map(|times| {
            let pages = times.chunks(256).enumerate();
            pages
                .map(|(at, times)| page(256 * at as u64, times))
                .collect()
        });
        let pages = Pages::new(all_pages.collect());
        let start = 1000;
        let (mut counted, mut all, mut read) = (0, 0, 0_usize);
        for bits in 0..22 {
            for _ in 0..4 {
                let from = (random(300_000) as i64 - 1000) >> bits << bits;
                let to = from + ((1 + random(300) as i64) << bits);
                let steps = Steps {
                    from: start + from,
                    to: start + to,
                    bits,
                    start,
                };
                let (mut found, mut expected) = (Bins::new(), Bins::new());
                let unread = by_pages(&pages, &steps, &mut found);
                counted += found.values().map(|(count, _)| count).sum::<i64>();
                for unread in unread {
                    read += unread.pages.len();
                    let mut reading = Reading::of(&pages, &unread);
                    let rows = reading.ranges().into_iter();
                    let rows = rows.map(|rows| rows.start as usize..rows.end as usize);
                    let times: Vec<i64> = rows
                        .flat_map(|rows| parts[unread.part][rows].to_vec())
                        .collect();
                    // Pieces do not begin with the pages.
                    for piece in times.chunks(1 + random(700) as usize) {
                        reading.take(&piece.to_vec().into(), &steps, &mut found);
                    }
                }
                for time in parts.iter().flatten() {
                    let at = time - start;
                    if at >= from && at < to {
                        add(&mut expected, (at - from) >> bits, 1, at);
                    }
                }
                assert_eq!(found, expected, "{steps:?}");
                all += expected.values().map(|(count, _)| count).sum::<i64>();
                let about = about(&pages, steps.from, steps.to);
                let exact: i64 = expected.values().map(|(count, _)| count).sum();
                assert!(
                    about.abs_diff(exact as u64) <= 4 * 256,
                    "{about} for {exact}"
                );
            }
        }
        assert!(counted > all / 2, "{counted} of {all} by pages");
        assert!(read > 0);
    }

    #[test]
    fn pages_are_read_once_for_steps_of_many_events() {
        let times: Vec<i64> = (0..64 * 1024).map(|number| 10 * number).collect();
        let of_part = times.chunks(4096).enumerate();
        let of_part = of_part.map(|(at, times)| page(4096 * at as u64, times));
        let pages = Pages::new(vec![of_part.collect()]);
        let read = |from: i64, steps: i64, bits: u32| {
            let steps = Steps {
                from: from << bits,
                to: (from + steps) << bits,
                bits,
                start: 0,
            };
            let unread = by_pages(&pages, &steps, &mut Bins::new());
            for unread in &unread {
                let mut reading = Reading::of(&pages, unread);
                for rows in reading.ranges() {
                    let times = times[rows.start as usize..rows.end as usize].to_vec();
                    reading.take(&times.into(), &steps, &mut Bins::new());
                }
            }
            unread
                .iter()
                .map(|unread| unread.pages.len())
                .sum::<usize>()
        };
        assert_eq!(read(0, 40, 14), 16);
        for bits in 14..20 {
            assert_eq!((read(0, 40, bits), read(3, 5, bits)), (0, 0));
        }
        // A step of a few events: those of the page are read.
        assert_eq!(read(0, 100, 6), 1);
    }
}
