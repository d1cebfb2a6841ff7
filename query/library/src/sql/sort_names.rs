//! Names in expressions of ORDER BY are columns of the tables first, and then those that SELECT gives. A name alone is SELECT's.
//!
//! ```text
//! SELECT duration / 1000 AS duration FROM calls ORDER BY abs(duration - 5ms)
//! SELECT * EXCEPT ("key 0") FROM (SELECT duration / 1000 AS duration, abs(duration - 5ms) AS "key 0" FROM calls) ORDER BY "key 0"
//! ```
//! The engine takes SELECT's names first in both cases, unlike DuckDB and PostgreSQL. Within SELECT, a name is a column.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, OrderByKind, Query, Select, SelectItem, SetExpr, TableFactor, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::engine;
use crate::sql::definitions::known_as;

/// The statement with such expressions as columns of a subquery; `None` without any. Whether its names are columns shows when it is
/// planned.
pub(super) fn reading(statement: &Statement) -> Option<Statement> {
    let mut statement = statement.clone();
    let mut moving = Moving { changed: false };
    let _ = engine::visit_statement(&mut moving, &mut statement);
    moving.changed.then_some(statement)
}

struct Moving {
    changed: bool,
}

impl VisitorMut for Moving {
    type Break = ();

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(moved) = moved(query) {
            *query = moved;
            self.changed = true;
        }
        ControlFlow::Continue(())
    }
}

/// A query whose ORDER BY has expressions with names that SELECT gives, with these in SELECT.
fn moved(query: &Query) -> Option<Query> {
    let mut query = query.clone();
    let SetExpr::Select(select) = query.body.as_mut() else {
        return None;
    };
    let OrderByKind::Expressions(keys) = &mut query.order_by.as_mut()?.kind else {
        return None;
    };
    let given = given(select);
    let is_meant = |key: &mut Expr| !matches!(key, Expr::Identifier(_)) && uses(key, &given);
    if select.distinct.is_some() || !keys.iter_mut().any(|key| is_meant(&mut key.expr)) {
        return None;
    }
    let known = selected(select);
    let mut names = Vec::new();
    for key in keys {
        let stays = match &key.expr {
            Expr::Identifier(name) => known
                .as_ref()
                .is_none_or(|known| known.contains(&known_as(name))),
            // The number of a column.
            Expr::Value(_) => true,
            _ => false,
        };
        if !stays {
            let name = Ident::with_quote('"', format!("key {}", names.len()));
            let expr = std::mem::replace(&mut key.expr, Expr::Identifier(name.clone()));
            select.projection.push(SelectItem::ExprWithAlias {
                expr,
                alias: name.clone(),
            });
            names.push(name.to_string());
        }
    }
    let text = format!(
        "SELECT * EXCEPT ({}) FROM (SELECT 1) AS ordered",
        names.join(", ")
    );
    let mut outer = *Parser::new(&GenericDialect {})
        .try_with_sql(&text)
        .and_then(|mut parser| parser.parse_query())
        .ok()?;
    let SetExpr::Select(all) = outer.body.as_mut() else {
        return None;
    };
    let TableFactor::Derived { subquery, .. } = &mut all.from.first_mut()?.relation else {
        return None;
    };
    // The columns, FROM, GROUP BY and the like; what concerns the result stays outside.
    std::mem::swap(&mut subquery.body, &mut query.body);
    query.body = outer.body;
    Some(query)
}

/// The names that SELECT gives to something other than a column of this name.
fn given(select: &Select) -> HashSet<String> {
    let names = select.projection.iter().filter_map(|item| {
        let SelectItem::ExprWithAlias { expr, alias } = item else {
            return None;
        };
        let name = known_as(alias);
        (column(expr).as_ref() != Some(&name)).then_some(name)
    });
    names.collect()
}

/// The names of the columns of SELECT, as far as they have any; `None` if there is a star.
fn selected(select: &Select) -> Option<HashSet<String>> {
    let mut names = HashSet::new();
    for item in &select.projection {
        match item {
            SelectItem::ExprWithAlias { alias, .. } => names.extend([known_as(alias)]),
            SelectItem::UnnamedExpr(expr) => names.extend(column(expr)),
            _ => return None,
        }
    }
    Some(names)
}

/// The name of a column.
fn column(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(name) => Some(known_as(name)),
        Expr::CompoundIdentifier(path) => path.last().map(known_as),
        _ => None,
    }
}

/// Whether an expression has one of these names, outside of subqueries.
fn uses(expr: &mut Expr, names: &HashSet<String>) -> bool {
    let mut uses = Uses {
        names,
        depth: 0,
        found: false,
    };
    let _ = expr.visit(&mut uses);
    uses.found
}

struct Uses<'n> {
    names: &'n HashSet<String>,
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
        if let Expr::Identifier(name) = &*expr {
            self.found |= self.depth == 0 && self.names.contains(&known_as(name));
        }
        ControlFlow::Continue(())
    }
}
