//! Runs one recorder after another, and keeps the ring within its limits.

use perfquet_cli::terminal;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::children::Recorder;
use super::folder::{Folder, State};
use super::handover::Started;
use super::publishing::{Destination, Publishing};
use super::recovery::{Outcome, Recovery};
use super::{Limits, PARTS};
use crate::failure::failed;
use crate::sys::child::Ended;
use crate::sys::procfs;
use crate::sys::signals::{Signal, Signals, User};
use crate::target::{Family, Target};

/// Interval at which the ring is measured, and while one recorder follows another.
const TICK: Duration = Duration::from_millis(200);
const SHORT_TICK: Duration = Duration::from_millis(10);
/// Longest time until a recorder ends whose target has ended.
const LONGEST_END: Duration = Duration::from_secs(5);
/// Pause after a recorder that failed, doubled up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A ring to record.
pub(crate) struct Request {
    /// The directory.
    pub(crate) path: PathBuf,
    pub(crate) limits: Limits,
    pub(crate) target: Target,
    /// Complete traces keep their journal.
    pub(crate) keeps_journals: bool,
    pub(crate) duration: Option<Duration>,
    /// Where complete traces go.
    pub(crate) destination: Option<Destination>,
}

/// How it ended.
pub(crate) enum End {
    /// All traces are complete. Contains the status of the last recorder if it failed.
    Done(Option<Ended>),
    /// A second signal left tables to the next start.
    Interrupted,
}

/// Records until a signal, the given duration, or the end of the target.
pub(crate) fn run(request: &Request) -> Result<End> {
    let signals = Signals::block().context("cannot wait for signals")?;
    let relatives = match &request.target {
        Target::Processes(roots) => Relatives::of(roots),
        _ => None,
    };
    // What is missing is reported before anything is created.
    let destination = request.destination.clone();
    let publishing = destination.map(|it| Publishing::open(&request.path, it));
    let publishing = publishing.transpose()?;
    let folder = Folder::open(&request.path, request.keeps_journals)?;
    let mut ring = Ring {
        relatives,
        folder,
        publishing,
        limits: request.limits,
        keeps_journal: request.keeps_journals,
        current: None,
        next: None,
        finishing: Vec::new(),
        recovery: None,
        has_recorded: false,
        is_over: false,
        failed: None,
        is_switching: false,
        is_full: false,
        pause: FIRST_PAUSE,
        resumes: Instant::now(),
    };
    ring.measure()?;
    let deadline = request
        .duration
        .and_then(|duration| Instant::now().checked_add(duration));
    loop {
        if ring.step()? {
            return ring.finish(&signals);
        }
        if request.target.has_ended() {
            ring.let_end(&signals)?;
            return ring.finish(&signals);
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return ring.finish(&signals);
        }
        let tick = if ring.next.is_some() {
            SHORT_TICK
        } else {
            TICK
        };
        let wait = left.map_or(tick, |left| left.min(tick));
        match signals.wait(wait).context("cannot wait for signals")? {
            Some(Signal::Finish) => return ring.finish(&signals),
            Some(Signal::User(User::Two)) => ring.is_switching = true,
            Some(Signal::User(User::One) | Signal::Child) | None => {}
        }
    }
}

/// The recorders of a ring and what they are to do. One struct, because each step of the loop decides by all of them.
struct Ring {
    relatives: Option<Relatives>,
    folder: Folder,
    publishing: Option<Publishing>,
    limits: Limits,
    keeps_journal: bool,
    current: Option<Recorder>,
    /// The one that starts before the current one ends.
    next: Option<Recorder>,
    /// Recorders that write their last tables.
    finishing: Vec<Recorder>,
    recovery: Option<Recovery>,
    /// Whether any recorder has recorded: until then, a failure ends everything.
    has_recorded: bool,
    /// The last recorders are ending.
    is_over: bool,
    /// The status of the last recorder, if it failed.
    failed: Option<i32>,
    /// A signal requests a new trace.
    is_switching: bool,
    /// The size of --keep is used up by traces that are being completed.
    is_full: bool,
    pause: Duration,
    resumes: Instant,
}

