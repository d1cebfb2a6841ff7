//! Follows threads and CPUs from event to event.

use datafusion::error::Result;
use hashbrown::{HashMap, HashSet};
use perfquet_events::event::Context as Recorded;
use perfquet_events::event::Flags;

use super::super::names::{Name, Names};
use super::super::rows::Rows;
use super::super::source::Row;
use super::coverage::Coverage;
use super::ending::Ending;
use super::id_map::IdMap;
use crate::linux::task_state::State;

/// A thread, its current state and how it came to it.
#[derive(Debug, Clone)]
pub(super) struct Thread {
    pub(super) tid: i32,
    pub(super) pid: Option<i32>,
    /// Latest name.
    comm: Name,
    pub(super) state: State,
    /// Begin of the state.
    pub(super) since: i64,
    /// Name at `since`.
    comm_since: Name,
    /// Number of losses, which concern the state, before `since`.
    losses: u32,
    /// CPU on which it runs or ran last.
    pub(super) cpu: Option<i32>,
    /// CPU on which it waits.
    pub(super) queue: Option<i32>,
    /// How it left the CPU; `None` if that was not seen.
    pub(super) left: Option<Left>,
    /// What made it runnable; of the current or the last wait for a CPU.
    pub(super) wake: Option<Wake>,
    /// The last sched_waking, whether it changed anything or not.
    waking: Option<Wake>,
    scope: Scope,
    /// It was woken when nothing was known of it: it waits, or runs and did not sleep.
    is_doubtful: bool,
    /// It was, and left a CPU without having been seen on one: that it waited is not known.
    pub(super) is_denied: bool,
}

/// What is known of a thread and the scope of the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    Unknown,
    /// The table of threads has it.
    Listed,
    /// A scheduler event of the thread itself was recorded.
    Recorded,
}

impl Thread {
    /// The name of the thread when its state began. A thread may rename itself while it runs.
    pub(super) fn comm(&self) -> Name {
        self.comm_since.or(self.comm)
    }
}

/// How a thread left the CPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left {
    pub(super) time: i64,
    /// Name of the thread at that time.
    pub(super) comm: Name,
    pub(super) state: State,
    pub(super) kernel_stack: Option<i64>,
    pub(super) user_stack: Option<i64>,
    losses: u32,
}

/// A wake-up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wake {
    pub(super) time: i64,
    /// Name of the thread at that time.
    pub(super) comm: Name,
    /// Whether the thread is new.
    pub(super) is_new: bool,
    /// Time since it left its CPU, if known.
    pub(super) slept: Option<i64>,
    pub(super) waker: Waker,
}

/// Who woke a thread.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Waker {
    /// The thread; `None` if an interrupt woke it.
    pub(super) tid: Option<i32>,
    pub(super) comm: Name,
    pub(super) cpu: Option<i32>,
    pub(super) context: Option<Context>,
    /// The interrupt in which the wake-up happened: its handler, if that was recorded, else its kind.
    pub(super) interrupt: Name,
    /// The thread that ran there, if an interrupt woke it.
    pub(super) interrupted_tid: Option<i32>,
    pub(super) interrupted_comm: Name,
    pub(super) kernel_stack: Option<i64>,
    pub(super) user_stack: Option<i64>,
}

/// Where a wake-up came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Context {
    Task,
    Softirq,
    Irq,
    Nmi,
    /// The CPU was idle: an interrupt, of unknown kind.
    Idle,
}

impl Context {
    /// That of an event with these `common_flags`.
    pub(super) fn of(bits: u8) -> Context {
        let flags = Flags {
            bits,
            preempt_count: 0,
        };
        match flags.context() {
            Recorded::Task => Context::Task,
            Recorded::Softirq => Context::Softirq,
            Recorded::Irq => Context::Irq,
            Recorded::Nmi => Context::Nmi,
        }
    }

    /// Name of an interrupt whose handler is not recorded.
    pub(super) fn unnamed(self) -> Option<&'static str> {
        match self {
            Context::Softirq => Some("softirq"),
            Context::Irq | Context::Idle => Some("interrupt"),
            Context::Nmi => Some("NMI"),
            Context::Task => None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Context::Task => "task",
            Context::Softirq => "softirq",
            Context::Irq => "irq",
            Context::Nmi => "nmi",
            Context::Idle => "idle",
        }
    }
}

