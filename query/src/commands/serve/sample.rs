//! States before the index is there: of the window, or of parts of it, without what happened long before. Tiles of it say so.
//!
//! ```text
//! window   |     |     |     |     |      stretches of whole steps
//! read      ..==  ..==  ..==  ..==        a part of each, and as much before it, which shows what threads do
//! ```
//! A thread without an event in what is read is not drawn. What is drawn of a stretch is the mean of its part.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use anyhow::{Result, anyhow};

use super::Served;
use super::columns::Rows;
use super::engine::{Gone, Limit, at, integers, rows};
use super::http::Peer;
use super::pages::{KnownPages, about};
use super::parallel::parallel;
use super::periods::{COLUMNS, ThreadState, thread_states};
use super::shared::Once;
use super::states::{self, DRAWN};
use super::store::Store;
use super::store::writer::{Sink, Writer};
use super::tiles::Window;

/// Events of the scheduler, of which fewer have an index in no time.
pub(super) const LEAST: u64 = 1_500_000;
/// Events that are read of a window, about.
const MOST_READ: u64 = 500_000;
/// Approximate number of events in a window that is read as a whole, and in what is read before and after it.
const MOST_WHOLE: u64 = 500_000;
const AROUND: f64 = 125_000.0;
/// Stretches of a window. Each is a query, which is planned in several milliseconds of CPU time.
const STRETCHES: i64 = 32;
/// Losses whose times are known; where there are more, there may be one anywhere.
const MOST_LOSSES: usize = 10_000;
/// Windows that are kept.
const MOST_KEPT: usize = 2;

/// The tables that say what threads do.
const TABLES: [(&str, &str); 5] = [
    ("events/sched/sched_switch", "sched.sched_switch"),
    ("events/sched/sched_waking", "sched.sched_waking"),
    ("events/sched/sched_wakeup", "sched.sched_wakeup"),
    ("events/sched/sched_wakeup_new", "sched.sched_wakeup_new"),
    ("events/perf/context_switch", "perf.context_switch"),
];

/// What was read of a window.
pub(super) struct Sample {
    states: Known,
    /// Thousandths of the window that were read.
    about: i64,
}

enum Known {
    Whole(Store),
    Parts(Vec<Part>),
}

/// The sums of a part of a stretch.
struct Part {
    /// The steps of the stretch, from the begin of the window.
    bins: (i64, i64),
    /// Length of the part.
    length: i64,
    threads: HashMap<i64, OfThread, ahash::RandomState>,
    /// Time and number of the periods of CPUs by thread.
    cpus: HashMap<i64, HashMap<i64, (i64, i64), ahash::RandomState>, ahash::RandomState>,
}

/// Of a thread in a part, the time in the states that are drawn, and the number of all periods.
#[derive(Default)]
struct OfThread {
    times: [i64; DRAWN.len()],
    count: i64,
}

/// The samples of the last windows.
#[derive(Default)]
pub(super) struct Samples(Mutex<VecDeque<(Window, Arc<Once<Sample>>)>>);

impl Samples {
    fn of(&self, window: &Window) -> Arc<Once<Sample>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, found)) = kept.iter().find(|(of, _)| of == window) {
            return Arc::clone(found);
        }
        let new = Arc::new(Once::default());
        kept.push_back((*window, Arc::clone(&new)));
        if kept.len() > MOST_KEPT {
            kept.pop_front();
        }
        new
    }
}

impl Served {
    /// Number of the scheduler's events.
    pub(super) fn scheduler_events(&self) -> u64 {
        let rows = |(name, _): &(&str, &str)| self.trace().table(name).map(|table| table.rows());
        TABLES.iter().filter_map(rows).sum()
    }

    /// What can be read of the states in a window within a moment.
    fn sample(&self, window: &Window, peer: &Peer<'_>) -> Result<Arc<Sample>> {
        let once = self.samples.of(window);
        let reading = Reading {
            session: Arc::clone(&self.session),
            tables: self.scheduler_tables(),
            pages: Arc::clone(&self.pages),
            window: *window,
            start: self.start,
            length: self.end.saturating_sub(self.start).saturating_add(1),
            wanted: Arc::downgrade(&once),
        };
        once.get(peer, move || reading.sample())
    }

    fn scheduler_tables(&self) -> Vec<(&'static str, u64)> {
        let rows = |name: &str| self.trace().table(name).map_or(0, |table| table.rows());
        let tables = TABLES.iter().map(|&(name, sql)| (sql, rows(name)));
        tables.filter(|(_, rows)| *rows > 0).collect()
    }

