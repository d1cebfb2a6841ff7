//! From the plan to opened events: the first steps that change the kernel.

use std::ffi::OsString;
use std::sync::Arc;

use anyhow::{Context, Result};
use perfquet_events::event::Selection;

use super::flight::Wanted;
use crate::bpf::{Plans, Whom};
use crate::cli::Cli;
use crate::control::Delay;
use crate::failure::failed;
use crate::flight;
use crate::ftrace::Tracing;
use crate::lifecycle::{Bounds, Opened, Start, Upkeep};
use crate::output::Format;
use crate::plan::Plan;
use crate::probe::Probe;
use crate::probe::definition::Definitions;
use crate::recording::{Recording, Settings, Track, WALK, warn_of_period};
use crate::rotation::{self, Handover};
use crate::stat::{self, Counters};
use crate::sys::child::{self, Waiting};
use crate::sys::clock;
use crate::target::Target;
use crate::user_stacks::{self, Walking};

/// The events to record, and the probes defined for them.
pub(super) struct Probes {
    target: Target,
    cpus: Vec<u32>,
    selection: Selection,
    counted: Vec<stat::Group>,
    delay: Option<Delay>,
    /// Programs for the kernel.
    plans: Plans,
    probes: Vec<Probe>,
    /// When a flight recorder writes its trace.
    snapshots: Wanted,
    walking: Option<Walking>,
    settings: Settings,
}

impl Probes {
    /// Defines own probes, and loads the program that walks stacks.
    pub(super) fn define(
        cli: &Cli,
        plan: Plan<'_>,
        definitions: &mut Option<Definitions>,
    ) -> Result<Probes> {
        let mut stacks = plan.stacks;
        let mut plans = Plans::read(&cli.in_kernel.bpf)?;
        let mut probes = plan.requests.define(definitions, &mut plans)?;
        probes.extend(plans.outputs());
        let (watched_probes, watched) = flight::watched(&cli.retention.flight, definitions)?;
        probes.extend(watched_probes);
        probes.extend(cli.triggers.probes(definitions)?);
        let walking = match stacks.wants_walks(&probes) {
            true => user_stacks::load(cli.target.options.excludes_self, stacks.are_checked()),
            false => None,
        };
        if walking.is_none() && stacks.are_checked() {
            return Err(
                failed("--call-graph auto,check: no stacks are walked in the kernel")
                    .hint("-v prints the reason, if the events are samples")
                    .into(),
            );
        }
        if walking.is_some() {
            stacks.set_walked();
            probes.push(Probe::output(WALK, false));
        }
        for probe in &probes {
            warn_of_period(probe, cli.sampling.count);
        }
        let settings = Settings {
            starts_paused: plan.delay.is_some(),
            has_own_records: (cli.retention.flight.limit().is_none()
                || cli.control.may_pause()
                || cli.events.stat.is_requested()
                || cli.sampling.cpu_limit.is_given())
                && cli.output.format == Format::Pqt,
            frequency_hz: plan.frequency_hz,
            period: cli.sampling.count,
            stacks,
            extras: cli.sampling.extras.extras(&probes)?,
            ring_bytes: cli.output.ring_bytes.or(small_rings(
                &probes,
                &plans,
                cli.functions_traced.is_requested(),
            )),
            excludes_self: cli.target.options.excludes_self,
            excludes_children: cli.target.options.excludes_children,
            chosen_cpus: cli.target.cpus.as_ref().map(|_| plan.cpus.clone()),
            has_no_addresses: (has_aggregates_only(&probes, &plans) || probes.is_empty())
                && !plans.have_stacks()
                && !cli.functions_traced.is_requested(),
        };
        Ok(Probes {
            target: plan.target,
            cpus: plan.cpus,
            selection: plan.selection,
            counted: plan.counted,
            delay: plan.delay,
            plans,
            probes,
            snapshots: Wanted {
                watched,
                loads: plan.loads,
            },
            walking,
            settings,
        })
    }

