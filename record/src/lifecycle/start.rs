//! The start of a recording: events, then what exists, then the command.

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use perfquet_events::event::Selection;
use perfquet_trace::symbols::limits::{HELD_FILES_MAX, UNWOUND_FILES_MAX};

use super::{Readings, Running, command};
use crate::bpf::{Live, Programs};
use crate::control::{Control, Delay};
use crate::cpu_limit::CpuLimit;
use crate::drain::{Drain, Existing, Sink};
use crate::ftrace::Tracing;
use crate::journal::build_ids::MappedFiles;
use crate::journal::{header, processes};
use crate::mapped_files::BuildIds;
use crate::output::progress::Progress;
use crate::periods::Periods;
use crate::process_states::{self, ProcessStates};
use crate::recording::{Recording, Rings};
use crate::rotation::Handover;
use crate::runtimes::{self, Runtimes};
use crate::side_band::Watchers;
use crate::stat::Counters;
use crate::switch::Switch;
use crate::sys::child::Waiting;
use crate::sys::clock::{self, Moments};
use crate::sys::limits::{self, Resource};
use crate::target::Target;
use crate::target::containers::Containers;
use crate::trigger::{Gate, TriggerOptions};
use crate::user_stacks::{First, UserStacks, Walking};

/// Maximum time before programs count by stack, while unwind tables are loaded. Those of a compiler take a second.
const LONGEST_LOAD: Duration = Duration::from_secs(2);

/// An opened recording, ready to start.
pub(crate) struct Start {
    pub(crate) target: Target,
    pub(crate) recording: Recording,
    pub(crate) rings: Rings,
    pub(crate) programs: Programs,
    pub(crate) walking: Option<Walking>,
    pub(crate) waiting: Option<Waiting>,
    pub(crate) tracing: Option<Tracing>,
    pub(crate) selection: Selection,
    pub(crate) triggers: TriggerOptions,
    /// Time between two readings of aggregates, and whether to print what was read.
    pub(crate) readings: (Option<Duration>, bool),
    pub(crate) runtimes: runtimes::Options,
    /// In a ring of traces, where this one begins and ends.
    pub(crate) handover: Option<Handover>,
    /// When recording begins, if not at once.
    pub(crate) delay: Option<Delay>,
    /// Commands from another program.
    pub(crate) control: Option<Control>,
    /// Events that are counted.
    pub(crate) counters: Option<Counters>,
    /// Whether stacks have functions of interpreters.
    pub(crate) has_interpreters: bool,
    /// Limit of the recorder's CPU use.
    pub(crate) cpu_limit: Option<CpuLimit>,
}

