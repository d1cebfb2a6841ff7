//! Opening: first the rings, as large as locked memory allows, then each event with its fallbacks.

use std::io;

use anyhow::Result;

use super::attr::Kernel;
use super::{Opened, Rings, Settings, Track};
use crate::failure::failed;
use crate::probe::{Kind, Probe, counter};
use crate::sys::host;
use crate::sys::limits::{self, Resource};
use crate::sys::perf_event::{Attr, Event, abi};
use crate::sys::privileges::{self, Scope};
use crate::sys::ring::{Ring, page_bytes};
use crate::target::{Place, Target};

/// As root. Larger rings decide about loss, not the way of waking (research/kernel-recording.md, 1.1).
const ROOTS_RING_BYTES: usize = 16 << 20;
/// Where locked memory is limited: that is its usual limit.
const USERS_RING_BYTES: usize = 8 << 20;
const LEAST_RING_BYTES: usize = 32 << 10;
const SIDE_BAND_BYTES: usize = 1 << 20;

/// The owner of each CPU's ring.
type Owners = Vec<(u32, Event)>;

/// What stays the same while events are opened.
pub(super) struct Opening<'a> {
    places: &'a [Place],
    settings: &'a Settings,
    scope: Scope,
    kernel: Kernel,
    inherits: bool,
    starts_by_exec: bool,
}

