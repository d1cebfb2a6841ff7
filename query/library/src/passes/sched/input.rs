//! The events of the scheduler, and a machine that follows them.

use std::collections::BTreeSet;

use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, lit};
use hashbrown::HashMap;
use perfquet_events::event::Flags;

use super::super::names::Name;
use super::super::pass::{Machine, Tables};
use super::super::rows::Rows;
use super::super::source::{Input, Row, Source, Times, column};
use super::coverage::Coverage;
use super::thread::{Context, Observer, Scheduler, SwitchOut, WakeKind, Waker, Woken};
use crate::linux::task_state::{State, switched_out, switched_out_text};

/// What a pass needs besides the states themselves.
#[derive(Debug, Clone, Default)]
pub(super) struct Needs {
    /// Stacks of threads that leave their CPU.
    pub(super) stacks: bool,
    pub(super) waker_stacks: bool,
    /// CPUs on which threads wait.
    pub(super) queues: bool,
    /// Who wakes threads: a thread, or the interrupt in which the wake-up happened.
    pub(super) wakers: bool,
    pub(super) names: ThreadNames,
    /// Threads to follow; all if `None`.
    pub(super) threads: Option<BTreeSet<i64>>,
}

/// Which names of threads are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ThreadNames {
    #[default]
    None,
    /// Those of threads that begin to run, in switches.
    OfSwitches,
    /// Those of threads that leave their CPU or are woken, too.
    All,
}

impl ThreadNames {
    /// All names if a column of them is requested.
    pub(super) fn if_wanted(is_wanted: bool) -> ThreadNames {
        match is_wanted {
            true => ThreadNames::All,
            false => ThreadNames::None,
        }
    }
}

/// The sources of a scheduler machine, by their numbers.
mod feed {
    pub(super) const FACTS: usize = 0;
    pub(super) const THREADS: usize = 1;
    pub(super) const LOSSES: usize = 2;
    pub(super) const INTERRUPTS: usize = 3;
    pub(super) const WAKING: usize = 4;
    pub(super) const WAKEUP: usize = 5;
    pub(super) const WAKEUP_NEW: usize = 6;
    pub(super) const MIGRATE: usize = 7;
    pub(super) const SWITCH: usize = 8;
    pub(super) const CONTEXT_SWITCH: usize = 9;
    pub(super) const EXITS: usize = 10;
    pub(super) const PROCESS_EXITS: usize = 11;
}

/// Number of the first source that is not the scheduler's.
pub(super) const OTHERS: usize = 12;

/// Number of the first sources that name the threads; the others are events.
pub(super) const OF_THREADS: usize = 2;

