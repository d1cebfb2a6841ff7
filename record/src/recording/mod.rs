//! The open events of a recording, and the rings they write to.
//!
//! Each CPU has two rings: one for the events, one for the side-band (mappings, forks, names), so that a storm of
//! events cannot lose a mapping. Each ring belongs to an event that counts nothing; all other events write into it. The
//! rings can therefore be mapped smaller, if locked memory is scarce, before the tracepoints are opened, which are slow
//! to close.

mod attach;
mod attr;
mod open;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Error, Result};
use perfquet_events::event::Purpose;

use crate::cpu_limit::CpuLimit;
use crate::periods::Periods;
use crate::probe::extras::Extras;
use crate::probe::rejected::Rejected;
use crate::probe::stacks::Stacks;
use crate::probe::{Kind, Probe, counter, filter};
use crate::self_exclusion::{self, SelfExclusion};
use crate::sys::clock;
use crate::sys::limits::{self, Resource};
use crate::sys::perf_event::{Attr, Counts, Event, abi};
use crate::sys::privileges;
use crate::sys::ring::Ring;
use crate::sys::sample_filter::SampleFilter;
use crate::target::{Place, Target};
use attach::Attached;
use open::Owner;

pub(crate) use attr::{
    DEFAULT_FREQUENCY_HZ, Rate, attr_of_own_records, is_of_one_task, of_one_task, rate,
    warn_of_period,
};

/// Message for tracepoints of a pattern.
pub(crate) const NOT_RECORDED: &str = "cannot be recorded";

const NS_PER_SECOND: u64 = 1_000_000_000;

/// ID of the records of pauses, counts and rates, which belong to no event of the kernel. The kernel counts its IDs from 1.
pub(crate) const OWN_ID: u64 = 1 << 62;

/// Settings for all events, from the command line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    /// Samples per second.
    pub(crate) frequency_hz: Option<u64>,
    /// Sampling period: one sample per this many events.
    pub(crate) period: Option<u64>,
    /// Stacks of all events.
    pub(crate) stacks: Stacks,
    /// What else the samples of counters and clocks have.
    pub(crate) extras: Extras,
    /// Size of each ring in bytes; `None` for the best size allowed.
    pub(crate) ring_bytes: Option<usize>,
    /// Whether to exclude the recorder's own activity from everything.
    pub(crate) excludes_self: bool,
    /// Whether threads and processes started by the target are excluded.
    pub(crate) excludes_children: bool,
    /// Whether events are disabled until they are switched on.
    pub(crate) starts_paused: bool,
    /// Whether the journal can have records of pauses or counts.
    pub(crate) has_own_records: bool,
    /// The CPUs selected by the user.
    pub(crate) chosen_cpus: Option<Vec<u32>>,
    /// No record has an address, so mappings are not needed.
    pub(crate) has_no_addresses: bool,
}

/// One event in all its places.
pub(crate) struct Track {
    /// The probe, with the name of a substitute if one is used.
    pub(crate) probe: Probe,
    /// The attributes accepted by the kernel.
    pub(crate) attr: Attr,
    /// The open events.
    pub(crate) events: Vec<Opened>,
    /// A program in the kernel walks the user stacks of its samples.
    pub(crate) is_walked: bool,
    /// Whether the drain marks user stacks by frame pointers that do not reach the start of the thread.
    pub(crate) is_followed: bool,
    /// The track of the group's first event, whose samples have the values of this one; it has no samples.
    pub(crate) leader: Option<usize>,
    /// Whether the user requested the registers in its samples; otherwise they are for unwinding.
    pub(crate) keeps_registers: bool,
}

impl Track {
    /// Estimates how many records a counter's value represents. Clocks count nanoseconds; for other counters with a
    /// frequency, the elapsed time is used.
    pub(crate) fn samples_in(&self, value: u64, elapsed: Duration) -> u64 {
        let rate = self.attr.sample_freq;
        let seconds = match self.attr.freq() {
            0 => return value.checked_div(self.attr.sample_period).unwrap_or(0),
            _ if counter::is_clock(&self.attr) => value as f64 / 1e9,
            _ if value == 0 => 0.0,
            _ => elapsed.as_secs_f64(),
        };
        (seconds * rate as f64) as u64
    }
}

