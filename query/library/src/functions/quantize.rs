//! `quantize(x)`, `lquantize(x, …)`, `llquantize(x, …)`: distributions with DTrace's bars; `histogram(x)`: a fine one.
//!
//! ```text
//! SELECT quantize(x) FROM (VALUES (1), (2), (3), (9)) AS v(x)
//! [{low: 1, high: 2, count: 1}, {low: 2, high: 4, count: 2}, {low: 8, high: 16, count: 1}]
//! ```
//! Empty bars are omitted. A list of bars, instead of one column per bar or `GROUP BY bar`, allows several distributions in one
//! row with sums and counts, in one pass over the rows.

use std::sync::Arc;

use super::Function;
use super::bar_counts::{BarCounts, Counted};
use crate::functions::bars::Bins;
use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Builder, Int64Array, Int64Builder, ListArray,
    RecordBatch, StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Field, FieldRef, Fields, Float64Type, Int64Type, Schema, UInt64Type,
};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, EmitTo, GroupsAccumulator,
    Signature, TypeSignature, Volatility,
};

pub(super) const QUANTIZE: Function = Function {
    usage: "quantize(x)",
    about: "distribution by powers of two: list of (low, high, count)",
    register: |context, _| {
        context.register_udaf(AggregateUDF::from(Quantize::new(Kind::Powers)));
    },
};

pub(super) const LQUANTIZE: Function = Function {
    usage: "lquantize(x, low, high [, step])",
    about: "distribution by equal steps, with a bar for lower and one for higher values",
    register: |context, _| {
        context.register_udaf(AggregateUDF::from(Quantize::new(Kind::Steps)));
    },
};

pub(super) const LLQUANTIZE: Function = Function {
    usage: "llquantize(x, factor, low, high, steps)",
    about: "distribution by equal steps within the powers factor^low to factor^(high+1)",
    register: |context, _| {
        context.register_udaf(AggregateUDF::from(Quantize::new(Kind::Magnitudes)));
    },
};

pub(super) const HISTOGRAM: Function = Function {
    usage: "histogram(x)",
    about: "distribution by steps of about 3%: list of (low, high, count, mean)",
    register: |context, _| {
        context.register_udaf(AggregateUDF::from(Quantize::new(Kind::Fine)));
    },
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Powers,
    Steps,
    Magnitudes,
    Fine,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Quantize {
    kind: Kind,
    signature: Signature,
}

impl Quantize {
    fn new(kind: Kind) -> Quantize {
        let with = |parameters: usize| {
            [DataType::Int64, DataType::Float64].map(|value| {
                let mut kinds = vec![value];
                kinds.resize(1 + parameters, DataType::Int64);
                TypeSignature::Exact(kinds)
            })
        };
        let forms = match kind {
            Kind::Powers | Kind::Fine => with(0).to_vec(),
            Kind::Steps => [with(2), with(3)].concat(),
            Kind::Magnitudes => with(4).to_vec(),
        };
        let signature = Signature::one_of(forms, Volatility::Immutable);
        Quantize { kind, signature }
    }

    /// Returns the bars selected by the arguments after the first.
    fn bins(&self, args: &AccumulatorArgs<'_>) -> Result<Bins> {
        let numbers: Result<Vec<i64>> = args.exprs[1..]
            .iter()
            .map(|argument| {
                let nothing = RecordBatch::new_empty(Arc::new(Schema::empty()));
                match argument.evaluate(&nothing) {
                    Ok(ColumnarValue::Scalar(ScalarValue::Int64(Some(number)))) => Ok(number),
                    _ => Err(DataFusionError::Plan(format!(
                        "{}: expected integers after the first argument",
                        self.name()
                    ))),
                }
            })
            .collect();
        let bins = match (self.kind, numbers?.as_slice()) {
            (Kind::Powers, _) => Ok(Bins::Powers),
            (Kind::Fine, _) => Ok(Bins::Fine),
            (Kind::Steps, &[low, high]) => Bins::steps(low, high, 1),
            (Kind::Steps, &[low, high, step]) => Bins::steps(low, high, step),
            (Kind::Magnitudes, &[factor, low, high, steps]) => {
                Bins::magnitudes(factor, low, high, steps)
            }
            (Kind::Steps | Kind::Magnitudes, _) => Err(format!("expected {}", self.name())),
        };
        bins.map_err(DataFusionError::Plan)
    }
}

impl AggregateUDFImpl for Quantize {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Powers => "quantize",
            Kind::Steps => "lquantize",
            Kind::Magnitudes => "llquantize",
            Kind::Fine => "histogram",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(bars_type(self.kind == Kind::Fine))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let state = DataType::List(item(DataType::Int64));
        Ok(vec![Arc::new(Field::new(
            format!("{}[bars]", args.name),
            state,
            true,
        ))])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            return Err(DataFusionError::Plan(format!(
                "{}: DISTINCT is not supported",
                self.name()
            )));
        }
        Ok(Box::new(One::new(self.bins(&args)?)))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(BarCounts::new(self.bins(&args)?)))
    }
}

fn item(kind: DataType) -> FieldRef {
    Arc::new(Field::new_list_field(kind, true))
}

/// Fields of a bar in SQL.
fn bar_fields(with_mean: bool) -> Fields {
    let mut fields = vec![
        Field::new("low", DataType::Int64, true),
        Field::new("high", DataType::Int64, true),
        Field::new("count", DataType::Int64, false),
    ];
    if with_mean {
        fields.push(Field::new("mean", DataType::Float64, false));
    }
    Fields::from(fields)
}

