//! Edges whose thread is unknown: nothing says which exit belongs to which entry.
//!
//! ```text
//! sys_enter: NR 0 (3, …)      a row without duration and caller
//! sys_enter: NR 0 (4, …)      likewise
//! sys_exit: NR 0 = 111        of which of them? counted
//! ```
//! Calls are still paired without a thread if their depth was recorded, if they are interrupts on a known CPU, or if the thread
//! switches of their CPU were recorded.

use perfquet_events::event::Context;

use super::pending::{CallId, Pending};
use super::{Calls, DEEPEST, Entry, Exit, Head};

/// Calls of unknown threads.
#[derive(Debug, Default)]
pub(super) struct Threadless {
    /// Thread switches are recorded, and name the threads of their CPU.
    pub(super) has_switches: bool,
    /// Rows that are calls only if exits of their class are recorded.
    waiting: Vec<(u32, CallId)>,
    entries: u64,
    exits: u64,
}

impl Threadless {
    /// Whether an edge may belong to any of several threads.
    #[inline]
    pub(super) fn is_of(&self, head: &Head, depth: Option<u32>, context: Option<Context>) -> bool {
        match head.tid() {
            None => !self.is_told_apart(head.cpu().is_some(), depth, context),
            // The idle task of some CPU, which an interrupt interrupted.
            Some(0) => head.cpu().is_none() && depth.is_none() && is_interrupt(context),
            Some(_) => false,
        }
    }

    #[cold]
    fn is_told_apart(&self, has_cpu: bool, depth: Option<u32>, context: Option<Context>) -> bool {
        depth.is_some() || has_cpu && (is_interrupt(context) || self.has_switches)
    }
}

/// Whether an edge is of an interrupt.
pub(super) fn is_interrupt(context: Option<Context>) -> bool {
    context.is_some_and(|context| context != Context::Task)
}

impl Calls {
    /// Handles the entry of an unknown thread.
    #[cold]
    pub(super) fn enter_threadless(&mut self, entry: Entry) {
        let (is_provisional, class) = (entry.is_provisional, entry.pair.map(|pair| pair.class));
        let mut row = Pending::of(entry, None, 0);
        row.in_others = None;
        let id = self.rows.add(row);
        match class.filter(|_| is_provisional && self.threadless.waiting.len() < DEEPEST) {
            Some(class) => self.threadless.waiting.push((class, id)),
            None => self.rows.close(id),
        }
        self.threadless.entries += u64::from(!is_provisional);
    }

    /// Handles the exit of an unknown thread.
    #[cold]
    pub(super) fn leave_threadless(&mut self) {
        self.threadless.exits += 1;
    }

    /// Handles a complete call of an unknown thread: what is inside it, and around it, is unknown.
    #[cold]
    pub(super) fn call_threadless(&mut self, entry: Entry, exit: &Exit, may_nest: bool) {
        let mut row = Pending::of(entry, None, 0);
        row.duration = exit.duration;
        row.retval = exit.retval;
        row.exit_seen = exit.duration.is_some();
        // Otherwise the input says that nothing is inside it.
        if may_nest {
            row.in_others = None;
            self.threadless.entries += 1;
        }
        let id = self.rows.add(row);
        self.rows.close(id);
    }

    /// Exits of a class are recorded: its entries are calls.
    pub(super) fn prove_threadless(&mut self, class: u32) {
        let waiting = std::mem::take(&mut self.threadless.waiting);
        for (of, id) in waiting {
            if of != class {
                self.threadless.waiting.push((of, id));
                continue;
            }
            if let Some(row) = self.rows.get_mut(id) {
                row.is_provisional = false;
                self.threadless.entries += 1;
            }
            self.rows.close(id);
        }
    }

    /// Closes the rows that wait for an exit of their class.
    pub(super) fn close_threadless(&mut self) {
        for (_, id) in std::mem::take(&mut self.threadless.waiting) {
            self.rows.close(id);
        }
    }

    /// Thread switches are recorded.
    pub(crate) fn see_switches(&mut self) {
        self.threadless.has_switches = true;
    }

    /// What is unknown for want of a thread, as problems.
    pub(crate) fn threadless(&self) -> [(u64, &'static str); 2] {
        [
            (
                self.threadless.entries,
                "calls without a thread: no exit and no call around them is known to be theirs",
            ),
            (
                self.threadless.exits,
                "exits without a thread: the calls that they end are unknown",
            ),
        ]
    }
}
