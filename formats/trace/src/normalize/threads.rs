//! Threads by ID: names, processes, creation and exit.
//!
//! ```text
//! Comm { tid: 40, comm: "sh" }              40 is sh
//! Fork { tid: 41, parent_tid: 40 }          41 is sh too: a child inherits its parent's name
//! Comm { tid: 41, comm: "ls", exec: true }  41 is ls
//! Exit { tid: 41 }                          it still switches out as ls, after its exit event
//! Fork { tid: 41, parent_tid: 40 }          another thread: a row of `threads` ends, a new one begins
//! ```
//! Thread 0 is the idle task of every CPU and has the name "swapper", as in `perf script`. Unknown names stay unknown:
//! a thread without a name does not become ":41".

use std::collections::{BTreeSet, VecDeque};

use hashbrown::HashMap;
use perfquet_events::event::{Cgroup, Comm, Exit, Fork, Id, Namespaces, ProcessState};

use super::process_details::{Details, DetailsOfThreads};
use super::texts::{SharedTexts, TextId};
use crate::store::Names;

/// Maximum number of ended threads remembered: the last events of a thread come after its exit.
const ENDED_REMEMBERED: usize = 1 << 16;
/// Number of them that stay when the memory for their command lines is full.
const ENDED_AT_LEAST: usize = 1 << 10;
/// Maximum length of a name; the kernel's have 15 bytes, those of text formats any length.
const COMM_BYTES: usize = 256;
/// Slots of the cache in front of the hash table.
const RECENT: usize = 256;

/// Index of a thread's life, as returned by [`Threads::at`]; valid until the next fork or exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadIndex(u32);

/// A thread between its creation and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Thread {
    pub(crate) tid: i32,
    pub(crate) pid: Option<i32>,
    /// The process that created it.
    pub(crate) parent: Option<i32>,
    pub(crate) comm: Option<TextId>,
    pub(crate) start: Option<i64>,
    pub(crate) end: Option<i64>,
    pub(crate) exit_code: Option<i32>,
    /// Whether its exit was recorded.
    ended: bool,
}

/// All threads of one input.
pub(crate) struct Threads {
    /// Latest life of each TID, as index into `lives`.
    latest: HashMap<i32, u32>,
    lives: Vec<Thread>,
    free: Vec<u32>,
    /// Ended or forgotten threads, as rows for the table.
    finished: Vec<(Thread, Details)>,
    details: DetailsOfThreads,
    /// Ended threads in the order of their exits.
    ended: VecDeque<(i32, u32)>,
    /// PID and TID of all threads that occurred in an event and have not ended.
    living: BTreeSet<(i32, i32)>,
    /// TID → index, at the slot of its low bits: most events are of a few threads.
    recent: Box<[Option<(i32, u32)>; RECENT]>,
    comms: SharedTexts,
}

impl Default for Threads {
    fn default() -> Self {
        Threads {
            latest: HashMap::new(),
            lives: Vec::new(),
            free: Vec::new(),
            finished: Vec::new(),
            details: DetailsOfThreads::default(),
            ended: VecDeque::new(),
            living: BTreeSet::new(),
            recent: Box::new([None; RECENT]),
            comms: SharedTexts::default(),
        }
    }
}

impl Threads {
    /// Returns the current thread with `tid`; adds it if it is new.
    #[inline]
    pub(crate) fn at(&mut self, tid: i32, pid: Option<i32>) -> ThreadIndex {
        let place = tid as usize % RECENT;
        let index = match self.recent.get(place) {
            Some(&Some((recent, index))) if recent == tid => index,
            _ => self.look_up(tid),
        };
        if let (Some(thread), Some(_)) = (self.lives.get(index as usize), pid)
            && thread.pid != pid
        {
            if thread.ended && thread.pid.is_some() {
                // The ID was free, and the fork of its new thread was not recorded.
                return ThreadIndex(self.begin(tid, pid, None, None));
            }
            self.set_pid(index, pid);
        }
        ThreadIndex(index)
    }

    /// The process and name of the current thread with `tid`, which is added if it is new.
    #[inline]
    pub(crate) fn who(&mut self, tid: i32, pid: Id) -> (Id, Option<TextId>) {
        let thread = self.at(tid, pid.known());
        match self.lives.get(thread.0 as usize) {
            Some(thread) if pid.known().is_none() => (thread.pid.into(), thread.comm),
            Some(thread) => (pid, thread.comm),
            None => (pid, None),
        }
    }

