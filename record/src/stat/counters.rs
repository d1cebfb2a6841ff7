//! Open counters: on each CPU, thread or cgroup, read at intervals.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::{Context, Result};
use perfquet_events::event::{Counted, CounterValue};

use super::table::{self, Row};
use super::{Group, Per};
use crate::failure::Failure;
use crate::journal::own_records::OwnRecords;
use crate::probe::{Probe, counter, event_attr};
use crate::recording::{self, OWN_ID};
use crate::sys::clock;
use crate::sys::limits::{self, Resource};
use crate::sys::perf_event::{self, Attr, Event, abi};
use crate::sys::privileges::{self, Scope};
use crate::target::{Target, Tasks};

/// Descriptors of everything else.
const OTHER_FILES: u64 = 400;

/// Longest time between the readings of two events of a place that are equal apart from it.
const READ_APART_NS: u64 = 1_000_000;

/// Where to count.
pub(crate) struct Places<'a> {
    pub(crate) target: &'a Target,
    /// PID of the waiting command.
    pub(crate) command: Option<i32>,
    /// Its program, whose name its thread will have.
    pub(crate) program: Option<&'a OsStr>,
    pub(crate) cpus: &'a [u32],
    /// Whether the user selected these CPUs.
    pub(crate) are_cpus_chosen: bool,
    pub(crate) per: Option<Per>,
    /// Whether threads and processes started by the target are excluded.
    pub(crate) excludes_children: bool,
    /// Whether nothing is counted until [`Counters::switch`].
    pub(crate) starts_paused: bool,
}

/// What a count is for; `None`: all of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Key {
    cgroup: Option<usize>,
    cpu: Option<u32>,
    tid: Option<i32>,
}

/// One place of an event.
#[derive(Debug, Clone, Copy)]
struct Place {
    tasks: perf_event::Counted,
    cpu: i32,
    key: Key,
}

/// A counted event.
struct Counter {
    name: String,
    /// Whether it counts nanoseconds.
    is_clock: bool,
    events: Vec<Opened>,
    /// Why it is not counted.
    error: Option<String>,
}

struct Opened {
    /// Number of its place.
    place: usize,
    key: Key,
    event: Event,
    /// Whether it starts and stops the others of its group.
    is_leader: bool,
    before: Counted,
}

/// Measures the time of threads on a CPU.
struct Presence {
    event: Event,
    before: u64,
}

/// The value of an event for a key.
struct Value {
    event: usize,
    key: Key,
    /// `None`: not counted.
    counted: Option<Counted>,
}

/// All counters.
pub(crate) struct Counters {
    counters: Vec<Counter>,
    /// By place, where threads are counted on single CPUs. The kernel adds up the enabled time of such an event on all CPUs, so it does
    /// not tell for how long another counter had its place. An event that needs no counter runs whenever the thread is there.
    presences: Vec<Option<Presence>>,
    cgroups: Vec<String>,
    /// Names of threads when last seen.
    comms: BTreeMap<i32, String>,
    is_started_by_exec: bool,
    /// Whether whole CPUs are counted, on which an event is enabled all the time.
    is_of_whole_cpus: bool,
    began: u64,
    /// End of the last period.
    since: u64,
    pauses: Pauses,
    totals: BTreeMap<(usize, Key), Counted>,
}

/// Time in which nothing was counted.
#[derive(Debug, Default)]
struct Pauses {
    /// Start of the pause that goes on.
    began: Option<u64>,
    /// Nanoseconds in the period, without that pause.
    ended: u64,
    /// Nanoseconds in all periods before.
    before: u64,
}

impl Pauses {
    fn switch(&mut self, is_on: bool, (now, since): (u64, u64)) {
        match is_on {
            false => {
                self.began.get_or_insert(now);
            }
            true => self.ended += self.of_current(now, since),
        }
        self.began = self.began.filter(|_| !is_on);
    }

