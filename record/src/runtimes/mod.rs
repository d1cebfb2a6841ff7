//! Perf maps of runtimes with a just-in-time compiler: the recorder requests them from running processes.
//!
//! ```text
//! java   Compiler.perfmap by the attach protocol ([`java`])      → /tmp/perf-PID.map
//! .NET   EnablePerfMap by the diagnostics protocol ([`dotnet`])  → /tmp/perf-PID.map
//! node   writes one only if it was started with --perf-basic-prof (user_stacks reads its functions from its memory)
//! ```
//! Maps are requested during the recording, since a process may end before it, and at its end, before the command is
//! stopped: the last map has the most names. A separate thread sends the requests, because a runtime may answer late.
//!
//! A process may end between two looks at `/proc`, most of all on a busy host, so the kernel's records of mapped files
//! decide which processes had a runtime ([`Sightings`]).

mod dotnet;
mod java;
mod process;
mod sightings;
mod summary;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use clap::Args;
use perfquet_trace::symbols::limits::{ANSWER_MS_MAX, LAST_REQUEST_MS_MAX, LAST_REQUESTS_MS_MAX};

use crate::sys::procfs;
use process::{Process, Runtime};
use sightings::Sighting;

pub(crate) use sightings::Sightings;
pub(crate) use summary::Summary;

/// First request of a process that is older than the recording, and the longest time between two.
const FIRST_REQUEST: Duration = Duration::from_secs(1);
const REQUESTS_MAX: Duration = Duration::from_secs(60);
const REQUESTS_GROW: u32 = 2;
/// Age of a process at the first look at its libraries. Most processes end before, and a look costs as much as all else that is
/// done for a process. Later looks are rare: a runtime's libraries are mapped soon after the start.
const FIRST_LOOK: Duration = Duration::from_secs(1);
const LOOKS_GROW: u32 = 4;
const LOOKS_MAX: Duration = Duration::from_secs(64);
/// Time between two checks for requests that are due.
const TICK: Duration = Duration::from_millis(250);
/// Limit for an answer. Writing a large map takes a second.
const LONGEST_ANSWER: Duration = Duration::from_millis(ANSWER_MS_MAX);
/// Limit for all requests at the end, and for one of them.
const LONGEST_END: Duration = Duration::from_millis(LAST_REQUESTS_MS_MAX);
const LONGEST_LAST_ANSWER: Duration = Duration::from_millis(LAST_REQUEST_MS_MAX);
/// Time for what is not a request.
const SLACK: Duration = Duration::from_millis(200);

/// Command-line options.
#[derive(Debug, Clone, Copy, Default, Args)]
#[group(id = "runtimes")]
pub(crate) struct Options {
    /// Do not request perf maps from Java and .NET processes
    ///
    /// By default, a recording of samples or stacks makes Java (JDK 17) and .NET (8) write /tmp/perf-PID.map, so that compiled
    /// functions have names: 1 s after the start of the process or recording, then at growing intervals, and at the end.
    /// Requests go only to processes of the target that belong to the recorder's user; those of root, to all in the target.
    #[arg(long = "no-runtime-maps")]
    is_off: bool,
    /// Do not read the frames of interpreters
    ///
    /// By default, stacks that are walked in the kernel (-g as root) have Python, Ruby and JavaScript functions with their lines
    /// in place of the interpreter's frames (Python 3.11 to 3.14, Ruby 3.1 and 3.3, Node.js 18 to 26), in traces but not in
    /// perf.data or with --ring.
    #[arg(long = "no-interpreter-frames", alias = "no-python-frames")]
    has_no_interpreters: bool,
}

impl Options {
    /// Whether stacks have functions of interpreters.
    pub(crate) fn has_interpreters(&self) -> bool {
        !self.has_no_interpreters
    }
}

/// The thread that requests perf maps.
pub(crate) struct Runtimes {
    messages: Sender<Message>,
    summaries: Receiver<Summary>,
}

enum Message {
    /// The processes of the target that run now.
    Look(Vec<i32>),
    /// A process that has mapped a runtime, and has ended.
    Ended(Sighting),
    /// Send the last requests, until this time.
    Finish(Instant),
}

impl Runtimes {
    /// Starts the thread; `None` if it is switched off.
    pub(crate) fn start(options: Options) -> Option<Runtimes> {
        if options.is_off {
            return None;
        }
        let (messages, received) = channel();
        let (results, summaries) = channel();
        // Keeps the inherited thread name: the filter that excludes the recorder matches by name.
        std::thread::spawn(move || {
            let mut watch = Watch::default();
            let until = watch.run(&received);
            // Nobody waits for it if it is too late.
            let _ = results.send(watch.finish(until));
        });
        Some(Runtimes {
            messages,
            summaries,
        })
    }

    /// Returns what looks at the kernel's records for processes with a runtime.
    pub(crate) fn sightings(&self) -> Sightings {
        Sightings::new(self.messages.clone())
    }

    /// Passes the processes of the target that run now.
    pub(crate) fn look(&self, pids: Vec<i32>) {
        // The thread ends only after its last message.
        let _ = self.messages.send(Message::Look(pids));
    }

