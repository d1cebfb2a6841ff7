//! What the editor of SQL completes: tables, views and columns with their meaning, functions, macros.

use anyhow::Result;
use arrow::array::RecordBatch;
use perfquet::explain::Known;
use perfquet::functions::FUNCTIONS;
use perfquet::sql::names::quoted;
use perfquet::stacks::strings;
use perfquet::tables::catalog;
use serde_json::{Value, json};

use super::Server;
use crate::commands::tables;

/// Tables that are described; more are listed by name alone.
const MOST_DESCRIBED: usize = 400;

pub(super) fn answer(server: &Server) -> Result<Value> {
    let session = &server.session;
    let mut known: Vec<(String, String, String, bool)> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for trace in session.traces() {
        for table in &trace.tables {
            let name = &table.schema.name;
            if !seen.insert(name.clone()) {
                continue;
            }
            let name = match catalog::event_name(name) {
                Some((system, event)) => format!("{}.{}", quoted(system), quoted(event)),
                None => quoted(name),
            };
            known.push((name.clone(), name, table.schema.doc.clone(), false));
        }
    }
    for view in session.views() {
        if session.has_events_of(view)? {
            known.push((
                view.name.clone(),
                view.usage(),
                view.about().to_owned(),
                true,
            ));
        }
    }
    let described = known.iter().enumerate().map(|(place, (name, usage, about, is_view))| {
        // A view that cannot be planned has no columns here; a query says why.
        let columns = match place < MOST_DESCRIBED {
            true => tables::describe(session, name).and_then(|rows| columns(&rows)),
            false => Ok(Vec::new()),
        };
        json!({ "name": name, "usage": usage, "about": about, "is_view": is_view, "columns": columns.unwrap_or_default() })
    });
    let described: Vec<Value> = described.collect();
    let own = FUNCTIONS.iter();
    let own = own.map(|function| (function.usage.to_owned(), function.about.to_owned()));
    let mut functions: Vec<(String, String)> = own.chain(session.macros()).collect();
    let is_known = |name: &str, all: &[(String, String)]| {
        all.iter()
            .any(|(usage, _)| usage.split('(').next() == Some(name))
    };
    for name in session.function_names() {
        if !is_known(&name, &functions) {
            functions.push((format!("{name}()"), String::new()));
        }
    }
    Ok(json!({ "tables": described, "functions": functions }))
}

/// Name, type, unit and meaning of each column.
fn columns(rows: &RecordBatch) -> Result<Vec<Value>> {
    let column = |name: &str| -> Result<Vec<String>> {
        let Some(column) = rows.column_by_name(name) else {
            return Ok(vec![String::new(); rows.num_rows()]);
        };
        let texts = strings(column)?;
        Ok(texts
            .iter()
            .map(|text| text.unwrap_or_default().to_owned())
            .collect())
    };
    let (names, kinds) = (column("column")?, column("type")?);
    let (units, docs) = (column("unit")?, column("doc")?);
    let all = names.iter().zip(&kinds).zip(units.iter().zip(&docs));
    Ok(all
        .map(|((name, kind), (unit, doc))| json!([name, kind, unit, doc]))
        .collect())
}