impl Track {
    fn set_frequency(
        &self,
        opened: &Opened,
        frequency_hz: u64,
        periods: &Mutex<Periods>,
    ) -> io::Result<()> {
        if !counter::is_clock(&self.attr) {
            return opened.event.set_period(frequency_hz);
        }
        // The kernel turned the frequency of a clock into a period when it was opened.
        let period = NS_PER_SECOND / frequency_hz;
        let mut periods = periods.lock().unwrap_or_else(PoisonError::into_inner);
        opened.event.set_period(period)?;
        periods.set(opened.id, &self.attr, clock::monotonic(), period);
        Ok(())
    }
}

/// The event that carries walks of user stacks.
pub(crate) const WALK: &str = "walk";

impl Track {
    /// Whether it is counted and sampled together with other events.
    fn is_of_group(&self) -> bool {
        self.leader.is_some() || !self.probe.members.is_empty()
    }

    /// Returns the requested frequency, if the event is sampled with one.
    pub(crate) fn frequency_hz(&self) -> Option<u64> {
        let is_sampled = self.probe.is_sampled() && self.leader.is_none() && self.attr.freq() == 1;
        is_sampled.then_some(self.attr.sample_freq)
    }

    /// Whether its samples have an address between the identifier and the thread.
    pub(crate) fn has_ip(&self) -> bool {
        self.attr.sample_type & u64::from(abi::PERF_SAMPLE_IP) != 0
    }

    /// Whether the drain finishes the user stacks of its samples.
    pub(crate) fn is_rewritten(&self) -> bool {
        let copies = self.attr.sample_type & u64::from(abi::PERF_SAMPLE_STACK_USER) != 0;
        copies || self.is_walked || self.is_followed
    }

    /// The attr of its records in the journal.
    pub(crate) fn written_attr(&self) -> Attr {
        let mut attr = self.attr;
        if self.is_rewritten() {
            if !self.keeps_registers {
                attr.sample_type &= !u64::from(abi::PERF_SAMPLE_REGS_USER);
                attr.sample_regs_user = 0;
            }
            attr.sample_type &= !u64::from(abi::PERF_SAMPLE_STACK_USER);
            attr.sample_type |= u64::from(abi::PERF_SAMPLE_CALLCHAIN);
            attr.sample_stack_user = 0;
            attr.set_exclude_callchain_user(0);
        }
        if self.probe.name.strip_prefix("perfquet:") == Some(WALK) {
            // No record of it is written. perf sched shows call chains only if all events have them.
            attr.sample_type |= u64::from(abi::PERF_SAMPLE_CALLCHAIN);
        }
        attr
    }
}

/// An open event in one place.
pub(crate) struct Opened {
    /// The place.
    pub(crate) place: Place,
    /// The event.
    pub(crate) event: Event,
    /// The ID in its records.
    pub(crate) id: u64,
}

/// All open events.
pub(crate) struct Recording {
    /// The events requested by the user.
    pub(crate) tracks: Vec<Track>,
    /// The output of BPF programs.
    pub(crate) outputs: Vec<Track>,
    /// Records may have addresses, so mappings are needed.
    pub(crate) has_addresses: bool,
    /// Context switches of tasks, in both directions; sched_switch of a task has only those that the task makes.
    pub(crate) switches: Option<Track>,
    /// Mappings, forks, names, exits.
    pub(crate) side_band: Track,
    /// Description of the target.
    pub(crate) scope: String,
    /// The owners of the rings.
    owners: Vec<Event>,
    /// Whether some threads may have an event twice, inherited and their own.
    pub(crate) has_doubles: bool,
    /// The threads that existed when the events had been opened, and have them; none without inheritance, or if CPUs are recorded.
    pub(crate) attached: HashSet<i32>,
    is_started_by_exec: bool,
    /// Whether nothing is recorded until [`Recording::switch`].
    pub(crate) starts_paused: bool,
    /// ID of the records of processes, pauses and counts; `None`: there are none.
    pub(crate) own_id: Option<u64>,
    /// Whether events of threads run from the time they are opened; their hits from before the recording are dropped.
    pub(crate) runs_at_once: bool,
    /// Frames of a user stack at most.
    pub(crate) deepest: Option<u16>,
    /// Initial counts by ID, if the events had any.
    before: HashMap<u64, Counts>,
}

