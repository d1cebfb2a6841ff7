//! `critical-path`: what a thread's time depended on: its own work, that of the threads it waited for, waits.
//!
//! ```text
//! share  total     parts  comm         tid    state            why                  depth
//! 61.0%  1.220 s     412  postgres     812    running                                   0
//! 22.4%  448.1 ms     96  postgres     812    uninterruptible  folio_wait_bit           0
//! 10.2%  204.0 ms     61  kworker/1:2  9021   running                                   1
//! ```

mod across;
mod messages;
mod rows;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};
use arrow::array::AsArray;
use arrow::compute::concat_batches;
use arrow::datatypes::{Int32Type, Int64Type};
use clap::Args;

use perfquet::Session;
use perfquet::failure::Misuse;
use perfquet::sql::names::literal;
use perfquet::stacks::strings;
use perfquet::unit::in_fitting_unit;

use self::across::Across;

use crate::commands::Subcommand;
use crate::filter::Filters;
use crate::limits::Limits;
use crate::render::{Answered, Form, Section, with_display, with_spares};
use crate::report::{self, Report};
use crate::settings::{Output, Traces};
use crate::text::harmless;

pub(super) const REPORT: Subcommand = report::subcommand::<CriticalPath>();

/// Show what a thread's time depended on: itself, other threads, devices
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Summarize the whole recording for one thread
  perfquet-query critical-path a.pqt --tid 812
  # The same for the thread of this name that ran the longest
  perfquet-query critical-path a.pqt --comm postgres
  # Follow a thread's waits for messages into the process that sent them, recorded at the same time
  perfquet-query critical-path client.pqt server.pqt --tid 812
  # List the parts of one interval in their order
  perfquet-query critical-path a.pqt --tid 812 --time 1.2s..1.25s --parts")]
struct CriticalPath {
    #[command(flatten)]
    traces: Traces,
    /// Thread whose time is explained; of several traces, one of the first
    ///
    /// The path then leads from trace to trace where a thread waits for a message over TCP, if both ends of the connection were recorded: with
    /// sock:sock_send_length, sock:sock_recv_length and tcp:tcp_rcv_space_adjust.
    #[arg(long, value_name = "TID", required_unless_present = "comm")]
    tid: Option<i32>,
    /// Name of the thread; of several, the one that ran the longest within the time range
    #[arg(long, value_name = "COMM", conflicts_with = "tid")]
    comm: Option<String>,
    /// Time range from the start of the trace, such as 1.2s..1.5s [default: all]
    #[arg(long, value_name = "RANGE")]
    time: Option<String>,
    /// List the parts in their order instead of adding them up
    #[arg(long)]
    parts: bool,
    /// Maximum number of rows; 0 for all
    #[arg(short = 'n', long, value_name = "N", default_value_t = 25)]
    limit: usize,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    limits: Limits,
}

impl Report for CriticalPath {
    const NAME: &'static str = "critical-path";

    fn traces(&self) -> Vec<PathBuf> {
        self.traces.traces.clone()
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn form(&self) -> Result<Form> {
        Ok(Form::rows(self.output.format))
    }

    fn answer<'s>(&self, session: &'s Session) -> Result<Answered<'s>> {
        if session.traces().len() > 1 {
            return self.across(session);
        }
        let trace = session.only_trace()?;
        let filters = Filters::of(None, self.time.clone());
        // Reports a wrong range.
        filters.time_condition(session)?;
        let (start, end) = trace.time_range().unwrap_or_default();
        let bounds = filters.time_bounds(start);
        let [from, to] = match bounds {
            Some((from, to)) => [from.max(start), to.min(end)].map(|time| time.to_string()),
            None => ["NULL", "NULL"].map(str::to_owned),
        };
        let tid = match (self.tid, &self.comm) {
            (Some(tid), _) => tid,
            (None, Some(comm)) => busiest(session, comm, bounds.map(|_| [&*from, &*to]))?,
            (None, None) => bail!(Misuse("expected --tid or --comm".to_owned())),
        };
        let sql = match self.parts {
            true => include_str!("parts.sql"),
            false => include_str!("summary.sql"),
        };
        let limit = match self.limit {
            0 => String::new(),
            rows => format!("LIMIT {rows}"),
        };
        let sql = sql
            .replace("{tid}", &tid.to_string())
            .replace("{from}", &from)
            .replace("{to}", &to)
            .replace("{start}", &start.to_string())
            .replace("{limit}", &limit);
        let spares = ["parts", "depth", "interrupt", "waker_comm"];
        let mut answer = session.query(&sql)?;
        let mut schema = with_spares(&answer.schema(), &spares);
        if self.limit == 0 {
            if !is_known(session, tid)? {
                bail!(unknown_thread(session, tid)?);
            }
            // Rows without an end: whether a column is empty is not known before the last one.
            return Ok(Answered::new(Section::Stream(answer.with_schema(schema))));
        }
        // Without stacks or interrupts, these are empty.
        for column in ["ended_by", "why", "waker_comm", "interrupt"] {
            schema = with_display(&schema, column, "optional");
        }
        answer = answer.with_schema(Arc::clone(&schema));
        let mut batches = Vec::new();
        while let Some(batch) = answer.next_batch()? {
            batches.push(batch);
        }
        let rows = concat_batches(&schema, &batches)?;
        if rows.num_rows() == 0 {
            bail!(self.why_empty(session, tid)?);
        }
        Ok(Answered::new(Section::Table(rows)))
    }
}

