//! `PIVOT` and `UNPIVOT`, as in DuckDB: rows as columns, and columns as rows.
//!
//! ```text
//! PIVOT thread_states ON state USING sum(duration) GROUP BY comm
//!     SELECT comm, sum(duration) FILTER (WHERE state = 'blocked') AS blocked, … FROM thread_states GROUP BY comm
//! UNPIVOT t ON user_time, kernel_time INTO NAME kind VALUE duration
//!     SELECT …, unnest(['user_time', 'kernel_time']) AS kind, unnest([user_time, kernel_time]) AS duration FROM t
//! ```
//! Without `IN (…)`, a query finds the values. `engine/pivot.rs` makes calls of the statements.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::pin::Pin;

use arrow::array::AsArray;
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::DataFrame;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, NullInclusion,
    Query, SelectItem, SetExpr, Statement as SqlStatement, TableAlias, TableFactor, Value,
    VisitMut, VisitorMut, With,
};

use crate::engine::{self, PIVOT, UNPIVOT};
use crate::sql::definitions::{Definitions, known_as};
use crate::sql::dialect;
use crate::sql::names::{in_quotes, literal};

/// Statements with more of these clauses are rejected.
const MOST: usize = 100;
/// Maximum number of columns that values become.
const MOST_COLUMNS: usize = 1000;

/// The plan of a query.
pub(super) type Planned<'p> = Pin<Box<dyn Future<Output = Result<LogicalPlan>> + Send + 'p>>;

/// Replaces these clauses by subqueries.
pub(super) async fn expand<'p>(
    statement: &mut Statement,
    state: &SessionState,
    plan: &(dyn Fn(String) -> Planned<'p> + Sync),
) -> Result<()> {
    for _ in 0..MOST {
        let mut search = Search::default();
        let _ = engine::visit_statement(&mut search, statement);
        let Some((definitions, clause)) = search.found else {
            return Ok(());
        };
        let context = Context {
            state,
            plan,
            definitions: definitions.map_or_else(String::new, |with| format!("{with} ")),
        };
        let sql = match clause {
            Clause::Pivot(pivot) => pivoted(&pivot, &context).await?,
            Clause::Unpivot(unpivot) => unpivoted(&unpivot, &context).await?,
        };
        let subquery = engine::statement(state, &format!("SELECT * FROM ({sql})"))?;
        let mut replacement = Replacement {
            table: relation(subquery),
        };
        let _ = engine::visit_statement(&mut replacement, statement);
    }
    wrong(format!("PIVOT: more than {MOST} of them"))
}

fn wrong<T>(message: impl Into<String>) -> Result<T> {
    Err(DataFusionError::Plan(message.into()))
}

/// What is needed to ask for columns and values.
struct Context<'c, 'p> {
    state: &'c SessionState,
    plan: &'c (dyn Fn(String) -> Planned<'p> + Sync),
    /// `WITH …`, or empty.
    definitions: String,
}

impl Context<'_, '_> {
    /// The columns of a query.
    async fn columns(&self, query: &str) -> Result<Vec<FieldRef>> {
        let sql = format!("{}{query} LIMIT 0", self.definitions);
        let plan = (self.plan)(sql).await?;
        Ok(plan.schema().fields().iter().cloned().collect())
    }

    /// The values of an expression as text, in order, without NULL, and whether they are texts.
    async fn values(&self, expr: &str, rows: &str) -> Result<(Vec<String>, bool)> {
        let sql = format!(
            "{}SELECT v, CAST(v AS TEXT) AS t FROM (SELECT DISTINCT {expr} AS v FROM {rows}) AS d \
             WHERE v IS NOT NULL ORDER BY v LIMIT {}",
            self.definitions,
            MOST_COLUMNS + 1
        );
        let plan = (self.plan)(sql).await?;
        let is_text = plan.schema().field(0).data_type().is_string();
        let batches = DataFrame::new(self.state.clone(), plan).collect().await?;
        let mut values = Vec::new();
        for batch in batches {
            let texts = cast(batch.column(1), &DataType::Utf8)?;
            let texts = texts.as_string::<i32>().iter().flatten();
            values.extend(texts.map(str::to_owned));
        }
        Ok((values, is_text))
    }

