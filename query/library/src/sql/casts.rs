//! Calls that differ in a cast alone.
//!
//! ```text
//! SELECT sum(ret), sum(CAST(ret AS DOUBLE)) FROM sys_exit
//! SELECT sum(ret), sum(coalesce(CAST(ret AS DOUBLE), NULL)) FROM sys_exit
//! ```
//! The engine omits casts from the names of expressions, and refuses two expressions of the same name. Therefore, each cast
//! becomes an argument of `coalesce`, with a number of NULLs of its own.

use std::ops::ControlFlow;

use datafusion::error::DataFusionError;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident,
    ObjectName, Value, Visit, Visitor, VisitorMut,
};

use crate::engine;

/// Gives calls that differ in a cast different names. Returns whether anything changed.
pub(super) fn repair(statement: &mut Statement, error: &DataFusionError) -> bool {
    let text = error.strip_backtrace();
    if !text.contains("duplicate unqualified field name") {
        return false;
    }
    let mut telling = Telling {
        depth: 0,
        casts: Vec::new(),
        is_told: false,
    };
    let _ = engine::visit_statement(&mut telling, statement);
    !telling.casts.is_empty() && !telling.is_told
}

/// Gives the casts within calls names.
struct Telling {
    /// Calls around an expression.
    depth: usize,
    /// The casts so far: equal ones keep equal names.
    casts: Vec<Expr>,
    /// Whether casts have names from an earlier attempt, which did not help.
    is_told: bool,
}

impl VisitorMut for Telling {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(call) = expr {
            self.depth += 1;
            self.is_told |= is_named_cast(call);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(_) => self.depth -= 1,
            Expr::Cast { .. } if self.depth > 0 && !self.is_told && has_column(expr) => {
                let known = self.casts.iter().position(|known| known == expr);
                let place = known.unwrap_or(self.casts.len());
                if known.is_none() {
                    self.casts.push(expr.clone());
                }
                *expr = named(expr.clone(), place + 1);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// `coalesce(value, NULL, …)`, with that many NULLs.
fn named(value: Expr, nulls: usize) -> Expr {
    let null = || Expr::Value(Value::Null.into());
    let values = std::iter::once(value).chain(std::iter::repeat_with(null).take(nulls));
    let args = values.map(|value| FunctionArg::Unnamed(FunctionArgExpr::Expr(value)));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new("coalesce")]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: args.collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// Whether a call is one of [`named`].
fn is_named_cast(call: &Function) -> bool {
    let FunctionArguments::List(list) = &call.args else {
        return false;
    };
    let mut args = list.args.iter().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value),
        _ => None,
    });
    let is_cast = matches!(args.next(), Some(Some(Expr::Cast { .. })));
    let is_null = |value: Option<&Expr>| matches!(value, Some(Expr::Value(value)) if value.value == Value::Null);
    call.name.to_string() == "coalesce" && is_cast && args.len() > 0 && args.all(is_null)
}

/// Whether a value depends on a row. A function may need a constant, which must stay as it is.
fn has_column(expr: &Expr) -> bool {
    struct Columns(bool);
    impl Visitor for Columns {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            self.0 |= matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
            ControlFlow::Continue(())
        }
    }
    let mut columns = Columns(false);
    let _ = expr.visit(&mut columns);
    columns.0
}
