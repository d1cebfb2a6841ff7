//! `pass_processes()`: each process with its CPU time; `pass_process_tree()`: the same in the order of a tree.
//!
//! Texts of ftrace have no process IDs. There, a thread that executes a program, or that is created as a process, is known to lead a
//! process with its own ID; to which process other threads belong is unknown, and their number is reported.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use hashbrown::{HashMap, HashSet};
use perfquet_trace::count::counted;

use super::super::Function;
use super::super::names::Names;
use super::super::pass::{Pass, PassPlan, Tables};
use super::super::rows::{Rows, emitted};
use super::super::selection::Selection;
use super::super::source::{BEFORE, Input, Row, Source};
use super::coverage::Coverage;
use super::ending::Ending;
use super::input::{Needs, OF_THREADS, OTHERS, SchedulerMachine, has_waking, sources};
use super::thread::{Observer, Thread};
use crate::linux::task_state::State;

pub(in super::super) const FUNCTION: Function = Function {
    name: "pass_processes",
    create: |arguments| match arguments {
        [] => Some(Arc::new(ProcessList { is_tree: false })),
        _ => None,
    },
};

pub(in super::super) const TREE: Function = Function {
    name: "pass_process_tree",
    create: |arguments| match arguments {
        [] => Some(Arc::new(ProcessList { is_tree: true })),
        _ => None,
    },
};

#[derive(Debug)]
struct ProcessList {
    is_tree: bool,
}

emitted! {
    PID "pid" Int32,
    PARENT "parent" Int32,
    COMM "comm" Text,
    CMDLINE "cmdline" Text,
    START_TIME "start_time" Int64,
    END_TIME "end_time" Int64,
    EXIT_CODE "exit_code" Int32,
    CPU_TIME "cpu_time" Int64,
    THREADS "threads" Int32,
    DEPTH "depth" Int32,
    NAME "name" Text,
}

impl Pass for ProcessList {
    fn name(&self) -> &'static str {
        match self.is_tree {
            true => TREE.name,
            false => FUNCTION.name,
        }
    }

    fn columns(&self, id: &DataType) -> Vec<Field> {
        fields(id)
    }

    fn plan(&self, selection: &Selection, tables: &Tables<'_>) -> PassPlan {
        let has_waking = has_waking(tables);
        let mut sources = sources(&Needs::default());
        if !selection.wants(CPU_TIME) {
            // Only the threads are needed.
            sources.truncate(OF_THREADS);
            sources.resize_with(OTHERS, Source::none);
        }
        let columns = vec![
            Input::integer(&["tid"]),
            Input::integer(&["pid"]),
            Input::integer(&["parent"]),
            Input::text(&["comm"]),
            Input::text(&["cmdline"]),
            Input::integer(&["end_time"]),
            Input::integer(&["exit_code"]),
        ];
        sources.push(Source::fixed("threads", "start_time", columns).with_unknown_times());
        sources.push(Source::event(
            "task:task_newtask",
            vec![
                Input::integer(&["arg_pid"]),
                Input::integer(&["clone_flags"]),
            ],
        ));
        sources.push(Source::event(
            "sched:sched_process_exec",
            vec![Input::integer(&["arg_pid"])],
        ));
        let is_tree = self.is_tree;
        let has_times = tables.has("sched:sched_switch") || tables.has("perf:context_switch");
        PassPlan::new(sources, move || {
            SchedulerMachine::new(
                has_waking,
                Processes {
                    is_tree,
                    has_times,
                    processes: Vec::new(),
                    current: HashMap::new(),
                    leaders: HashSet::new(),
                    strangers: HashMap::new(),
                    unlisted: 0,
                    coverage: Coverage::default(),
                    recorded: HashSet::new(),
                    bytes: 0,
                    ending: Ending::default(),
                },
            )
        })
    }
}

/// The additional sources, after those of the scheduler.
const NEW_TASK: usize = OTHERS + 1;
const EXEC: usize = OTHERS + 2;

/// A new task that is a thread of its creator's process (include/uapi/linux/sched.h).
const CLONE_THREAD: i64 = 0x1_0000;

#[derive(Debug, Default)]
struct Process {
    pid: i32,
    parent: Option<i32>,
    comm: Option<Box<str>>,
    cmdline: Option<Box<str>>,
    start: Option<i64>,
    end: Option<i64>,
    exit_code: Option<i64>,
    threads: i64,
    cpu_time: i64,
    is_known: bool,
    /// Whether the process IDs of its threads are unknown, except that of the first one.
    is_derived: bool,
    /// Whether one of its threads is in the scope of the recording.
    is_recorded: bool,
}

