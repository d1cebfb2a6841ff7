//! Replaces marked durations in a plan by what they are compared with.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::{Between, InList, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, disjunction};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, cast, lit};

use super::{MARK, Starts, several};
use crate::sql::result_units::{self, operation};
use crate::unit::{DURATION, SECONDS, TIME, UNIT};

/// The functions whose result depends on the trace of a row.
const OF_TRACES: [&str; 4] = ["at", "since_start", "wall_time", ALIGNED];

const ALIGNED: &str = "aligned";

/// Resolves all marks, and gives functions of times the trace of the row if several are open.
pub(crate) fn resolve(plan: LogicalPlan, starts: &Starts) -> Result<LogicalPlan> {
    let resolved = plan.transform_down_with_subqueries(|node| {
        let mut is_concerned = false;
        node.apply_expressions(|expr| {
            is_concerned |= expr.exists(|expr| Ok(concerns(expr)))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        if !is_concerned {
            return Ok(Transformed::no(node));
        }
        let inputs: Vec<LogicalPlan> = node.inputs().into_iter().cloned().collect();
        let scope = Scope {
            inputs: &inputs,
            starts,
        };
        let names = NamePreserver::new(&node);
        let node = node.map_expressions(|expr| {
            let name = names.save(&expr);
            let expr = expr.transform_down(|expr| scope.expr(expr))?;
            Ok(expr.update_data(|expr| name.restore(expr)))
        })?;
        Ok(Transformed::yes(node.data.recompute_schema()?))
    })?;
    Ok(resolved.data)
}

/// The value of an argument of a view: of a literal, or of a marked duration, which is a time if the argument is one.
pub(crate) fn in_call(expr: &Expr, is_time: bool, starts: &Starts) -> Result<Option<ScalarValue>> {
    Ok(match expr {
        Expr::Literal(value, _) => Some(value.clone()),
        _ => match marked(expr)? {
            Some(offset) if is_time => Some(ScalarValue::from(starts.at(offset.ns)?)),
            Some(offset) => Some(ScalarValue::from(offset.ns)),
            None => None,
        },
    })
}

fn concerns(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(call) => call.name() == MARK || OF_TRACES.contains(&call.name()),
        _ => false,
    }
}

fn called<'e>(expr: &'e Expr, name: &str) -> Option<&'e ScalarFunction> {
    match expr {
        Expr::ScalarFunction(call) if call.name() == name => Some(call),
        _ => None,
    }
}

/// A duration, and whether it is written as an INTERVAL.
#[derive(Debug, Clone, Copy)]
struct Offset {
    ns: i64,
    is_interval: bool,
}

/// The duration in a mark.
fn marked(expr: &Expr) -> Result<Option<Offset>> {
    let Some(call) = called(expr, MARK) else {
        return Ok(None);
    };
    let ns = match call.args.first() {
        Some(Expr::Literal(value, _)) => nanoseconds(value)?,
        _ => None,
    };
    let wrong = || DataFusionError::Plan(format!("expected a duration, found {expr}"));
    let ns = ns.ok_or_else(wrong)?;
    let is_interval = !matches!(
        call.args.first(),
        Some(Expr::Literal(ScalarValue::Int64(_), _))
    );
    Ok(Some(Offset { ns, is_interval }))
}

/// The nanoseconds of an integer or an interval; `None` for another value.
pub(crate) fn nanoseconds(value: &ScalarValue) -> Result<Option<i64>> {
    Ok(match value {
        ScalarValue::Int64(value) => *value,
        ScalarValue::IntervalMonthDayNano(Some(interval)) if interval.months != 0 => {
            let text = "an interval with months or years has no length in nanoseconds\nhint: use a duration such as 36h";
            return Err(DataFusionError::Plan(text.to_owned()));
        }
        ScalarValue::IntervalMonthDayNano(Some(interval)) => i64::from(interval.days)
            .checked_mul(86_400_000_000_000)
            .and_then(|days| days.checked_add(interval.nanoseconds)),
        _ => None,
    })
}

/// What an expression of a plan's node may refer to.
struct Scope<'p> {
    inputs: &'p [LogicalPlan],
    starts: &'p Starts,
}

