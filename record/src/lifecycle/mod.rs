//! A running recording: [`start`], what happens until its end, [`stop`].

mod command;
mod start;
mod stop;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use perfquet_events::event::{Purpose, Selection};

use crate::bpf::{Live, Programs};
use crate::control::{Command, Control};
use crate::cpu_limit::CpuLimit;
use crate::drain::Drain;
use crate::flight::Snapshots;
use crate::ftrace::Tracing;
use crate::journal::header;
use crate::journal::own_records::OwnRecords;
use crate::kept_code::{self, Keeper};
use crate::live::{self, Display};
use crate::output::progress::{Progress, Shown, TICK};
use crate::periods::Periods;
use crate::recording::{OWN_ID, Recording};
use crate::rotation::Handover;
use crate::runtimes::Runtimes;
use crate::stat::Counters;
use crate::switch::Switch;
use crate::sys::child::{self, Ended};
use crate::sys::clock::{self, Moments};
use crate::sys::signals::{Signal, Signals};
use crate::target::Target;
use crate::target::containers::Containers;
use crate::trigger::{self, Seen};
use perfquet_cli::terminal;

pub(crate) use start::{Bounds, Opened, Start, Upkeep};
pub(crate) use stop::Stopped;

/// Time after which threads that were being started are in the kernel's list of those that inherited an event.
const HEIRS_LISTED: Duration = Duration::from_millis(20);
/// Beyond this number of descriptors, counting by reading each is too slow.
const MOST_COUNTED: usize = 256;

/// A running recording.
pub(crate) struct Running {
    target: Target,
    /// The command that it records, and its end.
    command: RunningCommand,
    recording: Recording,
    programs: Programs,
    drain: Drain,
    pub(crate) tracing: Option<Tracing>,
    counters: Option<Counters>,
    pub(crate) containers: Containers,
    beside: Beside,
    pub(crate) extent: Extent,
    on: On,
    /// Aggregates are read at these times.
    readings: Option<Readings>,
    /// The limit of CPU use, and the periods that it has changed.
    cpu_limit: Option<(CpuLimit, Arc<Mutex<Periods>>)>,
    moments: Moments,
    screen: Screen,
}

/// What looks into processes beside the drain.
struct Beside {
    runtimes: Option<Runtimes>,
    code: Option<Keeper>,
}

/// The recorded command, if there is one.
#[derive(Debug, Clone, Copy)]
struct RunningCommand {
    pid: Option<i32>,
    ended: Option<Ended>,
}

/// Where the rows of the trace begin and end.
pub(crate) struct Extent {
    pub(crate) selection: Selection,
    /// What the triggers have seen.
    pub(crate) seen: Arc<Seen>,
    /// Whether the start triggers are disabled.
    starts_are_off: bool,
}

/// Whether it records at this moment, and who changes that.
struct On {
    switch: Switch,
    control: Option<Control>,
    /// The other traces of a ring.
    handover: Option<Handover>,
}

/// What the terminal shows.
struct Screen {
    progress: Progress,
    display: Option<Display>,
    /// Number of bytes written, or held by a flight recorder.
    written: Arc<AtomicU64>,
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
    /// Returns how the command ended, if it has.
    pub(crate) fn command_ended(&self) -> Option<Ended> {
        self.command.ended
    }

    /// Displays the recording instead of its progress.
    pub(crate) fn display(&mut self, request: live::Request) {
        self.screen.progress = Progress::start(true);
        self.screen.display = Some(Display::start(request));
    }

