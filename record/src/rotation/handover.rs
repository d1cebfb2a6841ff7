//! How one recorder of a ring follows another, as lines on a socket, which is the standard input of the recorder.
//!
//! ```text
//! next ─"ready"─► supervisor ─SIGINT─► last ─"ended 1234 56@789"─► supervisor ─"begin 1235 56@789"─► next
//! ```
//! Times are those of the trace's clock in ns. The next recorder drops what it has from before the beginning.
//!
//! Where processes or threads are recorded, the last recorder names the tasks that they have started: 56, at 789. One that had started
//! when the next recorder had opened its events, and that it did not find or inherit, is missing in the next trace: its parent had ended, or children
//! of single threads cannot be found.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use perfquet_events::event::Selection;

use crate::sys::procfs;

/// Longest wait for the last recorder; after that, this one begins at its own time.
const LONGEST: Duration = Duration::from_secs(30);

/// A beginning after everything: the trace is not wanted.
pub(super) const NEVER: i64 = i64::MAX;

/// Tasks that recorded ones have started, and that have not ended: the time of the start by TID.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Started(BTreeMap<i32, u64>);

impl Started {
    /// A task was started.
    pub(crate) fn start(&mut self, tid: i32, time: u64) {
        self.0.insert(tid, time);
    }

    /// A task has ended.
    pub(crate) fn end(&mut self, tid: i32) {
        self.0.remove(&tid);
    }

    /// Their TIDs.
    pub(super) fn tids(&self) -> impl Iterator<Item = i32> {
        self.0.keys().copied()
    }

    /// `56@789,57@801`
    pub(super) fn text(&self) -> String {
        let tasks = self.0.iter().map(|(tid, time)| format!("{tid}@{time}"));
        tasks.collect::<Vec<_>>().join(",")
    }

    pub(super) fn parse(text: &str) -> Started {
        let task = |text: &str| {
            let (tid, time) = text.split_once('@')?;
            Some((tid.parse().ok()?, time.parse().ok()?))
        };
        Started(text.split(',').filter_map(task).collect())
    }
}

/// The tasks of a recorder that records processes or threads with what they start.
pub(crate) struct Tasks {
    /// When their events had been opened.
    pub(crate) opened_at: u64,
    /// Those that there were.
    pub(crate) tids: HashSet<i32>,
    /// Those that they have started since.
    pub(crate) started: Arc<Mutex<Started>>,
}

impl Tasks {
    /// Returns the number of tasks that the last recorder had, and this one lacks. The next one is told of them, too.
    fn lacks(&self, of_last: &Started) -> usize {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        // Those of the time in which the events were opened may be inherited, and are then among those started.
        let is_missing = |(tid, time): &(&i32, &u64)| {
            let is_known = self.tids.contains(*tid) || started.0.contains_key(*tid);
            **time < self.opened_at && !is_known && procfs::is_alive(**tid)
        };
        let missing = of_last.0.iter().filter(is_missing);
        let missing: Vec<_> = missing.map(|(tid, time)| (*tid, *time)).collect();
        started.0.extend(missing.iter().copied());
        missing.len()
    }
}

/// The recorder's end of the socket.
pub(crate) struct Handover {
    stream: UnixStream,
    tasks: Option<Tasks>,
}

/// Where a trace begins.
#[derive(Debug, Default)]
pub(crate) struct Beginning {
    /// The selection that begins there; `None` if there was no last recorder.
    pub(crate) selection: Option<Selection>,
    /// Number of tasks of the last trace that are missing.
    pub(crate) missing: usize,
}

impl Handover {
    /// Takes the socket.
    pub(crate) fn open(tasks: Option<Tasks>) -> Result<Handover> {
        let fd = io::stdin().as_fd().try_clone_to_owned();
        let stream = UnixStream::from(fd.context("cannot reach the recorder that rotates")?);
        Ok(Handover { stream, tasks })
    }

