//! Attaching to a running process: threads that start meanwhile are each recorded once.
//!
//! ```text
//! threads are listed ─► side-band opened, on ─► events opened on each ─► listed again: who is new?
//! ```
//! A new thread inherits the current events of its creator. The side-band reports each thread start with its time, and
//! the time shows what was inherited: nothing, if the creator got its events later; everything, if the creator had its
//! events and has started another thread since. Otherwise it is unknown: if a start is missing from the side-band, or
//! is the creator's first one after it got its events, because between inheriting and reporting the kernel may run
//! other threads for any time. Such a thread gets its own events, and the drain drops duplicate hits
//! ([`crate::sieve`]).

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use anyhow::Result;

use super::open::Opening;
use super::{Opened, Rings, Track};
use crate::sys::clock;
use crate::sys::perf_event::abi;
use crate::target::{Place, Target, Tasks};

/// Maximum number of passes; one takes little more than a millisecond.
const MOST_PASSES: usize = 500;
/// Pause before a pass: a thread is listed slightly before its start is reported.
const PAUSE: Duration = Duration::from_millis(1);
/// Maximum number of ended threads between a thread and a known ancestor.
const LONGEST_LINE: usize = 64;

/// The time at which a thread got its events.
#[derive(Debug, Clone, Copy)]
struct Window {
    /// The side-band reports every thread that it has started since then.
    heard_since: u64,
    begin: u64,
    end: u64,
    /// Whether it may have inherited the same events before.
    may_be_double: bool,
}

/// The start of a thread, as reported by the side-band.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Start {
    creator: i32,
    time: u64,
    /// Time of the creator's previous start of a thread.
    before: Option<u64>,
}

/// Events inherited by a new thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inherited {
    All,
    Nothing,
    Unknown,
}

/// The threads that have the events.
#[derive(Debug, Default)]
pub(super) struct Attached {
    pub(super) tids: HashSet<i32>,
    /// Whether some may have an event twice.
    pub(super) has_doubles: bool,
}

/// The known threads.
#[derive(Default)]
struct Known {
    windows: HashMap<i32, Window>,
    heirs: HashSet<i32>,
    starts: HashMap<i32, Start>,
}

impl Opening<'_> {
    /// Opens events for threads of `target` that started since it was listed. `begin` is the time when opening began.
    pub(super) fn add_new_threads(
        &self,
        target: &Target,
        side_band: &mut Track,
        tracks: &mut [Track],
        rings: &mut Rings,
        begin: u64,
    ) -> Result<Attached> {
        let first = Window {
            heard_since: begin,
            begin,
            end: clock::monotonic(),
            may_be_double: false,
        };
        let listed = self.places.iter().filter_map(thread_of);
        let mut known = Known {
            windows: listed.map(|tid| (tid, first)).collect(),
            ..Known::default()
        };
        for _ in 0..MOST_PASSES {
            let mut unknown: Vec<i32> = target
                .threads()
                .into_iter()
                .filter_map(|tasks| match tasks {
                    Tasks::Thread(tid) => Some(tid),
                    Tasks::All | Tasks::Cgroup(_) => None,
                })
                .collect();
            unknown.retain(|tid| !known.windows.contains_key(tid) && !known.heirs.contains(tid));
            if unknown.is_empty() {
                return Ok(known.attached());
            }
            // These records are dropped later anyway; make room for a storm.
            for ring in &mut rings.events {
                ring.discard(ring.head());
            }
            std::thread::sleep(PAUSE);
            known.starts = starts(rings);
            for tid in unknown {
                let inherited = known.inherited_by(tid);
                if inherited == Inherited::All {
                    known.heirs.insert(tid);
                    continue;
                }
                let mut heard_since = 0;
                if !known.is_heard(tid) {
                    self.add_to_side_band(tid, side_band)?;
                    heard_since = clock::monotonic();
                }
                let begin = clock::monotonic();
                self.open_thread(tid, tracks)?;
                let window = Window {
                    heard_since,
                    begin,
                    end: clock::monotonic(),
                    may_be_double: inherited == Inherited::Unknown,
                };
                known.windows.insert(tid, window);
                log::info!("attached to thread {tid}, started while attaching");
            }
        }
        log::warn!(
            "threads start faster than the recorder can attach to them; events of some may be missing"
        );
        Ok(known.attached())
    }

    fn open_thread(&self, tid: i32, tracks: &mut [Track]) -> Result<()> {
        let tasks = Tasks::Thread(tid);
        for number in 0..tracks.len() {
            for cpu in self.cpus() {
                let place = Place { tasks, cpu };
                let (before, rest) = tracks.split_at_mut(number);
                let Some(track) = rest.first_mut() else {
                    continue;
                };
                let (name, attr) = (&track.probe.name, &track.attr);
                let opened = match track.leader.and_then(|leader| before.get(leader)) {
                    None => self.open_late(name, attr, place)?,
                    Some(leader) => {
                        let is_here = |opened: &&Opened| opened.place == place;
                        match leader.events.iter().rev().find(is_here) {
                            Some(leader) => self.open_late_in_group(name, attr, leader)?,
                            None => None,
                        }
                    }
                };
                track.events.extend(opened);
            }
        }
        Ok(())
    }
}