    /// The items of a SELECT.
    fn items(&self, text: &str) -> Result<Vec<SelectItem>> {
        let statement = engine::statement(self.state, &format!("SELECT {text}"))?;
        let Statement::Statement(statement) = statement else {
            return Ok(Vec::new());
        };
        let SqlStatement::Query(query) = *statement else {
            return Ok(Vec::new());
        };
        match *query.body {
            SetExpr::Select(select) => Ok(select.projection),
            _ => Ok(Vec::new()),
        }
    }
}

/// A clause, in SQL.
enum Clause {
    Pivot(Pivot),
    Unpivot(Unpivot),
}

/// What becomes columns.
#[derive(Default)]
struct Pivot {
    rows: String,
    /// Aggregates; empty for the number of rows.
    using: String,
    /// Columns of the groups; empty for all others.
    group: String,
    /// Expressions, and their values; empty for all.
    on: Vec<(String, String)>,
}

/// What becomes rows.
struct Unpivot {
    rows: String,
    /// Column for the names.
    name: String,
    /// Columns for the values.
    values: String,
    keeps_nulls: bool,
    columns: Vec<String>,
}

/// A column of a pivoted query: its name, and the condition on its rows.
type Cell = (String, Option<String>);

async fn pivoted(pivot: &Pivot, context: &Context<'_, '_>) -> Result<String> {
    let rows = &pivot.rows;
    let mut used = Used::default();
    let mut cells: Vec<Cell> = vec![(String::new(), None)];
    for (expr, values) in &pivot.on {
        for mut item in context.items(expr)? {
            let _ = item.visit(&mut used);
        }
        let found = match values.is_empty() {
            true => found_values(expr, rows, context).await?,
            false => given_values(expr, values, context)?,
        };
        if found.is_empty() {
            return wrong(format!("PIVOT: {expr} has no value"));
        }
        cells = product(&cells, &found);
        if cells.len() > MOST_COLUMNS {
            return wrong(format!(
                "PIVOT: {expr} has too many values: more than {MOST_COLUMNS} columns\nhint: name the values: {expr} IN (…)"
            ));
        }
    }
    let using = match pivot.using.as_str() {
        "" => "count(*)",
        using => using,
    };
    let mut aggregates = context.items(using)?;
    for item in &mut aggregates {
        let _ = item.visit(&mut used);
    }
    let groups: Vec<String> = match pivot.group.is_empty() {
        true => {
            let columns = context.columns(&format!("SELECT * FROM {rows}")).await?;
            let names = columns.iter().map(|column| column.name());
            let others = names.filter(|name| !used.names.contains(*name));
            others.map(|name| in_quotes(name)).collect()
        }
        false => vec![pivot.group.clone()],
    };
    let mut columns = groups.clone();
    let is_only = aggregates.len() == 1;
    for (name, condition) in &cells {
        for item in &aggregates {
            columns.push(cell(name, condition.as_deref(), item, is_only, context)?);
        }
    }
    let group_by = match groups.is_empty() {
        true => String::new(),
        false => format!(" GROUP BY {}", groups.join(", ")),
    };
    Ok(format!(
        "SELECT {} FROM {rows}{group_by}",
        columns.join(", ")
    ))
}

async fn found_values(expr: &str, rows: &str, context: &Context<'_, '_>) -> Result<Vec<Cell>> {
    let (values, is_text) = context.values(expr, rows).await?;
    let each = values.into_iter().map(|value| {
        let condition = match is_text {
            true => format!("({expr}) = {}", literal(&value)),
            false => format!("CAST(({expr}) AS TEXT) = {}", literal(&value)),
        };
        (value, Some(condition))
    });
    Ok(each.collect())
}

fn given_values(expr: &str, values: &str, context: &Context<'_, '_>) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    for item in context.items(values)? {
        let (value, alias) = match item {
            SelectItem::UnnamedExpr(value) => (value, None),
            SelectItem::ExprWithAlias { expr, alias } => (expr, Some(alias.value)),
            other => {
                return wrong(format!("PIVOT: expected values after IN, found {other}"));
            }
        };
        let condition = match &value {
            Expr::Value(value) if value.value == Value::Null => format!("({expr}) IS NULL"),
            value => format!("({expr}) = {value}"),
        };
        let name = alias.unwrap_or_else(|| match &value {
            Expr::Value(text) => match &text.value {
                Value::SingleQuotedString(text) => text.clone(),
                other => other.to_string(),
            },
            other => other.to_string(),
        });
        cells.push((name, Some(condition)));
    }
    Ok(cells)
}

