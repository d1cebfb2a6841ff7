//! The rows of `thread_states` as periods.

use anyhow::Result;
use perfquet::Session;
use perfquet::stacks::strings;

use super::engine::{at, integers, stream};
use super::http::Peer;
use super::states::STATE_BITS;
use super::store::blocks::Period;
use crate::thread_states::number_of;

/// The columns that are read, in this order.
pub(super) const COLUMNS: &str = "tid, time, duration, cpu, state";

/// A state of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ThreadState {
    pub(super) tid: i64,
    /// From the start of the trace.
    pub(super) begin: i64,
    /// -1 if it is unknown.
    pub(super) length: i64,
    pub(super) cpu: Option<i64>,
    pub(super) state: u32,
}

impl ThreadState {
    /// The period of the thread.
    pub(super) fn of_thread(&self) -> Period {
        let number = self.cpu.and_then(|cpu| u32::try_from(cpu).ok());
        let number = number.map_or(0, |cpu| cpu.saturating_add(1));
        self.with_value(number.min(u32::MAX >> STATE_BITS) << STATE_BITS | self.state)
    }

    pub(super) fn with_value(&self, value: u32) -> Period {
        Period {
            begin: self.begin,
            length: self.length,
            value,
        }
    }

    /// The CPU on which it runs.
    pub(super) fn runs_on(&self) -> Option<i64> {
        self.cpu.filter(|_| self.state == 0)
    }
}

/// Calls `visit` with the states that a query selects, and `batch` with the latest begin now and then.
pub(super) fn thread_states(
    session: &Session,
    sql: &str,
    start: i64,
    mut visit: impl FnMut(ThreadState) -> Result<()>,
    mut batch: impl FnMut(i64) -> Result<()>,
) -> Result<()> {
    let mut latest = 0;
    stream(session, sql, &Peer::NONE, |rows| {
        let (tids, times) = (integers(rows, 0)?, integers(rows, 1)?);
        let (durations, cpus) = (integers(rows, 2)?, integers(rows, 3)?);
        let states = strings(rows.column(4))?;
        for (row, state) in states.iter().enumerate() {
            let (Some(tid), Some(time)) = (at(&tids, row), at(&times, row)) else {
                continue;
            };
            // Negative durations are none.
            let length = at(&durations, row).filter(|&length| length >= 0);
            let state = ThreadState {
                tid,
                begin: time.saturating_sub(start),
                length: length.unwrap_or(-1),
                cpu: at(&cpus, row),
                state: number_of(state) as u32,
            };
            latest = latest.max(state.begin);
            visit(state)?;
        }
        batch(latest)
    })
}
