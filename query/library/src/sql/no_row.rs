//! A subquery as a value is NULL if it has no row, whatever its column.
//!
//! ```text
//! SELECT (SELECT tid FROM threads WHERE comm = 'none') IS NULL       true, though every thread has a tid
//! ```
//! The engine takes over from the column whether the value may be NULL, and so takes `IS NULL` for false before the query
//! runs. The column becomes the result of a function of which it knows nothing.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Subquery};

use super::opaque::or_null;

/// Rewrites the subqueries of a plan that are values and may have no row.
pub(crate) fn resolve(plan: LogicalPlan) -> Result<LogicalPlan> {
    let resolved = plan.transform_up_with_subqueries(|node| {
        node.map_expressions(|expr| {
            expr.transform_up(|expr| match expr {
                Expr::ScalarSubquery(subquery) if may_be_empty(&subquery.subquery) => {
                    with_unknown(subquery)
                        .map(|subquery| Transformed::yes(Expr::ScalarSubquery(subquery)))
                }
                other => Ok(Transformed::no(other)),
            })
        })
    })?;
    Ok(resolved.data)
}

/// Whether a query may have no row, and its column is never NULL.
fn may_be_empty(plan: &LogicalPlan) -> bool {
    let is_never_null = plan
        .schema()
        .fields()
        .first()
        .is_some_and(|field| !field.is_nullable());
    is_never_null && !has_one_row(plan)
}

/// Whether a query is an aggregation without groups, or a value without a table.
fn has_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(inner) => has_one_row(&inner.input),
        LogicalPlan::SubqueryAlias(inner) => has_one_row(&inner.input),
        LogicalPlan::Sort(inner) => inner.fetch.is_none() && has_one_row(&inner.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(relation) => relation.produce_one_row,
        _ => false,
    }
}

fn with_unknown(subquery: Subquery) -> Result<Subquery> {
    let plan = Arc::unwrap_or_clone(subquery.subquery);
    let (qualifier, field) = plan.schema().qualified_field(0);
    let column = Expr::Column(Column::from((qualifier, field)));
    let name = field.name().clone();
    let value = or_null(column).alias(name);
    let plan = LogicalPlanBuilder::from(plan).project([value])?.build()?;
    Ok(Subquery {
        subquery: Arc::new(plan),
        ..subquery
    })
}