    /// A tile of the states of threads.
    pub(super) fn about_threads(
        &self,
        window: &Window,
        tids: &[i64],
        peer: &Peer<'_>,
    ) -> Result<Vec<u8>> {
        let sample = self.sample(window, peer)?;
        match &sample.states {
            Known::Whole(store) => sample.marked(states::threads(store, window, tids, peer)?),
            Known::Parts(parts) => sample.marked(threads(parts, window, tids)?.finish("")),
        }
    }

    /// A tile of what ran on CPUs.
    pub(super) fn about_cpus(
        &self,
        window: &Window,
        ids: &[i64],
        peer: &Peer<'_>,
    ) -> Result<Vec<u8>> {
        let sample = self.sample(window, peer)?;
        match &sample.states {
            Known::Whole(store) => sample.marked(states::cpus(store, window, ids, peer)?),
            Known::Parts(parts) => sample.marked(cpus(parts, window, ids)?.finish("")),
        }
    }
}

impl Sample {
    /// A tile that says of how much it is made.
    fn marked(&self, mut tile: Vec<u8>) -> Result<Vec<u8>> {
        if tile.pop() != Some(b'}') {
            return Err(anyhow!("a tile has no end"));
        }
        tile.extend_from_slice(format!(",\"about\":{}}}", self.about).as_bytes());
        Ok(tile)
    }
}

/// What a sample is made of.
struct Reading {
    session: Arc<perfquet::Session>,
    tables: Vec<(&'static str, u64)>,
    pages: Arc<KnownPages>,
    window: Window,
    start: i64,
    length: i64,
    wanted: Weak<Once<Sample>>,
}

impl Reading {
    /// Half open, from the start of the trace.
    fn inside(&self) -> (i64, i64) {
        (self.window.from.max(0), self.window.to.min(self.length))
    }

    fn check(&self) -> Result<()> {
        match self.wanted.strong_count() {
            0 => Err(Gone.into()),
            _ => Ok(()),
        }
    }

    fn sample(&self) -> Result<Sample> {
        let (from, to) = self.inside();
        if from >= to {
            let writer = Writer::new(Sink::Memory, "")?;
            let store = writer.finish(0, |_, _, _| Ok(Vec::new()))?;
            return Ok(Sample {
                states: Known::Whole(store),
                about: 1000,
            });
        }
        let (events, losses) = (self.events(from, to)?, self.losses()?);
        if events <= MOST_WHOLE {
            return self.whole(from, to, events, &losses);
        }
        // As much before each part as in it.
        let share = MOST_READ as f64 / events as f64 / 2.0;
        let steps = (
            from >> self.window.bits(),
            ((to - 1) >> self.window.bits()) + 1,
        );
        let stretch = ((steps.1 - steps.0) / STRETCHES).max(1);
        let begins: Vec<i64> = (steps.0..steps.1).step_by(stretch as usize).collect();
        let parts = parallel(begins.len(), |at| {
            self.check()?;
            let (first, last) = (begins[at], (begins[at] + stretch).min(steps.1));
            self.part((first, last), share, &losses)
        })?;
        let read: i64 = parts.iter().map(|part| part.length).sum();
        let about = i128::from(read) * 1000 / i128::from(to - from);
        Ok(Sample {
            states: Known::Parts(parts),
            about: about.clamp(1, 999) as i64,
        })
    }

    /// Number of events in a window, about.
    fn events(&self, from: i64, to: i64) -> Result<u64> {
        if from == 0 && to == self.length {
            return Ok(self.tables.iter().map(|(_, rows)| rows).sum());
        }
        let (from, to) = (self.start + from, self.start + to);
        let (mut sum, mut sql) = (0_u64, Vec::new());
        for (table, _) in &self.tables {
            let name = format!("events/{}", table.replace('.', "/"));
            match self.pages.of(&self.session.traces()[0], &name) {
                Some(pages) => sum += about(&pages, from, to),
                None => sql.push(format!(
                    "SELECT count(*) AS n FROM {table} WHERE time >= {from} AND time < {to}"
                )),
            }
        }
        if sql.is_empty() {
            return Ok(sum);
        }
        let found = rows(
            &self.session,
            &sql.join(" UNION ALL "),
            Limit::OWN,
            &Peer::NONE,
        )?;
        for batch in &found.batches {
            let counts = integers(batch, 0)?;
            sum += counts.iter().flatten().map(i64::cast_unsigned).sum::<u64>();
        }
        Ok(sum)
    }

