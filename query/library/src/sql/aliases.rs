//! Names that SELECT gives, used again in the same query, as in DuckDB: in WHERE, and in later columns.
//!
//! ```text
//! SELECT duration AS d, d / 1000 AS us FROM calls WHERE d > 1ms
//! SELECT duration AS d, (duration) / 1000 AS us FROM calls WHERE (duration) > 1ms
//! ```
//! A column of a table with the name comes first, so a name is only replaced once the engine has found no such column.

use std::ops::ControlFlow;

use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Expr, Query, Select, SelectItem, VisitMut, VisitorMut};

use crate::engine;
use crate::sql::definitions::known_as;
use crate::sql::dialect::{as_written, give_name};

/// Names in one statement that are replaced, before it is an error.
pub(super) const MOST: usize = 32;

/// Repairs a statement that could not be planned: replaces a missing column by what SELECT gives its name to, or names columns that the engine
/// would call the same. Returns whether anything changed.
pub(super) fn repair(statement: &mut Statement, error: &DataFusionError) -> bool {
    let text = error.strip_backtrace();
    if text.contains("have the same name. Consider aliasing") {
        let mut naming = Naming { changed: false };
        let _ = engine::visit_statement(&mut naming, statement);
        return naming.changed;
    }
    let Some((name, line, column)) = missing_column(error) else {
        return false;
    };
    let mut replacing = Replacing {
        name,
        place: (line, column),
        changed: false,
    };
    let _ = engine::visit_statement(&mut replacing, statement);
    replacing.changed
}

/// The name of a column that does not exist, and where it is written.
fn missing_column(error: &DataFusionError) -> Option<(String, u64, u64)> {
    let span = error.diagnostic()?.span?;
    let mut inner = error;
    loop {
        inner = match inner {
            DataFusionError::Context(_, error) | DataFusionError::Diagnostic(_, error) => error,
            DataFusionError::Collection(all) => all.first()?,
            DataFusionError::SchemaError(schema, _) => match schema.as_ref() {
                SchemaError::FieldNotFound { field, .. } if field.relation.is_none() => {
                    return Some((field.name.clone(), span.start.line, span.start.column));
                }
                _ => return None,
            },
            _ => return None,
        };
    }
}

/// Names columns as they are written.
struct Naming {
    changed: bool,
}

impl VisitorMut for Naming {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for item in &mut select.projection {
            let SelectItem::UnnamedExpr(expr) = &*item else {
                continue;
            };
            if matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) {
                continue;
            }
            let name = as_written(expr);
            give_name(item, name);
            self.changed = true;
        }
        ControlFlow::Continue(())
    }
}

/// Replaces a name in the SELECT that has the place of the error.
struct Replacing {
    name: String,
    place: (u64, u64),
    changed: bool,
}

impl VisitorMut for Replacing {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let mut place = None;
        for (index, item) in select.projection.iter().enumerate() {
            if let SelectItem::ExprWithAlias { alias, .. } = item
                && known_as(alias) == self.name
            {
                place = Some(index);
                break;
            }
        }
        let Some(place) = place else {
            return ControlFlow::Continue(());
        };
        let SelectItem::ExprWithAlias { expr, .. } = select.projection[place].clone() else {
            return ControlFlow::Continue(());
        };
        let mut finding = Uses {
            name: &self.name,
            place: Some(self.place),
            value: None,
            depth: 0,
            found: false,
        };
        let later = |select: &mut Select, uses: &mut Uses<'_>| {
            for item in select.projection.iter_mut().skip(place + 1) {
                let _ = item.visit(uses);
            }
            if let Some(selection) = &mut select.selection {
                let _ = selection.visit(uses);
            }
        };
        later(select, &mut finding);
        if finding.found {
            let mut replacing = Uses {
                name: &self.name,
                place: None,
                value: Some(Expr::Nested(Box::new(expr))),
                depth: 0,
                found: false,
            };
            later(select, &mut replacing);
            self.changed = true;
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

/// The uses of a name, without those in subqueries.
struct Uses<'n> {
    name: &'n str,
    /// Where one of them is; `None` for all.
    place: Option<(u64, u64)>,
    value: Option<Expr>,
    depth: usize,
    found: bool,
}

impl VisitorMut for Uses<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::Identifier(name) = &*expr else {
            return ControlFlow::Continue(());
        };
        let start = name.span.start;
        let is_here = self
            .place
            .is_none_or(|place| place == (start.line, start.column));
        if self.depth == 0 && is_here && known_as(name) == self.name {
            self.found = true;
            if let Some(value) = &self.value {
                *expr = value.clone();
            }
        }
        ControlFlow::Continue(())
    }
}
