//! Times relative to the start of a trace: `3s` beside a time of the trace's clock.
//!
//! ```text
//! time BETWEEN 3s AND 4s      time BETWEEN START + 3000000000 AND START + 4000000000
//! time > at(3s)               the same, as a function
//! since_start(time) > 5s      time > START + 5000000000
//! duration > 500us            duration > 500000
//! aligned(time) > 3s          time > the time that is 3 s after the start of the first trace
//! ```
//! Whether a duration is compared with a time is only known once the query is planned: the parser's tree gets a call around each
//! duration in a comparison (`mark.rs`), and the plan gets conditions without these calls (`resolve.rs`). If several traces are open,
//! a condition has a term for each: their clocks differ.

mod mark;
mod resolve;

pub(crate) use mark::{mark, register};
pub(crate) use resolve::{in_call, nanoseconds, resolve};

use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::error::{DataFusionError, Result};

use crate::align::Placement;
use crate::trace::Trace;

/// The name of the call around a duration. No query has it: SQL reads a name with a blank only in quotes.
pub(crate) const MARK: &str = "duration literal";

/// An open trace.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) trace: String,
    /// Time of its first event; `None` without events.
    pub(crate) time: Option<i64>,
    /// Where it stands on the timeline of the first; `None` if unknown.
    pub(crate) placement: Option<Placement>,
}

/// All open traces.
#[derive(Debug, Default)]
pub(crate) struct Starts {
    pub(crate) all: Vec<Start>,
    /// Whether it was said which traces have no place on the timeline.
    has_warned: AtomicBool,
}

impl Starts {
    pub(crate) fn new(traces: &[Trace]) -> Starts {
        let start = |trace: &Trace| Start {
            trace: trace.name.clone(),
            time: trace.time_range().map(|(start, _)| start),
            placement: trace.placement,
        };
        Starts {
            all: traces.iter().map(start).collect(),
            has_warned: AtomicBool::new(false),
        }
    }

    /// The time in the only trace.
    pub(crate) fn at(&self, offset: i64) -> Result<i64> {
        let [start] = self.all.as_slice() else {
            return Err(several(self.all.len()));
        };
        // A trace without times has no rows that could be compared.
        Ok(start.time.unwrap_or_default().saturating_add(offset))
    }

    /// Says once which traces have no place on the timeline.
    fn warn_of_unplaced(&self) {
        let unplaced = self.all.iter().filter(|start| start.placement.is_none());
        let names: Vec<&str> = unplaced.map(|start| start.trace.as_str()).collect();
        if names.is_empty() || self.has_warned.swap(true, Ordering::Relaxed) {
            return;
        }
        log::warn!(
            "aligned(time) is NULL in {}: their clocks are not known to relate to that of {}\nhint: align them with: perfquet-query align",
            names.join(", "),
            self.all[0].trace
        );
    }
}

/// The error for a time without a trace.
fn several(count: usize) -> DataFusionError {
    DataFusionError::Plan(format!(
        "a time from the start of one trace, but {count} are open\nhint: select the column trace, too, or open one trace"
    ))
}
