//! Aggregations computed by the recording tool: one event per printed key.
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

/// Function of an aggregation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Count of events.
    Count,
    /// Sum.
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
    /// Returns the value of `aggregates.action`.
    #[inline]
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

/// A value of an aggregation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AggregateValue {
    /// An integer, stored exactly.
    Int(i64),
    /// A fraction, or an integer beyond 64 bits.
    Float(f64),
}

impl AggregateValue {
    /// Parses a printed number.
    pub fn parse(text: &str) -> Option<AggregateValue> {
        let int = text.parse().ok().map(AggregateValue::Int);
        int.or_else(|| text.parse().ok().map(AggregateValue::Float))
    }

    /// An unsigned integer.
    pub fn of_unsigned(value: u64) -> AggregateValue {
        match i64::try_from(value) {
            Ok(value) => AggregateValue::Int(value),
            Err(_) => AggregateValue::Float(value as f64),
        }
    }

    /// The nearest number with 53 bits.
    pub fn as_f64(self) -> f64 {
        match self {
            AggregateValue::Int(value) => value as f64,
            AggregateValue::Float(value) => value,
        }
    }

    /// The value, if it is an integer of 64 bits.
    pub fn exact(self) -> Option<i64> {
        match self {
            AggregateValue::Int(value) => Some(value),
            AggregateValue::Float(_) => None,
        }
    }
}

/// One key of one aggregation.
#[derive(Debug, Clone, Copy)]
pub struct Aggregate<'a> {
    /// Name of the aggregation; empty if unknown.
    pub name: &'a [u8],
    /// Function; `None` if unknown (DTrace's output does not distinguish a count from a sum).
    pub action: Option<Action>,
    /// Parts of the key, without stacks.
    pub keys: &'a [&'a [u8]],
    /// The value; `None` for distributions.
    pub value: Option<AggregateValue>,
    /// A kernel stack in the key.
    pub kernel_stack: Stack<'a>,
    /// A user stack in the key.
    pub user_stack: Stack<'a>,
    /// Number of the printout, from 0; later printouts may include earlier values.
    pub snapshot: u32,
    /// Start of the period of the value; `None`: all the time before the printout.
    pub since: Option<i64>,
    /// Time of the printout.
    pub time: Option<i64>,
    /// The bars of a distribution, in order.
    pub buckets: &'a [Bucket],
}

/// One bar of a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Smallest value; `None` if there is no lower bound.
    pub low: Option<i64>,
    /// First value above the bar; `None` if there is no upper bound.
    pub high: Option<i64>,
    /// Number of values in the bar.
    pub count: i64,
}
