//! Opening: first the rings, as large as locked memory allows, then each event with its fallbacks.

use std::io;

use anyhow::Result;

use super::attr::Kernel;
use super::{Opened, Rings, Settings, Track, stacks};
use crate::failure::failed;
use crate::probe::{Kind, Probe, counter};
use crate::sys::host;
use crate::sys::limits::{self, Resource};
use crate::sys::perf_event::{Attr, Event, abi};
use crate::sys::privileges::{self, Scope};
use crate::sys::ring::{Ring, page_bytes};
use crate::target::{Place, Target, Tasks};

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
    pub(super) places: &'a [Place],
    settings: &'a Settings,
    scope: Scope,
    kernel: Kernel,
    inherits: bool,
    starts_by_exec: bool,
    /// Once there are rings.
    pub(super) owners: Owners,
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
            inherits: !target.is_of_cpus(),
            starts_by_exec: *target == Target::Command,
            owners: Owners::new(),
        }
    }

    /// Maps two rings per CPU; returns the side-band's events and the rings.
    pub(super) fn rings(&mut self) -> Result<(Track, Rings)> {
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
                    self.owners = owners;
                    return Ok((side_band, rings));
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

    /// Opens an event on one more place; none if that has ended.
    pub(super) fn open_late(
        &self,
        name: &str,
        attr: &Attr,
        place: Place,
    ) -> Result<Option<Opened>> {
        match open_at(attr, place) {
            Ok(event) => opened(place, event, &self.owners)
                .map(Some)
                .map_err(Into::into),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
            Err(error) => Err(privileges::cannot_open(name, self.scope, &error).into()),
        }
    }

    /// Lets the side-band follow one more thread.
    pub(super) fn add_to_side_band(&self, tid: i32, side_band: &mut Track) -> Result<()> {
        for cpu in self.cpus() {
            let place = Place {
                tasks: Tasks::Thread(tid),
                cpu,
            };
            let event = match open_at(&side_band.attr, place) {
                Ok(event) => event,
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
                Err(error) => {
                    let failure = privileges::cannot_open("mappings and forks", self.scope, &error);
                    return Err(failure.into());
                }
            };
            let mut others = side_band.events.iter();
            if let Some(owner) = others.find(|opened| opened.place.cpu == cpu) {
                event.set_output(&owner.event)?;
            }
            event.enable()?;
            let id = event.id()?;
            side_band.events.push(Opened { place, event, id });
        }
        Ok(())
    }

    /// Opens an event everywhere, or what can stand in for it.
    pub(super) fn track(&self, probe: Probe) -> Result<Track> {
        if self.places.is_empty() {
            return Err(failed("nothing to record on").into());
        }
        let mut places = self.places.iter();
        // A thread that has ended proves nothing; the next may.
        let (probe, attr, first) = loop {
            let Some(place) = places.next() else {
                let all_gone = format!("cannot record {}: all of it has ended", probe.name);
                return Err(failed(all_gone).into());
            };
            if let Some((probe, attr, event)) = self.settle(probe.clone(), *place)? {
                break (probe, attr, opened(*place, event, &self.owners)?);
            }
        };
        let mut events = Vec::with_capacity(self.places.len());
        events.push(first);
        for place in places {
            match open_at(&attr, *place) {
                Ok(event) => events.push(opened(*place, event, &self.owners)?),
                // A thread that ended meanwhile, a CPU that went off: the others go on.
                Err(error) if self.is_gone(&error) => {}
                Err(error) => {
                    return Err(privileges::cannot_open(&probe.name, self.scope, &error).into());
                }
            }
        }
        Ok(Track {
            probe,
            attr,
            events,
        })
    }

    /// Opens what programs write to: on each CPU, whoever runs there, since the kernel takes no others for that.
    pub(super) fn output(&self, probe: Probe) -> Result<Track> {
        let attr = self.kernel.probe(&probe, self.settings, false);
        let mut events = Vec::new();
        for (cpu, _) in &self.owners {
            let place = Place {
                tasks: Tasks::All,
                cpu: *cpu,
            };
            let event = open_at(&attr, place)
                .map_err(|error| privileges::cannot_open(&probe.name, Scope::System, &error))?;
            events.push(opened(place, event, &self.owners)?);
        }
        Ok(Track {
            probe,
            attr,
            events,
        })
    }

    /// Finds the attributes that the kernel takes, at one place; the event that proves it is kept, since closing
    /// a tracepoint's last one takes 20 ms and more. None if the thread of this place has ended.
    fn settle(&self, mut probe: Probe, place: Place) -> Result<Option<(Probe, Attr, Event)>> {
        if probe.wants_precision && probe.attr.type_ != abi::PERF_TYPE_SOFTWARE {
            probe.attr.set_precise_ip(3);
        }
        let mut defers = true;
        loop {
            let mut attr = self.kernel.probe(&probe, self.settings, self.inherits);
            attr.set_enable_on_exec(self.starts_by_exec.into());
            if !defers {
                attr.set_defer_callchain(0);
            }
            // They come in records of their own, into the same ring.
            attr.set_defer_output(attr.defer_callchain());
            let error = match open_at(&attr, place) {
                Ok(event) => return Ok(Some((probe, attr, event))),
                Err(error) => error,
            };
            if attr.defer_callchain() == 1 && error.raw_os_error() == Some(libc::EINVAL) {
                log::warn!("this kernel cannot defer user stacks: they are taken at once");
                defers = false;
                continue;
            }
            match self.weaker(&probe, &attr, &error) {
                Some(weaker) => probe = weaker,
                None if self.is_gone(&error) => return Ok(None),
                None if stacks::are_branches(&attr) => {
                    return Err(stacks::no_branches(&probe.name, &error).into());
                }
                None => {
                    return Err(privileges::cannot_open(&probe.name, self.scope, &error).into());
                }
            }
        }
    }

    /// The next best event after a refusal; says so where the user would read other numbers.
    fn weaker(&self, probe: &Probe, attr: &Attr, error: &io::Error) -> Option<Probe> {
        let mut weaker = probe.clone();
        let precise = probe.attr.precise_ip();
        match error.raw_os_error()? {
            libc::EINVAL | libc::EOPNOTSUPP | libc::ENOENT
                if probe.wants_precision && precise > 0 =>
            {
                weaker.attr.set_precise_ip(precise - 1);
            }
            libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::ENXIO
                if counter::is_cycles(&probe.attr) && !stacks::are_branches(attr) =>
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
                if !matches!(self.scope, Scope::System | Scope::Cgroup)
                    && probe.attr.exclude_kernel() == 0 =>
            {
                weaker.attr.set_exclude_kernel(1);
                weaker.attr.set_exclude_hv(1);
                weaker.attr.set_exclude_callchain_kernel(1);
                // Some tracepoints are free for anybody's own processes: system calls.
                if matches!(probe.kind, Kind::Sampled) {
                    log::warn!(
                        "not permitted to see the kernel: recording user space only ({}:u)",
                        probe.name
                    );
                    weaker.name = format!("{}:u", probe.name);
                }
            }
            _ => return None,
        }
        Some(weaker)
    }

    fn side_band(&self) -> Result<Track> {
        let places = self.side_band_places();
        let mut refused = io::Error::from(io::ErrorKind::Other);
        for attr in self
            .kernel
            .side_bands(self.inherits, self.settings.has_data_mappings)
        {
            let mut attr = attr;
            attr.wakeup_watermark = (SIDE_BAND_BYTES / 4) as u32;
            for place in &places {
                match open_at(&attr, *place) {
                    Ok(_) => return self.side_band_everywhere(attr, &places),
                    Err(error) => refused = error,
                }
                // One that has ended says nothing of the attributes.
                if !self.is_gone(&refused) {
                    break;
                }
            }
        }
        Err(privileges::cannot_open("mappings and forks", self.scope, &refused).into())
    }

    /// As the events; beside those of cgroups for whole CPUs, since a process may come into a cgroup later.
    fn side_band_places(&self) -> Vec<Place> {
        let mut places: Vec<Place> = Vec::with_capacity(self.places.len());
        for place in self.places {
            let tasks = match place.tasks {
                Tasks::Cgroup(_) => Tasks::All,
                tasks => tasks,
            };
            let place = Place { tasks, ..*place };
            if tasks != Tasks::All || !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }

    fn side_band_everywhere(&self, attr: Attr, places: &[Place]) -> Result<Track> {
        let mut events = Vec::with_capacity(places.len());
        for place in places {
            match open_at(&attr, *place) {
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
                pattern: None,
            },
            attr,
            events,
        })
    }

    /// Owners and rings of one size; nothing stays after a failure.
    fn try_rings(&self, ring_bytes: usize, side_band: &Track) -> io::Result<(Owners, Rings)> {
        let side_band_bytes = SIDE_BAND_BYTES.min((ring_bytes / 4).max(page_bytes()));
        let attr = self.kernel.owner(ring_bytes, self.inherits);
        let mut owners: Owners = Vec::new();
        let mut rings = Rings::default();
        let mut side_owners: Vec<(u32, &Event)> = Vec::new();
        for opened in &side_band.events {
            let cpu = opened.place.cpu;
            if let Some((_, owner)) = side_owners.iter().find(|(of, _)| *of == cpu) {
                opened.event.set_output(owner)?;
                continue;
            }
            let ring = Ring::map(&opened.event, side_band_bytes)?;
            rings.side_band.push(ring);
            side_owners.push((cpu, &opened.event));
            owners.push((cpu, open_at(&attr, opened.place)?));
        }
        for (_, owner) in &owners {
            rings.events.push(Ring::map(owner, ring_bytes)?);
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

    pub(super) fn cpus(&self) -> Vec<u32> {
        let mut cpus: Vec<u32> = self.places.iter().map(|place| place.cpu).collect();
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    }

    fn locked_bytes(&self, ring_bytes: usize) -> u64 {
        (self.cpus().len() * (ring_bytes + SIDE_BAND_BYTES + 2 * page_bytes())) as u64
    }

    fn is_gone(&self, error: &io::Error) -> bool {
        match error.raw_os_error() {
            Some(libc::ESRCH) => {
                matches!(self.scope, Scope::Task(_) | Scope::User(_)) && self.places.len() > 1
            }
            Some(libc::ENODEV) => self.places.len() > 1,
            _ => false,
        }
    }
}

fn open_at(attr: &Attr, place: Place) -> io::Result<Event> {
    let cpu = place.cpu as i32;
    match place.tasks {
        Tasks::All => Event::open(attr, -1, cpu),
        Tasks::Thread(tid) => Event::open(attr, tid, cpu),
        Tasks::Cgroup(folder) => Event::open_in_cgroup(attr, folder, cpu),
    }
}

/// Opens an event, or what can stand in for it, on CPUs, without a ring.
pub(super) fn for_program(probe: &Probe, cpus: &[u32], settings: &Settings) -> Result<Vec<Event>> {
    let places: Vec<Place> = cpus
        .iter()
        .map(|&cpu| Place {
            tasks: Tasks::All,
            cpu,
        })
        .collect();
    let opening = Opening::new(&Target::System, &places, settings, Scope::System);
    let track = opening.track(probe.clone())?;
    Ok(track
        .events
        .into_iter()
        .map(|opened| opened.event)
        .collect())
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
