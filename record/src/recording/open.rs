//! Opens the rings, as large as locked memory allows, and then each event with its fallbacks.

use std::io;

use anyhow::Result;

use super::attr::{self, Kernel};
use super::{Opened, Rings, Settings, Track};
use crate::failure::{Failure, failed};
use crate::probe::{Kind, Probe, counter, stacks};
use crate::sys::host;
use crate::sys::limits::{self, Resource};
use crate::sys::perf_event::{Attr, Counted, Event, abi};
use crate::sys::privileges::{self, Scope};
use crate::sys::ring::{Ring, page_bytes};
use crate::target::{Place, Target, Tasks};

/// Ring size for root. Losses depend on the size and the drain's priority, not on how it is woken up: at 120 MB/s per
/// CPU, this size lasts 280 ms.
const ROOTS_RING_BYTES: usize = 32 << 20;
/// Maximum share of the host's memory, because locked memory is unavailable to others.
const MOST_OF_MEMORY: u64 = 32;
/// Ring size if locked memory is limited; the usual limit.
const USERS_RING_BYTES: usize = 8 << 20;
const LEAST_RING_BYTES: usize = 32 << 10;
const SIDE_BAND_BYTES: usize = 1 << 20;

/// The owners of a CPU's rings, which count and write nothing.
pub(super) struct Owner {
    cpu: u32,
    side_band: Event,
    events: Event,
}

impl Owner {
    /// Returns both owners, which wake up the readers of their rings.
    pub(super) fn into_events(self) -> [Event; 2] {
        [self.side_band, self.events]
    }
}

