//! Rows of `calls`, typed.

use std::collections::HashMap;

use anyhow::Result;

use super::Tally;
use super::batch::{BatchRow, Head};
use super::source::Source;

/// A call.
#[derive(Debug)]
pub(super) struct Call<'b> {
    pub(super) head: Head<'b>,
    pub(super) time: i64,
    pub(super) duration: Option<i64>,
    pub(super) self_time: Option<i64>,
    pub(super) function: Option<&'b str>,
    pub(super) module: Option<&'b str>,
    pub(super) depth: Option<i32>,
    pub(super) retval: Option<i64>,
    /// `name=value`
    pub(super) args: Vec<String>,
    pub(super) context: Option<&'b str>,
    pub(super) entry_seen: bool,
    pub(super) exit_seen: bool,
}

impl Call<'_> {
    pub(super) fn name(&self) -> &str {
        self.function.unwrap_or("[unknown]")
    }

    /// Returns the end of a call if its duration is known. A negative duration, from a clock that runs backward, counts
    /// as 0.
    pub(super) fn end(&self) -> Option<i64> {
        Some(self.time.saturating_add(self.duration?.max(0)))
    }

    /// Returns the thread or CPU on which the call nests.
    pub(super) fn owner(&self) -> Owner {
        match (self.interrupt(), self.head.tid, self.head.cpu) {
            (Some(what), _, Some(cpu)) => Owner::Cpu { cpu, what },
            (_, Some(tid), _) => Owner::Thread {
                tid,
                pid: self.head.pid,
            },
            (_, None, Some(cpu)) => Owner::Cpu { cpu, what: "calls" },
            (_, None, None) => Owner::Unknown,
        }
    }

    /// Interrupts have separate contexts: "irq", "softirq", "nmi".
    fn interrupt(&self) -> Option<&'static str> {
        match self.context {
            Some("irq") => Some("irq"),
            Some("softirq") => Some("softirq"),
            Some("nmi") => Some("nmi"),
            _ => None,
        }
    }
}

/// The thread or CPU on which calls nest: a CPU for interrupts, and for inputs without threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Owner {
    Thread { tid: i32, pid: Option<i32> },
    Cpu { cpu: i32, what: &'static str },
    Unknown,
}

/// Depths for formats whose slices nest by their times alone. A call whose end is unknown has none, so its depth is
/// written, and those of the calls after it: they tell which calls it encloses.
#[derive(Debug, Default)]
pub(super) struct OpenDepths {
    /// Of the calls that may be open, outermost first.
    open: HashMap<Owner, Vec<i32>>,
}

impl OpenDepths {
    /// The depth to write with a call, in the order of the table.
    pub(super) fn of(&mut self, call: &Call<'_>) -> Option<i32> {
        let depth = call.depth?;
        let is_open = call.end().is_none() && call.entry_seen;
        let owner = call.owner();
        let Some(open) = self.open.get_mut(&owner) else {
            if is_open {
                self.open.insert(owner, vec![depth]);
            }
            return is_open.then_some(depth);
        };
        open.truncate(open.partition_point(|&other| other < depth));
        match (is_open, open.is_empty()) {
            (true, _) => open.push(depth),
            (false, true) => {
                self.open.remove(&owner);
            }
            (false, false) => {}
        }
        Some(depth)
    }
}

/// Counts of calls that cannot be exported.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct CallCounts {
    pub(super) calls: u64,
    pub(super) without_time: u64,
    /// Exported calls with a stack, which strace -k prints.
    pub(super) with_stack: u64,
}

/// Calls `pass` for each selected call, in the order of the table.
pub(super) fn each_call(
    source: &Source<'_>,
    mut pass: impl FnMut(&Call<'_>) -> Result<()>,
) -> Result<CallCounts> {
    let mut counts = CallCounts::default();
    for table in source.calls() {
        for batch in source.rows(table, None)? {
            let batch = batch?;
            for row in BatchRow::all(&batch) {
                match call_of(&row) {
                    Some(call) => {
                        counts.calls += 1;
                        let is_stack = call.head.user_stack.or(call.head.kernel_stack).is_some();
                        counts.with_stack += u64::from(is_stack);
                        pass(&call)?;
                    }
                    None => counts.without_time += 1,
                }
            }
        }
    }
    Ok(counts)
}

impl CallCounts {
    /// Counts what viewers of nested calls cannot show: calls without a timestamp, and the stacks of calls.
    pub(super) fn omissions(&self, tally: &mut Tally) {
        tally.omit("call", "without a timestamp", self.without_time);
        tally.omit(
            "stack",
            "of calls, which show only their callers",
            self.with_stack,
        );
    }
}

/// Returns the call of a row; `None` without a timestamp.
pub(super) fn call_of<'b>(row: &BatchRow<'b>) -> Option<Call<'b>> {
    let head = row.head();
    Some(Call {
        time: head.time?,
        head,
        duration: row.i64("duration"),
        self_time: row.i64("self_time"),
        function: row.text("function"),
        module: row.text("module"),
        depth: row.i32("depth"),
        retval: row.i64("retval"),
        args: row.texts("args"),
        context: row.text("context"),
        entry_seen: row.bool("entry_seen").unwrap_or(true),
        exit_seen: row.bool("exit_seen").unwrap_or(true),
    })
}
