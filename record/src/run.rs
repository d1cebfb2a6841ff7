//! A recording from the command line to the closing line, step by step.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::cli::{CallGraph, Cli, Format};
use crate::drain::Drain;
use crate::encoder::Encoder;
use crate::failure::{Failure, failed, misuse};
use crate::journal::processes::{self, Files};
use crate::journal::{self, Journal};
use crate::list;
use crate::output::Output;
use crate::probe::definition::Definitions;
use crate::probe::{self, Probe, counter};
use crate::progress::{self, Progress, Shown};
use crate::recording::{Recording, Rings, Settings};
use crate::sys::child::{self, Ended, Waiting};
use crate::sys::signals::{Signal, Signals};
use crate::sys::thread;
use crate::target::Target;

/// How often ends and signals are looked for, and the line of progress is drawn.
const TICK: Duration = Duration::from_millis(250);
/// Each costs 20 to 40 ms.
const MOST_CLOSED_HERE: usize = 16;
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
    if list::answer(cli)? {
        return Ok(Outcome::Done);
    }
    thread::set_comm();
    let target = cli.target()?;
    // Ours go when this function ends, after the events on them are closed.
    let mut definitions = None;
    let probes = probes(cli, &mut definitions)?;
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
    let encoder = (cli.format == Format::Pqt)
        .then(|| Encoder::start(output.journal_path(), output.path().to_owned()));
    running.until_end(&signals, cli.duration)?;
    let (ended, lost) = running.finish(definitions.as_mut());
    let outcome = match encoder {
        None => complete_file(&output, lost)?,
        Some(encoder) => complete_trace(&output, encoder, &signals, cli.keep_raw)?,
    };
    ended?;
    Ok(outcome)
}

/// The journal is all that was asked for.
fn complete_file(output: &Output, lost: u64) -> Result<Outcome> {
    output.complete(true)?;
    let path = output.path();
    let events = journal::count_samples(path).context("cannot count the events")?;
    close(path, events, lost, "perf report -i")?;
    Ok(Outcome::Done)
}

/// Waits until the journal is in the tables; a second Ctrl-C leaves that to `perfquet-convert`.
fn complete_trace(
    output: &Output,
    encoder: Encoder,
    signals: &Signals,
    keeps_journal: bool,
) -> Result<Outcome> {
    encoder.hurry();
    let progress = Progress::start(false);
    let journal_bytes = size_of(&output.journal_path()).unwrap_or(0);
    let path = output.path();
    while !encoder.has_ended() {
        let signal = signals.wait(TICK / 10).context("cannot wait for signals")?;
        if signal == Some(Signal::Finish) {
            progress.clear();
            output.give_to_caller();
            eprintln!(
                "{0}: the journal is whole, its tables are not; next: perfquet-convert {0}",
                path.display()
            );
            return Ok(Outcome::Interrupted);
        }
        progress.encoding(encoder.done_bytes(), journal_bytes);
    }
    progress.clear();
    let report = encoder.finish(path);
    if report.is_err() {
        output.give_to_caller();
    }
    let counts = report?.counts;
    output.complete(keeps_journal)?;
    close(path, counts.events, counts.lost, "perfquet-query top")?;
    if counts.problems > 0 {
        eprintln!(
            "{} places could not be read: see the table problems",
            counts.problems
        );
    }
    Ok(Outcome::Done)
}

/// What `-e`, the probes, `--filter`, `-F` and `-c` say together.
fn probes(cli: &Cli, definitions: &mut Option<Definitions>) -> Result<Vec<Probe>> {
    if cli.has_lonely_filter {
        return Err(
            misuse("--filter belongs to the event or probe before it, and there is none").into(),
        );
    }
    let mut probes = Vec::new();
    for asked in &cli.asked {
        let mut found = probe::of(asked.option, &asked.text, definitions)?;
        for filter in &asked.filters {
            set_filter(&mut found, &asked.text, filter)?;
        }
        probes.extend(found);
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
        let (mut events, mut lost) = (0u64, 0);
        for (track, _, counts) in self.recording.counts() {
            let lost_here = counts.lost.unwrap_or(0);
            let occurred = track.samples_in(counts.value, self.progress.elapsed());
            lost += lost_here;
            events += occurred.saturating_sub(lost_here);
        }
        Shown {
            events: Some(events),
            lost,
            bytes,
        }
    }

    /// Stops the events and completes the journal. Says how that went, and how many events were lost; whatever
    /// went wrong, the journal is whole.
    fn finish(mut self, definitions: Option<&mut Definitions>) -> (Result<()>, u64) {
        self.recording.disable();
        self.progress.step("finishing");
        self.reap();
        let (mut journal, drained) = self.drain.finish();
        let ended = journal
            .losses(&self.recording)
            .and_then(|lost| journal.build_ids(&self.files).map(|()| lost))
            .and_then(|lost| journal.finish_round().map(|()| lost));
        // Few probes of our own are closed here, so that they are gone when we are.
        let removal = definitions.filter(|definitions| definitions.len() > MOST_CLOSED_HERE);
        let slow = self.recording.slow_to_close(removal.is_some());
        if !slow.is_empty() {
            let removal = removal.map(Definitions::leave).unwrap_or_default();
            child::close_elsewhere(&slow, &removal);
        }
        self.progress.clear();
        say_goodbye(self.command, self.command_ended);
        let lost = ended.as_ref().copied().unwrap_or(0);
        let result = drained.and(ended.map(drop)).map_err(|error| {
            failed(format!(
                "the recording ended early: cannot write the journal: {error}"
            ))
            .hint("what was written until then is in the trace")
            .into()
        });
        (result, lost)
    }
}

/// Tells how the command ended, and ends it if it still runs.
fn say_goodbye(command: Option<i32>, ended: Option<Ended>) {
    match (command, ended) {
        (Some(pid), None) => {
            child::terminate(pid);
            log::info!("sent SIGTERM to the command, process {pid}");
        }
        (_, Some(Ended::Exited(status))) if status != 0 => {
            log::warn!("the command ended with status {status}");
        }
        (_, Some(Ended::Killed(signal))) => {
            log::warn!("the command was killed by signal {signal}");
        }
        (_, Some(Ended::Exited(_)) | None) => {}
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