impl CriticalPath {
    /// Why a path has no parts.
    fn why_empty(&self, session: &Session, tid: i32) -> Result<Misuse> {
        Ok(match (is_known(session, tid)?, &self.time) {
            (true, Some(time)) => Misuse(format!(
                "--time {time}: the states of thread {tid} are not known in this range"
            )),
            (true, None) => Misuse(format!("the states of thread {tid} are not known")),
            (false, _) => unknown_thread(session, tid)?,
        })
    }

    /// The path through several traces, by the clock of the first.
    fn across<'s>(&self, session: &'s Session) -> Result<Answered<'s>> {
        let mut across = Across::open(session)?;
        let first = across.session(0);
        let filters = Filters::of(None, self.time.clone());
        // Reports a wrong range.
        filters.time_condition(first)?;
        let (start, end) = session.traces()[0].time_range().unwrap_or_default();
        let bounds = filters.time_bounds(start);
        let (from, to) = bounds.map_or((start, end), |(from, to)| (from.max(start), to.min(end)));
        let tid = match (self.tid, &self.comm) {
            (Some(tid), _) => tid,
            (None, Some(comm)) => {
                let range = [from, to].map(|time| time.to_string());
                let range = bounds.map(|_| [range[0].as_str(), range[1].as_str()]);
                busiest(first, comm, range)?
            }
            (None, None) => bail!(Misuse("expected --tid or --comm".to_owned())),
        };
        let parts = across.path(0, tid, (from, to))?;
        let first = across.session(0);
        if parts.iter().all(|part| part.state.is_none()) && !is_known(first, tid)? {
            bail!(unknown_thread(first, tid)?);
        }
        across::note_errors(session.traces());
        let names: Vec<&str> = session
            .traces()
            .iter()
            .map(|one| one.name.as_str())
            .collect();
        let rows = match self.parts {
            true => rows::listed(&parts, &names, start, self.limit)?,
            false => rows::summed(&parts, &names, self.limit)?,
        };
        Ok(Answered::new(Section::Table(rows)))
    }
}

/// Whether any state of a thread is known.
fn is_known(session: &Session, tid: i32) -> Result<bool> {
    let sql = format!("SELECT 1 FROM thread_states WHERE tid = {tid} LIMIT 1");
    let found = session.collect(&sql)?;
    Ok(found.iter().any(|batch| batch.num_rows() > 0))
}

/// Says that a thread was not scheduled, and which ones ran the longest.
fn unknown_thread(session: &Session, tid: i32) -> Result<Misuse> {
    let sql = format!(
        "SELECT concat(coalesce(max(comm), '[unknown]'), ' (', CAST(tid AS TEXT), ')') AS thread, \
         coalesce(sum(duration) FILTER (WHERE state = 'running'), 0) AS running \
         FROM thread_states GROUP BY tid ORDER BY running DESC, tid LIMIT {MOST_LISTED}"
    );
    let mut busy = Vec::new();
    for batch in session.collect(&sql)? {
        let threads = strings(batch.column(0))?;
        busy.extend(
            threads
                .iter()
                .flatten()
                .map(|name| harmless(name).into_owned()),
        );
    }
    let hint = match busy.is_empty() {
        true => "list what was recorded with: perfquet-query info TRACE".to_owned(),
        false => format!(
            "the busiest threads are {}; list all with: perfquet-query waits TRACE --by thread -n 0",
            busy.join(", ")
        ),
    };
    Ok(Misuse(format!(
        "--tid {tid}: no such thread was scheduled\nhint: {hint}"
    )))
}

/// How many other threads of the same name are listed.
const MOST_LISTED: usize = 5;

/// Returns the thread with a name that ran the longest. Notes which one it is if there are others.
fn busiest(session: &Session, comm: &str, range: Option<[&str; 2]>) -> Result<i32> {
    let begins = range.map_or_else(String::new, |[from, to]| {
        format!("AND time < {to} AND (duration IS NULL OR time + duration > {from})")
    });
    let [from, to] = range.unwrap_or(["time", "time + duration"]);
    // Of a period at the border of the range, only the part within it.
    let sql = format!(
        "SELECT CAST(tid AS INT), CAST(coalesce(sum(least(time + duration, {to}) - greatest(time, {from})) \
         FILTER (WHERE state = 'running'), 0) AS BIGINT) AS running \
         FROM thread_states WHERE comm = {} {begins} GROUP BY tid ORDER BY running DESC, tid",
        literal(comm)
    );
    let mut threads: Vec<(i32, i64)> = Vec::new();
    for batch in session.collect(&sql)? {
        let (tids, running) = (batch.column(0), batch.column(1));
        let tids = tids.as_primitive::<Int32Type>();
        let running = running.as_primitive::<Int64Type>();
        threads.extend(
            tids.values()
                .iter()
                .copied()
                .zip(running.values().iter().copied()),
        );
    }
    let Some(((tid, running), others)) = threads.split_first().map(|(first, rest)| (*first, rest))
    else {
        bail!(Misuse(format!(
            "--comm: no thread named {comm} was scheduled\nhint: list them with: perfquet-query waits TRACE --by comm -n 0"
        )));
    };
    if !others.is_empty() {
        let listed = others.iter().take(MOST_LISTED);
        let listed: Vec<String> = listed.map(|(tid, _)| tid.to_string()).collect();
        let more = others.len().saturating_sub(MOST_LISTED);
        let more = match more {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        log::warn!(
            "--comm {comm}: thread {tid}, which ran the longest ({}); others: {}{more}",
            in_fitting_unit(running as f64),
            listed.join(", ")
        );
    }
    Ok(tid)
}
