//! A running recording: the order of starting, ending and closing.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use perfquet_events::event::{Purpose, Selection};
use perfquet_trace::symbols::limits::{HELD_FILES_MAX, UNWOUND_FILES_MAX};

use crate::bpf::{Live, Programs};
use crate::containers::Containers;
use crate::control::{Command, Control, Delay};
use crate::cpu_limit::CpuLimit;
use crate::drain::{Drain, Existing, Sink};
use crate::failure::{Failure, failed};
use crate::flight::Snapshots;
use crate::ftrace::Tracing;
use crate::journal::build_ids::MappedFiles;
use crate::journal::header;
use crate::journal::own_records::OwnRecords;
use crate::journal::processes;
use crate::live::{self, Display};
use crate::mapped_files::BuildIds;
use crate::periods::Periods;
use crate::probe::definition::Definitions;
use crate::process_states::{self, ProcessStates};
use crate::progress::{Progress, Shown};
use crate::recording::{OWN_ID, Recording, Rings};
use crate::rotation::Handover;
use crate::runtimes::{self, Runtimes};
use crate::side_band::Watchers;
use crate::stat::Counters;
use crate::switch::Switch;
use crate::sys::child::{self, Ended, Waiting};
use crate::sys::clock;
use crate::sys::limits::{self, Resource};
use crate::sys::signals::{Signal, Signals};
use crate::target::Target;
use crate::terminal;
use crate::trigger::{self, Gate, Seen, TriggerOptions};
use crate::user_stacks::{Counts, First, UserStacks, Walking};

/// Interval at which the end and signals are checked, and the progress line is drawn.
pub(crate) const TICK: Duration = Duration::from_millis(250);
/// Maximum time before programs count by stack, while unwind tables are loaded. Those of a compiler take a second.
const LONGEST_LOAD: Duration = Duration::from_secs(2);
/// Time after which threads that were being started are in the kernel's list of those that inherited an event.
const HEIRS_LISTED: Duration = Duration::from_millis(20);
/// Maximum number of probes closed in the foreground; closing one takes 20 to 40 ms.
const MOST_CLOSED_HERE: usize = 16;
/// Beyond this number of descriptors, counting by reading each is too slow.
const MOST_COUNTED: usize = 256;

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
    /// Whether stacks have Python functions.
    pub(crate) has_python: bool,
    /// Limit of the recorder's CPU use.
    pub(crate) cpu_limit: Option<CpuLimit>,
}

/// A running recording.
pub(crate) struct Running {
    target: Target,
    recording: Recording,
    programs: Programs,
    drain: Drain,
    /// Number of bytes written, or held by a flight recorder.
    written: Arc<AtomicU64>,
    pub(crate) containers: Containers,
    runtimes: Option<Runtimes>,
    command: Option<i32>,
    pub(crate) command_ended: Option<Ended>,
    progress: Progress,
    display: Option<Display>,
    pub(crate) tracing: Option<Tracing>,
    pub(crate) selection: Selection,
    pub(crate) seen: Arc<Seen>,
    /// Whether the start triggers are disabled.
    starts_are_off: bool,
    /// Aggregates are read at these times.
    readings: Option<Readings>,
    handover: Option<Handover>,
    switch: Switch,
    control: Option<Control>,
    counters: Option<Counters>,
    /// The limit of CPU use, and the periods that it has changed.
    cpu_limit: Option<(CpuLimit, Arc<Mutex<Periods>>)>,
}

/// When aggregates are read.
struct Readings {
    every: Duration,
    next: Instant,
    live: Option<Live>,
}

/// What a command asks the caller to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Nothing,
    Stop,
}

