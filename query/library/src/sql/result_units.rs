//! Units of the columns of a result, from the units of the columns of tables and views that they are computed from.
//!
//! ```text
//! max(duration), sum(self_time), lead(time) - time      ns: written as 1.234 ms in a table
//! duration / 1000, count(duration), time                numbers
//! ```

use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::{Expr, LogicalPlan, Operator, WindowFunctionDefinition};

use crate::unit::{DURATION, SECONDS, TIME, UNIT};

/// Returns the unit of each column of a plan; `None` if it has none, or is not known.
pub(crate) fn of(plan: &LogicalPlan) -> Vec<Option<String>> {
    let columns = 0..plan.schema().fields().len();
    columns.map(|column| of_column(plan, column)).collect()
}

fn of_column(plan: &LogicalPlan, column: usize) -> Option<String> {
    match plan {
        LogicalPlan::Projection(projection) => {
            of_expr(projection.expr.get(column)?, &projection.input)
        }
        LogicalPlan::Aggregate(aggregate) => {
            // Grouping sets add columns that are none of these.
            let expr = aggregate.group_expr.iter().chain(&aggregate.aggr_expr);
            match aggregate.group_expr.first() {
                Some(Expr::GroupingSet(_)) => None,
                _ => of_expr(expr.into_iter().nth(column)?, &aggregate.input),
            }
        }
        LogicalPlan::Window(window) => {
            let own = column.checked_sub(window.input.schema().fields().len());
            match own {
                Some(own) => of_expr(window.window_expr.get(own)?, &window.input),
                None => of_column(&window.input, column),
            }
        }
        LogicalPlan::SubqueryAlias(alias) => of_column(&alias.input, column),
        LogicalPlan::Filter(filter) => of_column(&filter.input, column),
        LogicalPlan::Sort(sort) => of_column(&sort.input, column),
        LogicalPlan::Limit(limit) => of_column(&limit.input, column),
        LogicalPlan::Repartition(repartition) => of_column(&repartition.input, column),
        LogicalPlan::Distinct(distinct) => of_column(distinct.input(), column),
        LogicalPlan::Union(union) => {
            let mut units = union.inputs.iter().map(|input| of_column(input, column));
            let first = units.next()?;
            units.all(|unit| unit == first).then_some(first)?
        }
        LogicalPlan::Join(join) => {
            let left = join.left.schema().fields().len();
            let is_of_left = join.schema.fields().len() <= left;
            match column.checked_sub(left).filter(|_| !is_of_left) {
                Some(column) => of_column(&join.right, column),
                None => of_column(&join.left, column),
            }
        }
        LogicalPlan::TableScan(scan) => {
            let field = scan.projected_schema.fields().get(column)?;
            field.metadata().get(UNIT).cloned()
        }
        _ => {
            let field = plan.schema().fields().get(column)?;
            field.metadata().get(UNIT).cloned()
        }
    }
}

/// Returns the unit of an expression over the columns of `input`.
pub(crate) fn of_expr(expr: &Expr, input: &LogicalPlan) -> Option<String> {
    let of = |expr: &Expr| of_expr(expr, input);
    if let Some((operator, left, right)) = operation(expr) {
        let (left, right) = (of(left), of(right));
        return of_sum(operator, left.as_deref(), right.as_deref()).map(str::to_owned);
    }
    match expr {
        Expr::Column(column) => of_column(input, place(column, input.schema())?),
        Expr::Alias(alias) => match &alias.metadata {
            Some(metadata) if metadata.inner().contains_key(UNIT) => {
                metadata.inner().get(UNIT).cloned()
            }
            _ => of(&alias.expr),
        },
        Expr::Cast(cast) => of(&cast.expr),
        Expr::TryCast(cast) => of(&cast.expr),
        Expr::Negative(value) => of(value),
        Expr::AggregateFunction(call) => {
            let argument = call.params.args.first()?;
            keeps_unit(call.func.name()).then(|| of(argument))?
        }
        Expr::WindowFunction(call) => {
            let argument = call.params.args.first()?;
            let name = match &call.fun {
                WindowFunctionDefinition::AggregateUDF(function) => function.name(),
                WindowFunctionDefinition::WindowUDF(function) => function.name(),
            };
            keeps_unit(name).then(|| of(argument))?
        }
        Expr::ScalarFunction(call) => {
            match call.name() {
                "since_start" => return Some(SECONDS.to_owned()),
                "at" | "aligned" => return Some(TIME.to_owned()),
                _ => {}
            }
            let argument = call.args.first()?;
            keeps_unit(call.name()).then(|| of(argument))?
        }
        Expr::Case(case) => {
            let branches = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
            let branches = branches.chain(case.else_expr.as_deref());
            let is_null = |expr: &Expr| matches!(expr, Expr::Literal(value, _) if value.is_null());
            let mut units = branches.filter(|expr| !is_null(expr)).map(of);
            let first = units.next()?;
            units.all(|unit| unit == first).then_some(first)?
        }
        _ => None,
    }
}

/// A sum, difference or product, as an operator or as the function that checks for overflow (`functions/arithmetic.rs`).
pub(super) fn operation(expr: &Expr) -> Option<(Operator, &Expr, &Expr)> {
    match expr {
        Expr::BinaryExpr(binary) => {
            let is_operation = matches!(
                binary.op,
                Operator::Plus | Operator::Minus | Operator::Multiply
            );
            is_operation.then_some((binary.op, &*binary.left, &*binary.right))
        }
        Expr::ScalarFunction(call) => {
            let operator = match call.name() {
                "whole_sum" => Operator::Plus,
                "whole_difference" => Operator::Minus,
                "whole_product" => Operator::Multiply,
                _ => return None,
            };
            match call.args.as_slice() {
                [left, right] => Some((operator, left, right)),
                _ => None,
            }
        }
        Expr::Cast(cast) => operation(&cast.expr),
        _ => None,
    }
}

/// The unit of `a + b` and `a - b`.
pub(super) fn of_sum(
    operator: Operator,
    left: Option<&str>,
    right: Option<&str>,
) -> Option<&'static str> {
    match (operator, left, right) {
        // From one time to another.
        (Operator::Minus, Some(TIME), Some(TIME)) => Some(DURATION),
        (Operator::Plus, Some(TIME), Some(DURATION)) => Some(TIME),
        (Operator::Plus, Some(DURATION), Some(TIME)) => Some(TIME),
        (Operator::Minus, Some(TIME), Some(DURATION)) => Some(TIME),
        (Operator::Plus | Operator::Minus, Some(DURATION), Some(DURATION)) => Some(DURATION),
        _ => None,
    }
}

/// Whether a function's result has the unit of its first argument.
fn keeps_unit(function: &str) -> bool {
    matches!(
        function,
        "min"
            | "max"
            | "sum"
            | "avg"
            | "mean"
            | "median"
            | "stddev"
            | "stddev_pop"
            | "stddev_samp"
            | "quantile"
            | "percentile_cont"
            | "approx_median"
            | "approx_percentile_cont"
            | "first_value"
            | "last_value"
            | "nth_value"
            | "any_value"
            | "lag"
            | "lead"
            | "coalesce"
            | "or_null"
            | "nullif"
            | "greatest"
            | "least"
            | "abs"
            | "round"
    )
}

fn place(column: &Column, schema: &DFSchema) -> Option<usize> {
    schema.maybe_index_of_column(column)
}