/// Type of a distribution; `low` and `high` (exclusive) are NULL if the bar is open.
fn bars_type(with_mean: bool) -> DataType {
    DataType::List(item(DataType::Struct(bar_fields(with_mean))))
}

/// The groups as lists of three numbers for each bar.
fn as_state(groups: &[Vec<Counted>]) -> Result<ArrayRef> {
    let numbers = groups.iter().flatten().flat_map(|counted| {
        [
            i64::from(counted.bar),
            counted.count,
            i64::from(counted.distance.to_bits()),
        ]
    });
    let numbers = Int64Array::from_iter_values(numbers);
    let offsets = OffsetBuffer::from_lengths(groups.iter().map(|bars| bars.len() * 3));
    let list = ListArray::try_new(item(DataType::Int64), offsets, Arc::new(numbers), None)?;
    Ok(Arc::new(list))
}

fn from_state(bar: &[i64]) -> Counted {
    Counted {
        bar: bar[0] as i32,
        count: bar[1],
        distance: f32::from_bits(bar[2] as u32),
    }
}

/// The groups as SQL values.
fn as_bars(bins: &Bins, groups: &[Vec<Counted>]) -> Result<ArrayRef> {
    let with_mean = *bins == Bins::Fine;
    let (mut lows, mut highs) = (Int64Builder::new(), Int64Builder::new());
    let (mut counts, mut means) = (Int64Builder::new(), Float64Builder::new());
    for counted in groups.iter().flatten() {
        let (low, high) = bins.range(counted.bar);
        lows.append_option(low);
        highs.append_option(high);
        counts.append_value(counted.count);
        let distance = f64::from(counted.distance);
        let outwards = if counted.bar < 0 { -distance } else { distance };
        means.append_value(bins.nearest(counted.bar) as f64 + outwards);
    }
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(lows.finish()),
        Arc::new(highs.finish()),
        Arc::new(counts.finish()),
    ];
    if with_mean {
        columns.push(Arc::new(means.finish()));
    }
    let fields = bar_fields(with_mean);
    let bars = StructArray::try_new(fields.clone(), columns, None)?;
    let offsets = OffsetBuffer::from_lengths(groups.iter().map(Vec::len));
    let list = ListArray::try_new(
        item(DataType::Struct(fields)),
        offsets,
        Arc::new(bars),
        None,
    )?;
    Ok(Arc::new(list))
}

/// Converts to integers: fractions are truncated, values beyond 63 bits saturate, NaN becomes NULL.
fn whole_numbers(values: &ArrayRef) -> Result<ArrayRef> {
    Ok(match values.data_type() {
        DataType::UInt64 => {
            let values = values.as_primitive::<UInt64Type>();
            let values =
                values.unary::<_, Int64Type>(|value| i64::try_from(value).unwrap_or(i64::MAX));
            Arc::new(values)
        }
        DataType::Float64 => {
            let values = values.as_primitive::<Float64Type>();
            // This cast saturates.
            let whole = |value: f64| (!value.is_nan()).then_some(value as i64);
            Arc::new(values.unary_opt::<_, Int64Type>(whole))
        }
        _ => cast(values, &DataType::Int64)?,
    })
}

impl GroupsAccumulator for BarCounts {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.grow(total_num_groups);
        let values = whole_numbers(&values[0])?;
        let values = values.as_primitive::<Int64Type>();
        let is_in = |row: usize| match opt_filter {
            Some(filter) => filter.is_valid(row) && filter.value(row),
            None => true,
        };
        let rows = group_indices.iter().enumerate();
        let counted = rows.filter(|&(row, _)| values.is_valid(row) && is_in(row));
        self.add_all(counted.map(|(row, &group)| (group, values.value(row))));
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let groups = self.take(emit_to);
        as_bars(&self.bins, &groups)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![as_state(&self.take(emit_to))?])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.grow(total_num_groups);
        let states = values[0].as_list::<i32>();
        for (row, &group) in group_indices.iter().enumerate() {
            let state = states.value(row);
            for bar in state.as_primitive::<Int64Type>().values().chunks_exact(3) {
                self.merge(group, from_state(bar));
            }
        }
        Ok(())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let mut rows = BarCounts::new(self.bins.clone());
        let each: Vec<usize> = (0..values[0].len()).collect();
        rows.update_batch(values, &each, opt_filter, each.len())?;
        rows.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        BarCounts::size(self)
    }
}

/// All rows as one group.
#[derive(Debug)]
struct One(BarCounts);

impl One {
    fn new(bins: Bins) -> One {
        let mut counts = BarCounts::new(bins);
        counts.grow(1);
        One(counts)
    }
}

impl Accumulator for One {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = whole_numbers(&values[0])?;
        let values = values.as_primitive::<Int64Type>();
        self.0
            .add_all(values.iter().flatten().map(|value| (0, value)));
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let groups = self.0.take(EmitTo::All);
        self.0.grow(1);
        ScalarValue::try_from_array(&as_bars(&self.0.bins, &groups)?, 0)
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let groups = self.0.take(EmitTo::All);
        self.0.grow(1);
        Ok(vec![ScalarValue::try_from_array(&as_state(&groups)?, 0)?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let states = states[0].as_list::<i32>();
        for row in 0..states.len() {
            let state = states.value(row);
            for bar in state.as_primitive::<Int64Type>().values().chunks_exact(3) {
                self.0.merge(0, from_state(bar));
            }
        }
        Ok(())
    }
}