impl Running {
    /// Starts the events, then records what exists, then starts the command.
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
            has_python,
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
            has_python,
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
            let is_complete = is_loaded.recv_timeout(LONGEST_LOAD).is_ok();
            log::info!(
                "unwind tables of running programs were loaded for {} ms before counting began{}",
                begin_loading.elapsed().as_millis(),
                if is_complete {
                    ""
                } else {
                    ", and are not complete"
                }
            );
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
                .map_err(|error| cannot_run(waiting.name(), &error))?;
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
        })
    }

    /// Displays the recording instead of its progress.
    pub(crate) fn display(&mut self, request: live::Request) {
        self.progress = Progress::start(true);
        self.display = Some(Display::start(request));
    }

    /// Waits for the end of the command, a signal, the given duration, or the requested number of events. Snapshots are
    /// written during the wait.
    pub(crate) fn until_end(
        &mut self,
        signals: &Signals,
        duration: Option<Duration>,
        mut snapshots: Option<&mut Snapshots>,
        has_enough: &dyn Fn() -> bool,
    ) -> Result<()> {
        // A deadline that overflows is none.
        let duration = duration.map(|duration| duration + self.switch.delay());
        let deadline = duration.and_then(|duration| Instant::now().checked_add(duration));
        loop {
            if self.obey(snapshots.as_deref()) == Asked::Stop {
                return Ok(());
            }
            self.switch_in_time()?;
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(());
            }
            let wait = left.map_or(TICK, |left| left.min(TICK));
            let reading = self.readings.as_ref().map(|readings| readings.next);
            let until_reading = reading.map(|next| next.saturating_duration_since(Instant::now()));
            let wait = until_reading.map_or(wait, |left| wait.min(left));
            let wait = self.switch.due().map_or(wait, |left| wait.min(left));
            let channel = self.control.as_ref().and_then(Control::fd);
            match signals
                .wait_or(wait, channel)
                .context("cannot wait for signals")?
            {
                Some(Signal::Finish) => return Ok(()),
                Some(Signal::User(user)) => {
                    if snapshots
                        .as_ref()
                        .is_some_and(|snapshots| snapshots.ask(user))
                    {
                        self.drain.wake();
                    }
                }
                Some(Signal::Child) | None => {}
            }
            if let Some(snapshots) = &mut snapshots {
                if snapshots.look_at_loads() {
                    self.drain.wake();
                }
                snapshots.look();
            }
            self.read_aggregates()?;
            self.keep_cpu_limit();
            self.reap();
            let pids = self.containers.look(&self.target, self.command);
            if let (Some(runtimes), Some(pids)) = (&self.runtimes, pids) {
                runtimes.look(pids);
            }
            let is_orphaned = self.handover.as_ref().is_some_and(Handover::is_orphaned);
            if self.command_ended.is_some()
                || self.target.has_ended()
                || self.has_failed()
                || is_orphaned
            {
                return Ok(());
            }
            self.look_for_triggers();
            let tracing = self.tracing.as_ref();
            let has_calls = tracing.is_some_and(|tracing| tracing.has_enough(&self.selection));
            if has_enough() || has_calls || self.seen.is_over(&self.selection) {
                return Ok(());
            }
            if let Some(display) = &self.display {
                // Without a limit, nobody would end a recording whose reader has gone.
                let is_closed = display.is_closed() && duration.is_none() && self.command.is_none();
                if is_closed || display.is_quit() {
                    return Ok(());
                }
                display.note(self.shown());
            }
            if self.progress.is_visible() {
                self.progress.show(self.shown());
            }
        }
    }

    /// Carries out the commands that have arrived.
    fn obey(&mut self, snapshots: Option<&Snapshots>) -> Asked {
        let mut asked = Asked::Nothing;
        let commands = self.control.as_mut().map(Control::arrived);
        for command in commands.unwrap_or_default() {
            let done = match command {
                Command::Enable => self.resume().map_err(|error| format!("{error:#}")),
                Command::Disable => self.pause().map_err(|error| format!("{error:#}")),
                Command::Snapshot => match snapshots {
                    Some(snapshots) => {
                        snapshots.request();
                        self.drain.wake();
                        Ok(())
                    }
                    None => Err("snapshot: requires --ring".to_owned()),
                },
                Command::Ping => Ok(()),
                Command::Stop => {
                    asked = Asked::Stop;
                    Ok(())
                }
                Command::Unknown(text) => Err(Command::unknown(&text)),
            };
            if let Some(control) = &mut self.control {
                control.answer(done);
            }
        }
        asked
    }

    /// Begins to record after the delay.
    fn switch_in_time(&mut self) -> Result<()> {
        if self.switch.begins() {
            self.resume()?;
        }
        if self.switch.repeats() {
            self.recording.switch(true)?;
            if let Some(counters) = &self.counters {
                counters.switch(true)?;
            }
        }
        Ok(())
    }

    /// Begins to record, or goes on after a pause.
    fn resume(&mut self) -> Result<()> {
        if self.switch.is_on {
            return Ok(());
        }
        self.recording.switch(true)?;
        if !self.target.is_of_cpus() {
            // A thread that is being started may have inherited disabled events without being in the list of heirs yet.
            std::thread::sleep(HEIRS_LISTED);
            self.recording.switch(true)?;
        }
        self.programs.start()?;
        if let Some(counters) = &self.counters {
            counters.switch(true)?;
        }
        let time = self.drain.resume();
        if self.switch.turn_on(!self.target.is_of_cpus()) {
            if let Some(counters) = &mut self.counters {
                counters.begin();
            }
            self.selection.begin = time.try_into().ok();
            self.drain
                .add(header::selection(&self.recording, &self.selection));
        }
        Ok(())
    }

    /// Pauses.
    fn pause(&mut self) -> Result<()> {
        if self.switch.turn_off() {
            self.drain.pause();
            self.programs.stop();
            self.recording.switch(false)?;
            if let Some(counters) = &self.counters {
                counters.switch(false)?;
            }
        }
        Ok(())
    }

    /// Reads the aggregates if it is time.
    fn read_aggregates(&mut self) -> Result<()> {
        let Some(readings) = self.readings.as_mut() else {
            return Ok(());
        };
        let now = Instant::now();
        if now < readings.next {
            return Ok(());
        }
        // A reading that was too late by whole intervals does not make up for them.
        while readings.next <= now {
            readings.next += readings.every;
        }
        let records = self
            .programs
            .interval(&self.recording, readings.live.as_mut())?;
        self.drain.add(records);
        if let Some(live) = &mut readings.live
            && self.programs.has_sums()
        {
            live.print();
        }
        if let Some(counters) = &mut self.counters
            && self.switch.has_been_on()
        {
            let (records, lines) = counters.read()?;
            self.drain.add(records);
            if readings.live.is_some() {
                terminal::print(&lines);
            }
        }
        Ok(())
    }

    /// Samples less often if the recorder takes too much CPU time, and more often if it takes little.
    fn keep_cpu_limit(&mut self) {
        let Some((limit, periods)) = &mut self.cpu_limit else {
            return;
        };
        let Some(divisor) = limit.look() else {
            return;
        };
        let time = clock::monotonic();
        let mut records = OwnRecords::new(OWN_ID, time, 0);
        for (event, frequency_hz) in self.recording.divide_frequencies(divisor, periods) {
            records.rate(event, frequency_hz);
        }
        self.drain.add(records.into_bytes());
    }

    /// Whether a drain has failed, for example because the disk is full.
    fn has_failed(&self) -> bool {
        self.drain.has_failed() || self.tracing.as_ref().is_some_and(Tracing::has_failed)
    }

    /// Disables start triggers once one has fired.
    fn look_for_triggers(&mut self) {
        if !self.selection.waits || self.starts_are_off || !self.seen.has_started() {
            return;
        }
        self.starts_are_off = true;
        for track in &self.recording.tracks {
            if matches!(trigger::purpose_of(track), Some(Purpose::Start(_))) {
                for opened in &track.events {
                    let _ = opened.event.disable();
                }
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
        let pages_bytes = self.tracing.as_ref().map_or(0, Tracing::drained_bytes);
        let bytes = self.written.load(Ordering::Relaxed) + pages_bytes;
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

    /// Stops counting; returns the records of the last period.
    fn end_counts(&mut self) -> Vec<u8> {
        let Some(counters) = &mut self.counters else {
            return Vec::new();
        };
        if !self.switch.has_been_on() {
            return Vec::new();
        }
        let stopped = counters.switch(false);
        match stopped.and_then(|()| counters.read()) {
            Ok((records, _)) => records,
            Err(error) => {
                log::warn!("{error:#}");
                Vec::new()
            }
        }
    }

    /// Stops the events and drains the rings.
    pub(crate) fn stop(mut self) -> (Sink, io::Result<()>, Stopped) {
        let counts = self.end_counts();
        self.programs.stop();
        let traced = self.tracing.as_mut().map_or(Ok(()), Tracing::finish);
        let ended_at = self.drain.end();
        if let Some(handover) = &self.handover {
            handover.end(ended_at);
        }
        self.recording.disable();
        self.progress.step("finishing");
        // Recording has stopped, and the command still runs unless it exited.
        let runtimes = self.runtimes.take().map(Runtimes::finish);
        self.reap();
        if let (Some(pid), Some(ended), Some(_)) =
            (self.command, self.command_ended, self.recording.own_id)
        {
            self.drain.add(process_states::of_ended(pid, ended));
        }
        if let Some(display) = &self.display {
            display.note(self.shown());
        }
        let (sink, drained, user_stacks) = self.drain.finish();
        if let Some(display) = self.display.take() {
            display.finish();
        }
        let stopped = Stopped {
            recording: self.recording,
            programs: self.programs,
            counters: self.counters,
            counts,
            cpu_limit: self.cpu_limit.map(|(limit, _)| limit),
            command: self.command,
            command_ended: self.command_ended,
            progress: self.progress,
            traced,
            user_stacks,
            runtimes: runtimes.unwrap_or_default(),
        };
        (sink, drained, stopped)
    }
}

/// A recording whose events are stopped, but still open.
pub(crate) struct Stopped {
    pub(crate) recording: Recording,
    pub(crate) programs: Programs,
    pub(crate) counters: Option<Counters>,
    pub(crate) cpu_limit: Option<CpuLimit>,
    /// Records of the last counts.
    pub(crate) counts: Vec<u8>,
    command: Option<i32>,
    command_ended: Option<Ended>,
    progress: Progress,
    /// Result of function tracing.
    pub(crate) traced: Result<()>,
    /// The user stacks that were walked or unwound.
    pub(crate) user_stacks: Option<Counts>,
    /// Results of the requests for perf maps.
    pub(crate) runtimes: runtimes::Summary,
}

impl Stopped {
    /// Closes the events, in the background if that is slow; releases the command.
    pub(crate) fn close(self, definitions: Option<&mut Definitions>) {
        // A small number of own probes is closed in the foreground, so that they are removed when the recorder exits.
        let removal = definitions.filter(|definitions| definitions.len() > MOST_CLOSED_HERE);
        let mut slow = self.recording.slow_to_close(removal.is_some());
        slow.extend(self.programs.slow_to_close(removal.is_some()));
        if !slow.is_empty() {
            let lines = removal.as_ref().map(|definitions| definitions.removal());
            let closing = child::close_elsewhere(&slow, &lines.unwrap_or_default());
            if let (Some(_), Some(definitions)) = (&closing, removal) {
                definitions.forget();
            }
            drop((self.recording, self.programs));
            drop(closing);
        }
        self.progress.clear();
        end_command(self.command, self.command_ended);
    }
}

/// Returns the error with the exit status that a shell would use.
fn cannot_run(command: &str, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound => {
            let failure = failed(format!("cannot run {command}: {error}")).status(127);
            match tip(command) {
                Some(tip) => failure.hint(tip),
                None => failure,
            }
        }
        _ => failed(format!("cannot run {command}: {error}")).status(126),
    }
}

/// What to type instead of a subcommand of perf, which is taken for the command to record.
fn tip(command: &str) -> Option<&'static str> {
    match command {
        "record" => Some("omit the word: perfquet-record -g -- COMMAND"),
        "stat" => Some("use perfquet-record --stat -- COMMAND"),
        "top" => Some("use perfquet-record -a --live"),
        "list" => Some("use perfquet-record --list"),
        "trace" => Some("use perfquet-record --preset syscalls -- COMMAND"),
        "probe" => Some("use --kprobe or --uprobe"),
        "report" | "script" | "annotate" => Some("use perfquet-query"),
        _ => None,
    }
}

/// Returns how the command ended; ends it if it still runs.
fn end_command(command: Option<i32>, ended: Option<Ended>) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subcommands_of_perf_have_a_hint() {
        let error = io::Error::from(io::ErrorKind::NotFound);
        let hint = |command| cannot_run(command, &error).hint_text().map(str::to_owned);
        let expected = "omit the word: perfquet-record -g -- COMMAND";
        assert_eq!(hint("record").as_deref(), Some(expected));
        assert_eq!(hint("recorder"), None);
    }
}
