//! `pass_locks()`: waits for kernel locks and futexes.
//!
//! ```text
//! lock:contention_begin, contention_end of a thread and an address      a wait in the kernel
//! futex(uaddr, FUTEX_WAIT) by one thread                                 a wait of a program;
//! futex(uaddr, FUTEX_WAKE) by another during the wait                    that one has released it
//! futex(uaddr, FUTEX_WAIT, 4711), where 4711 is a thread of the process  pthread_join: no lock, the kernel ends the wait when the thread ends
//! ```
//! A lock passes from thread to thread while others wait. Whoever wakes a waiter releases it, and has held it since the release before, or
//! since the wait began; the owner of a wait is who held it longest:
//!
//! ```text
//! wait of C ├───────────────────────┤
//! wakes                        A  B          A has held the lock: B woke C, but had it for a moment
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::error::Result;
use datafusion::logical_expr::lit;
use hashbrown::HashMap;
use perfquet_events::event::Context;
use perfquet_events::event::Flags;

use super::Function;
use super::names::{Name, Names};
use super::pass::{Machine, Pass, PassPlan, PassTable, Tables};
use super::rows::{Rows, emitted};
use super::selection::Selection;
use super::source::{Input, Row, Source};
use super::system_calls::SystemCalls;
use crate::linux::errno;

pub(super) const FUNCTION: Function = Function {
    name: "pass_locks",
    create: |arguments| match arguments {
        [] => Some(Arc::new(Locks)),
        _ => None,
    },
};

#[derive(Debug)]
struct Locks;

emitted! {
    TIME "time" Int64,
    DURATION "duration" Int64,
    CPU "cpu" Int32,
    PID "pid" Int32,
    TID "tid" Int32,
    COMM "comm" Text,
    KIND "kind" Text,
    ACCESS "access" Text,
    ADDRESS "address" Address,
    OWNER_TID "owner_tid" Int32,
    ERROR "error" Text,
    KERNEL_STACK "kernel_stack" Stack,
    USER_STACK "user_stack" Stack,
}

mod feed {
    pub(super) const LOSSES: usize = 0;
    pub(super) const THREADS: usize = 1;
    pub(super) const BEGIN: usize = 2;
    pub(super) const WAKING: usize = 3;
    pub(super) const WAKEUP: usize = 4;
    pub(super) const END: usize = 5;
    pub(super) const FUTEX: usize = 6;
}

impl Pass for Locks {
    fn name(&self) -> &'static str {
        FUNCTION.name
    }

    fn columns(&self, id: &DataType) -> Vec<Field> {
        fields(id)
    }

    fn plan(&self, _: &Selection, tables: &Tables<'_>) -> PassPlan {
        let wake = |name: &str, is_wanted: bool| {
            let columns = vec![
                Input::integer(&["arg_pid"]),
                Input::integer(&["tid"]),
                Input::integer(&[Flags::BITS]),
            ];
            Source::event(name, columns).with_condition(lit(is_wanted))
        };
        // After it, another CPU reports sched_wakeup from an interrupt of whoever runs there.
        let has_waking = tables.has("sched:sched_waking");
        let common = [
            Input::integer(&["tid"]),
            Input::integer(&["cpu"]),
            Input::integer(&["lock_addr"]),
        ];
        let mut begin = common.to_vec();
        begin.extend([
            Input::code(&["flags"]),
            Input::integer(&["pid"]),
            Input::text(&["comm"]),
            Input::integer(&["kernel_stack"]),
            Input::integer(&["user_stack"]),
        ]);
        let mut end = common.to_vec();
        end.push(Input::integer(&["ret"]));
        let calls = SystemCalls {
            only: Some(
                ["futex", "futex_wait", "futex_wake"]
                    .map(String::from)
                    .into(),
            ),
        };
        let name = calls.name();
        let calls_table = Arc::new(PassTable::new(Arc::new(calls), tables.traces));
        let names = ["tid", "cpu", "arg0", "arg1", "pid"].map(|name| Input::integer(&[name]));
        let mut columns = names.to_vec();
        columns.extend([
            Input::text(&["comm"]),
            Input::integer(&["kernel_stack"]),
            Input::integer(&["user_stack"]),
            Input::integer(&["duration"]),
            Input::integer(&["ret"]),
            Input::text(&["name"]),
            Input::integer(&["arg2"]),
        ]);
        let threads = ["tid", "pid"].map(|name| Input::integer(&[name]));
        let sources = vec![
            Source::fixed("losses", "time", Vec::new()),
            Source::fixed("threads", "start_time", threads.to_vec()).with_unknown_times(),
            Source::event("lock:contention_begin", begin),
            wake("sched:sched_waking", has_waking),
            wake("sched:sched_wakeup", !has_waking),
            Source::event("lock:contention_end", end),
            Source::provided(name, calls_table, columns),
        ];
        PassPlan::new(sources, || Waits {
            losses: 0,
            threads: HashMap::new(),
            kernel: HashMap::new(),
            waiting: HashMap::new(),
            futexes: HashMap::new(),
            ends: BinaryHeap::new(),
            numbers: 0,
            names: Names::default(),
            comm: Name::default(),
        })
    }
}

