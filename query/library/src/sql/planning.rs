//! Plans SQL on a thread with a large stack, for queries of any length.
//!
//! ```text
//! a OR b OR c OR d     as the parser reads it: (((a OR b) OR c) OR d)     as it is planned: (a OR b) OR (c OR d)
//! ```
//! Parser, planner, optimizer and evaluation recurse once per level of an expression. Therefore, long chains of OR and
//! AND become balanced trees, and expressions that are still too deep are rejected first. Terms that compare the same
//! column, `x = 1 OR x = 2`, become `x IN (1, 2)`, which may have any number of values: the optimizer takes time
//! quadratic in the number of terms (5,000 joined by AND took 13 s).

use std::collections::HashMap;
use std::ops::ControlFlow;

use anyhow::{Context, Result};
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::SessionState;
use datafusion::execution::context::SQLOptions;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Query, Select, SetExpr, TableFactor, Value, VisitorMut,
};

use crate::engine;
use crate::sql::dates;
use crate::sql::dialect;
use crate::sql::macros::{Macro, Macros};
use crate::sql::membership;
use crate::sql::narrowing;
use crate::sql::no_row;
use crate::sql::pivot;
use crate::sql::scoping::{self, Restriction};
use crate::sql::sort_names;
use crate::sql::star;
use crate::sql::state_names;
use crate::sql::times::{self, Starts};
use crate::sql::wrong_answers;
use crate::sql::{aliases, casts};

/// Levels of an expression, queries of a UNION, tables of a join.
pub(crate) const DEEPEST: usize = 1000;
/// Maximum number of conditions joined by OR or AND, other than comparisons of one column with values.
const MOST_TERMS: usize = 10_000;
/// Maximum nesting of brackets and subqueries.
pub(crate) const MOST_NESTED: usize = 200;

/// Stack sizes to try, until the system grants one; only used pages take memory.
const STACKS: [usize; 3] = [1 << 30, 256 << 20, 64 << 20];

/// Runs `work` on a thread with a large stack.
pub(crate) fn on_large_stack(work: impl FnOnce() + Send + 'static) -> Result<()> {
    // If a thread cannot be started, it would keep its work.
    let work = std::sync::Arc::new(std::sync::Mutex::new(Some(work)));
    let mut failure = None;
    for size in STACKS {
        let on_thread = std::sync::Arc::clone(&work);
        // Held until the thread is detached: glibc may read a thread's memory after detaching it, but frees a large stack as soon
        // as the thread ends (SIGSEGV in pthread_detach).
        let before_detached = work.lock();
        let thread = std::thread::Builder::new()
            .name("planner".to_owned())
            .stack_size(size)
            .spawn(move || {
                let work = on_thread.lock().ok().and_then(|mut work| work.take());
                if let Some(work) = work {
                    work();
                }
            })
            .map(drop);
        drop(before_detached);
        match thread {
            Ok(()) => return Ok(()),
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.map_or_else(|| anyhow::anyhow!("no stack size"), anyhow::Error::from))
        .context("cannot start a thread for planning")
}

/// Parses and plans a statement.
pub(crate) async fn plan(state: &SessionState, sql: &str) -> PlanResult<LogicalPlan> {
    plan_within(state, sql, &Restriction::default()).await
}

/// Parses and plans a statement, with conditions on its tables.
pub(crate) async fn plan_within(
    state: &SessionState,
    sql: &str,
    scope: &Restriction,
) -> PlanResult<LogicalPlan> {
    let mut statement = engine::statement(state, sql)?;
    if let Some(macros) = state.config().get_extension::<Macros>() {
        if let Some(new) = Macro::of(&statement, None).map_err(DataFusionError::Plan)? {
            macros.add(new, state).map_err(DataFusionError::Plan)?;
            return LogicalPlanBuilder::empty(false).build();
        }
        macros
            .expand(&mut statement)
            .map_err(DataFusionError::Plan)?;
    }
    let apart = |sql: String| planned_apart(state, sql, scope);
    pivot::expand(&mut statement, state, &apart).await?;
    star::expand(&mut statement, state).await?;
    dialect::translate(&mut statement).map_err(DataFusionError::Plan)?;
    for note in state_names::notes(&mut statement) {
        log::warn!("{note}");
    }
    scoping::restrict(&mut statement, state, scope).await?;
    let mut shape = Shape::default();
    if engine::visit_statement(&mut shape, &mut statement).is_break() {
        return Err(DataFusionError::Plan(shape.wrong));
    }
    let starts = state.config().get_extension::<Starts>();
    if starts.is_some() {
        times::mark(&mut statement);
    }
    let mut plan = planned(statement, state).await?;
    if let Some(starts) = starts {
        plan = times::resolve(plan, &starts)?;
    }
    dates::check(&plan)?;
    plan = membership::resolve(plan)?;
    plan = no_row::resolve(plan)?;
    plan = narrowing::resolve(plan)?;
    // COPY, INSERT, UPDATE and the like: only options of the program write files, never a query.
    SQLOptions::new().with_allow_dml(false).verify_plan(&plan)?;
    Ok(plan)
}

/// Plans another query of the same statement.
fn planned_apart<'p>(
    state: &'p SessionState,
    sql: String,
    scope: &'p Restriction,
) -> pivot::Planned<'p> {
    Box::pin(async move { plan_within(state, &sql, scope).await })
}

