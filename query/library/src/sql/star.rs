//! Clauses that stand for columns of tables: `COLUMNS(…)` and `* RENAME (…)`, as in DuckDB.
//!
//! ```text
//! SELECT COLUMNS('_stack$') FROM samples        SELECT kernel_stack, user_stack FROM samples
//! SELECT max(COLUMNS(['pid', 'tid'])) FROM t    SELECT max(pid), max(tid) FROM t
//! SELECT COLUMNS(c -> c LIKE '%id') FROM t      SELECT pid, tid FROM t
//! SELECT * RENAME (time AS ts) FROM t           SELECT time AS ts, cpu, … FROM t
//! ```

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch, StringArray, StringViewArray};
use arrow::compute::kernels::regexp::regexp_is_match_scalar;
use arrow::datatypes::{DataType, Field, Schema as ArrowSchema};
use datafusion::common::DFSchema;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    LambdaFunction, Query, RenameSelectItem, Select, SelectItem, Statement as SqlStatement,
    TableWithJoins, Value, VisitMut, VisitorMut, WildcardAdditionalOptions, With,
};

use crate::engine;
use crate::sql::definitions::Definitions;
use crate::sql::dialect;

/// Statements with more of these clauses are rejected.
const MOST: usize = 100;

/// Replaces these clauses by the columns that they stand for.
pub(super) async fn expand(statement: &mut Statement, state: &SessionState) -> Result<()> {
    for _ in 0..MOST {
        let mut search = Search::default();
        let _ = engine::visit_statement(&mut search, statement);
        let Some((definitions, from)) = search.found else {
            return Ok(());
        };
        let columns = columns_of(definitions, from, state).await?;
        choose(statement, &columns, state)?;
        let mut expansion = Expansion {
            columns: &columns,
            wrong: String::new(),
            is_done: false,
        };
        let _ = engine::visit_statement(&mut expansion, statement);
        if !expansion.wrong.is_empty() {
            return Err(DataFusionError::Plan(expansion.wrong));
        }
        if !expansion.is_done {
            return Ok(());
        }
    }
    let message = format!("COLUMNS: more than {MOST} of them");
    Err(DataFusionError::Plan(message))
}

/// Replaces the functions in the clauses of the first SELECT by the names that fulfill them.
fn choose(statement: &mut Statement, columns: &[String], state: &SessionState) -> Result<()> {
    let mut choice = Choice {
        columns,
        state,
        wrong: None,
    };
    let _ = engine::visit_statement(&mut choice, statement);
    choice.wrong.map_or(Ok(()), Err)
}

struct Choice<'c> {
    columns: &'c [String],
    state: &'c SessionState,
    wrong: Option<DataFusionError>,
}

impl VisitorMut for Choice<'_> {
    type Break = ();

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if !select.projection.iter_mut().any(is_expanded) {
            return ControlFlow::Continue(());
        }
        for item in &mut select.projection {
            let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item
            else {
                continue;
            };
            let mut clauses = Functions { choice: self };
            if expr.visit(&mut clauses).is_break() {
                break;
            }
        }
        ControlFlow::Break(())
    }
}

/// Finds `COLUMNS(c -> …)` in an expression.
struct Functions<'f, 'c> {
    choice: &'f mut Choice<'c>,
}

impl VisitorMut for Functions<'_, '_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::Function(call) = expr else {
            return ControlFlow::Continue(());
        };
        let FunctionArguments::List(list) = &mut call.args else {
            return ControlFlow::Continue(());
        };
        let is_clause = call.name.to_string().eq_ignore_ascii_case("columns");
        let [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] = list.args.as_mut_slice()
        else {
            return ControlFlow::Continue(());
        };
        let Some(Expr::Lambda(function)) = dialect::lambda(argument).filter(|_| is_clause) else {
            return ControlFlow::Continue(());
        };
        match fulfilling(&function, self.choice.columns, self.choice.state) {
            Ok(names) => {
                let each = names.into_iter().map(|name| {
                    let name = Value::SingleQuotedString(name);
                    Expr::value(name)
                });
                *argument = Expr::Array(datafusion::sql::sqlparser::ast::Array {
                    elem: each.collect(),
                    named: false,
                });
                ControlFlow::Continue(())
            }
            Err(wrong) => {
                self.choice.wrong = Some(wrong);
                ControlFlow::Break(())
            }
        }
    }
}