/// The rings, and the events that wake up their reader.
#[derive(Default)]
pub(crate) struct Rings {
    /// Rings of the side-band. They are drained first, so that a mapping precedes the samples that need it.
    pub(crate) side_band: Vec<Ring>,
    /// Rings of the events.
    pub(crate) events: Vec<Ring>,
}

impl Rings {
    /// Iterates over all rings.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Ring> {
        self.side_band.iter().chain(&self.events)
    }
}

impl Recording {
    /// Opens all events; only the side-band runs.
    pub(crate) fn open(
        probes: Vec<Probe>,
        target: &Target,
        places: &[Place],
        settings: &Settings,
    ) -> Result<(Recording, Rings)> {
        let events = probes.iter().map(|probe| 1 + probe.members.len()).sum();
        check_files(events, places.len())?;
        let scope = target.scope();
        let mut opening = open::Opening::new(target, places, settings, scope);
        opening.has_uprobes = probes.iter().any(Probe::is_of_program);
        let (mut side_band, mut rings) = opening.rings()?;
        let begin = clock::monotonic();
        let mut tracks = Vec::with_capacity(probes.len());
        let mut outputs = Vec::new();
        let mut rejected = BTreeMap::<String, Rejected<Error>>::new();
        for probe in probes {
            if probe.is_output() {
                outputs.push(opening.output(probe)?);
                continue;
            }
            let (name, pattern) = (probe.name.clone(), probe.pattern.clone());
            match (opening.track(probe), pattern) {
                (Ok(track), _) => {
                    let members = opening.members(&track, tracks.len())?;
                    tracks.push(track);
                    tracks.extend(members);
                }
                (Err(error), Some(pattern)) => {
                    rejected.entry(pattern).or_default().add(&name, error);
                }
                (Err(error), None) => return Err(error),
            }
        }
        for (pattern, rejected) in rejected {
            let is_of_it = |track: &&Track| track.probe.pattern.as_ref() == Some(&pattern);
            let taken = tracks.iter().filter(is_of_it).count();
            rejected.report(&pattern, taken, NOT_RECORDED)?;
        }
        let wants_switches = !matches!(target, Target::System) && tracks.iter().any(is_switch);
        tracks.extend(match wants_switches {
            true => opening.switches()?,
            false => None,
        });
        // Without inheritance, the threads are those that were listed.
        let attached = match settings.excludes_children {
            true => Attached::default(),
            false => {
                opening.add_new_threads(target, &mut side_band, &mut tracks, &mut rings, begin)?
            }
        };
        let runs_at_once = opening.runs_at_once;
        let owners = opening.owners.into_iter();
        let switches = tracks.pop_if(|last| wants_switches && last.attr.context_switch() == 1);
        let recording = Recording {
            tracks,
            outputs,
            switches,
            side_band,
            scope: target.describe(settings.chosen_cpus.as_deref()),
            has_addresses: !settings.has_no_addresses,
            owners: owners.flat_map(Owner::into_events).collect(),
            has_doubles: attached.has_doubles,
            attached: attached.tids,
            is_started_by_exec: *target == Target::Command && !settings.starts_paused,
            starts_paused: settings.starts_paused,
            own_id: settings.has_own_records.then_some(OWN_ID),
            runs_at_once,
            deepest: settings.stacks.deepest(),
            before: HashMap::new(),
        };
        recording.set_filters(match target.is_of_cpus() {
            _ if settings.excludes_self => SelfExclusion::Excluded,
            true => SelfExclusion::WithoutOwnActions,
            false => SelfExclusion::Recorded,
        })?;
        if settings.excludes_self {
            recording.exclude_own_samples();
        }
        Ok((recording, rings))
    }