    /// Times of losses; `None` if there are too many.
    fn losses(&self) -> Result<Option<Vec<i64>>> {
        let sql = format!("SELECT time FROM losses LIMIT {}", MOST_LOSSES + 1);
        let mut times = Vec::new();
        for batch in &rows(&self.session, &sql, Limit::OWN, &Peer::NONE)?.batches {
            let column = integers(batch, 0)?;
            times.extend((0..batch.num_rows()).map(|row| at(&column, row)));
        }
        let known: Option<Vec<i64>> = times.iter().copied().collect();
        let known = known.filter(|times| times.len() <= MOST_LOSSES);
        Ok(known.map(|times| times.iter().map(|time| time - self.start).collect()))
    }

    /// All states of a window of few events, and what was before and after it.
    fn whole(&self, from: i64, to: i64, events: u64, losses: &Option<Vec<i64>>) -> Result<Sample> {
        let more = ((to - from) as f64 * AROUND / events.max(1_000) as f64) as i64;
        let (first, last) = (from.saturating_sub(more), to.saturating_add(more));
        let mut writer = Writer::new(Sink::Memory, "")?;
        self.states((first, last), losses, |state| {
            writer.add(super::store::Track::Thread(state.tid), state.of_thread())?;
            if let Some(cpu) = state.runs_on() {
                let place = writer.thread(state.tid);
                writer.add(super::store::Track::Cpu(cpu), state.with_value(place))?;
            }
            Ok(())
        })?;
        let store = writer.finish(0, |_, _, _| Ok(Vec::new()))?;
        Ok(Sample {
            states: Known::Whole(store),
            about: 1000,
        })
    }

    /// The part in the middle of a stretch of steps.
    fn part(&self, steps: (i64, i64), share: f64, losses: &Option<Vec<i64>>) -> Result<Part> {
        let (bits, first_step) = (self.window.bits(), self.window.from >> self.window.bits());
        let (from, to) = self.inside();
        let (begin, end) = ((steps.0 << bits).max(from), (steps.1 << bits).min(to));
        let length = (((end - begin) as f64 * share) as i64).clamp(1, end - begin);
        let first = begin + (end - begin - length) / 2;
        let last = first + length;
        let mut part = Part {
            bins: (steps.0 - first_step, steps.1 - first_step),
            length,
            threads: HashMap::default(),
            cpus: HashMap::default(),
        };
        self.states((first - length, last), losses, |state| {
            let period = state.of_thread();
            let inside = period.end().min(last) - period.begin.max(first);
            if inside < 0 || period.begin >= last {
                return Ok(());
            }
            let begins = i64::from(period.begin >= first);
            let sums = part.threads.entry(state.tid).or_default();
            sums.count += begins;
            if let Some(drawn) = DRAWN.iter().position(|of| *of == state.state as usize) {
                sums.times[drawn] += inside;
            }
            if let Some(cpu) = state.runs_on() {
                let of_cpu = part.cpus.entry(cpu).or_default();
                let sum = of_cpu.entry(state.tid).or_default();
                *sum = (sum.0 + inside, sum.1 + begins);
            }
            Ok(())
        })?;
        Ok(part)
    }

