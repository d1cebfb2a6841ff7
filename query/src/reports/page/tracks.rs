//! Tracks of a page: what ran on each CPU, and the states of the busiest threads.

use std::collections::BTreeMap;

use anyhow::Result;
use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Int32Type, Int64Type};
use perfquet::Session;
use perfquet::stacks::strings;
use perfquet::unit::in_fitting_unit;
use perfquet_trace::count::grouped;
use serde_json::{Value, json};

use super::cells::Threads;
use super::since::Since;
use super::stretches::{MOST, Place, Stretch, Tracks};
use super::unless_failed;
use super::wakes::{self, Wakes};
use crate::filter::Filters;
use crate::render::columns::Columns;
use crate::thread_states::{STATES, number_of};

/// Threads with a track of their states. The page draws those that are busy in its selection.
const THREADS: usize = 120;
/// CPUs with a track.
const CPUS: usize = 128;

/// The tracks, from scheduler events, otherwise from samples; none if there are neither.
pub(super) fn of(
    session: &Session,
    filters: &Filters,
    since: Since,
    slot: i64,
    threads: &mut Threads,
    omitted: &mut Vec<String>,
) -> Result<Option<Found>> {
    let has_states = session.is_recorded("thread_states")?;
    let of = if has_states { of_states } else { of_samples };
    let found = of(session, filters, since, slot, threads);
    // A condition may have columns that only samples or calls have.
    let Some(mut found) = unless_failed(found, "tracks of CPUs and threads", omitted)? else {
        return Ok(None);
    };
    if found.tracks.all.is_empty() {
        return Ok(None);
    }
    found.wakes = wakes::of(session, filters, since, &found.tids, threads, omitted)?;
    Ok(Some(found))
}

/// The tracks of a page's traces, each with its name and number, with a part of the limit of stretches: a smaller part each time. Null
/// if there are none.
pub(super) fn json(
    all: &mut [(&str, usize, Found)],
    part: usize,
    threads: &mut Threads,
    columns: &mut Columns,
    omitted: &mut Vec<String>,
) -> Value {
    let traces = all.len();
    // What CPUs are known from is said once, unless it differs.
    let source = all.first().and_then(|(_, _, found)| found.source.clone());
    let is_alike = all.iter().all(|(_, _, found)| found.source == source);
    let (mut tracks, mut notes) = (Vec::new(), Vec::new());
    let mut wakes: Option<Wakes> = None;
    for (name, number, found) in all.iter_mut() {
        let (mut own, own_notes) = found.json(part * traces, threads, columns);
        notes.extend(own_notes.into_iter().map(|note| match traces {
            1 => note,
            _ => format!("{name}: {note}"),
        }));
        if traces > 1 {
            for track in own.iter_mut() {
                track["trace"] = json!(number);
                track["grain"] = json!(found.tracks.grain());
                track["source"] = json!(found.source);
            }
        }
        tracks.append(&mut own);
        match (&mut wakes, found.wakes.clone()) {
            (Some(all), Some(more)) => all.append(more),
            (none, more) => *none = none.take().or(more),
        }
    }
    let Some((_, _, first)) = all.first() else {
        return Value::Null;
    };
    let wakes = wakes.map(|wakes| {
        let (wakes, note) = wakes.json(part, columns);
        notes.extend(note);
        wakes
    });
    omitted.extend(notes.iter().map(|note| format!("tracks: {note}")));
    let command = match &first.source {
        None => vec!["utilization", "--by", "thread"],
        Some(event) => vec!["top", "--event", event, "--by", "comm"],
    };
    json!({
        "states": STATES,
        "grain": first.tracks.grain(),
        "source": source.filter(|_| is_alike),
        "notes": notes,
        "command": command,
        "all": tracks,
        "wakes": wakes,
    })
}

