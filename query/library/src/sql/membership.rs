//! `x IN (SELECT …)` and `EXISTS (SELECT …)` outside of WHERE, as joins: in FILTER, in CASE, in ORDER BY, as a column.
//!
//! ```text
//! SELECT count(*) FILTER (WHERE tid IN (SELECT tid FROM a)) FROM t
//!   t LEFT JOIN (SELECT DISTINCT tid AS value FROM a) ON t.tid = value       whether a value is in the list
//!     CROSS JOIN (SELECT count(*), count(tid) FROM a)                        whether the list is empty, or has NULL
//!
//! SELECT EXISTS (SELECT 1 FROM a WHERE a.tid = t.tid) FROM t
//!   (SELECT count(*) FROM a WHERE a.tid = t.tid) > 0
//! ```
//! The engine plans such subqueries only as conditions on rows, and takes a row that a NOT IN beside OR knows nothing about. As SQL has it, the answer is NULL, not false, if a value is not found among
//! values of which some are unknown, so that NOT IN does not become true.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr::InSubquery;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    BinaryExpr, Expr, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, col, lit, not,
    when,
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
        if !is_column || !has_subquery(&node)? {
            return Ok(Transformed::no(node));
        }
        with_joins(node, &mut lists).map(Transformed::yes)
    })?;
    Ok(resolved.data)
}

/// Whether the engine would answer a condition wrongly or not at all. It takes false for NULL, which is the same only if nothing but AND
/// and OR is around the subquery. A NOT IN among the terms of the whole condition becomes a join for NOT IN, which treats NULL correctly,
/// but not if it refers to the outer query.
fn is_misjudged(condition: &Expr, is_term: bool) -> Result<bool> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if matches!(op, Operator::And | Operator::Or) =>
        {
            let is_term = is_term && *op == Operator::And;
            Ok(is_misjudged(left, is_term)? || is_misjudged(right, is_term)?)
        }
        expr if refers_outward(expr) => Ok(matches!(expr, Expr::InSubquery(list) if list.negated)),
        Expr::InSubquery(subquery) => Ok(subquery.negated && !is_term),
        Expr::Not(inner) if is_term && list(inner).is_some() => Ok(false),
        other => other.exists(|inner| Ok(list(inner).is_some() || refers_outward(inner))),
    }
}

/// A subquery of IN that does not refer to the outer query.
fn list(expr: &Expr) -> Option<&InSubquery> {
    match expr {
        Expr::InSubquery(list) if list.subquery.outer_ref_columns.is_empty() => Some(list),
        _ => None,
    }
}

/// Whether it is an IN with a subquery that refers to the outer query.
fn refers_outward(expr: &Expr) -> bool {
    matches!(expr, Expr::InSubquery(_)) && list(expr).is_none()
}

/// Subqueries that are joins only in WHERE.
fn is_subquery(expr: &Expr) -> bool {
    matches!(expr, Expr::InSubquery(_) | Expr::Exists(_))
}

fn has_subquery(node: &LogicalPlan) -> Result<bool> {
    // EXISTS is a join there already.
    let is_column = !matches!(node, LogicalPlan::Filter(_));
    let is_rewritten = |expr: &Expr| {
        list(expr).is_some() || refers_outward(expr) || (is_column && is_subquery(expr))
    };
    for expr in node.expressions() {
        if expr.exists(|expr| Ok(is_rewritten(expr)))? {
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
    let is_filter = matches!(node, LogicalPlan::Filter(_));
    let mut exprs = Vec::new();
    for expr in node.expressions() {
        let name = names.save(&expr);
        let rewritten = expr.transform_up(|expr| {
            let counts = match (list(&expr), is_filter) {
                (None, false) if is_subquery(&expr) => true,
                (None, true) if refers_outward(&expr) => true,
                (Some(_), _) => false,
                (None, _) => return Ok(Transformed::no(expr)),
            };
            *lists += 1;
            let relation = format!("list {lists}");
            let (joined, is_member) = match list(&expr) {
                Some(list) if !counts => joined(input.clone(), list, &relation)?,
                _ => counted(input.clone(), &expr, &relation)?,
            };
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

/// Returns the input with a column for a subquery that refers to it, and the column.
fn counted(
    input: LogicalPlanBuilder,
    expr: &Expr,
    name: &str,
) -> Result<(LogicalPlanBuilder, Expr)> {
    let schema = Arc::clone(input.schema());
    let (holds, is_negated) = match expr {
        Expr::Exists(exists) => (
            number_of(&exists.subquery, None)?.gt(lit(0)),
            exists.negated,
        ),
        Expr::InSubquery(list) => (is_among(list, &schema)?, list.negated),
        other => return Ok((input, other.clone())),
    };
    let holds = match is_negated {
        true => not(holds),
        false => holds,
    };
    let columns = schema.columns().into_iter().map(Expr::Column);
    let input = input.project(columns.chain([holds.alias(name)]))?;
    Ok((input, Expr::Column(Column::new_unqualified(name))))
}

/// The number of rows of a subquery that fulfill a condition.
fn number_of(subquery: &Subquery, condition: Option<(Expr, &[Expr])>) -> Result<Expr> {
    let mut rows = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone());
    let mut outer = subquery.outer_ref_columns.clone();
    if let Some((condition, of_outer)) = condition {
        rows = rows.filter(condition)?;
        outer.extend(of_outer.iter().cloned());
    }
    let number = rows.aggregate(Vec::<Expr>::new(), [count(lit(1)).alias("rows")])?;
    Ok(Expr::ScalarSubquery(Subquery {
        subquery: Arc::new(number.build()?),
        outer_ref_columns: outer,
        spans: subquery.spans.clone(),
    }))
}

/// Whether a value is in a list that depends on the row.
fn is_among(list: &InSubquery, schema: &DFSchema) -> Result<Expr> {
    let values = list.subquery.subquery.schema().columns();
    let [value] = values.as_slice() else {
        let count = values.len();
        return Err(DataFusionError::Plan(format!(
            "IN: expected a query of one column, found {count}"
        )));
    };
    let value = Expr::Column(value.clone());
    let mut outer = Vec::new();
    let wanted = list.expr.as_ref().clone();
    let of_outer = wanted.clone().transform(|expr| match expr {
        Expr::Column(column) => {
            let (_, field) = schema.qualified_field_from_column(&column)?;
            let reference = Expr::OuterReferenceColumn(Arc::clone(field), column);
            outer.push(reference.clone());
            Ok(Transformed::yes(reference))
        }
        other => Ok(Transformed::no(other)),
    })?;
    let number = |condition| number_of(&list.subquery, condition);
    let same = number(Some((value.clone().eq(of_outer.data), &outer)))?;
    let unknown = number(Some((value.is_null(), &[])))?;
    when(same.gt(lit(0)), lit(true))
        .when(number(None)?.eq(lit(0)), lit(false))
        .when(
            wanted.is_null().or(unknown.gt(lit(0))),
            lit(ScalarValue::Boolean(None)),
        )
        .otherwise(lit(false))
}