    /// Drops everything that events of threads have recorded until now.
    pub(crate) fn forget_before(&mut self, rings: &mut Rings) {
        if !self.runs_at_once {
            return;
        }
        for ring in &mut rings.events {
            ring.discard(ring.head());
        }
        // The samples of groups have values since the last one, and the first since then.
        for track in self.tracks.iter().filter(|track| track.is_of_group()) {
            for opened in &track.events {
                if let Err(error) = opened.event.reset() {
                    log::debug!("cannot reset {}: {error}", track.probe.name);
                }
            }
        }
        let counted = self.counts().filter(|(_, _, counts)| counts.value > 0);
        self.before = counted
            .map(|(_, opened, counts)| (opened.id, counts))
            .collect();
    }

    /// Starts everything except: the side-band, events of running threads, which started when they were opened, and a
    /// command's events, which start at its exec.
    pub(crate) fn enable(&self) -> Result<()> {
        if self.starts_paused && self.runs_at_once {
            self.switch(false)?;
        }
        let starts_here = !self.is_started_by_exec && !self.runs_at_once && !self.starts_paused;
        let started_here = self.of_threads().filter(|_| starts_here);
        for track in self.outputs.iter().chain(started_here) {
            for opened in &track.events {
                opened
                    .event
                    .enable()
                    .with_context(|| format!("cannot start the event {}", track.probe.name))?;
            }
        }
        Ok(())
    }

    /// Starts or stops the events, without the side-band and the output of BPF programs.
    pub(crate) fn switch(&self, is_on: bool) -> Result<()> {
        for track in self.of_threads() {
            for opened in &track.events {
                let switched = match is_on {
                    true => opened.event.enable(),
                    false => opened.event.disable(),
                };
                switched.with_context(|| {
                    let verb = if is_on { "start" } else { "stop" };
                    format!("cannot {verb} the event {}", track.probe.name)
                })?;
            }
        }
        Ok(())
    }

    /// Divides the requested frequencies. Returns the names of the events and their frequencies.
    pub(crate) fn divide_frequencies(
        &self,
        divisor: u64,
        periods: &Mutex<Periods>,
    ) -> Vec<(&str, u64)> {
        let mut changed = Vec::new();
        for track in &self.tracks {
            let Some(requested_hz) = track.frequency_hz() else {
                continue;
            };
            let frequency_hz = CpuLimit::frequency(requested_hz, divisor);
            for opened in &track.events {
                if let Err(error) = track.set_frequency(opened, frequency_hz, periods) {
                    log::warn!("cannot change the rate of {}: {error}", track.probe.name);
                }
            }
            changed.push((&*track.probe.name, frequency_hz));
        }
        changed
    }

    /// Stops everything, the side-band last.
    pub(crate) fn disable(&self) {
        for track in self.all() {
            for opened in &track.events {
                // Harmless: closing an event stops it too.
                if let Err(error) = opened.event.disable() {
                    log::debug!("cannot stop {}: {error}", track.probe.name);
                }
            }
        }
    }

    /// Returns the events that wake up the readers of their rings, in no order.
    pub(crate) fn wakers(&self) -> impl Iterator<Item = &Event> {
        self.owners.iter()
    }