/// Returns the sources, in the order of [`feed`]; the caller may add others, whose rows go to [`Observer::other`]. Switches are read
/// even of threads that are not followed: they show that a followed one does not run there any more.
pub(super) fn sources(needs: &Needs) -> Vec<Source> {
    let has_names = needs.names != ThreadNames::None;
    let of_threads = |source: Source, tid: &str| match &needs.threads {
        Some(threads) => source.with_values(Input::integer(&[tid]), threads.clone()),
        None => source,
    };
    let wake = |name: &str| {
        let wakeups = Source::event(
            name,
            vec![
                Input::integer(&["arg_pid"]),
                Input::text(&["arg_comm"]).if_wanted(needs.names == ThreadNames::All),
                Input::integer(&["target_cpu"]),
                Input::integer(&["success"]),
                Input::integer(&["cpu"]).if_wanted(needs.wakers),
                Input::integer(&["tid"]).if_wanted(needs.wakers),
                Input::text(&["comm"]).if_wanted(needs.wakers),
                Input::integer(&["kernel_stack"]).if_wanted(needs.waker_stacks),
                Input::integer(&["user_stack"]).if_wanted(needs.waker_stacks),
                Input::integer(&[Flags::BITS]).if_wanted(needs.wakers),
            ],
        );
        of_threads(wakeups, "arg_pid")
    };
    let interrupts = Source::fixed(
        "calls",
        "time",
        vec![
            Input::integer(&["duration"]),
            Input::integer(&["cpu"]),
            Input::text(&["context"]),
            Input::text(&["function"]),
        ],
    );
    let is_wanted = match needs.wakers {
        true => column("context").not_eq(lit("task")),
        false => lit(false),
    };
    let threads = Source::fixed(
        "threads",
        "start_time",
        vec![Input::integer(&["tid"]), Input::integer(&["pid"])],
    );
    let migrations = Source::event(
        "sched:sched_migrate_task",
        vec![Input::integer(&["arg_pid"]), Input::integer(&["dest_cpu"])],
    );
    let exits = Source::fixed("threads", "end_time", vec![Input::integer(&["tid"])]);
    // Texts have no other records of exits.
    let exit_events = Source::event(
        "sched:sched_process_exit",
        vec![Input::integer(&["arg_pid"])],
    );
    vec![
        Source::facts(),
        of_threads(threads.with_unknown_times(), "tid"),
        losses(),
        interrupts.with_condition(is_wanted),
        wake("sched:sched_waking"),
        wake("sched:sched_wakeup"),
        wake("sched:sched_wakeup_new"),
        of_threads(migrations, "arg_pid").with_condition(lit(needs.queues)),
        Source::event(
            "sched:sched_switch",
            vec![
                Input::integer(&["prev_pid"]),
                Input::text(&["prev_comm"]).if_wanted(needs.names == ThreadNames::All),
                Input::code(&["prev_state"]),
                Input::integer(&["next_pid"]),
                Input::text(&["next_comm"]).if_wanted(has_names),
                Input::integer(&["cpu"]),
                Input::integer(&["tid"]),
                Input::integer(&["pid"]),
                Input::integer(&["kernel_stack"]).if_wanted(needs.stacks),
                Input::integer(&["user_stack"]).if_wanted(needs.stacks),
            ],
        ),
        Source::event(
            "perf:context_switch",
            vec![
                Input::flag(&["out"]),
                Input::flag(&["preempted"]),
                Input::integer(&["cpu"]),
                Input::integer(&["tid"]),
                Input::integer(&["pid"]),
                Input::text(&["comm"]).if_wanted(has_names),
            ],
        ),
        of_threads(exits, "tid"),
        of_threads(exit_events, "arg_pid"),
    ]
}

/// Whether `sched_waking` was recorded: then a `sched_wakeup` alone is the end of a wake-up in another context.
pub(super) fn has_waking(tables: &Tables<'_>) -> bool {
    tables.has("sched:sched_waking")
}

/// Restricts the events to some times, but not what is known of threads, losses and the recording.
pub(super) fn events_within(sources: Vec<Source>, times: Times) -> Vec<Source> {
    let within = |source: Source| match source.schema {
        Some(_) => source.within(times),
        None => source,
    };
    sources.into_iter().map(within).collect()
}

/// Losses after which the states of threads are unknown.
fn losses() -> Source {
    let event = || column("event");
    let is_of = |system: &str| event().like(lit(format!("{system}:%")));
    let concerns: Expr = event().is_null().or(is_of("sched")).or(is_of("perf"));
    // Throttling and filters concern samples and calls.
    let other = column("reason").in_list(vec![lit("throttled"), lit("filtered")], false);
    Source::fixed("losses", "time", vec![Input::integer(&["cpu"])])
        .with_condition(concerns.and(other.is_not_true()))
}

/// Follows the scheduler for an observer.
pub(super) struct SchedulerMachine<O> {
    scheduler: Scheduler,
    observer: O,
    /// Threads to follow; all if `None`.
    followed: Option<BTreeSet<i64>>,
    coverage: Coverage,
    /// Time after which threads need not be followed into new states.
    last: Option<i64>,
    /// Number of rows after that time.
    rows_after: u64,
    /// By CPU, the interrupts that have not ended, innermost last.
    interrupts: HashMap<i32, Vec<Interrupt>>,
    waker_comm: Name,
    interrupt_name: Name,
}

/// An interrupt or softirq.
#[derive(Debug, Clone, Copy)]
struct Interrupt {
    end: i64,
    context: Context,
    name: Name,
}

