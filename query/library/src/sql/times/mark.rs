//! Marks durations in comparisons, in the tree that the parser makes.

use std::ops::ControlFlow;

use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr as PlanExpr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName, TableFactor, UnaryOperator, Value, VisitorMut,
};
use perfquet_views::VIEWS;

use super::MARK;
use crate::engine;

/// Marks each duration that is compared, or an argument of a view.
pub(crate) fn mark(statement: &mut Statement) {
    let _ = engine::visit_statement(&mut Marker, statement);
}

struct Marker;

impl VisitorMut for Marker {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::BinaryOp { left, op, right } if is_comparison(op) => {
                [left, right].into_iter().for_each(|side| wrap(side));
            }
            Expr::IsDistinctFrom(left, right) | Expr::IsNotDistinctFrom(left, right) => {
                [left, right].into_iter().for_each(|side| wrap(side));
            }
            Expr::Between {
                expr, low, high, ..
            } => [expr, low, high].into_iter().for_each(|side| wrap(side)),
            Expr::InList { expr, list, .. } => {
                wrap(expr);
                list.iter_mut().for_each(wrap);
            }
            Expr::Function(call) if call.name.to_string().eq_ignore_ascii_case("at") => {
                if let FunctionArguments::List(list) = &mut call.args {
                    list.args.iter_mut().for_each(wrap_argument);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table {
            name,
            args: Some(args),
            ..
        } = table
        {
            let name = name.to_string().to_lowercase();
            if VIEWS.iter().any(|view| view.name == name) {
                args.args.iter_mut().for_each(wrap_argument);
            }
        }
        ControlFlow::Continue(())
    }
}

fn is_comparison(operator: &BinaryOperator) -> bool {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq, Spaceship};
    matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq | Spaceship)
}

fn wrap_argument(argument: &mut FunctionArg) {
    if let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = argument {
        wrap(expr);
    }
}

/// Puts a duration into the call that marks it: a literal, a sum of literals, or an INTERVAL. In a sum with other terms, each literal.
fn wrap(expr: &mut Expr) {
    let marked = match inner(expr) {
        Expr::Interval(_) => inner(expr).clone(),
        _ => match duration(expr) {
            Some((sum, true)) => Expr::value(Value::Number(sum.to_string(), false)),
            _ => return wrap_terms(expr),
        },
    };
    *expr = Expr::Function(Function {
        name: ObjectName::from(vec![Ident::with_quote('"', MARK)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(marked))],
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    });
}

/// Marks the durations among the terms of a sum. An INTERVAL may be added to a date, and stays one.
fn wrap_terms(expr: &mut Expr) {
    match expr {
        Expr::Nested(expr) => wrap_terms(expr),
        Expr::BinaryOp {
            left,
            op: BinaryOperator::Plus | BinaryOperator::Minus,
            right,
        } => {
            for term in [left, right] {
                if !matches!(inner(term), Expr::Interval(_)) {
                    wrap(term);
                }
            }
        }
        _ => {}
    }
}

fn inner(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(expr) => inner(expr),
        expr => expr,
    }
}

/// The value of an expression of whole numbers, and whether one of them has a unit.
fn duration(expr: &Expr) -> Option<(i64, bool)> {
    match expr {
        Expr::Nested(expr) => duration(expr),
        Expr::Value(value) => match &value.value {
            Value::Number(digits, has_unit) => Some((digits.parse().ok()?, *has_unit)),
            _ => None,
        },
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => {
            let (value, has_unit) = duration(expr)?;
            Some((value.checked_neg()?, has_unit))
        }
        Expr::BinaryOp { left, op, right } => {
            let ((left, one), (right, other)) = (duration(left)?, duration(right)?);
            let value = match op {
                BinaryOperator::Plus => left.checked_add(right),
                BinaryOperator::Minus => left.checked_sub(right),
                BinaryOperator::Multiply => left.checked_mul(right),
                _ => None,
            };
            Some((value?, one || other))
        }
        _ => None,
    }
}

/// Registers the function of the call.
pub(crate) fn register(context: &SessionContext) {
    context.register_udf(ScalarUDF::from(Marked {
        // Volatile: the planner would replace it in arguments of table functions by its value.
        signature: Signature::any(1, Volatility::Volatile),
    }));
}

/// Its value, as if the duration were not compared with a time. [`super::resolve`] leaves no call of it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Marked {
    signature: Signature,
}

impl ScalarUDFImpl for Marked {
    fn name(&self) -> &str {
        MARK
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    // Columns are named as if the literal had no mark.
    fn schema_name(&self, args: &[PlanExpr]) -> Result<String> {
        Ok(args
            .iter()
            .map(|arg| arg.schema_name().to_string())
            .collect())
    }

    fn display_name(&self, args: &[PlanExpr]) -> Result<String> {
        Ok(args.iter().map(PlanExpr::to_string).collect())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        args.args[0].cast_to(&DataType::Int64, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::literals::with_nanoseconds;

    fn check(condition: &str, expected: &str) {
        let sql = with_nanoseconds(&format!("SELECT 1 FROM t WHERE {condition}")).unwrap();
        let mut statement = engine::statement(&SessionContext::new().state(), &sql).unwrap();
        mark(&mut statement);
        let found = statement.to_string().replace(MARK, "d");
        let expected = format!("SELECT 1 FROM t WHERE {expected}");
        assert_eq!(found, expected, "{condition}");
    }

    #[test]
    fn durations_are_marked_where_they_are_compared() {
        check("time > 3s", "time > \"d\"(3000000000)");
        check("-1us < x AND y = 5", "\"d\"(-1000) < x AND y = 5");
        check(
            "time BETWEEN (1s + 2 * 3us) AND 4",
            "time BETWEEN \"d\"(1000006000) AND 4",
        );
        check("t IN (1ns, 2)", "t IN (\"d\"(1), 2)");
        check("t > INTERVAL '1 s'", "t > \"d\"(INTERVAL '1 s')");
        check("t > at(1ns)", "t > at(\"d\"(1))");
        check("time > x + 3s", "time > x + \"d\"(3000000000)");
        check(
            "time - (5us) BETWEEN 1us AND INTERVAL '1 s' - x",
            "time - \"d\"(5000) BETWEEN \"d\"(1000) AND INTERVAL '1 s' - x",
        );
        check("time > 3 + 1e3", "time > 3 + 1e3");
    }
}
