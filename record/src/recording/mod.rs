//! The open events of a recording, and the rings they write to.
//!
//! Per CPU there are two rings: one for the events, one for the side-band (mappings, forks, names), so that a
//! storm of events cannot lose a mapping. Each ring belongs to an event that counts nothing; all
//! others write into it. So rings can be mapped smaller, where locked memory is scarce, before the
//! tracepoints are opened, which are slow to close.

mod attach;
mod attr;
mod open;

use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use anyhow::{Context, Error, Result};
use perfquet_events::event::Purpose;

use crate::own_activity::{self, OwnActivity};
use crate::probe::left_out::LeftOut;
use crate::probe::stacks::Stacks;
use crate::probe::{Kind, Probe, counter, filter};
use crate::sys::clock;
use crate::sys::limits::{self, Resource};
use crate::sys::perf_event::{Attr, Counts, Event};
use crate::sys::privileges;
use crate::sys::ring::Ring;
use crate::sys::sample_filter::SampleFilter;
use crate::target::{Place, Target};
use open::Owner;

pub(crate) use attr::DEFAULT_FREQUENCY_HZ;

/// Of tracepoints that match a pattern.
pub(crate) const NOT_RECORDED: &str = "cannot be recorded";

/// What the command line says about all events.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    /// Samples per second.
    pub(crate) frequency_hz: Option<u64>,
    /// Sampling period: one sample per this many events.
    pub(crate) period: Option<u64>,
    /// Stacks with each event.
    pub(crate) stacks: Stacks,
    /// Bytes of each ring; `None`: as large as is good and allowed.
    pub(crate) ring_bytes: Option<usize>,
    /// Mappings of data too: perf finds in them how to unwind copied stacks. (We read the files.)
    pub(crate) has_data_mappings: bool,
    /// Our own doings are left out of everything.
    pub(crate) excludes_self: bool,
    /// The CPUs that the user chose.
    pub(crate) chosen_cpus: Option<Vec<u32>>,
}

/// One event on all its places.
pub(crate) struct Track {
    /// Its kind; the name shows a stand-in.
    pub(crate) probe: Probe,
    /// As the kernel took it.
    pub(crate) attr: Attr,
    /// Open.
    pub(crate) events: Vec<Opened>,
}

impl Track {
    /// About how many records a counter's value represents. Clocks count nanoseconds; of other counters with a
    /// frequency only their time is known.
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

/// An open event at its place.
pub(crate) struct Opened {
    /// Where.
    pub(crate) place: Place,
    /// It.
    pub(crate) event: Event,
    /// As its records carry it.
    pub(crate) id: u64,
}

/// All that is open.
pub(crate) struct Recording {
    /// Requested by the user.
    pub(crate) tracks: Vec<Track>,
    /// What programs in the kernel write.
    pub(crate) outputs: Vec<Track>,
    /// Beside sched_switch of tasks, which has only the switches that they make: both edges of each.
    pub(crate) switches: Option<Track>,
    /// Mappings, forks, names, ends.
    pub(crate) side_band: Track,
    /// What the recording is of, in words.
    pub(crate) scope: String,
    /// They own the rings.
    owners: Vec<Event>,
    /// Some threads may have an event twice: inherited and their own.
    pub(crate) has_doubles: bool,
    is_started_by_exec: bool,
    /// Events of threads run since they were opened: what they recorded before the beginning does not count.
    pub(crate) runs_at_once: bool,
    /// Counts at the beginning, by id, where there were any.
    before: HashMap<u64, Counts>,
}

/// The rings, and the events that wake whoever waits for them.
#[derive(Default)]
pub(crate) struct Rings {
    /// Of the side-band; drained first, so that a mapping comes before what uses it.
    pub(crate) side_band: Vec<Ring>,
    /// Of the events.
    pub(crate) events: Vec<Ring>,
}

impl Rings {
    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Ring> {
        self.side_band.iter().chain(&self.events)
    }
}

impl Recording {
    /// Opens everything; all but the side-band is stopped.
    pub(crate) fn open(
        probes: Vec<Probe>,
        target: &Target,
        places: &[Place],
        settings: &Settings,
    ) -> Result<(Recording, Rings)> {
        check_files(probes.len(), places.len())?;
        let scope = target.scope();
        let mut opening = open::Opening::new(target, places, settings, scope);
        let (mut side_band, mut rings) = opening.rings()?;
        let begin = clock::monotonic();
        let mut tracks = Vec::with_capacity(probes.len());
        let mut outputs = Vec::new();
        let mut left_out = BTreeMap::<String, LeftOut<Error>>::new();
        for probe in probes {
            if probe.is_output() {
                outputs.push(opening.output(probe)?);
                continue;
            }
            let (name, pattern) = (probe.name.clone(), probe.pattern.clone());
            match (opening.track(probe), pattern) {
                (Ok(track), _) => tracks.push(track),
                (Err(error), Some(pattern)) => {
                    left_out.entry(pattern).or_default().add(&name, error);
                }
                (Err(error), None) => return Err(error),
            }
        }
        for (pattern, left_out) in left_out {
            let is_of_it = |track: &&Track| track.probe.pattern.as_ref() == Some(&pattern);
            let taken = tracks.iter().filter(is_of_it).count();
            left_out.tell(&pattern, taken, NOT_RECORDED)?;
        }
        let wants_switches = !matches!(target, Target::System) && tracks.iter().any(is_switch);
        tracks.extend(match wants_switches {
            true => opening.switches()?,
            false => None,
        });
        let has_doubles =
            opening.add_new_threads(target, &mut side_band, &mut tracks, &mut rings, begin)?;
        let runs_at_once = opening.runs_at_once;
        let owners = opening.owners.into_iter();
        let switches = tracks.pop_if(|last| wants_switches && last.attr.context_switch() == 1);
        let recording = Recording {
            tracks,
            outputs,
            switches,
            side_band,
            scope: target.describe(settings.chosen_cpus.as_deref()),
            owners: owners.flat_map(Owner::into_events).collect(),
            has_doubles,
            is_started_by_exec: *target == Target::Command,
            runs_at_once,
            before: HashMap::new(),
        };
        recording.set_filters(match target.is_of_cpus() {
            _ if settings.excludes_self => OwnActivity::Excluded,
            true => OwnActivity::WithoutOwnActions,
            false => OwnActivity::Recorded,
        })?;
        if settings.excludes_self {
            recording.leave_own_samples_out();
        }
        Ok((recording, rings))
    }

