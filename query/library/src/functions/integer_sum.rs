//! The state of `sum(x)` of integers: 128 bits, in which no number of rows overflows.
//!
//! ```text
//! rows of group 0, 1, 0: 7, NULL, 5      sums 12, 0      has_value true, false: the second sum is NULL
//! ```
//! DataFusion's own state has the type of the result, so that each value would be converted to a decimal first.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Decimal128Array, PrimitiveArray,
};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

/// Digits of integer totals.
const DIGITS: u8 = 38;

/// Type of integer totals.
pub const TOTAL: DataType = DataType::Decimal128(DIGITS, 0);

/// Type of integers as decimals: `sum` adds ten digits to these 28.
pub(super) const TERM: DataType = DataType::Decimal128(DIGITS - 10, 0);

/// Sums of groups.
#[derive(Debug)]
pub(super) struct GroupSums<T> {
    sums: Vec<i128>,
    has_value: Vec<bool>,
    kind: PhantomData<fn() -> T>,
}

impl<T> GroupSums<T> {
    pub(super) fn new() -> GroupSums<T> {
        GroupSums {
            sums: Vec::new(),
            has_value: Vec::new(),
            kind: PhantomData,
        }
    }

    /// Adds the values of the rows that are neither NULL nor filtered out, each to its group.
    fn add<V: ArrowPrimitiveType<Native: Into<i128>>>(
        &mut self,
        values: &PrimitiveArray<V>,
        groups: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) {
        self.sums.resize(group_count, 0);
        self.has_value.resize(group_count, false);
        let mut add = |group: usize, value: V::Native| {
            self.sums[group] = self.sums[group].wrapping_add(value.into());
            self.has_value[group] = true;
        };
        let rows = groups.iter().zip(values.values());
        match selected(values, filter) {
            None => rows.for_each(|(&group, &value)| add(group, value)),
            Some(selected) => (rows.zip(&selected))
                .filter(|(_, is_selected)| *is_selected)
                .for_each(|((&group, &value), _)| add(group, value)),
        }
    }
}

/// The rows that are neither NULL nor filtered out; `None` if these are all rows.
fn selected(values: &dyn Array, filter: Option<&BooleanArray>) -> Option<NullBuffer> {
    let passes = filter.map(|filter| match filter.nulls() {
        Some(nulls) => NullBuffer::new(filter.values() & nulls.inner()),
        None => NullBuffer::new(filter.values().clone()),
    });
    let nulls = values.nulls().filter(|nulls| nulls.null_count() > 0);
    NullBuffer::union(nulls, passes.as_ref())
}

fn totals(sums: Vec<i128>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    let totals = Decimal128Array::try_new(sums.into(), nulls)?;
    Ok(Arc::new(totals.with_precision_and_scale(DIGITS, 0)?))
}

impl<T> GroupsAccumulator for GroupSums<T>
where
    T: ArrowPrimitiveType<Native: Into<i128>>,
{
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        let values = values[0].as_primitive::<T>();
        self.add(values, group_indices, opt_filter, total_num_groups);
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = emit_to.take_needed(&mut self.sums);
        let has_value = emit_to.take_needed(&mut self.has_value);
        totals(sums, Some(NullBuffer::from(has_value)))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit_to)?])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        let sums = values[0].as_primitive::<Decimal128Type>();
        self.add(sums, group_indices, None, total_num_groups);
        Ok(())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = values[0].as_primitive::<T>();
        let sums = values.values().iter().map(|&value| value.into());
        Ok(vec![totals(sums.collect(), selected(values, opt_filter))?])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.has_value.capacity()
    }
}

/// The sum of all rows, or of a window's.
#[derive(Debug)]
pub(super) struct Sum<T> {
    sum: i128,
    /// Number of values.
    count: u64,
    kind: PhantomData<fn() -> T>,
}

impl<T> Sum<T> {
    pub(super) fn new() -> Sum<T> {
        Sum {
            sum: 0,
            count: 0,
            kind: PhantomData,
        }
    }
}

