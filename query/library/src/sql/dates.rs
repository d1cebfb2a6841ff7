//! Casts of numbers to dates: refused.
//!
//! ```text
//! CAST(time AS TIMESTAMP)      the engine counts seconds from 1970: nanoseconds from the start of the host are a wrong date, or none
//! ```

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};

use arrow::datatypes::DataType;

/// Fails for a plan that casts a number to a date.
pub(super) fn check(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        let schema = merge_schema(&node.inputs());
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                let (value, kind) = match expr {
                    Expr::Cast(cast) => (&cast.expr, cast.field.data_type()),
                    Expr::TryCast(cast) => (&cast.expr, cast.field.data_type()),
                    _ => return Ok(TreeNodeRecursion::Continue),
                };
                let is_date = matches!(
                    kind,
                    DataType::Timestamp(..) | DataType::Date32 | DataType::Date64
                );
                match value.get_type(&schema) {
                    Ok(from) if is_date && from.is_numeric() => Err(DataFusionError::Plan(
                        "a number cannot be cast to a date\nhint: a time of the trace: wall_time(time); seconds since 1970: to_timestamp(x); nanoseconds: to_timestamp_nanos(x)".to_owned(),
                    )),
                    _ => Ok(TreeNodeRecursion::Continue),
                }
            })
        })
    })?;
    Ok(())
}
