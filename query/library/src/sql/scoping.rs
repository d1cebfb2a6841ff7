//! `--time`, `--tid` and alike on a query: conditions on every table and view that it names.
//!
//! ```text
//! --tid 7    SELECT * FROM calls c    SELECT * FROM (SELECT * FROM calls WHERE tid IN (7)) AS c
//! ```
//! Tables without the column stay whole. An option that no table has a column for is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use datafusion::common::TableReference;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    ObjectName, Query, SetExpr, Statement as SqlStatement, TableFactor, VisitorMut,
};
use perfquet_views::VIEWS;

use crate::engine;

/// A condition with the column that it needs.
pub type Condition = (&'static str, String);

/// Conditions on all tables of a query.
#[derive(Debug, Clone, Default)]
pub struct Restriction {
    pub conditions: Vec<Condition>,
    /// Whether a condition without a table that has its column is an error.
    pub must_fit: bool,
}

/// Restricts the rows of all tables of a statement.
pub async fn restrict(
    statement: &mut Statement,
    state: &SessionState,
    restriction: &Restriction,
) -> Result<()> {
    let conditions = restriction.conditions.as_slice();
    if conditions.is_empty() {
        return Ok(());
    }
    let mut tables = Tables::default();
    let _ = engine::visit_statement(&mut tables, statement);
    let mut columns = BTreeMap::new();
    for name in tables.names {
        columns.insert(name.to_string(), columns_of(&name, state).await);
    }
    let mut visitor = Visitor {
        state,
        conditions,
        columns,
        queries: Vec::new(),
        used: BTreeSet::new(),
        error: None,
    };
    let _ = engine::visit_statement(&mut visitor, statement);
    if let Some(error) = visitor.error {
        return Err(error);
    }
    match conditions
        .iter()
        .find(|(column, _)| !visitor.used.contains(column))
    {
        Some((column, _)) if restriction.must_fit => Err(DataFusionError::Plan(format!(
            "--{column}: no table of the query has a column {column}"
        ))),
        _ => Ok(()),
    }
}

/// The columns of a table or view; none if there is no such table, which the planner reports.
async fn columns_of(name: &ObjectName, state: &SessionState) -> Vec<String> {
    let written = name.to_string();
    if let Some(view) = VIEWS
        .iter()
        .find(|view| view.name == written.to_lowercase())
    {
        return view
            .columns()
            .iter()
            .map(|column| column.name.clone())
            .collect();
    }
    let reference = TableReference::parse_str(&written);
    let table = match state.schema_for_ref(reference.clone()) {
        Ok(schema) => schema.table(reference.table()).await,
        Err(error) => Err(error),
    };
    match table {
        Ok(Some(table)) => (table.schema().fields().iter())
            .map(|field| field.name().clone())
            .collect(),
        _ => Vec::new(),
    }
}

/// The names of all tables.
#[derive(Default)]
struct Tables {
    names: Vec<ObjectName>,
}

impl VisitorMut for Tables {
    type Break = ();

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, .. } = table {
            self.names.push(name.clone());
        }
        ControlFlow::Continue(())
    }
}

/// A query that is being visited: the names that its WITH defines, in order, and how many of them the rest may use.
struct Definitions {
    names: Vec<String>,
    known: usize,
}

struct Visitor<'s> {
    state: &'s SessionState,
    conditions: &'s [Condition],
    columns: BTreeMap<String, Vec<String>>,
    queries: Vec<Definitions>,
    used: BTreeSet<&'static str>,
    error: Option<DataFusionError>,
}