/// What a pass does with the threads' stretches.
pub(super) trait Observer: Send {
    /// A thread has entered its state.
    fn begin(&mut self, _: &Thread, _: &Names) {}

    /// A thread leaves its state, at a known time or not.
    fn end(&mut self, _: &Thread, _: Option<i64>, _: &Names, _: &mut Rows) {}

    /// A thread that left its CPU runs again, or is lost from sight.
    fn back(&mut self, _: &Thread, _: Option<i64>, _: &Names, _: &mut Rows) {}

    /// A waiting thread is on the queue of another CPU: from `time` on, or since it waits.
    fn moved(&mut self, _: &Thread, _: Option<i64>) {}

    /// What the recording covers.
    fn covers(&mut self, _: &Coverage) {}

    /// A thread is within the scope of the recording, if that has some threads only.
    fn recorded(&mut self, _: i32) {}

    /// A CPU is idle from that time on.
    fn idle_begins(&mut self, _: i32, _: i64) {}

    /// A CPU is not idle any more, from a known time on or not.
    fn idle_ends(&mut self, _: i32, _: Option<i64>, _: &mut Rows) {}

    /// Events are missing on a CPU, or on unknown ones.
    fn lost(&mut self, _: Option<i32>) {}

    /// Before this time, a thread, or the idle one, has left its CPU in a switch that is not recorded, and no loss explains it.
    fn left_unrecorded(&mut self, _: Option<&Thread>, _: i64) {}

    /// A thread was created.
    fn started(&mut self, _: i32, _: i64) {}

    /// A thread has exited; it may run a little longer.
    fn exited(&mut self, _: i32, _: i64) {}

    /// A row of a source that is not the scheduler's.
    fn other(&mut self, _: usize, _: Row<'_>, _: &mut Rows) {}

    /// Why the computation cannot go on.
    fn failure(&self) -> Option<String> {
        None
    }

    /// An event of the scheduler occurred at this time.
    fn passed(&mut self, _: i64, _: &mut Rows) {}

    /// There are no more events: the states that end from here on last to the end of the recording.
    fn closing(&mut self) {}

    /// The end of the trace, of an observer that adds up time. It learns of what the observer learns of.
    fn ending(&mut self) -> Option<&mut Ending> {
        None
    }

    /// All states have ended. Returns whether there are more rows.
    fn finish(&mut self, _: &Names, _: &mut Rows) -> bool {
        false
    }

    /// Size of the state in bytes.
    fn bytes(&self) -> usize {
        0
    }
}

/// What a CPU does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Occupant {
    Unknown,
    Idle,
    Thread(usize),
}

/// All threads and CPUs.
pub(super) struct Scheduler {
    pub(super) names: Names,
    threads: Vec<Thread>,
    /// Places that are free again.
    free: Vec<usize>,
    places: IdMap<usize>,
    cpus: IdMap<Occupant>,
    /// Number of losses on any CPU, on unknown ones, and by CPU.
    losses: u32,
    losses_anywhere: u32,
    losses_by_cpu: HashMap<i32, u32>,
    /// CPUs with losses and no switch since.
    cpus_after_losses: HashSet<i32>,
    /// Whether some CPUs only were recorded: what leaves one may run on another, unseen.
    pub(super) is_of_some_cpus: bool,
    /// Whether some threads only were recorded: others wake them and move them to other CPUs, unseen.
    pub(super) is_of_threads: bool,
    /// Whether all threads were, as the recorder says.
    pub(super) is_of_system: bool,
    /// Whether sched_waking was recorded.
    has_waking: bool,
    next_at_end: usize,
}

impl Scheduler {
    pub(super) fn new(has_waking: bool) -> Scheduler {
        Scheduler {
            names: Names::default(),
            threads: Vec::new(),
            free: Vec::new(),
            places: IdMap::new(),
            cpus: IdMap::new(),
            losses: 0,
            losses_anywhere: 0,
            losses_by_cpu: HashMap::new(),
            cpus_after_losses: HashSet::new(),
            is_of_some_cpus: false,
            is_of_threads: false,
            is_of_system: false,
            has_waking,
            next_at_end: 0,
        }
    }

