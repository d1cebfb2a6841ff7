//! Function tracing with ftrace: which kernel functions run, which functions they call, and how long each takes.
//!
//! ```text
//! --function-graph ksys_write --max-depth 2
//!   the kernel's one graph tracer     set_graph_function, max_graph_depth, …      (claim.rs)
//!   or a separate ring                instances/pq_4711_88123/set_ftrace_filter   (buffer.rs)
//! per_cpu/cpuN/trace_pipe_raw ─pages.rs─► OUT.pqt/journal/.trace.dat.cpuN         whole pages of the ring
//!                              head.rs─► OUT.pqt/journal/trace.dat                formats, symbols, losses
//! ```
//! The trace.dat reader imports the journal like the files of a killed trace-cmd: a head without events, and the pages
//! of each CPU in adjacent files. The recording of a killed recorder is therefore completed like any other.
//!
//! Only the top-level tracer can follow a function into its callees, limit the depth, or drop short calls. There is
//! only one, so it is claimed only while unused, and restored afterward. Everything else is done in an instance.

mod boot;
mod buffer;
mod claim;
mod head;
mod join;
mod kfi;
mod options;
mod pages;
mod plan;
mod refusal;
mod settings;
mod setup;
mod state;

use std::path::Path;

use anyhow::{Context, Result};
use perfquet_events::event::Selection;

use crate::failure::Failure;
use crate::sys::clock;
use crate::sys::tracefs::Tracefs;
use crate::target::{Place, Target};
use buffer::Buffer;
use head::{Contents, Head};
use pages::Pages;
use plan::{Plan, Tracer};

pub(crate) use boot::{BootBuffer, BootOptions, BootRequest, boot_line};
pub(crate) use join::join;
pub(crate) use options::FunctionOptions;

/// Name of the head in the journal; the pages are in hidden files next to it, because they are not separate inputs.
const HEAD: &str = "trace.dat";

/// Function tracing, set up or running. Dropping it restores all settings.
pub(crate) struct Tracing {
    tracefs: Tracefs,
    buffer: Buffer,
    plan: Plan,
    cpus: Vec<u32>,
    head: Option<Head>,
    pages: Option<Pages>,
    /// Start of tracing, on the clock of the events.
    started: i64,
    is_over: bool,
}

impl Tracing {
    /// Claims and sets up a tracer, without recording yet. `None` if not requested.
    pub(crate) fn prepare(
        options: &FunctionOptions,
        selection: &Selection,
        (target, places): (&Target, &[Place]),
        cpus: &[u32],
        ring_bytes: Option<usize>,
    ) -> Result<Option<Tracing>, Failure> {
        let Some(plan) = options.plan(selection)? else {
            return Ok(None);
        };
        let tracefs = Tracefs::open()?;
        for gone in state::clean_up(&tracefs) {
            log::info!("removed {gone}, left by a killed recorder");
        }
        let threads = setup::TracedThreads::of(target, places, cpus)?;
        let buffer = setup::set_up(&tracefs, &plan, &threads, ring_bytes)?;
        Ok(Some(Tracing {
            tracefs,
            buffer,
            plan,
            cpus: cpus.to_vec(),
            head: None,
            pages: None,
            started: i64::MIN,
            is_over: false,
        }))
    }

    /// Starts draining into the journal's directory, then the tracer.
    pub(crate) fn start(&mut self, journal: &Path) -> Result<()> {
        let head = Head::new(
            journal,
            &self.tracefs,
            &self.buffer,
            Contents::Calls(&self.plan),
        )
        .context("cannot collect event formats and symbols for the function trace")?;
        head.write(&self.tracefs, &self.buffer, &[])
            .with_context(|| format!("cannot write {}", head.path().display()))?;
        self.head = Some(head);
        let pages = Pages::start(&self.tracefs, &self.buffer, &self.cpus, journal)
            .context("cannot read the ring buffer pages of the function trace")?;
        self.buffer.write("tracing_on", "1")?;
        self.started = clock::monotonic().try_into().unwrap_or(i64::MAX);
        self.pages = Some(pages);
        Ok(())
    }

    /// Bytes drained so far.
    pub(crate) fn drained_bytes(&self) -> u64 {
        self.pages.as_ref().map_or(0, Pages::drained_bytes)
    }

    /// Whether its drain cannot go on.
    pub(crate) fn has_failed(&self) -> bool {
        self.pages.as_ref().is_some_and(Pages::has_failed)
    }

    /// Whether the requested number of calls has been recorded. False if some calls in the rings will be filtered out
    /// (before a trigger, too short, in another context), because their number is unknown here.
    pub(crate) fn has_enough(&self, selection: &Selection) -> bool {
        let do_all_count = !selection.waits
            && selection.begin.is_none_or(|begin| begin <= self.started)
            && (selection.min_duration.is_none() || self.plan.min_duration_us.is_some())
            && selection.max_duration.is_none()
            && selection.contexts.is_none();
        let Some(most) = selection.max_events.filter(|_| do_all_count) else {
            return false;
        };
        let events: u64 = self
            .cpus
            .iter()
            .map(|cpu| entries_in(&self.buffer.read(&format!("per_cpu/cpu{cpu}/stats"))))
            .sum();
        events / self.plan.events_of_a_call() >= most
    }

    /// Stops tracing, drains the rest and completes the header. Drained data is kept even after an error.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let stopped = self.buffer.write("tracing_on", "0");
        let drained = self.pages.take().map_or(Ok(()), Pages::finish);
        let stats: Vec<(u32, String)> = self
            .cpus
            .iter()
            .map(|&cpu| {
                let text = self.buffer.read(&format!("per_cpu/cpu{cpu}/stats"));
                (cpu, text)
            })
            .collect();
        let completed = self.head.as_ref().map_or(Ok(()), |head| {
            head.write(&self.tracefs, &self.buffer, &stats)
        });
        self.is_over = true;
        if !self.buffer.is_top()
            && self.plan.tracer == Tracer::Graph
            && let Some(found) = claim::limit(&self.tracefs.path(""))
        {
            log::warn!(
                "another user limited all graph tracers during the recording; calls may be missing: {found}"
            );
        }
        self.buffer.release();
        stopped?;
        drained.context("cannot write the ring buffer pages of the function trace")?;
        completed.context("cannot complete the header of the function trace")
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        if !self.is_over {
            let _ = self.buffer.write("tracing_on", "0");
            if let Some(pages) = self.pages.take() {
                let _ = pages.finish();
            }
            self.buffer.release();
        }
    }
}

/// `--cleanup`: restores settings and removes leftovers of dead recorders, and reports them.
pub(crate) fn clean_up() -> Result<Vec<String>, Failure> {
    Ok(state::clean_up(&Tracefs::open()?))
}

/// Returns the number of events that a ring has seen: `entries: 5`, plus the drained ones, `read events: 3`.
fn entries_in(stats: &str) -> u64 {
    let counts = stats.lines().filter_map(|line| {
        let (name, count) = line.split_once(':')?;
        let is_event = matches!(name.trim(), "entries" | "read events");
        is_event.then(|| count.trim().parse::<u64>().ok()).flatten()
    });
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::entries_in;

    #[test]
    fn events_are_undrained_plus_drained() {
        let stats = "entries: 3\noverrun: 5\ncommit overrun: 1\nbytes: 9\nread events: 4\n";
        assert_eq!(entries_in(stats), 7);
        assert_eq!(entries_in(""), 0);
    }
}
