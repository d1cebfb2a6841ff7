//! `--keep-code`: the code of sampled functions that will be gone after the recording.
//!
//! ```text
//! journal ─reader─► Tally ─every 100 ms─► CodeFinder: which functions ─► memory of the process ─► records
//! ```
//! Like the display of `--live`, it follows the growing journal and costs the drain nothing. Generated code is read when a function is
//! first sampled and has a name, again at growing intervals, and at the end; each version that differs from the last one becomes a
//! record. Files and the kernel's code are read at the end. Processes may lie about their functions, so that all of it has limits.

mod kcore;
mod memory;

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use perfquet_events::Error;
use perfquet_events::event::KeptCode;
use perfquet_trace::count::counted;
use perfquet_trace::normalize::{CodeFinder, Interval, SampledFunction};
use perfquet_trace::symbols::limits::{
    KEPT_BYTES_MAX, KEPT_FUNCTION_BYTES_MAX, KEPT_LAST_MS_MAX, KEPT_PERCENT_MAX, KEPT_PLACES_MAX,
    KEPT_PROCESS_BYTES_MAX,
};
use perfquet_trace::symbols::{Machine, Options, Roots};

use crate::added_records::AddedRecords;
use crate::journal::follower::{Followed, Follower, Growing, wait_for};
use crate::journal::own_records::OwnRecords;
use crate::recording::OWN_ID;
use crate::sys::clock;
use kcore::Kcore;
use memory::Memories;

/// Time between two looks for new functions.
const LOOK: Duration = Duration::from_millis(100);
/// First reading of all functions again, and the longest time between two.
const FIRST_REREAD: Duration = Duration::from_secs(1);
const REREAD_MAX: Duration = Duration::from_secs(60);
/// Time for looks that are free.
const FREE: Duration = Duration::from_millis(200);
/// Memory for a version besides its code.
const VERSION_BYTES: u64 = 256;

/// The recording whose code is to be kept.
pub(crate) struct Request {
    pub(crate) growing: Growing,
    /// Roots of processes, and the files held open.
    pub(crate) roots: Roots,
}

/// The running threads.
pub(crate) struct Keeper {
    kept: Arc<Mutex<Kept>>,
    added: AddedRecords,
    /// Ends the worker when dropped.
    end: Sender<()>,
    reader: Follower,
    worker: JoinHandle<()>,
}

/// What was kept.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept {
    /// Records for the end of the journal.
    pub(crate) records: Vec<u8>,
    functions: u64,
    bytes: u64,
    /// Functions without any code, by reason.
    missing: BTreeMap<&'static str, u64>,
    /// The time at the end was not enough.
    is_cut: bool,
}

impl Kept {
    /// The message below the closing line.
    pub(crate) fn sentence(&self) -> String {
        let mut text = format!(
            "code of {} kept ({} KiB)",
            counted(self.functions, "function"),
            self.bytes.div_ceil(1 << 10)
        );
        for (reason, count) in &self.missing {
            text += &format!(", {count} not: {reason}");
        }
        if self.is_cut {
            text += "; the time was not enough for all";
        }
        text
    }
}

impl Keeper {
    /// Starts to follow the recording.
    pub(crate) fn start(request: Request, added: AddedRecords) -> Keeper {
        let options = Options {
            roots: request.roots,
            ..Options::default()
        };
        let reader = Follower::start(request.growing, options.clone(), "--keep-code");
        let kept = Arc::<Mutex<Kept>>::default();
        let (end, ended) = channel();
        // It keeps the inherited thread name: the filter that excludes the recorder matches by name.
        let of_worker = (reader.followed(), Arc::clone(&kept), added.clone());
        let worker = std::thread::spawn(move || {
            let (followed, kept, added) = of_worker;
            Worker::new(followed, kept, added, options).run(&ended);
        });
        Keeper {
            kept,
            added,
            end,
            reader,
            worker,
        }
    }

    /// Reads the rest of the code. The journal is complete, and processes that have not exited still run.
    pub(crate) fn finish(self) -> Kept {
        let deadline = Instant::now() + Duration::from_millis(KEPT_LAST_MS_MAX);
        self.reader.end_of_journal();
        self.reader.wait(deadline);
        drop(self.end);
        wait_for(&self.worker, deadline);
        self.reader.give_up();
        let mut kept = std::mem::take(&mut *lock(&self.kept));
        kept.is_cut = !self.worker.is_finished();
        // Added after the last pass of the drain.
        let mut records = self.added.take();
        records.append(&mut kept.records);
        kept.records = records;
        kept
    }
}

/// A function as its records name it: process, module, start.
type Key = (Option<i32>, String, u64);