    #[cold]
    fn set_pid(&mut self, index: u32, pid: Option<i32>) {
        let Some(thread) = self.lives.get_mut(index as usize) else {
            return;
        };
        let former = std::mem::replace(&mut thread.pid, pid);
        let (tid, ended) = (thread.tid, thread.ended);
        if let Some(former) = former {
            self.living.remove(&(former, tid));
        }
        if let Some(pid) = pid.filter(|_| !ended) {
            self.living.insert((pid, tid));
        }
    }

    fn look_up(&mut self, tid: i32) -> u32 {
        let index = match self.latest.get(&tid) {
            Some(&index) => index,
            None => self.begin(tid, None, None, None),
        };
        if let Some(slot) = self.recent.get_mut(tid as usize % RECENT) {
            *slot = Some((tid, index));
        }
        index
    }

    /// Whether a thread with this ID exists without a known name.
    pub(crate) fn is_nameless(&self, tid: i32) -> bool {
        self.life(tid).is_some_and(|thread| thread.comm.is_none())
    }

    /// The process and name of a thread.
    #[inline]
    pub(crate) fn describe(&self, index: ThreadIndex) -> (Option<i32>, Option<TextId>) {
        match self.lives.get(index.0 as usize) {
            Some(thread) => (thread.pid, thread.comm),
            None => (None, None),
        }
    }

    /// The bytes of a name.
    #[inline]
    pub(crate) fn comm_bytes(&self, comm: TextId) -> &[u8] {
        self.comms.get(comm)
    }

    /// The names by the same IDs, for another thread.
    #[inline]
    pub(crate) fn comms(&self) -> &Names {
        self.comms.names()
    }

    /// Sets the name of a thread from an event that has it.
    #[inline]
    pub(crate) fn seen_as(&mut self, index: ThreadIndex, comm: &[u8]) -> TextId {
        let known = self
            .describe(index)
            .1
            .filter(|&known| self.comms.get(known) == comm);
        known.unwrap_or_else(|| {
            let id = self.intern_comm(comm);
            if let Some(thread) = self.lives.get_mut(index.0 as usize) {
                thread.comm = Some(id);
            }
            id
        })
    }

    /// Renames a thread.
    pub(crate) fn comm(&mut self, event: &Comm<'_>) {
        // The ID was free, and the fork of its new thread was not recorded.
        let reused = event.time.is_some()
            && self
                .life(event.tid)
                .is_some_and(|thread| thread.ended && thread.end < event.time);
        if reused {
            self.begin(event.tid, event.pid, None, None);
        }
        let index = self.at(event.tid, event.pid);
        let comm = self.intern_comm(event.comm);
        if let Some(thread) = self.lives.get_mut(index.0 as usize) {
            thread.comm = Some(comm);
        }
    }

    /// Adds a new thread with its creator's name.
    pub(crate) fn fork(&mut self, event: &Fork) {
        // The state at the start is reported repeatedly: by the recorder's walk through /proc, and by the kernel for
        // threads created during it.
        if let (None, Some(thread)) = (event.time, self.life(event.tid))
            && !thread.ended
        {
            let index = self.at(event.tid, Some(event.pid));
            if let Some(thread) = self.lives.get_mut(index.0 as usize) {
                thread.parent = parent_of(event);
            }
            return;
        }
        let comm = self.life(event.parent_tid).and_then(|parent| parent.comm);
        let parent = self.latest.get(&event.parent_pid).copied();
        let index = self.begin(event.tid, Some(event.pid), parent_of(event), event.time);
        if let Some(thread) = self.lives.get_mut(index as usize)
            && comm.is_some()
        {
            thread.comm = comm;
        }
        if let Some(parent) = parent
            && event.tid == event.pid
            && event.parent_pid != event.pid
        {
            self.details.fork(parent, index);
        }
    }

    /// Adds what was found about a process. What was found before its latest creation is of another one.
    pub(crate) fn process(&mut self, state: &ProcessState<'_>) {
        let index = self.at(state.pid, Some(state.pid)).0;
        self.details.process(index, state);
        if let Some(thread) = self.lives.get_mut(index as usize)
            && state.exit_code.is_some()
        {
            thread.exit_code = state.exit_code;
        }
    }

    /// Adds the path of a cgroup.
    pub(crate) fn cgroup(&mut self, cgroup: &Cgroup<'_>) {
        self.details.cgroup(cgroup);
    }

    /// Adds the namespaces of a thread.
    pub(crate) fn namespaces(&mut self, namespaces: &Namespaces<'_>) {
        let index = self.at(namespaces.tid, namespaces.pid).0;
        self.details.namespaces(index, namespaces.inodes);
    }