impl<O: Observer> SchedulerMachine<O> {
    pub(super) fn new(has_waking: bool, observer: O) -> SchedulerMachine<O> {
        SchedulerMachine {
            scheduler: Scheduler::new(has_waking),
            observer,
            followed: None,
            coverage: Coverage::default(),
            last: None,
            rows_after: 0,
            interrupts: HashMap::new(),
            waker_comm: Name::default(),
            interrupt_name: Name::default(),
        }
    }

    /// Follows only these threads, all if `None`, and only into states that begin until `last`.
    pub(super) fn following(
        self,
        threads: Option<BTreeSet<i64>>,
        last: Option<i64>,
    ) -> SchedulerMachine<O> {
        SchedulerMachine {
            followed: threads,
            last,
            ..self
        }
    }

    /// Whether states of a thread are followed: it is selected, and its own events are recorded.
    fn follows(&self, tid: i32) -> bool {
        let followed = self.followed.as_ref();
        followed.is_none_or(|followed| followed.contains(&i64::from(tid)))
            && (!self.coverage.is_of_threads || self.scheduler.is_recorded(tid))
    }

    /// An event of the thread itself was recorded, so it is within the recording's scope.
    fn sees(&mut self, tid: i32) {
        if self.coverage.is_of_threads && tid != 0 && !self.scheduler.is_recorded(tid) {
            self.scheduler.record(tid);
            self.observer.recorded(tid);
        }
    }

    /// A thread has exited. Where only some threads are recorded, the kernel removes their events at this moment, before
    /// they leave their CPU for the last time.
    fn exit(&mut self, tid: i32, time: i64, rows: &mut Rows) {
        if !self.follows(tid) {
            return;
        }
        let (scheduler, observer) = (&mut self.scheduler, &mut self.observer);
        match self.coverage.is_of_threads {
            true => scheduler.exit(tid, time, observer, rows),
            false => scheduler.exits_unseen(tid, observer, rows),
        }
    }

    /// Drops the threads whose states have all begun after the last time of interest.
    fn narrow(&mut self, time: i64) {
        const INTERVAL: u64 = 4096;
        let Some(last) = self.last.filter(|&last| time > last) else {
            return;
        };
        if self.rows_after.is_multiple_of(INTERVAL) {
            let mut open: BTreeSet<i64> = self.scheduler.open_at(last).map(i64::from).collect();
            if let Some(followed) = &self.followed {
                open.retain(|tid| followed.contains(tid));
            }
            self.followed = Some(open);
        }
        self.rows_after += 1;
    }

    fn check(&self) -> Result<()> {
        match self.observer.failure() {
            Some(failure) => Err(DataFusionError::Plan(failure)),
            None => Ok(()),
        }
    }

    fn interrupt(&mut self, row: Row<'_>) {
        let context = match row.text(2) {
            Some("irq") => Context::Irq,
            Some("softirq") => Context::Softirq,
            Some("nmi") => Context::Nmi,
            _ => return,
        };
        if let (Some(duration), Some(cpu)) = (row.integer(0), row.id(1)) {
            self.interrupt_name = self.scheduler.names.of(row.text(3), self.interrupt_name);
            let open = self.interrupts.entry(cpu).or_default();
            open.retain(|interrupt| interrupt.end >= row.time);
            open.push(Interrupt {
                end: row.time.saturating_add(duration),
                context,
                name: self.interrupt_name,
            });
        }
    }

    /// The innermost interrupt during a wake-up, of this context if it is known.
    fn around(&self, time: i64, cpu: Option<i32>, context: Option<Context>) -> Option<Interrupt> {
        let open = self.interrupts.get(&cpu?)?;
        let is_it = |interrupt: &&Interrupt| {
            interrupt.end >= time && context.is_none_or(|context| context == interrupt.context)
        };
        open.iter().rev().find(is_it).copied()
    }