impl Scope<'_> {
    fn expr(&self, expr: Expr) -> Result<Transformed<Expr>> {
        match expr {
            Expr::BinaryExpr(binary) if is_comparison(binary.op) => self.comparison(binary),
            Expr::Between(between)
                if self.is_relative(&[&between.low, &between.high, &between.expr])?
                    || self.is_time_with_duration(&between.expr, &between.low)
                    || self.is_time_with_duration(&between.expr, &between.high) =>
            {
                Ok(Transformed::yes(range(between)))
            }
            Expr::InList(list) => self.in_list(list),
            Expr::ScalarFunction(call) if call.name() == MARK => {
                let expr = Expr::ScalarFunction(call);
                let offset = marked(&expr)?;
                Ok(Transformed::yes(
                    offset.map_or(expr, |offset| lit(offset.ns)),
                ))
            }
            Expr::ScalarFunction(call) if OF_TRACES.contains(&call.name()) => self.of_trace(call),
            expr => Ok(Transformed::no(expr)),
        }
    }

    /// Whether one of these is a duration, or a time from the start of the trace.
    fn is_relative(&self, sides: &[&Expr]) -> Result<bool> {
        for side in sides {
            let is_function = OF_TRACES.iter().any(|name| called(side, name).is_some());
            if is_function || marked(side)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn comparison(&self, binary: BinaryExpr) -> Result<Transformed<Expr>> {
        let BinaryExpr { left, op, right } = binary;
        if let Some(expr) = self.compared(&left, op, &right)? {
            return Ok(Transformed::yes(expr));
        }
        // The same from right to left.
        if let Some(expr) = self.compared(&right, swapped(op), &left)? {
            return Ok(Transformed::yes(expr));
        }
        Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr {
            left,
            op,
            right,
        })))
    }

    /// The comparison of `value` with a duration, or of a time from the start of the trace with a number; `None` if it is another.
    fn compared(&self, value: &Expr, op: Operator, with: &Expr) -> Result<Option<Expr>> {
        if let Some(call) = called(with, "at")
            && let [offset] = call.args.as_slice()
        {
            let ns = match (marked(offset)?, offset) {
                (Some(offset), _) => Some(offset.ns),
                (None, Expr::Literal(literal, _)) => nanoseconds(literal)?,
                _ => None,
            };
            return ns.map(|ns| self.relative(value, op, ns)).transpose();
        }
        if let Some(call) = called(value, ALIGNED)
            && let [time] = call.args.as_slice()
        {
            let place = match (marked(with)?, with) {
                (Some(offset), _) => {
                    let start = self.starts.all.first().and_then(|first| first.time);
                    Some(start.unwrap_or_default().saturating_add(offset.ns))
                }
                (None, Expr::Literal(ScalarValue::Int64(place), _)) => *place,
                _ => None,
            };
            return match place {
                Some(place) => self.aligned(time, op, place),
                None => Ok(None),
            };
        }
        let since_start = called(value, "since_start").filter(|call| call.args.len() == 1);
        let Some(offset) = marked(with)? else {
            if self.is_time_with_duration(value, with) {
                return self.relative_to(value, op, with).map(Some);
            }
            // `since_start(time) > 5.5`: reaches the scan as a condition on the time.
            return match (
                since_start.and_then(|call| call.args.first()),
                whole_seconds(with),
            ) {
                (Some(time), Some(ns)) => self.relative(time, op, ns).map(Some),
                _ => Ok(None),
            };
        };
        if let Some(time) = since_start.and_then(|call| call.args.first()) {
            return self.relative(time, op, offset.ns).map(Some);
        }
        let plain = |with: Expr| {
            Some(Expr::BinaryExpr(BinaryExpr::new(
                Box::new(value.clone()),
                op,
                Box::new(with),
            )))
        };
        Ok(match self.unit(value).as_deref() {
            Some(TIME) => Some(self.relative(value, op, offset.ns)?),
            Some(SECONDS) => plain(lit(offset.ns as f64 / 1e9)),
            _ => match self.kind(value) {
                Some(DataType::Timestamp(..) | DataType::Date32 | DataType::Date64) => {
                    let text = "expected a date and time, found a duration\nhint: compare with '2026-03-01 10:15:00', or compare since_start(time) with the duration";
                    return Err(DataFusionError::Plan(text.to_owned()));
                }
                Some(DataType::Interval(_) | DataType::Duration(_)) if offset.is_interval => {
                    let interval = ScalarValue::new_interval_mdn(0, 0, offset.ns);
                    plain(Expr::Literal(interval, None))
                }
                _ => plain(lit(offset.ns)),
            },
        })
    }

    /// Whether a time is compared with a duration that is computed, such as `1s - duration`.
    fn is_time_with_duration(&self, value: &Expr, with: &Expr) -> bool {
        self.unit(value).as_deref() == Some(TIME) && self.unit(with).as_deref() == Some(DURATION)
    }

    /// The comparison of a time with one from the start of the trace: in each trace with another number.
    fn relative(&self, time: &Expr, op: Operator, offset: i64) -> Result<Expr> {
        self.compared_from_start(time, op, |start| lit(start.saturating_add(offset)))
    }

    /// The same with an offset that is computed.
    fn relative_to(&self, time: &Expr, op: Operator, offset: &Expr) -> Result<Expr> {
        self.compared_from_start(time, op, |start| lit(start) + offset.clone())
    }

    /// The comparison of a time with a number that depends on the start of its trace.
    fn compared_from_start(
        &self,
        time: &Expr,
        op: Operator,
        with: impl Fn(i64) -> Expr,
    ) -> Result<Expr> {
        let compared = |start: i64| {
            let (time, with) = (Box::new(time.clone()), Box::new(with(start)));
            Expr::BinaryExpr(BinaryExpr::new(time, op, with))
        };
        if let [start] = self.starts.all.as_slice() {
            return Ok(compared(start.time.unwrap_or_default()));
        }
        let trace = self.trace(time)?;
        let with_start = self.starts.all.iter();
        let each = with_start.filter_map(|start| Some((&start.trace, start.time?)));
        let each = each.filter_map(|(name, start)| {
            conjunction([trace.clone().eq(lit(name.as_str())), compared(start)])
        });
        Ok(disjunction(each).unwrap_or_else(|| lit(false)))
    }

    /// The comparison of the aligned time with a place on the timeline, as one of the time in each trace; `None` for operators that no
    /// range of times can answer.
    fn aligned(&self, time: &Expr, op: Operator, place: i64) -> Result<Option<Expr>> {
        use Operator::{Eq, Gt, GtEq, Lt, LtEq};
        if !matches!(op, Eq | Gt | GtEq | Lt | LtEq) {
            return Ok(None);
        }
        let trace = match self.starts.all.len() {
            1 => None,
            _ => Some(self.trace(time)?),
        };
        let mut each = Vec::new();
        for start in &self.starts.all {
            let compared = match &start.placement {
                Some(placement) => {
                    let here = placement.first_at(place);
                    let after = place
                        .checked_add(1)
                        .and_then(|next| placement.first_at(next));
                    // NULL stays NULL, which a constant would not.
                    let from = |first: Option<i64>| match first {
                        Some(first) => time.clone().gt_eq(lit(first)),
                        None => time.clone().gt(lit(i64::MAX)),
                    };
                    let before = |first: Option<i64>| match first {
                        Some(first) => time.clone().lt(lit(first)),
                        None => time.clone().lt_eq(lit(i64::MAX)),
                    };
                    match op {
                        Gt => from(after),
                        GtEq => from(here),
                        Lt => before(here),
                        LtEq => before(after),
                        _ => from(here).and(before(after)),
                    }
                }
                None => {
                    self.starts.warn_of_unplaced();
                    lit(ScalarValue::Boolean(None))
                }
            };
            each.push(match &trace {
                Some(trace) => trace.clone().eq(lit(start.trace.as_str())).and(compared),
                None => compared,
            });
        }
        Ok(disjunction(each))
    }

    /// The column with the trace of the row that `expr` is of.
    fn trace(&self, expr: &Expr) -> Result<Expr> {
        let columns = self
            .inputs
            .iter()
            .flat_map(|input| input.schema().columns());
        let traces: Vec<Column> = columns.filter(|column| column.name == "trace").collect();
        let tables: Vec<_> = expr
            .column_refs()
            .into_iter()
            .map(|column| column.relation.clone())
            .collect();
        let of_table = traces.iter().find(|trace| tables.contains(&trace.relation));
        match (of_table, traces.as_slice()) {
            (Some(trace), _) | (None, [trace]) => Ok(Expr::Column(trace.clone())),
            _ => Err(several(self.starts.all.len())),
        }
    }

    /// Adds the trace of the row to a call, if several are open.
    fn of_trace(&self, mut call: ScalarFunction) -> Result<Transformed<Expr>> {
        for arg in &mut call.args {
            if let Some(offset) = marked(arg)? {
                *arg = lit(offset.ns);
            }
        }
        if call.name() == ALIGNED {
            self.starts.warn_of_unplaced();
        }
        if call.args.len() == 1 && self.starts.all.len() > 1 {
            let trace = self.trace(&call.args[0])?;
            call.args.push(cast(trace, DataType::Utf8));
        }
        // A call that is complete changes no more.
        Ok(Transformed::yes(Expr::ScalarFunction(call)))
    }

    fn in_list(&self, list: InList) -> Result<Transformed<Expr>> {
        let all: Vec<&Expr> = list.list.iter().chain([list.expr.as_ref()]).collect();
        if !self.is_relative(&all)? {
            return Ok(Transformed::no(Expr::InList(list)));
        }
        let equal = list
            .list
            .into_iter()
            .map(|value| list.expr.as_ref().clone().eq(value));
        let any = disjunction(equal).unwrap_or_else(|| lit(false));
        Ok(Transformed::yes(if list.negated { !any } else { any }))
    }

    /// The unit of a side of a comparison, where numbers that are added to a time or a duration are nanoseconds.
    fn unit(&self, expr: &Expr) -> Option<String> {
        if let Some((op, left, right)) = operation(expr) {
            return match (op, is_number(left), is_number(right)) {
                (_, true, true) => None,
                (Operator::Multiply, true, _) => self.unit(right).filter(|unit| unit == DURATION),
                (Operator::Multiply, _, true) => self.unit(left).filter(|unit| unit == DURATION),
                _ => {
                    let (left, right) = (self.term(left), self.term(right));
                    result_units::of_sum(op, left.as_deref(), right.as_deref()).map(str::to_owned)
                }
            };
        }
        if let Expr::OuterReferenceColumn(field, _) = expr {
            return field.metadata().get(UNIT).cloned();
        }
        self.inputs
            .iter()
            .find_map(|input| result_units::of_expr(expr, input))
    }

    /// The unit of a term of a sum.
    fn term(&self, expr: &Expr) -> Option<String> {
        match is_number(expr) {
            true => Some(DURATION.to_owned()),
            false => self.unit(expr),
        }
    }

    fn kind(&self, expr: &Expr) -> Option<DataType> {
        self.inputs
            .iter()
            .find_map(|input| expr.get_type(input.schema()).ok())
    }
}