impl VisitorMut for Visitor<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        let names: Vec<String> = tables
            .map(|table| table.alias.name.value.to_lowercase())
            .collect();
        let is_recursive = query.with.as_ref().is_some_and(|with| with.recursive);
        let known = if is_recursive { names.len() } else { 0 };
        self.queries.push(Definitions { names, known });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.queries.pop();
        // The queries of a WITH are visited before the others.
        if let Some(outer) = self.queries.last_mut() {
            outer.known = (outer.known + 1).min(outer.names.len());
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        match self.restricted(table) {
            Ok(Some(restricted)) => *table = restricted,
            Ok(None) => {}
            Err(error) => {
                self.error = Some(error);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }
}

impl Visitor<'_> {
    fn restricted(&mut self, table: &TableFactor) -> Result<Option<TableFactor>> {
        let TableFactor::Table { name, alias, .. } = table else {
            return Ok(None);
        };
        let written = name.to_string();
        let lower = written.to_lowercase();
        let is_defined = |query: &Definitions| query.names[..query.known].contains(&lower);
        if self.queries.iter().any(is_defined) {
            return Ok(None);
        }
        let columns = self
            .columns
            .get(&written)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let fitting = self
            .conditions
            .iter()
            .filter(|(column, _)| columns.iter().any(|known| known == column));
        let fitting: Vec<&Condition> = fitting.collect();
        if fitting.is_empty() {
            return Ok(None);
        }
        self.used.extend(fitting.iter().map(|(column, _)| *column));
        let conditions: Vec<&str> = fitting
            .iter()
            .map(|(_, condition)| condition.as_str())
            .collect();
        let alias = match (alias, name.0.last()) {
            (Some(alias), _) => alias.to_string(),
            (None, Some(last)) => last.to_string(),
            (None, None) => return Ok(None),
        };
        let mut plain = table.clone();
        if let TableFactor::Table { alias, .. } = &mut plain {
            *alias = None;
        }
        let alias = alias.trim();
        let alias = alias.strip_prefix("AS ").unwrap_or(alias);
        let sql = format!(
            "SELECT * FROM (SELECT * FROM {plain} WHERE {}) AS {alias}",
            conditions.join(" AND ")
        );
        relation(engine::statement(self.state, &sql)?).map(Some)
    }
}

/// The only table of a query.
fn relation(statement: Statement) -> Result<TableFactor> {
    let found = match statement {
        Statement::Statement(statement) => match *statement {
            SqlStatement::Query(query) => match *query.body {
                SetExpr::Select(select) => select.from.into_iter().next(),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    };
    let found = found.map(|table| table.relation);
    found.ok_or_else(|| DataFusionError::Internal("a query without a table".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::RecordBatch;
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::prelude::SessionContext;
    use std::sync::Arc;

    fn restricted(sql: &str) -> Result<String> {
        let context = SessionContext::new();
        let fields = ["time", "tid"].map(|name| Field::new(name, DataType::Int64, true));
        let empty = RecordBatch::new_empty(Arc::new(Schema::new(fields.to_vec())));
        context.register_batch("t", empty.clone())?;
        context.register_batch("u", empty.project(&[0])?)?;
        let state = context.state();
        let mut statement = engine::statement(&state, sql)?;
        let restriction = Restriction {
            conditions: vec![("tid", "tid IN (7)".to_owned())],
            must_fit: true,
        };
        futures::executor::block_on(restrict(&mut statement, &state, &restriction))?;
        Ok(statement.to_string())
    }

    #[test]
    fn tables_with_the_column_are_restricted() {
        let t = "(SELECT * FROM t WHERE tid IN (7)) AS";
        for (sql, expected) in [
            ("SELECT 1 FROM t", format!("SELECT 1 FROM {t} t")),
            (
                "SELECT 1 FROM t AS a JOIN u ON a.time = u.time",
                format!("SELECT 1 FROM {t} a JOIN u ON a.time = u.time"),
            ),
            (
                "SELECT (SELECT max(time) FROM t)",
                format!("SELECT (SELECT max(time) FROM {t} t)"),
            ),
            (
                "WITH t AS (SELECT * FROM t), v AS (SELECT * FROM t) SELECT 1 FROM t, v",
                format!(
                    "WITH t AS (SELECT * FROM {t} t), v AS (SELECT * FROM t) SELECT 1 FROM t, v"
                ),
            ),
        ] {
            assert_eq!(restricted(sql).unwrap(), expected);
        }
        let error = restricted("SELECT 1 FROM u").unwrap_err().to_string();
        assert!(
            error.ends_with("--tid: no table of the query has a column tid"),
            "{error}"
        );
    }
}