/// The columns whose name fulfills `function`.
fn fulfilling(
    function: &LambdaFunction,
    columns: &[String],
    state: &SessionState,
) -> Result<Vec<String>> {
    let name = function.params.iter().next();
    let name = name.map_or_else(String::new, |parameter| parameter.name.value.clone());
    let mut condition = engine::statement(state, &format!("SELECT {}", function.body))?;
    dialect::translate(&mut condition).map_err(DataFusionError::Plan)?;
    let condition = condition.to_string();
    let condition = condition.strip_prefix("SELECT ").unwrap_or(&condition);
    let field = Field::new(name.to_lowercase(), DataType::Utf8View, false);
    let schema = Arc::new(ArrowSchema::new(vec![field]));
    let known = DFSchema::try_from(Arc::clone(&schema))?;
    let condition = state.create_logical_expr(condition, &known)?;
    let condition = state.create_physical_expr(condition, &known)?;
    let names = Arc::new(StringViewArray::from_iter_values(columns));
    let batch = RecordBatch::try_new(schema, vec![names])?;
    let holds = condition.evaluate(&batch)?.into_array(columns.len())?;
    let Some(holds) = holds.as_boolean_opt() else {
        let message = format!(
            "COLUMNS: expected a condition, found {}\nhint: COLUMNS(c -> c LIKE '%id')",
            function.body
        );
        return Err(DataFusionError::Plan(message));
    };
    let found = columns.iter().zip(holds);
    let found: Vec<String> = found
        .filter(|(_, holds)| *holds == Some(true))
        .map(|(name, _)| name.clone())
        .collect();
    if found.is_empty() {
        let message = format!(
            "COLUMNS: no column fulfills {}\nhint: use one of: {}",
            function.body,
            columns.join(", ")
        );
        return Err(DataFusionError::Plan(message));
    }
    Ok(found)
}

/// The columns of the tables that a SELECT reads.
async fn columns_of(
    definitions: Option<With>,
    from: Vec<TableWithJoins>,
    state: &SessionState,
) -> Result<Vec<String>> {
    if from.is_empty() {
        let message = "COLUMNS: expected FROM and a table".to_owned();
        return Err(DataFusionError::Plan(message));
    }
    let Statement::Statement(mut probe) = engine::statement(state, "SELECT * FROM t LIMIT 0")?
    else {
        return Ok(Vec::new());
    };
    if let SqlStatement::Query(query) = probe.as_mut() {
        if let datafusion::sql::sqlparser::ast::SetExpr::Select(select) = query.body.as_mut() {
            select.from = from;
        }
        query.with = definitions;
    }
    let plan = state.statement_to_plan(Statement::Statement(probe)).await?;
    let fields = plan.schema().fields().iter();
    let mut names: Vec<String> = Vec::new();
    for field in fields {
        if !names.contains(field.name()) {
            names.push(field.name().clone());
        }
    }
    Ok(names)
}

/// What the probe for the columns of a SELECT needs: the definitions around it, and its tables.
type Found = (Option<With>, Vec<TableWithJoins>);

/// Finds the first SELECT with such a clause.
#[derive(Default)]
struct Search {
    definitions: Definitions,
    found: Option<Found>,
}

impl VisitorMut for Search {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.definitions.enter(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.definitions.leave();
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if !select.projection.iter_mut().any(is_expanded) {
            return ControlFlow::Continue(());
        }
        let definitions = self.definitions.united(|_| true);
        self.found = Some((definitions, select.from.clone()));
        ControlFlow::Break(())
    }
}

fn is_expanded(item: &mut SelectItem) -> bool {
    match item {
        SelectItem::Wildcard(options) => options.opt_rename.is_some(),
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
            let mut uses = Uses::default();
            let _ = expr.visit(&mut uses);
            uses.clause.is_some()
        }
        _ => false,
    }
}

/// Expands the first SELECT with such a clause.
struct Expansion<'c> {
    columns: &'c [String],
    wrong: String,
    is_done: bool,
}

impl VisitorMut for Expansion<'_> {
    type Break = ();

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if !select.projection.iter_mut().any(is_expanded) {
            return ControlFlow::Continue(());
        }
        let mut items = Vec::new();
        for mut item in std::mem::take(&mut select.projection) {
            if !is_expanded(&mut item) {
                items.push(item);
                continue;
            }
            match expanded(&item, self.columns) {
                Ok(columns) => items.extend(columns),
                Err(wrong) => {
                    self.wrong = wrong;
                    return ControlFlow::Break(());
                }
            }
        }
        select.projection = items;
        self.is_done = true;
        ControlFlow::Break(())
    }
}

/// The columns for which an item stands.
fn expanded(item: &SelectItem, columns: &[String]) -> Result<Vec<SelectItem>, String> {
    match item {
        SelectItem::Wildcard(options) => renamed(options, columns),
        SelectItem::UnnamedExpr(expr) => {
            let names = chosen(expr, columns)?;
            let each = names.into_iter().map(|name| {
                let value = with_column(expr, &name);
                SelectItem::UnnamedExpr(value)
            });
            Ok(each.collect())
        }
        SelectItem::ExprWithAlias { expr, alias } => match chosen(expr, columns)?.as_slice() {
            [name] => Ok(vec![SelectItem::ExprWithAlias {
                expr: with_column(expr, name),
                alias: alias.clone(),
            }]),
            names => Err(format!(
                "COLUMNS: {} columns cannot have the same name {alias}",
                names.len()
            )),
        },
        other => Ok(vec![other.clone()]),
    }
}