    /// The tasks started since, if they are noted.
    pub(crate) fn started(&self) -> Option<Arc<Mutex<Started>>> {
        Some(Arc::clone(&self.tasks.as_ref()?.started))
    }

    /// Says that this recorder records, and waits for the end of the last one.
    pub(crate) fn begin(&self, selection: &Selection) -> Beginning {
        self.say("ready");
        let mut line = String::new();
        let timed = self.stream.set_read_timeout(Some(LONGEST));
        if timed.is_err() || BufReader::new(&self.stream).read_line(&mut line).is_err() {
            return Beginning::default();
        }
        let mut words = line.split_whitespace().skip(1);
        let begin = words.next().and_then(|begin| begin.parse().ok());
        let Some(begin) = begin.filter(|begin: &i64| line.starts_with("begin ") && *begin > 0)
        else {
            return Beginning::default();
        };
        let started = Started::parse(words.next().unwrap_or_default());
        let missing = self.tasks.as_ref().map(|tasks| tasks.lacks(&started));
        Beginning {
            selection: Some(Selection {
                begin: Some(begin),
                ..selection.clone()
            }),
            missing: missing.unwrap_or_default(),
        }
    }

    /// Whether the supervisor has ended.
    pub(crate) fn is_orphaned(&self) -> bool {
        let mut byte = [0];
        let _ = self.stream.set_nonblocking(true);
        match (&self.stream).read(&mut byte) {
            Ok(length) => length == 0,
            // A supervisor that was killed before it read a message resets the connection.
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    /// Says that the recording ended at this time, inclusive.
    pub(crate) fn end(&self, time: u64) {
        let _ = self.stream.set_nonblocking(false);
        let started = self.started().map_or_else(String::new, |started| {
            let started = started.lock().unwrap_or_else(PoisonError::into_inner);
            started.text()
        });
        self.say(format!("ended {time} {started}").trim_end());
    }

    /// A supervisor that was killed does not hear it.
    fn say(&self, line: &str) {
        let _ = (&self.stream).write_all(format!("{line}\n").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorder_begins_where_the_last_one_ended() {
        let (stream, mut other) = UnixStream::pair().unwrap();
        let handover = Handover {
            stream,
            tasks: None,
        };
        other.write_all(b"begin 1235\n").unwrap();
        let beginning = handover.begin(&Selection::default());
        assert_eq!(beginning.selection.unwrap().begin, Some(1235));
        assert!(!handover.is_orphaned());
        handover.end(2000);
        let mut lines = BufReader::new(&other).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        assert_eq!(lines.next().unwrap().unwrap(), "ended 2000");
        other.write_all(b"begin 0\n").unwrap();
        assert!(handover.begin(&Selection::default()).selection.is_none());
        drop(other);
        assert!(handover.is_orphaned());
    }

    /// A task that was there when the next recorder looked, and that it did not find.
    #[test]
    fn tasks_that_the_next_recorder_lacks_are_counted() {
        let own = std::process::id() as i32;
        let (stream, mut other) = UnixStream::pair().unwrap();
        let handover = Handover {
            stream,
            tasks: Some(Tasks {
                opened_at: 100,
                tids: HashSet::from([7]),
                started: Arc::default(),
            }),
        };
        let mut begin = |started: &str| {
            other
                .write_all(format!("begin 200 {started}\n").as_bytes())
                .unwrap();
            handover.begin(&Selection::default()).missing
        };
        assert_eq!(begin(""), 0);
        assert_eq!(begin("7@50"), 0);
        assert_eq!(begin(&format!("7@50,{own}@99,2147483647@98")), 1);
        assert_eq!(begin(&format!("{own}@100")), 0);
    }

    #[test]
    fn started_tasks_are_named_until_they_end() {
        let mut started = Started::default();
        started.start(9, 90);
        started.start(8, 80);
        started.start(10, 100);
        started.end(9);
        assert_eq!(started.text(), "8@80,10@100");
        assert_eq!(Started::parse(&started.text()), started);
        assert_eq!(Started::parse(""), Started::default());
    }
}