    /// Time in the pause that goes on, since the period began.
    fn of_current(&self, now: u64, since: u64) -> u64 {
        self.began
            .map_or(0, |began| now.saturating_sub(began.max(since)))
    }

    /// Ends a period. Returns the time in it.
    fn end_period(&mut self, now: u64, since: u64) -> u64 {
        let paused = self.ended + self.of_current(now, since);
        self.before += paused;
        self.ended = 0;
        paused
    }
}

impl Counters {
    /// Opens the events, disabled.
    pub(crate) fn open(groups: Vec<Group>, places: &Places<'_>) -> Result<Counters> {
        let all = places.all()?;
        let count = groups.iter().map(Vec::len).sum::<usize>();
        let needed = ((count + 1) * all.len()) as u64 + OTHER_FILES;
        let limit = limits::raise(Resource::OpenFiles, needed);
        if limit < needed {
            return Err(privileges::too_many_files(count, needed, limit).into());
        }
        let is_started_by_exec = *places.target == Target::Command && !places.starts_paused;
        let opening = Opening {
            scope: places.target.scope(),
            is_of_threads: !places.target.is_of_cpus(),
            inherits: !places.target.is_of_cpus() && !places.excludes_children,
            is_started_by_exec,
            has_warned: Cell::new(false),
            has_warned_of_tasks: Cell::new(false),
        };
        let mut counters = Vec::with_capacity(count);
        for group in groups {
            counters.extend(opening.group(group, &all)?);
        }
        let presences = all.iter().map(|place| opening.presence(*place)).collect();
        let mut comms = BTreeMap::new();
        for tid in all.iter().filter_map(|place| place.key.tid) {
            let comm = match places.command == Some(tid) {
                true => places.program.and_then(comm_after_exec),
                false => comm_of(tid),
            };
            comms.insert(tid, comm.unwrap_or_default());
        }
        let now = clock::monotonic();
        Ok(Counters {
            counters,
            presences,
            cgroups: places.target.cgroup_paths(),
            comms,
            is_started_by_exec,
            is_of_whole_cpus: *places.target == Target::System,
            began: now,
            since: now,
            pauses: Pauses::default(),
            totals: BTreeMap::new(),
        })
    }

    /// Starts counting, unless the command's exec does.
    pub(crate) fn start(&mut self) -> Result<()> {
        if !self.is_started_by_exec {
            self.switch(true)?;
        }
        self.begin();
        Ok(())
    }

    /// Sets the start of the first period. What events of the whole system have counted before is not part of it.
    pub(crate) fn begin(&mut self) {
        self.began = clock::monotonic();
        self.since = self.began;
        self.pauses = Pauses::default();
        for opened in self
            .counters
            .iter_mut()
            .flat_map(|counter| &mut counter.events)
        {
            if let Ok([value, enabled, running]) = opened.event.times() {
                opened.before = Counted {
                    value,
                    enabled,
                    running,
                };
            }
        }
        for presence in self.presences.iter_mut().flatten() {
            if let Ok([_, _, running]) = presence.event.times() {
                presence.before = running;
            }
        }
    }

    /// Starts or stops counting.
    pub(crate) fn switch(&mut self, is_on: bool) -> Result<()> {
        self.pauses.switch(is_on, (clock::monotonic(), self.since));
        let switch = |event: &Event, name: &str| {
            let switched = match is_on {
                true => event.enable(),
                false => event.disable(),
            };
            switched.with_context(|| format!("cannot switch the event {name}"))
        };
        for presence in self.presences.iter().flatten() {
            switch(&presence.event, "dummy")?;
        }
        for counter in &self.counters {
            for opened in counter.events.iter().filter(|opened| opened.is_leader) {
                switch(&opened.event, &counter.name)?;
            }
        }
        Ok(())
    }