    /// Forks the command, loads the programs and opens all events. Nothing is recorded yet.
    pub(super) fn open(
        mut self,
        cli: &Cli,
        definitions: &mut Option<Definitions>,
    ) -> Result<(Start, Wanted)> {
        let control = cli.control.open()?;
        // Before limits are raised, threads started and events opened, so that the command inherits none of them.
        let waiting = match cli.command.is_empty() {
            true => None,
            false => Some(child::fork(&cli.command).context("cannot fork")?),
        };
        let command = waiting.as_ref().map(Waiting::pid);
        let places = self.target.places(command, &self.cpus)?;
        let whom = Whom {
            target: &self.target,
            command,
            cpus: &self.cpus,
            are_cpus_chosen: cli.target.cpus.is_some(),
        };
        let calls = self.plans.take_calls(&self.selection);
        let mut programs = self.plans.load(&whom, &self.settings)?;
        for tables in programs.take_walk_tables() {
            self.walking.get_or_insert_default().add(tables);
        }
        self.probes
            .extend(programs.pair(calls, &whom, definitions)?);
        let counters = match self.counted.is_empty() {
            true => None,
            false => Some(Counters::open(
                self.counted,
                &stat::Places {
                    target: &self.target,
                    command,
                    program: cli.command.first().map(OsString::as_os_str),
                    cpus: &self.cpus,
                    are_cpus_chosen: cli.target.cpus.is_some(),
                    per: cli.events.stat.per(),
                    excludes_children: cli.target.options.excludes_children,
                    starts_paused: self.delay.is_some(),
                },
            )?),
        };
        let tracing = Tracing::prepare(
            &cli.functions_traced,
            &self.selection,
            (&self.target, &places),
            &self.cpus,
            cli.output.ring_bytes,
        )?;
        let (recording, rings) =
            Recording::open(self.probes, &self.target, &places, &self.settings)?;
        let opened_at = clock::monotonic();
        programs.connect(&recording, definitions)?;
        if let Some(walking) = &mut self.walking {
            walking.connect(&recording)?;
        }
        let highest_hz = highest_frequency(cli, &recording);
        let handover = handover(cli, &recording, opened_at)?;
        let start = Start {
            target: self.target,
            waiting,
            opened: Opened {
                recording,
                rings,
                programs,
                walking: self.walking,
                tracing,
                counters,
            },
            bounds: Bounds {
                selection: self.selection,
                triggers: cli.triggers.clone(),
                handover,
                delay: self.delay,
                control,
            },
            upkeep: Upkeep {
                readings: match cli.displays_samples() {
                    true => (None, false),
                    false => (cli.in_kernel.bpf.every(), cli.in_kernel.bpf.is_live()),
                },
                runtimes: cli.sampling.runtimes,
                // Symbols in a ring would be gone before their samples.
                has_interpreters: cli.sampling.runtimes.has_interpreters()
                    && cli.output.format == Format::Pqt
                    && cli.retention.flight.limit().is_none(),
                cpu_limit: highest_hz
                    .and_then(|highest_hz| cli.sampling.cpu_limit.limit(highest_hz)),
            },
        };
        Ok((start, self.snapshots))
    }
}

/// In a ring of traces, the connection to the recorders before and after this one.
fn handover(cli: &Cli, recording: &Recording, opened_at: u64) -> Result<Option<Handover>> {
    if cli.retention.rotation.segment().is_none() {
        return Ok(None);
    }
    let follows = !recording.attached.is_empty();
    let tasks = follows.then(|| rotation::Tasks {
        opened_at,
        tids: recording.attached.clone(),
        started: Arc::default(),
    });
    Handover::open(tasks).map(Some)
}

/// The highest frequency that a limit of CPU use may lower.
fn highest_frequency(cli: &Cli, recording: &Recording) -> Option<u64> {
    let highest_hz = recording
        .tracks
        .iter()
        .filter_map(Track::frequency_hz)
        .max();
    if cli.sampling.cpu_limit.is_given() && highest_hz.is_none() {
        log::warn!(
            "--max-cpu: no event has a frequency that could be lowered; tracepoints, -c and aggregations in the kernel have none"
        );
    }
    highest_hz
}

/// Whether nothing is recorded event by event.
fn has_aggregates_only(probes: &[Probe], plans: &Plans) -> bool {
    plans.has_sums() && plans.calls.is_empty() && probes.iter().all(Probe::is_output)
}

/// The size of rings that no events fill; making and clearing large ones takes as long as starting all the rest. `None`: there
/// are events.
fn small_rings(probes: &[Probe], plans: &Plans, traces_functions: bool) -> Option<usize> {
    /// The side-band of functions that ftrace traces.
    const SIDE_BAND: usize = 4 << 20;
    /// Stacks, when they are first seen.
    const STACKS: usize = 4 << 20;
    const NOTHING: usize = 512 << 10;
    match (probes, has_aggregates_only(probes, plans)) {
        ([], _) if traces_functions => Some(SIDE_BAND),
        ([], _) => Some(NOTHING),
        (_, true) if plans.have_stacks() => Some(STACKS),
        (_, true) => Some(NOTHING),
        (_, false) => None,
    }
}