/// `* EXCLUDE (…) RENAME (…)`.
fn renamed(
    options: &WildcardAdditionalOptions,
    columns: &[String],
) -> Result<Vec<SelectItem>, String> {
    let pairs = match &options.opt_rename {
        Some(RenameSelectItem::Single(pair)) => vec![pair.clone()],
        Some(RenameSelectItem::Multiple(pairs)) => pairs.clone(),
        None => Vec::new(),
    };
    if options.opt_replace.is_some() || options.opt_except.is_some() {
        return Err(
            "RENAME beside REPLACE is not supported\nhint: SELECT * EXCLUDE (x), f(x) AS y"
                .to_owned(),
        );
    }
    let excluded: Vec<String> = match &options.opt_exclude {
        Some(ExcludeSelectItem::Single(name)) => vec![name.to_string().to_lowercase()],
        Some(ExcludeSelectItem::Multiple(names)) => names
            .iter()
            .map(|name| name.to_string().to_lowercase())
            .collect(),
        None => Vec::new(),
    };
    let is = |name: &Ident, column: &str| name.value.eq_ignore_ascii_case(column);
    if let Some(pair) = pairs
        .iter()
        .find(|pair| !columns.iter().any(|column| is(&pair.ident, column)))
    {
        return Err(format!("RENAME: no column {}", pair.ident));
    }
    let kept = columns
        .iter()
        .filter(|column| !excluded.contains(&column.to_lowercase()));
    let items = kept.map(|column| {
        let expr = Expr::Identifier(Ident::with_quote('"', column.as_str()));
        match pairs.iter().find(|pair| is(&pair.ident, column)) {
            Some(pair) => SelectItem::ExprWithAlias {
                expr,
                alias: pair.alias.clone(),
            },
            None => SelectItem::UnnamedExpr(expr),
        }
    });
    Ok(items.collect())
}

/// The columns that the clause in an expression names.
fn chosen(expr: &Expr, columns: &[String]) -> Result<Vec<String>, String> {
    const HINT: &str = "hint: COLUMNS(*), COLUMNS('_stack$') for a regular expression, COLUMNS(c -> c LIKE '%id'), or COLUMNS(['pid', 'tid'])";
    let mut uses = Uses::default();
    let _ = expr.clone().visit(&mut uses);
    let Some(Expr::Function(call)) = uses.clause else {
        return Ok(Vec::new());
    };
    let argument = match &call.args {
        FunctionArguments::List(list) => match list.args.as_slice() {
            [FunctionArg::Unnamed(argument)] => argument.clone(),
            _ => return Err(format!("COLUMNS: expected one argument\n{HINT}")),
        },
        _ => return Err(format!("COLUMNS: expected one argument\n{HINT}")),
    };
    let text = |expr: &Expr| match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        Expr::Identifier(name) => Some(name.value.clone()),
        _ => None,
    };
    match &argument {
        FunctionArgExpr::Wildcard => Ok(columns.to_vec()),
        FunctionArgExpr::WildcardWithOptions(options) => {
            let items = renamed(options, columns)?;
            let names = items.into_iter().filter_map(|item| match item {
                SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(name.value),
                _ => None,
            });
            Ok(names.collect())
        }
        FunctionArgExpr::Expr(Expr::Array(array)) => {
            let names: Option<Vec<String>> = array.elem.iter().map(text).collect();
            names.ok_or_else(|| format!("COLUMNS: expected names, found {argument}\n{HINT}"))
        }
        FunctionArgExpr::Expr(expr) => match text(expr) {
            Some(pattern) => matching(&pattern, columns),
            None => Err(format!(
                "COLUMNS: expected a regular expression, found {expr}\n{HINT}"
            )),
        },
        FunctionArgExpr::QualifiedWildcard(_) => {
            Err(format!("COLUMNS: {argument} is not supported\n{HINT}"))
        }
    }
}

/// The columns whose name matches a regular expression somewhere.
fn matching(pattern: &str, columns: &[String]) -> Result<Vec<String>, String> {
    let names = StringArray::from_iter_values(columns);
    let matches = regexp_is_match_scalar(&names, pattern, None)
        .map_err(|error| format!("COLUMNS: {error}"))?;
    let found = columns.iter().zip(&matches);
    let found: Vec<String> = found
        .filter(|(_, is_match)| *is_match == Some(true))
        .map(|(name, _)| name.clone())
        .collect();
    match found.is_empty() {
        true => Err(format!(
            "COLUMNS: no column matches '{pattern}'\nhint: use one of: {}",
            columns.join(", ")
        )),
        false => Ok(found),
    }
}

fn with_column(expr: &Expr, name: &str) -> Expr {
    let mut expr = expr.clone();
    let mut uses = Uses {
        column: Some(name.to_owned()),
        ..Uses::default()
    };
    let _ = expr.visit(&mut uses);
    expr
}

/// The clause in an expression, and the column that replaces it.
#[derive(Default)]
struct Uses {
    clause: Option<Expr>,
    column: Option<String>,
}

impl VisitorMut for Uses {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(call) = &*expr
            && is_clause(call)
        {
            self.clause = Some(expr.clone());
            if let Some(column) = &self.column {
                *expr = Expr::Identifier(Ident::with_quote('"', column.as_str()));
            }
        }
        ControlFlow::Continue(())
    }
}

fn is_clause(call: &Function) -> bool {
    call.name.to_string().eq_ignore_ascii_case("columns")
}