/// A thread that waits for a lock.
#[derive(Debug, Clone)]
struct Wait {
    time: i64,
    cpu: Option<i32>,
    pid: Option<i32>,
    tid: i32,
    comm: Name,
    /// Flags of a kernel lock; `None` for a futex.
    flags: Option<i64>,
    address: i64,
    /// The thread that is joined.
    joined: Option<i32>,
    holders: Holders,
    kernel_stack: Option<i64>,
    user_stack: Option<i64>,
    losses: u64,
    /// End and result of a wait for a futex, which are known beforehand.
    duration: Option<i64>,
    ret: Option<i64>,
}

impl Wait {
    fn owner(&self) -> Option<i32> {
        self.joined.or_else(|| self.holders.longest())
    }
}

/// Who has held a lock during a wait, and how long.
#[derive(Debug, Clone)]
struct Holders {
    /// Since the wait began or the last release.
    since: i64,
    /// The last to release it is the last.
    times: Vec<(i32, i64)>,
}

impl Holders {
    fn since(time: i64) -> Holders {
        Holders {
            since: time,
            times: Vec::new(),
        }
    }

    /// The lock is released.
    fn release(&mut self, by: i32, time: i64) {
        let held = time - self.since;
        self.since = time;
        let known = self.times.iter().position(|(tid, _)| *tid == by);
        let before = known.map_or(0, |place| self.times.remove(place).1);
        self.times.push((by, before.saturating_add(held)));
    }

    /// Of those who held it equally long, the last.
    fn longest(&self) -> Option<i32> {
        let longest = self.times.iter().max_by_key(|(_, held)| *held);
        longest.map(|(tid, _)| *tid)
    }
}

/// Flags of contention_begin (include/trace/events/lock.h).
mod flag {
    pub(super) const SPIN: i64 = 1;
    pub(super) const READ: i64 = 2;
    pub(super) const WRITE: i64 = 4;
    pub(super) const RT: i64 = 8;
    pub(super) const PERCPU: i64 = 16;
    pub(super) const MUTEX: i64 = 32;
}

fn kind(flags: i64) -> &'static str {
    let has = |flag: i64| flags & flag != 0;
    if has(flag::MUTEX) {
        "mutex"
    } else if has(flag::PERCPU) {
        "percpu_rwsem"
    } else if has(flag::RT) {
        "rtmutex"
    } else if has(flag::SPIN) && has(flag::READ | flag::WRITE) {
        "rwlock"
    } else if has(flag::SPIN) {
        "spin"
    } else if has(flag::READ | flag::WRITE) {
        "rwsem"
    } else {
        "semaphore"
    }
}

/// The flags of a text: `MUTEX|SPIN`.
fn flags_of(text: &str) -> i64 {
    let flags = text.split('|').map(|word| match word {
        "SPIN" => flag::SPIN,
        "READ" => flag::READ,
        "WRITE" => flag::WRITE,
        "RT" => flag::RT,
        "PERCPU" => flag::PERCPU,
        "MUTEX" => flag::MUTEX,
        _ => 0,
    });
    flags.fold(0, |all, flag| all | flag)
}

/// Process and address.
type Futex = (Option<i32>, i64);

/// End of the wait with this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct End {
    time: i64,
    number: u64,
    futex: Futex,
}

struct Waits {
    losses: u64,
    /// Processes by thread.
    threads: HashMap<i32, Option<i32>>,
    /// By thread, innermost last.
    kernel: HashMap<i32, Vec<Wait>>,
    /// Keys of `kernel` by lock.
    waiting: HashMap<i64, Vec<i32>>,
    futexes: HashMap<Futex, Vec<(u64, Wait)>>,
    /// Ends of waits for futexes.
    ends: BinaryHeap<Reverse<End>>,
    numbers: u64,
    names: Names,
    comm: Name,
}

/// Key of the idle tasks, which share a TID.
fn thread(tid: Option<i32>, cpu: Option<i32>) -> Option<i32> {
    match tid? {
        0 => cpu.map(|cpu| -1 - cpu),
        tid => Some(tid),
    }
}

