//! Tiles: what a part of the timeline shows of some rows, at one step of time.
//!
//! ```text
//! events   |··|||·|      a number for each step that has any; the time of those that are alone
//! ```
//! Steps are powers of two nanoseconds, and tiles begin at a multiple of their step: zooming and panning back asks for tiles
//! that the cache has. All times are relative to the start of the trace.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Result, bail};
use perfquet::failure::Misuse;
use perfquet::sql::names::quoted;

use super::Served;
use super::columns::Rows;
use super::engine::{Limit, at, integers, rows, stream};
use super::http::{Peer, Request};
use super::pages::{self, Bins, Steps};
use super::parallel::parallel;

/// Steps of a tile.
const MOST_STEPS: i64 = 40_000;
/// Rows of a table whose times are read, since that is quicker than a query that groups them.
const MANY: u64 = 1_000_000;
/// Rows of a tile.
const MOST_ROWS: usize = 512;

/// Shares of steps are in units of 2^-5 of the step, half a pixel of a row of the page: more of them is noise that does not compress.
const SHARE_BITS: u32 = 5;

/// Longest step: a picture of a few hundred of them is as long as times can be.
const LONGEST: i64 = 1 << 53;

/// A part of the time: half open, in steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) step: i64,
}

impl Window {
    /// Of the parameters `from`, `to` and `step`.
    pub(super) fn of(request: &Request) -> Result<Window> {
        let step = integer(request, "step")?;
        let (from, to) = range(request)?;
        if !(1..=LONGEST).contains(&step) || step.count_ones() != 1 {
            bail!(Misuse("step: expected a power of two".to_owned()));
        }
        if from.rem_euclid(step) != 0 || to.rem_euclid(step) != 0 {
            bail!(Misuse("from, to: expected multiples of step".to_owned()));
        }
        if (to - from) / step > MOST_STEPS {
            bail!(Misuse(format!("expected at most {MOST_STEPS} steps")));
        }
        Ok(Window { from, to, step })
    }

    /// Number of steps.
    pub(super) fn count(&self) -> usize {
        usize::try_from((self.to - self.from) >> self.bits()).unwrap_or(0)
    }

    /// The step is 2^bits.
    pub(super) fn bits(&self) -> u32 {
        self.step.trailing_zeros()
    }

    /// A time within a step, in 32nds of the step, but not in less than nanoseconds.
    pub(super) fn share(&self, time: i64) -> i64 {
        let bits = self.bits().saturating_sub(SHARE_BITS);
        // What there is, is seen.
        ((time + ((1 << bits) >> 1)) >> bits).max(time.signum())
    }

    /// The number of the step in which a range is.
    pub(super) fn only_bin(&self, begin: i64, end: i64) -> Option<i64> {
        let bits = self.bits();
        let bin = begin >> bits;
        let is_one = (end - 1).max(begin) >> bits == bin;
        (is_one && begin >= self.from && begin < self.to).then(|| bin - (self.from >> bits))
    }

    /// The steps of a period that are inside: number, time in it, whether the period begins there.
    #[inline]
    pub(super) fn bins(&self, begin: i64, end: i64) -> impl Iterator<Item = (i64, i64, bool)> {
        let (from, to, bits) = (self.from, self.to, self.bits());
        let first = begin.max(from) >> bits;
        let last = (end - 1).max(begin).min(to - 1) >> bits;
        (first..=last).map(move |bin| {
            let inside = end.min((bin + 1) << bits) - begin.max(bin << bits);
            let is_first = begin >= from && begin >> bits == bin;
            (bin - (from >> bits), inside.max(0), is_first)
        })
    }
}

/// A parameter that is an integer.
pub(super) fn integer(request: &Request, name: &str) -> Result<i64> {
    let text = request.parameter(name).unwrap_or_default();
    match text.parse() {
        Ok(value) => Ok(value),
        Err(_) => bail!(Misuse(format!("{name}: expected an integer"))),
    }
}

/// The parameters `from` and `to`.
pub(super) fn range(request: &Request) -> Result<(i64, i64)> {
    let (from, to) = (integer(request, "from")?, integer(request, "to")?);
    // Sums with the start of a trace must not overflow.
    let most = 1 << 61;
    if from >= to || from < -most || to > most {
        bail!(Misuse("from, to: expected a range".to_owned()));
    }
    Ok((from, to))
}

/// The parameter `ids`: integers.
pub(super) fn ids(request: &Request) -> Result<Vec<i64>> {
    let text = request.parameter("ids").unwrap_or_default();
    let ids = text.split(',').filter(|id| !id.is_empty()).map(str::parse);
    match ids.collect::<Result<Vec<i64>, _>>() {
        Ok(ids) if ids.len() <= MOST_ROWS => Ok(ids),
        Ok(_) => bail!(Misuse(format!("ids: expected at most {MOST_ROWS}"))),
        Err(_) => bail!(Misuse("ids: expected integers".to_owned())),
    }
}