impl<'a> Opening<'a> {
    pub(super) fn new(
        target: &Target,
        places: &'a [Place],
        settings: &'a Settings,
        scope: Scope,
    ) -> Opening<'a> {
        Opening {
            places,
            settings,
            scope,
            kernel: Kernel {
                has_lost: has_format_lost(),
            },
            inherits: *target != Target::System,
            starts_by_exec: *target == Target::Command,
        }
    }

    /// Maps two rings per CPU; returns their owners by CPU, the side-band's events and the rings.
    pub(super) fn rings(&mut self) -> Result<(Owners, Track, Rings)> {
        let mut ring_bytes = self
            .settings
            .ring_bytes
            .unwrap_or_else(|| self.best_ring_bytes());
        let locked = limits::raise(Resource::LockedMemory, self.locked_bytes(ring_bytes));
        let side_band = self.side_band()?;
        loop {
            match self.try_rings(ring_bytes, &side_band) {
                Ok((owners, rings)) => {
                    log::info!("rings of {} KiB on {} CPUs", ring_bytes >> 10, owners.len());
                    // From here on: whoever forks now has children that inherit the events opened next.
                    for opened in &side_band.events {
                        opened.event.enable()?;
                    }
                    return Ok((owners, side_band, Rings { rings }));
                }
                Err(error) => {
                    let may_shrink = error.raw_os_error() == Some(libc::EPERM)
                        || error.raw_os_error() == Some(libc::ENOMEM);
                    if self.settings.ring_bytes.is_some()
                        || !may_shrink
                        || ring_bytes <= LEAST_RING_BYTES
                    {
                        return Err(privileges::cannot_map(ring_bytes, locked, &error).into());
                    }
                    ring_bytes /= 2;
                }
            }
        }
    }

    /// Opens an event everywhere, or what can stand in for it.
    pub(super) fn track(&mut self, probe: Probe, owners: &Owners) -> Result<Track> {
        let Some((first, others)) = self.places.split_first() else {
            return Err(failed("nothing to record on").into());
        };
        let (probe, attr, event) = self.settle(probe, *first)?;
        let mut events = Vec::with_capacity(self.places.len());
        events.extend(
            event
                .map(|event| opened(*first, event, owners))
                .transpose()?,
        );
        for place in others {
            match Event::open(&attr, place.tid, place.cpu as i32) {
                Ok(event) => events.push(opened(*place, event, owners)?),
                // A thread that ended meanwhile, a CPU that went off: the others go on.
                Err(error) if self.is_gone(&error) => {}
                Err(error) => {
                    return Err(privileges::cannot_open(&probe.name, self.scope, &error).into());
                }
            }
        }
        if events.is_empty() {
            return Err(
                failed(format!("cannot record {}: all of it has ended", probe.name)).into(),
            );
        }
        Ok(Track {
            probe,
            attr,
            events,
        })
    }

    /// Finds the attributes that the kernel takes, at one place; the event that proves it is kept, since closing
    /// a tracepoint's last one takes 20 ms and more. None if the thread of this place has ended.
    fn settle(&self, mut probe: Probe, place: Place) -> Result<(Probe, Attr, Option<Event>)> {
        if probe.wants_precision && probe.attr.type_ != abi::PERF_TYPE_SOFTWARE {
            probe.attr.set_precise_ip(3);
        }
        loop {
            let mut attr = self.kernel.probe(&probe, self.settings, self.inherits);
            attr.set_enable_on_exec(self.starts_by_exec.into());
            let error = match Event::open(&attr, place.tid, place.cpu as i32) {
                Ok(event) => return Ok((probe, attr, Some(event))),
                Err(error) => error,
            };
            match self.weaker(&probe, &error) {
                Some(weaker) => probe = weaker,
                None if self.is_gone(&error) => return Ok((probe, attr, None)),
                None => {
                    return Err(privileges::cannot_open(&probe.name, self.scope, &error).into());
                }
            }
        }
    }

    /// The next best event after a refusal; says so where the user would read other numbers.
    fn weaker(&self, probe: &Probe, error: &io::Error) -> Option<Probe> {
        let mut weaker = probe.clone();
        let precise = probe.attr.precise_ip();
        match error.raw_os_error()? {
            libc::EINVAL | libc::EOPNOTSUPP | libc::ENOENT
                if probe.wants_precision && precise > 0 =>
            {
                weaker.attr.set_precise_ip(precise - 1);
            }
            libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::ENXIO
                if counter::is_cycles(&probe.attr) =>
            {
                log::warn!(
                    "no hardware counters here: sampling cpu-clock instead of {}",
                    probe.name
                );
                weaker = counter::clock(probe);
            }
            libc::EINVAL | libc::EOPNOTSUPP if probe.attr.exclude_guest() == 1 => {
                weaker.attr.set_exclude_guest(0);
            }
            // kernel.perf_event_paranoid 2: one's own processes, without the kernel.
            libc::EACCES | libc::EPERM
                if self.scope != Scope::System
                    && probe.attr.exclude_kernel() == 0
                    && matches!(probe.kind, Kind::Sampled) =>
            {
                log::warn!(
                    "not permitted to see the kernel: recording user space only ({}:u)",
                    probe.name
                );
                weaker.attr.set_exclude_kernel(1);
                weaker.attr.set_exclude_hv(1);
                weaker.name = format!("{}:u", probe.name);
            }
            _ => return None,
        }
        Some(weaker)
    }

    fn side_band(&self) -> Result<Track> {
        let Some(first) = self.places.first() else {
            return Err(failed("nothing to record on").into());
        };
        let mut refused = io::Error::from(io::ErrorKind::Other);
        for attr in self.kernel.side_bands(self.inherits) {
            let mut attr = attr;
            attr.wakeup_watermark = (SIDE_BAND_BYTES / 4) as u32;
            match Event::open(&attr, first.tid, first.cpu as i32) {
                Ok(_) => return self.side_band_everywhere(attr),
                Err(error) => refused = error,
            }
        }
        Err(privileges::cannot_open("mappings and forks", self.scope, &refused).into())
    }

    fn side_band_everywhere(&self, attr: Attr) -> Result<Track> {
        let mut events = Vec::with_capacity(self.places.len());
        for place in self.places {
            match Event::open(&attr, place.tid, place.cpu as i32) {
                Ok(event) => {
                    let id = event.id()?;
                    events.push(Opened {
                        place: *place,
                        event,
                        id,
                    });
                }
                Err(error) if self.is_gone(&error) => {}
                Err(error) => {
                    let failure = privileges::cannot_open("mappings and forks", self.scope, &error);
                    return Err(failure.into());
                }
            }
        }
        Ok(Track {
            probe: Probe {
                name: "dummy:HG".into(),
                attr,
                kind: Kind::Sampled,
                filter: None,
                wants_precision: false,
            },
            attr,
            events,
        })
    }

    /// Owners and rings of one size; nothing stays after a failure.
    fn try_rings(&self, ring_bytes: usize, side_band: &Track) -> io::Result<(Owners, Vec<Ring>)> {
        let side_band_bytes = SIDE_BAND_BYTES.min((ring_bytes / 4).max(page_bytes()));
        let attr = self.kernel.owner(ring_bytes, self.inherits);
        let mut owners: Owners = Vec::new();
        let mut rings = Vec::new();
        let mut side_owners: Vec<(u32, &Event)> = Vec::new();
        for opened in &side_band.events {
            let cpu = opened.place.cpu;
            if let Some((_, owner)) = side_owners.iter().find(|(of, _)| *of == cpu) {
                opened.event.set_output(owner)?;
                continue;
            }
            rings.push(Ring::map(&opened.event, side_band_bytes)?);
            side_owners.push((cpu, &opened.event));
            owners.push((cpu, Event::open(&attr, opened.place.tid, cpu as i32)?));
        }
        for (_, owner) in &owners {
            rings.push(Ring::map(owner, ring_bytes)?);
        }
        Ok((owners, rings))
    }

    fn best_ring_bytes(&self) -> usize {
        let mut ring_bytes = if host::is_root() {
            ROOTS_RING_BYTES
        } else {
            USERS_RING_BYTES
        };
        // Locked memory is gone for everybody else: at most an eighth of it on a machine of many CPUs.
        let most = host::memory_kib().map_or(u64::MAX, |kib| kib * 1024 / 8);
        while self.locked_bytes(ring_bytes) > most && ring_bytes > LEAST_RING_BYTES {
            ring_bytes /= 2;
        }
        ring_bytes
    }

    fn locked_bytes(&self, ring_bytes: usize) -> u64 {
        let mut cpus: Vec<u32> = self.places.iter().map(|place| place.cpu).collect();
        cpus.sort_unstable();
        cpus.dedup();
        (cpus.len() * (ring_bytes + SIDE_BAND_BYTES + 2 * page_bytes())) as u64
    }

    fn is_gone(&self, error: &io::Error) -> bool {
        match error.raw_os_error() {
            Some(libc::ESRCH) => matches!(self.scope, Scope::Task(_)) && self.places.len() > 1,
            Some(libc::ENODEV) => self.places.len() > 1,
            _ => false,
        }
    }
}

/// Sends the event's records to the ring of its CPU.
fn opened(place: Place, event: Event, owners: &Owners) -> io::Result<Opened> {
    if let Some((_, owner)) = owners.iter().find(|(cpu, _)| *cpu == place.cpu) {
        event.set_output(owner)?;
    }
    let id = event.id()?;
    Ok(Opened { place, event, id })
}

/// Asks the kernel with an event on ourselves.
fn has_format_lost() -> bool {
    let kernel = Kernel { has_lost: true };
    Event::open(&kernel.owner(LEAST_RING_BYTES, false), 0, -1).is_ok()
}