struct Processes {
    is_tree: bool,
    has_times: bool,
    processes: Vec<Process>,
    /// The latest process of each ID.
    current: HashMap<i32, usize>,
    /// Threads known to lead a process before `threads` lists them.
    leaders: HashSet<i32>,
    /// Threads whose process is unknown so far, as processes that they may lead.
    strangers: HashMap<i32, Process>,
    /// Number of former threads whose process stayed unknown.
    unlisted: u64,
    coverage: Coverage,
    /// Threads in the scope of a recording of some threads.
    recorded: HashSet<i32>,
    bytes: usize,
    ending: Ending,
}

impl Processes {
    fn process(&mut self, pid: i32) -> &mut Process {
        let next = self.processes.len();
        let place = *self.current.entry(pid).or_insert(next);
        if place == next {
            self.processes.push(Process {
                pid,
                ..Process::default()
            });
        }
        &mut self.processes[place]
    }

    /// A thread leads the process with its ID.
    fn leads(&mut self, tid: i32) {
        match self.strangers.remove(&tid) {
            Some(process) => {
                self.current.insert(tid, self.processes.len());
                self.processes.push(process);
            }
            None => {
                self.leaders.insert(tid);
            }
        }
    }

    /// A thread whose process is unknown.
    fn stranger(&mut self, tid: i32, row: Row<'_>) {
        let text = |column: usize| row.text(column).map(Box::from);
        let process = Process {
            pid: tid,
            parent: row.id(2),
            comm: text(3),
            cmdline: text(4),
            start: (row.time > BEFORE).then_some(row.time),
            end: row.integer(5),
            exit_code: row.integer(6),
            is_known: true,
            is_derived: true,
            ..Process::default()
        };
        let texts = [&process.comm, &process.cmdline]
            .map(|text| text.as_ref().map_or(0, |text| text.len()));
        self.bytes += texts.iter().sum::<usize>();
        // A thread ID that is used again is another thread.
        if self.strangers.insert(tid, process).is_some() {
            self.unlisted += 1;
        }
        if self.leaders.remove(&tid) {
            self.leads(tid);
        }
    }

    /// Whether the threads of a process are recorded, and not only some of them.
    fn has_all_threads(&self, process: &Process) -> bool {
        let is_earlier = process.start.is_none();
        let is_recorded = !self.coverage.is_of_threads || process.is_recorded;
        is_recorded && !(is_earlier && self.coverage.is_of_single_threads())
    }

    /// Reports the threads that no process in the result has.
    fn tell_strangers(&self) {
        let count = self.unlisted + self.strangers.len() as u64;
        if count == 0 {
            return;
        }
        let threads = counted(count, "thread");
        log::warn!(
            "processes: {threads} of unknown process not listed: the recording has no process IDs\n\
             hint: record with perfquet-record, or enable the option record-tgid of ftrace"
        );
    }

    fn emit(&self, process: &Process, depth: i32, rows: &mut Rows) {
        let comm = process.comm.as_deref();
        rows.id(PID, Some(process.pid));
        rows.id(PARENT, process.parent);
        rows.text(COMM, comm);
        rows.text(CMDLINE, process.cmdline.as_deref());
        rows.integer(START_TIME, process.start);
        rows.integer(END_TIME, process.end);
        rows.integer(EXIT_CODE, process.exit_code);
        let is_complete = !process.is_derived;
        let is_known = self.has_times && is_complete && self.has_all_threads(process);
        let cpu_time = Some(process.cpu_time).filter(|_| is_known);
        rows.integer(CPU_TIME, cpu_time);
        rows.integer(THREADS, Some(process.threads).filter(|_| is_complete));
        rows.id(DEPTH, Some(depth));
        if rows.wants(NAME) {
            let indent = "  ".repeat(usize::try_from(depth).unwrap_or_default());
            rows.text(NAME, Some(&format!("{indent}{}", comm.unwrap_or("?"))));
        }
        rows.end_row();
    }
}