/// Settings that stay the same while events are opened.
pub(super) struct Opening<'a> {
    pub(super) places: &'a [Place],
    settings: &'a Settings,
    scope: Scope,
    kernel: Kernel,
    /// Whether events belong to threads, not to CPUs.
    is_of_threads: bool,
    /// Whether the threads' children have the events, too.
    inherits: bool,
    starts_by_exec: bool,
    /// Whether probes in programs are recorded.
    pub(super) has_uprobes: bool,
    /// Whether a BPF program takes the stacks.
    has_own_stacks: bool,
    /// Whether events of running threads count as soon as they are open.
    pub(super) runs_at_once: bool,
    /// The owners of the rings, once there are rings.
    pub(super) owners: Vec<Owner>,
    ring_bytes: usize,
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
            is_of_threads: !target.is_of_cpus(),
            inherits: !target.is_of_cpus() && !settings.excludes_children,
            has_uprobes: false,
            has_own_stacks: false,
            starts_by_exec: *target == Target::Command && !settings.starts_paused,
            // If an event is opened first and enabled later, a thread must not inherit it in between. A thread started
            // while the kernel enables the inherited copies can inherit an event that is still disabled, and stays so.
            // Threads with equal events also swap them at a context switch, so then one or the other thread records
            // nothing, even the creator (kernel/events/core.c: perf_event_for_each_child, inherit_event,
            // perf_event_context_sched_out). On a busy host, 94 of 2,000 threads had gaps, and 1,999 of 2,000 starts
            // were missing from the side-band. So these events run from the time they are opened, and the drain drops
            // earlier records.
            runs_at_once: !target.is_of_cpus() && *target != Target::Command,
            owners: Vec::new(),
            ring_bytes: usize::MAX,
        }
    }

    /// Maps two rings per CPU. Returns the side-band's events, which are running, and the rings.
    pub(super) fn rings(&mut self) -> Result<(Track, Rings)> {
        let mut ring_bytes = self
            .settings
            .ring_bytes
            .unwrap_or_else(|| self.best_ring_bytes());
        let locked = limits::raise(Resource::LockedMemory, self.locked_bytes(ring_bytes));
        let attr = self.side_band_attr()?;
        loop {
            match self.try_rings(ring_bytes) {
                Ok((owners, rings)) => {
                    log::info!("rings of {} KiB on {} CPUs", ring_bytes >> 10, owners.len());
                    self.owners = owners;
                    self.ring_bytes = ring_bytes;
                    return Ok((self.side_band(attr)?, rings));
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

    /// Opens an event in one more place; none if its thread has ended.
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

    /// Adds one more thread to the side-band.
    pub(super) fn add_to_side_band(&self, tid: i32, side_band: &mut Track) -> Result<()> {
        for cpu in self.cpus() {
            let place = Place {
                tasks: Tasks::Thread(tid),
                cpu,
            };
            match self.open_side_band(&side_band.attr, place) {
                Ok(opened) => side_band.events.push(opened),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
                Err(error) => return Err(self.no_side_band(&error).into()),
            }
        }
        Ok(())
    }

    /// Opens an event, or a substitute, in all places.
    pub(super) fn track(&self, probe: Probe) -> Result<Track> {
        if self.places.is_empty() {
            return Err(failed("nothing to record on").into());
        }
        let mut places = self.places.iter();
        // A thread that has ended proves nothing; try the next.
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
                // A thread has ended or a CPU went offline in the meantime; the others continue.
                Err(error) if self.is_gone(&error) => {}
                Err(error) => {
                    return Err(privileges::cannot_open(&probe.name, self.scope, &error).into());
                }
            }
        }
        let stacks = self.settings.stacks;
        let (is_walked, is_followed) = (
            stacks.are_walked(&probe, &attr),
            stacks.are_followed(&probe, &attr),
        );
        let keeps_registers = probe.is_sampled() && self.settings.extras.has_registers();
        Ok(Track {
            probe,
            attr,
            events,
            is_walked,
            is_followed,
            leader: None,
            keeps_registers,
        })
    }

    /// Opens the other events of a group, whose first has this place among the tracks.
    pub(super) fn members(&self, leader: &Track, number: usize) -> Result<Vec<Track>> {
        let inherits = leader.attr.inherit() == 1;
        let member = |probe: &Probe| {
            let mut probe = probe.clone();
            let mut attr = self.kernel.member(&probe, inherits);
            let mut events = Vec::with_capacity(leader.events.len());
            for of_leader in &leader.events {
                let event = loop {
                    match open_in_group(&attr, of_leader) {
                        Ok(event) => break Some(event),
                        Err(error) => match self.weaker_member(&probe, &error) {
                            Some(weaker) => probe = weaker,
                            None if self.is_gone(&error) => break None,
                            None => {
                                let cannot =
                                    privileges::cannot_open(&probe.name, self.scope, &error);
                                return Err(cannot.into());
                            }
                        },
                    }
                    attr = self.kernel.member(&probe, inherits);
                };
                if let Some(event) = event {
                    let (place, id) = (of_leader.place, event.id()?);
                    events.push(Opened { place, event, id });
                }
            }
            Ok(Track {
                probe,
                attr,
                events,
                is_walked: false,
                is_followed: false,
                leader: Some(number),
                keeps_registers: false,
            })
        };
        leader.probe.members.iter().map(member).collect()
    }

    /// Opens an event of a group in one more place, whose first event is open there; none if its thread has ended.
    pub(super) fn open_late_in_group(
        &self,
        name: &str,
        attr: &Attr,
        leader: &Opened,
    ) -> Result<Option<Opened>> {
        let place = leader.place;
        match open_in_group(attr, leader) {
            Ok(event) => {
                let id = event.id()?;
                Ok(Some(Opened { place, event, id }))
            }
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
            Err(error) => Err(privileges::cannot_open(name, self.scope, &error).into()),
        }
    }

    /// Opens the output of BPF programs, on each CPU for all threads, because the kernel accepts no other events for
    /// it.
    pub(super) fn output(&self, probe: Probe) -> Result<Track> {
        let attr = self.kernel.probe(&probe, self.settings, false);
        let mut events = Vec::new();
        for owner in &self.owners {
            let place = Place {
                tasks: Tasks::All,
                cpu: owner.cpu,
            };
            let event = open_at(&attr, place)
                .map_err(|error| privileges::cannot_open(&probe.name, Scope::System, &error))?;
            events.push(opened(place, event, &self.owners)?);
        }
        Ok(Track {
            probe,
            attr,
            events,
            is_walked: false,
            is_followed: false,
            leader: None,
            keeps_registers: false,
        })
    }

    /// Opens PERF_RECORD_SWITCH for all tasks; `None` before Linux 4.3, which lacks it.
    pub(super) fn switches(&self) -> Result<Option<Track>> {
        let mut attr = self.kernel.switches(self.inherits);
        attr.set_enable_on_exec(self.starts_by_exec.into());
        attr.set_disabled((!self.runs_at_once).into());
        let name = "dummy:switches";
        let mut events = Vec::with_capacity(self.places.len());
        for place in self.places {
            match open_at(&attr, *place) {
                Ok(event) => events.push(opened(*place, event, &self.owners)?),
                Err(error) if self.is_gone(&error) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    log::warn!(
                        "this kernel does not report switches into the target's threads; sched_switch has only switches out"
                    );
                    return Ok(None);
                }
                Err(error) => return Err(privileges::cannot_open(name, self.scope, &error).into()),
            }
        }
        Ok(Some(carrier(name, attr, events)))
    }

    /// Finds attributes that the kernel accepts in one place. Returns the event as well, because closing the last one
    /// of a tracepoint takes at least 20 ms. `None` if the thread of this place has ended.
    fn settle(&self, mut probe: Probe, place: Place) -> Result<Option<(Probe, Attr, Event)>> {
        if probe.wants_precision && probe.attr.type_ != abi::PERF_TYPE_SOFTWARE {
            probe.attr.set_precise_ip(3);
        }
        let mut defers = true;
        let mut inherits = self.inherits;
        loop {
            let mut attr = self.kernel.probe(&probe, self.settings, inherits);
            attr.set_enable_on_exec(self.starts_by_exec.into());
            attr.set_disabled((!self.runs_at_once).into());
            if !defers {
                attr.set_defer_callchain(0);
            }
            stacks::fit_copies(&mut attr, self.ring_bytes);
            if self.has_own_stacks {
                stacks::leave_to_program(&mut attr);
            }
            // Deferred stacks are separate records in the same ring.
            attr.set_defer_output(attr.defer_callchain());
            let error = match open_at(&attr, place) {
                Ok(event) => return Ok(Some((probe, attr, event))),
                Err(error) => error,
            };
            if attr.defer_callchain() == 1 && error.raw_os_error() == Some(libc::EINVAL) {
                log::warn!("this kernel cannot defer user stacks; taking them immediately");
                defers = false;
                continue;
            }
            match self.weaker(&probe, &attr, &error) {
                Some(weaker) => probe = weaker,
                // Since Linux 6.12, inherited events can be read with samples.
                None if inherits
                    && !probe.members.is_empty()
                    && error.raw_os_error() == Some(libc::EINVAL) =>
                {
                    log::warn!(
                        "this kernel reads groups only in the threads that exist at the start (before Linux 6.12); not in those that they start"
                    );
                    inherits = false;
                }
                None if self.is_gone(&error) => return Ok(None),
                None if stacks::are_branches(&attr) => {
                    return Err(stacks::no_branches(&probe.name, &error).into());
                }
                None => {
                    let extras = self.settings.extras;
                    let no_branches = extras.no_branches(&attr, &probe.name, &error);
                    return Err(no_branches
                        .unwrap_or_else(|| privileges::cannot_open(&probe.name, self.scope, &error))
                        .into());
                }
            }
        }
    }

    /// Returns the next best event after a rejection, and reports it if the numbers have another meaning.
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
                if counter::is_cycles(&probe.attr) && !stacks::has_branches(attr) =>
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
            // kernel.perf_event_paranoid 2 allows a user's own processes, without the kernel.
            libc::EACCES | libc::EPERM
                if !matches!(self.scope, Scope::System | Scope::Cgroup)
                    && probe.attr.exclude_kernel() == 0
                    && probe.attr.exclude_user() == 0 =>
            {
                weaker.attr.set_exclude_kernel(1);
                weaker.attr.set_exclude_hv(1);
                weaker.attr.set_exclude_callchain_kernel(1);
                // Some tracepoints, such as system calls, are available to all users for their own processes.
                if matches!(probe.kind, Kind::Sampled) {
                    log::warn!(
                        "not permitted to sample the kernel; recording user space only ({}:u)",
                        probe.name
                    );
                    weaker.name = format!("{}:u", probe.name);
                }
            }
            _ => return None,
        }
        Some(weaker)
    }

    /// Returns the next best event of a group after a rejection. Its numbers keep their meaning.
    fn weaker_member(&self, probe: &Probe, error: &io::Error) -> Option<Probe> {
        let mut weaker = probe.clone();
        match error.raw_os_error()? {
            libc::EINVAL | libc::EOPNOTSUPP if probe.attr.exclude_guest() == 1 => {
                weaker.attr.set_exclude_guest(0);
            }
            libc::EACCES | libc::EPERM
                if !matches!(self.scope, Scope::System | Scope::Cgroup)
                    && probe.attr.exclude_kernel() == 0
                    && counter::occurs_without_kernel(&probe.attr) =>
            {
                weaker.attr.set_exclude_kernel(1);
                weaker.attr.set_exclude_hv(1);
                log::warn!(
                    "not permitted to count in the kernel; counting user space only ({}:u)",
                    probe.name
                );
                weaker.name = format!("{}:u", probe.name);
            }
            _ => return None,
        }
        Some(weaker)
    }

    /// Returns the most complete attributes of the side-band that the kernel accepts.
    fn side_band_attr(&self) -> Result<Attr> {
        let places = self.side_band_places();
        let mut refused = io::Error::from(io::ErrorKind::Other);
        // Later threads map files into the same memory, so the side-band is always inherited.
        let is_of_one_task = self.inherits && self.has_uprobes;
        for attr in self.kernel.side_bands(self.is_of_threads, is_of_one_task) {
            for place in &places {
                match open_at(&attr, *place) {
                    Ok(_) => {
                        if is_of_one_task && !attr::is_of_one_task(&attr) {
                            attr::warn_of_exchanged_events();
                        }
                        return Ok(attr);
                    }
                    Err(error) => refused = error,
                }
                // A thread that has ended says nothing about the attributes.
                if !self.is_gone(&refused) {
                    break;
                }
            }
        }
        Err(self.no_side_band(&refused).into())
    }

    fn no_side_band(&self, error: &io::Error) -> Failure {
        privileges::cannot_open("mappings and forks", self.scope, error)
    }

    /// Returns the places of the side-band: those of the events; for cgroups, whole CPUs, because a process may enter a
    /// cgroup later.
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

    fn side_band(&self, attr: Attr) -> Result<Track> {
        let mut attr = attr;
        attr.set_disabled(0);
        let places = self.side_band_places();
        let mut events = Vec::with_capacity(places.len());
        for place in places {
            match self.open_side_band(&attr, place) {
                Ok(opened) => events.push(opened),
                Err(error) if self.is_gone(&error) => {}
                Err(error) => return Err(self.no_side_band(&error).into()),
            }
        }
        Ok(carrier("dummy:HG", attr, events))
    }

    fn open_side_band(&self, attr: &Attr, place: Place) -> io::Result<Opened> {
        let owner = self.owners.iter().find(|owner| owner.cpu == place.cpu);
        let event = match (owner, place.tasks) {
            (Some(owner), Tasks::Thread(tid)) => {
                Event::open_into(attr, tid, place.cpu as i32, &owner.side_band)?
            }
            (Some(owner), Tasks::All) => {
                Event::open_into(attr, -1, place.cpu as i32, &owner.side_band)?
            }
            // Cgroups do not occur here; a CPU that went offline has no ring.
            (None, _) | (Some(_), Tasks::Cgroup(_)) => {
                return Err(io::Error::from_raw_os_error(libc::ENODEV));
            }
        };
        let id = event.id()?;
        Ok(Opened { place, event, id })
    }

    /// Creates owners and rings of one size; keeps nothing after a failure.
    fn try_rings(&self, ring_bytes: usize) -> io::Result<(Vec<Owner>, Rings)> {
        let side_band_bytes = SIDE_BAND_BYTES.min((ring_bytes / 4).max(page_bytes()));
        let mut owners = Vec::new();
        let mut rings = Rings::default();
        for cpu in self.cpus() {
            // For events of threads, the owner is on the recorder itself, which outlives the recording.
            let tasks = match self.is_of_threads {
                true => Tasks::Thread(0),
                false => Tasks::All,
            };
            let place = Place { tasks, cpu };
            let open = |bytes| open_at(&self.kernel.owner(bytes), place);
            let side_band = match open(side_band_bytes) {
                Ok(event) => event,
                Err(error) if self.is_gone(&error) => continue,
                Err(error) => return Err(error),
            };
            let events = open(ring_bytes)?;
            rings
                .side_band
                .push(Ring::map(&side_band, side_band_bytes)?);
            rings.events.push(Ring::map(&events, ring_bytes)?);
            owners.push(Owner {
                cpu,
                side_band,
                events,
            });
        }
        Ok((owners, rings))
    }

    fn best_ring_bytes(&self) -> usize {
        let mut ring_bytes = if host::is_root() {
            ROOTS_RING_BYTES
        } else {
            USERS_RING_BYTES
        };
        let most = host::memory_kib().map_or(u64::MAX, |kib| kib * 1024 / MOST_OF_MEMORY);
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

/// A track without hits, whose information is in other records.
fn carrier(name: &str, attr: Attr, events: Vec<Opened>) -> Track {
    Track {
        probe: Probe {
            name: name.to_owned(),
            attr,
            kind: Kind::Sampled,
            filter: None,
            wants_precision: false,
            pattern: None,
            members: Vec::new(),
        },
        attr,
        events,
        is_walked: false,
        is_followed: false,
        leader: None,
        keeps_registers: false,
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

/// Opens an event that is counted together with the first of its group.
fn open_in_group(attr: &Attr, leader: &Opened) -> io::Result<Event> {
    let tasks = match leader.place.tasks {
        Tasks::All => Counted::Process(-1),
        Tasks::Thread(tid) => Counted::Process(tid),
        Tasks::Cgroup(folder) => Counted::Cgroup(folder),
    };
    let cpu = leader.place.cpu as i32;
    Event::open_to_count(attr, tasks, cpu, Some(&leader.event))
}

/// Opens an event, or a substitute, on CPUs, without a ring.
pub(super) fn for_program(probe: &Probe, cpus: &[u32], settings: &Settings) -> Result<Vec<Event>> {
    let places: Vec<Place> = cpus
        .iter()
        .map(|&cpu| Place {
            tasks: Tasks::All,
            cpu,
        })
        .collect();
    let mut opening = Opening::new(&Target::System, &places, settings, Scope::System);
    opening.has_own_stacks = true;
    let track = opening.track(probe.clone())?;
    Ok(track
        .events
        .into_iter()
        .map(|opened| opened.event)
        .collect())
}

/// Sends the event's records to the ring of its CPU.
fn opened(place: Place, event: Event, owners: &[Owner]) -> io::Result<Opened> {
    if let Some(owner) = owners.iter().find(|owner| owner.cpu == place.cpu) {
        event.set_output(&owner.events)?;
    }
    let id = event.id()?;
    Ok(Opened { place, event, id })
}

/// Checks the kernel by opening an event on the recorder itself.
fn has_format_lost() -> bool {
    let kernel = Kernel { has_lost: true };
    Event::open(&kernel.owner(LEAST_RING_BYTES), 0, -1).is_ok()
}
