//! Rewrites `count(*)` with `count(DISTINCT x)` as two groupings that can spill to disk.
//!
//! ```text
//! SELECT count(*), count(DISTINCT x) FROM t      SELECT sum(c), count(x) FROM (SELECT x, count(*) AS c FROM t GROUP BY x)
//! ```
//! DataFusion does this for sums and extremes with DISTINCT, but not for counts: then it keeps all values in one set,
//! which ignores the memory limit (115 million rows failed at 1 GiB).

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, ScalarValue};
use datafusion::error::Result;
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::{
    Aggregate, AggregateUDF, Expr, LogicalPlan, LogicalPlanBuilder, lit,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// The rule for DataFusion's optimizer.
#[derive(Debug)]
pub(crate) struct CountsBesideDistinct;

impl OptimizerRule for CountsBesideDistinct {
    fn name(&self) -> &str {
        "counts_beside_distinct"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Aggregate(aggregate) => match parts(&aggregate) {
                Some((value, parts)) => Ok(Transformed::yes(divided(&aggregate, value, &parts)?)),
                None => Ok(Transformed::no(LogicalPlan::Aggregate(aggregate))),
            },
            plan => Ok(Transformed::no(plan)),
        }
    }
}

/// Parts of an aggregate.
enum Part<'a> {
    /// Of distinct values.
    Distinct(&'a Arc<AggregateUDF>),
    /// Of all rows: partial counts are added.
    Count(&'a Expr),
    /// Sums, minimums and maximums, which combine from those of the parts.
    Other(&'a Arc<AggregateUDF>, &'a Expr),
}

/// Returns the single argument of DISTINCT, if there is only one and a count in addition to it, and the aggregates.
fn parts(aggregate: &Aggregate) -> Option<(&Expr, Vec<Part<'_>>)> {
    let mut value = None;
    let mut counts = 0;
    let mut parts = Vec::new();
    if matches!(aggregate.group_expr.first(), Some(Expr::GroupingSet(_))) {
        return None;
    }
    for expr in &aggregate.aggr_expr {
        let Expr::AggregateFunction(AggregateFunction { func, params }) = expr else {
            return None;
        };
        let AggregateFunctionParams {
            args,
            distinct,
            filter,
            order_by,
            null_treatment,
        } = params;
        if filter.is_some() || !order_by.is_empty() || null_treatment.is_some() {
            return None;
        }
        match (distinct, func.name(), args.as_slice()) {
            (true, "count" | "sum", [arg]) if value.is_none_or(|value| value == arg) => {
                value = Some(arg);
                parts.push(Part::Distinct(func));
            }
            (false, "count", [_]) => {
                counts += 1;
                parts.push(Part::Count(expr));
            }
            (false, "sum" | "min" | "max", [_]) => parts.push(Part::Other(func, expr)),
            _ => return None,
        }
    }
    value.filter(|_| counts > 0).map(|value| (value, parts))
}

/// The name of a column between the two groupings.
fn name(kind: &str, place: usize) -> String {
    format!("counts_beside_distinct_{kind}{place}")
}

fn call(function: &Arc<AggregateUDF>, argument: Expr) -> Expr {
    let function = Arc::clone(function);
    Expr::AggregateFunction(AggregateFunction::new_udf(
        function,
        vec![argument],
        false,
        None,
        vec![],
        None,
    ))
}

fn divided(aggregate: &Aggregate, value: &Expr, parts: &[Part<'_>]) -> Result<LogicalPlan> {
    let column =
        |kind: &str, place: usize| Expr::Column(Column::new_unqualified(name(kind, place)));
    let keys = aggregate.group_expr.len();
    let mut groups: Vec<Expr> = (aggregate.group_expr.iter().enumerate())
        .map(|(place, key)| key.clone().alias(name("key", place)))
        .collect();
    groups.push(value.clone().alias(name("value", 0)));
    let mut inner = Vec::new();
    let mut outer = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        outer.push(match part {
            Part::Distinct(function) => call(function, column("value", 0)),
            Part::Count(expr) => {
                inner.push((*expr).clone().alias(name("part", place)));
                // DataFusion's own sum, in 64 bits: the number of rows stays below 2^63.
                call(&sum_udaf(), column("part", place))
            }
            Part::Other(function, expr) => {
                inner.push((*expr).clone().alias(name("part", place)));
                call(function, column("part", place))
            }
        });
    }
    let outer: Vec<Expr> = (outer.into_iter().enumerate())
        .map(|(place, expr)| expr.alias(name("whole", place)))
        .collect();
    let inner = LogicalPlanBuilder::from(Arc::unwrap_or_clone(Arc::clone(&aggregate.input)))
        .aggregate(groups, inner)?
        .build()?;
    let groups: Vec<Expr> = (0..keys).map(|place| column("key", place)).collect();
    let whole = LogicalPlanBuilder::from(inner).aggregate(groups, outer)?;
    let shown = (0..keys + parts.len()).map(|place| {
        let (qualifier, field) = aggregate.schema.qualified_field(place);
        let expr = match place.checked_sub(keys) {
            None => column("key", place),
            Some(place) if matches!(parts[place], Part::Count(_)) => {
                // A count without rows is 0, not NULL.
                let zero = lit(ScalarValue::Int64(Some(0)));
                datafusion::functions::core::expr_fn::coalesce(vec![column("whole", place), zero])
            }
            Some(place) => column("whole", place),
        };
        expr.alias_qualified(qualifier.cloned(), field.name())
    });
    whole.project(shown.collect::<Vec<_>>())?.build()
}