    /// Ends a period: returns its records for the journal, and the lines of `--live`.
    pub(crate) fn read(&mut self) -> Result<(Vec<u8>, Vec<String>)> {
        let now = clock::monotonic();
        let mut sums: BTreeMap<(usize, Key), Counted> = BTreeMap::new();
        let mut present = vec![None; self.presences.len()];
        for (presence, present) in self.presences.iter_mut().zip(&mut present) {
            if let Some(presence) = presence {
                let [_, _, running] = presence.event.times().context("cannot read an event")?;
                *present = Some(running.saturating_sub(presence.before));
                presence.before = running;
            }
        }
        for (number, counter) in self.counters.iter_mut().enumerate() {
            for opened in &mut counter.events {
                let read = match opened.event.times() {
                    Ok([value, enabled, running]) => Counted {
                        value,
                        enabled,
                        running,
                    },
                    // A pinned event (:D) for which no counter was free.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Counted {
                        enabled: opened.before.enabled + 1,
                        ..opened.before
                    },
                    Err(error) => {
                        let name = &counter.name;
                        return Err(error)
                            .with_context(|| format!("cannot read the count of {name}"));
                    }
                };
                let mut new = read.minus(opened.before);
                opened.before = read;
                if let Some(present) = present[opened.place] {
                    // Not read at the same moment.
                    let is_whole = new.running.abs_diff(present) < READ_APART_NS;
                    new.enabled = if is_whole { new.running } else { present };
                }
                let sum = sums.entry((number, opened.key)).or_default();
                *sum = sum.plus(new);
            }
        }
        for (place, counted) in &sums {
            let total = self.totals.entry(*place).or_default();
            *total = total.plus(*counted);
        }
        for (tid, comm) in &mut self.comms {
            // An ended thread keeps its last name.
            if let Some(name) = comm_of(*tid) {
                *comm = name;
            }
        }
        let values = self.values(&sums);
        let mut records = OwnRecords::new(OWN_ID, now, 0);
        for value in &values {
            records.count(&self.described(value));
        }
        let paused = self.pauses.end_period(now, self.since);
        let elapsed = now.saturating_sub(self.since).saturating_sub(paused);
        self.since = now;
        Ok((records.into_bytes(), self.lines(&values, elapsed)))
    }

    /// Returns the lines to print at the end: the counts of the whole recording.
    pub(crate) fn summary(&self) -> Vec<String> {
        let values = self.values(&self.totals);
        let all = self.since.saturating_sub(self.began);
        self.lines(&values, all.saturating_sub(self.pauses.before))
    }

    /// Adds the events that are not counted, in the order of the command line.
    fn values(&self, sums: &BTreeMap<(usize, Key), Counted>) -> Vec<Value> {
        let mut values: Vec<Value> = sums
            .iter()
            .map(|(&(event, key), &counted)| Value {
                event,
                key,
                counted: Some(counted),
            })
            .collect();
        let failed = self.counters.iter().enumerate();
        let failed = failed.filter(|(_, counter)| counter.error.is_some());
        values.extend(failed.map(|(event, _)| Value {
            event,
            key: Key::default(),
            counted: None,
        }));
        values.sort_by_key(|value| (value.key.cgroup, value.key.tid, value.key.cpu, value.event));
        values
    }

    fn described<'a>(&'a self, value: &Value) -> CounterValue<'a> {
        let bytes = |text: Option<&'a String>| text.map_or(&b""[..], |text| text.as_bytes());
        CounterValue {
            since: i64::try_from(self.since).ok(),
            time: None,
            event: self.counters[value.event].name.as_bytes(),
            unit: if self.counters[value.event].is_clock {
                b"ns"
            } else {
                b""
            },
            counted: value.counted,
            cpu: value.key.cpu,
            tid: value.key.tid,
            comm: bytes(self.comm(value)),
            cgroup: bytes(self.cgroup(value)),
            error: bytes(self.counters[value.event].error.as_ref()),
        }
    }

    fn lines(&self, values: &[Value], elapsed: u64) -> Vec<String> {
        let row = |value: &Value| Row {
            of: self.key(value),
            event: self.counters[value.event].name.clone(),
            is_clock: self.counters[value.event].is_clock,
            counted: value.counted,
            error: self.counters[value.event].error.clone().unwrap_or_default(),
            elapsed: self.elapsed_of(value).unwrap_or(elapsed),
        };
        let rows: Vec<Row> = values.iter().map(row).collect();
        table::lines(&rows, elapsed)
    }

    /// For how long an event was counted on whole CPUs: exactly, since the recorder may have to wait for a CPU between the
    /// clock and the counters. `None`: unknown, since the events of threads are enabled only while these run.
    fn elapsed_of(&self, value: &Value) -> Option<u64> {
        let events = &self.counters[value.event].events;
        let cpus = events
            .iter()
            .filter(|opened| opened.key == value.key)
            .count() as u64;
        let counted = value.counted.filter(|_| self.is_of_whole_cpus)?;
        time_on_each(counted, cpus)
    }

    /// What a value is for: `sh-1234 CPU 0`.
    fn key(&self, value: &Value) -> String {
        let mut words = Vec::new();
        words.extend(self.cgroup(value).cloned());
        words.extend(value.key.tid.map(|tid| {
            let comm = self.comm(value).map_or("", String::as_str);
            format!("{comm}-{tid}")
        }));
        words.extend(value.key.cpu.map(|cpu| format!("CPU {cpu}")));
        words.join(" ")
    }

    fn comm(&self, value: &Value) -> Option<&String> {
        self.comms.get(&value.key.tid?)
    }

    fn cgroup(&self, value: &Value) -> Option<&String> {
        self.cgroups.get(value.key.cgroup?)
    }
}