impl Waits {
    fn emit(&self, wait: &Wait, duration: Option<i64>, error: Option<&str>, rows: &mut Rows) {
        rows.integer(TIME, Some(wait.time));
        rows.integer(DURATION, duration);
        rows.id(CPU, wait.cpu);
        rows.id(PID, wait.pid);
        rows.id(TID, Some(wait.tid));
        rows.text(COMM, self.names.text(wait.comm));
        let of_program = match wait.joined {
            Some(_) => "join",
            None => "futex",
        };
        rows.text(KIND, Some(wait.flags.map_or(of_program, kind)));
        let access = wait.flags.and_then(|flags| match flags {
            flags if flags & flag::READ != 0 => Some("read"),
            flags if flags & flag::WRITE != 0 => Some("write"),
            _ => None,
        });
        rows.text(ACCESS, access);
        rows.integer(ADDRESS, Some(wait.address));
        rows.id(OWNER_TID, wait.owner());
        rows.text(ERROR, error);
        rows.integer(KERNEL_STACK, wait.kernel_stack);
        rows.integer(USER_STACK, wait.user_stack);
        rows.end_row();
    }

    fn begin(&mut self, row: Row<'_>) {
        let (tid, cpu) = (row.id(0), row.id(1));
        let (Some(key), Some(address)) = (thread(tid, cpu), row.integer(2)) else {
            return;
        };
        let flags = row.integer(3).or_else(|| row.text(3).map(flags_of));
        let flags = flags.unwrap_or_default();
        let open = self.kernel.entry(key).or_default();
        if let Some(wait) = open.iter_mut().find(|wait| wait.address == address) {
            // Waiting for a mutex starts with spinning, then sleeps.
            wait.flags = Some(flags);
            return;
        }
        self.comm = self.names.of(row.text(5), self.comm);
        open.push(Wait {
            time: row.time,
            cpu,
            pid: row.id(4),
            tid: tid.unwrap_or_default(),
            comm: self.comm,
            flags: Some(flags),
            address,
            joined: None,
            holders: Holders::since(row.time),
            kernel_stack: row.integer(6),
            user_stack: row.integer(7),
            losses: self.losses,
            duration: None,
            ret: None,
        });
        self.waiting.entry(address).or_default().push(key);
    }

    fn end(&mut self, row: Row<'_>, rows: &mut Rows) {
        let key = thread(row.id(0), row.id(1));
        let (Some(key), Some(address)) = (key, row.integer(2)) else {
            return;
        };
        let Some(open) = self.kernel.get_mut(&key) else {
            return;
        };
        let Some(place) = open.iter().rposition(|wait| wait.address == address) else {
            return;
        };
        let wait = open.remove(place);
        if let Some(waiting) = self.waiting.get_mut(&address) {
            waiting.retain(|other| *other != key);
            if waiting.is_empty() {
                self.waiting.remove(&address);
            }
        }
        let duration = (wait.losses == self.losses).then_some(row.time - wait.time);
        let error = row.integer(3).and_then(errno::name);
        self.emit(&wait, duration, error, rows);
    }

    /// Handles a wake-up: a thread that sleeps on a kernel lock is woken by the one that releases it.
    fn woken(&mut self, row: Row<'_>) {
        let woken = row.id(0);
        let waits = woken.and_then(|tid| self.kernel.get(&tid));
        let sleeping = waits.and_then(|waits| waits.last());
        let Some(wait) =
            sleeping.filter(|wait| wait.flags.is_some_and(|flags| flags & flag::SPIN == 0))
        else {
            return;
        };
        // A thread that an interrupt interrupted has released nothing.
        let flags = row.integer(2).map(|bits| Flags {
            bits: bits as u8,
            preempt_count: 0,
        });
        let is_thread = flags.is_none_or(|flags| flags.context() == Context::Task);
        let waker = row.id(1).filter(|&tid| is_thread && tid != 0);
        let (Some(waker), address) = (waker.filter(|_| waker != woken), wait.address) else {
            return;
        };
        for key in self.waiting.get(&address).into_iter().flatten() {
            let waits = self.kernel.get_mut(key).into_iter().flatten();
            for wait in waits.filter(|wait| wait.address == address && wait.tid != waker) {
                wait.holders.release(waker, row.time);
            }
        }
    }

