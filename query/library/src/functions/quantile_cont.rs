//! `quantile_cont(x, q)`, or `percentile_cont(x, q)`: the value at a fraction `q` of the sorted values, between two of them by
//! linear interpolation, exact for any number of values.
//!
//! ```text
//! SELECT quantile_cont(x, 0.99) FROM (VALUES (1), (2), (3), (1000000)) AS v(x)      970000.09
//! ```
//! DataFusion's function gathers the values; its own interpolation keeps six digits of the weight: 969999.09.

use arrow::array::{ArrayRef, AsArray, BooleanArray, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Float64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_aggregate::percentile_cont::PercentileCont;
use datafusion::logical_expr::function::{
    AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs,
};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature,
};

use super::{Function, quantile};

pub(super) const FUNCTION: Function = Function {
    usage: "quantile_cont(x, q)",
    about: "quantile by interpolation, exact: quantile_cont(duration, 0.99)",
    register: |context, _| {
        context.register_udaf(AggregateUDF::from(QuantileCont(PercentileCont::new())));
    },
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct QuantileCont(PercentileCont);

impl AggregateUDFImpl for QuantileCont {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn aliases(&self) -> &[String] {
        self.0.aliases()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, kinds: &[DataType]) -> Result<DataType> {
        self.0.return_type(kinds)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.0.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if args.expr_fields[0].data_type().is_null() {
            return self.0.accumulator(args);
        }
        Ok(Box::new(Exact {
            share: share(&args)?,
            kind: args.return_field.data_type().clone(),
            values: self.0.accumulator(args)?,
        }))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.0.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(Exact {
            share: share(&args)?,
            kind: args.return_field.data_type().clone(),
            values: self.0.create_groups_accumulator(args)?,
        }))
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        self.0.simplify()
    }

    fn supports_within_group_clause(&self) -> bool {
        self.0.supports_within_group_clause()
    }
}

/// The fraction, from the end if the values are in descending order.
fn share(args: &AccumulatorArgs<'_>) -> Result<f64> {
    let share = quantile::share("quantile_cont", args, 1)?;
    Ok(match quantile::is_descending(args) {
        true => 1.0 - share,
        false => share,
    })
}

/// What gathers the values, whose state is a list of them.
#[derive(Debug)]
struct Exact<V> {
    share: f64,
    /// The type of the result.
    kind: DataType,
    values: V,
}

impl<V> Exact<V> {
    /// The quantile of each list.
    fn of_lists(&self, lists: &ArrayRef) -> Result<ArrayRef> {
        let each = lists.as_list::<i32>().iter().map(|list| {
            let Some(list) = list else {
                return Ok(None);
            };
            let values = cast(&list, &DataType::Float64)?;
            let values = values.as_primitive::<Float64Type>().iter().flatten();
            Ok(value_at(&mut values.collect::<Vec<f64>>(), self.share))
        });
        let quantiles: Float64Array = each.collect::<Result<_>>()?;
        Ok(cast(&quantiles, &self.kind)?)
    }
}

/// The value at a fraction of the sorted values; `None` without values.
fn value_at(values: &mut [f64], share: f64) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    let place = share * last as f64;
    let lower = (place.floor() as usize).min(last);
    let (_, &mut below, above) = values.select_nth_unstable_by(lower, f64::total_cmp);
    let above = above.iter().copied().min_by(f64::total_cmp);
    let weight = place - place.floor();
    Some(match above {
        Some(above) if weight > 0.0 => below + (above - below) * weight,
        _ => below,
    })
}

impl Accumulator for Exact<Box<dyn Accumulator>> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.update_batch(values)
    }

    /// A growing window evaluates this repeatedly, so the values are put back.
    fn evaluate(&mut self) -> Result<ScalarValue> {
        let states = self.values.state()?.into_iter();
        let lists: Vec<ArrayRef> = states.map(|list| list.to_array()).collect::<Result<_>>()?;
        let quantile = ScalarValue::try_from_array(&self.of_lists(&lists[0])?, 0)?;
        self.values.merge_batch(&lists)?;
        Ok(quantile)
    }

    fn size(&self) -> usize {
        self.values.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.values.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.values.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.values.supports_retract_batch()
    }
}

impl GroupsAccumulator for Exact<Box<dyn GroupsAccumulator>> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.values
            .update_batch(values, group_indices, opt_filter, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let states = self.values.state(emit_to)?;
        self.of_lists(&states[0])
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.values.state(emit_to)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.values
            .merge_batch(values, group_indices, total_num_groups)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.values.convert_to_state(values, opt_filter)
    }

    fn size(&self) -> usize {
        self.values.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_between_their_neighbors() {
        let mut values = [1e6, 1.0, 3.0, 2.0];
        assert_eq!(value_at(&mut values, 0.3), Some(1.9));
        assert_eq!(value_at(&mut values, 0.5), Some(2.5));
        assert_eq!(value_at(&mut values, 0.0), Some(1.0));
        assert_eq!(value_at(&mut values, 1.0), Some(1e6));
        assert_eq!(value_at(&mut [], 0.5), None);
    }
}