impl Places<'_> {
    fn all(&self) -> Result<Vec<Place>, Failure> {
        // One place per task; the CPUs are added here.
        let tasks = self
            .target
            .places(self.command, &self.cpus[..self.cpus.len().min(1)])?;
        let is_per_cpu = self.per == Some(Per::Cpu);
        let has_cpus = self.target.is_of_cpus() || is_per_cpu || self.are_cpus_chosen;
        let cpus: Vec<i32> = match has_cpus {
            true => self.cpus.iter().map(|&cpu| cpu as i32).collect(),
            false => vec![-1],
        };
        let mut places = Vec::new();
        for (number, place) in tasks.iter().enumerate() {
            let (tasks, mut key) = match place.tasks {
                Tasks::All => (perf_event::Counted::Process(-1), Key::default()),
                Tasks::Thread(tid) => {
                    let tid_of_key = (self.per == Some(Per::Thread)).then_some(tid);
                    let key = Key {
                        tid: tid_of_key,
                        ..Key::default()
                    };
                    (perf_event::Counted::Process(tid), key)
                }
                Tasks::Cgroup(folder) => {
                    let key = Key {
                        cgroup: Some(number),
                        ..Key::default()
                    };
                    (perf_event::Counted::Cgroup(folder), key)
                }
            };
            for &cpu in &cpus {
                key.cpu = is_per_cpu.then_some(cpu as u32);
                places.push(Place { tasks, cpu, key });
            }
        }
        Ok(places)
    }
}

/// Settings that stay the same while events are opened.
struct Opening {
    scope: Scope,
    is_of_threads: bool,
    inherits: bool,
    is_started_by_exec: bool,
    /// Whether the user knows that the kernel is not included.
    has_warned: Cell<bool>,
    /// Whether the user knows that hits may be missing.
    has_warned_of_tasks: Cell<bool>,
}

impl Opening {
    /// Opens the events of a group in all places.
    fn group(&self, group: Group, places: &[Place]) -> Result<Vec<Counter>> {
        let mut counters: Vec<Counter> = Vec::with_capacity(group.len());
        for probe in group {
            let leader = counters.iter().position(|counter| counter.error.is_none());
            let leaders = leader.map(|leader| &counters[leader].events[..]);
            counters.push(self.counter(probe, places, leaders)?);
        }
        Ok(counters)
    }

