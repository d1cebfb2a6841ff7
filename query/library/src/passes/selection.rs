//! What a query needs of a pass: which columns, and of which rows.
//!
//! ```text
//! SELECT time, state FROM thread_states WHERE tid IN (7, 8) AND time >= 1000
//! columns time, state, tid; tid is 7 or 8; times from 1000
//! ```
//! A pass may skip what such rows do not depend on. The query checks its conditions anyway, so a pass may also ignore them.

use std::collections::BTreeSet;

use arrow::datatypes::{DataType, Schema};
use datafusion::logical_expr::{Expr, Operator};
use datafusion::scalar::ScalarValue;

use super::source::{Input, Source, Times};

/// Columns and rows that a query needs.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    columns: BTreeSet<usize>,
    /// Columns that have one of some values.
    values: Vec<(usize, BTreeSet<i64>)>,
    /// The same of texts.
    texts: Vec<(usize, BTreeSet<String>)>,
    /// Range of the first column, the time.
    pub(crate) times: Times,
}

/// A condition on one column.
#[derive(Debug, PartialEq, Eq)]
enum Condition {
    Values(usize, BTreeSet<i64>),
    Texts(usize, BTreeSet<String>),
    Times(Times),
}

impl Selection {
    /// `fields` are all columns of the pass.
    pub(super) fn new(columns: &[usize], filters: &[Expr], fields: &Schema) -> Selection {
        let mut selection = Selection {
            columns: columns.iter().copied().collect(),
            ..Selection::default()
        };
        for condition in filters
            .iter()
            .filter_map(|filter| condition(filter, fields))
        {
            match condition {
                Condition::Values(column, values) => selection.values.push((column, values)),
                Condition::Texts(column, texts) => selection.texts.push((column, texts)),
                Condition::Times(Times { first, last }) => {
                    let times = &mut selection.times;
                    // None is less than any time.
                    times.first = times.first.max(first);
                    times.last = times.last.into_iter().chain(last).min();
                }
            }
        }
        selection
    }

    /// Whether a pass can use a filter.
    pub(super) fn knows(filter: &Expr, fields: &Schema) -> bool {
        condition(filter, fields).is_some()
    }

    /// Whether a column is requested.
    pub(crate) fn wants(&self, column: usize) -> bool {
        self.columns.contains(&column)
    }

    /// Whether one of these columns is requested.
    pub(crate) fn wants_any(&self, columns: &[usize]) -> bool {
        columns.iter().any(|&column| self.wants(column))
    }

    /// The values that a column may have; `None` if any.
    pub(crate) fn values(&self, column: usize) -> Option<BTreeSet<i64>> {
        common(&self.values, column)
    }

    /// The texts that a column may have; `None` if any.
    pub(crate) fn texts(&self, column: usize) -> Option<BTreeSet<String>> {
        common(&self.texts, column)
    }

    /// Reads only rows of `source` whose columns have the values requested of the pass's.
    pub(crate) fn with_values(&self, source: Source, columns: &[(usize, Input)]) -> Source {
        let restrict = |source: Source, (column, input): &(usize, Input)| match self.values(*column)
        {
            Some(values) => source.with_values(input.clone(), values),
            None => source,
        };
        columns.iter().fold(source, restrict)
    }
}

/// The values of a column that all of its conditions allow.
fn common<T: Ord + Clone>(
    conditions: &[(usize, BTreeSet<T>)],
    column: usize,
) -> Option<BTreeSet<T>> {
    let mut of_column = conditions.iter().filter(|(other, _)| *other == column);
    let first = of_column.next()?.1.clone();
    Some(of_column.fold(first, |all, (_, values)| &all & values))
}

/// The condition of a filter, if it has the form of one.
fn condition(filter: &Expr, fields: &Schema) -> Option<Condition> {
    let of = |expr: &Expr| column(expr, fields);
    if let Some((column, values)) = values(filter, &of, &integer) {
        return Some(Condition::Values(column, values));
    }
    let of_text = |expr: &Expr| text_column(expr, fields);
    if let Some((column, texts)) = values(filter, &of_text, &text) {
        return Some(Condition::Texts(column, texts));
    }
    let Expr::BinaryExpr(binary) = filter else {
        return None;
    };
    let (column, op, value) = match (column(&binary.left, fields), column(&binary.right, fields)) {
        (Some(column), _) => (column, binary.op, integer(&binary.right)?),
        (_, Some(column)) => (column, binary.op.swap()?, integer(&binary.left)?),
        _ => return None,
    };
    let times = match op {
        _ if column != 0 => return None,
        Operator::GtEq => (Some(value), None),
        Operator::Gt => (Some(value.checked_add(1)?), None),
        Operator::LtEq => (None, Some(value)),
        Operator::Lt => (None, Some(value.checked_sub(1)?)),
        _ => return None,
    };
    Some(Condition::Times(Times {
        first: times.0,
        last: times.1,
    }))
}