    /// Sends the last requests, and returns the results. Takes at most 1.7 s.
    pub(crate) fn finish(self) -> Summary {
        let until = Instant::now() + LONGEST_END;
        let _ = self.messages.send(Message::Finish(until));
        // Another request may be in progress: its time is part of this.
        let summary = self.summaries.recv_timeout(LONGEST_END + SLACK);
        summary.unwrap_or_else(|_| Summary::late())
    }
}

/// All processes seen so far.
#[derive(Default)]
struct Watch {
    processes: HashMap<i32, Watched>,
    began: Option<Instant>,
    /// Ended ones with a runtime.
    ended: Vec<Known>,
    /// Ended ones by the kernel's records.
    sighted: Vec<Sighting>,
}

/// A process, with or without a runtime.
struct Watched {
    start: u64,
    executable: Option<PathBuf>,
    /// Whether it started during the recording, or just before, as a command does.
    is_of_recording: bool,
    /// When to look for a runtime, and the time until the next look.
    next_look: Instant,
    pause: Duration,
    known: Option<Known>,
}

/// A process with a runtime, and the result of its requests.
struct Known {
    pid: i32,
    runtime: Runtime,
    /// `None`: it ended before it was looked at.
    process: Option<Process>,
    next_request: Instant,
    pause: Duration,
    /// CPU time at the last request, and before the recording.
    cpu_ticks: u64,
    has_run: bool,
    is_running: bool,
    has_map: bool,
    /// Whether it took too long to answer: it would delay the requests to others.
    is_slow: bool,
    /// Why it has none.
    reason: Option<String>,
    keeps_frame_pointers: Option<bool>,
}

impl Watch {
    /// Runs until the last message. Returns until when to finish.
    fn run(&mut self, messages: &Receiver<Message>) -> Instant {
        self.began = Some(Instant::now());
        loop {
            match messages.recv_timeout(TICK) {
                Ok(Message::Look(pids)) => self.look(&pids),
                Ok(Message::Ended(sighting)) => self.sighted.push(sighting),
                Ok(Message::Finish(until)) => return until,
                Err(RecvTimeoutError::Timeout) => {}
                // The recording failed.
                Err(RecvTimeoutError::Disconnected) => return Instant::now(),
            }
            self.request_due();
        }
    }

    fn look(&mut self, pids: &[i32]) {
        let own = std::process::id() as i32;
        for &pid in pids.iter().filter(|pid| **pid != own) {
            self.look_at(pid);
        }
        let running: HashSet<i32> = pids.iter().copied().collect();
        let has_gone = |pid: &i32, watched: &mut Watched| {
            !running.contains(pid) && procfs::start_ticks(*pid) != Some(watched.start)
        };
        let gone = self.processes.extract_if(has_gone);
        let gone: Vec<Known> = gone.filter_map(|(_, watched)| watched.known).collect();
        self.ended.extend(gone.into_iter().map(Known::ended));
    }

    fn look_at(&mut self, pid: i32) {
        let Some(start) = procfs::start_ticks(pid) else {
            return;
        };
        let now = Instant::now();
        let executable = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
        let is_other =
            |watched: &Watched| watched.start != start || watched.executable != executable;
        // A program that another one has executed is as old as its process, but its libraries are not.
        let mut age = procfs::age(start);
        if self.processes.get(&pid).is_some_and(is_other)
            && let Some(former) = self.processes.remove(&pid)
        {
            self.ended.extend(former.known.map(Known::ended));
            age = Duration::ZERO;
        }
        let began = self.began.map_or(Duration::ZERO, |began| now - began);
        let watched = self.processes.entry(pid).or_insert_with(|| Watched {
            start,
            executable,
            is_of_recording: age < began + FIRST_LOOK,
            next_look: now + FIRST_LOOK.saturating_sub(age),
            pause: FIRST_LOOK,
            known: None,
        });
        if watched.known.is_none() && now >= watched.next_look && watched.pause <= LOOKS_MAX {
            watched.next_look = now + watched.pause;
            watched.pause *= LOOKS_GROW;
            watched.look(pid, now);
        }
    }

    /// Sends the requests that are due.
    fn request_due(&mut self) {
        let now = Instant::now();
        for watched in self.processes.values_mut() {
            if let Some(known) = &mut watched.known
                && known.next_request <= now
            {
                known.next_request = now + known.pause;
                known.pause = (known.pause * REQUESTS_GROW).min(REQUESTS_MAX);
                known.request(LONGEST_ANSWER);
            }
        }
    }

