//! A recording from the command line to the closing line, step by step.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::cli::{CallGraph, Cli, Format};
use crate::drain::Drain;
use crate::failure::{Failure, failed, misuse};
use crate::journal::processes::{self, Files};
use crate::journal::{self, Journal};
use crate::list;
use crate::output::Output;
use crate::probe::{self, Probe, counter};
use crate::progress::{self, Progress, Shown};
use crate::recording::{Recording, Rings, Settings};
use crate::sys::child::{self, Ended, Waiting};
use crate::sys::signals::{Signal, Signals};
use crate::sys::thread;
use crate::target::Target;

/// How often ends and signals are looked for, and the line of progress is drawn.
const TICK: Duration = Duration::from_millis(250);
/// Counting by asking every descriptor is too dear beyond so many.
const MOST_COUNTED: usize = 256;

/// How it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The trace is whole.
    Done,
    /// A second Ctrl-C: the journal is whole, its tables are not.
    Interrupted,
}

/// Does what the command line says.
pub(crate) fn run(cli: &Cli) -> Result<Outcome> {
    if let Some(pattern) = &cli.list {
        list::print(pattern).context("cannot write the list")?;
        return Ok(Outcome::Done);
    }
    thread::set_comm();
    let target = cli.target()?;
    let probes = probes(cli)?;
    let settings = Settings {
        frequency_hz: cli.frequency_hz()?,
        period: cli.count,
        has_stacks: cli.has_stacks || cli.call_graph == Some(CallGraph::Fp),
        ring_bytes: cli.ring_bytes,
    };
    let cpus = cli.cpus()?;
    let signals = Signals::block().context("cannot wait for signals")?;
    // Before limits are raised, threads started and events opened: the command inherits none of it.
    let waiting = match cli.command.is_empty() {
        true => None,
        false => Some(child::fork(&cli.command).context("cannot fork")?),
    };
    let command = waiting.as_ref().map(Waiting::pid);
    let places = target.places(command, &cpus)?;
    let (recording, rings) = Recording::open(probes, &target, &places, &settings)?;
    let (output, mut journal) = Output::create(&cli.output(), cli.format, cli.force)?;
    let started = journal
        .head(&recording)
        .context("cannot write the journal")
        .and_then(|()| Running::start(target, recording, rings, journal, waiting));
    let mut running = match started {
        Ok(running) => running,
        Err(error) => {
            output.discard();
            return Err(error);
        }
    };
    running.until_end(&signals, cli.duration)?;
    running.finish(&output, cli)
}

/// What `-e`, `--filter`, `-F` and `-c` say together.
fn probes(cli: &Cli) -> Result<Vec<Probe>> {
    let mut probes = Vec::new();
    for (index, argument) in cli.events.iter().enumerate() {
        let mut found = probe::parse(argument)?;
        let filters = cli.filters.iter().zip(&cli.filter_owners);
        for (filter, _) in filters.filter(|(_, owner)| **owner == Some(index)) {
            set_filter(&mut found, argument, filter)?;
        }
        probes.extend(found);
    }
    if cli.filter_owners.contains(&None) {
        return Err(misuse("--filter belongs to the -e before it, and there is none").into());
    }
    let has_sampled = probes.iter().any(Probe::is_sampled);
    if !has_sampled && cli.count.is_some() && !probes.is_empty() {
        return Err(
            misuse("-c is for counters and clocks; every hit of a tracepoint is recorded")
                .hint("add one, as in -e cycles -c 1000000")
                .into(),
        );
    }
    // A frequency asks for samples: beside tracepoints as well.
    if probes.is_empty() || (!has_sampled && cli.frequency.is_some()) {
        probes.push(counter::default()?);
    }
    Ok(probes)
}

fn set_filter(probes: &mut [Probe], argument: &str, filter: &str) -> Result<(), Failure> {
    for probe in probes {
        if probe.is_sampled() {
            return Err(misuse(format!("--filter: {argument} is no tracepoint"))
                .hint("counters and clocks have no fields to filter by"));
        }
        // Several filters of one event must all hold, as with perf.
        probe.filter = Some(match probe.filter.take() {
            Some(first) => format!("({first}) && ({filter})"),
            None => filter.to_owned(),
        });
    }
    Ok(())
}