impl Found {
    /// The tracks, with a part of the limit of stretches, and notes on what was left out.
    fn json(
        &mut self,
        part: usize,
        threads: &mut Threads,
        columns: &mut Columns,
    ) -> (Vec<Value>, Vec<String>) {
        self.tracks.shrink(MOST / part, || threads.others());
        let mut notes = Vec::new();
        let mut left_out = |kind: &str, most: usize, all: usize| {
            if all > most {
                notes.push(format!(
                    "{most} of {} {kind}, those busy longest",
                    grouped(all as u64)
                ));
            }
        };
        left_out("threads", THREADS, self.threads);
        left_out("CPUs", CPUS, self.cpus);
        let grain = self.tracks.grain();
        if grain > 0 && self.source.is_none() {
            let grain = in_fitting_unit(grain as f64);
            notes.push(format!("stretches shorter than {grain} are merged"));
        }
        if self.tracks.names_few() {
            notes.push("CPUs name the threads with the most time in each of these".to_owned());
        }
        (self.tracks.json(columns), notes)
    }
}

/// The tracks of a trace, before they are reduced to fit a page.
pub(super) struct Found {
    tracks: Tracks,
    /// What CPUs are known from, if not from scheduler events.
    source: Option<String>,
    /// Numbers of all.
    threads: usize,
    cpus: usize,
    /// Threads with a track.
    tids: Vec<i32>,
    wakes: Option<Wakes>,
}

fn of_states(
    session: &Session,
    filters: &Filters,
    since: Since,
    slot: i64,
    threads: &mut Threads,
) -> Result<Found> {
    let condition = filters.condition(session)?;
    let ranking = |key: &str, states: &str| {
        ids(
            session,
            &format!(
                "SELECT {key}, sum(duration) AS total FROM thread_states WHERE {condition} AND state IN ({states}) \
                 AND {key} IS NOT NULL GROUP BY 1 ORDER BY 2 DESC NULLS LAST, 1"
            ),
        )
    };
    let mut tids = ranking(
        "tid",
        "'running', 'runnable', 'preempted', 'uninterruptible'",
    )?;
    let mut cpus = ranking("cpu", "'running'")?;
    let (of_threads, of_cpus) = (tids.len(), cpus.len());
    tids.truncate(THREADS);
    cpus.truncate(CPUS);
    cpus.sort_unstable();
    let list = |ids: &[i32]| {
        let texts: Vec<String> = ids.iter().map(ToString::to_string).collect();
        if texts.is_empty() {
            "NULL".to_owned()
        } else {
            texts.join(", ")
        }
    };
    let mut tracks = Tracks::new(slot);
    let of_cpu: BTreeMap<i32, usize> = cpus
        .iter()
        .map(|&cpu| (cpu, tracks.push(Place::Cpu(cpu))))
        .collect();
    let of_thread: BTreeMap<i32, usize> = tids
        .iter()
        .map(|&tid| (tid, tracks.push(Place::Thread(threads.of(tid)))))
        .collect();
    let sql = format!(
        "SELECT {} AS begin, duration, CAST(cpu AS INT) AS cpu, CAST(tid AS INT) AS tid, coalesce(state, 'unknown') AS state \
         FROM thread_states WHERE {condition} AND duration > 0 AND (state = 'running' AND cpu IN ({}) OR tid IN ({}))",
        since.of("time"),
        list(&cpus),
        list(&tids)
    );
    let mut answer = session.query(&sql)?;
    while let Some(batch) = answer.next_batch()? {
        let number = |column: usize| batch.column(column).as_primitive::<Int64Type>();
        let (begins, lengths) = (number(0), number(1));
        let id = |column: usize| batch.column(column).as_primitive::<Int32Type>();
        let (cpus, tids) = (id(2), id(3));
        let states = strings(batch.column(4))?;
        for row in 0..batch.num_rows() {
            let state = states.value(row);
            let tid = tids.is_valid(row).then(|| tids.value(row));
            let mut stretch = Stretch {
                begin: begins.value(row),
                length: lengths.value(row),
                what: 0,
            };
            if let Some(&track) = tid.and_then(|tid| of_thread.get(&tid)) {
                stretch.what = number_of(Some(state)) as u32;
                tracks.add(track, stretch);
            }
            if state == "running"
                && let (Some(tid), true) = (tid, cpus.is_valid(row))
                && let Some(&track) = of_cpu.get(&cpus.value(row))
            {
                stretch.what = threads.of(tid);
                tracks.add(track, stretch);
            }
        }
    }
    Ok(Found {
        tracks,
        source: None,
        threads: of_threads,
        cpus: of_cpus,
        tids,
        wakes: None,
    })
}