    /// A sample of a thread has the ID of its cgroup.
    pub(crate) fn is_in_cgroup(&mut self, index: ThreadIndex, id: u64) {
        self.details.is_in_cgroup(index.0, id);
    }

    /// Ends a thread. Its ID keeps the name until another thread takes the ID over.
    pub(crate) fn exit(&mut self, event: &Exit) -> Option<i32> {
        let index = self.at(event.tid, event.pid).0;
        let thread = self.lives.get_mut(index as usize)?;
        let pid = event.pid.or(thread.pid);
        if thread.ended {
            return pid;
        }
        thread.ended = true;
        thread.end = event.time;
        thread.exit_code = event.code.or(thread.exit_code);
        if let Some(pid) = pid {
            self.living.remove(&(pid, event.tid));
        }
        self.ended.push_back((event.tid, index));
        if self.ended.len() > ENDED_REMEMBERED {
            self.forget_oldest();
        }
        pid
    }

    /// Whether a process has ended: the exits of its first thread and of every other known thread were recorded.
    /// Threads that ran when the recording began are known by their names, or by their first sample.
    pub(crate) fn is_over(&self, pid: i32) -> bool {
        let first_ended = self.life(pid).is_some_and(|first| first.ended);
        first_ended && self.living_in(pid).next().is_none()
    }

    /// Handles an exec: all other threads are gone. The thread that called exec takes over the ID of the first one, and
    /// has no exit under its own.
    pub(crate) fn exec(&mut self, pid: i32, time: Option<i64>) {
        if let Some(&index) = self.latest.get(&pid) {
            self.details.exec(index);
        }
        let others: Vec<i32> = self.living_in(pid).filter(|&tid| tid != pid).collect();
        for tid in others {
            let code = None;
            self.exit(&Exit {
                time,
                pid: Some(pid),
                tid,
                code,
            });
        }
    }

    fn living_in(&self, pid: i32) -> impl Iterator<Item = i32> {
        let all = self.living.range((pid, i32::MIN)..=(pid, i32::MAX));
        all.map(|&(_, tid)| tid)
    }

    /// Ended lives, for the table; all remaining ones with `all`.
    pub(crate) fn take_finished(&mut self, all: bool) -> Vec<(Thread, Details)> {
        if all {
            let mut remaining: Vec<i32> = self.latest.keys().copied().collect();
            // The first thread of a process has the details of the others.
            let is_first = |tid: &i32| self.life(*tid).is_some_and(|life| life.pid == Some(*tid));
            remaining.sort_unstable_by_key(|tid| (is_first(tid), *tid));
            for tid in remaining {
                self.finish(tid);
            }
        } else if self.details.is_large() {
            while self.ended.len() > ENDED_AT_LEAST {
                self.forget_oldest();
            }
        }
        self.details.written();
        std::mem::take(&mut self.finished)
    }

    /// Whether ended threads should be written, of which at most `rows` may wait.
    pub(crate) fn is_full(&self, rows: usize) -> bool {
        self.finished.len() >= rows || self.details.is_large()
    }

    fn life(&self, tid: i32) -> Option<&Thread> {
        self.latest
            .get(&tid)
            .and_then(|&index| self.lives.get(index as usize))
    }

    /// Ends the current thread with `tid`, if any, and begins another.
    fn begin(
        &mut self,
        tid: i32,
        pid: Option<i32>,
        parent: Option<i32>,
        start: Option<i64>,
    ) -> u32 {
        self.finish(tid);
        let comm = (tid == 0).then(|| self.comms.intern(b"swapper"));
        let thread = Thread {
            tid,
            pid,
            parent,
            comm,
            start,
            end: None,
            exit_code: None,
            ended: false,
        };
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.lives.push(thread);
                (self.lives.len() - 1) as u32
            }
        };
        if let Some(slot) = self.lives.get_mut(index as usize) {
            *slot = thread;
        }
        self.latest.insert(tid, index);
        if let Some(pid) = pid {
            self.living.insert((pid, tid));
        }
        index
    }

    fn finish(&mut self, tid: i32) {
        if let Some(slot) = self.recent.get_mut(tid as usize % RECENT)
            && slot.is_some_and(|(recent, _)| recent == tid)
        {
            *slot = None;
        }
        if let Some(index) = self.latest.remove(&tid)
            && let Some(&thread) = self.lives.get(index as usize)
        {
            let of_process = thread.pid.filter(|&pid| pid != tid);
            let first = of_process.and_then(|pid| self.latest.get(&pid).copied());
            // Otherwise another process has its ID by now.
            let is_older = |first: &Thread| first.start <= thread.start;
            let first = first.filter(|&first| self.lives.get(first as usize).is_some_and(is_older));
            let details = self.details.take(index, first);
            self.finished.push((thread, details));
            self.free.push(index);
            if let Some(pid) = thread.pid.filter(|_| !thread.ended) {
                self.living.remove(&(pid, tid));
            }
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((tid, index)) = self.ended.pop_front()
            && self.latest.get(&tid) == Some(&index)
            && self.life(tid).is_some_and(|thread| thread.ended)
        {
            self.finish(tid);
        }
    }

    fn intern_comm(&mut self, comm: &[u8]) -> TextId {
        self.comms.intern(comm.get(..COMM_BYTES).unwrap_or(comm))
    }
}

