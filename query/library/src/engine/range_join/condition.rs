//! Finds conditions on ranges among those of a join.
//!
//! ```text
//! s.time >= c.time AND s.time < c.time + c.duration       a point in a range
//! a.start < b.end AND b.start <= a.end                    two ranges overlap
//! ```
//! Both have the same form: two ranges overlap if each starts before the other ends. A point is a range that ends where it
//! starts.

use std::sync::Arc;

use datafusion::common::JoinSide;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column};
use datafusion::physical_expr::utils::{collect_columns, conjunction};
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};

use super::super::integers::Integers;

/// The range of a row, in columns of its side.
#[derive(Debug, Clone)]
pub(super) struct Range {
    pub(super) start: Arc<dyn PhysicalExpr>,
    pub(super) end: Arc<dyn PhysicalExpr>,
}

impl Range {
    pub(super) fn is_point(&self) -> bool {
        self.start.eq(&self.end)
    }
}

/// A condition on two ranges.
#[derive(Debug, Clone)]
pub(super) struct Condition {
    pub(super) left: Range,
    pub(super) right: Range,
    /// Whether the left range may start exactly where the right one ends, and the right one where the left one ends.
    pub(super) touching: [bool; 2],
    /// All other conditions.
    pub(super) rest: Option<JoinFilter>,
}

/// A comparison `<` or `<=` of an expression of each side.
struct Inequality {
    term: usize,
    left: Arc<dyn PhysicalExpr>,
    right: Arc<dyn PhysicalExpr>,
    /// Whether the left one is the lesser.
    left_is_less: bool,
    or_equal: bool,
}

/// The conditions on ranges in a filter: every pair of inequalities.
pub(super) fn conditions(filter: &JoinFilter) -> Result<Vec<Condition>> {
    let terms = split_conjunction(filter.expression());
    let mut inequalities = Vec::new();
    for (number, term) in terms.iter().enumerate() {
        inequalities.extend(inequality(number, term, filter)?);
    }
    let mut found = Vec::new();
    for first in inequalities.iter().filter(|found| found.left_is_less) {
        for second in inequalities.iter().filter(|found| !found.left_is_less) {
            let rest = terms.iter().enumerate();
            let rest = rest.filter(|(number, _)| *number != first.term && *number != second.term);
            let rest: Vec<_> = rest.map(|(_, term)| Arc::clone(term)).collect();
            found.push(Condition {
                left: Range {
                    start: Arc::clone(&first.left),
                    end: Arc::clone(&second.left),
                },
                right: Range {
                    start: Arc::clone(&second.right),
                    end: Arc::clone(&first.right),
                },
                touching: [first.or_equal, second.or_equal],
                rest: (!rest.is_empty()).then(|| narrowed(conjunction(rest), filter)),
            });
        }
    }
    Ok(found)
}

fn inequality(
    number: usize,
    term: &Arc<dyn PhysicalExpr>,
    filter: &JoinFilter,
) -> Result<Option<Inequality>> {
    let Some(comparison) = term.downcast_ref::<BinaryExpr>() else {
        return Ok(None);
    };
    let (is_less, or_equal) = match comparison.op() {
        Operator::Lt => (true, false),
        Operator::LtEq => (true, true),
        Operator::Gt => (false, false),
        Operator::GtEq => (false, true),
        _ => return Ok(None),
    };
    let schema = filter.schema();
    let kind = comparison.left().data_type(schema)?;
    if !Integers::hold(&kind) || kind != comparison.right().data_type(schema)? || is_volatile(term)
    {
        return Ok(None);
    }
    let (left, right) = (comparison.left(), comparison.right());
    let (left, right, left_is_less) = match (side(left, filter), side(right, filter)) {
        (Some(JoinSide::Left), Some(JoinSide::Right)) => (left, right, is_less),
        (Some(JoinSide::Right), Some(JoinSide::Left)) => (right, left, !is_less),
        _ => return Ok(None),
    };
    Ok(Some(Inequality {
        term: number,
        left: of_side(left, filter)?,
        right: of_side(right, filter)?,
        left_is_less,
        or_equal,
    }))
}

/// The side of all columns of an expression.
fn side(expr: &Arc<dyn PhysicalExpr>, filter: &JoinFilter) -> Option<JoinSide> {
    let columns = collect_columns(expr);
    let mut sides = columns
        .iter()
        .map(|column| filter.column_indices()[column.index()].side);
    let first = sides.next()?;
    sides.all(|side| side == first).then_some(first)
}

/// An expression over the filter's columns as one over those of its side.
fn of_side(expr: &Arc<dyn PhysicalExpr>, filter: &JoinFilter) -> Result<Arc<dyn PhysicalExpr>> {
    let moved = Arc::clone(expr).transform(|expr| {
        Ok(match expr.downcast_ref::<Column>() {
            Some(column) => {
                let place = filter.column_indices()[column.index()].index;
                Transformed::yes(Arc::new(Column::new(column.name(), place)) as _)
            }
            None => Transformed::no(expr),
        })
    });
    moved.data()
}

/// A filter with only the columns that it uses.
fn narrowed(expr: Arc<dyn PhysicalExpr>, filter: &JoinFilter) -> JoinFilter {
    let mut used: Vec<usize> = collect_columns(&expr).iter().map(Column::index).collect();
    used.sort_unstable();
    let fields = used
        .iter()
        .map(|&index| Arc::clone(&filter.schema().fields()[index]));
    let schema = arrow::datatypes::Schema::new(fields.collect::<Vec<_>>());
    let columns: Vec<ColumnIndex> = used
        .iter()
        .map(|&index| filter.column_indices()[index].clone())
        .collect();
    let moved = Arc::clone(&expr).transform_down(|expr| {
        let column = expr.downcast_ref::<Column>();
        let place = column.and_then(|column| used.binary_search(&column.index()).ok());
        Ok(match (column, place) {
            (Some(column), Some(place)) => Transformed::new(
                Arc::new(Column::new(column.name(), place)) as _,
                true,
                TreeNodeRecursion::Jump,
            ),
            _ => Transformed::no(expr),
        })
    });
    match moved {
        Ok(moved) => JoinFilter::new(moved.data, columns, Arc::new(schema)),
        Err(_) => JoinFilter::new(
            expr,
            filter.column_indices().to_vec(),
            Arc::clone(filter.schema()),
        ),
    }
}