/// A condition that a column has one of these values; -1 is NULL.
pub(super) fn is_one_of(column: &str, ids: &[i64]) -> String {
    let values: Vec<String> = (ids.iter().filter(|id| **id >= 0))
        .map(ToString::to_string)
        .collect();
    let mut all = Vec::new();
    if !values.is_empty() {
        all.push(format!("{column} IN ({})", values.join(",")));
    }
    if ids.contains(&-1) {
        all.push(format!("{column} IS NULL"));
    }
    match all.is_empty() {
        true => "FALSE".to_owned(),
        false => format!("({})", all.join(" OR ")),
    }
}

/// The table of an event, as SQL names it.
fn sql_name(table: &str) -> String {
    let parts = table.split('/').skip(1);
    let parts: Vec<String> = parts.map(quoted).collect();
    parts.join(".")
}

/// The event tables of a trace with rows, as SQL names them.
pub(super) fn event_tables(served: &Served) -> Vec<(String, u64)> {
    let tables = served.trace().tables.iter();
    let events = tables.filter(|table| table.is_event() && table.rows() > 0);
    let mut all: Vec<(String, u64)> = events
        .map(|table| (sql_name(&table.schema.name), table.rows()))
        .collect();
    all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    all
}

/// Numbers of events by row.
type Counted = BTreeMap<i64, Bins>;

/// Numbers of events by event table, whose places are `ids`.
pub(super) fn events(
    served: &Served,
    window: &Window,
    ids: &[i64],
    peer: &Peer<'_>,
) -> Result<Vec<u8>> {
    let tables = event_tables(served);
    let index = served.index_if_ready(peer)?;
    let (mut all, mut counted, mut uncounted) = (Vec::new(), Counted::new(), Vec::new());
    let (mut paged, mut ids_of_paged) = (Vec::new(), Vec::new());
    for &id in ids {
        let Some((table, rows)) = usize::try_from(id).ok().and_then(|id| tables.get(id)) else {
            bail!(Misuse(format!("ids: no event {id}")));
        };
        let place = id.to_string();
        let whole = (window.from, window.to);
        let counts = index.as_ref().and_then(|index| index.counts(table));
        let Some(counts) = counts.or_else(|| served.counted.of(table)) else {
            if *rows <= MANY {
                all.push(counts_of(served, window, whole, table, &place, "TRUE"));
            } else if let Some(found) = served.pages_of(table) {
                paged.push(found);
                ids_of_paged.push(id);
            } else {
                uncounted.push((id, table));
            }
            continue;
        };
        let parts = counts.parts(window.from, window.to, window.bits());
        let bins = counted.entry(id).or_default();
        for interval in parts.counted {
            let bin = (interval.first - window.from) >> window.bits();
            // Only of an event that is alone is the time of interest.
            let sum = bins.entry(bin).or_insert((0, interval.first));
            sum.0 += interval.count() as i64;
        }
        let unread = parts.unread.into_iter();
        all.extend(unread.map(|range| counts_of(served, window, range, table, &place, "TRUE")));
    }
    read_counts(served, &all, &mut counted, peer)?;
    let steps = Steps {
        from: served.start.saturating_add(window.from),
        to: served.start.saturating_add(window.to),
        bits: window.bits(),
        start: served.start,
    };
    let read = parallel(uncounted.len(), |at| {
        let (id, table) = uncounted[at];
        Ok((id, read_times(served, &steps, table, peer)?))
    })?;
    counted.extend(read);
    let read = pages::count(served.trace(), &steps, &paged, peer)?;
    counted.extend(ids_of_paged.into_iter().zip(read));
    written(window, &counted)
}

impl Served {
    /// The name in the manifest of a table that SQL names so, and the pages of its files, if they are known.
    pub(super) fn pages_of(&self, sql: &str) -> Option<(String, Arc<pages::Pages>)> {
        let trace = self.trace();
        let mut tables = trace.tables.iter();
        let table = tables.find(|table| sql_name(&table.schema.name) == sql)?;
        let name = &table.schema.name;
        Some((name.clone(), self.pages.of(trace, name)?))
    }
}

/// The numbers of events of a large table: most of its rows are in the same step as the ones next to them.
fn read_times(served: &Served, steps: &Steps, table: &str, peer: &Peer<'_>) -> Result<Bins> {
    let (from, to) = (steps.from, steps.to);
    // A condition that all rows fulfil costs as much as their times.
    let condition = match from <= served.start && to > served.end {
        true => String::new(),
        false => format!(" WHERE time >= {from} AND time < {to}"),
    };
    let mut bins = Bins::new();
    let sql = format!("SELECT time FROM {table}{condition}");
    stream(&served.session, &sql, peer, |batch| {
        steps.count_array(&integers(batch, 0)?, &mut bins);
        Ok(())
    })?;
    Ok(bins)
}