/// Each of `left` with each of `right`.
fn product(left: &[Cell], right: &[Cell]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (name, condition) in left.iter().take(MOST_COLUMNS + 1) {
        for (value, other) in right {
            cells.push(match (condition, other) {
                (Some(condition), Some(other)) => (
                    format!("{name}_{value}"),
                    Some(format!("{condition} AND {other}")),
                ),
                _ => (value.clone(), other.clone()),
            });
        }
        if cells.len() > MOST_COLUMNS {
            break;
        }
    }
    cells
}

/// SQL of an aggregate over the rows that fulfill a condition.
fn cell(
    value: &str,
    condition: Option<&str>,
    item: &SelectItem,
    is_only: bool,
    context: &Context<'_, '_>,
) -> Result<String> {
    let (expr, alias) = match item {
        SelectItem::UnnamedExpr(expr) => (expr, None),
        SelectItem::ExprWithAlias { expr, alias } => (expr, Some(alias.value.clone())),
        other => return wrong(format!("PIVOT: expected an aggregate, found {other}")),
    };
    let name = match (value.is_empty() && condition.is_none(), alias) {
        (true, alias) => alias.unwrap_or_else(|| expr.to_string()),
        (false, None) if is_only => value.to_owned(),
        (false, alias) => format!("{value}_{}", alias.unwrap_or_else(|| expr.to_string())),
    };
    let mut filter = Filter {
        state: context.state,
        condition: match condition {
            Some(condition) => match context.items(condition)?.pop() {
                Some(SelectItem::UnnamedExpr(condition)) => Some(condition),
                _ => return wrong(format!("PIVOT: expected a condition, found {condition}")),
            },
            None => None,
        },
        is_used: false,
    };
    let mut expr = expr.clone();
    let _ = expr.visit(&mut filter);
    match filter.is_used {
        true => Ok(format!("{expr} AS {}", in_quotes(&name))),
        false => wrong(format!(
            "PIVOT: expected an aggregate, found {expr}\nhint: USING sum({expr})"
        )),
    }
}

/// Restricts aggregates to rows.
struct Filter<'f> {
    state: &'f SessionState,
    condition: Option<Expr>,
    is_used: bool,
}

impl VisitorMut for Filter<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::Function(call) = expr else {
            return ControlFlow::Continue(());
        };
        let name = call.name.to_string().to_lowercase();
        if call.over.is_some() || !dialect::is_aggregate(&name, self.state) {
            return ControlFlow::Continue(());
        }
        self.is_used = true;
        if let Some(condition) = &self.condition {
            let all = match call.filter.take() {
                Some(own) => Expr::BinaryOp {
                    left: Box::new(Expr::Nested(own)),
                    op: BinaryOperator::And,
                    right: Box::new(Expr::Nested(Box::new(condition.clone()))),
                },
                None => condition.clone(),
            };
            call.filter = Some(Box::new(all));
        }
        ControlFlow::Continue(())
    }
}

/// A column that becomes rows: the name in these rows, and its value.
struct Item {
    label: String,
    values: Vec<String>,
}

