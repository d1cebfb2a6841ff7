//! `since_start(time)` and `wall_time(time)`: times of the trace's clock for people.
//!
//! ```text
//! time 81234500000000      since_start 1.5      wall_time 2026-03-01T10:15:00.500
//! ```

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, TimestampNanosecondArray};
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::Function;

pub(super) const SINCE_START: Function = Function {
    usage: "since_start(time)",
    about: "seconds from the first event of the trace to a time",
    register: |context, forest| {
        let starts = forest.traces().iter();
        let starts: Vec<Option<i64>> = starts
            .map(|trace| trace.time_range().map(|range| range.0))
            .collect();
        let kind = Kind::SinceStart;
        context.register_udf(ScalarUDF::from(TraceTime::new(kind, &starts)));
    },
};

pub(super) const WALL_TIME: Function = Function {
    usage: "wall_time(time)",
    about: "a time as date and time of day, UTC; NULL if the trace does not tell",
    register: |context, forest| {
        let offsets = forest.traces().iter();
        let offsets: Vec<Option<i64>> = offsets.map(|trace| trace.wall_offset).collect();
        let kind = Kind::WallTime;
        context.register_udf(ScalarUDF::from(TraceTime::new(kind, &offsets)));
    },
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    SinceStart,
    WallTime,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TraceTime {
    kind: Kind,
    /// Start or offset of the only trace; an error if there are several.
    reference: std::result::Result<Option<i64>, usize>,
    signature: Signature,
}

impl TraceTime {
    fn new(kind: Kind, references: &[Option<i64>]) -> TraceTime {
        TraceTime {
            kind,
            reference: match references {
                [one] => Ok(*one),
                several => Err(several.len()),
            },
            signature: Signature::exact(vec![DataType::Int64], Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for TraceTime {
    fn name(&self) -> &str {
        match self.kind {
            Kind::SinceStart => "since_start",
            Kind::WallTime => "wall_time",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        if let Err(count) = self.reference {
            return Err(DataFusionError::Plan(format!(
                "{}: expected one trace, found {count}: their clocks differ",
                self.name()
            )));
        }
        Ok(match self.kind {
            Kind::SinceStart => DataType::Float64,
            Kind::WallTime => DataType::Timestamp(TimeUnit::Nanosecond, None),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let times = &ColumnarValue::values_to_arrays(&args.args)?[0];
        let times = times.as_primitive::<Int64Type>().iter();
        let reference = self.reference.ok().flatten();
        let array: ArrayRef = match self.kind {
            Kind::SinceStart => Arc::new(Float64Array::from_iter(times.map(|time| {
                let (time, start) = time.zip(reference)?;
                Some((i128::from(time) - i128::from(start)) as f64 / 1e9)
            }))),
            Kind::WallTime => Arc::new(TimestampNanosecondArray::from_iter(
                times.map(|time| time?.checked_add(reference?)),
            )),
        };
        Ok(ColumnarValue::Array(array))
    }
}
