//! `quantile(x, q)`: the value that a fraction `q` of all values does not exceed; `quantiles(x, q, …)`: several in one pass.
//!
//! ```text
//! SELECT quantile(duration, 0.99), quantiles(duration, 0.5, 0.95) FROM calls      36344   [1200, 8000]
//! ```
//! Up to 100,000 values, the result is one of them (nearest rank); above, it is within 1% ([`super::sketch`]). Once all groups together
//! have more than 256 MiB of values, this limit is 8,192: 10,000 groups of 100,000 values would take 8 GB. Replaces DataFusion's
//! approximate functions too, which have no error bound.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Float64Array, Int64Array,
    LargeListArray, ListArray, PrimitiveArray, RecordBatch, UInt64Array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type, Schema, UInt64Type};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, EmitTo, GroupsAccumulator,
    Signature, Volatility,
};

use super::Function;
use super::sketch::{self, Kind, Sketch};

pub(super) const QUANTILE: Function = Function {
    usage: "quantile(x, q)",
    about: "quantile, within 1%; exact up to 100,000 values: quantile(duration, 0.99)",
    register: |context, _| {
        context.register_udaf(AggregateUDF::from(Quantile::new(Form::One)));
        context.register_udaf(AggregateUDF::from(Quantile::new(Form::Median)));
        // Weighted and without an error bound; not needed in addition to the others.
        context.deregister_udaf("approx_percentile_cont_with_weight");
    },
};

pub(super) const QUANTILES: Function = Function {
    usage: "quantiles(x, q, …)",
    about: "list of several quantiles in one pass: quantiles(duration, 0.5, 0.95, 0.99)",
    register: |context, _| {
        context.register_udaf(AggregateUDF::from(Quantile::new(Form::Several)));
    },
};

