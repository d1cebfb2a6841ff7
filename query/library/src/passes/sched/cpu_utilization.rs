//! `pass_cpu_utilization(step)`: how each CPU spent its time, step by step.
//!
//! ```text
//! idle ── thread ───────── irq ── thread ── system call ──── idle
//! ```
//! Shares are those of the time that is covered: what ran before the first switch on a CPU, or across a loss, is not known. Nor is what a
//! CPU did since the last switch to a thread whose next system call is on another one.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::logical_expr::lit;
use hashbrown::{HashMap, HashSet};

use super::super::Function;
use super::super::names::Names;
use super::super::pass::{Pass, PassPlan, Tables};
use super::super::rows::{Rows, emitted};
use super::super::selection::Selection;
use super::super::source::{Input, Row, Source, column};
use super::coverage::Coverage;
use super::ending::Ending;
use super::input::{Needs, OTHERS, SchedulerMachine, has_waking, sources};
use super::steps::Steps;
use super::thread::{Observer, Thread};
use crate::linux::task_state::State;

pub(in super::super) const FUNCTION: Function = Function {
    name: "pass_cpu_utilization",
    create: |arguments| {
        let steps = Steps::of_arguments(arguments)?;
        Some(Arc::new(CpuUtilization { steps }))
    },
};

#[derive(Debug)]
struct CpuUtilization {
    steps: Steps,
}

emitted! {
    TIME "time" Int64,
    DURATION "duration" Int64,
    CPU "cpu" Int32,
    BUSY "busy" Float,
    USER "user" Float,
    KERNEL "kernel" Float,
    IRQ "irq" Float,
    SOFTIRQ "softirq" Float,
    IDLE "idle" Float,
    COVERED "covered" Float,
}

/// Sources besides those of the scheduler.
const CALLS: usize = OTHERS;
const KERNEL_THREADS: usize = OTHERS + 1;

/// The process that creates the kernel's threads.
const KTHREADD: i32 = 2;

impl Pass for CpuUtilization {
    fn name(&self) -> &'static str {
        FUNCTION.name
    }

    fn columns(&self, id: &DataType) -> Vec<Field> {
        fields(id)
    }

    fn plan(&self, _: &Selection, tables: &Tables<'_>) -> PassPlan {
        let has_waking = has_waking(tables);
        let mut sources = sources(&Needs::default());
        let is_call = column("function").like(lit("sys\\_%"));
        let is_call = is_call.or(column("function").like(lit("syscall:%")));
        let calls = Source::fixed(
            "calls",
            "time",
            vec![
                Input::integer(&["duration"]),
                Input::integer(&["self_time"]),
                Input::integer(&["cpu"]),
                Input::integer(&["tid"]),
                Input::text(&["context"]),
            ],
        );
        let interrupts = column("context").not_eq(lit("task"));
        sources.push(calls.with_condition(interrupts.or(is_call)));
        sources.push(
            Source::fixed(
                "threads",
                "start_time",
                vec![Input::integer(&["tid"]), Input::integer(&["parent"])],
            )
            .with_unknown_times(),
        );
        let has = |event: &str| tables.has(event);
        let recorded = Recorded {
            interrupts: has("irq:irq_handler_entry") || has("irq_vectors:local_timer_entry"),
            softirqs: has("irq:softirq_entry"),
            calls: has("raw_syscalls:sys_exit") || tables.has_system("syscalls"),
            some_threads: false,
        };
        let steps = self.steps;
        PassPlan::new(sources, move || {
            SchedulerMachine::new(
                has_waking,
                Cpus {
                    steps,
                    recorded,
                    cpus: HashMap::new(),
                    calls: HashMap::new(),
                    kernel_threads: HashSet::new(),
                    ending: Ending::default(),
                    failure: None,
                },
            )
        })
    }
}

/// What was recorded besides switches.
#[derive(Debug, Clone, Copy)]
struct Recorded {
    interrupts: bool,
    softirqs: bool,
    calls: bool,
    /// Whether some threads only were: when the CPU is idle or runs others is unknown.
    some_threads: bool,
}

/// What time is spent for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    User,
    Kernel,
    Idle,
    Irq,
    Softirq,
}

/// What a CPU does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Occupant {
    Idle,
    Thread(i32),
}

/// Times within one step by [`Use`], in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    step: i64,
    times: [i64; 5],
}

#[derive(Debug, Default)]
struct Cpu {
    spent: Option<Spent>,
    /// What it does, and from when on that is not accounted yet.
    now: Option<(Occupant, i64)>,
}

