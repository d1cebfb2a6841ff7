//! `x IN (SELECT …)` outside of WHERE, as a join: in FILTER, in CASE, as a column.
//!
//! ```text
//! SELECT count(*) FILTER (WHERE tid IN (SELECT tid FROM a)) FROM t
//!   t LEFT JOIN (SELECT DISTINCT tid AS value FROM a) ON t.tid = value       whether a value is in the list
//!     CROSS JOIN (SELECT count(*), count(tid) FROM a)                        whether the list is empty, or has NULL
//! ```
//! The engine plans such subqueries only as conditions on rows, and takes a row that a NOT IN beside OR knows nothing about. As SQL has it, the answer is NULL, not false, if a value is not found among
//! values of which some are unknown, so that NOT IN does not become true.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr::InSubquery;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    BinaryExpr, Expr, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, col, lit, not, when,
};

/// Rewrites the subqueries of a plan that are not conditions of WHERE.
pub(crate) fn resolve(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut lists = 0;
    let resolved = plan.transform_up_with_subqueries(|node| {
        let is_column = match &node {
            LogicalPlan::Projection(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Sort(_) => true,
            LogicalPlan::Filter(filter) => is_misjudged(&filter.predicate, true)?,
            _ => false,
        };
        if !is_column || !has_list(&node)? {
            return Ok(Transformed::no(node));
        }
        with_joins(node, &mut lists).map(Transformed::yes)
    })?;
    Ok(resolved.data)
}

/// Whether the engine would answer a condition wrongly or not at all. It takes false for NULL, which is the same only if nothing but AND
/// and OR is around the subquery. A NOT IN among the terms of the whole condition becomes a join for NOT IN, which treats NULL correctly.
fn is_misjudged(condition: &Expr, is_term: bool) -> Result<bool> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if matches!(op, Operator::And | Operator::Or) =>
        {
            let is_term = is_term && *op == Operator::And;
            Ok(is_misjudged(left, is_term)? || is_misjudged(right, is_term)?)
        }
        Expr::InSubquery(subquery) => Ok(subquery.negated && !is_term),
        Expr::Not(inner) if is_term && list(inner).is_some() => Ok(false),
        other => other.exists(|inner| Ok(list(inner).is_some())),
    }
}

/// A subquery that does not refer to the outer query.
fn list(expr: &Expr) -> Option<&InSubquery> {
    match expr {
        Expr::InSubquery(list) if list.subquery.outer_ref_columns.is_empty() => Some(list),
        _ => None,
    }
}

fn has_list(node: &LogicalPlan) -> Result<bool> {
    for expr in node.expressions() {
        if expr.exists(|expr| Ok(list(expr).is_some()))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Joins the input of a node with the lists of its expressions.
fn with_joins(node: LogicalPlan, lists: &mut usize) -> Result<LogicalPlan> {
    let inputs = node.inputs();
    let [input] = inputs.as_slice() else {
        return Ok(node);
    };
    let kept: Vec<Expr> = input
        .schema()
        .columns()
        .into_iter()
        .map(Expr::Column)
        .collect();
    let mut input = LogicalPlanBuilder::from((*input).clone());
    let names = NamePreserver::new(&node);
    let mut exprs = Vec::new();
    for expr in node.expressions() {
        let name = names.save(&expr);
        let rewritten = expr.transform_up(|expr| {
            let Some(list) = list(&expr) else {
                return Ok(Transformed::no(expr));
            };
            *lists += 1;
            let relation = format!("list {lists}");
            let (joined, is_member) = joined(input.clone(), list, &relation)?;
            input = joined;
            Ok(Transformed::yes(is_member))
        })?;
        exprs.push(name.restore(rewritten.data));
    }
    let rewritten = node.with_new_exprs(exprs, vec![input.build()?])?;
    match rewritten {
        // Their rows have the columns of the input, too.
        LogicalPlan::Filter(_) | LogicalPlan::Sort(_) => {
            LogicalPlanBuilder::from(rewritten).project(kept)?.build()
        }
        LogicalPlan::Window(window) => {
            let own = window.window_expr.iter();
            let own = own.map(|expr| {
                let (relation, name) = expr.qualified_name();
                Expr::Column(Column::new(relation, name))
            });
            let columns: Vec<Expr> = kept.into_iter().chain(own).collect();
            LogicalPlanBuilder::from(LogicalPlan::Window(window))
                .project(columns)?
                .build()
        }
        other => Ok(other),
    }
}

/// Returns the input joined with the list, and the expression for membership in it.
fn joined(
    input: LogicalPlanBuilder,
    list: &InSubquery,
    relation: &str,
) -> Result<(LogicalPlanBuilder, Expr)> {
    let query = list.subquery.subquery.as_ref();
    let values = query.schema().columns();
    let [value] = values.as_slice() else {
        let count = values.len();
        return Err(DataFusionError::Plan(format!(
            "IN: expected a query of one column, found {count}"
        )));
    };
    let value = Expr::Column(value.clone());
    let distinct = LogicalPlanBuilder::from(query.clone())
        .project([value.clone().alias("value")])?
        .distinct()?
        .alias(relation)?
        .build()?;
    let totals = LogicalPlanBuilder::from(query.clone())
        .aggregate(
            Vec::<Expr>::new(),
            [count(lit(1)).alias("rows"), count(value).alias("known")],
        )?
        .alias(format!("{relation} totals"))?
        .build()?;
    let of_list = |name: &str| col(Column::new(Some(relation), name));
    let of_totals = |name: &str| col(Column::new(Some(format!("{relation} totals")), name));
    let wanted = list.expr.as_ref().clone();
    let input = input
        .join_on(
            distinct,
            JoinType::Left,
            [wanted.clone().eq(of_list("value"))],
        )?
        .cross_join(totals)?;
    let is_unknown = wanted
        .is_null()
        .or(of_totals("known").lt(of_totals("rows")));
    let is_member = when(of_list("value").is_not_null(), lit(true))
        .when(of_totals("rows").eq(lit(0)), lit(false))
        .when(is_unknown, lit(ScalarValue::Boolean(None)))
        .otherwise(lit(false))?;
    Ok((
        input,
        match list.negated {
            true => not(is_member),
            false => is_member,
        },
    ))
}
