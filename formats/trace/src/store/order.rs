//! Whether the rows of a part are in the order declared by their table: ascending, NULL first.
//!
//! Readers skip sorting if the footer declares the order, so it is declared only if verified.

use std::cmp::Ordering;

use super::column::{Batch, Data, Values};
use super::table::{ColumnType, TableSchema};

/// Verifies the order of a part's rows.
#[derive(Debug)]
pub(super) struct Order {
    /// Columns that define the order, and whether their integers are signed.
    columns: Vec<(usize, bool)>,
    /// Values of the last row; `None` is NULL.
    last: Option<Vec<Option<i128>>>,
    holds: bool,
}

impl Order {
    pub(super) fn new(schema: &TableSchema) -> Order {
        let place = |name: &String| {
            let index = schema.columns.iter().position(|c| c.name == *name)?;
            let kind = schema.columns.get(index)?.kind;
            use ColumnType::*;
            match kind {
                Int8 | Int16 | Int32 | Int64 | Bits => Some((index, true)),
                Bool | UInt8 | UInt16 | UInt32 | UInt64 => Some((index, false)),
                // Tables are ordered by times and IDs.
                Int128 | Float64 | Text | Binary | Int64List | UInt64List | BitsList | TextList => {
                    None
                }
            }
        };
        let columns: Option<Vec<(usize, bool)>> = schema.sort.iter().map(place).collect();
        Order {
            holds: !schema.sort.is_empty() && columns.is_some(),
            columns: columns.unwrap_or_default(),
            last: None,
        }
    }

    /// Whether all rows so far were in order, and there is at least one.
    pub(super) fn holds(&self) -> bool {
        self.holds
    }

    /// Verifies the rows of a batch.
    pub(super) fn check(&mut self, batch: &Batch) {
        if !self.holds || batch.count == 0 {
            return;
        }
        let values: Option<Vec<(&Values, bool)>> = self
            .columns
            .iter()
            .map(|&(index, signed)| Some((batch.columns.get(index)?, signed)))
            .collect();
        let Some(values) = values else {
            self.holds = false;
            return;
        };
        let first = row(&values, 0, &mut vec![0; values.len()]);
        let follows = self.last.as_ref().is_none_or(|last| *last <= first);
        self.holds = follows
            && match values.as_slice() {
                [(column, signed)] => column_ascends(column, *signed),
                several => rows_ascend(several, batch.count),
            };
        let mut cursors: Vec<usize> = values
            .iter()
            .map(|(values, _)| {
                let last_is_null = !values.presence.has(batch.count - 1);
                let count = values.presence.rows() - values.presence.nulls();
                count.saturating_sub(usize::from(!last_is_null))
            })
            .collect();
        self.last = Some(row(&values, batch.count - 1, &mut cursors));
    }
}

/// Verifies one column: NULLs first, then a loop that the compiler can vectorize.
fn column_ascends(column: &Values, signed: bool) -> bool {
    let nulls_first = (0..column.presence.nulls()).all(|row| !column.presence.has(row));
    nulls_first
        && match &column.data {
            Data::Wide(data) if signed => ascends(data, |value| value as i64),
            Data::Wide(data) => ascends(data, |value| value),
            Data::Narrow(data) if signed => ascends(data, |value| value as i32),
            Data::Narrow(data) => ascends(data, |value| value),
            _ => false,
        }
}

fn ascends<T: Copy, K: PartialOrd>(data: &[T], key: impl Fn(T) -> K) -> bool {
    let after = data.get(1..).unwrap_or_default();
    data.iter().zip(after).all(|(&a, &b)| key(a) <= key(b))
}

fn rows_ascend(columns: &[(&Values, bool)], count: usize) -> bool {
    let mut cursors = vec![0; columns.len()];
    let mut last: Option<Vec<Option<i128>>> = None;
    for index in 0..count {
        let next = row(columns, index, &mut cursors);
        if last.is_some_and(|last| last.cmp(&next) == Ordering::Greater) {
            return false;
        }
        last = Some(next);
    }
    true
}

/// The values of a row. The cursors point at its values, and advance past them.
fn row(columns: &[(&Values, bool)], index: usize, cursors: &mut [usize]) -> Vec<Option<i128>> {
    columns
        .iter()
        .zip(cursors)
        .map(|((values, signed), cursor)| {
            if !values.presence.has(index) {
                return None;
            }
            let at = *cursor;
            *cursor += 1;
            match &values.data {
                Data::Wide(data) if *signed => data.get(at).map(|&v| i128::from(v as i64)),
                Data::Wide(data) => data.get(at).map(|&v| i128::from(v)),
                Data::Narrow(data) if *signed => data.get(at).map(|&v| i128::from(v as i32)),
                Data::Narrow(data) => data.get(at).map(|&v| i128::from(v)),
                _ => None,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::column::Rows;
    use super::super::table::{ColumnSchema, Encoding};
    use super::*;

    fn check(batches: &[&[[Option<i64>; 2]]], expected: bool) {
        let column = |name: &str| ColumnSchema {
            name: name.to_owned(),
            kind: ColumnType::Int64,
            nullable: true,
            unit: String::new(),
            doc: String::new(),
            encoding: Encoding::Delta,
        };
        let schema = TableSchema {
            name: "t".to_owned(),
            doc: String::new(),
            columns: vec![column("a"), column("b")],
            sort: vec!["a".to_owned(), "b".to_owned()],
        };
        let single = TableSchema {
            sort: vec!["a".to_owned()],
            ..schema.clone()
        };
        let check = |schema: &TableSchema, rows: &[&[[Option<i64>; 2]]]| {
            let mut order = Order::new(schema);
            for batch in rows {
                let mut rows = Rows::new(schema);
                for row in *batch {
                    for (column, value) in rows.columns_mut().iter_mut().zip(row) {
                        match value {
                            Some(value) => column.push_i64(*value),
                            None => column.push_null(),
                        }
                    }
                    rows.end_row();
                }
                order.check(&rows.take(false).unwrap());
            }
            order.holds()
        };
        assert_eq!(check(&schema, batches), expected, "{batches:?}");
        let a: Vec<Option<i64>> = batches.concat().iter().map(|row| row[0]).collect();
        assert_eq!(check(&single, batches), a.is_sorted(), "{batches:?}");
    }

    #[test]
    fn null_first_then_ascending_within_and_across_batches() {
        check(&[], true);
        check(
            &[&[[None, Some(9)], [Some(-1), None], [Some(-1), Some(3)]]],
            true,
        );
        check(&[&[[Some(1), Some(3)], [Some(1), Some(2)]]], false);
        check(&[&[[Some(1), None]], &[[None, None]]], false);
        check(
            &[
                &[[Some(1), None]],
                &[[Some(1), None]],
                &[[Some(2), Some(1)]],
            ],
            true,
        );
        check(&[&[[Some(5), None], [None, None]]], false);
        check(&[&[[None, None], [None, None]], &[[None, Some(0)]]], true);
        check(
            &[&[[None, None], [Some(4), None]], &[[Some(3), Some(0)]]],
            false,
        );
    }
}
