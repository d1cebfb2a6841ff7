//! A recording from the command line to the closing line.
//!
//! ```text
//! cli ─Plan::read─► plan ─open─► Start ─┬─ trace    everything from start to end
//!                                       └─ flight   the last events, on request
//! ring, remote, service: other processes record; boot, list: nothing is recorded
//! ```
//! Until [`open`], nothing in the kernel changes.

mod flight;
mod open;
mod remote;
mod ring;
mod service;
mod trace;

use std::time::Duration;

use anyhow::{Context, Result};

use crate::boot;
use crate::cli::Cli;
use crate::lifecycle::Start;
use crate::list;
use crate::output::Output;
use crate::plan::{Plan, target};
use crate::probe::definition::Definitions;
use crate::sys::child::Ended;
use crate::sys::signals::{Signal, Signals};
use crate::sys::thread;
use flight::Wanted;

/// The result of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The trace is complete. Contains the status of the command, unless the recorder ended it.
    Done(Option<Ended>),
    /// Ctrl-C before the recording began, or a second one: the journal is complete, its tables are not.
    Interrupted,
}

impl Outcome {
    /// The outcome of work without a command.
    fn of(is_done: bool) -> Outcome {
        match is_done {
            true => Outcome::Done(None),
            false => Outcome::Interrupted,
        }
    }
}

/// Runs the command line.
pub(crate) fn run(cli: &Cli) -> Result<Outcome> {
    if let Some(output) = &cli.output.path {
        Output::check_name(output)?;
    }
    if let Some(host) = cli.target.remote.host() {
        return remote::run(cli, host);
    }
    cli.events.kernel.set();
    if list::answer(cli)? {
        return Ok(Outcome::Done(None));
    }
    if let Some(folder) = &cli.retention.service.folder {
        return service::run(cli, folder);
    }
    thread::set_comm();
    if let Some(instance) = &cli.boot.collect_boot {
        return boot::collect(cli, instance).map(Outcome::of);
    }
    if cli.retention.rotation.are_given() {
        return ring::run(cli);
    }
    record(cli)
}

/// Records with the events of the command line.
fn record(cli: &Cli) -> Result<Outcome> {
    // Before the first probe is defined, so that it is removed even after a signal.
    let signals = Signals::block().context("cannot wait for signals")?;
    // Own probes are removed when this function ends, after their events are closed.
    let mut definitions = None;
    let (start, snapshots) = match opened(cli, &signals, &mut definitions) {
        Ok(Some(opened)) => opened,
        Ok(None) => return Ok(Outcome::Interrupted),
        Err(error) if cli.retention.rotation.is_following() && is_over(cli) => {
            log::info!("the target ended before this trace began: {error}");
            return Ok(Outcome::Done(None));
        }
        Err(error) => return Err(error),
    };
    match cli.retention.flight.limit() {
        None => trace::run(cli, start, &signals, definitions.as_mut()),
        Some(limit) => flight::run(
            cli,
            (limit, snapshots),
            start,
            &signals,
            definitions.as_mut(),
        ),
    }
}

/// Opens the events; returns `None` after a signal.
fn opened(
    cli: &Cli,
    signals: &Signals,
    definitions: &mut Option<Definitions>,
) -> Result<Option<(Start, Wanted)>> {
    let plan = Plan::read(cli)?;
    let probes = open::Probes::define(cli, plan, definitions)?;
    // Defining probes may take long, and the user may have interrupted it.
    if signals
        .wait(Duration::ZERO)
        .is_ok_and(|signal| signal == Some(Signal::Finish))
    {
        // A ring ends the recorder of a trace that is not needed any more.
        if cli.retention.rotation.segment().is_none() {
            log::warn!("interrupted before the recording began");
        }
        return Ok(None);
    }
    probes.open(cli, definitions).map(Some)
}

/// Whether the target, which existed when a ring began, has ended.
fn is_over(cli: &Cli) -> bool {
    // No process has the name any more.
    target::target(cli).map_or(true, |target| target.has_ended())
}