impl Known {
    fn attached(&self) -> Attached {
        Attached {
            tids: self.windows.keys().chain(&self.heirs).copied().collect(),
            has_doubles: self.windows.values().any(|window| window.may_be_double),
        }
    }

    fn inherited_by(&self, tid: i32) -> Inherited {
        let mut tid = tid;
        for _ in 0..LONGEST_LINE {
            // A missing start proves nothing: the record may still come, or may have been lost.
            let Some(start) = self.starts.get(&tid) else {
                return Inherited::Unknown;
            };
            if self.heirs.contains(&start.creator) {
                return Inherited::All;
            }
            if let Some(window) = self.windows.get(&start.creator) {
                return match start.before {
                    _ if start.time < window.begin && !window.may_be_double => Inherited::Nothing,
                    Some(before) if before > window.end => Inherited::All,
                    _ => Inherited::Unknown,
                };
            }
            // Its creator is new as well, and has passed on its events.
            tid = start.creator;
        }
        Inherited::Unknown
    }

    /// Whether the side-band reports all thread starts of a thread, that is, whether its creator's events were
    /// inherited on every CPU.
    fn is_heard(&self, tid: i32) -> bool {
        let start = self.starts.get(&tid);
        start.is_some_and(|start| {
            let window = self.windows.get(&start.creator);
            self.heirs.contains(&start.creator)
                || window
                    .zip(start.before)
                    .is_some_and(|(window, before)| before > window.heard_since)
        })
    }
}

fn thread_of(place: &Place) -> Option<i32> {
    match place.tasks {
        Tasks::Thread(tid) => Some(tid),
        Tasks::All | Tasks::Cgroup(_) => None,
    }
}

/// Returns the thread starts in the undrained part of the rings.
fn starts(rings: &Rings) -> HashMap<i32, Start> {
    let mut found = Vec::new();
    for ring in &rings.side_band {
        add_forks(&ring.pending(), &mut found);
    }
    in_order(found)
}

/// A PERF_RECORD_FORK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fork {
    time: u64,
    creator: i32,
    tid: i32,
}

/// Adds to each start the creator's previous one.
fn in_order(mut forks: Vec<Fork>) -> HashMap<i32, Start> {
    forks.sort_unstable_by_key(|fork| fork.time);
    let mut found = HashMap::new();
    let mut last: HashMap<i32, u64> = HashMap::new();
    for fork in forks {
        let Fork { time, creator, tid } = fork;
        let before = last.get(&creator).copied();
        let start = Start {
            creator,
            time,
            before,
        };
        // Reported twice if a thread has both its own side-band events and those of its creator.
        if found
            .get(&tid)
            .is_none_or(|known: &Start| known.creator != creator)
        {
            found.insert(tid, start);
            last.insert(creator, time);
        }
    }
    found
}