    /// The states that begin in a range, of its events alone. One that does not end in it lasts to its end, unless events are missing.
    fn states(
        &self,
        (first, last): (i64, i64),
        losses: &Option<Vec<i64>>,
        mut visit: impl FnMut(ThreadState) -> Result<()>,
    ) -> Result<()> {
        let is_certain = (losses.as_ref())
            .is_some_and(|losses| !losses.iter().any(|time| (first..last).contains(time)));
        let sql = format!(
            "SELECT {COLUMNS} FROM pass_thread_states({}, {})",
            self.start.saturating_add(first),
            self.start.saturating_add(last - 1)
        );
        // What is open at the end comes last.
        let mut open: Vec<ThreadState> = Vec::new();
        let each = |state: ThreadState| {
            if state.length < 0 {
                open.push(state);
                return Ok(());
            }
            for state in open.drain(..) {
                visit(state)?;
            }
            visit(state)
        };
        thread_states(&self.session, &sql, self.start, each, |_| self.check())?;
        for mut state in open {
            if is_certain {
                state.length = last - state.begin;
            }
            visit(state)?;
        }
        Ok(())
    }
}

/// Of a sum of a part, what there is in a step.
fn of_step(sum: i64, part: &Part, step: i64) -> i64 {
    let (sum, step, length) = (i128::from(sum), i128::from(step), i128::from(part.length));
    ((sum * step + length / 2) / length) as i64
}

fn threads(parts: &[Part], window: &Window, tids: &[i64]) -> Result<Rows> {
    let mut rows = Rows::default();
    for &tid in tids {
        let (mut x, mut n) = (Vec::new(), Vec::new());
        let mut shares: Vec<(String, Vec<i64>)> = (DRAWN.iter())
            .map(|state| (state.to_string(), Vec::new()))
            .collect();
        for part in parts {
            let Some(sums) = part.threads.get(&tid) else {
                continue;
            };
            let count = of_step(sums.count, part, window.step);
            for bin in part.bins.0..part.bins.1 {
                x.push(bin);
                n.push(count);
                for ((_, share), &time) in shares.iter_mut().zip(&sums.times) {
                    share.push(window.share(of_step(time, part, window.step)));
                }
            }
        }
        shares.retain(|(_, share)| share.iter().any(|&share| share > 0));
        let shares: Vec<(&str, &[i64])> = (shares.iter())
            .map(|(state, share)| (state.as_str(), share.as_slice()))
            .collect();
        let none: &[i64] = &[];
        let columns = [
            ("t", none),
            ("d", none),
            ("s", none),
            ("c", none),
            ("x", &x),
            ("n", &n),
        ];
        rows.add_with(&[("id", tid)], &columns, &[("shares", &shares)])?;
    }
    Ok(rows)
}

fn cpus(parts: &[Part], window: &Window, ids: &[i64]) -> Result<Rows> {
    let mut rows = Rows::default();
    for &cpu in ids {
        let mut columns: [Vec<i64>; 4] = Default::default();
        for part in parts {
            let Some(of_cpu) = part.cpus.get(&cpu) else {
                continue;
            };
            let longest = of_cpu.iter().map(|(tid, sum)| (sum.0, *tid)).max();
            let (time, count) =
                (of_cpu.values()).fold((0, 0), |all, sum| (all.0 + sum.0, all.1 + sum.1));
            let tid = longest.map_or(-1, |(_, tid)| tid);
            let share = window.share(of_step(time, part, window.step));
            let count = of_step(count, part, window.step);
            for bin in part.bins.0..part.bins.1 {
                for (column, value) in columns.iter_mut().zip([bin, count, tid, share]) {
                    column.push(value);
                }
            }
        }
        let [x, n, y, share] = &columns;
        let none: &[i64] = &[];
        rows.add(
            &[("id", cpu)],
            &[
                ("t", none),
                ("d", none),
                ("w", none),
                ("x", x),
                ("n", n),
                ("y", y),
                ("share", share),
            ],
        )?;
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_stretch_has_the_mean_of_its_part() {
        let mut part = Part {
            bins: (4, 6),
            length: 100,
            threads: HashMap::default(),
            cpus: HashMap::default(),
        };
        // Half of the time, in five periods.
        let thread = part.threads.entry(7).or_default();
        (thread.times[0], thread.count) = (50, 5);
        part.cpus
            .entry(1)
            .or_default()
            .extend([(7, (50, 5)), (8, (25, 20))]);
        let window = Window {
            from: 0,
            to: 1 << 20,
            step: 1 << 10,
        };
        let tile = |rows: Result<Rows>| -> Value {
            serde_json::from_slice(&rows.unwrap().finish("")).unwrap()
        };
        let parts = [part];
        let found = tile(threads(&parts, &window, &[7, 9]));
        let row = &found["rows"][0];
        assert_eq!((&row["x"], &row["n"]), (&json!([4, 1]), &json!([51, 51])));
        assert_eq!(row["shares"], json!({ "0": [16, 16] }));
        assert_eq!(found["rows"][1]["x"], json!([]));
        let found = tile(cpus(&parts, &window, &[1]));
        let row = &found["rows"][0];
        assert_eq!((&row["y"], &row["n"]), (&json!([7, 7]), &json!([256, 256])));
        assert_eq!(row["share"], json!([24, 24]));
    }

    #[test]
    fn windows_that_nobody_waits_for_are_not_read() {
        let samples = Samples::default();
        let window = |from| Window {
            from,
            to: 1 << 20,
            step: 1,
        };
        let first = Arc::downgrade(&samples.of(&window(0)));
        assert!(std::ptr::eq(
            first.as_ptr(),
            Arc::as_ptr(&samples.of(&window(0)))
        ));
        assert_eq!(first.strong_count(), 1);
        let _ = (samples.of(&window(1)), samples.of(&window(2)));
        assert_eq!(first.strong_count(), 0);
    }
}