/// Numbers of samples by thread or by CPU.
pub(super) fn samples(
    served: &Served,
    window: &Window,
    by: &str,
    ids: &[i64],
    peer: &Peer<'_>,
) -> Result<Vec<u8>> {
    let whole = (window.from, window.to);
    let sql = counts_of(served, window, whole, "samples", by, &is_one_of(by, ids));
    let mut counted = Counted::new();
    read_counts(served, &[sql], &mut counted, peer)?;
    written(window, &counted)
}

/// A query of the number of events in each step of a window, within a range.
fn counts_of(
    served: &Served,
    window: &Window,
    range: (i64, i64),
    table: &str,
    by: &str,
    condition: &str,
) -> String {
    let Window { from, step, .. } = window;
    let from = served.start + from;
    let (begin, end) = (served.start + range.0, served.start + range.1);
    let step = format!("(time - {from}) / {step}");
    // A number would be the place of a column.
    let groups = match by.parse::<i64>() {
        Ok(_) => step.clone(),
        Err(_) => format!("{by}, {step}"),
    };
    format!(
        "SELECT {by} AS row, {step} AS step, count(*) AS events, min(time) AS first \
         FROM {table} WHERE time >= {begin} AND time < {end} AND {condition} GROUP BY {groups}"
    )
}

fn read_counts(
    served: &Served,
    sql: &[String],
    counted: &mut Counted,
    peer: &Peer<'_>,
) -> Result<()> {
    if sql.is_empty() {
        return Ok(());
    }
    let sql = sql.join(" UNION ALL ");
    for batch in rows(&served.session, &sql, Limit::OWN, peer)?.batches {
        let [ids, bins, counts, firsts] = [0, 1, 2, 3].map(|column| integers(&batch, column));
        let (ids, bins, counts, firsts) = (ids?, bins?, counts?, firsts?);
        for row in 0..batch.num_rows() {
            let first = firsts.value(row) - served.start;
            let of_row = counted.entry(at(&ids, row).unwrap_or(-1)).or_default();
            let sum = of_row.entry(bins.value(row)).or_insert((0, first));
            sum.0 += counts.value(row);
        }
    }
    Ok(())
}

fn written(window: &Window, counted: &Counted) -> Result<Vec<u8>> {
    let mut rows = Rows::default();
    for (&id, bins) in counted {
        let x: Vec<i64> = bins.keys().copied().collect();
        let n: Vec<i64> = bins.values().map(|bin| bin.0).collect();
        let place = |(bin, (count, first)): (&i64, &(i64, i64))| match count {
            1 => first - window.from - bin * window.step,
            _ => 0,
        };
        let alone: Vec<i64> = bins.iter().map(place).collect();
        rows.add(&[("id", id)], &[("x", &x), ("n", &n), ("at", &alone)])?;
    }
    Ok(rows.finish(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_cut_at_steps() {
        let window = Window {
            from: -8,
            to: 16,
            step: 4,
        };
        let bins = |begin, end| window.bins(begin, end).collect::<Vec<_>>();
        assert_eq!(bins(-8, -7), [(0, 1, true)]);
        assert_eq!(bins(-1, 5), [(1, 1, true), (2, 4, false), (3, 1, false)]);
        assert_eq!(bins(-20, -6), [(0, 2, false)]);
        assert_eq!(bins(14, 40), [(5, 2, true)]);
        assert_eq!(bins(4, 4), [(3, 0, true)]);
        assert_eq!(bins(4, 8), [(3, 4, true)]);
        assert_eq!([0, 3, 4].map(|time| window.share(time)), [0, 3, 4]);
        let window = Window {
            step: 1 << 12,
            ..window
        };
        let shares = [0, 1, 191, 192, 4096].map(|time| window.share(time));
        assert_eq!(shares, [0, 1, 1, 2, 32]);
    }

    #[test]
    fn windows_are_checked() {
        let window = |query: &str| {
            let request = Request {
                query: query.to_owned(),
                ..Request::default()
            };
            Window::of(&request).map_err(|error| error.to_string())
        };
        assert!(window("from=-16&to=32&step=16").is_ok());
        for wrong in [
            "from=0&to=32",
            "from=0&to=32&step=3",
            "from=0&to=32&step=-9223372036854775808",
            "from=1&to=32&step=2",
            "from=32&to=0&step=2",
            "from=0&to=65536&step=1",
            "from=-9223372036854775808&to=9223372036854775807&step=1",
            "from=0&to=1%27&step=1",
        ] {
            assert!(window(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn conditions_of_rows() {
        assert_eq!(is_one_of("tid", &[]), "FALSE");
        assert_eq!(is_one_of("tid", &[-1]), "(tid IS NULL)");
        assert_eq!(
            is_one_of("tid", &[3, -1, 4]),
            "(tid IN (3,4) OR tid IS NULL)"
        );
    }
}
