//! Threads that start while a running process is being attached to: none is missed, none recorded twice.
//!
//! ```text
//! threads are listed ─► side-band opened, on ─► events opened on each ─► listed again: who is new?
//! ```
//! A new thread inherits the events that its creator has at that moment. The side-band tells of each start
//! with its time: before the creator got its events, nothing was inherited, and the new thread gets events of its own;
//! behind it, all was. In between, part of it may have been: then the creator's events are closed, which closes what
//! was inherited, and both get new ones. Nothing counts yet, so nothing is lost by that.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use anyhow::Result;

use super::open::Opening;
use super::{Rings, Track};
use crate::sys::clock;
use crate::sys::perf_event::abi;
use crate::target::{Place, Target, Tasks};

/// Each takes little more than a millisecond.
const MOST_PASSES: usize = 500;
/// From inheriting to the record that tells of it, inside one system call.
const MARGIN: Duration = Duration::from_millis(1);
/// Starts of threads by threads that have ended since.
const LONGEST_LINE: usize = 64;

/// When a thread got its events.
#[derive(Debug, Clone, Copy)]
struct Window {
    begin: u64,
    end: u64,
}

/// A thread's start, as the side-band tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Start {
    creator: i32,
    time: u64,
}

/// What a new thread has inherited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    All,
    Nothing,
    /// Part of what this one has.
    Uncertain(i32),
}

/// The threads that are known.
struct Known {
    windows: HashMap<i32, Window>,
    heirs: HashSet<i32>,
    starts: HashMap<i32, Start>,
}

impl Opening<'_> {
    /// Opens events for threads of `target` that started since it was listed. `begin` is when opening began.
    pub(super) fn add_new_threads(
        &self,
        target: &Target,
        side_band: &mut Track,
        tracks: &mut [Track],
        rings: &Rings,
        begin: u64,
    ) -> Result<()> {
        let end = clock::monotonic();
        let first = self.places.iter().filter_map(thread_of);
        let mut known = Known {
            windows: first.map(|tid| (tid, Window { begin, end })).collect(),
            heirs: HashSet::new(),
            starts: HashMap::new(),
        };
        for _ in 0..MOST_PASSES {
            let unknown: Vec<i32> = target
                .threads()
                .into_iter()
                .filter_map(|tasks| match tasks {
                    Tasks::Thread(tid) => Some(tid),
                    Tasks::All | Tasks::Cgroup(_) => None,
                })
                .filter(|tid| !known.windows.contains_key(tid) && !known.heirs.contains(tid))
                .collect();
            if unknown.is_empty() {
                return Ok(());
            }
            // A thread is listed a little before its start is told.
            std::thread::sleep(MARGIN);
            known.starts = starts(rings);
            for tid in unknown {
                match known.standing(tid) {
                    Standing::All => {
                        known.heirs.insert(tid);
                        continue;
                    }
                    Standing::Nothing => {}
                    Standing::Uncertain(creator) => {
                        for track in &mut *tracks {
                            track
                                .events
                                .retain(|opened| thread_of(&opened.place) != Some(creator));
                        }
                        self.open_thread(creator, tracks, &mut known)?;
                        // What others inherited from it is closed too: they are looked at again.
                        known.heirs.clear();
                    }
                }
                if !known.starts.contains_key(&tid) {
                    self.add_to_side_band(tid, side_band)?;
                }
                self.open_thread(tid, tracks, &mut known)?;
            }
        }
        log::warn!("threads start faster than they can be attached to: some may be missing");
        Ok(())
    }

    fn open_thread(&self, tid: i32, tracks: &mut [Track], known: &mut Known) -> Result<()> {
        let begin = clock::monotonic();
        for track in tracks {
            for cpu in self.cpus() {
                let tasks = Tasks::Thread(tid);
                track.events.extend(self.open_late(
                    &track.probe.name,
                    &track.attr,
                    Place { tasks, cpu },
                )?);
            }
        }
        let end = clock::monotonic();
        known.windows.insert(tid, Window { begin, end });
        log::info!("thread {tid} started meanwhile: attached to it");
        Ok(())
    }
}

impl Known {
    fn standing(&self, tid: i32) -> Standing {
        let mut tid = tid;
        for _ in 0..LONGEST_LINE {
            let Some(start) = self.starts.get(&tid) else {
                return Standing::Nothing;
            };
            if let Some(window) = self.windows.get(&start.creator) {
                let margin = MARGIN.as_nanos() as u64;
                return match start.time {
                    time if time < window.begin => Standing::Nothing,
                    time if time > window.end + margin => Standing::All,
                    _ => Standing::Uncertain(start.creator),
                };
            }
            // Its creator is new as well: it has passed on what it had.
            tid = start.creator;
        }
        Standing::Nothing
    }
}

fn thread_of(place: &Place) -> Option<i32> {
    match place.tasks {
        Tasks::Thread(tid) => Some(tid),
        Tasks::All | Tasks::Cgroup(_) => None,
    }
}

/// Starts of threads that wait in the rings to be drained.
fn starts(rings: &Rings) -> HashMap<i32, Start> {
    let mut found = HashMap::new();
    for ring in rings.iter() {
        add_starts(&ring.pending(), &mut found);
    }
    found
}

/// PERF_RECORD_FORK: header; u32 pid, ppid, tid, ptid; u64 time (include/uapi/linux/perf_event.h).
fn add_starts(records: &[u8], found: &mut HashMap<i32, Start>) {
    let mut rest = records;
    while let Some(&[low, high]) = rest.get(6..8).and_then(|size| size.first_chunk())
        && let size = u16::from_ne_bytes([low, high])
        && size >= 8
        && let Some((record, behind)) = rest.split_at_checked(size.into())
    {
        rest = behind;
        let number = |at: usize| Some(u32::from_ne_bytes(*record.get(at..)?.first_chunk()?));
        if number(0) != Some(abi::PERF_RECORD_FORK) {
            continue;
        }
        let time = record.get(24..).and_then(|time| time.first_chunk());
        if let (Some(tid), Some(creator), Some(time)) = (number(16), number(20), time) {
            let start = Start {
                creator: creator as i32,
                time: u64::from_ne_bytes(*time),
            };
            found.insert(tid as i32, start);
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
        records.extend(fork(12, 10, 500));
        // One that is not whole.
        records.extend(&fork(13, 10, 600)[..20]);
        let mut found = HashMap::new();
        add_starts(&records, &mut found);
        let start = Start {
            creator: 10,
            time: 500,
        };
        assert_eq!(found, HashMap::from([(12, start)]));
    }

    #[test]
    fn who_has_inherited_what() {
        let margin = MARGIN.as_nanos() as u64;
        let mut known = Known {
            windows: HashMap::from([(
                10,
                Window {
                    begin: 100,
                    end: 200,
                },
            )]),
            heirs: HashSet::new(),
            starts: HashMap::new(),
        };
        let mut records = fork(11, 10, 99);
        records.extend(fork(12, 10, 150));
        records.extend(fork(13, 10, 201 + margin));
        // By threads that are not known themselves.
        records.extend(fork(14, 13, 300 + margin));
        records.extend(fork(15, 11, 120));
        records.extend(fork(16, 12, 160));
        add_starts(&records, &mut known.starts);
        let standings: Vec<Standing> = (11..=17).map(|tid| known.standing(tid)).collect();
        assert_eq!(
            standings,
            [
                Standing::Nothing,
                Standing::Uncertain(10),
                Standing::All,
                Standing::All,
                Standing::Nothing,
                Standing::Uncertain(10),
                Standing::Nothing
            ]
        );
    }
}