impl Ring {
    /// Starts, ends and removes recordings whose time has come. Returns whether there is nothing more to record, for example because
    /// the target has ended.
    fn step(&mut self) -> Result<bool> {
        for recorder in self.current.iter_mut().chain(&mut self.next) {
            recorder.listen();
        }
        if let Some(relatives) = &mut self.relatives
            && relatives.are_due()
        {
            relatives.look();
        }
        self.reap_finishing()?;
        if self.reap_current() {
            return Ok(true);
        }
        self.reap_next();
        self.hand_over();
        self.measure()?;
        self.publish();
        self.rotate()?;
        Ok(false)
    }

    /// Passes complete traces on. No failure of that ends the recording.
    fn publish(&mut self) {
        let Some(publishing) = &mut self.publishing else {
            return;
        };
        let complete = self.folder.in_state(State::Complete).into_iter();
        let complete = complete.map(|path| {
            let bytes = self.folder.bytes_of(&path);
            (path, bytes)
        });
        if let Err(error) = publishing.step(complete.collect()) {
            log::debug!("{}", terminal::sentence(error.chain()));
        }
    }

    /// Forgets recorders that have completed their traces.
    fn reap_finishing(&mut self) -> Result<()> {
        for mut recorder in std::mem::take(&mut self.finishing) {
            recorder.listen();
            match recorder.ended() {
                None => self.finishing.push(recorder),
                Some(_) if recorder.is_discarded => {
                    if recorder.path.exists() {
                        self.folder.remove(&recorder.path)?;
                    }
                }
                Some(status) => self.failed = failure(status),
            }
        }
        Ok(())
    }