    /// Who woke a thread: from the flags of the event; without them, from the interrupt around it. Whoever an interrupt
    /// interrupted is no waker.
    fn waker(&mut self, row: Row<'_>) -> Waker {
        let (cpu, tid) = (row.id(4), row.id(5));
        let recorded = row.integer(9).map(|bits| Context::of(bits as u8));
        let around = self.around(row.time, cpu, recorded);
        // The idle task wakes nobody.
        let idle = (tid == Some(0)).then_some(Context::Idle);
        let context = match recorded {
            Some(Context::Task) => idle.or(recorded),
            Some(_) => recorded,
            None => around.map(|interrupt| interrupt.context).or(idle),
        };
        self.waker_comm = self.scheduler.names.of(row.text(6), self.waker_comm);
        let unnamed = context.and_then(Context::unnamed);
        let interrupt = match around {
            Some(interrupt) => interrupt.name,
            None => self.scheduler.names.of(unnamed, Name::default()),
        };
        let thread = (tid, self.waker_comm);
        let nobody = (None, Name::default());
        let is_interrupt = context.is_some_and(|context| context != Context::Task);
        let (waker, interrupted) = match is_interrupt {
            true => (nobody, thread),
            false => (thread, nobody),
        };
        Waker {
            tid: waker.0,
            comm: waker.1,
            cpu,
            context,
            interrupt,
            interrupted_tid: interrupted.0,
            interrupted_comm: interrupted.1,
            kernel_stack: row.integer(7),
            user_stack: row.integer(8),
        }
    }

    fn wake(&mut self, kind: WakeKind, row: Row<'_>, rows: &mut Rows) {
        // Linux before 3.17 reports attempts, too.
        let Some(tid) = row.id(0).filter(|_| row.integer(3) != Some(0)) else {
            return;
        };
        if !self.follows(tid) {
            return;
        }
        if !self.coverage.has_cpu(row.id(2)) {
            // It runs where nothing is recorded.
            self.scheduler.lose_sight(tid, &mut self.observer, rows);
            return;
        }
        let waker = self.waker(row);
        let woken = Woken {
            time: row.time,
            kind,
            tid,
            comm: row.text(1),
            target_cpu: row.id(2),
            waker,
        };
        self.scheduler.wake(&woken, &mut self.observer, rows);
    }

    fn switch(&mut self, row: Row<'_>, rows: &mut Rows) {
        let cpu = row.id(5);
        let (prev, next) = (row.id(0), row.id(3));
        if let Some(tid) = prev.filter(|_| row.id(6) == prev) {
            self.sees(tid);
        }
        if let Some(tid) = prev.filter(|&tid| self.follows(tid)) {
            let state = match (row.integer(2), row.text(2)) {
                (Some(number), _) => switched_out(number),
                (None, Some(text)) => switched_out_text(text),
                (None, None) => State::Blocked,
            };
            let out = SwitchOut {
                time: row.time,
                tid,
                // The event's own thread is the one that leaves.
                pid: row.id(7).filter(|_| row.id(6) == Some(tid)),
                comm: row.text(1),
                cpu,
                state,
                kernel_stack: row.integer(8),
                user_stack: row.integer(9),
            };
            self.scheduler.switch_out(&out, &mut self.observer, rows);
        } else if prev.is_some() {
            self.scheduler.taken(cpu, &mut self.observer, rows);
        }
        if let Some(tid) = next.filter(|&tid| self.follows(tid)) {
            let next = (row.time, tid, cpu);
            self.scheduler
                .switch_in(next, row.text(4), &mut self.observer, rows);
        } else if next.is_some() {
            self.scheduler.taken(cpu, &mut self.observer, rows);
        }
    }

