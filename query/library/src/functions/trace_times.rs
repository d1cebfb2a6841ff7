//! `since_start(time)`, `wall_time(time)`, `at(duration)` and `aligned(time)`: times of the trace's clock for people, and of several
//! traces on one timeline.
//!
//! ```text
//! time 81234500000000      since_start 1.5      wall_time 2026-03-01T10:15:00.500      at(1500ms) 81234500000000
//! aligned 72000500000000   on the clock of the first trace
//! ```
//! If several traces are open, the planner adds the row's trace as an argument (`times/resolve.rs`).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, TimestampNanosecondArray};
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};

use super::Function;
use crate::align::{Method, Placement};
use crate::trace::Trace;

pub(super) const SINCE_START: Function = Function {
    usage: "since_start(time)",
    about: "seconds from the first event of the trace to a time",
    register: |context, forest| {
        let time = TraceTime::new(Kind::SinceStart, forest.traces(), |trace| {
            start(trace).map(shift)
        });
        context.register_udf(ScalarUDF::from(time));
    },
};

pub(super) const WALL_TIME: Function = Function {
    usage: "wall_time(time)",
    about: "a time as date and time of day, UTC; NULL if the trace does not tell",
    register: |context, forest| {
        let wall = |trace: &Trace| trace.wall_offset.map(shift);
        let time = TraceTime::new(Kind::WallTime, forest.traces(), wall);
        context.register_udf(ScalarUDF::from(time));
    },
};

pub(super) const AT: Function = Function {
    usage: "at(duration)",
    about: "the time a duration after the first event of the trace, as in time > at(3s)",
    register: |context, forest| {
        let time = TraceTime::new(Kind::At, forest.traces(), |trace| start(trace).map(shift));
        context.register_udf(ScalarUDF::from(time));
    },
};

pub(super) const ALIGNED: Function = Function {
    usage: "aligned(time)",
    about: "a time on the clock of the first of several traces; NULL if its trace has no known place there",
    register: |context, forest| {
        let time = TraceTime::new(Kind::Aligned, forest.traces(), |trace| trace.placement);
        context.register_udf(ScalarUDF::from(time));
    },
};

fn start(trace: &Trace) -> Option<i64> {
    trace.time_range().map(|range| range.0)
}

/// A map that only adds.
fn shift(ns: i64) -> Placement {
    Placement::shifted(ns, Method::Given, None)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    SinceStart,
    WallTime,
    At,
    Aligned,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TraceTime {
    kind: Kind,
    /// Start, offset or placement of each trace, with its name.
    references: Vec<(String, Option<Placement>)>,
    signature: Signature,
}

impl TraceTime {
    fn new(kind: Kind, traces: &[Trace], of: fn(&Trace) -> Option<Placement>) -> TraceTime {
        let references = traces.iter().map(|trace| (trace.name.clone(), of(trace)));
        let one = TypeSignature::Exact(vec![DataType::Int64]);
        let two = TypeSignature::Exact(vec![DataType::Int64, DataType::Utf8]);
        TraceTime {
            kind,
            references: references.collect(),
            signature: Signature::one_of(vec![one, two], Volatility::Immutable),
        }
    }

    /// The reference of each row.
    fn of_rows(&self, args: &[ArrayRef]) -> Result<Vec<Option<Placement>>> {
        if let Some(traces) = args.get(1) {
            let find = |trace: &str| self.references.iter().find(|(name, _)| name == trace);
            // Rows of a trace follow each other.
            let mut last = None;
            let of = |trace: Option<&str>| {
                let trace = trace?;
                if last.is_none_or(|(name, _): &(String, _)| name != trace) {
                    last = find(trace);
                }
                last?.1
            };
            return Ok(traces.as_string::<i32>().iter().map(of).collect());
        }
        match self.references.as_slice() {
            [(_, one)] => Ok(vec![*one; args[0].len()]),
            several => Err(DataFusionError::Plan(format!(
                "{}: expected one trace, found {}: their clocks differ",
                self.name(),
                several.len()
            ))),
        }
    }
}

impl ScalarUDFImpl for TraceTime {
    fn name(&self) -> &str {
        match self.kind {
            Kind::SinceStart => "since_start",
            Kind::WallTime => "wall_time",
            Kind::At => "at",
            Kind::Aligned => "aligned",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.kind {
            Kind::SinceStart => DataType::Float64,
            Kind::WallTime => DataType::Timestamp(TimeUnit::Nanosecond, None),
            Kind::At | Kind::Aligned => DataType::Int64,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let args = ColumnarValue::values_to_arrays(&args.args)?;
        let references = self.of_rows(&args)?;
        let rows = args[0].as_primitive::<Int64Type>().iter().zip(references);
        let rows = rows.map(|(value, reference)| value.zip(reference));
        let placed = |pair: Option<(i64, Placement)>| pair.and_then(|(time, at)| at.place(time));
        let array: ArrayRef = match self.kind {
            Kind::SinceStart => Arc::new(Float64Array::from_iter(rows.map(|pair| {
                let (time, start) = pair?;
                Some((i128::from(time) - i128::from(start.shift)) as f64 / 1e9)
            }))),
            Kind::WallTime => Arc::new(TimestampNanosecondArray::from_iter(rows.map(placed))),
            Kind::At | Kind::Aligned => Arc::new(Int64Array::from_iter(rows.map(placed))),
        };
        Ok(ColumnarValue::Array(array))
    }
}
