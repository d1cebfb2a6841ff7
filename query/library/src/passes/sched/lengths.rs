//! `pass_runqueue_lengths()`: how many threads wait on each CPU, as a step function.
//!
//! ```text
//! change at   10 (+1)   12 (+1)   15 (-1)   20 (-1)      confirmed when the end of a wait is known
//! length      1         2         1         0
//! ```
//! A wait counts only if its end is known, so changes are held back until the oldest wait has ended.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use hashbrown::HashMap;

use super::super::Function;
use super::super::names::Names;
use super::super::pass::{Pass, PassPlan, Tables};
use super::super::rows::{Rows, emitted};
use super::super::selection::Selection;
use super::coverage::Coverage;
use super::input::{Needs, SchedulerMachine, has_waking, sources};
use super::thread::{Observer, Thread};

pub(in super::super) const FUNCTION: Function = Function {
    name: "pass_runqueue_lengths",
    create: |arguments| match arguments {
        [] => Some(Arc::new(RunqueueLengths)),
        _ => None,
    },
};

#[derive(Debug)]
struct RunqueueLengths;

emitted! {
    TIME "time" Int64,
    DURATION "duration" Int64,
    CPU "cpu" Int32,
    LENGTH "length" Int32,
}

impl Pass for RunqueueLengths {
    fn name(&self) -> &'static str {
        FUNCTION.name
    }

    fn columns(&self, id: &DataType) -> Vec<Field> {
        fields(id)
    }

    fn plan(&self, _: &Selection, tables: &Tables<'_>) -> PassPlan {
        let has_waking = has_waking(tables);
        let needs = Needs {
            queues: true,
            ..Needs::default()
        };
        PassPlan::new(sources(&needs), move || {
            SchedulerMachine::new(has_waking, Lengths::default())
        })
    }
}

/// A change of a queue's length.
#[derive(Debug, Clone, Copy)]
struct Change {
    time: i64,
    cpu: i32,
    by: i32,
    is_known: bool,
}

/// A queue since its last change.
#[derive(Debug, Clone, Copy)]
struct Queue {
    since: i64,
    length: i32,
}

#[derive(Default)]
struct Lengths {
    changes: VecDeque<Change>,
    /// Number of changes removed from the front.
    removed: usize,
    /// The numbers of the changes of waiting threads.
    waits: HashMap<i32, Vec<usize>>,
    queues: HashMap<i32, Queue>,
    is_closing: bool,
    /// Whether some threads or CPUs only were recorded: how many threads wait is unknown.
    is_partial: bool,
    remaining: Vec<(i32, Queue)>,
}

impl Lengths {
    fn push(&mut self, time: i64, cpu: i32, by: i32, is_known: bool) -> usize {
        self.changes.push_back(Change {
            time,
            cpu,
            by,
            is_known,
        });
        self.removed + self.changes.len() - 1
    }

    fn change(&mut self, number: usize) -> Option<&mut Change> {
        self.changes.get_mut(number.checked_sub(self.removed)?)
    }

    /// Applies the known changes at the front.
    fn settle(&mut self, rows: &mut Rows) {
        while let Some(change) = self
            .changes
            .front()
            .copied()
            .filter(|change| change.is_known)
        {
            self.changes.pop_front();
            self.removed += 1;
            if change.by == 0 {
                continue;
            }
            let queue = self.queues.entry(change.cpu).or_insert(Queue {
                since: change.time,
                length: 0,
            });
            if change.time > queue.since {
                let duration = Some(change.time - queue.since);
                step(change.cpu, *queue, duration, rows);
                queue.since = change.time;
            }
            queue.length += change.by;
        }
    }
}

fn step(cpu: i32, queue: Queue, duration: Option<i64>, rows: &mut Rows) {
    rows.integer(TIME, Some(queue.since));
    rows.integer(DURATION, duration);
    rows.id(CPU, Some(cpu));
    rows.id(LENGTH, Some(queue.length));
    rows.end_row();
}

impl Observer for Lengths {
    fn covers(&mut self, coverage: &Coverage) {
        self.is_partial = coverage.is_of_threads || coverage.is_of_some_cpus();
    }

    fn begin(&mut self, thread: &Thread, _: &Names) {
        if self.is_partial {
            return;
        }
        if let Some(cpu) = thread.queue.filter(|_| thread.state.is_waiting()) {
            let number = self.push(thread.since, cpu, 1, false);
            self.waits.insert(thread.tid, vec![number]);
        }
    }

    fn moved(&mut self, thread: &Thread, time: Option<i64>) {
        let (Some(cpu), Some(numbers)) = (thread.queue, self.waits.get(&thread.tid)) else {
            return;
        };
        let Some(&last) = numbers.last() else {
            return;
        };
        let Some(&mut Change { cpu: before, .. }) = self.change(last) else {
            return;
        };
        match time {
            // It never was on the other queue.
            None => {
                if let Some(change) = self.change(last) {
                    change.cpu = cpu;
                }
            }
            Some(time) => {
                let both = [
                    self.push(time, before, -1, false),
                    self.push(time, cpu, 1, false),
                ];
                self.waits.entry(thread.tid).or_default().extend(both);
            }
        }
    }

    fn end(&mut self, thread: &Thread, end: Option<i64>, _: &Names, rows: &mut Rows) {
        if !thread.state.is_waiting() {
            return;
        }
        let Some(numbers) = self.waits.remove(&thread.tid) else {
            return;
        };
        let mut queue = None;
        let counts = end.is_some() || self.is_closing;
        for number in numbers {
            if let Some(change) = self.change(number) {
                change.is_known = true;
                queue = Some(change.cpu);
                change.by *= i32::from(counts);
            }
        }
        if let (Some(end), Some(cpu)) = (end, queue) {
            self.push(end, cpu, -1, true);
        }
        self.settle(rows);
    }

    fn closing(&mut self) {
        self.is_closing = true;
    }

    fn finish(&mut self, _: &Names, rows: &mut Rows) -> bool {
        if self.is_partial {
            log::warn!(
                "runqueue_lengths: some threads or CPUs were recorded, so how many threads wait is unknown\nhint: record the system: -a"
            );
        }
        self.settle(rows);
        self.remaining.extend(self.queues.drain());
        self.remaining.sort_unstable_by_key(|(cpu, _)| *cpu);
        for (cpu, queue) in self.remaining.drain(..) {
            step(cpu, queue, None, rows);
        }
        false
    }

    fn bytes(&self) -> usize {
        self.changes.capacity() * size_of::<Change>() + self.waits.len() * 64
    }
}
