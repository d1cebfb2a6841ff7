//! Unwind rules of code that HotSpot has generated: compiled Java code uses rbp as any other register, and a JVM has frame pointers
//! only with an option. It describes its code for debuggers, as a list of blobs with the size of their frames.
//!
//! ```text
//! CodeCache   heaps: blocks of 128 bytes and more, each with a blob
//! blob        "nmethod", code from 0x7fd684ec7620 to 0x7fd684ec79b8, frame of 4 words, complete after 28 bytes
//! ```
//! A thread reads the list from the memory of each JVM whose stacks are walked, again and again, since code is compiled all the
//! time. Its rules become a table as that of a file, which covers the code cache of one process.

mod heap;
mod layout;

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use perfquet_trace::symbols::GeneratedCode;
use perfquet_trace::symbols::limits::{CODE_CACHES_MAX, CODE_CACHES_PERCENT_MAX};

use crate::sys::{clock, thread};
use heap::Heap;
use layout::Variables;

/// Between two looks: the first pause, the longest, and how many times longer than a look.
const PAUSE_MIN: Duration = Duration::from_millis(25);
const PAUSE_MAX: Duration = Duration::from_secs(2);
const PAUSE_FACTOR: u32 = 20;
/// The same for all processes.
const REST_FACTOR: u32 = 100 / CODE_CACHES_PERCENT_MAX as u32;
/// Looks at a JVM that is starting, before the reason is logged.
const STARTING_LOOKS: u32 = 80;

/// The rules of a process's code cache.
pub(super) struct Rules {
    pub(super) pid: i32,
    /// Which program of this process: its number may be another's by now.
    pub(super) watch: u64,
    /// Addresses of the code cache.
    pub(super) low: u64,
    pub(super) high: u64,
    pub(super) code: GeneratedCode,
}

enum Request {
    Watch(i32, u64),
    /// A stack ended in its code.
    Look(i32),
    Forget(i32),
}

/// The thread that reads code caches. It ends when this is dropped.
pub(super) struct Hotspots {
    requests: Sender<Request>,
    read: Receiver<Rules>,
}

impl Hotspots {
    pub(super) fn start() -> Hotspots {
        let (requests, requested) = channel();
        let (results, read) = channel();
        std::thread::spawn(move || {
            // Until it has read new code, stacks in it are cut.
            thread::make_preferred();
            watch(&requested, &results);
        });
        Hotspots { requests, read }
    }

    /// Reads the code cache of a process from now on. Its rules have the number `watch`.
    pub(super) fn watch(&self, pid: i32, watch: u64) {
        let _ = self.requests.send(Request::Watch(pid, watch));
    }

    /// Reads it soon.
    pub(super) fn look(&self, pid: i32) {
        let _ = self.requests.send(Request::Look(pid));
    }

    /// Does not read it any more: the process has ended, or runs another program.
    pub(super) fn forget(&self, pid: i32) {
        let _ = self.requests.send(Request::Forget(pid));
    }

    /// Returns the next rules that have changed.
    pub(super) fn take(&self) -> Option<Rules> {
        self.read.try_recv().ok()
    }
}

/// A process, and when to look at it.
struct Watched {
    watch: u64,
    /// `None` while it starts.
    heap: Option<Heap>,
    variables: Option<Variables>,
    looks: u32,
    /// When it was looked at, and how long that took.
    last: Instant,
    cost: Duration,
    pause: Duration,
}

impl Watched {
    fn starting(watch: u64, now: Instant) -> Watched {
        Watched {
            watch,
            heap: None,
            variables: None,
            looks: 0,
            last: now,
            cost: Duration::ZERO,
            pause: Duration::ZERO,
        }
    }

    fn next(&self) -> Instant {
        self.last + self.pause.max(self.cost * PAUSE_FACTOR)
    }

    /// Returns the rules if they have changed.
    fn look(&mut self, pid: i32) -> Option<Rules> {
        if self.heap.is_none() {
            self.looks += 1;
            match Heap::of(pid, &mut self.variables) {
                Ok(heap) => self.heap = Some(heap),
                Err(reason) if self.looks == STARTING_LOOKS => {
                    log::info!("stacks of java {pid} may be cut: {reason}");
                }
                Err(reason) => log::debug!("code cache of process {pid}: {reason}"),
            }
        }
        let heap = self.heap.as_mut()?;
        let code = heap.read()?;
        let (low, high) = heap.range();
        Some(Rules {
            pid,
            watch: self.watch,
            low,
            high,
            code,
        })
    }
}

fn watch(requests: &Receiver<Request>, results: &Sender<Rules>) {
    let mut all: HashMap<i32, Watched> = HashMap::new();
    let mut rest = Instant::now();
    loop {
        let now = Instant::now();
        let until = all.values().map(Watched::next).min();
        let wait = until.map_or(PAUSE_MAX, |next| {
            next.max(rest).saturating_duration_since(now)
        });
        match requests.recv_timeout(wait) {
            Ok(Request::Forget(pid)) => drop(all.remove(&pid)),
            Ok(Request::Look(pid)) => {
                if let Some(watched) = all.get_mut(&pid) {
                    watched.pause = PAUSE_MIN;
                }
            }
            Ok(Request::Watch(pid, watch)) if (all.len() as u64) < CODE_CACHES_MAX => {
                all.insert(pid, Watched::starting(watch, now));
            }
            Ok(Request::Watch(..)) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = Instant::now();
        for (&pid, watched) in &mut all {
            if watched.next() > now || rest > Instant::now() {
                continue;
            }
            watched.last = Instant::now();
            let before = clock::thread_cpu();
            let changed = watched.look(pid);
            watched.cost = clock::thread_cpu().saturating_sub(before);
            rest = Instant::now() + watched.cost * REST_FACTOR;
            watched.pause = match (&changed, &watched.heap) {
                (None, Some(_)) => (watched.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX),
                (None, None) if watched.looks > STARTING_LOOKS => PAUSE_MAX,
                _ => PAUSE_MIN,
            };
            if let Some(rules) = changed
                && results.send(rules).is_err()
            {
                return;
            }
        }
    }
}

/// Whether a file is the JVM.
pub(super) fn is_jvm(path: &[u8]) -> bool {
    path.ends_with(b"/libjvm.so")
}
