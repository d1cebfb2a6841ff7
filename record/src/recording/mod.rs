//! The open events of a recording, and the rings they write to.
//!
//! Per CPU there are two rings: one for the events, one for the side-band (mappings, forks, names), so that a
//! storm of events cannot lose a mapping. Each ring belongs to an event of its own that counts nothing; all
//! others write into it. So rings can be mapped smaller, where locked memory is scarce, before the
//! tracepoints are opened, which are slow to close.

mod attr;
mod open;

use std::ffi::CString;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::own;
use crate::probe::{Kind, Probe, counter};
use crate::sys::limits::{self, Resource};
use crate::sys::perf_event::{Attr, Counts, Event};
use crate::sys::privileges;
use crate::sys::ring::Ring;
use crate::target::{Place, Target};

/// What the command line says about all events.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    /// Samples per second.
    pub(crate) frequency_hz: Option<u64>,
    /// One sample every so many events.
    pub(crate) period: Option<u64>,
    /// Stacks with each event.
    pub(crate) has_stacks: bool,
    /// Bytes of each ring; `None`: as large as is good and allowed.
    pub(crate) ring_bytes: Option<usize>,
}

/// One event on all its places.
pub(crate) struct Track {
    /// What it is; the name tells a stand-in.
    pub(crate) probe: Probe,
    /// As the kernel took it.
    pub(crate) attr: Attr,
    /// Open.
    pub(crate) events: Vec<Opened>,
}

impl Track {
    /// About how many records a counter's value stands for. Clocks count nanoseconds; of other counters with a
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
    /// What the user asked for.
    pub(crate) tracks: Vec<Track>,
    /// Mappings, forks, names, ends.
    pub(crate) side_band: Track,
    /// They own the rings.
    owners: Vec<Event>,
    is_started_by_exec: bool,
}

/// The rings, and the events that wake whoever waits for them.
pub(crate) struct Rings {
    /// Side-band first, so that a mapping comes before what uses it.
    pub(crate) rings: Vec<Ring>,
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
        let (owners, side_band, rings) = opening.rings()?;
        let mut tracks = Vec::with_capacity(probes.len());
        for probe in probes {
            tracks.push(opening.track(probe, &owners)?);
        }
        let recording = Recording {
            tracks,
            side_band,
            owners: owners.into_iter().map(|(_, event)| event).collect(),
            is_started_by_exec: *target == Target::Command,
        };
        recording.set_filters(*target == Target::System)?;
        Ok((recording, rings))
    }

    /// Starts everything but the side-band, which runs since it was opened, and a command's events, which start
    /// with its exec.
    pub(crate) fn enable(&self) -> Result<()> {
        if self.is_started_by_exec {
            return Ok(());
        }
        for track in &self.tracks {
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
        for track in self.tracks.iter().chain([&self.side_band]) {
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
        let side_band = self.side_band.events.iter().map(|opened| &opened.event);
        self.owners.iter().chain(side_band)
    }

    /// Counts of every open event, with its track.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&Track, &Opened, Counts)> {
        let tracks = self.tracks.iter().chain([&self.side_band]);
        tracks.flat_map(|track| {
            track.events.iter().filter_map(move |opened| {
                let counts = opened.event.counts().ok()?;
                Some((track, opened, counts))
            })
        })
    }

    /// Number of open descriptors: what [`Recording::counts`] costs.
    pub(crate) fn size(&self) -> usize {
        let tracks = self.tracks.iter().chain([&self.side_band]);
        tracks.map(|track| track.events.len()).sum()
    }

    /// Descriptors whose closing waits for the kernel: 20 ms and more for the last one of each tracepoint. Those on
    /// probes of our own only `with_own`.
    pub(crate) fn slow_to_close(&self, with_own: bool) -> Vec<RawFd> {
        let tracepoints = self.tracks.iter().filter(|track| match &track.probe.kind {
            Kind::Tracepoint(tracepoint) => with_own || !tracepoint.is_own,
            Kind::Sampled => false,
        });
        let opened = tracepoints.flat_map(|track| &track.events);
        opened.map(|opened| opened.event.as_raw_fd()).collect()
    }

    fn set_filters(&self, records_everything: bool) -> Result<()> {
        for track in &self.tracks {
            let Kind::Tracepoint(tracepoint) = &track.probe.kind else {
                continue;
            };
            let users = track.probe.filter.as_deref();
            let Some(filter) = own::filter(&tracepoint.system, users, records_everything) else {
                continue;
            };
            let text = CString::new(filter.as_str()).context("a filter with a NUL")?;
            for opened in &track.events {
                match opened.event.set_filter(&text) {
                    Ok(()) => {}
                    Err(error) if users.is_some() => {
                        let format = &tracepoint.format;
                        let name = &track.probe.name;
                        return Err(privileges::bad_filter(name, &filter, format, &error).into());
                    }
                    // Some tracepoints take no filter at all (CONFIG_EVENT_TRACING without filters).
                    Err(error) => {
                        log::info!("{}: own activity stays in: {error}", track.probe.name)
                    }
                }
            }
        }
        Ok(())
    }
}

/// Raises the limit of open files to what is needed, or says how much that is.
fn check_files(events: usize, places: usize) -> Result<()> {
    /// The journal, the encoder's parts, pipes.
    const OTHERS: u64 = 200;
    // The side-band and the rings' owners are two more.
    let needed = ((events + 2) * places) as u64 + OTHERS;
    let limit = limits::raise(Resource::OpenFiles, needed);
    if limit < needed {
        return Err(privileges::too_many_files(events + 2, places, limit).into());
    }
    Ok(())
}