impl Running {
    /// Starts the events, then records what exists, then starts the command. One function, because each step needs what the
    /// steps before it have made, and their order matters.
    pub(crate) fn start(
        start: Start,
        sink: Sink,
        written: Arc<AtomicU64>,
        journal: &Path,
    ) -> Result<Running> {
        let Start {
            target,
            mut recording,
            mut rings,
            mut programs,
            walking,
            waiting,
            mut tracing,
            selection,
            triggers,
            readings: (every, is_live),
            runtimes,
            handover,
            delay,
            control,
            mut counters,
            has_interpreters,
            cpu_limit,
        } = start;
        let has_user_code = recording.has_user_code() || programs.has_user_stacks();
        let runtimes = has_user_code.then_some(runtimes);
        let runtimes = runtimes.and_then(Runtimes::start);
        let gate = Gate::of(&recording, &selection);
        let seen = gate.seen();
        recording.forget_before(&mut rings);
        let began = clock::monotonic();
        let mut containers = Containers::new();
        let counts_by_stack = walking.as_ref().map(Walking::has_keys);
        let stacks = UserStacks::of(
            &recording,
            &rings.events,
            walking,
            &containers.roots(),
            has_interpreters,
        );
        let periods = cpu_limit.as_ref().map(|_| Arc::<Mutex<Periods>>::default());
        let files = Arc::new(MappedFiles::new(containers.roots()));
        // Files held open.
        limits::raise_by(Resource::OpenFiles, HELD_FILES_MAX + UNWOUND_FILES_MAX);
        let (newcomers, states) = recording.own_id.map(|_| ProcessStates::new()).unzip();
        let drain = Drain::start(
            &recording,
            rings,
            sink,
            (gate, began),
            stacks,
            BuildIds::start(
                Arc::clone(&files),
                Watchers {
                    sightings: runtimes.as_ref().map(Runtimes::sightings),
                    newcomers,
                },
            ),
            periods.clone(),
        )?;
        recording.enable()?;
        let counts_at_once = counts_by_stack != Some(true);
        if delay.is_none() {
            if counts_at_once {
                programs.start()?;
            }
            counters.as_mut().map_or(Ok(()), Counters::start)?;
        }
        let command = waiting.as_ref().map(Waiting::pid);
        let pids = containers.look(&target, command);
        if let (Some(runtimes), Some(pids)) = (&runtimes, pids) {
            runtimes.look(pids);
        }
        let has_files = recording.has_system_calls();
        if let Some(states) = states {
            let mut existing = target.processes(None);
            existing.retain(|pid| Some(*pid) != command);
            states.start(existing, has_files, drain.added());
        }
        let mut records = processes::existing(&target, command, &files, recording.has_addresses);
        // A command's events start with its exec.
        let began = command.map_or(began, |_| clock::monotonic());
        let begun = match &handover {
            Some(handover) => handover.begin(&selection),
            None => triggers.begun(&selection, began),
        };
        if let Some(begun) = &begun {
            records.extend(header::selection(&recording, begun));
        }
        let selection = begun.unwrap_or(selection);
        let begin = selection.begin.and_then(|begin| begin.try_into().ok());
        let (loaded, is_loaded) = channel();
        let loads = !counts_at_once || counts_by_stack.is_some() && command.is_some();
        let first = loads.then(|| {
            let command_line = waiting.as_ref().map(Waiting::name);
            (First::of(&target, command_line, loaded), command)
        });
        let begin_loading = Instant::now();
        drain.set_existing(Existing {
            records,
            begin: begin.unwrap_or(0),
            first,
        });
        if !counts_at_once && delay.is_none() {
            wait_for_tables(&is_loaded, begin_loading);
            programs.start()?;
        }
        if let Some(tracing) = &mut tracing {
            tracing.start(journal)?;
        }
        if let Some(counters) = &mut counters
            && waiting.is_some()
        {
            counters.begin();
        }
        if let Some(mut waiting) = waiting {
            waiting
                .start()
                .map_err(|error| command::cannot_run(waiting.name(), &error))?;
            if recording.own_id.is_some() {
                let (pid, words) = (waiting.pid(), waiting.words());
                drain.add(process_states::of_command(pid, words, has_files));
            }
        }
        Ok(Running {
            target,
            recording,
            programs,
            drain,
            written,
            containers,
            runtimes,
            progress: Progress::start(command.is_some()),
            display: None,
            command,
            command_ended: None,
            tracing,
            selection,
            seen,
            starts_are_off: false,
            switch: Switch::new(delay),
            control,
            counters,
            cpu_limit: cpu_limit.zip(periods),
            readings: every.map(|every| Readings {
                every,
                next: Instant::now() + every,
                live: is_live.then(Live::new),
            }),
            handover,
            moments: Moments::start(),
        })
    }
}

/// Waits until the unwind tables of running programs are loaded, but not too long.
fn wait_for_tables(is_loaded: &Receiver<()>, begin: Instant) {
    let is_complete = is_loaded.recv_timeout(LONGEST_LOAD).is_ok();
    log::info!(
        "unwind tables of running programs were loaded for {} ms before counting began{}",
        begin.elapsed().as_millis(),
        match is_complete {
            true => "",
            false => ", and are not complete",
        }
    );
}