/// `tid = 3`, `tid IN (3, 5)`, `tid = 3 OR tid = 5`, of columns and literals that `column` and `value` return.
fn values<T: Ord + Clone>(
    filter: &Expr,
    column: &dyn Fn(&Expr) -> Option<usize>,
    value: &dyn Fn(&Expr) -> Option<T>,
) -> Option<(usize, BTreeSet<T>)> {
    match filter {
        Expr::BinaryExpr(binary) if binary.op == Operator::Eq => {
            let (column, value) = match column(&binary.left) {
                Some(column) => (column, value(&binary.right)?),
                None => (column(&binary.right)?, value(&binary.left)?),
            };
            Some((column, BTreeSet::from([value])))
        }
        Expr::BinaryExpr(binary) if binary.op == Operator::Or => {
            let (of_left, left) = values(&binary.left, column, value)?;
            let (of_right, right) = values(&binary.right, column, value)?;
            (of_left == of_right).then(|| (of_left, &left | &right))
        }
        Expr::InList(list) if !list.negated => {
            let column = column(&list.expr)?;
            let values: Option<_> = list.list.iter().map(value).collect();
            Some((column, values?))
        }
        _ => None,
    }
}

/// A column of integers.
fn column(expr: &Expr, fields: &Schema) -> Option<usize> {
    let Expr::Column(column) = expr else {
        return None;
    };
    let (index, field) = fields.column_with_name(&column.name)?;
    matches!(field.data_type(), DataType::Int32 | DataType::Int64).then_some(index)
}

/// A column of strings.
fn text_column(expr: &Expr, fields: &Schema) -> Option<usize> {
    let Expr::Column(column) = expr else {
        return None;
    };
    let (index, field) = fields.column_with_name(&column.name)?;
    (*field.data_type() == DataType::Utf8View).then_some(index)
}

fn text(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(text) | ScalarValue::Utf8View(text), _) => text.clone(),
        _ => None,
    }
}

fn integer(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Literal(ScalarValue::Int32(value), _) => value.map(i64::from),
        Expr::Literal(ScalarValue::Int64(value), _) => *value,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;
    use datafusion::logical_expr::{col, lit};

    use super::*;

    #[test]
    fn conditions_restrict_values_and_times() {
        let field = |name| Field::new(name, DataType::Int64, true);
        let text = Field::new("comm", DataType::Utf8View, true);
        let fields = Schema::new(vec![field("time"), field("tid"), text]);
        let is = |name: &str, value: i64| col(name).eq(lit(value));
        let filters = [
            is("tid", 3).or(is("tid", 5)).or(lit(7_i64).eq(col("tid"))),
            col("tid").in_list(vec![lit(5_i64), lit(7_i64), lit(9_i64)], false),
            col("time").gt(lit(10_i64)),
            lit(12_i64).lt_eq(col("time")),
            col("time").lt(lit(20_i64)),
            col("time").lt_eq(lit(30_i64)),
            col("comm").eq(lit("a")).or(lit("b").eq(col("comm"))),
            col("comm").in_list(vec![lit("b"), lit("c")], false),
        ];
        let selection = Selection::new(&[0, 1], &filters, &fields);
        assert_eq!(selection.values(1), Some(BTreeSet::from([5, 7])));
        assert_eq!(selection.values(0), None);
        assert_eq!(selection.texts(2), Some(BTreeSet::from(["b".to_owned()])));
        let times = (selection.times.first, selection.times.last);
        assert_eq!(times, (Some(12), Some(19)));
        assert!(selection.wants(1) && !selection.wants(2));
        let others = [
            col("tid").gt(lit(3_i64)),
            col("tid").in_list(vec![lit(5_i64)], true),
            is("tid", 3).or(is("time", 3)),
            is("tid", 3).or(col("tid").is_null()),
            col("comm").not_eq(lit("a")),
            col("comm").eq(lit("a")).or(is("tid", 3)),
            col("tid").eq(col("time")),
            col("time").gt(lit(i64::MAX)),
        ];
        for filter in others {
            assert!(!Selection::knows(&filter, &fields), "{filter}");
        }
    }
}
