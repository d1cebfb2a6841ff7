//! The start of a recording: what exists, then events, then the command.

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use perfquet_events::event::Selection;
use perfquet_trace::count::counted;
use perfquet_trace::symbols::limits::{HELD_FILES_MAX, UNWOUND_FILES_MAX};

use super::{Beside, Extent, On, Readings, Running, RunningCommand, Screen, command};
use crate::bpf::{Live, Programs};
use crate::control::{Control, Delay};
use crate::cpu_limit::CpuLimit;
use crate::drain::{self, Drain, Sink};
use crate::ftrace::Tracing;
use crate::journal::build_ids::MappedFiles;
use crate::journal::own_records::OwnRecords;
use crate::journal::{header, processes};
use crate::mapped_files::BuildIds;
use crate::output::progress::Progress;
use crate::periods::Periods;
use crate::process_states::{self, ProcessStates};
use crate::recording::{Recording, Rings};
use crate::rotation::{Beginning, Handover};
use crate::runtimes::{self, Runtimes};
use crate::side_band::Watchers;
use crate::stat::Counters;
use crate::switch::Switch;
use crate::sys::child::Waiting;
use crate::sys::clock::{self, Moments};
use crate::sys::limits::{self, Resource};
use crate::target::Target;
use crate::target::containers::Containers;
use crate::trigger::{Gate, Seen, TriggerOptions};
use crate::user_stacks::{First, UserStacks, Walking};

/// Maximum time before programs count by stack, while unwind tables are loaded. Those of a compiler take a second.
const LONGEST_LOAD: Duration = Duration::from_secs(2);

/// An opened recording, ready to start.
pub(crate) struct Start {
    pub(crate) target: Target,
    /// The command, which waits for its start.
    pub(crate) waiting: Option<Waiting>,
    pub(crate) opened: Opened,
    pub(crate) bounds: Bounds,
    pub(crate) upkeep: Upkeep,
}

/// Everything that is open in the kernel, and records nothing yet.
pub(crate) struct Opened {
    pub(crate) recording: Recording,
    pub(crate) rings: Rings,
    pub(crate) programs: Programs,
    pub(crate) walking: Option<Walking>,
    pub(crate) tracing: Option<Tracing>,
    /// Events that are counted.
    pub(crate) counters: Option<Counters>,
}

/// When recording begins, pauses and ends.
pub(crate) struct Bounds {
    pub(crate) selection: Selection,
    pub(crate) triggers: TriggerOptions,
    /// In a ring of traces, where this one begins and ends.
    pub(crate) handover: Option<Handover>,
    /// When recording begins, if not at once.
    pub(crate) delay: Option<Delay>,
    /// Commands from another program.
    pub(crate) control: Option<Control>,
}

/// What the recorder does beside recording.
pub(crate) struct Upkeep {
    /// Time between two readings of aggregates, and whether to print what was read.
    pub(crate) readings: (Option<Duration>, bool),
    pub(crate) runtimes: runtimes::Options,
    /// Whether stacks have functions of interpreters.
    pub(crate) has_interpreters: bool,
    /// Limit of the recorder's CPU use.
    pub(crate) cpu_limit: Option<CpuLimit>,
}