    /// perf's own record, of threads in the recording's scope.
    fn context_switch(&mut self, row: Row<'_>, rows: &mut Rows) {
        let (Some(tid), Some(is_out)) = (row.id(3), row.flag(0)) else {
            return;
        };
        let cpu = row.id(2);
        self.sees(tid);
        if !self.follows(tid) {
            // One that leaves did not keep a followed thread from running there.
            if !is_out {
                self.scheduler.taken(cpu, &mut self.observer, rows);
            }
        } else if !is_out {
            let next = (row.time, tid, cpu);
            self.scheduler
                .switch_in(next, row.text(5), &mut self.observer, rows);
            if tid != 0 {
                self.scheduler.belongs(tid, row.id(4), false);
            }
        } else if self.scheduler.runs(tid, cpu) {
            // sched_switch, which comes first, was not recorded.
            let out = SwitchOut {
                time: row.time,
                tid,
                pid: row.id(4),
                comm: row.text(5),
                cpu,
                state: match row.flag(1) {
                    Some(true) => State::Preempted,
                    _ => State::Blocked,
                },
                kernel_stack: None,
                user_stack: None,
            };
            self.scheduler.switch_out(&out, &mut self.observer, rows);
        }
    }
}

impl<O: Observer> Machine for SchedulerMachine<O> {
    fn row(&mut self, source: usize, row: Row<'_>, rows: &mut Rows) -> Result<()> {
        match source {
            feed::FACTS => {
                if let (Some(name), Some(value)) = (row.text(0), row.text(1)) {
                    self.coverage.learn(name, value);
                    self.scheduler.is_of_some_cpus = self.coverage.is_of_some_cpus();
                    self.scheduler.is_of_threads = self.coverage.is_of_threads;
                    self.scheduler.is_of_system = self.coverage.is_of_system();
                    self.observer.covers(&self.coverage);
                    if let Some(ending) = self.observer.ending() {
                        ending.covers(&self.coverage);
                    }
                }
                return Ok(());
            }
            feed::THREADS => {
                if let Some(tid) = row.id(0) {
                    let is_new = row.time > super::super::source::BEFORE;
                    if is_new {
                        // What is open is of another thread, which had the ID before.
                        self.scheduler.lose_sight(tid, &mut self.observer, rows);
                    }
                    self.scheduler.belongs(tid, row.id(1), is_new);
                    if is_new {
                        self.observer.started(tid, row.time);
                    }
                    if is_new || self.coverage.may_have_thread(tid, row.id(1)) {
                        self.sees(tid);
                    }
                }
                return Ok(());
            }
            feed::LOSSES => {
                self.scheduler.lost(row.id(0));
                self.observer.lost(row.id(0));
                return Ok(());
            }
            feed::INTERRUPTS => {
                self.interrupt(row);
                return Ok(());
            }
            _ => {
                self.observer.passed(row.time, rows);
                if let Some(ending) = self.observer.ending() {
                    ending.passed(row.time);
                }
            }
        }
        self.narrow(row.time);
        match source {
            feed::WAKING => self.wake(WakeKind::Waking, row, rows),
            feed::WAKEUP => self.wake(WakeKind::Wakeup, row, rows),
            feed::WAKEUP_NEW => self.wake(WakeKind::New, row, rows),
            feed::MIGRATE => {
                if let Some(tid) = row.id(0) {
                    let to = &mut self.observer;
                    self.scheduler.migrate(tid, row.id(1), row.time, to);
                }
            }
            feed::SWITCH => self.switch(row, rows),
            feed::CONTEXT_SWITCH => self.context_switch(row, rows),
            feed::EXITS => {
                if let Some(tid) = row.id(0) {
                    self.observer.exited(tid, row.time);
                    if let Some(ending) = self.observer.ending() {
                        ending.exited(row.time);
                    }
                    self.exit(tid, row.time, rows);
                }
            }
            feed::PROCESS_EXITS => {
                if let Some(tid) = row.id(0).filter(|&tid| self.follows(tid)) {
                    let (scheduler, observer) = (&mut self.scheduler, &mut self.observer);
                    scheduler.exits_unseen(tid, observer, rows);
                }
            }
            other => self.observer.other(other, row, rows),
        }
        self.check()
    }

    fn is_done(&self) -> bool {
        self.followed.as_ref().is_some_and(BTreeSet::is_empty)
    }

    fn end(&mut self, rows: &mut Rows) -> Result<bool> {
        let has_more = self.scheduler.finish(&mut self.observer, rows);
        self.check()?;
        has_more
    }

    fn bytes(&self) -> usize {
        self.scheduler.bytes() + self.observer.bytes()
    }
}