    /// Opens an event in all places, with the leaders of its group, if it has one.
    fn counter(
        &self,
        mut probe: Probe,
        places: &[Place],
        leaders: Option<&[Opened]>,
    ) -> Result<Counter> {
        let is_clock = counter::is_clock(&probe.attr);
        if is_clock && (probe.attr.exclude_user() == 1 || probe.attr.exclude_kernel() == 1) {
            return Ok(part_of_clock(probe));
        }
        if self.inherits && probe.is_of_program() {
            probe.attr = recording::of_one_task(probe.attr);
        }
        let mut events = Vec::with_capacity(places.len());
        let mut error = None;
        for (number, place) in places.iter().enumerate() {
            // None where the leader's thread had ended.
            let leader = leaders.and_then(|leaders| {
                let found = leaders.binary_search_by_key(&number, |leader| leader.place);
                found.ok().map(|found| &leaders[found])
            });
            if leaders.is_some() && leader.is_none() {
                continue;
            }
            loop {
                let attr = self.attr(&probe.attr, leader.is_some());
                let leader = leader.map(|leader| &leader.event);
                let refused = match Event::open_to_count(&attr, place.tasks, place.cpu, leader) {
                    Ok(event) => {
                        events.push(Opened {
                            place: number,
                            key: place.key,
                            event,
                            is_leader: leader.is_none(),
                            before: Counted::default(),
                        });
                        break;
                    }
                    Err(refused) => refused,
                };
                match refused.raw_os_error() {
                    Some(libc::EINVAL) if recording::is_of_one_task(&probe.attr) => {
                        probe.attr.sample_type = 0;
                        if !self.has_warned_of_tasks.replace(true) {
                            log::warn!(
                                "{}: this kernel misses hits in processes and threads that run at the same time (Linux before 6.12); -a counts them all",
                                probe.name
                            );
                        }
                    }
                    Some(libc::EINVAL | libc::EOPNOTSUPP) if probe.attr.exclude_guest() == 1 => {
                        probe.attr.set_exclude_guest(0);
                    }
                    Some(libc::EACCES | libc::EPERM)
                        if self.is_of_threads && probe.attr.exclude_kernel() == 0 =>
                    {
                        if !counter::occurs_without_kernel(&probe.attr) {
                            // In user space only, the kernel would count 0.
                            error = Some("not permitted: occurs in the kernel".to_owned());
                            break;
                        }
                        if !is_clock && !self.has_warned.replace(true) {
                            log::warn!(
                                "not permitted to count in the kernel; counting user space only (:u)"
                            );
                        }
                        probe.attr.set_exclude_kernel(1);
                        probe.attr.set_exclude_hv(1);
                        // A clock counts all time all the same.
                        if !is_clock {
                            probe.name.push_str(":u");
                        }
                    }
                    Some(libc::ESRCH) if places.len() > 1 => break,
                    Some(
                        libc::ENOENT | libc::ENODEV | libc::ENXIO | libc::EOPNOTSUPP | libc::EINVAL,
                    ) => {
                        error = Some(not_supported(&probe, &refused));
                        break;
                    }
                    _ => {
                        return Err(
                            privileges::cannot_open(&probe.name, self.scope, &refused).into()
                        );
                    }
                }
            }
            if error.is_some() {
                // Some places without others would look like a count of all.
                events.clear();
                break;
            }
        }
        Ok(Counter {
            is_clock: is_clock || counter::adds_times(&probe.name, &probe.attr),
            name: probe.name,
            events,
            error,
        })
    }

    /// Opens an event that needs no counter, for threads on one CPU; `None` elsewhere.
    fn presence(&self, place: Place) -> Option<Presence> {
        if !self.is_of_threads || place.cpu < 0 {
            return None;
        }
        let attr = self.attr(&event_attr::dummy(), false);
        let event = Event::open_to_count(&attr, place.tasks, place.cpu, None).ok()?;
        Some(Presence { event, before: 0 })
    }