impl Running {
    /// Records what exists, then starts the events, then the command. One function, because each step needs what the steps
    /// before it have made, and their order matters.
    pub(crate) fn start(
        start: Start,
        sink: Sink,
        written: Arc<AtomicU64>,
        journal: &Path,
    ) -> Result<Running> {
        let Start {
            target,
            waiting,
            opened,
            bounds,
            upkeep,
        } = start;
        let Opened {
            mut recording,
            rings,
            mut programs,
            walking,
            mut tracing,
            mut counters,
        } = opened;
        let counts_by_stack = walking.as_ref().map(Walking::has_keys);
        let has_user_code = recording.has_user_code() || programs.has_user_stacks();
        let Reading {
            drain,
            began,
            seen,
            mut containers,
            runtimes,
            files,
            states,
            periods,
        } = Reading::start(
            &mut recording,
            rings,
            (walking, has_user_code),
            sink,
            &bounds,
            &upkeep,
        )?;
        let command = waiting.as_ref().map(Waiting::pid);
        let pids = containers.look(&target, command);
        if let (Some(runtimes), Some(pids)) = (&runtimes, pids) {
            runtimes.look(pids);
        }
        let existing = processes::existing(&target, command, &files, recording.has_addresses);
        drain.set_existing(existing);
        let states = states.map(|states| {
            let mut pids = target.processes(None);
            pids.retain(|pid| Some(*pid) != command);
            (states, pids)
        });
        let is_delayed = bounds.delay.is_some();
        // Programs that count by stack wait for unwind tables.
        let counts_at_once = counts_by_stack != Some(true);
        let loads = !counts_at_once || counts_by_stack.is_some() && command.is_some();
        let (first, loading) = match loads {
            true => Loading::of(&target, waiting.as_ref()),
            false => (None, None),
        };
        // Stacks that are recorded before cannot be walked: all would be copied, and wait.
        let enabled = clock::monotonic();
        recording.enable()?;
        if !is_delayed {
            if counts_at_once {
                programs.start()?;
            }
            counters.as_mut().map_or(Ok(()), Counters::start)?;
        }
        // Later changes of these states are recorded.
        if let Some((states, pids)) = states {
            states.start(pids, recording.has_system_calls(), drain.added());
        }
        // What has started meanwhile is known when the last recorder of a ring has ended.
        drain.wake();
        let mut records = Vec::new();
        let selection = bounds.begin(
            &recording,
            command.map_or(began, |_| clock::monotonic()),
            &mut records,
        );
        let mut begins = match selection.begin {
            Some(begin) => begin.try_into().unwrap_or(0),
            None if recording.runs_at_once => began,
            None => enabled,
        };
        drain.begin(drain::Beginning {
            records,
            time: selection
                .begin
                .and_then(|begin| begin.try_into().ok())
                .unwrap_or(0),
            first,
        });
        if !counts_at_once && !is_delayed {
            loading.iter().for_each(Loading::wait);
            programs.start()?;
            begins = counting_since(&recording, begins);
        }
        if let Some(tracing) = &mut tracing {
            tracing.start(journal)?;
        }
        if let (Some(counters), Some(_)) = (&mut counters, &waiting) {
            counters.begin();
        }
        if !recording.starts_paused {
            // What precedes a command is not its run. Other threads are recorded since the events were enabled.
            let begins = match target {
                Target::Command => clock::monotonic(),
                _ => begins,
            };
            drain.recorded().begin(begins);
        }
        if let Some(waiting) = waiting {
            run_command(waiting, &recording, &drain)?;
        }
        Ok(Running {
            target,
            command: RunningCommand {
                pid: command,
                ended: None,
            },
            recording,
            programs,
            drain,
            tracing,
            counters,
            containers,
            beside: Beside {
                runtimes,
                code: None,
            },
            extent: Extent {
                selection,
                seen,
                starts_are_off: false,
            },
            on: On {
                switch: Switch::new(bounds.delay),
                control: bounds.control,
                handover: bounds.handover,
            },
            readings: Readings::of(upkeep.readings),
            cpu_limit: upkeep.cpu_limit.zip(periods),
            moments: Moments::start(),
            screen: Screen {
                progress: Progress::start(command.is_some()),
                display: None,
                written,
            },
        })
    }
}

/// Returns when a recording began whose programs have just been started: they count since then, but events were recorded before.
fn counting_since(recording: &Recording, begins: u64) -> u64 {
    /// Less is not worth a sentence.
    const LATE_NS: u64 = 100_000_000;
    let now = clock::monotonic();
    if recording.tracks.is_empty() {
        return now;
    }
    let late = now.saturating_sub(begins);
    if late >= LATE_NS {
        log::warn!(
            "aggregations count from {} ms after the first events: unwind tables were loaded first",
            late / 1_000_000
        );
    }
    begins
}

/// What reads the rings, and what it knows of processes.
struct Reading {
    drain: Drain,
    /// When the rings began to be read.
    began: u64,
    /// What the triggers have seen.
    seen: Arc<Seen>,
    containers: Containers,
    runtimes: Option<Runtimes>,
    files: Arc<MappedFiles>,
    states: Option<ProcessStates>,
    /// Sampling periods that a limit of CPU use has changed.
    periods: Option<Arc<Mutex<Periods>>>,
}