/// CPUs by their samples: the busiest slot of the trace counts as busy all the time.
fn of_samples(
    session: &Session,
    filters: &Filters,
    since: Since,
    slot: i64,
    threads: &mut Threads,
) -> Result<Found> {
    let mut found = Found {
        tracks: Tracks::new(slot),
        source: None,
        threads: 0,
        cpus: 0,
        tids: Vec::new(),
        wakes: None,
    };
    if !session.has_rows("samples") {
        return Ok(found);
    }
    let condition = filters.condition(session)?;
    let sql = format!(
        "SELECT event FROM samples WHERE {condition} AND cpu IS NOT NULL AND time IS NOT NULL GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 1"
    );
    let batches = session.collect(&sql)?;
    let Some(batch) = batches.iter().find(|batch| batch.num_rows() > 0) else {
        return Ok(found);
    };
    let event = strings(batch.column(0))?;
    let event = event.value(0).to_owned();
    let sql = format!(
        "SELECT CAST(cpu AS INT) AS cpu, {} / {slot} AS slot, CAST(coalesce(tid, -1) AS INT) AS tid, count(*) AS count FROM samples \
         WHERE {condition} AND event = {} AND cpu IS NOT NULL AND time IS NOT NULL GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
        since.of("time"),
        perfquet::sql::names::literal(&event)
    );
    let mut cells: BTreeMap<i32, Vec<(i64, u32, i64)>> = BTreeMap::new();
    let mut sums: BTreeMap<(i32, i64), i64> = BTreeMap::new();
    for batch in session.collect(&sql)? {
        let id = |column: usize| batch.column(column).as_primitive::<Int32Type>();
        let number = |column: usize| batch.column(column).as_primitive::<Int64Type>();
        let (cpus, tids, slots, counts) = (id(0), id(2), number(1), number(3));
        for row in 0..batch.num_rows() {
            let (cpu, slot, count) = (cpus.value(row), slots.value(row), counts.value(row));
            let cell = (slot, threads.of(tids.value(row)), count);
            cells.entry(cpu).or_default().push(cell);
            *sums.entry((cpu, slot)).or_default() += count;
        }
    }
    let most = sums.values().copied().max().unwrap_or(1).max(1);
    found.cpus = cells.len();
    found.source = Some(event);
    found.tracks.coarsen_to(slot);
    for (cpu, cells) in cells.into_iter().take(CPUS) {
        let track = found.tracks.push(Place::Cpu(cpu));
        for (cell, what, count) in cells {
            // Shorter than the slot, so that it is merged: a full one too.
            let share = i128::from(slot) * i128::from(count) / i128::from(most);
            let length = i64::try_from(share).unwrap_or(slot).clamp(1, slot);
            found.tracks.merge(track, cell, what, length);
        }
    }
    Ok(found)
}

/// The first column of the rows of a ranking.
fn ids(session: &Session, sql: &str) -> Result<Vec<i32>> {
    let mut ids = Vec::new();
    for batch in session.collect(sql)? {
        let column = arrow::compute::cast(batch.column(0), &DataType::Int32)?;
        ids.extend(column.as_primitive::<Int32Type>().values());
    }
    Ok(ids)
}
