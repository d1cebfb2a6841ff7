//! A host of two CPUs whose threads run, wait, wake and create each other, and the recordings of it that perf would write.
//!
//! ```text
//! cpu 0   a runs    │ a wakes b │ a → b            the system has all events
//! cpu 1   other wakes a │ other → a                a recording of a and b lacks those in other's context
//! ```
//! A scope has the events in the context of its threads, up to the record of their exits, and those of threads that they create. Some
//! kernels also deliver wake-ups to the woken thread's events (`__perf_task` in include/trace/events/sched.h).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;

use perfquet_tests::random::Random;

const CPUS: usize = 2;
const STEPS: usize = 1500;
/// Lines before the recording starts.
const UNRECORDED: usize = 20;
/// Threads that run at most, besides those of [`THREADS`].
const MOST: usize = 60;

/// Processes and threads when the recording starts.
pub(super) const THREADS: [(u32, u32); 8] = [
    (100, 100),
    (100, 101),
    (100, 102),
    (200, 200),
    (200, 201),
    (300, 300),
    (7, 7),
    (8, 8),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Runnable,
    Asleep,
    /// Woken by `sched_waking`; its CPU has not taken it yet.
    Waking,
    Gone,
}

/// What a thread does in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    Nothing,
    /// The system call of [`CALLS`].
    Call(usize),
    /// That call, and a wait for the lock with this number.
    Lock(usize, u64),
}

#[derive(Debug, Clone)]
struct Thread {
    pid: u32,
    comm: String,
    state: State,
    /// CPU on which it runs, ran or waits.
    cpu: usize,
    inside: Inside,
    /// How it leaves its CPU next: it was woken before it did, or exits.
    leaves: Option<(&'static str, State)>,
    is_initial: bool,
}

/// A line of a recording, and the thread in whose context it is.
struct Line {
    context: u32,
    /// In nanoseconds.
    time: i64,
    /// A thread that its context creates.
    creates: Option<u32>,
    /// A thread to whose events it is delivered, too.
    wakes: Option<u32>,
    /// Its context exits.
    is_exit: bool,
    text: String,
}

/// What of the host's events is recorded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recorder {
    /// Whether each thread's own record of its switches is there: a scope sees its threads begin to run.
    pub(super) has_switches: bool,
    /// Whether wake-ups are delivered to the woken thread.
    pub(super) has_deliveries: bool,
    /// Whether new threads get IDs of those that are gone.
    pub(super) has_reuse: bool,
}

/// A scheduler and its events.
pub(super) struct Host {
    random: Random,
    recorder: Recorder,
    time_us: u64,
    threads: BTreeMap<u32, Thread>,
    running: [u32; CPUS],
    lines: Vec<Line>,
    next_id: u32,
    /// Sectors of requests that the disk has.
    requests: VecDeque<u64>,
    next_sector: u64,
}

/// Name, arguments.
const CALLS: [(&str, &str); 4] = [
    ("read", "fd: 0x00000003, buf: 0x7ffd0000, count: 0x00000040"),
    (
        "write",
        "fd: 0x00000004, buf: 0x7ffd0000, count: 0x00000040",
    ),
    (
        "futex",
        "uaddr: 0x00601000, op: 0x00000080, val: 0x00000002, utime: 0x00000000, uaddr2: 0x00000000, val3: 0x00000000",
    ),
    (
        "futex",
        "uaddr: 0x00601000, op: 0x00000081, val: 0x00000001, utime: 0x00000000, uaddr2: 0x00000000, val3: 0x00000000",
    ),
];

impl Host {
    pub(super) fn of(seed: u64, recorder: Recorder) -> Host {
        let thread = |(pid, tid): (u32, u32)| {
            let thread = Thread {
                pid,
                comm: format!("t{tid}"),
                state: State::Asleep,
                cpu: 0,
                inside: Inside::Nothing,
                leaves: None,
                is_initial: true,
            };
            (tid, thread)
        };
        let mut host = Host {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            recorder,
            time_us: 100_000_000,
            threads: THREADS.into_iter().map(thread).collect(),
            running: [0; CPUS],
            lines: Vec::new(),
            next_id: 1000,
            requests: VecDeque::new(),
            next_sector: 0,
        };
        for _ in 0..STEPS {
            host.step();
        }
        host
    }

    fn below(&mut self, count: usize) -> usize {
        self.random.below(count as u64) as usize
    }

    fn pick(&mut self, all: &[u32]) -> Option<u32> {
        (!all.is_empty()).then(|| all[self.below(all.len())])
    }

    fn named(&self, tid: u32) -> (String, u32) {
        match self.threads.get(&tid) {
            Some(thread) => (thread.comm.clone(), thread.pid),
            None => ("swapper".to_owned(), 0),
        }
    }