    /// Sends the last requests.
    fn finish(mut self, until: Instant) -> Summary {
        let now = Instant::now();
        // Those too young for a first look may have a runtime, too.
        for (&pid, watched) in &mut self.processes {
            if watched.known.is_none() && watched.pause == FIRST_LOOK && now < until {
                watched.look(pid, now);
            }
        }
        let watched = self.processes.into_values();
        let mut all: Vec<Known> = watched.filter_map(|watched| watched.known).collect();
        all.sort_by_key(|known| known.pid);
        for known in &mut all {
            let left = until.saturating_duration_since(Instant::now());
            match left.is_zero() {
                false => known.request(left.min(LONGEST_LAST_ANSWER)),
                true => known.fail("the time for requests had run out"),
            }
        }
        self.ended.extend(all);
        let missed = self.sighted.into_iter().filter_map(|sighting| {
            let is_known = |known: &Known| known.pid == sighting.pid;
            (!self.ended.iter().any(is_known)).then(|| Known::missed(sighting))
        });
        let missed: Vec<Known> = missed.collect();
        self.ended.extend(missed);
        Summary::of(self.ended.iter().filter(|known| known.has_run))
    }
}

impl Watched {
    /// Looks for a runtime.
    fn look(&mut self, pid: i32, now: Instant) {
        if let Some(process) = Process::find(pid, self.start) {
            log::debug!("process {pid} runs {}", process.runtime.name());
            self.known = Some(Known::new(process, self.is_of_recording, now));
        }
    }
}

impl Known {
    fn new(process: Process, is_of_recording: bool, now: Instant) -> Known {
        let (cpu_ticks, until_request) = match is_of_recording {
            true => (0, Duration::ZERO),
            false => (process.cpu_ticks().unwrap_or(0), FIRST_REQUEST),
        };
        Known {
            cpu_ticks,
            pid: process.pid,
            runtime: process.runtime,
            process: Some(process),
            next_request: now + until_request,
            pause: FIRST_REQUEST * REQUESTS_GROW,
            has_run: false,
            is_running: true,
            has_map: false,
            is_slow: false,
            reason: None,
            keeps_frame_pointers: None,
        }
    }

    /// A process that ended before it was looked at.
    fn missed(sighting: Sighting) -> Known {
        Known {
            cpu_ticks: 0,
            pid: sighting.pid,
            runtime: sighting.runtime,
            process: None,
            next_request: Instant::now(),
            pause: REQUESTS_MAX,
            has_run: true,
            is_running: false,
            has_map: sighting.has_map(),
            is_slow: false,
            reason: None,
            keeps_frame_pointers: None,
        }
    }

    fn ended(mut self) -> Known {
        self.is_running = false;
        self.has_run |= self.cpu_ticks > 0;
        self
    }

    fn fail(&mut self, reason: &str) {
        if !self.has_map {
            self.reason = Some(reason.to_owned());
        }
    }

    /// Requests the map, unless the process has not run since the last request.
    fn request(&mut self, limit: Duration) {
        let Some(process) = self.process.take_if(|process| process.is_running()) else {
            self.is_running = false;
            return;
        };
        self.request_of(&process, limit);
        self.process = Some(process);
    }

    fn request_of(&mut self, process: &Process, limit: Duration) {
        let cpu_ticks = process.cpu_ticks().unwrap_or(0);
        if cpu_ticks == self.cpu_ticks || self.is_slow {
            return;
        }
        self.cpu_ticks = cpu_ticks;
        self.has_run = true;
        if self.runtime != Runtime::Node && !process.is_permitted() {
            return self.fail("the process belongs to another user");
        }
        let began = Instant::now();
        let until = began + limit;
        let written = match self.runtime {
            Runtime::Java => java::write_map(process, until),
            Runtime::DotNet => dotnet::write_map(process, until),
            Runtime::Node => process.has_map(),
        };
        match written {
            Ok(()) => {
                self.has_map = true;
                self.reason = None;
                log::info!(
                    "{} {} has a perf map ({} ms)",
                    self.runtime.name(),
                    self.pid,
                    began.elapsed().as_millis()
                );
            }
            Err(_) if Instant::now() >= until => {
                self.is_slow = true;
                self.fail("it did not answer in time");
            }
            Err(error) => {
                log::debug!("perf map of process {}: {error}", self.pid);
                self.fail(&error.to_string());
            }
        }
        if self.runtime == Runtime::Java && self.has_map && self.keeps_frame_pointers.is_none() {
            self.keeps_frame_pointers = java::keeps_frame_pointers(process, until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_a_new_process_are_not_looked_at() {
        let mut child = std::process::Command::new("sleep");
        let mut child = child.arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        let mut watch = Watch {
            began: Instant::now().checked_sub(Duration::from_secs(60)),
            ..Watch::default()
        };
        watch.look(&[1, pid]);
        let next_pause = |watch: &Watch, pid| watch.processes[&pid].pause;
        assert_eq!(next_pause(&watch, 1), FIRST_LOOK * LOOKS_GROW);
        assert_eq!(next_pause(&watch, pid), FIRST_LOOK);
        assert!(watch.processes[&pid].is_of_recording);
        watch.processes.get_mut(&pid).unwrap().next_look = Instant::now();
        watch.look(&[pid]);
        assert_eq!(next_pause(&watch, pid), FIRST_LOOK * LOOKS_GROW);
        child.kill().unwrap();
        child.wait().unwrap();
        watch.look(&[]);
        assert!(!watch.processes.contains_key(&pid));
    }
}