/// Whether an expression is a whole number, a duration or an interval, or computed from these.
fn is_number(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(ScalarValue::Int64(_) | ScalarValue::IntervalMonthDayNano(_), _) => true,
        Expr::ScalarFunction(call) if call.name() == MARK => true,
        Expr::Negative(expr) => is_number(expr),
        Expr::Cast(cast) => is_number(&cast.expr),
        expr => operation(expr).is_some_and(|(_, left, right)| is_number(left) && is_number(right)),
    }
}

fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(
        op,
        Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom
    )
}

/// The operator with which `b` compares to `a` as `a` to `b`.
fn swapped(op: Operator) -> Operator {
    match op {
        Operator::Lt => Operator::Gt,
        Operator::LtEq => Operator::GtEq,
        Operator::Gt => Operator::Lt,
        Operator::GtEq => Operator::LtEq,
        symmetric => symmetric,
    }
}

/// `x BETWEEN a AND b` as two comparisons.
fn range(between: Between) -> Expr {
    let Between {
        expr,
        negated,
        low,
        high,
    } = between;
    let both = expr.as_ref().clone().gt_eq(*low).and(expr.lt_eq(*high));
    if negated { !both } else { both }
}

/// The nanoseconds of a literal in seconds, if it has no fraction of a nanosecond: then `time - start` compares like
/// `since_start(time)`, since both round the same quotient.
fn whole_seconds(expr: &Expr) -> Option<i64> {
    let Expr::Literal(value, _) = expr else {
        return None;
    };
    let seconds = match value {
        ScalarValue::Float64(Some(seconds)) => *seconds,
        ScalarValue::Int64(Some(seconds)) => return seconds.checked_mul(1_000_000_000),
        _ => return None,
    };
    let ns = (seconds * 1e9).round();
    (ns.abs() < 9e15 && ns / 1e9 == seconds).then_some(ns as i64)
}
