//! What a command line asks for: parsed and checked before anything is written to the kernel or to a disk.
//!
//! [`exclusions`] finds options that contradict each other, [`requests`] parses events and probes, [`mod@print`] shows the
//! plan for `--dry-run`. [`crate::run`] carries it out.

mod duplicates;
pub(crate) mod exclusions;
mod print;
pub(crate) mod requests;
pub(crate) mod target;

use anyhow::Result;
use perfquet_events::event::Selection;

use crate::cli::Cli;
use crate::control::Delay;
use crate::failure::{Failure, misuse};
use crate::flight::Loads;
use crate::output::{Format, Output};
use crate::probe::stacks::Stacks;
use crate::stat;
use crate::target::Target;
use requests::{Requests, What};

pub(crate) use print::print;

/// A checked command line.
pub(crate) struct Plan<'a> {
    pub(crate) target: Target,
    pub(crate) cpus: Vec<u32>,
    pub(crate) selection: Selection,
    pub(crate) requests: Requests<'a>,
    /// Events to count (`--stat`).
    pub(crate) counted: Vec<stat::Group>,
    pub(crate) stacks: Stacks,
    pub(crate) frequency_hz: Option<u64>,
    pub(crate) delay: Option<Delay>,
    /// When a flight recorder writes its trace.
    pub(crate) loads: Loads,
}

impl<'a> Plan<'a> {
    /// Parses and checks the command line. Reads tracefs, symbols and /proc; writes nothing.
    pub(crate) fn read(cli: &'a Cli) -> Result<Plan<'a>> {
        exclusions::check(cli)?;
        let target = target::target(cli)?;
        check_requirements(cli, &target)?;
        let is_flight = cli.retention.flight.limit().is_some();
        if cli.functions_traced.is_requested() {
            cli.functions_traced
                .check(cli.output.format == Format::Pqt, is_flight)?;
        }
        let mut selection = cli.calls.selection()?;
        cli.triggers.add_to(&mut selection)?;
        let mut requests = Requests::read(cli)?;
        duplicates::remove(&mut requests.events)?;
        cli.sampling.extras.extras(&requests.existing())?;
        let counted = cli.events.stat.groups(&target)?;
        let mut stacks = cli.sampling.stacks.stacks()?;
        if target.is_of_cpus() {
            stacks.set_of_system();
        }
        let plan = Plan {
            cpus: target::cpus(cli)?,
            selection,
            requests,
            counted,
            stacks,
            frequency_hz: target::frequency_hz(cli)?,
            delay: cli.control.delay()?,
            loads: cli.retention.flight.loads()?,
            target,
        };
        if !cli.retention.rotation.are_given() && cli.retention.rotation.segment().is_none() {
            Output::check(&cli.output_path(), cli.output.force)?;
        }
        Ok(plan)
    }

    /// Whether everything requested is aggregated or counted, so that no event is recorded with its own stack.
    fn samples_nothing(&self) -> bool {
        let is_recorded = |what: &What| matches!(what, What::Rows(_) | What::Paired(_));
        let events = &self.requests.events;
        self.requests.default.is_none() && !events.iter().any(|request| is_recorded(&request.what))
    }
}

/// Fails for options that need another one.
fn check_requirements(cli: &Cli, target: &Target) -> Result<(), Failure> {
    // Threads that inherited an event keep its rate.
    if cli.sampling.cpu_limit.is_given() && !target.is_of_cpus() {
        return Err(
            misuse("--max-cpu: requires a recording of the system, of CPUs or of cgroups")
                .hint("add -a, -C CPUS or -G CGROUP"),
        );
    }
    let has_intervals =
        cli.aggregates() || cli.events.stat.is_requested() || cli.displays_samples();
    if cli.in_kernel.bpf.every().is_some() && !has_intervals {
        return Err(misuse("--every: requires an aggregation, --stat or --live")
            .hint("add --agg, --latency, --profile, --off-cpu, --stat or --live"));
    }
    Ok(())
}