    /// Size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.threads.capacity() * size_of::<Thread>()
            + self.places.bytes()
            + self.cpus.bytes()
            + self.names.bytes()
    }

    #[inline]
    fn place(&mut self, tid: i32) -> usize {
        if let Some(place) = self.places.get(tid) {
            return place;
        }
        self.add(tid)
    }

    #[cold]
    fn add(&mut self, tid: i32) -> usize {
        let thread = Thread {
            tid,
            pid: None,
            comm: Name::default(),
            state: State::Unknown,
            since: 0,
            comm_since: Name::default(),
            losses: 0,
            cpu: None,
            queue: None,
            left: None,
            wake: None,
            waking: None,
            scope: Scope::Unknown,
            is_doubtful: false,
            is_denied: false,
        };
        let place = match self.free.pop() {
            Some(place) => {
                self.threads[place] = thread;
                place
            }
            None => {
                self.threads.push(thread);
                self.threads.len() - 1
            }
        };
        self.places.insert(tid, place);
        place
    }

    fn forget(&mut self, place: usize) {
        let thread = &mut self.threads[place];
        self.places.remove(thread.tid);
        thread.state = State::Unknown;
        thread.left = None;
        thread.wake = None;
        // Where an event is missing, a CPU may still count as that of the thread: the place is another's from now on.
        for occupant in self.cpus.values_mut() {
            if *occupant == Occupant::Thread(place) {
                *occupant = Occupant::Unknown;
            }
        }
        self.free.push(place);
    }

    /// Whether an event of the thread itself was recorded.
    pub(super) fn is_recorded(&self, tid: i32) -> bool {
        let place = self.places.get(tid);
        place.is_some_and(|place| self.threads[place].scope == Scope::Recorded)
    }

    /// An event of the thread itself was recorded.
    pub(super) fn record(&mut self, tid: i32) {
        let place = self.place(tid);
        self.threads[place].scope = Scope::Recorded;
    }

    /// The process of a thread.
    pub(super) fn belongs(&mut self, tid: i32, pid: Option<i32>, is_new: bool) {
        let place = self.place(tid);
        let thread = &mut self.threads[place];
        thread.scope = thread.scope.max(Scope::Listed);
        if is_new || thread.pid.is_none() {
            thread.pid = pid.or(thread.pid);
        }
    }

    /// Ends the state of a thread.
    #[inline]
    fn end<O: Observer>(&mut self, place: usize, time: Option<i64>, to: &mut O, rows: &mut Rows) {
        let thread = &self.threads[place];
        if thread.state == State::Unknown {
            return;
        }
        // A waiting thread may be moved to another CPU, and run there.
        let is_in_sight = !self.is_of_some_cpus || thread.state == State::Running;
        let is_certain = is_in_sight && thread.losses == self.losses_of(thread.state, thread.cpu);
        let time = time.filter(|_| is_certain);
        // A wake-up alone may be of a thread that runs already. One that was switched in may be out of the recording's scope.
        let is_in_scope = thread.scope == Scope::Listed || self.is_of_system;
        let is_seen =
            thread.scope == Scope::Recorded || thread.state == State::Running && is_in_scope;
        if time.is_some() || is_seen {
            to.end(thread, time, &self.names, rows);
        }
    }

    #[inline]
    fn begin<O: Observer>(&mut self, place: usize, state: State, time: i64, to: &mut O) {
        let losses = self.losses_of(state, self.threads[place].cpu);
        let thread = &mut self.threads[place];
        thread.state = state;
        thread.since = time;
        thread.comm_since = thread.comm;
        thread.losses = losses;
        to.begin(thread, &self.names);
    }

    /// What happens to a thread is unknown from here on.
    fn lose<O: Observer>(&mut self, place: usize, to: &mut O, rows: &mut Rows) {
        let thread = &mut self.threads[place];
        if self.is_of_threads && thread.state.is_waiting() {
            thread.queue = None;
        }
        self.end(place, None, to, rows);
        let thread = &mut self.threads[place];
        if thread.left.is_some() || thread.wake.is_some() {
            to.back(thread, None, &self.names, rows);
        }
        thread.left = None;
        thread.wake = None;
        thread.is_doubtful = false;
        thread.state = State::Unknown;
    }

    /// What happens to a thread is unknown from here on, if it is known.
    pub(super) fn lose_sight<O: Observer>(&mut self, tid: i32, to: &mut O, rows: &mut Rows) {
        if let Some(place) = self.places.get(tid) {
            self.lose(place, to, rows);
        }
    }

    /// A thread has exited, and its last switch is not recorded.
    pub(super) fn exit<O: Observer>(&mut self, tid: i32, time: i64, to: &mut O, rows: &mut Rows) {
        let Some(place) = self.places.get(tid) else {
            return;
        };
        if self.threads[place].state == State::Running {
            self.end(place, Some(time), to, rows);
            self.threads[place].state = State::Unknown;
        }
        self.lose(place, to, rows);
        self.forget(place);
    }

    /// A thread has exited. One that waits or sleeps has run until then, unseen.
    pub(super) fn exits_unseen<O: Observer>(&mut self, tid: i32, to: &mut O, rows: &mut Rows) {
        if let Some(place) = self.places.get(tid)
            && self.threads[place].state != State::Running
        {
            self.lose(place, to, rows);
        }
    }

    /// A thread leaves a CPU.
    pub(super) fn switch_out<O: Observer>(
        &mut self,
        out: &SwitchOut<'_>,
        to: &mut O,
        rows: &mut Rows,
    ) {
        let known = out
            .cpu
            .and_then(|cpu| self.cpus.insert(cpu, Occupant::Unknown));
        let is_after_loss = !self.cpus_after_losses.is_empty()
            && out
                .cpu
                .is_some_and(|cpu| self.cpus_after_losses.remove(&cpu));
        // Another one than this thread was switched in last, and has left in a switch that is not recorded.
        let is_unrecorded = !is_after_loss && !self.is_of_threads;
        let place = (out.tid != 0).then(|| self.place(out.tid));
        match (known, out.cpu) {
            (Some(Occupant::Thread(other)), _) if Some(other) != place => {
                if is_unrecorded {
                    to.left_unrecorded(Some(&self.threads[other]), out.time);
                }
                self.lose(other, to, rows);
            }
            (Some(Occupant::Idle), Some(cpu)) if out.tid == 0 => {
                to.idle_ends(cpu, Some(out.time), rows);
            }
            (Some(Occupant::Idle), Some(cpu)) => {
                if is_unrecorded {
                    to.left_unrecorded(None, out.time);
                }
                to.idle_ends(cpu, None, rows);
            }
            _ => {}
        }
        let Some(place) = place else {
            return;
        };
        let thread = &mut self.threads[place];
        self.names.update(&mut thread.comm, out.comm);
        thread.pid = out.pid.or(thread.pid);
        thread.scope = Scope::Recorded;
        let runs_here = thread.state == State::Running && thread.cpu == out.cpu;
        if runs_here {
            self.end(place, Some(out.time), to, rows);
        } else {
            // It was switched in unseen, or ran from the start.
            let thread = &mut self.threads[place];
            thread.is_denied = thread.is_doubtful && thread.state == State::Runnable;
            self.lose(place, to, rows);
            self.threads[place].is_denied = false;
        }
        let losses = self.losses;
        let thread = &mut self.threads[place];
        thread.cpu = out.cpu;
        thread.queue = out.cpu;
        thread.wake = None;
        thread.left = Some(Left {
            time: out.time,
            comm: thread.comm,
            state: out.state,
            kernel_stack: out.kernel_stack,
            user_stack: out.user_stack,
            losses,
        });
        self.begin(place, out.state, out.time, to);
        if out.state == State::Dead {
            self.end(place, None, to, rows);
            self.forget(place);
        }
    }

    /// A thread begins to run on a CPU.
    pub(super) fn switch_in<O: Observer>(
        &mut self,
        (time, tid, cpu): (i64, i32, Option<i32>),
        comm: Option<&str>,
        to: &mut O,
        rows: &mut Rows,
    ) {
        let occupant = match tid {
            0 => Occupant::Idle,
            tid => Occupant::Thread(self.place(tid)),
        };
        let before = cpu.and_then(|cpu| self.cpus.insert(cpu, occupant));
        match (before, cpu) {
            (Some(Occupant::Thread(other)), _) if before != Some(occupant) => {
                self.lose(other, to, rows);
            }
            (Some(Occupant::Idle), Some(cpu)) if before != Some(occupant) => {
                to.idle_ends(cpu, None, rows);
            }
            _ => {}
        }
        let Occupant::Thread(place) = occupant else {
            if let Some(cpu) = cpu {
                to.idle_begins(cpu, time);
            }
            return;
        };
        let thread = &mut self.threads[place];
        self.names.update(&mut thread.comm, comm);
        if thread.state == State::Running {
            if thread.cpu == cpu {
                // Reported twice, by sched_switch and by perf.
                return;
            }
            self.lose(place, to, rows);
        }
        let thread = &mut self.threads[place];
        thread.queue = cpu.or(thread.queue);
        self.end(place, Some(time), to, rows);
        let losses = self.losses;
        let thread = &mut self.threads[place];
        if let Some(left) = thread.left {
            let is_certain = left.losses == losses && !self.is_of_some_cpus;
            let time = Some(time).filter(|_| is_certain);
            to.back(thread, time, &self.names, rows);
        } else if thread.wake.is_some() {
            let time = Some(time).filter(|_| !self.is_of_some_cpus);
            to.back(thread, time, &self.names, rows);
        }
        thread.left = None;
        thread.waking = None;
        thread.is_doubtful = false;
        thread.cpu = cpu;
        self.begin(place, State::Running, time, to);
        self.threads[place].wake = None;
    }

    /// A thread that is not followed is on a CPU.
    pub(super) fn taken<O: Observer>(&mut self, cpu: Option<i32>, to: &mut O, rows: &mut Rows) {
        let before = cpu.and_then(|cpu| self.cpus.insert(cpu, Occupant::Unknown));
        if let Some(Occupant::Thread(other)) = before {
            self.lose(other, to, rows);
        }
    }

    /// The threads that are in a state, or away from their CPU, since that time or longer.
    pub(super) fn open_at(&self, time: i64) -> impl Iterator<Item = i32> {
        let is_open = move |thread: &&Thread| {
            let left = thread.left.map(|left| left.time);
            let woken = thread.wake.map(|wake| wake.time);
            let since = (thread.state != State::Unknown).then_some(thread.since);
            let earliest = [since, left, woken].into_iter().flatten().min();
            earliest.is_some_and(|earliest| earliest <= time)
        };
        self.threads.iter().filter(is_open).map(|thread| thread.tid)
    }

    /// Whether a thread runs on that CPU.
    pub(super) fn runs(&self, tid: i32, cpu: Option<i32>) -> bool {
        let place = self.places.get(tid);
        let thread = place.and_then(|place| self.threads.get(place));
        thread.is_some_and(|thread| thread.state == State::Running && thread.cpu == cpu)
    }

    /// A thread is woken.
    pub(super) fn wake<O: Observer>(&mut self, woken: &Woken<'_>, to: &mut O, rows: &mut Rows) {
        if woken.tid == 0 {
            return;
        }
        let place = self.place(woken.tid);
        let thread = &mut self.threads[place];
        self.names.update(&mut thread.comm, woken.comm);
        let mut wake = Wake {
            time: woken.time,
            comm: thread.comm,
            is_new: woken.kind == WakeKind::New,
            slept: None,
            waker: woken.waker,
        };
        let mut is_alone = false;
        match woken.kind {
            WakeKind::New => {
                self.lose(place, to, rows);
                let thread = &mut self.threads[place];
                (thread.waking, thread.cpu) = (None, None);
                thread.scope = Scope::Recorded;
            }
            WakeKind::Waking => thread.waking = Some(wake),
            WakeKind::Wakeup => {
                // Of a wake-up before the thread had left its CPU, the waker is known only now.
                let waking = thread.waking.take();
                is_alone = waking.is_none();
                if let Some(waking) = waking.filter(|_| thread.state.is_asleep()) {
                    wake.waker = waking.waker;
                }
            }
        }
        let is_runnable = self.threads[place].state == State::Runnable;
        if woken.kind == WakeKind::Waking && is_runnable && !self.is_of_threads {
            // Only what sleeps is woken: it has run in between, unseen. Events of single threads have the wake-up twice, those of the
            // waker and of the woken one.
            self.lose(place, to, rows);
        }
        let thread = &mut self.threads[place];
        if thread.state.is_waiting() {
            // The CPU is chosen after sched_waking.
            let before = thread.queue;
            thread.queue = woken.target_cpu.or(before);
            if thread.queue != before {
                to.moved(thread, None);
            }
            return;
        }
        if thread.state == State::Running || thread.state == State::Dead {
            return;
        }
        if is_alone && self.is_of_threads && self.has_waking {
            // A CPU takes a thread that was woken before, in a context that is not recorded. Who runs there did not wake it.
            return;
        }
        let left = thread.left.filter(|left| left.losses == self.losses);
        let left = left.filter(|_| !self.is_of_some_cpus);
        wake.slept = left.map(|left| woken.time - left.time);
        thread.wake = Some(wake);
        self.end(place, Some(woken.time), to, rows);
        let thread = &mut self.threads[place];
        thread.queue = woken.target_cpu.or(thread.queue);
        thread.is_doubtful = thread.state == State::Unknown && woken.kind != WakeKind::New;
        thread.waking = None;
        self.begin(place, State::Runnable, woken.time, to);
    }

    /// A waiting thread is moved to another CPU.
    pub(super) fn migrate<O: Observer>(
        &mut self,
        tid: i32,
        cpu: Option<i32>,
        time: i64,
        to: &mut O,
    ) {
        let Some(place) = self.places.get(tid) else {
            return;
        };
        let thread = &mut self.threads[place];
        let before = thread.queue;
        thread.queue = cpu.or(before);
        if thread.state.is_waiting() && thread.queue != before {
            to.moved(thread, Some(time));
        }
    }

    /// Events are missing, on that CPU or on unknown ones.
    pub(super) fn lost(&mut self, cpu: Option<i32>) {
        self.losses += 1;
        match cpu {
            Some(cpu) => {
                *self.losses_by_cpu.entry(cpu).or_default() += 1;
                self.cpus_after_losses.insert(cpu);
            }
            None => {
                self.losses_anywhere += 1;
                let cpus = self.cpus.iter().map(|(cpu, _)| cpu);
                self.cpus_after_losses.extend(cpus);
            }
        }
    }

    /// Number of losses until now that may concern a thread in that state: of one that runs, only those on its CPU.
    #[inline]
    fn losses_of(&self, state: State, cpu: Option<i32>) -> u32 {
        match (state, cpu) {
            _ if self.losses == 0 => 0,
            (State::Running, Some(cpu)) => {
                self.losses_anywhere + self.losses_by_cpu.get(&cpu).copied().unwrap_or_default()
            }
            _ => self.losses,
        }
    }

    /// Ends the states of threads at the end of the recording, some at a time. Returns whether there are more.
    pub(super) fn finish<O: Observer>(&mut self, to: &mut O, rows: &mut Rows) -> Result<bool> {
        const AT_ONCE: usize = 1024;
        if self.next_at_end == 0 {
            if self.losses > 0 {
                // What a loss concerns does not last to the end for certain.
                for place in 0..self.threads.len() {
                    let thread = &self.threads[place];
                    if thread.losses != self.losses_of(thread.state, thread.cpu) {
                        self.lose(place, to, rows);
                    }
                }
            }
            to.closing();
            if let Some(ending) = to.ending() {
                ending.closing();
            }
            let is_idle =
                |(cpu, occupant): (i32, Occupant)| (occupant == Occupant::Idle).then_some(cpu);
            for cpu in self.cpus.iter().filter_map(is_idle) {
                to.idle_ends(cpu, None, rows);
            }
        }
        for _ in 0..AT_ONCE {
            if self.next_at_end == self.threads.len() {
                return Ok(to.finish(&self.names, rows));
            }
            self.lose(self.next_at_end, to, rows);
            self.next_at_end += 1;
        }
        Ok(true)
    }
}

/// A thread that leaves a CPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct SwitchOut<'a> {
    pub(super) time: i64,
    pub(super) tid: i32,
    pub(super) pid: Option<i32>,
    pub(super) comm: Option<&'a str>,
    pub(super) cpu: Option<i32>,
    pub(super) state: State,
    pub(super) kernel_stack: Option<i64>,
    pub(super) user_stack: Option<i64>,
}

/// A thread that is woken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Woken<'a> {
    pub(super) time: i64,
    pub(super) kind: WakeKind,
    pub(super) tid: i32,
    pub(super) comm: Option<&'a str>,
    pub(super) target_cpu: Option<i32>,
    pub(super) waker: Waker,
}

/// The event of a wake-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WakeKind {
    /// sched_waking
    Waking,
    /// sched_wakeup
    Wakeup,
    /// sched_wakeup_new
    New,
}