struct Cpus {
    steps: Steps,
    recorded: Recorded,
    cpus: HashMap<i32, Cpu>,
    /// By thread, its last system call: begin and end.
    calls: HashMap<i32, (i64, i64)>,
    kernel_threads: HashSet<i32>,
    ending: Ending,
    failure: Option<String>,
}

impl Cpus {
    /// Adds `amount` of an interval to the steps of a CPU.
    fn add(
        &mut self,
        cpu: i32,
        (from, to): (i64, i64),
        amount: i64,
        to_what: Use,
        rows: &mut Rows,
    ) {
        if to <= from || self.failure.is_some() {
            return;
        }
        self.failure = self.steps.why_not(to - from);
        if self.failure.is_some() {
            return;
        }
        let (steps, recorded) = (self.steps, self.recorded);
        let state = self.cpus.entry(cpu).or_default();
        for (step, length) in steps.parts(from, to).filter(|(_, length)| *length > 0) {
            if let Some(done) = state.spent.take_if(|spent| spent.step < step) {
                emit(cpu, &done, steps, recorded, rows);
            }
            let spent = state.spent.get_or_insert(Spent {
                step,
                ..Spent::default()
            });
            let share = i128::from(amount) * i128::from(length) / i128::from(to - from);
            spent.times[to_what as usize] += i64::try_from(share).unwrap_or_default();
        }
    }

    /// What a thread's time is, at that time.
    fn use_of(&self, tid: i32, time: i64) -> Use {
        let call = self.calls.get(&tid);
        let is_in_call = call.is_some_and(|(begin, end)| (*begin..*end).contains(&time));
        match is_in_call || self.kernel_threads.contains(&tid) {
            true => Use::Kernel,
            false => Use::User,
        }
    }

    /// Accounts what the CPU does until `time`.
    fn account(&mut self, cpu: i32, time: i64, rows: &mut Rows) {
        let now = self.cpus.get_mut(&cpu).and_then(|cpu| cpu.now.as_mut());
        let Some((occupant, since)) = now else {
            return;
        };
        let (occupant, from) = (*occupant, *since);
        let time = time.max(from);
        *since = time;
        let mut add = |from: i64, to: i64, what| self.add(cpu, (from, to), to - from, what, rows);
        match occupant {
            Occupant::Idle => add(from, time, Use::Idle),
            Occupant::Thread(tid) => {
                // Up to the end of its last call, and from there on.
                let call = self.calls.get(&tid).map_or(from, |(_, end)| *end);
                let middle = call.clamp(from, time);
                let first = self.use_of(tid, from);
                self.add(cpu, (from, middle), middle - from, first, rows);
                let then = self.use_of(tid, middle);
                self.add(cpu, (middle, time), time - middle, then, rows);
            }
        }
    }

    fn call(&mut self, row: Row<'_>, rows: &mut Rows) {
        let Some(cpu) = row.id(2) else {
            return;
        };
        let duration = row.integer(0);
        let end = duration.map_or(i64::MAX, |lasts| row.time.saturating_add(lasts));
        match row.text(4) {
            Some("irq") => self.interrupt(cpu, (row.time, end), row.integer(1), Use::Irq, rows),
            Some("softirq") => {
                self.interrupt(cpu, (row.time, end), row.integer(1), Use::Softirq, rows);
            }
            Some("task") => {
                self.account(cpu, row.time, rows);
                if let Some(tid) = row.id(3) {
                    self.is_seen(tid, cpu);
                    self.calls.insert(tid, (row.time, end));
                }
            }
            _ => {}
        }
    }

    /// A thread is on that CPU. It has left any other one unseen.
    fn is_seen(&mut self, tid: i32, cpu: i32) {
        let runs =
            |cpu: &Cpu| matches!(cpu.now, Some((Occupant::Thread(other), _)) if other == tid);
        if self.cpus.get(&cpu).is_some_and(runs) {
            return;
        }
        let elsewhere = self.cpus.values_mut().find(|cpu| runs(cpu));
        if let Some(elsewhere) = elsewhere {
            elsewhere.now = None;
        }
    }

    /// An interrupt takes its time from whatever runs on the CPU, which goes on afterwards.
    fn interrupt(
        &mut self,
        cpu: i32,
        (begin, end): (i64, i64),
        own: Option<i64>,
        what: Use,
        rows: &mut Rows,
    ) {
        let (Some(own), true) = (own, end < i64::MAX) else {
            return;
        };
        let now = self.cpus.get(&cpu).and_then(|cpu| cpu.now);
        let Some((occupant, _)) = now else {
            return;
        };
        let from = match occupant {
            Occupant::Idle => Use::Idle,
            Occupant::Thread(tid) => self.use_of(tid, begin),
        };
        self.account(cpu, end, rows);
        self.add(cpu, (begin, end), own, what, rows);
        self.add(cpu, (begin, end), -own, from, rows);
    }
}