/// The sum of an array's values, and their number.
fn sum_of<V: ArrowPrimitiveType<Native: Into<i128>>>(values: &ArrayRef) -> (i128, u64) {
    let values = values.as_primitive::<V>();
    let count = (values.len() - values.null_count()) as u64;
    let add = |sum: i128, value: V::Native| sum.wrapping_add(value.into());
    let sum = match count == values.len() as u64 {
        true => values.values().iter().copied().fold(0, add),
        false => values.iter().flatten().fold(0, add),
    };
    (sum, count)
}

impl<T> Accumulator for Sum<T>
where
    T: ArrowPrimitiveType<Native: Into<i128>> + Debug,
{
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (sum, count) = sum_of::<T>(&values[0]);
        self.sum = self.sum.wrapping_add(sum);
        self.count += count;
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = (self.count > 0).then_some(self.sum);
        Ok(ScalarValue::Decimal128(sum, DIGITS, 0))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let (sum, count) = sum_of::<Decimal128Type>(&states[0]);
        self.sum = self.sum.wrapping_add(sum);
        self.count += count;
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (sum, count) = sum_of::<T>(&values[0]);
        self.sum = self.sum.wrapping_sub(sum);
        self.count -= count;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }
}

/// The sum of distinct values, which DataFusion computes from decimals.
#[derive(Debug)]
pub(super) struct DistinctSum(pub(super) Box<dyn Accumulator>);

impl Accumulator for DistinctSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(&[cast(&values[0], &TERM)?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.0.evaluate()
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, UInt64Array};
    use arrow::datatypes::{Int64Type, UInt64Type};

    fn sums(array: ArrayRef) -> Vec<Option<i128>> {
        array.as_primitive::<Decimal128Type>().iter().collect()
    }

    #[test]
    fn nulls_and_filtered_rows_are_left_out() {
        let values: ArrayRef = Arc::new(Int64Array::from(vec![
            Some(i64::MAX),
            None,
            Some(i64::MAX),
            Some(5),
            Some(7),
        ]));
        let filter =
            BooleanArray::from(vec![Some(true), Some(true), Some(true), None, Some(false)]);
        let mut groups = GroupSums::<Int64Type>::new();
        groups
            .update_batch(&[Arc::clone(&values)], &[0, 1, 0, 2, 2], Some(&filter), 3)
            .unwrap();
        let state = groups.convert_to_state(&[values], Some(&filter)).unwrap();
        let max = i128::from(i64::MAX);
        assert_eq!(
            sums(Arc::clone(&state[0])),
            [Some(max), None, Some(max), None, None]
        );
        // The states of rows, added to those of groups.
        groups.merge_batch(&state, &[3, 3, 0, 1, 1], 4).unwrap();
        assert_eq!(
            sums(groups.evaluate(EmitTo::First(1)).unwrap()),
            [Some(3 * max)]
        );
        assert_eq!(
            sums(groups.evaluate(EmitTo::All).unwrap()),
            [None, None, Some(max)]
        );
    }

    #[test]
    fn a_moving_sum_of_nothing_is_null() {
        let values =
            |values: &[Option<u64>]| -> ArrayRef { Arc::new(UInt64Array::from(values.to_vec())) };
        let mut sum = Sum::<UInt64Type>::new();
        let total = |sum: &mut Sum<UInt64Type>| match sum.evaluate().unwrap() {
            ScalarValue::Decimal128(total, DIGITS, 0) => total,
            other => panic!("{other:?}"),
        };
        sum.update_batch(&[values(&[])]).unwrap();
        assert_eq!(total(&mut sum), None);
        sum.update_batch(&[values(&[Some(u64::MAX), None, Some(1)])])
            .unwrap();
        assert_eq!(total(&mut sum), Some(1 << 64));
        sum.retract_batch(&[values(&[Some(u64::MAX), None])])
            .unwrap();
        assert_eq!(total(&mut sum), Some(1));
        sum.retract_batch(&[values(&[Some(1)])]).unwrap();
        assert_eq!(total(&mut sum), None);
    }
}
