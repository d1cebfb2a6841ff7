//! Comparisons with a cast that changes values.
//!
//! ```text
//! WHERE try_cast(tid AS TINYINT) > 5       not: WHERE tid > 5, which holds for 1000, too
//! WHERE x::DECIMAL(5, 1) = 2.8             not: WHERE x = 2.80, which 2.75 is not
//! ```
//! The engine moves a cast from the column to the constant, so that files need not be cast, whatever the cast does. Casts that change
//! values become arguments of a function that it does not see through.

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator, TryCast,
};

use super::opaque::as_cast;

/// Hides the casts of a plan's comparisons that change values.
pub(crate) fn resolve(plan: LogicalPlan) -> Result<LogicalPlan> {
    let resolved = plan.transform_up_with_subqueries(|node| {
        let schema = merge_schema(&node.inputs());
        let names = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let name = names.save(&expr);
            let hidden = expr.transform_up(|expr| compared(expr, &schema))?;
            Ok(hidden.update_data(|expr| name.restore(expr)))
        })
    })?;
    Ok(resolved.data)
}

/// Hides the casts of a comparison.
fn compared(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let is_comparison = match &expr {
        Expr::BinaryExpr(BinaryExpr { op, .. }) => is_comparison(*op),
        Expr::InList(_) | Expr::Between(_) => true,
        _ => false,
    };
    if !is_comparison {
        return Ok(Transformed::no(expr));
    }
    expr.map_children(|part| match changes_values(&part, schema) {
        true => Ok(Transformed::yes(as_cast(part))),
        false => Ok(Transformed::no(part)),
    })
}

fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(
        op,
        Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom
    )
}

/// Whether it is a cast after which different values may be equal, or NULL.
fn changes_values(expr: &Expr, schema: &DFSchema) -> bool {
    let (Expr::Cast(Cast { expr: inner, field }) | Expr::TryCast(TryCast { expr: inner, field })) =
        expr
    else {
        return false;
    };
    let Ok(from) = inner.get_type(schema) else {
        return false;
    };
    let to = field.data_type();
    to.is_numeric() && (from.is_numeric() || from.is_string()) && !holds(to, &from)
}

/// Whether a type has every value of another.
fn holds(to: &DataType, from: &DataType) -> bool {
    let (Some(of), Some(in_it)) = (range(from), range(to)) else {
        return match (from, to) {
            // Integers beyond 2^53 are rounded, as a constant is that is compared with them.
            (from, DataType::Float64) => from.is_numeric(),
            (DataType::Float16 | DataType::Float32, DataType::Float32) => true,
            _ => from == to,
        };
    };
    of.whole <= in_it.whole && of.fraction <= in_it.fraction && (in_it.is_signed || !of.is_signed)
}

/// What a type of exact numbers holds.
struct Range {
    /// Digits before the point. Unsigned integers count as one more: they do not fit into signed ones of as many bits.
    whole: u32,
    fraction: u32,
    is_signed: bool,
}

fn range(kind: &DataType) -> Option<Range> {
    let whole = |whole, is_signed| Range {
        whole,
        fraction: 0,
        is_signed,
    };
    Some(match kind {
        DataType::Int8 => whole(3, true),
        DataType::UInt8 => whole(4, false),
        DataType::Int16 => whole(5, true),
        DataType::UInt16 => whole(6, false),
        DataType::Int32 => whole(10, true),
        DataType::UInt32 => whole(11, false),
        DataType::Int64 => whole(19, true),
        DataType::UInt64 => whole(20, false),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            let fraction = u32::try_from(*scale).ok()?;
            Range {
                whole: u32::from(*precision).checked_sub(fraction)?,
                fraction,
                is_signed: true,
            }
        }
        _ => return None,
    })
}
