//! Columns of times and other numbers as 64-bit integers in the same order, for operators that compare one number per row.
//!
//! ```text
//! int32 -1  →  -1      uint64 0  →  -9223372036854775808      float64 -0.0  →  -1, as Arrow orders it below 0.0
//! ```

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Date64Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, Time32MillisecondType, Time32SecondType, TimeUnit, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use datafusion::error::{DataFusionError, Result};

/// A column as integers in the order of its values.
#[derive(Debug, Clone)]
pub(crate) struct Integers {
    pub(crate) values: ScalarBuffer<i64>,
    pub(crate) nulls: Option<NullBuffer>,
}

impl Integers {
    /// Whether a column of this type has such integers.
    pub(crate) fn hold(kind: &DataType) -> bool {
        use DataType::*;
        matches!(
            kind,
            Int8 | Int16
                | Int32
                | Int64
                | UInt8
                | UInt16
                | UInt32
                | UInt64
                | Float32
                | Float64
                | Date32
                | Date64
                | Timestamp(_, _)
                | Duration(_)
                | Time32(_)
                | Time64(_)
        )
    }

    /// Converts a column; the types are those of [`Integers::hold`].
    pub(crate) fn of(array: &ArrayRef) -> Result<Integers> {
        use DataType::*;
        let values = match array.data_type() {
            Int8 => mapped::<Int8Type>(array, i64::from),
            Int16 => mapped::<Int16Type>(array, i64::from),
            Int32 => mapped::<Int32Type>(array, i64::from),
            UInt8 => mapped::<UInt8Type>(array, i64::from),
            UInt16 => mapped::<UInt16Type>(array, i64::from),
            UInt32 => mapped::<UInt32Type>(array, i64::from),
            UInt64 => mapped::<UInt64Type>(array, |value| (value ^ (1 << 63)) as i64),
            Float32 => mapped::<Float32Type>(array, |value| {
                let bits = value.to_bits() as i32;
                i64::from(bits ^ ((bits >> 31) as u32 >> 1) as i32)
            }),
            Float64 => mapped::<Float64Type>(array, |value| {
                let bits = value.to_bits() as i64;
                bits ^ ((bits >> 63) as u64 >> 1) as i64
            }),
            Date32 => mapped::<Date32Type>(array, i64::from),
            Time32(TimeUnit::Second) => mapped::<Time32SecondType>(array, i64::from),
            Time32(_) => mapped::<Time32MillisecondType>(array, i64::from),
            Int64 => array.as_primitive::<Int64Type>().values().clone(),
            Date64 => array.as_primitive::<Date64Type>().values().clone(),
            Timestamp(_, _) | Duration(_) | Time64(_) => {
                // All of these are 64-bit integers.
                let data = array.to_data();
                ScalarBuffer::new(data.buffers()[0].clone(), data.offset(), data.len())
            }
            other => {
                return Err(DataFusionError::Internal(format!(
                    "expected numbers or times, found {other}"
                )));
            }
        };
        Ok(Integers {
            values,
            nulls: array.logical_nulls().filter(|nulls| nulls.null_count() > 0),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    #[inline]
    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// The integers in the opposite order.
    pub(crate) fn reversed(self) -> Integers {
        Integers {
            values: self.values.iter().map(|value| !value).collect(),
            nulls: self.nulls,
        }
    }

    /// The first and last value, if they ascend apart from NULLs; `Some(None)` without any value.
    pub(crate) fn ascending(&self) -> Option<Option<(i64, i64)>> {
        let Some(nulls) = &self.nulls else {
            let follow = self.values.iter().zip(self.values.iter().skip(1));
            let ascend = follow.fold(true, |holds, (a, b)| holds & (a <= b));
            let ends = self
                .values
                .first()
                .copied()
                .zip(self.values.last().copied());
            return ascend.then_some(ends);
        };
        let mut ends: Option<(i64, i64)> = None;
        for row in nulls.valid_indices() {
            let value = self.values[row];
            match &mut ends {
                Some((_, last)) if *last > value => return None,
                Some((_, last)) => *last = value,
                None => ends = Some((value, value)),
            }
        }
        Some(ends)
    }

    /// The integer of a row; NULL is below all others.
    #[inline]
    pub(crate) fn key(&self, row: usize) -> Option<i64> {
        (!self.is_null(row)).then(|| self.values[row])
    }

    /// The ends of groups of neighbors that are equal.
    pub(crate) fn ends_of_equals(&self) -> Vec<usize> {
        let rows = self.len();
        let ends = (1..rows).filter(|&row| match &self.nulls {
            None => self.values[row] != self.values[row - 1],
            Some(_) => self.key(row) != self.key(row - 1),
        });
        ends.chain((rows > 0).then_some(rows)).collect()
    }

    /// Number of NULLs that precede the values, if the column ascends with NULL first; `None` if it does not.
    pub(crate) fn leading_nulls(&self) -> Option<usize> {
        let nulls = self.nulls.as_ref().map_or(0, NullBuffer::null_count);
        let are_first = (0..nulls).all(|row| self.is_null(row));
        let values = &self.values[nulls..];
        let follow = values.iter().zip(values.iter().skip(1));
        (are_first && follow.fold(true, |holds, (a, b)| holds & (a <= b))).then_some(nulls)
    }
}

fn mapped<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    order: impl Fn(T::Native) -> i64,
) -> ScalarBuffer<i64> {
    let values: &PrimitiveArray<T> = array.as_primitive::<T>();
    values.values().iter().map(|&value| order(value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        Float32Array, Float64Array, Int8Array, Int64Array, TimestampNanosecondArray, UInt64Array,
    };
    use arrow::compute::{SortOptions, sort_to_indices};
    use std::sync::Arc;

    /// The integers are in the order in which Arrow sorts the values.
    fn check(array: ArrayRef) {
        assert!(Integers::hold(array.data_type()));
        let sorted = sort_to_indices(&array, Some(SortOptions::default()), None).unwrap();
        let integers = Integers::of(&array).unwrap();
        let values: Vec<i64> = (sorted.values().iter())
            .filter(|&&row| !array.is_null(row as usize))
            .map(|&row| integers.values[row as usize])
            .collect();
        assert!(values.is_sorted(), "{array:?}: {values:?}");
        let distinct = values.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert_eq!(distinct, 0, "{array:?}: {values:?}");
    }

    #[test]
    fn integers_keep_the_order() {
        check(Arc::new(Int8Array::from(vec![
            Some(3),
            None,
            Some(-3),
            Some(i8::MIN),
        ])));
        check(Arc::new(UInt64Array::from(vec![u64::MAX, 0, 1 << 63, 7])));
        check(Arc::new(Float64Array::from(vec![
            1.5,
            -0.0,
            0.0,
            f64::NEG_INFINITY,
            f64::NAN,
            -2.0,
            f64::MAX,
        ])));
        check(Arc::new(Float32Array::from(vec![
            1.5,
            -0.0,
            0.0,
            f32::INFINITY,
            -7.25,
        ])));
        let times = TimestampNanosecondArray::from(vec![Some(5), None, Some(-4), Some(9)]);
        check(Arc::new(times.slice(1, 3)));
    }

    #[test]
    fn order_is_recognized() {
        let nulls_of = |values: Vec<Option<i64>>| {
            let array: ArrayRef = Arc::new(Int64Array::from(values));
            Integers::of(&array).unwrap().leading_nulls()
        };
        assert_eq!(nulls_of(vec![]), Some(0));
        assert_eq!(nulls_of(vec![Some(1), Some(1), Some(4)]), Some(0));
        assert_eq!(nulls_of(vec![None, None, Some(-4)]), Some(2));
        assert_eq!(nulls_of(vec![Some(1), None]), None);
        assert_eq!(nulls_of(vec![None, Some(1), Some(0)]), None);
    }
}