/// Finds functions and reads their code.
struct Worker {
    followed: Arc<Followed>,
    kept: Arc<Mutex<Kept>>,
    added: AddedRecords,
    finder: CodeFinder,
    memories: Memories,
    /// A hash of the last version of each function.
    versions: HashMap<Key, u64>,
    hasher: RandomState,
    /// Functions without any code, and the reason.
    missing: HashMap<Key, &'static str>,
    /// Bytes used by each process, and by all.
    process_bytes: HashMap<Option<i32>, u64>,
    bytes: u64,
    /// Bytes of code.
    code_bytes: u64,
    /// Whether records go to the end of the journal, and no longer to the drain.
    is_last: bool,
}

impl Worker {
    fn new(
        followed: Arc<Followed>,
        kept: Arc<Mutex<Kept>>,
        added: AddedRecords,
        options: Options,
    ) -> Worker {
        Worker {
            followed,
            kept,
            added,
            finder: CodeFinder::new(options),
            memories: Memories::default(),
            versions: HashMap::new(),
            hasher: RandomState::new(),
            missing: HashMap::new(),
            process_bytes: HashMap::new(),
            bytes: 0,
            code_bytes: 0,
            is_last: false,
        }
    }

    /// Reads code until `ended` has no sender, then the last of it.
    fn run(mut self, ended: &Receiver<()>) {
        let began = Instant::now();
        let mut spent = Duration::ZERO;
        let mut pause = FIRST_REREAD;
        let mut reread = began + pause;
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(LOOK) {
            let limit = began.elapsed() * KEPT_PERCENT_MAX as u32 / 100;
            if spent > limit + FREE {
                continue;
            }
            let look = Instant::now();
            let is_due = look >= reread;
            match self.look(is_due) {
                Ok(_) if is_due => {
                    pause = (2 * pause).min(REREAD_MAX);
                    reread = look + pause;
                }
                Ok(_) => {}
                Err(error) => {
                    log::warn!("--keep-code: {error}");
                    return;
                }
            }
            spent += look.elapsed();
        }
        self.is_last = true;
        match self.look(true) {
            Ok(interval) => self.read_others(&interval),
            Err(error) => log::warn!("--keep-code: {error}"),
        }
        self.report();
    }

    /// Reads generated functions that are new, or all of them.
    fn look(&mut self, all: bool) -> Result<Interval, Error> {
        let interval = self.followed.take();
        let is_new = self.finder.add(&interval)?;
        if is_new || all {
            self.memories.forget_mappings();
            for function in self.finder.generated() {
                if self.followed.is_over() {
                    break;
                }
                if all || !self.versions.contains_key(&key_of(&function)) {
                    self.keep_of_memory(&function);
                }
            }
        }
        Ok(interval)
    }

    fn keep_of_memory(&mut self, function: &SampledFunction) {
        let bytes = function.size.min(KEPT_FUNCTION_BYTES_MAX);
        let Some(pid) = function.pid else {
            return;
        };
        let range = function.address..function.address.saturating_add(bytes);
        let time = clock::monotonic();
        match self.memories.read(pid, range, function.sampled) {
            Ok((machine, code)) => self.keep(function, time, machine, &code),
            Err(reason) => self.miss(function, reason),
        }
    }

    /// Reads the code of files that cannot be opened later, and the kernel's.
    fn read_others(&mut self, interval: &Interval) {
        let mut finder = std::mem::replace(&mut self.finder, CodeFinder::new(Options::default()));
        let mut kernel = None;
        finder.others(interval, &mut |function| {
            let time = clock::monotonic();
            match &function.code {
                Some((machine, code)) => self.keep(&function, time, *machine, code),
                None => match kernel.get_or_insert_with(Kcore::open) {
                    Err(reason) => self.miss(&function, reason),
                    Ok(kcore) => {
                        let bytes = function.size.min(KEPT_FUNCTION_BYTES_MAX);
                        match kcore.read(function.address, bytes) {
                            Some(code) => self.keep(&function, time, kcore.machine(), &code),
                            None => self.miss(&function, "the kernel's memory was not readable"),
                        }
                    }
                },
            }
            !self.followed.is_over()
        });
        self.finder = finder;
    }