/// Plans a statement; names in ORDER BY are read as DuckDB reads them, if that is possible.
async fn planned(statement: Statement, state: &SessionState) -> PlanResult<LogicalPlan> {
    if let Some(reading) = sort_names::reading(&statement)
        && let Ok(plan) = repaired(reading, state).await
    {
        return Ok(plan);
    }
    repaired(statement, state).await
}

/// Plans a statement; where the engine knows a name less than DuckDB does, with the name replaced or added.
async fn repaired(mut statement: Statement, state: &SessionState) -> PlanResult<LogicalPlan> {
    for _ in 0..aliases::MOST {
        match state.statement_to_plan(statement.clone()).await {
            Err(error)
                if aliases::repair(&mut statement, &error)
                    || casts::repair(&mut statement, &error) => {}
            planned => return planned,
        }
    }
    state.statement_to_plan(statement).await
}

/// Rejects statements that define or set something.
pub(crate) fn check_query(plan: &LogicalPlan) -> PlanResult<()> {
    let queries = SQLOptions::new()
        .with_allow_ddl(false)
        .with_allow_dml(false)
        .with_allow_statements(false);
    let is_query = queries.verify_plan(plan).is_ok();
    let wrong = || DataFusionError::Plan("expected a query, found another statement".to_owned());
    is_query.then_some(()).ok_or_else(wrong)
}

/// Whether a string is a single complete expression.
pub(crate) fn check(state: &SessionState, text: &str) -> PlanResult<()> {
    let dialect = state.config().options().sql_parser.dialect;
    state.sql_to_expr(text, &dialect).map(|_| ())
}

/// Balances chains, and rejects deep nesting.
#[derive(Default)]
struct Shape {
    depth: usize,
    wrong: String,
}

impl Shape {
    fn refuse(&mut self, what: &str) -> ControlFlow<()> {
        self.wrong = what.to_owned();
        ControlFlow::Break(())
    }
}

impl VisitorMut for Shape {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Some((operator, terms)) = balance(expr)
            && terms > MOST_TERMS
        {
            return self.refuse(&format!(
                "{terms} conditions joined by {operator}; the maximum is {MOST_TERMS}\nhint: use x IN (…) or x NOT IN (…), which take any number of values"
            ));
        }
        if let Some(wrong) = wrong_answers::of_expr(expr) {
            return self.refuse(wrong);
        }
        self.depth += 1;
        if self.depth > DEEPEST {
            return self.refuse(&format!(
                "an expression is nested more than {DEEPEST} levels deep\nhint: use x IN (…), which takes any number of values"
            ));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, _: &mut Expr) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        match wrong_answers::of_table(table) {
            Some(wrong) => self.refuse(wrong),
            None => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let mut body = query.body.as_ref();
        let mut count = 1;
        while let SetExpr::SetOperation { left, .. } = body {
            body = left;
            count += 1;
        }
        if count > DEEPEST {
            return self.refuse(&format!("a UNION has more than {DEEPEST} queries"));
        }
        if let Some(wrong) = wrong_answers::of_sets(&query.body) {
            return self.refuse(wrong);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let tables: usize = select.from.iter().map(|from| 1 + from.joins.len()).sum();
        if tables > DEEPEST {
            return self.refuse(&format!("a query joins more than {DEEPEST} tables"));
        }
        if let Some(wrong) = wrong_answers::of_select(select) {
            return self.refuse(wrong);
        }
        ControlFlow::Continue(())
    }
}

/// Turns `((a OR b) OR c) OR d` into `(a OR b) OR (c OR d)`; likewise for AND. The terms keep their order, except for
/// those that become lists of values. Returns the operator and the number of terms.
fn balance(expr: &mut Expr) -> Option<(BinaryOperator, usize)> {
    let operator = match expr {
        Expr::BinaryOp { op, .. } if matches!(op, BinaryOperator::Or | BinaryOperator::And) => {
            op.clone()
        }
        _ => return None,
    };
    let mut terms = Vec::new();
    let mut rest = std::mem::replace(expr, Expr::value(Value::Null));
    loop {
        match rest {
            Expr::BinaryOp { left, op, right } if op == operator => {
                terms.push(*right);
                rest = *left;
            }
            first => {
                terms.push(first);
                break;
            }
        }
    }
    terms.reverse();
    if terms.len() >= FEWEST_LISTED {
        terms = with_lists(terms, &operator);
    }
    let count = terms.len();
    while terms.len() > 1 {
        let mut pairs = Vec::with_capacity(terms.len() / 2 + 1);
        let mut each = terms.into_iter();
        while let Some(left) = each.next() {
            pairs.push(match each.next() {
                Some(right) => Expr::BinaryOp {
                    left: Box::new(left),
                    op: operator.clone(),
                    right: Box::new(right),
                },
                None => left,
            });
        }
        terms = pairs;
    }
    if let Some(only) = terms.pop() {
        *expr = only;
    }
    Some((operator, count))
}

/// Shorter chains are not rewritten.
const FEWEST_LISTED: usize = 100;

/// Kinds of values for one list: a mixed list would change the type of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Integer,
    Text,
}

