//! Aggregations that another tool has made: one event for each key that it printed.
//!
//! ```text
//!   read            dd              17        Aggregate { keys: ["read", "dd"], value: 17 }
//!
//!   dd
//!            value  ------- Distribution ------- count
//!               16 |                              0
//!               32 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@ 42      Bucket { low: 32, high: 64, count: 42 }
//! ```

use super::Stack;

/// What an aggregation does with its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Counts events.
    Count,
    /// Adds up.
    Sum,
    /// Arithmetic mean.
    Avg,
    /// Smallest.
    Min,
    /// Largest.
    Max,
    /// Standard deviation.
    Stddev,
    /// Distribution by powers of two.
    Quantize,
    /// Distribution by equal steps.
    Lquantize,
    /// Distribution by equal steps within powers.
    Llquantize,
}

impl Action {
    /// As in `aggregates.action`.
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Count => "count",
            Action::Sum => "sum",
            Action::Avg => "avg",
            Action::Min => "min",
            Action::Max => "max",
            Action::Stddev => "stddev",
            Action::Quantize => "quantize",
            Action::Lquantize => "lquantize",
            Action::Llquantize => "llquantize",
        }
    }
}

/// One key of one aggregation.
#[derive(Debug, Clone, Copy)]
pub struct Aggregate<'a> {
    /// Name of the aggregation; empty: not told.
    pub name: &'a [u8],
    /// What it does; `None`: not told (DTrace's output does not tell a count from a sum).
    pub action: Option<Action>,
    /// The key, part by part, without stacks.
    pub keys: &'a [&'a [u8]],
    /// The value; `None` for distributions.
    pub value: Option<f64>,
    /// A kernel stack in the key.
    pub kernel_stack: Stack<'a>,
    /// A user stack in the key.
    pub user_stack: Stack<'a>,
    /// Which printing, from 0: a later one may hold what an earlier one held.
    pub snapshot: u32,
    /// When it was printed.
    pub time: Option<i64>,
    /// The bars of a distribution, in order.
    pub buckets: &'a [Bucket],
}

/// One bar of a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Smallest value; `None`: open below.
    pub low: Option<i64>,
    /// First value above; `None`: open above.
    pub high: Option<i64>,
    /// Values in it.
    pub count: i64,
}