    fn line(&mut self, context: u32, cpu: usize, event: &str) -> &mut Line {
        self.time_us += 1;
        self.line_at_once(context, cpu, event)
    }

    /// At the time of the line before.
    fn line_at_once(&mut self, context: u32, cpu: usize, event: &str) -> &mut Line {
        let (comm, pid) = self.named(context);
        let (seconds, us) = (self.time_us / 1_000_000, self.time_us % 1_000_000);
        let text =
            format!("{comm:>16} {pid:>5}/{context:<5} [{cpu:03}] {seconds}.{us:06}: {event}\n");
        self.lines.push(Line {
            context,
            time: self.time_us as i64 * 1000,
            creates: None,
            wakes: None,
            is_exit: false,
            text,
        });
        self.lines.last_mut().unwrap()
    }

    fn in_state(&self, is_it: impl Fn(&Thread) -> bool) -> Vec<u32> {
        let all = self.threads.iter().filter(|(_, thread)| is_it(thread));
        all.map(|(tid, _)| *tid).collect()
    }

    fn step(&mut self) {
        self.time_us += self.below(40) as u64;
        let cpu = self.below(CPUS);
        self.arrive(cpu);
        let current = self.running[cpu];
        if let Some(leaves) = self.threads.get(&current).and_then(|thread| thread.leaves) {
            return self.switch(current, cpu, Some(leaves));
        }
        match self.below(18) {
            0..5 => self.wake(current, cpu),
            5..10 => self.switch(current, cpu, None),
            10 => self.migrate(current, cpu),
            11 => self.block(current, cpu),
            _ if current == 0 => {}
            12 => self.rename(current, cpu),
            13 => self.create(current, cpu),
            14 => self.exit(current, cpu),
            _ => self.enter_or_leave(current, cpu),
        }
    }

    /// Threads whose wake-up a CPU has not taken yet are on its queue from here on.
    fn arrive(&mut self, cpu: usize) {
        for tid in self.in_state(|thread| thread.state == State::Waking && thread.cpu == cpu) {
            self.woken(tid, self.running[cpu], cpu);
        }
    }

    /// `sched_wakeup`, in the context of some thread.
    fn woken(&mut self, tid: u32, context: u32, cpu: usize) {
        let (comm, target) = (self.named(tid).0, self.threads[&tid].cpu);
        let event =
            format!("sched:sched_wakeup: comm={comm} pid={tid} prio=120 target_cpu={target:03}");
        self.line(context, cpu, &event).wakes = Some(tid);
        self.threads.get_mut(&tid).unwrap().state = State::Runnable;
    }

    fn wake(&mut self, current: u32, cpu: usize) {
        // Without flags in the text, the waker of one that is delivered without its softirq is the interrupted thread.
        let softirq = self.random.happens(3) && !self.recorder.has_deliveries;
        if softirq {
            self.line(current, cpu, "irq:softirq_entry: vec=1 [action=TIMER]");
        }
        let asleep = self.in_state(|thread| thread.state == State::Asleep);
        let other = self.running[1 - cpu];
        // Without records of switches, nobody knows that a thread of a scope runs.
        let way = self.below(8);
        match way + if self.recorder.has_switches { 0 } else { 2 } {
            // One that is about to sleep.
            0 if other != 0 && self.threads[&other].leaves.is_none() => {
                self.waking(other, 1 - cpu, current, cpu);
                self.threads.get_mut(&other).unwrap().leaves = Some(("S", State::Waking));
            }
            // One that runs, and goes on.
            1 if other != 0 && self.threads[&other].leaves.is_none() => {
                self.waking(other, 1 - cpu, current, cpu);
                self.woken(other, current, cpu);
                self.threads.get_mut(&other).unwrap().state = State::Running;
            }
            way => {
                if let Some(tid) = self.pick(&asleep) {
                    let target = self.below(CPUS);
                    self.waking(tid, target, current, cpu);
                    let thread = self.threads.get_mut(&tid).unwrap();
                    (thread.state, thread.cpu) = (State::Waking, target);
                    if way < 6 {
                        self.woken(tid, current, cpu);
                    }
                }
            }
        }
        if softirq {
            self.line(current, cpu, "irq:softirq_exit: vec=1 [action=TIMER]");
        }
    }

    fn waking(&mut self, tid: u32, target: usize, current: u32, cpu: usize) {
        let comm = self.named(tid).0;
        let event =
            format!("sched:sched_waking: comm={comm} pid={tid} prio=120 target_cpu={target:03}");
        self.line(current, cpu, &event).wakes = Some(tid);
    }