    fn futex(&mut self, row: Row<'_>) {
        let (Some(tid), Some(address)) = (row.id(0), row.integer(2)) else {
            return;
        };
        let (pid, ret) = (row.id(4), row.integer(9));
        const COMMAND: i64 = 127;
        let command = match row.text(10) {
            Some("futex_wait") => Command::Wait,
            Some("futex_wake") => Command::Wake,
            _ => Command::of(row.integer(3).unwrap_or(-1) & COMMAND),
        };
        match command {
            // The value had changed: there was nothing to wait for.
            Command::Wait if ret == Some(-11) => {}
            Command::Wait => {
                self.comm = self.names.of(row.text(5), self.comm);
                let duration = row.integer(8);
                let joined = self.joined((pid, tid), row.integer(11));
                let wait = Wait {
                    time: row.time,
                    cpu: row.id(1),
                    pid,
                    tid,
                    comm: self.comm,
                    flags: None,
                    address,
                    joined,
                    holders: Holders::since(row.time),
                    kernel_stack: row.integer(6),
                    user_stack: row.integer(7),
                    losses: 0,
                    duration,
                    ret,
                };
                self.numbers += 1;
                let end = duration.map_or(i64::MAX, |duration| row.time.saturating_add(duration));
                self.ends.push(Reverse(End {
                    time: end,
                    number: self.numbers,
                    futex: (pid, address),
                }));
                let waits = self.futexes.entry((pid, address)).or_default();
                waits.push((self.numbers, wait));
            }
            Command::Wake if ret.is_none_or(|woken| woken >= 0) => {
                let waits = self.futexes.get_mut(&(pid, address));
                for (_, wait) in waits.into_iter().flatten() {
                    if wait.tid != tid && wait.joined.is_none() {
                        wait.holders.release(tid, row.time);
                    }
                }
            }
            Command::Wake | Command::Other => {}
        }
    }

    /// The thread of the same process whose number a wait expects as the value: glibc has it there until the thread ends.
    fn joined(&self, (pid, tid): (Option<i32>, i32), value: Option<i64>) -> Option<i32> {
        // Locks have small values.
        const LEAST: i64 = 16;
        let other = i32::try_from(value? & 0xffff_ffff).ok()?;
        let process = *self.threads.get(&other)?;
        let is_one = i64::from(other) >= LEAST && other != tid && process == pid;
        is_one.then_some(other)
    }

    /// Emits the waits for futexes that have ended before `time`.
    fn pass(&mut self, time: i64, rows: &mut Rows) {
        while let Some(&Reverse(end)) = self.ends.peek() {
            if end.time >= time || rows.is_full() {
                return;
            }
            self.ends.pop();
            let Some(waits) = self.futexes.get_mut(&end.futex) else {
                continue;
            };
            let number = |(number, _): &(u64, Wait)| *number == end.number;
            let Some(place) = waits.iter().position(number) else {
                continue;
            };
            let (_, wait) = waits.swap_remove(place);
            if waits.is_empty() {
                self.futexes.remove(&end.futex);
            }
            let error = wait.ret.and_then(errno::name);
            self.emit(&wait, wait.duration, error, rows);
        }
    }
}

/// Operations of futex(2).
enum Command {
    Wait,
    Wake,
    Other,
}

impl Command {
    /// FUTEX_* of include/uapi/linux/futex.h.
    fn of(number: i64) -> Command {
        match number {
            0 | 6 | 9 | 11 | 13 => Command::Wait,
            1 | 3 | 4 | 5 | 7 | 10 | 12 => Command::Wake,
            _ => Command::Other,
        }
    }
}

impl Machine for Waits {
    fn row(&mut self, source: usize, row: Row<'_>, rows: &mut Rows) -> Result<()> {
        self.pass(row.time, rows);
        match source {
            feed::LOSSES => self.losses += 1,
            feed::THREADS => {
                if let Some(tid) = row.id(0) {
                    self.threads.insert(tid, row.id(1));
                }
            }
            feed::BEGIN => self.begin(row),
            feed::WAKING | feed::WAKEUP => self.woken(row),
            feed::END => self.end(row, rows),
            feed::FUTEX => self.futex(row),
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, rows: &mut Rows) -> Result<bool> {
        self.pass(i64::MAX, rows);
        if rows.is_full() {
            return Ok(true);
        }
        let open: Vec<Wait> = self.kernel.drain().flat_map(|(_, waits)| waits).collect();
        let futexes = self.futexes.drain().flat_map(|(_, waits)| waits);
        let futexes: Vec<Wait> = futexes.map(|(_, wait)| wait).collect();
        for wait in open.iter().chain(&futexes) {
            self.emit(wait, None, None, rows);
        }
        Ok(false)
    }

    fn bytes(&self) -> usize {
        (self.kernel.len() + self.ends.len()) * 2 * (size_of::<Wait>() + size_of::<(i32, i64)>())
            + self.threads.capacity() * 2 * size_of::<(i32, Option<i32>)>()
            + self.names.bytes()
    }
}