/// Bytes of all groups, above which the exact values of each are limited.
const MANY_BYTES: usize = 256 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Form {
    One,
    Median,
    Several,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Quantile {
    form: Form,
    aliases: Vec<String>,
    signature: Signature,
}

impl Quantile {
    fn new(form: Form) -> Quantile {
        let aliases: &[&str] = match form {
            Form::One => &["approx_quantile", "approx_percentile_cont"],
            Form::Median | Form::Several => &[],
        };
        Quantile {
            form,
            aliases: aliases.iter().map(|&name| name.to_owned()).collect(),
            signature: Signature::user_defined(Volatility::Immutable),
        }
    }

    fn groups(&self, args: &AccumulatorArgs<'_>) -> Result<Sketches> {
        if args.is_distinct {
            let text = format!("{}: DISTINCT is not supported", self.name());
            return Err(DataFusionError::Plan(text));
        }
        let kind = match args.expr_fields[0].data_type() {
            DataType::UInt64 => Kind::Unsigned,
            DataType::Float64 => Kind::Float,
            _ => Kind::Signed,
        };
        let mut shares: Vec<f64> = match self.form {
            Form::Median => vec![0.5],
            // A third argument of approx_percentile_cont sets DataFusion's accuracy.
            Form::One => vec![share(self.name(), args, 1)?],
            Form::Several => {
                let each = 1..args.exprs.len();
                each.map(|place| share(self.name(), args, place))
                    .collect::<Result<_>>()?
            }
        };
        if is_descending(args) {
            shares.iter_mut().for_each(|share| *share = 1.0 - *share);
        }
        Ok(Sketches {
            kind,
            shares,
            is_list: self.form == Form::Several,
            sketches: Vec::new(),
            bytes: 0,
            exact: sketch::EXACT,
        })
    }
}

/// The fraction that an argument of a function is.
pub(super) fn share(function: &str, args: &AccumulatorArgs<'_>, place: usize) -> Result<f64> {
    let nothing = RecordBatch::new_empty(Arc::new(Schema::empty()));
    let found = match args.exprs[place].evaluate(&nothing) {
        Ok(ColumnarValue::Scalar(ScalarValue::Float64(Some(share)))) => {
            if (0.0..=1.0).contains(&share) {
                return Ok(share);
            }
            share.to_string()
        }
        Ok(ColumnarValue::Scalar(_)) => "NULL".to_owned(),
        Ok(ColumnarValue::Array(_)) | Err(_) => "an expression".to_owned(),
    };
    Err(DataFusionError::Plan(format!(
        "{function}: expected a fraction from 0 to 1, such as 0.99, found {found}"
    )))
}

/// `WITHIN GROUP (ORDER BY x DESC)`
pub(super) fn is_descending(args: &AccumulatorArgs<'_>) -> bool {
    let first = args.order_bys.first();
    first.is_some_and(|sort| sort.options.descending)
}

impl AggregateUDFImpl for Quantile {
    fn name(&self) -> &str {
        match self.form {
            Form::One => "quantile",
            Form::Median => "approx_median",
            Form::Several => "quantiles",
        }
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, kinds: &[DataType]) -> Result<Vec<DataType>> {
        let is_number = kinds.iter().all(|kind| kind.is_numeric() || kind.is_null());
        let fits = match self.form {
            Form::One => matches!(kinds.len(), 2 | 3),
            Form::Median => kinds.len() == 1,
            Form::Several => kinds.len() > 1,
        };
        if !(is_number && fits) {
            let text = format!("Function '{}' failed to match any signature", self.name());
            return Err(DataFusionError::Plan(text));
        }
        let mut coerced = vec![DataType::Float64; kinds.len()];
        coerced[0] = match &kinds[0] {
            DataType::UInt64 => DataType::UInt64,
            kind if kind.is_integer() || kind.is_null() => DataType::Int64,
            _ => DataType::Float64,
        };
        Ok(coerced)
    }

    fn return_type(&self, kinds: &[DataType]) -> Result<DataType> {
        Ok(match self.form {
            Form::One | Form::Median => kinds[0].clone(),
            Form::Several => DataType::List(item(kinds[0].clone())),
        })
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let list = |part| {
            let kind = DataType::LargeList(item(DataType::UInt64));
            Arc::new(Field::new(format!("{}[{part}]", args.name), kind, true))
        };
        Ok(vec![list("values"), list("bars")])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let mut groups = self.groups(&args)?;
        groups.grow(1);
        Ok(Box::new(One(groups)))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(self.groups(&args)?))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn supports_within_group_clause(&self) -> bool {
        self.form == Form::One
    }
}

fn item(kind: DataType) -> FieldRef {
    Arc::new(Field::new_list_field(kind, true))
}

/// The sketches of all groups.
#[derive(Debug)]
struct Sketches {
    kind: Kind,
    shares: Vec<f64>,
    /// Whether the result is a list instead of a single quantile.
    is_list: bool,
    sketches: Vec<Sketch>,
    bytes: usize,
    /// Values of a group that are kept.
    exact: usize,
}

impl Sketches {
    fn grow(&mut self, groups: usize) {
        if groups > self.sketches.len() {
            self.sketches.resize_with(groups, Sketch::default);
        }
    }

    fn size(&self) -> usize {
        self.bytes + self.sketches.capacity() * size_of::<Sketch>()
    }

    /// Limits the exact values of each group if all together are too many.
    fn limit(&mut self, many: usize) {
        if self.bytes <= many || self.exact == sketch::EXACT_OF_MANY {
            return;
        }
        self.exact = sketch::EXACT_OF_MANY;
        for sketch in &mut self.sketches {
            sketch.limit(self.kind, self.exact);
        }
        self.bytes = self.sketches.iter().map(Sketch::size).sum();
    }

    /// Adds the values of rows that are not NULL, each to its group.
    fn add(&mut self, values: &ArrayRef, groups: impl Fn(usize) -> Option<usize>) {
        match self.kind {
            Kind::Signed => self.add_keys(values.as_primitive::<Int64Type>(), groups, |value| {
                Some(sketch::of_signed(value))
            }),
            Kind::Unsigned => self.add_keys(values.as_primitive::<UInt64Type>(), groups, Some),
            Kind::Float => {
                self.add_keys(
                    values.as_primitive::<Float64Type>(),
                    groups,
                    sketch::of_float,
                );
            }
        }
    }

    fn add_keys<T: ArrowPrimitiveType>(
        &mut self,
        values: &PrimitiveArray<T>,
        groups: impl Fn(usize) -> Option<usize>,
        key: impl Fn(T::Native) -> Option<u64>,
    ) {
        for row in 0..values.len() {
            if values.is_null(row) {
                continue;
            }
            if let (Some(group), Some(key)) = (groups(row), key(values.value(row))) {
                let sketch = &mut self.sketches[group];
                let before = sketch.size();
                sketch.add(self.kind, self.exact, key);
                self.bytes = (self.bytes + sketch.size()).saturating_sub(before);
            }
        }
        self.limit(MANY_BYTES);
    }

    /// Adds sketches of other accumulators, each to its group.
    fn merge(&mut self, states: &[ArrayRef], groups: impl Fn(usize) -> usize) {
        let lists = [&states[0], &states[1]].map(|state| state.as_list::<i64>());
        for row in 0..lists[0].len() {
            let [keys, bars] = lists.map(|list| list.value(row));
            let sketch = &mut self.sketches[groups(row)];
            let before = sketch.size();
            let keys = keys.as_primitive::<UInt64Type>().values();
            sketch.extend(self.kind, self.exact, keys);
            sketch.merge_bars(self.kind, bars.as_primitive::<UInt64Type>().values());
            self.bytes = (self.bytes + sketch.size()).saturating_sub(before);
            self.limit(MANY_BYTES);
        }
    }

    fn take(&mut self, emit_to: EmitTo) -> Vec<Sketch> {
        let taken = emit_to.take_needed(&mut self.sketches);
        let bytes: usize = taken.iter().map(Sketch::size).sum();
        self.bytes = self.bytes.saturating_sub(bytes);
        taken
    }

    fn quantiles(&self, mut sketches: Vec<Sketch>) -> Result<ArrayRef> {
        let count = sketches.len();
        let of = |sketch: &mut Sketch| sketch.quantiles(self.kind, &self.shares);
        let keys = sketches.iter_mut().flat_map(of);
        let values: ArrayRef = match self.kind {
            Kind::Signed => {
                let values = keys.map(|key| key.map(sketch::signed));
                Arc::new(values.collect::<Int64Array>())
            }
            Kind::Unsigned => Arc::new(keys.collect::<UInt64Array>()),
            Kind::Float => {
                let values = keys.map(|key| key.map(sketch::float));
                Arc::new(values.collect::<Float64Array>())
            }
        };
        if !self.is_list {
            return Ok(values);
        }
        let offsets = OffsetBuffer::from_repeated_length(self.shares.len(), count);
        let item = item(values.data_type().clone());
        Ok(Arc::new(ListArray::try_new(item, offsets, values, None)?))
    }
}

fn as_state(sketches: &[Sketch]) -> Result<Vec<ArrayRef>> {
    let count = |sketch: &Sketch| match sketch {
        Sketch::Exact(keys) => keys.len(),
        Sketch::Bars(_) => 0,
    };
    let mut keys = Vec::with_capacity(sketches.iter().map(count).sum());
    let mut bars = Vec::new();
    let (mut key_lengths, mut bar_lengths) = (Vec::new(), Vec::new());
    for sketch in sketches {
        let (own, parts) = sketch.parts();
        keys.extend_from_slice(own);
        key_lengths.push(own.len());
        bar_lengths.push(parts.len());
        bars.extend(parts);
    }
    let list = |values: Vec<u64>, lengths: Vec<usize>| -> Result<ArrayRef> {
        let offsets = OffsetBuffer::from_lengths(lengths);
        let values = Arc::new(UInt64Array::from(values));
        let list = LargeListArray::try_new(item(DataType::UInt64), offsets, values, None)?;
        Ok(Arc::new(list))
    };
    Ok(vec![list(keys, key_lengths)?, list(bars, bar_lengths)?])
}

/// Values in the type of the sketches: DataFusion coerces them, but not those of a NULL.
fn in_kind(kind: Kind, values: &ArrayRef) -> Result<ArrayRef> {
    let wanted = match kind {
        Kind::Signed => DataType::Int64,
        Kind::Unsigned => DataType::UInt64,
        Kind::Float => DataType::Float64,
    };
    Ok(cast(values, &wanted)?)
}

impl GroupsAccumulator for Sketches {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.grow(total_num_groups);
        let is_in =
            |row: usize| opt_filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
        let group = |row: usize| is_in(row).then(|| group_indices[row]);
        self.add(&in_kind(self.kind, &values[0])?, group);
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sketches = self.take(emit_to);
        self.quantiles(sketches)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        as_state(&self.take(emit_to))
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.grow(total_num_groups);
        self.merge(values, |row| group_indices[row]);
        Ok(())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let mut rows = Sketches {
            kind: self.kind,
            shares: Vec::new(),
            is_list: false,
            sketches: Vec::new(),
            bytes: 0,
            exact: self.exact,
        };
        let each: Vec<usize> = (0..values[0].len()).collect();
        rows.update_batch(values, &each, opt_filter, each.len())?;
        as_state(&rows.sketches)
    }

    fn size(&self) -> usize {
        Sketches::size(self)
    }
}

