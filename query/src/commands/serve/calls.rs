//! Tiles of calls: those of at least a step one by one, the others by step.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use anyhow::Result;
use perfquet::stacks::strings;

use super::Served;
use super::columns::Rows;
use super::engine::{Limit, at, finish, integers};
use super::http::Peer;
use super::reach::Reach;
use super::tiles::{Window, is_one_of};

/// Calls of a tile that are shown one by one.
const MOST: usize = 60_000;

/// Row of a thread at a depth.
#[derive(Default)]
struct Level {
    /// Begin, duration (-1 if unknown), place of the name.
    boxes: Vec<(i64, i64, usize)>,
    /// Step, number of calls, sum of their durations.
    short: Vec<(i64, i64, i64)>,
}

impl Served {
    /// Where the calls of windows begin.
    pub(super) fn reach(&self, peer: &Peer<'_>) -> Result<Arc<Reach>> {
        let session = Arc::clone(&self.session);
        let (start, end) = (self.start, self.end);
        self.reach
            .get(peer, move || Reach::of_calls(&session, start, end))
    }

    /// A condition for the calls that begin before `from`, and may end after it; `None` if there are none.
    pub(super) fn before(&self, from: i64, peer: &Peer<'_>) -> Result<Option<String>> {
        if from <= self.start {
            return Ok(None);
        }
        let stretches = self.reach(peer)?.before(from);
        let of = |(begin, end): (i64, i64)| format!("time >= {begin} AND time < {end}");
        let stretches: Vec<String> = stretches.into_iter().map(of).collect();
        Ok((!stretches.is_empty())
            .then(|| format!("({}) AND time + duration > {from}", stretches.join(" OR "))))
    }
}

pub(super) fn tile(
    served: &Served,
    window: &Window,
    tids: &[i64],
    peer: &Peer<'_>,
) -> Result<Vec<u8>> {
    let session = &served.session;
    let (from, to) = (served.start + window.from, served.start + window.to);
    let step = window.step;
    let threads = is_one_of("tid", tids);
    let one_by_one = |condition: &str| {
        format!(
            "SELECT tid, depth, time, duration, function FROM calls WHERE {condition} AND {threads} LIMIT {}",
            MOST + 1
        )
    };
    let inside = format!("time >= {from} AND time < {to}");
    let long = session.start(&one_by_one(&format!(
        "{inside} AND (duration >= {step} OR duration IS NULL)"
    )))?;
    let short = session.start(&format!(
        "SELECT tid, depth, (time - {from}) / {step} AS step, count(*) AS calls, sum(duration) AS total \
         FROM calls WHERE {inside} AND duration < {step} AND {threads} GROUP BY tid, depth, (time - {from}) / {step}"
    ))?;
    let before = served.before(from, peer)?;
    let mut found = Vec::new();
    if let Some(before) = before {
        let begun = session.start(&one_by_one(&format!("{before} AND duration >= {step}")))?;
        found.push(finish(begun, Limit::OWN, peer)?);
    }
    found.push(finish(long, Limit::OWN, peer)?);
    let mut levels: BTreeMap<(i64, i64), Level> = BTreeMap::new();
    let mut names = Names::default();
    let mut count = 0;
    for batch in found.iter().flat_map(|found| &found.batches) {
        let (tids, depths) = (integers(batch, 0)?, integers(batch, 1)?);
        let (times, durations) = (integers(batch, 2)?, integers(batch, 3)?);
        let functions = strings(batch.column(4))?;
        for (row, function) in functions.iter().enumerate().take(MOST - count) {
            let key = (at(&tids, row).unwrap_or(-1), at(&depths, row).unwrap_or(0));
            let begin = times.value(row) - served.start;
            let duration = at(&durations, row).unwrap_or(-1);
            let name = names.place(function.unwrap_or("[unknown]"));
            levels
                .entry(key)
                .or_default()
                .boxes
                .push((begin, duration, name));
        }
        count = MOST.min(count + batch.num_rows());
    }
    for batch in finish(short, Limit::OWN, peer)?.batches {
        let [tids, depths, bins, counts, totals] =
            [0, 1, 2, 3, 4].map(|column| integers(&batch, column));
        let (tids, depths, bins, counts, totals) = (tids?, depths?, bins?, counts?, totals?);
        for row in 0..batch.num_rows() {
            let key = (at(&tids, row).unwrap_or(-1), at(&depths, row).unwrap_or(0));
            let short = (
                bins.value(row),
                counts.value(row),
                at(&totals, row).unwrap_or(0),
            );
            levels.entry(key).or_default().short.push(short);
        }
    }
    let mut rows = Rows::default();
    for ((tid, depth), level) in levels {
        add(&mut rows, tid, depth, level)?;
    }
    let names = serde_json::to_string(&names.all)?;
    let is_cut = count >= MOST;
    Ok(rows.finish(&format!(",\"names\":{names},\"is_cut\":{is_cut}")))
}

fn add(rows: &mut Rows, tid: i64, depth: i64, mut level: Level) -> Result<()> {
    level.boxes.sort_unstable();
    level.short.sort_unstable();
    let of_box = |of: fn(&(i64, i64, usize)) -> i64| level.boxes.iter().map(of).collect();
    let of_short = |of: fn(&(i64, i64, i64)) -> i64| level.short.iter().map(of).collect();
    let [t, d, f]: [Vec<i64>; 3] = [
        of_box(|call| call.0),
        of_box(|call| call.1),
        of_box(|call| call.2 as i64),
    ];
    let [x, n, sum]: [Vec<i64>; 3] = [
        of_short(|bin| bin.0),
        of_short(|bin| bin.1),
        of_short(|bin| bin.2),
    ];
    rows.add(
        &[("id", tid), ("depth", depth)],
        &[
            ("t", &t),
            ("d", &d),
            ("f", &f),
            ("x", &x),
            ("n", &n),
            ("sum", &sum),
        ],
    )
}

/// Names, each once.
#[derive(Default)]
struct Names {
    all: Vec<String>,
    places: HashMap<String, usize>,
}

impl Names {
    fn place(&mut self, name: &str) -> usize {
        if let Some(&place) = self.places.get(name) {
            return place;
        }
        self.all.push(name.to_owned());
        self.places.insert(name.to_owned(), self.all.len() - 1);
        self.all.len() - 1
    }
}
