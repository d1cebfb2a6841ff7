//! The rows of the timeline: CPUs, event types, processes and their threads, with how much each has; and all losses.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::Result;
use perfquet::stacks::strings;
use serde_json::{Value, json};

use super::Served;
use super::engine::{Limit, at, integers, rows};
use super::http::Peer;
use super::pages;
use super::tiles::event_tables;
use crate::thread_states::STATES;

/// Losses that are listed one by one.
const MOST_LOSSES: usize = 10_000;

/// Ending of the cached list; the digit is the version of its format.
const TRACKS: &str = "tracks2";

/// Sampled events that are offered.
const MOST_EVENTS: usize = 50;

/// Time that the list may take without being kept for the next server.
const LONG: Duration = Duration::from_millis(100);

#[derive(Default)]
struct Thread {
    pid: Option<i64>,
    comm: Option<String>,
    samples: i64,
    calls: i64,
    /// Levels of calls.
    levels: i64,
    /// Times that it left a CPU.
    switches: i64,
}

impl Served {
    /// Whether scheduler events were recorded.
    pub(super) fn has_states(&self) -> Result<bool> {
        self.session.is_recorded("thread_states")
    }

    /// The rows of the timeline, which are listed once.
    pub(super) fn tracks(&self, peer: &Peer<'_>) -> Result<Vec<u8>> {
        if self.has_index()? {
            // The page asks for what is in it next.
            self.start_index()?;
        }
        let place = self.place.as_ref();
        if let Some(known) = place.and_then(|place| place.read(TRACKS)) {
            return Ok(known);
        }
        let begin = Instant::now();
        let tracks = serde_json::to_vec(&list(self, peer)?)?;
        if let Some(place) = place.filter(|_| begin.elapsed() > LONG)
            && place.is_of(self.trace())
        {
            place.write(TRACKS, &tracks);
        }
        Ok(tracks)
    }
}

fn list(served: &Served, peer: &Peer<'_>) -> Result<Value> {
    let session = &served.session;
    let found = |sql: &str| rows(session, sql, Limit::OWN, peer);
    let mut threads: BTreeMap<i64, Thread> = BTreeMap::new();
    for batch in found("SELECT tid, pid, comm FROM threads ORDER BY start_time")?.batches {
        let (tids, pids) = (integers(&batch, 0)?, integers(&batch, 1)?);
        let comms = strings(batch.column(2))?;
        for (row, comm) in comms.iter().enumerate() {
            let thread = threads.entry(tids.value(row)).or_default();
            thread.pid = at(&pids, row).or(thread.pid);
            if let Some(comm) = comm {
                thread.comm = Some(comm.to_owned());
            }
        }
    }
    let mut cpus = BTreeSet::new();
    let has_states = served.has_states()?;
    let has = |table: &str| session.has_rows(table);
    let switched = match has_states && has(SWITCHES) {
        true => Switched::of_large(served, &threads, peer)?,
        false => None,
    };
    let mut count = |table: &str, levels: &str, add: fn(&mut Thread, i64, i64)| -> Result<()> {
        let sql = format!(
            "SELECT tid, count(*) AS rows, {levels} AS levels, max(pid) AS pid FROM {table} GROUP BY tid"
        );
        for batch in found(&sql)?.batches {
            let (tids, counts) = (integers(&batch, 0)?, integers(&batch, 1)?);
            let (levels, pids) = (integers(&batch, 2)?, integers(&batch, 3)?);
            for row in 0..batch.num_rows() {
                let thread = threads.entry(at(&tids, row).unwrap_or(-1)).or_default();
                thread.pid = thread.pid.or(at(&pids, row));
                add(thread, counts.value(row), at(&levels, row).unwrap_or(0));
            }
        }
        Ok(())
    };
    if has("samples") {
        count("samples", "0", |thread, rows, _| thread.samples = rows)?;
    }
    let sampled = sampled_events(served, peer)?;
    if has("calls") {
        count("calls", "max(depth) + 1", |thread, rows, levels| {
            (thread.calls, thread.levels) = (rows, levels.max(1));
        })?;
    }
    if has_states && has(SWITCHES) && switched.is_none() {
        count("sched.sched_switch", "0", |thread, rows, _| {
            thread.switches = rows
        })?;
    }
    let of_cpus = match has_states {
        true if has(SWITCHES) => "sched.sched_switch",
        true => "events",
        false => "samples",
    };
    match switched {
        Some(switched) => {
            for (tid, count) in switched.threads {
                threads.entry(tid).or_default().switches = count;
            }
            cpus = switched.cpus;
        }
        None => {
            for batch in found(&format!("SELECT DISTINCT cpu FROM {of_cpus}"))?.batches {
                let column = integers(&batch, 0)?;
                cpus.extend(column.iter().flatten());
            }
        }
    }
    let events = event_tables(served);
    let events: Vec<Value> = (events.iter())
        .map(|(name, rows)| json!({ "name": name.replace('"', ""), "table": name, "rows": rows }))
        .collect();
    let threads = threads.into_iter().map(|(tid, thread)| {
        json!({
            "tid": tid, "pid": thread.pid, "comm": thread.comm, "samples": thread.samples,
            "calls": thread.calls, "levels": thread.levels, "switches": thread.switches,
        })
    });
    Ok(json!({
        "cpus": cpus,
        "has_states": has_states,
        "states": STATES,
        "samples": has("samples"),
        "sampled": sampled,
        "events": events,
        "threads": threads.collect::<Vec<_>>(),
        "losses": losses(served, peer)?,
    }))
}