fn emit(cpu: i32, spent: &Spent, steps: Steps, recorded: Recorded, rows: &mut Rows) {
    let of = |what: Use| spent.times[what as usize].max(0);
    let covered: i64 = spent.times.iter().sum();
    if covered <= 0 {
        return;
    }
    let share = |time: i64| time as f64 / covered as f64;
    let if_all = |share: f64| Some(share).filter(|_| !recorded.some_threads);
    let if_recorded = |is_recorded: bool, what| is_recorded.then(|| share(of(what)));
    rows.integer(TIME, Some(steps.begin(spent.step)));
    rows.integer(DURATION, Some(steps.length()));
    rows.id(CPU, Some(cpu));
    rows.float(BUSY, if_all(1.0 - share(of(Use::Idle))));
    rows.float(USER, if_recorded(recorded.calls, Use::User));
    rows.float(KERNEL, if_recorded(recorded.calls, Use::Kernel));
    rows.float(IRQ, if_recorded(recorded.interrupts, Use::Irq));
    rows.float(SOFTIRQ, if_recorded(recorded.softirqs, Use::Softirq));
    rows.float(IDLE, if_all(share(of(Use::Idle))));
    rows.float(COVERED, Some(covered as f64 / steps.length() as f64));
    rows.end_row();
}

impl Observer for Cpus {
    fn begin(&mut self, thread: &Thread, _: &Names) {
        if let Some(cpu) = thread.cpu.filter(|_| thread.state == State::Running) {
            let occupant = Occupant::Thread(thread.tid);
            self.cpus.entry(cpu).or_default().now = Some((occupant, thread.since));
        }
    }

    fn end(&mut self, thread: &Thread, end: Option<i64>, _: &Names, rows: &mut Rows) {
        if let Some(cpu) = thread.cpu.filter(|_| thread.state == State::Running) {
            self.leaves(cpu, end, rows);
        }
    }

    fn covers(&mut self, coverage: &Coverage) {
        self.recorded.some_threads = coverage.is_of_threads;
    }

    fn idle_begins(&mut self, cpu: i32, time: i64) {
        self.cpus.entry(cpu).or_default().now = Some((Occupant::Idle, time));
    }

    fn idle_ends(&mut self, cpu: i32, end: Option<i64>, rows: &mut Rows) {
        self.leaves(cpu, end, rows);
    }

    fn lost(&mut self, cpu: Option<i32>) {
        let is_lost = |other: i32| cpu.is_none_or(|cpu| cpu == other);
        let lost = self.cpus.iter_mut().filter(|(cpu, _)| is_lost(**cpu));
        lost.for_each(|(_, cpu)| cpu.now = None);
    }

    fn other(&mut self, source: usize, row: Row<'_>, rows: &mut Rows) {
        match source {
            CALLS => self.call(row, rows),
            KERNEL_THREADS => {
                let is_of_kernel = row.id(1) == Some(KTHREADD) || row.id(0) == Some(KTHREADD);
                if let Some(tid) = row.id(0) {
                    match is_of_kernel {
                        true => self.kernel_threads.insert(tid),
                        false => self.kernel_threads.remove(&tid),
                    };
                }
            }
            _ => {}
        }
    }

    fn ending(&mut self) -> Option<&mut Ending> {
        Some(&mut self.ending)
    }

    fn finish(&mut self, _: &Names, rows: &mut Rows) -> bool {
        let mut cpus: Vec<(i32, Cpu)> = self.cpus.drain().collect();
        cpus.sort_unstable_by_key(|(cpu, _)| *cpu);
        for (number, cpu) in cpus {
            if let Some(spent) = cpu.spent {
                emit(number, &spent, self.steps, self.recorded, rows);
            }
        }
        false
    }

    fn failure(&self) -> Option<String> {
        self.failure.clone()
    }

    fn bytes(&self) -> usize {
        self.calls.capacity() * 2 * size_of::<(i32, (i64, i64))>()
    }
}

impl Cpus {
    /// The CPU does something else from `end` on; if that is not known, what it did until now is not, either.
    fn leaves(&mut self, cpu: i32, end: Option<i64>, rows: &mut Rows) {
        // What it does at the end of the recording, it did until the last event.
        let end = self.ending.of(State::Running, end);
        if let Some(end) = end {
            self.account(cpu, end, rows);
        }
        if let Some(cpu) = self.cpus.get_mut(&cpu) {
            cpu.now = None;
        }
    }
}