    /// Adds a record, unless the function still has the same code.
    fn keep(&mut self, function: &SampledFunction, time: u64, machine: Machine, code: &[u8]) {
        let key = key_of(function);
        let hash = self.hasher.hash_one(code);
        if self.versions.get(&key) == Some(&hash) {
            return;
        }
        let of_process = self.process_bytes.entry(function.pid).or_default();
        let bytes = code.len() as u64 + VERSION_BYTES;
        // The kernel is no process that could lie.
        let is_process_full =
            function.pid.is_some() && *of_process + bytes > KEPT_PROCESS_BYTES_MAX;
        if is_process_full || self.bytes + bytes > KEPT_BYTES_MAX {
            return self.miss(function, "there is more than the limit");
        }
        *of_process += bytes;
        self.bytes += bytes;
        self.code_bytes += code.len() as u64;
        self.missing.remove(&key);
        self.versions.insert(key, hash);
        let mut records = OwnRecords::new(OWN_ID, time, 0);
        records.code(&KeptCode {
            time: None,
            pid: function.pid,
            module: function.module.as_bytes(),
            build_id: function.build_id.as_deref(),
            start: function.start,
            address: function.address,
            size: function.size,
            machine: machine.number(),
            code,
        });
        let records = records.into_bytes();
        match self.is_last {
            true => {
                let mut kept = lock(&self.kept);
                kept.records.extend(records);
                kept.functions = self.versions.len() as u64;
                kept.bytes = self.code_bytes;
            }
            false => self.added.add(&records),
        }
    }

    fn miss(&mut self, function: &SampledFunction, reason: &'static str) {
        let key = key_of(function);
        // A list that names other functions each time is not followed.
        let has_room = (self.missing.len() as u64) < KEPT_PLACES_MAX;
        if has_room && !self.versions.contains_key(&key) {
            self.missing.insert(key, reason);
        }
    }

    /// Passes on what was kept.
    fn report(&self) {
        let mut kept = lock(&self.kept);
        kept.functions = self.versions.len() as u64;
        kept.bytes = self.code_bytes;
        kept.missing.clear();
        for reason in self.missing.values() {
            *kept.missing.entry(reason).or_default() += 1;
        }
        if self.finder.beyond() > 0 {
            kept.missing.insert(
                "there are more sampled places than the limit",
                self.finder.beyond(),
            );
        }
    }
}

fn key_of(function: &SampledFunction) -> Key {
    // Two processes with one file have the same code.
    let pid = function.pid.filter(|_| function.code.is_none());
    (pid, function.module.clone(), function.start)
}

/// The values are valid even if their last holder panicked.
fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(pid: i32, start: u64) -> SampledFunction {
        SampledFunction {
            pid: Some(pid),
            module: format!("/tmp/perf-{pid}.map"),
            build_id: None,
            start,
            address: start,
            size: 2 << 30,
            code: None,
            sampled: 0,
        }
    }

    fn worker() -> Worker {
        let followed = Followed::new(Arc::default(), Options::default());
        let added = AddedRecords::default();
        Worker::new(
            Arc::new(followed),
            Arc::default(),
            added,
            Options::default(),
        )
    }

    #[test]
    fn only_versions_that_differ_are_kept() {
        let mut worker = worker();
        for (time, code, has_record) in [
            (1, &b"\x90\xc3"[..], true),
            (2, b"\x90\xc3", false),
            (3, b"\xc3", true),
            (4, b"\x90\xc3", true),
        ] {
            worker.keep(&function(7, 0x1000), time, Machine::X86_64, code);
            assert_eq!(!worker.added.take().is_empty(), has_record, "{time}");
        }
        // A version that cannot be read any more does not undo the last one.
        worker.miss(&function(7, 0x1000), "gone");
        worker.miss(&function(7, 0x2000), "gone");
        worker.report();
        let sentence = lock(&worker.kept).sentence();
        assert_eq!(sentence, "code of 1 function kept (1 KiB), 1 not: gone");
    }

    #[test]
    fn processes_and_all_of_them_have_a_limit() {
        let mut worker = worker();
        let code = vec![0x90; KEPT_FUNCTION_BYTES_MAX as usize];
        let mut records = 0;
        for pid in 1..12 {
            for start in 0..200 {
                worker.keep(&function(pid, start), 0, Machine::X86_64, &code);
                let added = worker.added.take();
                // The size of a record has 16 bits.
                assert!(added.len() < 1 << 16);
                records += added.len() as u64;
            }
            assert!(worker.process_bytes[&Some(pid)] <= KEPT_PROCESS_BYTES_MAX);
        }
        assert!(worker.bytes <= KEPT_BYTES_MAX);
        assert!(worker.bytes > KEPT_BYTES_MAX - 2 * KEPT_PROCESS_BYTES_MAX);
        assert!(records < KEPT_BYTES_MAX + KEPT_BYTES_MAX / 100);
        worker.report();
        let sentence = lock(&worker.kept).sentence();
        assert!(
            sentence.ends_with("not: there is more than the limit"),
            "{sentence}"
        );
    }
}