/// The table of context switches in the manifest.
const SWITCHES: &str = "events/sched/sched_switch";
/// Rows of a table of switches of which not all are read for the list: the number for each thread, which orders the processes, is then about
/// that of some pages.
const MANY_SWITCHES: u64 = 5_000_000;

/// Threads and CPUs of a large table of switches.
struct Switched {
    /// Switches by thread, about.
    threads: BTreeMap<i64, i64>,
    /// All of them.
    cpus: BTreeSet<i64>,
}

impl Switched {
    /// `None` if the table is small, or its files do not have its threads and CPUs without their rows.
    fn of_large(
        served: &Served,
        known: &BTreeMap<i64, Thread>,
        peer: &Peer<'_>,
    ) -> Result<Option<Switched>> {
        let trace = served.trace();
        let rows = trace.table(SWITCHES).map_or(0, |table| table.rows());
        if rows < MANY_SWITCHES {
            return Ok(None);
        }
        let Some(pages) = served.pages.of(trace, SWITCHES) else {
            return Ok(None);
        };
        let (tids, cpus) = (
            trace.dictionary(SWITCHES, "tid")?,
            trace.dictionary(SWITCHES, "cpu")?,
        );
        let (Some(tids), Some(cpus)) = (tids, cpus) else {
            return Ok(None);
        };
        // The process of others is in the rows, if these have any.
        let has_process = |tid: &i64| known.get(tid).is_some_and(|thread| thread.pid.is_some());
        if !tids.iter().all(has_process) && has_processes(served, peer)? {
            return Ok(None);
        }
        let counts = pages::sampled(trace, SWITCHES, &pages, "tid")?;
        let count = |tid: i64| {
            let count = counts.get(&tid).copied().unwrap_or(1).max(1);
            (tid, i64::try_from(count).unwrap_or(i64::MAX))
        };
        Ok(Some(Switched {
            threads: tids.into_iter().map(count).collect(),
            cpus,
        }))
    }
}

/// Whether a row of the switches has a process. Traces of many text formats have none: then the statistics of the files say so, and no row is read.
fn has_processes(served: &Served, peer: &Peer<'_>) -> Result<bool> {
    let sql = "SELECT 1 FROM sched.sched_switch WHERE pid IS NOT NULL LIMIT 1";
    let found = rows(&served.session, sql, Limit::OWN, peer)?.batches;
    Ok(found.iter().any(|batch| batch.num_rows() > 0))
}

/// Names of the events that were sampled, the one with the most samples first.
fn sampled_events(served: &Served, peer: &Peer<'_>) -> Result<Vec<String>> {
    let mut names = Vec::new();
    if !served.session.has_rows("samples") {
        return Ok(names);
    }
    let sql = format!(
        "SELECT event FROM samples WHERE event IS NOT NULL GROUP BY event ORDER BY count(*) DESC, event LIMIT {MOST_EVENTS}"
    );
    for batch in rows(&served.session, &sql, Limit::OWN, peer)?.batches {
        names.extend(
            strings(batch.column(0))?
                .iter()
                .flatten()
                .map(str::to_owned),
        );
    }
    Ok(names)
}

/// Losses with a time, relative to the start.
fn losses(served: &Served, peer: &Peer<'_>) -> Result<Value> {
    let sql = format!(
        "SELECT time, cpu, count, reason, event FROM losses WHERE time IS NOT NULL ORDER BY time LIMIT {MOST_LOSSES}"
    );
    let mut all = Vec::new();
    for batch in rows(&served.session, &sql, Limit::OWN, peer)?.batches {
        let (times, cpus, counts) = (
            integers(&batch, 0)?,
            integers(&batch, 1)?,
            integers(&batch, 2)?,
        );
        let (reasons, events) = (strings(batch.column(3))?, strings(batch.column(4))?);
        for (row, (reason, event)) in reasons.iter().zip(events.iter()).enumerate() {
            all.push(json!([
                times.value(row) - served.start,
                at(&cpus, row),
                at(&counts, row),
                reason,
                event
            ]));
        }
    }
    Ok(Value::Array(all))
}