/// PERF_RECORD_FORK: header; u32 pid, ppid, tid, ptid; u64 time (include/uapi/linux/perf_event.h).
fn add_forks(records: &[u8], found: &mut Vec<Fork>) {
    let mut rest = records;
    while let Some(&[low, high]) = rest.get(6..8).and_then(|size| size.first_chunk())
        && let size = u16::from_ne_bytes([low, high])
        && size >= 8
        && let Some((record, after)) = rest.split_at_checked(size.into())
    {
        rest = after;
        let number = |at: usize| Some(u32::from_ne_bytes(*record.get(at..)?.first_chunk()?));
        if number(0) != Some(abi::PERF_RECORD_FORK) {
            continue;
        }
        let time = record.get(24..).and_then(|time| time.first_chunk());
        if let (Some(tid), Some(creator), Some(time)) = (number(16), number(20), time) {
            found.push(Fork {
                time: u64::from_ne_bytes(*time),
                creator: creator as i32,
                tid: tid as i32,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fork(tid: u32, creator: u32, time: u64) -> Vec<u8> {
        let mut record = Vec::new();
        record.extend(abi::PERF_RECORD_FORK.to_ne_bytes());
        record.extend([0, 0, 40, 0]);
        for number in [1, 1, tid, creator] {
            record.extend(number.to_ne_bytes());
        }
        record.extend(time.to_ne_bytes());
        record.extend([0; 8]);
        record
    }

    #[test]
    fn starts_are_found_among_records() {
        let mut records = vec![3, 0, 0, 0, 0, 0, 16, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        records.extend(fork(14, 10, 700));
        records.extend(fork(12, 10, 500));
        // The same start, reported by another side-band event.
        records.extend(fork(12, 10, 501));
        // A truncated record.
        records.extend(&fork(13, 10, 600)[..20]);
        let mut found = Vec::new();
        add_forks(&records, &mut found);
        let start = |time, before| Start {
            creator: 10,
            time,
            before,
        };
        let expected = [(12, start(500, None)), (14, start(700, Some(500)))];
        assert_eq!(in_order(found), HashMap::from(expected));
    }

    #[test]
    fn inherited_events_follow_from_start_times() {
        let window = |begin, may_be_double| Window {
            heard_since: begin,
            begin,
            end: begin + 100,
            may_be_double,
        };
        let mut records = Vec::new();
        for (tid, creator, time) in [
            (11, 10, 99),
            (12, 10, 150),
            // Its creator may have been inside the system call since before the window.
            (13, 10, 900),
            (14, 10, 950),
            // Started by unknown threads.
            (15, 14, 960),
            (16, 11, 120),
            (17, 12, 160),
            // Started by a thread that may have inherited its events.
            (21, 20, 400),
            (22, 20, 700),
            (23, 20, 800),
        ] {
            records.extend(fork(tid, creator, time));
        }
        let mut forks = Vec::new();
        add_forks(&records, &mut forks);
        let known = Known {
            windows: HashMap::from([(10, window(100, false)), (20, window(500, true))]),
            heirs: HashSet::new(),
            starts: in_order(forks),
        };
        let all = |tids: &[i32]| {
            tids.iter()
                .map(|&tid| known.inherited_by(tid))
                .collect::<Vec<_>>()
        };
        assert_eq!(all(&[11, 16]), [Inherited::Nothing; 2]);
        assert_eq!(all(&[14, 15, 23]), [Inherited::All; 3]);
        assert_eq!(all(&[12, 13, 17, 21, 22]), [Inherited::Unknown; 5]);
        // A missing start proves nothing.
        assert_eq!(known.inherited_by(99), Inherited::Unknown);
        let heard: Vec<i32> = (11..=23).filter(|&tid| known.is_heard(tid)).collect();
        assert_eq!(heard, [13, 14, 23]);
    }

    #[test]
    fn threads_that_inherited_their_events_are_attached() {
        let window = Window {
            heard_since: 0,
            begin: 0,
            end: 1,
            may_be_double: false,
        };
        let known = Known {
            windows: HashMap::from([(10, window)]),
            heirs: HashSet::from([11]),
            starts: HashMap::new(),
        };
        let attached = known.attached();
        assert_eq!(attached.tids, HashSet::from([10, 11]));
        assert!(!attached.has_doubles);
    }
}