/// The creating process. A process is not its own parent; its threads have the process as parent.
fn parent_of(event: &Fork) -> Option<i32> {
    (event.parent_pid >= 0).then_some(event.parent_pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comm(tid: i32, time: Option<i64>, comm: &[u8]) -> Comm<'_> {
        Comm {
            time,
            pid: Some(tid),
            tid,
            comm,
            exec: false,
        }
    }

    fn fork(tid: i32, parent: i32, time: i64) -> Fork {
        Fork {
            time: Some(time),
            pid: tid,
            tid,
            parent_pid: parent,
            parent_tid: parent,
        }
    }

    fn exit(tid: i32, time: i64) -> Exit {
        Exit {
            time: Some(time),
            pid: Some(tid),
            tid,
            code: None,
        }
    }

    fn name(threads: &mut Threads, tid: i32) -> Option<String> {
        let index = threads.at(tid, None);
        let comm = threads.describe(index).1?;
        Some(String::from_utf8_lossy(threads.comm_bytes(comm)).into_owned())
    }

    fn finished(threads: &mut Threads) -> Vec<Thread> {
        let rows = threads.take_finished(true);
        rows.into_iter().map(|(thread, _)| thread).collect()
    }

    #[test]
    fn namespaces_of_threads() {
        let mut threads = Threads::default();
        threads.comm(&comm(40, None, b"unshare"));
        let inodes = |inode| [("pid", inode), ("mnt", 5)];
        let enter = |threads: &mut Threads, tid, inode| {
            threads.namespaces(&Namespaces {
                tid,
                pid: Some(tid),
                inodes: &inodes(inode),
            });
        };
        enter(&mut threads, 40, 7);
        // Its thread has the same; its child has its own.
        threads.fork(&Fork {
            pid: 40,
            ..fork(41, 40, 100)
        });
        threads.fork(&fork(42, 40, 101));
        enter(&mut threads, 42, 8);
        let mut rows = threads.take_finished(true);
        rows.sort_by_key(|(row, _)| row.tid);
        let found: Vec<String> = rows
            .iter()
            .map(|(row, details)| format!("{} {:?}", row.tid, details.namespaces))
            .collect();
        let expected = ["40", "41", "42"].map(|tid| {
            let pid = if tid == "42" { 8 } else { 7 };
            format!("{tid} Some([\"pid:{pid}\", \"mnt:5\"])")
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn command_lines_and_cgroups_of_processes() {
        let mut threads = Threads::default();
        let state = |pid, time, cmdline: &'static str| ProcessState {
            time: Some(time),
            pid,
            cmdline: Some(cmdline.as_bytes()),
            cgroup: Some(b"/a"),
            exit_code: None,
        };
        threads.comm(&comm(40, None, b"sh"));
        threads.process(&state(40, 1, "sh -c make"));
        // A process and a thread of it.
        threads.fork(&fork(41, 40, 100));
        let thread = Fork {
            pid: 41,
            ..fork(42, 41, 101)
        };
        threads.fork(&thread);
        // One that executes a program, which is looked at; another which is not.
        threads.fork(&fork(43, 40, 102));
        threads.exec(43, Some(103));
        threads.process(&ProcessState {
            exit_code: Some(2),
            ..state(43, 104, "cc a.c")
        });
        threads.exit(&exit(43, 105));
        threads.fork(&fork(44, 40, 106));
        threads.exec(44, Some(107));
        // The ID of a thread with a row.
        threads.exit(&exit(41, 108));
        threads.fork(&fork(41, 44, 109));
        // Samples know the cgroups of their threads.
        let path = b"/b";
        threads.cgroup(&Cgroup { id: 7, path });
        let index = threads.at(45, Some(45));
        threads.is_in_cgroup(index, 7);
        threads.is_in_cgroup(index, 7);
        let mut rows = threads.take_finished(true);
        rows.sort_by_key(|(row, _)| (row.tid, row.start));
        let text = |text: &Option<std::sync::Arc<[u8]>>| {
            let text = text.as_deref().map(String::from_utf8_lossy);
            text.map_or("-".to_owned(), |text| text.into_owned())
        };
        let found: Vec<String> = rows
            .iter()
            .map(|(row, details)| {
                let (cmdline, cgroup) = (text(&details.cmdline), text(&details.cgroup));
                format!("{}: {cmdline}, {cgroup}, {:?}", row.tid, row.exit_code)
            })
            .collect();
        let expected = [
            "40: sh -c make, /a, None",
            "41: sh -c make, /a, None",
            "41: -, /a, None",
            "42: -, -, None",
            "43: cc a.c, /a, Some(2)",
            "44: -, /a, None",
            "45: -, /b, None",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn long_command_lines_are_written_early() {
        let mut threads = Threads::default();
        let cmdline = vec![b'x'; 4096];
        for pid in 1..10_000 {
            threads.comm(&comm(pid, Some(i64::from(pid)), b"cc"));
            threads.process(&ProcessState {
                pid,
                cmdline: Some(&cmdline),
                ..ProcessState::default()
            });
            threads.exit(&exit(pid, i64::from(pid)));
            if threads.is_full(usize::MAX) {
                assert!(pid > 4000);
                assert!(threads.take_finished(false).len() > 3000);
                assert!(!threads.is_full(usize::MAX));
                return;
            }
        }
        panic!("40 MB of command lines are held");
    }

    #[test]
    fn a_child_has_its_parents_name_until_it_has_its_own() {
        let mut threads = Threads::default();
        threads.comm(&comm(40, None, b"sh"));
        threads.fork(&fork(41, 40, 100));
        assert_eq!(name(&mut threads, 41).unwrap(), "sh");
        threads.comm(&comm(41, Some(110), b"ls"));
        assert_eq!(name(&mut threads, 41).unwrap(), "ls");
        assert_eq!(name(&mut threads, 40).unwrap(), "sh");
        assert_eq!(name(&mut threads, 0).unwrap(), "swapper");
        assert_eq!(name(&mut threads, 77), None);
    }

    #[test]
    fn an_id_keeps_its_name_after_the_exit_until_it_is_reused() {
        let mut threads = Threads::default();
        threads.comm(&comm(40, None, b"sh"));
        threads.fork(&fork(41, 40, 100));
        threads.comm(&comm(41, Some(101), b"ls"));
        threads.exit(&exit(41, 120));
        assert_eq!(name(&mut threads, 41).unwrap(), "ls");
        threads.fork(&fork(41, 40, 200));
        assert_eq!(name(&mut threads, 41).unwrap(), "sh");
        let mut rows: Vec<Thread> = finished(&mut threads);
        rows.sort_by_key(|row| (row.tid, row.start));
        let lives: Vec<_> = rows
            .iter()
            .map(|row| (row.tid, row.start, row.end))
            .collect();
        assert_eq!(
            lives,
            [
                (40, None, None),
                (41, Some(100), Some(120)),
                (41, Some(200), None)
            ]
        );
        assert_eq!(rows[1].parent, Some(40));
    }

    #[test]
    fn a_name_after_the_exit_begins_another_life() {
        let mut threads = Threads::default();
        threads.comm(&comm(41, Some(1), b"a"));
        threads.exit(&exit(41, 2));
        threads.comm(&comm(41, Some(3), b"b"));
        assert_eq!(threads.take_finished(true).len(), 2);
    }

    #[test]
    fn the_state_at_the_start_may_be_reported_twice() {
        let mut threads = Threads::default();
        threads.comm(&comm(41, None, b"a"));
        threads.fork(&Fork {
            time: None,
            ..fork(41, 40, 0)
        });
        assert_eq!(name(&mut threads, 41).unwrap(), "a");
        let rows = finished(&mut threads);
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].parent, Some(40));
    }

    #[test]
    fn old_ended_threads_are_forgotten() {
        let mut threads = Threads::default();
        for tid in 1..=ENDED_REMEMBERED as i32 + 10 {
            threads.fork(&fork(tid, 0, i64::from(tid)));
            threads.exit(&exit(tid, i64::from(tid)));
        }
        assert_eq!(threads.latest.len(), ENDED_REMEMBERED);
        assert!(threads.is_full(10) && !threads.is_full(11));
    }
}