    /// Another thread runs; `ends` is the state of the one that leaves.
    fn switch(&mut self, current: u32, cpu: usize, ends: Option<(&str, State)>) {
        let waiting = self.in_state(|thread| thread.state == State::Runnable && thread.cpu == cpu);
        let next = self.pick(&waiting).unwrap_or(0);
        if next == current {
            return;
        }
        let (state, after) = ends.unwrap_or(match self.below(3) {
            0 => ("R", State::Runnable),
            1 => ("S", State::Asleep),
            _ => ("D", State::Asleep),
        });
        let state = if current == 0 { "R" } else { state };
        let (prev_comm, next_comm) = (self.named(current).0, self.named(next).0);
        let event = format!(
            "sched:sched_switch: prev_comm={prev_comm} prev_pid={current} prev_prio=120 prev_state={state} ==> next_comm={next_comm} next_pid={next} next_prio=120"
        );
        self.line(current, cpu, &event);
        if self.recorder.has_switches {
            let preempted = u8::from(state == "R");
            let event = format!("perf:context_switch: out=1 preempted={preempted}");
            self.line_at_once(current, cpu, &event);
        }
        if let Some(thread) = self.threads.get_mut(&current) {
            (thread.state, thread.cpu) = (after, cpu);
            thread.leaves = None;
        }
        if let Some(thread) = self.threads.get_mut(&next) {
            thread.state = State::Running;
        }
        self.running[cpu] = next;
        if self.recorder.has_switches {
            self.line_at_once(next, cpu, "perf:context_switch: out=0 preempted=0");
        }
    }

    /// A waiting thread moves to another CPU.
    fn migrate(&mut self, current: u32, cpu: usize) {
        let waiting = self.in_state(|thread| thread.state == State::Runnable);
        let Some(tid) = self.pick(&waiting) else {
            return;
        };
        let (comm, from) = (self.named(tid).0, self.threads[&tid].cpu);
        let to = 1 - from;
        let event = format!(
            "sched:sched_migrate_task: comm={comm} pid={tid} prio=120 orig_cpu={from} dest_cpu={to}"
        );
        self.line(current, cpu, &event);
        self.threads.get_mut(&tid).unwrap().cpu = to;
    }

    /// A request of a disk, or the end of one.
    fn block(&mut self, current: u32, cpu: usize) {
        let (comm, _) = self.named(current);
        if current == 0 || self.random.happens(2) {
            if let Some(sector) = self.requests.pop_front() {
                let event = format!("block:block_rq_complete: 8,0 R () {sector} + 8 [0]");
                self.line(current, cpu, &event);
            }
            return;
        }
        // No two requests are for one sector: in a scope, a request ends with the first recorded completion.
        self.next_sector += 8;
        let sector = self.next_sector;
        self.requests.push_back(sector);
        let event = format!("block:block_rq_issue: 8,0 R 4096 () {sector} + 8 [{comm}]");
        self.line(current, cpu, &event);
    }

    fn rename(&mut self, current: u32, cpu: usize) {
        let comm = format!("n{}", self.below(1000));
        let pid = self.threads[&current].pid;
        self.threads.get_mut(&current).unwrap().comm = comm.clone();
        let event = format!("PERF_RECORD_COMM: {comm}:{pid}/{current}");
        self.line(current, cpu, &event);
    }

    /// A new thread or process; sometimes with the ID of one that is gone.
    fn create(&mut self, current: u32, cpu: usize) {
        let living = self.in_state(|thread| !thread.is_initial && thread.state != State::Gone);
        if living.len() >= MOST || self.lines.len() < UNRECORDED {
            return;
        }
        let (parent, is_thread) = (self.threads[&current].pid, !self.random.happens(3));
        let is_again = self.recorder.has_reuse && self.random.happens(3);
        let free = self.in_state(|thread| thread.state == State::Gone);
        let tid = match self.pick(&free).filter(|_| is_again) {
            Some(again) => again,
            None => {
                self.next_id += 1;
                self.next_id
            }
        };
        let pid = if is_thread { parent } else { tid };
        let event = format!("PERF_RECORD_FORK({pid}:{tid}):({parent}:{current})");
        self.line(current, cpu, &event).creates = Some(tid);
        let comm = self.threads[&current].comm.clone();
        let thread = Thread {
            pid,
            comm: comm.clone(),
            state: State::Runnable,
            cpu,
            inside: Inside::Nothing,
            leaves: None,
            is_initial: false,
        };
        self.threads.insert(tid, thread);
        let event =
            format!("sched:sched_wakeup_new: comm={comm} pid={tid} prio=120 target_cpu={cpu:03}");
        self.line(current, cpu, &event).wakes = Some(tid);
    }

