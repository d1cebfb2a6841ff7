//! `slow:FUNC>TIME`: calls that took too long, found in the bytes of each pass over the rings.
//!
//! Entry and return of the function are recorded like those of any probe. Only their IDs, threads and times are read
//! here: a sample begins with its identifier, then PID, TID and time.

use std::collections::HashMap;
use std::time::Duration;

use crate::journal::record::{self, kind};
use crate::recording::Track;

/// Maximum number of entries without a return, which result from ended threads and missed returns.
const OPEN_MAX: usize = 1 << 16;

/// A watched function.
pub(crate) struct Watched {
    /// The function as written by the user.
    pub(crate) function: String,
    /// Longer calls are slow.
    pub(crate) longer_than: Duration,
    /// Names of its probes: at its entry, at its return.
    pub(crate) probes: (String, String),
}

/// A call that took too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// The function as written by the user.
    pub(crate) function: String,
    /// Duration of the call.
    pub(crate) duration: Duration,
    /// TID of the call.
    pub(crate) tid: i32,
}

/// The meaning of an event's identifier.
#[derive(Clone, Copy)]
struct Edge {
    /// Which of the functions.
    watched: usize,
    is_return: bool,
    /// Whether its samples have an address before the thread.
    has_ip: bool,
}

/// Finds slow calls.
pub(crate) struct Watch {
    watched: Vec<Watched>,
    edges: HashMap<u64, Edge>,
    /// Start times of the open calls by function and thread, innermost last.
    open: HashMap<(usize, i32), Vec<u64>>,
    open_calls: usize,
}

impl Watch {
    /// Watches functions by the event IDs of their probes. `None` if there is nothing to watch.
    pub(crate) fn new(watched: Vec<Watched>, tracks: &[Track]) -> Option<Watch> {
        let mut edges = HashMap::new();
        for (index, one) in watched.iter().enumerate() {
            for (name, is_return) in [(&one.probes.0, false), (&one.probes.1, true)] {
                let tracks = tracks.iter().filter(|track| track.probe.name == *name);
                for track in tracks {
                    let edge = Edge {
                        watched: index,
                        is_return,
                        has_ip: track.has_ip(),
                    };
                    edges.extend(track.events.iter().map(|opened| (opened.id, edge)));
                }
            }
        }
        (!watched.is_empty()).then(|| Watch {
            watched,
            edges,
            open: HashMap::new(),
            open_calls: 0,
        })
    }

    /// Scans the records of one pass.
    pub(crate) fn look(&mut self, bytes: &[u8]) -> Vec<Found> {
        let mut edges: Vec<(u64, i32, usize, bool)> = record::walk(bytes)
            .filter(|record| record.kind == kind::SAMPLE)
            .filter_map(|record| {
                let edge = self.edges.get(&record::sample_id(record.bytes)?)?;
                let (tid, time) = record::sample_tid_and_time(record.bytes, edge.has_ip)?;
                Some((time, tid, edge.watched, edge.is_return))
            })
            .collect();
        // A thread may have moved to another CPU, whose ring was drained earlier.
        edges.sort_unstable();
        let mut found = Vec::new();
        for (time, tid, index, is_return) in edges {
            found.extend(self.edge(time, tid, index, is_return));
        }
        found
    }

    fn edge(&mut self, time: u64, tid: i32, index: usize, is_return: bool) -> Option<Found> {
        if !is_return {
            if self.open_calls >= OPEN_MAX {
                self.open.clear();
                self.open_calls = 0;
            }
            self.open.entry((index, tid)).or_default().push(time);
            self.open_calls += 1;
            return None;
        }
        let calls = self.open.get_mut(&(index, tid))?;
        let entry = calls.pop()?;
        self.open_calls -= 1;
        if calls.is_empty() {
            self.open.remove(&(index, tid));
        }
        let duration = Duration::from_nanos(time.saturating_sub(entry));
        let watched = self.watched.get(index)?;
        (duration > watched.longer_than).then(|| Found {
            function: watched.function.clone(),
            duration,
            tid,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::record::Records;

    const ENTRY: u64 = 7;
    const RETURN: u64 = 8;

    fn edge(is_return: bool) -> Edge {
        Edge {
            watched: 0,
            is_return,
            has_ip: false,
        }
    }

    fn watch() -> Watch {
        Watch {
            watched: vec![Watched {
                function: "work".to_owned(),
                longer_than: Duration::from_nanos(100),
                probes: (String::new(), String::new()),
            }],
            edges: HashMap::from([(ENTRY, edge(false)), (RETURN, edge(true))]),
            open: HashMap::new(),
            open_calls: 0,
        }
    }

    fn hits(hits: &[(u64, i32, u64)]) -> Vec<u8> {
        let mut records = Records::new();
        for &(id, tid, time) in hits {
            records.add(kind::SAMPLE, 0, |body| {
                body.u64(id);
                body.i32(1);
                body.i32(tid);
                body.u64(time);
            });
        }
        records.into_bytes()
    }

    #[test]
    fn only_slow_calls_are_found() {
        let mut watch = watch();
        let fast = hits(&[(ENTRY, 5, 10), (RETURN, 5, 110)]);
        assert_eq!(watch.look(&fast), []);
        // The rings of two CPUs: the return precedes its entry. Another thread and another event between.
        let slow = hits(&[
            (RETURN, 5, 301),
            (ENTRY, 6, 290),
            (99, 5, 250),
            (ENTRY, 5, 200),
        ]);
        let found = watch.look(&slow);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].tid, found[0].duration.as_nanos()), (5, 101));
        // The other call ends in a later pass.
        assert_eq!(watch.look(&hits(&[(RETURN, 6, 900)])).len(), 1);
        assert_eq!(watch.open_calls, 0);
    }

    #[test]
    fn recursive_calls() {
        let mut watch = watch();
        let found = watch.look(&hits(&[
            (ENTRY, 5, 0),
            (ENTRY, 5, 50),
            (RETURN, 5, 60),
            (RETURN, 5, 500),
            (RETURN, 5, 900),
        ]));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].duration.as_nanos(), 500);
    }
}