/// All rows as one group.
#[derive(Debug)]
struct One(Sketches);

impl Accumulator for One {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.add(&in_kind(self.0.kind, &values[0])?, |_| Some(0));
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        // A growing window evaluates this repeatedly.
        let quantiles = self.0.quantiles(self.0.sketches.clone())?;
        ScalarValue::try_from_array(&quantiles, 0)
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let state = as_state(&self.0.sketches)?;
        state
            .iter()
            .map(|column| ScalarValue::try_from_array(column, 0))
            .collect()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge(states, |_| 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups of so many values each: 1, 2, 3, …
    fn filled(count: usize, groups: usize, many: usize) -> Sketches {
        let mut all = Sketches {
            kind: Kind::Signed,
            shares: vec![0.5, 1.0],
            is_list: false,
            sketches: Vec::new(),
            bytes: 0,
            exact: sketch::EXACT,
        };
        all.grow(groups);
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(1..=count as i64));
        for group in 0..groups {
            all.add(&values, |_| Some(group));
            all.limit(many);
        }
        all
    }

    #[test]
    fn groups_that_have_too_many_values_together_are_within_one_per_cent() {
        let count = 20_000;
        let exact = filled(count, 10, usize::MAX);
        let mut limited = filled(count, 10, 1 << 20);
        assert!(limited.bytes < exact.bytes / 2, "{}", limited.bytes);
        assert_eq!(
            limited.bytes,
            limited.sketches.iter().map(Sketch::size).sum::<usize>()
        );
        let sketches = limited.take(EmitTo::All);
        assert_eq!(limited.bytes, 0);
        let found = limited.quantiles(sketches).unwrap();
        for pair in found.as_primitive::<Int64Type>().values().chunks_exact(2) {
            assert!((pair[0] - 10_000).abs() <= 100, "{pair:?}");
            assert_eq!(pair[1], 20_000);
        }
        // Small groups stay exact.
        let small = filled(8_000, 30, 1 << 20);
        assert!(
            small
                .sketches
                .iter()
                .all(|sketch| matches!(sketch, Sketch::Exact(_)))
        );
    }
}