    /// Keeps the code of sampled functions that will be gone.
    pub(crate) fn keep_code(&mut self, request: kept_code::Request) {
        self.beside.code = Some(Keeper::start(request, self.drain.added()));
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
        let duration = duration.map(|duration| duration + self.on.switch.delay());
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
            let wait = self.on.switch.due().map_or(wait, |left| wait.min(left));
            let channel = self.on.control.as_ref().and_then(Control::fd);
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
            self.moments.look();
            self.reap();
            let pids = self.containers.look(&self.target, self.command.pid);
            if let (Some(runtimes), Some(pids)) = (&self.beside.runtimes, pids) {
                runtimes.look(pids);
            }
            let is_orphaned = self.on.handover.as_ref().is_some_and(Handover::is_orphaned);
            if self.command.ended.is_some()
                || self.target.has_ended()
                || self.has_failed()
                || is_orphaned
            {
                return Ok(());
            }
            self.look_for_triggers();
            let tracing = self.tracing.as_ref();
            let has_calls =
                tracing.is_some_and(|tracing| tracing.has_enough(&self.extent.selection));
            if has_enough() || has_calls || self.extent.seen.is_over(&self.extent.selection) {
                return Ok(());
            }
            if let Some(display) = &self.screen.display {
                // Without a limit, nobody would end a recording whose reader has gone.
                let is_closed =
                    display.is_closed() && duration.is_none() && self.command.pid.is_none();
                if is_closed || display.is_quit() {
                    return Ok(());
                }
                display.note(self.shown());
            }
            if self.screen.progress.is_visible() {
                self.screen.progress.show(self.shown());
            }
        }
    }

    /// Carries out the commands that have arrived.
    fn obey(&mut self, snapshots: Option<&Snapshots>) -> Asked {
        let mut asked = Asked::Nothing;
        let commands = self.on.control.as_mut().map(Control::arrived);
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
            if let Some(control) = &mut self.on.control {
                control.answer(done);
            }
        }
        asked
    }

    /// Begins to record after the delay.
    fn switch_in_time(&mut self) -> Result<()> {
        if self.on.switch.begins() {
            self.resume()?;
        }
        if self.on.switch.repeats() {
            self.recording.switch(true)?;
            if let Some(counters) = &mut self.counters {
                counters.switch(true)?;
            }
        }
        Ok(())
    }

    /// Begins to record, or goes on after a pause.
    fn resume(&mut self) -> Result<()> {
        if self.on.switch.is_on {
            return Ok(());
        }
        self.recording.switch(true)?;
        if !self.target.is_of_cpus() {
            // A thread that is being started may have inherited disabled events without being in the list of heirs yet.
            std::thread::sleep(HEIRS_LISTED);
            self.recording.switch(true)?;
        }
        self.programs.start()?;
        if let Some(counters) = &mut self.counters {
            counters.switch(true)?;
        }
        let time = self.drain.resume();
        if self.on.switch.turn_on(!self.target.is_of_cpus()) {
            if let Some(counters) = &mut self.counters {
                counters.begin();
            }
            self.extent.selection.begin = time.try_into().ok();
            self.drain
                .add(header::selection(&self.recording, &self.extent.selection));
        }
        Ok(())
    }

    /// Pauses.
    fn pause(&mut self) -> Result<()> {
        if self.on.switch.turn_off() {
            self.drain.pause();
            self.programs.stop();
            self.recording.switch(false)?;
            if let Some(counters) = &mut self.counters {
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
            && self.on.switch.has_been_on()
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
        if !self.extent.selection.waits
            || self.extent.starts_are_off
            || !self.extent.seen.has_started()
        {
            return;
        }
        self.extent.starts_are_off = true;
        for track in &self.recording.tracks {
            if matches!(trigger::purpose_of(track), Some(Purpose::Start(_))) {
                for opened in &track.events {
                    let _ = opened.event.disable();
                }
            }
        }
    }

    fn reap(&mut self) {
        if let Some(pid) = self.command.pid
            && self.command.ended.is_none()
        {
            self.command.ended = child::ended(pid);
        }
    }

    fn shown(&self) -> Shown {
        let pages_bytes = self.tracing.as_ref().map_or(0, Tracing::drained_bytes);
        let bytes = self.screen.written.load(Ordering::Relaxed) + pages_bytes;
        if self.recording.size() > MOST_COUNTED {
            return Shown {
                bytes,
                ..Shown::default()
            };
        }
        let (mut events, mut lost) = (0u64, 0);
        for (track, _, counts) in self.recording.counts() {
            let lost_here = counts.lost.unwrap_or(0);
            let occurred = track.samples_in(counts.value, self.screen.progress.elapsed());
            lost += lost_here;
            events += occurred.saturating_sub(lost_here);
        }
        Shown {
            events: Some(events),
            lost,
            bytes,
        }
    }
}
