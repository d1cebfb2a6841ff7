//! Aggregates of all rows of a key up to each row.
//!
//! ```text
//! times 1 2 2 3, values 5 1 NULL 4      sum, ROWS: 5 6 6 10      sum, RANGE: 5 6 6 10, count, RANGE: 1 2 2 3
//! ```

use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Decimal128Array, Int64Array, PrimitiveArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use datafusion::error::Result;

/// The type of sums that do not wrap: of the function `sum` of this library, and not of DataFusion's own.
const TOTAL: DataType = DataType::Decimal128(38, 0);

/// A function of many values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aggregate {
    /// Of 64-bit integers, signed or not.
    Sum,
    Count,
    /// Of signed 64-bit integers.
    Least,
    Greatest,
}

impl Aggregate {
    /// The function of this name, if it is known for values of this type.
    pub(super) fn of(name: &str, kind: &DataType) -> Option<Aggregate> {
        match (name, kind) {
            ("sum", DataType::Int64 | DataType::UInt64) => Some(Aggregate::Sum),
            ("count", _) => Some(Aggregate::Count),
            ("min", DataType::Int64) => Some(Aggregate::Least),
            ("max", DataType::Int64) => Some(Aggregate::Greatest),
            _ => None,
        }
    }

    pub(super) fn result(self) -> DataType {
        match self {
            Aggregate::Sum => TOTAL,
            Aggregate::Count | Aggregate::Least | Aggregate::Greatest => DataType::Int64,
        }
    }
}

/// The state of each key.
#[derive(Debug)]
pub(super) enum Running {
    /// The sum, and whether it has a value.
    Sums(Vec<(i128, bool)>),
    Counts(Vec<i64>),
    Extremes {
        of_keys: Vec<Option<i64>>,
        is_greatest: bool,
    },
}

/// Rows of a batch: their keys, and the ends of the groups of equal times if these count together.
#[derive(Clone, Copy)]
pub(super) struct Batch<'a> {
    pub(super) keys: &'a [u32],
    pub(super) ends: Option<&'a [usize]>,
}

impl Running {
    pub(super) fn of(aggregate: Aggregate) -> Running {
        match aggregate {
            Aggregate::Sum => Running::Sums(Vec::new()),
            Aggregate::Count => Running::Counts(Vec::new()),
            Aggregate::Least | Aggregate::Greatest => Running::Extremes {
                of_keys: Vec::new(),
                is_greatest: aggregate == Aggregate::Greatest,
            },
        }
    }

    /// The values of a batch. `count`: the number of keys.
    pub(super) fn values(
        &mut self,
        batch: Batch<'_>,
        count: usize,
        arg: &ArrayRef,
    ) -> Result<ArrayRef> {
        match self {
            Running::Sums(sums) => {
                sums.resize(count, (0, false));
                match arg.data_type() {
                    DataType::UInt64 => summed(batch, sums, arg.as_primitive::<UInt64Type>()),
                    _ => summed(batch, sums, arg.as_primitive::<Int64Type>()),
                }
            }
            Running::Counts(counts) => {
                counts.resize(count, 0);
                let nulls = arg.logical_nulls();
                let add = |row: usize, count: &mut i64| {
                    *count += i64::from(nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)));
                };
                let values = followed(batch, counts, add);
                Ok(Arc::new(Int64Array::from(values)))
            }
            Running::Extremes {
                of_keys,
                is_greatest,
            } => {
                of_keys.resize(count, None);
                let values = arg.as_primitive::<Int64Type>();
                let add = |row: usize, extreme: &mut Option<i64>| {
                    let value = values.is_valid(row).then(|| values.value(row));
                    *extreme = match (*extreme, value) {
                        (Some(extreme), Some(value)) if *is_greatest => Some(extreme.max(value)),
                        (Some(extreme), Some(value)) => Some(extreme.min(value)),
                        (extreme, value) => extreme.or(value),
                    };
                };
                let values = followed(batch, of_keys, add);
                Ok(Arc::new(Int64Array::from(values)))
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Running::Sums(sums) => sums.capacity() * size_of::<(i128, bool)>(),
            Running::Counts(counts) => counts.capacity() * size_of::<i64>(),
            Running::Extremes { of_keys, .. } => of_keys.capacity() * size_of::<Option<i64>>(),
        }
    }
}

fn summed<T: ArrowPrimitiveType<Native: Into<i128>>>(
    batch: Batch<'_>,
    sums: &mut [(i128, bool)],
    values: &PrimitiveArray<T>,
) -> Result<ArrayRef> {
    let nulls = values.nulls().filter(|nulls| nulls.null_count() > 0);
    let numbers = values.values();
    let sums = match nulls {
        None => followed(batch, sums, |row, (sum, has_value)| {
            *sum = sum.wrapping_add(numbers[row].into());
            *has_value = true;
        }),
        Some(nulls) => followed(batch, sums, |row, (sum, has_value)| {
            if nulls.is_valid(row) {
                *sum = sum.wrapping_add(numbers[row].into());
                *has_value = true;
            }
        }),
    };
    let nulls: NullBuffer = sums.iter().map(|(_, has_value)| *has_value).collect();
    let sums: Vec<i128> = sums.into_iter().map(|(sum, _)| sum).collect();
    let sums = Decimal128Array::try_new(sums.into(), Some(nulls))?;
    Ok(Arc::new(sums.with_data_type(TOTAL)))
}

/// The state of each row's key after the row, or after its group. `add` adds a row to a state.
fn followed<S: Copy>(
    batch: Batch<'_>,
    states: &mut [S],
    mut add: impl FnMut(usize, &mut S),
) -> Vec<S> {
    let keys = batch.keys;
    let Some(ends) = batch.ends else {
        let after = keys.iter().enumerate().map(|(row, &key)| {
            let state = &mut states[key as usize];
            add(row, state);
            *state
        });
        return after.collect();
    };
    let mut values = Vec::with_capacity(keys.len());
    let mut start = 0;
    for &end in ends {
        for row in start..end {
            add(row, &mut states[keys[row] as usize]);
        }
        let group = keys[start..end].iter();
        values.extend(group.map(|&key| states[key as usize]));
        start = end;
    }
    values
}