/// A recording that runs.
struct Running {
    target: Target,
    recording: Recording,
    drain: Drain,
    written: std::sync::Arc<std::sync::atomic::AtomicU64>,
    files: Files,
    command: Option<i32>,
    command_ended: Option<Ended>,
    progress: Progress,
}

impl Running {
    /// Events first, then what exists, then the command.
    fn start(
        target: Target,
        recording: Recording,
        rings: Rings,
        journal: Journal,
        waiting: Option<Waiting>,
    ) -> Result<Running> {
        let written = journal.written();
        let drain = Drain::start(&recording, rings, journal)?;
        recording.enable()?;
        let command = waiting.as_ref().map(Waiting::pid);
        let existing = processes::existing(&target, command);
        drain.set_existing(existing.records);
        if let Some(waiting) = waiting {
            waiting
                .start()
                .map_err(|error| failed(format!("cannot run the command: {error}")))?;
        }
        Ok(Running {
            target,
            recording,
            drain,
            written,
            files: existing.files,
            progress: Progress::start(command.is_some()),
            command,
            command_ended: None,
        })
    }

    /// Waits for the command's end, a signal, or the time that was given.
    fn until_end(&mut self, signals: &Signals, duration: Option<Duration>) -> Result<()> {
        let deadline = duration.map(|duration| Instant::now() + duration);
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(());
            }
            let wait = left.map_or(TICK, |left| left.min(TICK));
            match signals.wait(wait).context("cannot wait for signals")? {
                Some(Signal::Finish) => return Ok(()),
                Some(Signal::Child) | None => {}
            }
            self.reap();
            if self.command_ended.is_some() || self.target.has_ended() || self.drain.has_failed() {
                return Ok(());
            }
            if self.progress.is_visible() {
                self.progress.show(self.shown());
            }
        }
    }

    fn reap(&mut self) {
        if let Some(pid) = self.command
            && self.command_ended.is_none()
        {
            self.command_ended = child::ended(pid);
        }
    }

    fn shown(&self) -> Shown {
        let bytes = self.written.load(Ordering::Relaxed);
        if self.recording.size() > MOST_COUNTED {
            return Shown {
                bytes,
                ..Shown::default()
            };
        }
        let lost = self
            .recording
            .counts()
            .filter_map(|(_, _, counts)| counts.lost)
            .sum();
        Shown {
            events: None,
            lost,
            bytes,
        }
    }

    /// Stops the events, completes the journal and the trace.
    fn finish(mut self, output: &Output, cli: &Cli) -> Result<Outcome> {
        self.recording.disable();
        self.progress.step("finishing");
        let (mut journal, drained) = self.drain.finish();
        let lost = journal
            .losses(&self.recording)
            .and_then(|lost| journal.build_ids(&self.files).map(|()| lost))
            .and_then(|lost| journal.finish_round().map(|()| lost));
        if self.recording.is_slow_to_close() {
            child::close_elsewhere();
        }
        drop(self.recording);
        self.progress.clear();
        drained.context("the recording ended early: cannot write the journal")?;
        let lost = lost.context("cannot write the journal's end")?;
        if cli.format == Format::PerfData {
            output.complete(true)?;
            let events =
                journal::count_samples(journal.path()).context("cannot count the events")?;
            close(output.path(), events, lost, "perf report -i")?;
        }
        if let (Some(pid), None) = (self.command, self.command_ended) {
            child::terminate(pid);
        }
        Ok(Outcome::Done)
    }
}

/// The closing line.
fn close(path: &Path, events: u64, lost: u64, next: &str) -> Result<()> {
    let bytes = size_of(path).with_context(|| format!("cannot read {}", path.display()))?;
    let summary = progress::summary(events, lost, bytes);
    let path = path.display();
    eprintln!("{path}: {summary}; next: {next} {path}");
    Ok(())
}

/// Bytes of a file, or of all files in a folder.
fn size_of(path: &Path) -> std::io::Result<u64> {
    let metadata = path.symlink_metadata()?;
    if !metadata.is_dir() {
        return Ok(metadata.len());
    }
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        bytes += size_of(&entry?.path())?;
    }
    Ok(bytes)
}