async fn unpivoted(unpivot: &Unpivot, context: &Context<'_, '_>) -> Result<String> {
    let rows = &unpivot.rows;
    let values: Vec<&str> = unpivot.values.split(',').map(str::trim).collect();
    let mut used = Used::default();
    let mut items = Vec::new();
    for text in &unpivot.columns {
        for mut item in context.items(text)? {
            let _ = item.visit(&mut used);
            let (expr, label) = match item {
                SelectItem::UnnamedExpr(expr) if !is_columns(&expr) => (expr, None),
                SelectItem::ExprWithAlias { expr, alias } => (expr, Some(alias.value)),
                // Several columns.
                _ => {
                    let query = format!("SELECT {text} FROM {rows}");
                    for column in context.columns(&query).await? {
                        used.names.insert(column.name().clone());
                        items.push(Item {
                            label: column.name().clone(),
                            values: vec![in_quotes(column.name())],
                        });
                    }
                    continue;
                }
            };
            let parts = match expr {
                Expr::Tuple(parts) => parts,
                Expr::Nested(part) => vec![*part],
                other => vec![other],
            };
            let names: Vec<String> = parts.iter().map(name_of).collect();
            items.push(Item {
                label: label.unwrap_or_else(|| names.join("_")),
                values: parts.iter().map(Expr::to_string).collect(),
            });
        }
    }
    if items.is_empty() {
        return wrong("UNPIVOT: expected columns after ON");
    }
    if let Some(item) = items.iter().find(|item| item.values.len() != values.len()) {
        return wrong(format!(
            "UNPIVOT: {} has {} columns for {} values\nhint: UNPIVOT t ON (a, b), (c, d) INTO NAME n VALUE v, w",
            item.label,
            item.values.len(),
            values.len()
        ));
    }
    let columns = context.columns(&format!("SELECT * FROM {rows}")).await?;
    let others = columns.iter().map(|column| column.name());
    let others = others.filter(|name| !used.names.contains(*name));
    let mut kept: Vec<String> = others.map(|name| in_quotes(name)).collect();
    let labels: Vec<String> = items.iter().map(|item| literal(&item.label)).collect();
    let mut inner = kept.clone();
    inner.push(format!(
        "unnest([{}]) AS {}",
        labels.join(", "),
        unpivot.name
    ));
    kept.push(unpivot.name.clone());
    for (place, value) in values.iter().enumerate() {
        let each: Vec<&str> = items
            .iter()
            .map(|item| item.values[place].as_str())
            .collect();
        same_type(&each, rows, context).await?;
        inner.push(format!("unnest([{}]) AS {value}", each.join(", ")));
        kept.push((*value).to_owned());
    }
    let known: Vec<String> = values
        .iter()
        .map(|value| format!("{value} IS NOT NULL"))
        .collect();
    let condition = match unpivot.keeps_nulls {
        true => String::new(),
        false => format!(" WHERE {}", known.join(" AND ")),
    };
    Ok(format!(
        "SELECT {} FROM (SELECT {} FROM {rows}) AS unpivoted{condition}",
        kept.join(", "),
        inner.join(", ")
    ))
}

/// Rejects values that would silently become text.
async fn same_type(values: &[&str], rows: &str, context: &Context<'_, '_>) -> Result<()> {
    let named = values.iter().enumerate();
    let named: Vec<String> = named
        .map(|(at, value)| format!("{value} AS v{at}"))
        .collect();
    let query = format!("SELECT {} FROM {rows}", named.join(", "));
    let columns = context.columns(&query).await?;
    let Some(first) = columns.first().map(|column| column.data_type()) else {
        return Ok(());
    };
    let fits = |kind: &DataType| {
        kind == first
            || kind.is_null()
            || first.is_null()
            || kind.is_numeric() && first.is_numeric()
            || kind.is_string() && first.is_string()
    };
    let mut each = columns.iter().zip(values);
    match each.find(|(column, _)| !fits(column.data_type())) {
        Some((column, value)) => wrong(format!(
            "UNPIVOT: {} is {first}, and {value} is {}\nhint: give them one type: CAST(x AS TEXT) AS x",
            values[0],
            column.data_type()
        )),
        None => Ok(()),
    }
}

/// `COLUMNS(…)`.
fn is_columns(expr: &Expr) -> bool {
    match expr {
        Expr::Function(call) => call.name.to_string().eq_ignore_ascii_case("columns"),
        _ => false,
    }
}

fn name_of(expr: &Expr) -> String {
    match expr {
        Expr::Identifier(name) => name.value.clone(),
        Expr::CompoundIdentifier(names) => names
            .last()
            .map_or_else(String::new, |name| name.value.clone()),
        other => other.to_string(),
    }
}

/// Names of columns in expressions.
#[derive(Default)]
struct Used {
    names: HashSet<String>,
}