    /// Looks whether the current recorder has ended. Returns whether there is nothing more to record.
    fn reap_current(&mut self) -> bool {
        let Some(current) = &mut self.current else {
            return false;
        };
        let Some(status) = current.ended() else {
            return false;
        };
        current.listen();
        let Some(current) = self.current.take() else {
            return false;
        };
        self.failed = failure(status);
        let has_begun = current.has_begun || self.has_recorded;
        if !current.is_ending && (status.success() || !has_begun) {
            return true;
        }
        if !current.is_ending || current.ended_at.is_none() {
            let path = current.path.display();
            log::warn!(
                "{path}: its recorder ended early ({status}); events until the next trace are missing"
            );
            if current.started.elapsed() > LONGEST_PAUSE {
                self.pause = FIRST_PAUSE;
            }
            self.resumes = Instant::now() + self.pause;
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
        if let Some(mut next) = self.next.take() {
            if let Some(ended_at) = current.ended_at {
                next.follow(Some(ended_at), &current.tasks);
            }
            self.current = Some(next);
        }
        false
    }

    /// A next recorder that cannot start beside the current one starts after it.
    fn reap_next(&mut self) {
        let Some(next) = &mut self.next else {
            return;
        };
        let Some(status) = next.ended() else {
            return;
        };
        self.next = None;
        if status.success() {
            return; // The target has ended.
        }
        log::warn!(
            "no recorder could start beside the running one ({status}); starting it afterward"
        );
        if let Some(current) = &mut self.current {
            current.end();
        }
    }

    /// Ends the current recorder once the next one is ready; lets that one begin at its end.
    fn hand_over(&mut self) {
        let Some(current) = &mut self.current else {
            return;
        };
        if self.next.as_ref().is_some_and(|next| next.is_ready) && !current.is_ending {
            current.end();
        }
        if let Some(ended_at) = current.ended_at
            && current.is_ending
        {
            if let Some(relatives) = &mut self.relatives {
                relatives.add(&current.tasks);
            }
            if let Some(mut next) = self.next.take() {
                next.follow(Some(ended_at), &current.tasks);
                self.finishing.extend(self.current.replace(next));
            } else {
                self.finishing.extend(self.current.take());
            }
        }
    }

    /// Measures the ring, removes the oldest traces, and completes those of killed recorders.
    fn measure(&mut self) -> Result<()> {
        self.folder
            .look()
            .context("cannot read the directory of traces")?;
        self.recover()?;
        let Some(keep) = self.limits.keep else {
            return Ok(());
        };
        let free_bytes = keep.bytes.map_or(0, |bytes| bytes / PARTS);
        let recorders = || self.current.iter().chain(&self.next).chain(&self.finishing);
        let recovered = self.recovery.as_ref().map(|recovery| &recovery.path);
        let mut busy: Vec<PathBuf> = recorders().map(|recorder| recorder.path.clone()).collect();
        busy.extend(recovered.cloned());
        let trimmed = self.folder.trim(keep, free_bytes, &busy);
        let fits = trimmed.context("cannot remove the oldest trace")?;
        if !fits && !self.is_full {
            log::warn!(
                "--keep: traces being completed use up the size; pausing until there is room"
            );
            self.end_recorders();
        }
        self.is_full = !fits;
        Ok(())
    }

    fn recover(&mut self) -> Result<()> {
        if self.recovery.as_ref().is_some_and(Recovery::has_ended)
            && let Some(recovery) = self.recovery.take()
        {
            let path = recovery.path.clone();
            match recovery.finish() {
                Ok(Outcome::Empty) => self.folder.remove(&path)?,
                Ok(Outcome::Complete) => self.folder.complete(&path),
                Err(error) => {
                    let error = terminal::sentence(error.chain());
                    log::warn!("{}: cannot be completed: {error}", path.display());
                    self.folder.complete(&path);
                }
            }
        }
        if self.recovery.is_none() && !self.is_over {
            let recorders = || self.current.iter().chain(&self.next).chain(&self.finishing);
            let abandoned = self.folder.in_state(State::Abandoned);
            let path = abandoned
                .into_iter()
                .find(|path| !recorders().any(|recorder| recorder.path == *path));
            self.recovery = path.map(|path| Recovery::start(path, self.keeps_journal));
        }
        Ok(())
    }

    /// Starts a recorder if there is none, or if the trace of the current one has reached its limits.
    fn rotate(&mut self) -> Result<()> {
        let is_due = match &self.current {
            None => self.next.is_none() && Instant::now() >= self.resumes && !self.is_full,
            Some(current) if !current.is_ready || current.is_ending => false,
            Some(current) => {
                let Limits { rotate, .. } = self.limits;
                let bytes = self.folder.bytes_of(&current.path);
                rotate
                    .time
                    .is_some_and(|time| current.started.elapsed() >= time)
                    || rotate.bytes.is_some_and(|most| bytes >= most)
                    || self.is_switching
            }
        };
        if !is_due || self.next.is_some() || self.is_full {
            self.begin_alone();
            return Ok(());
        }
        self.is_switching = false;
        let path = self.folder.next_path();
        let family = self.relatives.as_mut().map_or(&[][..], Relatives::look);
        let recorder = Recorder::start(path, family, self.has_recorded)
            .map_err(|error| failed(format!("cannot start a recorder: {error}")))?;
        match self.current {
            None => self.current = Some(recorder),
            Some(_) => self.next = Some(recorder),
        }
        Ok(())
    }

    /// Lets a recorder that follows no other begin.
    fn begin_alone(&mut self) {
        if let Some(current) = &mut self.current
            && current.is_ready
            && !current.has_begun
        {
            current.begin_after(None);
        }
        self.has_recorded |= self
            .current
            .as_ref()
            .is_some_and(|current| current.has_begun);
    }

    /// Waits until the current recorder sees that the target has ended, too. A signal would interrupt one that is ending.
    fn let_end(&mut self, signals: &Signals) -> Result<()> {
        let since = Instant::now();
        while since.elapsed() < LONGEST_END
            && let Some(current) = &mut self.current
        {
            current.listen();
            let has_ended = current.ended_at.is_some() || current.ended().is_some();
            if has_ended
                || signals
                    .wait(SHORT_TICK)
                    .context("cannot wait for signals")?
                    == Some(Signal::Finish)
            {
                break;
            }
        }
        Ok(())
    }

    /// Ends the current recorder; the next one has nothing to record.
    fn end_recorders(&mut self) {
        if let Some(current) = &mut self.current {
            if !current.has_begun {
                current.begin_after(None);
            }
            current.end();
        }
        if let Some(mut next) = self.next.take() {
            next.discard();
            self.finishing.push(next);
        }
    }

    /// Ends all recorders and waits for their traces. A second signal leaves the tables to the next start.
    fn finish(mut self, signals: &Signals) -> Result<End> {
        let mut is_interrupted = false;
        self.is_over = true;
        self.end_recorders();
        self.finishing.extend(self.current.take());
        while !self.finishing.is_empty() || self.recovery.as_ref().is_some_and(|it| !it.has_ended())
        {
            let signal = signals.wait(TICK).context("cannot wait for signals")?;
            if signal == Some(Signal::Finish) {
                is_interrupted = true;
                self.finishing.iter_mut().for_each(Recorder::interrupt);
                // What it leaves is completed at the next start.
                self.recovery = None;
            }
            self.reap_finishing()?;
            self.measure()?;
            self.publish();
        }
        self.publish_last(signals)?;
        match is_interrupted {
            true => Ok(End::Interrupted),
            // The recorder has printed why it failed.
            false => Ok(End::Done(self.failed.map(Ended::Exited))),
        }
    }

    /// Publishes what waits, until a failure or a signal.
    fn publish_last(&mut self, signals: &Signals) -> Result<()> {
        let since = Instant::now();
        if self.publishing.is_some() {
            self.measure()?;
            self.publish();
        }
        while let Some(publishing) = &self.publishing
            && publishing.goes_on(since.elapsed())
            && signals.wait(TICK).context("cannot wait for signals")? != Some(Signal::Finish)
        {
            self.publish();
        }
        match self.publishing.take() {
            Some(publishing) => publishing.finish(),
            None => Ok(()),
        }
    }
}

/// The recorded processes, and those that they have started. A process whose parent has ended is found only if it was seen before, so
/// they are looked at again and again.
struct Relatives {
    family: Family,
    looked_at: Instant,
    /// What the last look took.
    took: Duration,
}

impl Relatives {
    fn of(roots: &[i32]) -> Option<Relatives> {
        let since = procfs::start_ticks(std::process::id() as i32)?;
        Some(Relatives {
            family: Family {
                roots: roots.to_vec(),
                known: Vec::new(),
                since,
            },
            looked_at: Instant::now(),
            took: Duration::ZERO,
        })
    }

    /// Whether it is time for a look: thousands of processes take no more than a hundredth of a CPU.
    fn are_due(&self) -> bool {
        self.looked_at.elapsed() >= TICK.max(100 * self.took)
    }

    /// Adds processes whose parents had ended before they were seen.
    fn add(&mut self, tasks: &Started) {
        let is_process = |tid: &i32| procfs::process_of(*tid) == Some(*tid);
        self.family.known.extend(tasks.tids().filter(is_process));
    }

    /// Returns the processes that there are now.
    fn look(&mut self) -> &[i32] {
        let begin = Instant::now();
        self.family.known = self.family.members();
        self.looked_at = Instant::now();
        self.took = self.looked_at - begin;
        &self.family.known
    }
}

/// The status of a recorder that failed. What a killed one leaves is completed.
fn failure(status: ExitStatus) -> Option<i32> {
    status.code().filter(|&code| code != 0)
}