    /// Returns the counts of every open event that has records, with its track.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&Track, &Opened, Counts)> {
        let with_records = self.all().filter(|track| track.leader.is_none());
        with_records.flat_map(move |track| {
            track.events.iter().filter_map(move |opened| {
                let mut counts = opened.event.counts().ok()?;
                if let Some(before) = self.before.get(&opened.id) {
                    counts.value = counts.value.saturating_sub(before.value);
                    let lost_before = before.lost.unwrap_or(0);
                    counts.lost = counts.lost.map(|lost| lost.saturating_sub(lost_before));
                }
                Some((track, opened, counts))
            })
        })
    }

    /// Returns the number of open descriptors, each of which [`Recording::counts`] has to read.
    pub(crate) fn size(&self) -> usize {
        self.all().map(|track| track.events.len()).sum()
    }

    /// Iterates over all tracks, the side-band last.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Track> {
        let tracks = self.of_threads().chain(&self.outputs);
        tracks.chain([&self.side_band])
    }

    /// Iterates over the tracks opened on threads, if threads are recorded.
    pub(crate) fn of_threads(&self) -> impl Iterator<Item = &Track> {
        self.tracks.iter().chain(&self.switches)
    }

    /// Whether records contain addresses of user code.
    pub(crate) fn has_user_code(&self) -> bool {
        let chain = u64::from(abi::PERF_SAMPLE_CALLCHAIN);
        self.of_threads().chain(&self.outputs).any(|track| {
            let has_chain = track.attr.sample_type & chain != 0;
            let has_user = has_chain && track.attr.exclude_callchain_user() == 0;
            has_user || track.is_rewritten() || track.probe.is_sampled()
        })
    }

    /// Whether system calls are recorded.
    pub(crate) fn has_system_calls(&self) -> bool {
        let systems = ["raw_syscalls:", "syscalls:"];
        let is_one = |name: &str| systems.iter().any(|system| name.starts_with(system));
        self.tracks.iter().any(|track| is_one(&track.probe.name))
    }

    /// Returns the events of the BPF output `perfquet:NAME`.
    pub(crate) fn output(&self, name: &str) -> Option<&Track> {
        let is_it = |track: &&Track| track.probe.name.strip_prefix("perfquet:") == Some(name);
        self.outputs.iter().find(is_it)
    }

    /// Returns descriptors that are slow to close: the kernel takes at least 20 ms for the last one of each tracepoint.
    /// Includes those of the recorder's own probes only `with_own`.
    pub(crate) fn slow_to_close(&self, with_own: bool) -> Vec<RawFd> {
        let tracepoints = self.tracks.iter().filter(|track| match &track.probe.kind {
            Kind::Tracepoint(tracepoint) => with_own || !tracepoint.is_own,
            Kind::Sampled | Kind::Output { .. } => false,
        });
        let opened = tracepoints.flat_map(|track| &track.events);
        opened.map(|opened| opened.event.as_raw_fd()).collect()
    }

    fn set_filters(&self, own: SelfExclusion) -> Result<()> {
        for track in &self.tracks {
            let Kind::Tracepoint(tracepoint) = &track.probe.kind else {
                continue;
            };
            let users = track.probe.filter.as_deref();
            let Some(filter) = self_exclusion::filter(&tracepoint.system, users, own) else {
                continue;
            };
            let text = CString::new(filter.as_str()).context("a filter with a NUL")?;
            for opened in &track.events {
                match opened.event.set_filter(&text) {
                    Ok(()) => {}
                    Err(error) => {
                        let (name, format) = (&track.probe.name, &tracepoint.format);
                        if let Some(users) = users {
                            return Err(filter::refused(name, users, format, &error).into());
                        }
                        // Some tracepoints do not support filters (CONFIG_EVENT_TRACING without filters).
                        log::info!("{name}: cannot exclude own activity: {error}");
                    }
                }
            }
        }
        Ok(())
    }
}

impl Recording {
    fn exclude_own_samples(&self) {
        // An event has one program, and the one that walks stacks also excludes the recorder's samples.
        let is_filtered =
            |track: &&Track| track.probe.is_sampled() && !track.is_walked && track.leader.is_none();
        let sampled = self.tracks.iter().filter(is_filtered);
        let mut sampled = sampled.flat_map(|track| &track.events).peekable();
        if sampled.peek().is_none() {
            return;
        }
        let done = SampleFilter::load()
            .and_then(|filter| sampled.try_for_each(|opened| filter.attach(&opened.event)));
        if let Err(error) = done {
            log::warn!("cannot exclude own samples without BPF: {error}");
        }
    }
}