impl Observer for Processes {
    fn end(&mut self, thread: &Thread, end: Option<i64>, _: &Names, _: &mut Rows) {
        if thread.state != State::Running {
            return;
        }
        // What runs until the end of the recording has run until its last event.
        let end = self.ending.of(thread.state, end);
        if let (Some(pid), Some(end)) = (thread.pid, end) {
            let process = self.process(pid);
            process.cpu_time += end - thread.since;
            process.is_recorded = true;
        }
    }

    fn covers(&mut self, coverage: &Coverage) {
        self.coverage = coverage.clone();
    }

    fn recorded(&mut self, tid: i32) {
        self.recorded.insert(tid);
    }

    fn ending(&mut self) -> Option<&mut Ending> {
        Some(&mut self.ending)
    }

    fn other(&mut self, source: usize, row: Row<'_>, _: &mut Rows) {
        let Some(tid) = row.id(0).filter(|tid| *tid > 0) else {
            return;
        };
        match source {
            NEW_TASK => {
                let flags = row.integer(1);
                if flags.is_some_and(|flags| flags & CLONE_THREAD == 0) {
                    self.leads(tid);
                }
                return;
            }
            EXEC => {
                if self.strangers.contains_key(&tid) || !self.current.contains_key(&tid) {
                    self.leads(tid);
                }
                return;
            }
            _ => {}
        }
        let Some(pid) = row.id(1) else {
            return self.stranger(tid, row);
        };
        // The idle tasks.
        if pid == 0 {
            return;
        }
        let start = (row.time > BEFORE).then_some(row.time);
        if tid == pid
            && start.is_some()
            && self
                .current
                .get(&pid)
                .is_some_and(|&place| self.processes[place].is_known)
        {
            // The ID is used again.
            self.current.remove(&pid);
        }
        let text = |column: usize| row.text(column).map(Box::from);
        let (parent, comm, cmdline): (_, Option<Box<str>>, Option<Box<str>>) =
            (row.id(2), text(3), text(4));
        let texts = [&comm, &cmdline].map(|text| text.as_ref().map_or(0, |text| text.len()));
        self.bytes += texts.iter().sum::<usize>();
        let is_recorded = self.recorded.contains(&tid);
        let process = self.process(pid);
        process.threads += 1;
        process.is_recorded |= is_recorded;
        if tid == pid {
            process.is_known = true;
            process.parent = parent;
            // A name that others of its threads had is not lost.
            process.comm = comm.or(process.comm.take());
            process.cmdline = cmdline;
            process.start = start;
            process.end = row.integer(5);
            process.exit_code = row.integer(6);
        } else if process.comm.is_none() {
            process.comm = comm;
        }
    }

    fn finish(&mut self, _: &Names, rows: &mut Rows) -> bool {
        self.tell_strangers();
        if !self.is_tree {
            for process in &self.processes {
                self.emit(process, 0, rows);
            }
            return false;
        }
        let mut children: HashMap<i32, Vec<usize>> = HashMap::new();
        let mut roots = Vec::new();
        for (place, process) in self.processes.iter().enumerate() {
            match process
                .parent
                .filter(|parent| self.current.contains_key(parent) && *parent != process.pid)
            {
                Some(parent) => children.entry(parent).or_default().push(place),
                None => roots.push(place),
            }
        }
        // Depth first; what a damaged trace connects in a circle follows at the end.
        let mut done = HashSet::new();
        let mut waiting: Vec<(usize, i32)> =
            roots.into_iter().rev().map(|place| (place, 0)).collect();
        let mut rest = (0..self.processes.len()).collect::<Vec<_>>();
        rest.reverse();
        loop {
            let Some((place, depth)) = waiting.pop().or_else(|| rest.pop().map(|place| (place, 0)))
            else {
                return false;
            };
            if !done.insert(place) {
                continue;
            }
            let process = &self.processes[place];
            self.emit(process, depth, rows);
            // Only the latest process of an ID can still have children.
            if self.current.get(&process.pid) == Some(&place) {
                let below = children.remove(&process.pid).unwrap_or_default();
                waiting.extend(below.into_iter().rev().map(|place| (place, depth + 1)));
            }
        }
    }

    fn bytes(&self) -> usize {
        let strangers = self.strangers.capacity() * size_of::<(i32, Process)>();
        let leaders = self.leaders.capacity() * 8;
        let processes = self.processes.capacity() * size_of::<Process>();
        let recorded = self.recorded.capacity() * 8;
        processes + strangers + leaders + recorded + self.current.capacity() * 32 + self.bytes
    }
}