    fn attr(&self, attr: &Attr, has_leader: bool) -> Attr {
        let mut attr = *attr;
        attr.sample_period = 0;
        attr.set_freq(0);
        attr.set_precise_ip(0);
        attr.read_format =
            u64::from(abi::PERF_FORMAT_TOTAL_TIME_ENABLED | abi::PERF_FORMAT_TOTAL_TIME_RUNNING);
        attr.set_inherit(self.inherits.into());
        // The leader starts the others.
        attr.set_disabled((!has_leader).into());
        attr.set_enable_on_exec((self.is_started_by_exec && !has_leader).into());
        attr
    }
}

/// Returns for how long an event was enabled on each of these CPUs, on average.
fn time_on_each(counted: Counted, cpus: u64) -> Option<u64> {
    let enabled = counted.enabled.checked_div(cpus)?;
    (enabled > 0).then_some(enabled)
}

/// A clock in user space or in the kernel only, which the kernel does not count.
fn part_of_clock(probe: Probe) -> Counter {
    let error = "not supported: the kernel counts all time, with :u and :k, too; -e samples it";
    Counter {
        name: probe.name,
        is_clock: true,
        events: Vec::new(),
        error: Some(error.to_owned()),
    }
}

fn not_supported(probe: &Probe, error: &io::Error) -> String {
    let is_hardware = matches!(
        probe.attr.type_,
        abi::PERF_TYPE_HARDWARE | abi::PERF_TYPE_HW_CACHE | abi::PERF_TYPE_RAW
    );
    match (is_hardware, error.raw_os_error()) {
        (true, Some(libc::ENOENT)) => "not supported: no hardware counters here".to_owned(),
        _ => format!("not supported: {error}"),
    }
}

fn comm_of(tid: i32) -> Option<String> {
    let comm = fs::read(format!("/proc/{tid}/comm")).ok()?;
    Some(String::from_utf8_lossy(comm.trim_ascii_end()).into_owned())
}

/// The name that the kernel gives a thread at the exec of a program.
fn comm_after_exec(program: &OsStr) -> Option<String> {
    /// TASK_COMM_LEN without the NUL.
    const MOST: usize = 15;
    let name = Path::new(program).file_name()?.as_bytes();
    let name = name.get(..MOST).unwrap_or(name);
    Some(String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_the_name_of_its_program() {
        let comm = |program: &str| comm_after_exec(program.as_ref());
        assert_eq!(comm("./work").as_deref(), Some("work"));
        assert_eq!(
            comm("/usr/bin/a-very-long-name").as_deref(),
            Some("a-very-long-nam")
        );
        assert_eq!(comm("/"), None);
    }

    #[test]
    fn pauses_are_no_time_of_counting() {
        let mut pauses = Pauses::default();
        pauses.switch(true, (5, 0));
        pauses.switch(false, (10, 0));
        pauses.switch(false, (12, 0));
        pauses.switch(true, (20, 0));
        pauses.switch(false, (90, 0));
        assert_eq!(pauses.end_period(100, 0), 20);
        // It goes on.
        pauses.switch(true, (130, 100));
        assert_eq!(pauses.end_period(200, 100), 30);
        assert_eq!(pauses.end_period(300, 200), 0);
        assert_eq!(pauses.before, 50);
    }

    #[test]
    fn a_clock_of_all_cpus_is_at_most_their_number() {
        // Enabled one after the other, and read late, on two busy CPUs.
        let counted = Counted {
            value: 1_300 + 1_500,
            enabled: 1_300 + 1_500,
            running: 1_300 + 1_500,
        };
        assert_eq!(time_on_each(counted, 2), Some(1_400));
        assert_eq!(time_on_each(counted, 0), None);
        assert_eq!(time_on_each(Counted::default(), 2), None);
    }
}
