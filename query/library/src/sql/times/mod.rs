//! Times relative to the start of a trace: `3s` beside a time of the trace's clock.
//!
//! ```text
//! time BETWEEN 3s AND 4s      time BETWEEN START + 3000000000 AND START + 4000000000
//! time > at(3s)               the same, as a function
//! since_start(time) > 5s      time > START + 5000000000
//! duration > 500us            duration > 500000
//! ```
//! Whether a duration is compared with a time is only known once the query is planned: the parser's tree gets a call around each
//! duration in a comparison (`mark.rs`), and the plan gets conditions without these calls (`resolve.rs`). If several traces are open,
//! a condition has a term for each: their clocks differ.

mod mark;
mod resolve;

pub(crate) use mark::{mark, register};
pub(crate) use resolve::{in_call, nanoseconds, resolve};

use datafusion::error::{DataFusionError, Result};

/// The name of the call around a duration. No query has it: SQL reads a name with a blank only in quotes.
pub(crate) const MARK: &str = "duration literal";

/// The name and the start of each open trace; `None` without events.
#[derive(Debug, Default)]
pub(crate) struct Starts(pub(crate) Vec<(String, Option<i64>)>);

impl Starts {
    /// The time in the only trace.
    pub(crate) fn at(&self, offset: i64) -> Result<i64> {
        let [(_, start)] = self.0.as_slice() else {
            return Err(several(self.0.len()));
        };
        // A trace without times has no rows that could be compared.
        Ok(start.unwrap_or_default().saturating_add(offset))
    }
}

/// The error for a time without a trace.
fn several(count: usize) -> DataFusionError {
    DataFusionError::Plan(format!(
        "a time from the start of one trace, but {count} are open\nhint: select the column trace, too, or open one trace"
    ))
}