    /// What events of threads have recorded until now does not count.
    pub(crate) fn forget_before(&mut self, rings: &mut Rings) {
        if !self.runs_at_once {
            return;
        }
        for ring in &mut rings.events {
            ring.discard(ring.head());
        }
        let counted = self.counts().filter(|(_, _, counts)| counts.value > 0);
        self.before = counted
            .map(|(_, opened, counts)| (opened.id, counts))
            .collect();
    }

    /// Starts everything but the side-band and events of threads that run, which began when they were opened, and a
    /// command's events, which start with its exec.
    pub(crate) fn enable(&self) -> Result<()> {
        let starts_here = !self.is_started_by_exec && !self.runs_at_once;
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

    /// Stops everything, the side-band last.
    pub(crate) fn disable(&self) {
        for track in self.all() {
            for opened in &track.events {
                // Nothing to do about it, and nothing lost: closing stops it too.
                if let Err(error) = opened.event.disable() {
                    log::debug!("cannot stop {}: {error}", track.probe.name);
                }
            }
        }
    }

    /// Events that wake whoever waits for their rings, in no order.
    pub(crate) fn wakers(&self) -> impl Iterator<Item = &Event> {
        self.owners.iter()
    }

    /// Counts of every open event, with its track.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&Track, &Opened, Counts)> {
        self.all().flat_map(move |track| {
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

    /// Number of open descriptors: what [`Recording::counts`] costs.
    pub(crate) fn size(&self) -> usize {
        self.all().map(|track| track.events.len()).sum()
    }

    /// Every track, the side-band last.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Track> {
        let tracks = self.of_threads().chain(&self.outputs);
        tracks.chain([&self.side_band])
    }

    /// Those that are opened on threads, where threads are recorded.
    pub(crate) fn of_threads(&self) -> impl Iterator<Item = &Track> {
        self.tracks.iter().chain(&self.switches)
    }

    /// The events of what programs write to `perfquet:NAME`.
    pub(crate) fn output(&self, name: &str) -> Option<&Track> {
        let is_it = |track: &&Track| track.probe.name.strip_prefix("perfquet:") == Some(name);
        self.outputs.iter().find(is_it)
    }

    /// Descriptors whose closing waits for the kernel: 20 ms and more for the last one of each tracepoint. Those on
    /// the recorder's own probes only `with_own`.
    pub(crate) fn slow_to_close(&self, with_own: bool) -> Vec<RawFd> {
        let tracepoints = self.tracks.iter().filter(|track| match &track.probe.kind {
            Kind::Tracepoint(tracepoint) => with_own || !tracepoint.is_own,
            Kind::Sampled | Kind::Output { .. } => false,
        });
        let opened = tracepoints.flat_map(|track| &track.events);
        opened.map(|opened| opened.event.as_raw_fd()).collect()
    }

    fn set_filters(&self, own: OwnActivity) -> Result<()> {
        for track in &self.tracks {
            let Kind::Tracepoint(tracepoint) = &track.probe.kind else {
                continue;
            };
            let users = track.probe.filter.as_deref();
            let Some(filter) = own_activity::filter(&tracepoint.system, users, own) else {
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
                        // Some tracepoints take no filter at all (CONFIG_EVENT_TRACING without filters).
                        log::info!("{name}: cannot exclude own activity: {error}");
                    }
                }
            }
        }
        Ok(())
    }
}

impl Recording {
    fn leave_own_samples_out(&self) {
        let sampled = self.tracks.iter().filter(|track| track.probe.is_sampled());
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

/// Opens a counter or clock on CPUs for a program: without a ring, since it stores nothing.
pub(crate) fn sampling(probe: &Probe, cpus: &[u32], settings: &Settings) -> Result<Vec<Event>> {
    open::for_program(probe, cpus, settings)
}

/// Opens a tracepoint for a program, which runs at every hit of it on any CPU.
pub(crate) fn everywhere(probe: &Probe, cpus: &[u32]) -> Result<Event> {
    let first = &cpus[..cpus.len().min(1)];
    let mut events = open::for_program(probe, first, &Settings::default())?;
    events.pop().context("no CPU to open it on")
}

/// Raises the open-file limit to the number needed; fails with that number.
fn check_files(events: usize, places: usize) -> Result<()> {
    /// The journal, the encoder's parts, pipes.
    const OTHERS: u64 = 200;
    // The side-band and the rings' owners are two more.
    let needed = ((events + 2) * places) as u64 + OTHERS;
    let limit = limits::raise(Resource::OpenFiles, needed);
    if limit < needed {
        return Err(privileges::too_many_files(events, needed, limit).into());
    }
    Ok(())
}
