//! Totals in reports, exact beyond 64 bits from SQL's `sum` to the result column.

use std::sync::Arc;

use anyhow::Result;
use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Int64Array, UInt64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type};
use perfquet::Session;
use perfquet::functions::TOTAL;

/// A column of totals, of any integer type.
pub(crate) fn read(column: &ArrayRef) -> Result<Decimal128Array> {
    Ok(cast(column, &TOTAL)?
        .as_primitive::<Decimal128Type>()
        .clone())
}

/// Returns the total of a row; 0 for NULL and negative totals.
pub(crate) fn weight(totals: &Decimal128Array, row: usize) -> u128 {
    match totals.is_valid(row) {
        true => u128::try_from(totals.value(row)).unwrap_or_default(),
        false => 0,
    }
}

/// Returns the sum of the first column of a query.
pub(crate) fn sum(session: &Session, sql: &str) -> Result<u128> {
    let mut sum = 0u128;
    for batch in session.collect(sql)? {
        let totals = read(batch.column(0))?;
        sum += (0..batch.num_rows())
            .map(|row| weight(&totals, row))
            .sum::<u128>();
    }
    Ok(sum)
}

/// Signed totals as a column: 64 bits if all of them fit.
pub(crate) fn signed(values: impl IntoIterator<Item = Option<i128>>) -> ArrayRef {
    let values: Vec<Option<i128>> = values.into_iter().collect();
    let fits = |value: &Option<i128>| value.is_none_or(|value| i64::try_from(value).is_ok());
    if values.iter().all(fits) {
        let narrow = |value: Option<i128>| value.and_then(|value| i64::try_from(value).ok());
        return Arc::new(values.into_iter().map(narrow).collect::<Int64Array>());
    }
    wide(values)
}

/// As [`signed`], for totals that are never negative.
pub(crate) fn unsigned(values: impl IntoIterator<Item = u128>) -> ArrayRef {
    let values: Vec<u128> = values.into_iter().collect();
    let narrow: Result<Vec<u64>, _> = values.iter().map(|&value| u64::try_from(value)).collect();
    match narrow {
        Ok(narrow) => Arc::new(UInt64Array::from(narrow)),
        // No total in a trace reaches 10^38.
        Err(_) => wide(values.into_iter().map(|value| i128::try_from(value).ok())),
    }
}

fn wide(values: impl IntoIterator<Item = Option<i128>>) -> ArrayRef {
    let array: Decimal128Array = values.into_iter().collect();
    Arc::new(array.with_data_type(DataType::Decimal128(38, 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_wide_only_where_a_total_is() {
        assert_eq!(*unsigned([1, 2]).data_type(), DataType::UInt64);
        assert_eq!(*signed([Some(-1), None]).data_type(), DataType::Int64);
        let beyond = u128::from(u64::MAX) + 1;
        let column = unsigned([1, beyond]);
        assert_eq!(*column.data_type(), TOTAL);
        let column = read(&column).unwrap();
        assert_eq!((weight(&column, 0), weight(&column, 1)), (1, beyond));
        let column = signed([Some(i128::from(i64::MIN) - 1), None]);
        assert_eq!(*column.data_type(), TOTAL);
        let column = read(&column).unwrap();
        assert_eq!((weight(&column, 0), weight(&column, 1)), (0, 0));
    }
}