    /// A thread that was created exits.
    fn exit(&mut self, current: u32, cpu: usize) {
        let thread = &self.threads[&current];
        let (pid, is_initial) = (thread.pid, thread.is_initial);
        let others = self.in_state(|other| other.pid == pid && other.state != State::Gone);
        // The first thread of a process goes last: its ID is that of the process.
        if is_initial || (current == pid && others.len() > 1) {
            return;
        }
        let event = format!("PERF_RECORD_EXIT({pid}:{current}):({pid}:{current})");
        self.line(current, cpu, &event).is_exit = true;
        if self.random.happens(2) {
            // Its parent learns of it.
            self.wake(current, cpu);
        }
        let last = Some(("X", State::Gone));
        if self.random.happens(4) {
            // It is preempted, and leaves when it runs again.
            self.switch(current, cpu, Some(("R", State::Runnable)));
        }
        self.threads.get_mut(&current).unwrap().leaves = last;
    }

    /// A system call or a lock begins or ends.
    fn enter_or_leave(&mut self, current: u32, cpu: usize) {
        let inside = self.threads[&current].inside;
        let (event, after) = match inside {
            Inside::Nothing => {
                let call = self.below(CALLS.len());
                let (name, arguments) = CALLS[call];
                let event = format!("syscalls:sys_enter_{name}: {arguments}");
                (event, Inside::Call(call))
            }
            Inside::Call(call) if self.random.happens(3) => {
                let lock = 0xffff_8880_0000_1000 + 0x1000 * self.random.below(2);
                let event = format!("lock:contention_begin: 0x{lock:x} (flags=MUTEX)");
                (event, Inside::Lock(call, lock))
            }
            Inside::Call(call) => {
                let (name, result) = (CALLS[call].0, self.below(3));
                let event = format!("syscalls:sys_exit_{name}: 0x{result:x}");
                (event, Inside::Nothing)
            }
            Inside::Lock(call, lock) => {
                let event = format!("lock:contention_end: 0x{lock:x} (ret=0)");
                (event, Inside::Call(call))
            }
        };
        self.line(current, cpu, &event);
        self.threads.get_mut(&current).unwrap().inside = after;
    }

    /// The recording by a command line of perf, of these threads at its start (all if `None`), and the threads that it covers. Names are
    /// those of whole processes.
    pub(super) fn recording(
        &self,
        options: &str,
        of: Option<&[u32]>,
        named: u32,
    ) -> (String, Covered) {
        let mut text = format!(
            "# ========\n# hostname : host\n# os release : 6.1.0\n# perf version : 6.1.0\n# arch : x86_64\n# nrcpus online : {CPUS}\n# cmdline : /usr/bin/perf record -e sched:* {options} -o perf.data\n# ========\n#\n"
        );
        for (pid, tid) in THREADS {
            if of.is_none() || pid == named {
                let comm = format!("t{tid}");
                let _ = writeln!(
                    text,
                    "{comm:>16} {pid:>5}/{tid:<5} [000] 0.000000: PERF_RECORD_COMM: {comm}:{pid}/{tid}"
                );
            }
        }
        let mut open: BTreeSet<u32> = of.unwrap_or_default().iter().copied().collect();
        let mut covered = Covered::default();
        covered.0.extend(open.iter().map(|&tid| (tid, 0, None)));
        for line in &self.lines[UNRECORDED..] {
            let is_own = open.contains(&line.context);
            let is_delivered = line.wakes.is_some_and(|tid| open.contains(&tid));
            if of.is_none() || is_own || (is_delivered && self.recorder.has_deliveries) {
                text.push_str(&line.text);
            }
            if !is_own {
                continue;
            }
            if let Some(tid) = line.creates {
                open.insert(tid);
                covered.0.push((tid, line.time, None));
            }
            if line.is_exit {
                open.remove(&line.context);
                covered.exit(line.context, line.time);
            }
        }
        (text, covered)
    }
}

/// Threads with the times from which and until which they are recorded.
#[derive(Debug, Default)]
pub(super) struct Covered(Vec<(u32, i64, Option<i64>)>);

impl Covered {
    fn exit(&mut self, tid: u32, time: i64) {
        let life = self.0.iter_mut().rfind(|life| life.0 == tid);
        life.unwrap().2 = Some(time);
    }

    /// The end of the life in which a thread is recorded at that time, if it is; `None` in it if it does not exit.
    pub(super) fn life(&self, tid: u32, time: i64) -> Option<Option<i64>> {
        let is_it = |&&(other, from, to): &&(u32, i64, Option<i64>)| {
            other == tid && from <= time && to.is_none_or(|to| time <= to)
        };
        self.0.iter().find(is_it).map(|life| life.2)
    }

    pub(super) fn has(&self, tid: u32) -> bool {
        self.0.iter().any(|life| life.0 == tid)
    }
}