impl VisitorMut for Used {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let name = match expr {
            Expr::Identifier(name) => Some(&*name),
            Expr::CompoundIdentifier(names) => names.last(),
            _ => None,
        };
        self.names.extend(name.map(known_as));
        ControlFlow::Continue(())
    }
}

/// Finds the first of these clauses, and the definitions around it.
#[derive(Default)]
struct Search {
    definitions: Definitions,
    found: Option<(Option<With>, Clause)>,
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

    fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        let Some(clause) = clause_of(table) else {
            return ControlFlow::Continue(());
        };
        // The clause may be in a definition: rows come from those before.
        let definitions = self.definitions.united(|table| {
            let mut search = Search::default();
            let _ = table.query.visit(&mut search);
            search.found.is_none()
        });
        self.found = Some((definitions, clause));
        ControlFlow::Break(())
    }
}

fn clause_of(table: &TableFactor) -> Option<Clause> {
    match table {
        TableFactor::Table {
            name,
            args: Some(arguments),
            ..
        } => {
            let name = name.0.last()?.as_ident()?.value.clone();
            let mut texts = texts(&arguments.args).into_iter();
            let mut next = || texts.next();
            match name.as_str() {
                PIVOT => Some(Clause::Pivot(Pivot {
                    rows: next()?,
                    using: next()?,
                    group: next()?,
                    on: pairs(texts.collect()),
                })),
                UNPIVOT => Some(Clause::Unpivot(Unpivot {
                    rows: next()?,
                    name: next()?,
                    values: next()?,
                    keeps_nulls: false,
                    columns: texts.collect(),
                })),
                _ => None,
            }
        }
        TableFactor::Pivot {
            table,
            aggregate_functions,
            ..
        } => {
            let [call] = aggregate_functions.as_slice() else {
                return None;
            };
            let Expr::Function(Function {
                args: FunctionArguments::List(list),
                ..
            }) = &call.expr
            else {
                return None;
            };
            let mut texts = texts(&list.args).into_iter().skip(1);
            Some(Clause::Pivot(Pivot {
                rows: table.to_string(),
                using: texts.next()?,
                group: texts.next()?,
                on: pairs(texts.collect()),
            }))
        }
        TableFactor::Unpivot {
            table,
            value,
            name,
            columns,
            null_inclusion,
            ..
        } => {
            let value = value.to_string();
            let value = value.trim_start_matches('(').trim_end_matches(')');
            Some(Clause::Unpivot(Unpivot {
                rows: table.to_string(),
                name: name.to_string(),
                values: value.to_owned(),
                keeps_nulls: *null_inclusion == Some(NullInclusion::IncludeNulls),
                columns: columns.iter().map(ToString::to_string).collect(),
            }))
        }
        _ => None,
    }
}

fn texts(arguments: &[FunctionArg]) -> Vec<String> {
    let text = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value))) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    };
    arguments.iter().filter_map(text).collect()
}

fn pairs(texts: Vec<String>) -> Vec<(String, String)> {
    let pairs = texts.chunks_exact(2);
    pairs
        .map(|pair| (pair[0].clone(), pair[1].clone()))
        .collect()
}

/// The first table of a SELECT.
fn relation(statement: Statement) -> Option<TableFactor> {
    let Statement::Statement(statement) = statement else {
        return None;
    };
    let SqlStatement::Query(query) = *statement else {
        return None;
    };
    match *query.body {
        SetExpr::Select(mut select) => select.from.pop().map(|from| from.relation),
        _ => None,
    }
}

/// Puts a subquery in the place of the first clause.
struct Replacement {
    table: Option<TableFactor>,
}

impl VisitorMut for Replacement {
    type Break = ();

    fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if clause_of(table).is_none() {
            return ControlFlow::Continue(());
        }
        let name: Option<TableAlias> = match table {
            TableFactor::Table { alias, .. }
            | TableFactor::Pivot { alias, .. }
            | TableFactor::Unpivot { alias, .. } => alias.take(),
            _ => None,
        };
        if let Some(TableFactor::Derived {
            lateral,
            subquery,
            sample,
            ..
        }) = self.table.take()
        {
            *table = TableFactor::Derived {
                lateral,
                subquery,
                alias: name,
                sample,
            };
        }
        ControlFlow::Break(())
    }
}