impl Reading {
    /// Starts to read the rings, before any event is enabled.
    fn start(
        recording: &mut Recording,
        mut rings: Rings,
        (walking, has_user_code): (Option<Walking>, bool),
        sink: Sink,
        bounds: &Bounds,
        upkeep: &Upkeep,
    ) -> Result<Reading> {
        let runtimes = has_user_code.then_some(upkeep.runtimes);
        let runtimes = runtimes.and_then(Runtimes::start);
        let gate = Gate::of(recording, &bounds.selection);
        let seen = gate.seen();
        recording.forget_before(&mut rings);
        let began = clock::monotonic();
        let containers = Containers::new();
        let stacks = UserStacks::of(
            recording,
            &rings.events,
            walking,
            &containers.roots(),
            upkeep.has_interpreters,
        );
        let has_limit = upkeep.cpu_limit.is_some();
        let periods = has_limit.then(Arc::<Mutex<Periods>>::default);
        let files = Arc::new(MappedFiles::new(containers.roots()));
        // Files held open.
        limits::raise_by(Resource::OpenFiles, HELD_FILES_MAX + UNWOUND_FILES_MAX);
        let (newcomers, states) = recording.own_id.map(|_| ProcessStates::new()).unzip();
        let drain = Drain::start(
            recording,
            rings,
            sink,
            (gate, began),
            stacks,
            BuildIds::start(
                Arc::clone(&files),
                Watchers {
                    sightings: runtimes.as_ref().map(Runtimes::sightings),
                    newcomers,
                    started: bounds.handover.as_ref().and_then(Handover::started),
                },
            ),
            periods.clone(),
        )?;
        Ok(Reading {
            drain,
            began,
            seen,
            containers,
            runtimes,
            files,
            states,
            periods,
        })
    }
}

impl Bounds {
    /// Returns the selection that begins at `began`, and adds its record if that changes it. A command's events start with its exec.
    fn begin(&self, recording: &Recording, began: u64, records: &mut Vec<u8>) -> Selection {
        let Beginning {
            selection: begun,
            missing,
        } = match &self.handover {
            Some(handover) => handover.begin(&self.selection),
            None => Beginning {
                selection: self.triggers.begun(&self.selection, began),
                missing: 0,
            },
        };
        if let Some(begun) = &begun {
            records.extend(header::selection(recording, begun));
        }
        if missing > 0 {
            records.extend(missing_tasks(recording, missing));
        }
        begun.unwrap_or_else(|| self.selection.clone())
    }
}

/// Warns that tasks of the last trace of a ring are not recorded, and returns the record of the loss.
fn missing_tasks(recording: &Recording, missing: usize) -> Vec<u8> {
    let threads = counted(missing as u64, "thread");
    let reason = format!("not recorded: {threads} started before this trace");
    log::warn!("{reason}; with -p, the trace after this one has them again");
    let Some(id) = recording.own_id else {
        return Vec::new();
    };
    let mut records = OwnRecords::new(id, clock::monotonic(), 0);
    records.loss_of_some(&reason);
    records.into_bytes()
}

impl Readings {
    fn of((every, is_live): (Option<Duration>, bool)) -> Option<Readings> {
        every.map(|every| Readings {
            every,
            next: Instant::now() + every,
            live: is_live.then(Live::new),
        })
    }
}

/// Starts the command, whose events are recorded from here on.
fn run_command(mut waiting: Waiting, recording: &Recording, drain: &Drain) -> Result<()> {
    waiting
        .start()
        .map_err(|error| command::cannot_run(waiting.name(), &error))?;
    if recording.own_id.is_some() {
        let (pid, words) = (waiting.pid(), waiting.words());
        let has_files = recording.has_system_calls();
        drain.add(process_states::of_command(pid, words, has_files));
    }
    Ok(())
}

/// The unwind tables of running programs, which the drain loads first.
struct Loading {
    begin: Instant,
    is_complete: Receiver<()>,
}

impl Loading {
    /// Returns what the drain is to load, and the loading.
    fn of(
        target: &Target,
        waiting: Option<&Waiting>,
    ) -> (Option<(First, Option<i32>)>, Option<Loading>) {
        let (complete, is_complete) = channel();
        let first = First::of(target, waiting.map(Waiting::name), complete);
        let loading = Loading {
            begin: Instant::now(),
            is_complete,
        };
        (Some((first, waiting.map(Waiting::pid))), Some(loading))
    }

    /// Waits until they are loaded, but not too long.
    fn wait(&self) {
        let is_complete = self.is_complete.recv_timeout(LONGEST_LOAD).is_ok();
        log::info!(
            "unwind tables of running programs were loaded for {} ms before counting began{}",
            self.begin.elapsed().as_millis(),
            match is_complete {
                true => "",
                false => ", and are not complete",
            }
        );
    }
}
