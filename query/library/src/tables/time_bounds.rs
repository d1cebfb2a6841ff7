//! The times that a query reads: `time >= 8000 AND time < 9000`. Parts that have none of them need not be opened.
//!
//! ```text
//! parts    0–4000    4000–7999    8000–12000    12000–15000
//! read                            ══════════
//! ```
//! The manifest has the times of each part.

use datafusion::logical_expr::{Expr, Operator};
use datafusion::scalar::ScalarValue;

/// A range of times; `None` if it has no bound.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TimeBounds {
    first: Option<i64>,
    last: Option<i64>,
}

impl TimeBounds {
    /// `filters` must all hold for a row. Others than bounds of the column `time` allow any time.
    pub(crate) fn of(filters: &[Expr]) -> TimeBounds {
        let mut bounds = TimeBounds::default();
        for filter in filters {
            bounds.add(filter);
        }
        bounds
    }

    fn add(&mut self, filter: &Expr) {
        let Expr::BinaryExpr(binary) = filter else {
            return;
        };
        if binary.op == Operator::And {
            self.add(&binary.left);
            self.add(&binary.right);
            return;
        }
        let (op, value) = match (binary.left.as_ref(), binary.right.as_ref()) {
            (Expr::Column(column), Expr::Literal(value, _)) if column.name == "time" => {
                (Some(binary.op), value)
            }
            (Expr::Literal(value, _), Expr::Column(column)) if column.name == "time" => {
                (binary.op.swap(), value)
            }
            _ => return,
        };
        let ScalarValue::Int64(Some(value)) = value else {
            return;
        };
        // `time > x` reads the parts that end at x, too: no rows are lost by that.
        let (first, last) = match op {
            Some(Operator::Eq) => (Some(*value), Some(*value)),
            Some(Operator::GtEq | Operator::Gt) => (Some(*value), None),
            Some(Operator::LtEq | Operator::Lt) => (None, Some(*value)),
            _ => return,
        };
        // None is less than any time.
        self.first = self.first.max(first);
        self.last = self.last.into_iter().chain(last).min();
    }

    /// Whether rows whose smallest and largest time are these may be within the bounds. A row without a time never is.
    pub(crate) fn overlap(&self, times: Option<(i64, i64)>) -> bool {
        let Some((least, most)) = times else {
            return true;
        };
        self.first.is_none_or(|first| most >= first) && self.last.is_none_or(|last| least <= last)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{col, lit};

    use super::*;

    #[test]
    fn bounds_are_those_of_all_conditions() {
        let of = |filters: &[Expr]| {
            let TimeBounds { first, last } = TimeBounds::of(filters);
            (first, last)
        };
        let time = || col("time");
        assert_eq!(of(&[]), (None, None));
        assert_eq!(
            of(&[time().gt_eq(lit(5_i64)), time().lt(lit(9_i64))]),
            (Some(5), Some(9))
        );
        assert_eq!(
            of(&[time().gt(lit(5_i64)).and(time().gt(lit(7_i64)))]),
            (Some(7), None)
        );
        assert_eq!(
            of(&[lit(5_i64).gt_eq(time()), time().lt_eq(lit(9_i64))]),
            (None, Some(5))
        );
        assert_eq!(of(&[time().eq(lit(5_i64))]), (Some(5), Some(5)));
        let others = [
            time().gt(lit(5_i64)).or(time().lt(lit(3_i64))),
            time().not_eq(lit(5_i64)),
            col("duration").gt(lit(5_i64)),
            time().gt(col("duration")),
            (time() + col("duration")).gt(lit(5_i64)),
            time().gt(lit(ScalarValue::Int64(None))),
        ];
        assert_eq!(of(&others), (None, None));
    }

    #[test]
    fn parts_at_the_bounds_are_read() {
        let bounds =
            TimeBounds::of(&[col("time").gt_eq(lit(5_i64)), col("time").lt_eq(lit(9_i64))]);
        let overlap = |least, most| bounds.overlap(Some((least, most)));
        assert!(overlap(0, 5) && overlap(9, 20) && overlap(6, 7) && overlap(0, 20));
        assert!(!overlap(0, 4) && !overlap(10, 20));
        assert!(bounds.overlap(None));
        assert!(TimeBounds::default().overlap(Some((i64::MIN, i64::MAX))));
    }
}