fn kind_of(expr: &Expr) -> Option<Kind> {
    let Expr::Value(value) = expr else {
        return None;
    };
    match &value.value {
        Value::Number(digits, _) if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
            Some(Kind::Integer)
        }
        Value::SingleQuotedString(_) => Some(Kind::Text),
        _ => None,
    }
}

/// Merges terms that compare the same column with values: `x = 1 OR x = 2` as `x IN (1, 2)`, and `x <> 1 AND x <> 2` as
/// `x NOT IN (1, 2)`. NULL has the same effect in both forms.
fn with_lists(terms: Vec<Expr>, operator: &BinaryOperator) -> Vec<Expr> {
    let (wanted, negated) = match operator {
        BinaryOperator::Or => (BinaryOperator::Eq, false),
        _ => (BinaryOperator::NotEq, true),
    };
    let is_column = |expr: &Expr| matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
    let mut kept = Vec::new();
    let mut places: HashMap<(String, Option<Kind>), usize> = HashMap::new();
    for term in terms {
        let (left, right) = match term {
            Expr::BinaryOp { left, op, right }
                if op == wanted && is_column(&left) && kind_of(&right).is_some() =>
            {
                (left, right)
            }
            other => {
                kept.push(other);
                continue;
            }
        };
        let place = *places
            .entry((left.to_string(), kind_of(&right)))
            .or_insert(kept.len());
        match kept.get_mut(place) {
            Some(Expr::InList { list, .. }) => list.push(*right),
            _ => kept.push(Expr::InList {
                expr: left,
                list: vec![*right],
                negated,
            }),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::prelude::SessionContext;

    /// The structure of a SELECT of one expression, or the rejection.
    fn shaped(sql: &str) -> Result<String, String> {
        let state = SessionContext::new().state();
        let mut statement = state
            .sql_to_statement(sql, &datafusion::config::Dialect::Generic)
            .map_err(|error| error.to_string())?;
        let mut shape = Shape::default();
        match engine::visit_statement(&mut shape, &mut statement) {
            ControlFlow::Continue(()) => Ok(statement.to_string()),
            ControlFlow::Break(()) => Err(shape.wrong),
        }
    }

    fn depth(expr: &Expr) -> usize {
        match expr {
            Expr::BinaryOp { left, right, .. } => 1 + depth(left).max(depth(right)),
            _ => 1,
        }
    }

    #[test]
    fn chains_are_balanced_and_keep_their_order() {
        for operator in [BinaryOperator::Or, BinaryOperator::And] {
            let mut chain = Expr::value(Value::Boolean(true));
            for number in 1..1000 {
                chain = Expr::BinaryOp {
                    left: Box::new(chain),
                    op: operator.clone(),
                    right: Box::new(Expr::value(Value::Number(number.to_string(), false))),
                };
            }
            let before = chain.to_string();
            balance(&mut chain);
            assert_eq!((depth(&chain), chain.to_string()), (11, before));
        }
        let comparisons: Vec<String> = (0..100).map(|number| format!("x = {number}")).collect();
        let listed = shaped(&format!("SELECT y OR {}", comparisons.join(" OR "))).unwrap();
        assert!(listed.starts_with("SELECT y OR x IN (0, 1, 2,"), "{listed}");
        let mixed = "SELECT a OR b AND c OR d";
        assert_eq!(shaped(mixed).unwrap(), mixed);
    }

    #[test]
    fn too_deep_expressions_are_rejected() {
        let (sender, receiver) = std::sync::mpsc::channel();
        on_large_stack(move || {
            let chain = |separator: &str, count: usize| vec!["x"; count].join(separator);
            let found = [
                format!("SELECT {}", vec!["x = 1 OR a.y = 2"; 50_000].join(" OR ")),
                format!("SELECT {}", vec!["x <> 1"; 100_000].join(" AND ")),
                format!("SELECT {}", chain(" OR ", 100_000)),
                format!("SELECT {}", chain(" + ", 100_000)),
                format!("SELECT 1{}", " IS NULL".repeat(100_000)),
                vec!["SELECT 1"; 10_000].join(" UNION ALL "),
                format!("SELECT 1 FROM {}", chain(" CROSS JOIN ", 2000)),
                format!("SELECT x IN ({})", chain(", ", 100_000)),
            ]
            .map(|sql| shaped(&sql).map(|_| ()));
            let _ = sender.send(found);
        })
        .unwrap();
        let found = receiver.recv().unwrap();
        let refused = found.each_ref().map(|found| found.is_err());
        let expected = [false, false, true, true, true, true, true, false];
        assert_eq!(refused, expected, "{found:?}");
    }
}
