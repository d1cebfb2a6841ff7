//! The threads of a trace, indexed by TID and time.

use std::collections::HashMap;

use anyhow::Result;
use perfquet_trace::store::Directory;
use perfquet_trace::tables;

use super::batch::BatchRow;
use super::source::Source;

/// A row of `threads`.
#[derive(Debug, Clone, Default)]
pub(super) struct Thread {
    pub(super) tid: i32,
    pub(super) pid: Option<i32>,
    pub(super) parent: Option<i32>,
    /// The last name.
    pub(super) comm: Option<String>,
    pub(super) start_time: Option<i64>,
    pub(super) end_time: Option<i64>,
    pub(super) cmdline: Option<String>,
}

/// All threads, in the order of the table.
#[derive(Debug, Default)]
pub(super) struct Threads {
    threads: Vec<Thread>,
    /// Indices by TID, sorted by start time. A reused TID has several.
    by_tid: HashMap<i32, Vec<usize>>,
}

impl Threads {
    /// Reads `threads`, with times of the export's timeline.
    pub(super) fn of(source: &Source<'_>) -> Result<Threads> {
        let mut threads = Threads::read(source.trace)?;
        for thread in &mut threads.threads {
            for time in [&mut thread.start_time, &mut thread.end_time] {
                *time = time.map(|time| source.at(time));
            }
        }
        Ok(threads)
    }

    /// Reads `threads`.
    pub(super) fn read(trace: &Directory) -> Result<Threads> {
        let mut threads = Threads::default();
        for batch in trace.read(tables::threads::NAME)? {
            let batch = batch?;
            for row in BatchRow::all(&batch) {
                let Some(tid) = row.i32("tid") else {
                    continue;
                };
                let index = threads.threads.len();
                threads.by_tid.entry(tid).or_default().push(index);
                threads.threads.push(Thread {
                    tid,
                    pid: row.i32("pid"),
                    parent: row.i32("parent"),
                    comm: row.text("comm").map(str::to_owned),
                    start_time: row.i64("start_time"),
                    end_time: row.i64("end_time"),
                    cmdline: row.text("cmdline").map(str::to_owned),
                });
            }
        }
        let all = &threads.threads;
        for indices in threads.by_tid.values_mut() {
            indices.sort_by_key(|index| all[*index].start_time);
        }
        Ok(threads)
    }

    pub(super) fn all(&self) -> &[Thread] {
        &self.threads
    }

    /// Returns the index of the thread that had this TID at this time.
    pub(super) fn find(&self, tid: i32, time: Option<i64>) -> Option<usize> {
        let indices = self.by_tid.get(&tid)?;
        let (first, later) = indices.split_first()?;
        let mut started = later.iter().rev();
        let started = started.find(|index| self.threads[**index].start_time <= time);
        Some(*started.unwrap_or(first))
    }

    /// Returns how many threads had the TID of this one before it.
    pub(super) fn earlier(&self, index: usize) -> usize {
        let same_tid = self.by_tid.get(&self.threads[index].tid);
        let place = same_tid.and_then(|indices| indices.iter().position(|known| *known == index));
        place.unwrap_or(0)
    }

    /// Returns the index of the main thread of a thread's process: the one that had the PID when the thread began.
    pub(super) fn main_thread(&self, index: usize) -> Option<usize> {
        let thread = &self.threads[index];
        if thread.pid == Some(thread.tid) {
            return Some(index);
        }
        let main = self.find(thread.pid?, thread.start_time)?;
        (self.threads[main].pid == thread.pid).then_some(main)
    }

    /// Returns the main thread of a process, which has its name.
    pub(super) fn process(&self, pid: i32) -> Option<&Thread> {
        let indices = self.by_tid.get(&pid)?.iter();
        let mut threads = indices.map(|index| &self.threads[*index]);
        threads.rfind(|thread| thread.pid == Some(pid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_pid_is_another_process() {
        let thread = |tid, pid, start_time| Thread {
            tid,
            pid: Some(pid),
            start_time,
            ..Thread::default()
        };
        let threads = Threads {
            threads: vec![
                thread(7, 7, Some(50)),
                thread(7, 7, None),
                thread(8, 7, Some(60)),
                thread(8, 7, Some(10)),
            ],
            by_tid: HashMap::from([(7, vec![1, 0]), (8, vec![3, 2])]),
        };
        assert_eq!(threads.find(7, Some(49)), Some(1));
        assert_eq!(threads.find(7, Some(50)), Some(0));
        assert_eq!((threads.earlier(1), threads.earlier(0)), (0, 1));
        assert_eq!(threads.main_thread(3), Some(1));
        assert_eq!(threads.main_thread(2), Some(0));
    }
}