fn is_switch(track: &Track) -> bool {
    match &track.probe.kind {
        Kind::Tracepoint(tracepoint) => {
            (&*tracepoint.system, &*tracepoint.name) == ("sched", "sched_switch")
                && tracepoint.purpose == Purpose::Rows
        }
        Kind::Sampled | Kind::Output { .. } => false,
    }
}

/// Opens a counter or clock on CPUs for a BPF program, without a ring, because it stores nothing.
///
/// Without a rate, the program runs at every occurrence of an event that the kernel itself counts (page faults, switches, migrations), so
/// that its counts are those of `--stat`. Clocks and hardware counters are sampled.
pub(crate) fn sampling(probe: &Probe, cpus: &[u32], settings: &Settings) -> Result<Vec<Event>> {
    let has_rate = settings.period.or(settings.frequency_hz).is_some();
    let occurs = probe.attr.type_ == abi::PERF_TYPE_SOFTWARE && !counter::is_clock(&probe.attr);
    let mut probe = probe.clone();
    if occurs && !has_rate && probe.attr.sample_period == 0 {
        probe.attr.sample_period = 1;
    }
    open::for_program(&probe, cpus, settings)
}

/// Where a BPF program runs at the hits of a probe.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reach<'a> {
    /// The CPUs of the recording; a program at a tracepoint runs on all.
    pub(crate) cpus: &'a [u32],
    /// Threads to which probes in programs are limited, so that no other process is slowed down. `None`: all.
    pub(crate) tids: Option<&'a [i32]>,
}

/// Opens a tracepoint for a BPF program. Attach the program to the first event; keep the others open while it runs.
pub(crate) fn for_program(probe: &Probe, reach: Reach<'_>) -> Result<Vec<Event>> {
    /// Maximum number of events; for more threads, the probe is enabled in all processes.
    const MOST_TIDS: usize = 256;
    let tids = reach
        .tids
        .filter(|tids| probe.is_of_program() && tids.len() <= MOST_TIDS);
    if let Some(tids) = tids {
        let mut attr = probe.attr;
        attr.sample_period = 1;
        attr.set_disabled(1);
        // Attach the program to an event that is not inherited: when an inherited copy is freed, the kernel detaches the
        // program (6.18, perf_event_free_bpf_prog).
        let carrier = tids
            .iter()
            .find_map(|&tid| Event::open(&attr, tid, -1).ok());
        // A child has the breakpoints of its parent, and the program that it executes gets them, too.
        attr.set_inherit(1);
        let heirs = tids.iter().filter_map(|&tid| {
            let kept = Event::open(&of_one_task(attr), tid, -1).ok();
            kept.or_else(|| {
                let exchanged = Event::open(&attr, tid, -1).ok()?;
                attr::warn_of_exchanged_events();
                Some(exchanged)
            })
        });
        let events: Vec<Event> = carrier.into_iter().chain(heirs).collect();
        if events.len() > 1 {
            return Ok(events);
        }
    }
    let first = &reach.cpus[..reach.cpus.len().min(1)];
    let events = open::for_program(probe, first, &Settings::default())?;
    match events.is_empty() {
        true => Err(Error::msg("no CPU to open it on")),
        false => Ok(events),
    }
}

/// Raises the open-file limit to the number needed; fails with that number.
fn check_files(events: usize, places: usize) -> Result<()> {
    /// Descriptors of the journal, the encoder's parts, and pipes.
    const OTHERS: u64 = 200;
    // The side-band and the owners of the rings are two more.
    let needed = ((events + 2) * places) as u64 + OTHERS;
    let limit = limits::raise(Resource::OpenFiles, needed);
    if limit < needed {
        return Err(privileges::too_many_files(events, needed, limit).into());
    }
    Ok(())
}
