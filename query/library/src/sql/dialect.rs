//! Functions and clauses that DuckDB has and the engine lacks, as what the engine has.
//!
//! ```text
//! arg_max(comm, duration)      first_value(comm ORDER BY duration DESC) FILTER (WHERE comm IS NOT NULL AND duration IS NOT NULL)
//! count_if(x > 5)              count(CASE WHEN x > 5 THEN 1 END)
//! list(x)                      array_agg(x)
//! time_bucket(100ms, time)     the start of the 100 ms that a time is in, counted from the start of the trace
//! FROM t, ORDER BY ALL         SELECT * FROM t, ORDER BY 1, 2, …
//! ```

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName,
    OrderByExpr, OrderByKind, Query, Select, SelectFlavor, SelectItem, SetExpr, Value, VisitorMut,
    WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::engine;

/// Functions with the same meaning under another name.
const RENAMED: [(&str, &str); 5] = [
    ("list", "array_agg"),
    ("group_concat", "string_agg"),
    ("first", "first_value"),
    ("last", "last_value"),
    ("regexp_matches", "regexp_like"),
];

/// Translates a statement. The error is for people.
pub(crate) fn translate(statement: &mut Statement) -> Result<(), String> {
    let mut translator = Translator::default();
    match engine::visit_statement(&mut translator, statement) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(translator.wrong),
    }
}

#[derive(Default)]
struct Translator {
    wrong: String,
}

impl VisitorMut for Translator {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if select.flavor == SelectFlavor::FromFirstNoSelect && select.projection.is_empty() {
            let all = SelectItem::Wildcard(WildcardAdditionalOptions::default());
            select.projection.push(all);
        }
        // A column keeps the name that was written.
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(Expr::Function(call)) = item
                && is_translated(call)
            {
                let alias = Ident::with_quote('"', call.to_string().to_lowercase());
                let expr = Expr::Function(call.clone());
                *item = SelectItem::ExprWithAlias { expr, alias };
            }
        }
        distinguish(&mut select.projection);
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        match order_by_all(query) {
            Ok(()) => ControlFlow::Continue(()),
            Err(wrong) => {
                self.wrong = wrong;
                ControlFlow::Break(())
            }
        }
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::Function(call) = expr else {
            return ControlFlow::Continue(());
        };
        let name = call.name.to_string().to_lowercase();
        if let Some((_, known)) = RENAMED.iter().find(|(other, _)| *other == name) {
            call.name = ObjectName::from(vec![Ident::new(*known)]);
            return ControlFlow::Continue(());
        }
        match replacement(&name, call).and_then(|sql| sql.map(|sql| parsed(&sql)).transpose()) {
            Ok(Some(replaced)) => *expr = replaced,
            Ok(None) => {}
            Err(wrong) => {
                self.wrong = wrong;
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }
}

/// Gives columns with the name of an earlier one a number, as DuckDB does: `count(*)`, `count(*)_1`. Named columns, and those of tables,
/// keep their names.
fn distinguish(projection: &mut [SelectItem]) {
    let mut names: Vec<String> = Vec::new();
    for item in projection {
        let name = match &*item {
            SelectItem::UnnamedExpr(Expr::Identifier(_) | Expr::CompoundIdentifier(_)) => continue,
            SelectItem::UnnamedExpr(expr) => name_of(expr),
            SelectItem::ExprWithAlias { alias, .. } => alias.value.clone(),
            _ => continue,
        };
        let count = names.iter().filter(|other| **other == name).count();
        if count > 0
            && let SelectItem::UnnamedExpr(expr) = &*item
        {
            let alias = Ident::with_quote('"', format!("{name}_{count}"));
            let expr = expr.clone();
            *item = SelectItem::ExprWithAlias { expr, alias };
        }
        names.push(name);
    }
}

/// Returns the name of an expression's column: a subquery has that of its only column.
fn name_of(expr: &Expr) -> String {
    let Expr::Subquery(query) = expr else {
        return expr.to_string().to_lowercase();
    };
    let SetExpr::Select(select) = &*query.body else {
        return expr.to_string().to_lowercase();
    };
    match select.projection.as_slice() {
        [SelectItem::UnnamedExpr(inner)] => name_of(inner),
        [SelectItem::ExprWithAlias { alias, .. }] => alias.value.clone(),
        _ => expr.to_string().to_lowercase(),
    }
}

fn is_translated(call: &Function) -> bool {
    let name = call.name.to_string().to_lowercase();
    let others = [
        "arg_max",
        "max_by",
        "arg_min",
        "min_by",
        "count_if",
        "countif",
        "time_bucket",
    ];
    others.contains(&name.as_str()) || RENAMED.iter().any(|(other, _)| *other == name)
}

/// The SQL of a call that the engine lacks; `None` for another function.
fn replacement(name: &str, call: &Function) -> Result<Option<String>, String> {
    let order = match name {
        "arg_max" | "max_by" => "DESC",
        "arg_min" | "min_by" => "ASC",
        "count_if" | "countif" => return count_if(name, call).map(Some),
        "time_bucket" => return time_bucket(call).map(Some),
        _ => return Ok(None),
    };
    let args = arguments(call);
    let [value, by] = args.as_slice() else {
        return Err(format!(
            "{name}: expected two arguments: a value, and what is compared\nhint: {name}(comm, duration); for the first N: ORDER BY duration {order} LIMIT N"
        ));
    };
    if call.over.is_some() {
        return Err(format!(
            "{name}: not a window function\nhint: use first_value({value}) OVER (PARTITION BY … ORDER BY {by} {order})"
        ));
    }
    let filter = call
        .filter
        .as_ref()
        .map_or_else(String::new, |filter| format!(" AND ({filter})"));
    Ok(Some(format!(
        "first_value({value} ORDER BY {by} {order}) FILTER (WHERE ({value}) IS NOT NULL AND ({by}) IS NOT NULL{filter})"
    )))
}

fn count_if(name: &str, call: &Function) -> Result<String, String> {
    let args = arguments(call);
    let [condition] = args.as_slice() else {
        return Err(format!(
            "{name}: expected a condition\nhint: {name}(duration > 1ms)"
        ));
    };
    let filter = call
        .filter
        .as_ref()
        .map_or_else(String::new, |filter| format!(" FILTER (WHERE {filter})"));
    let over = call
        .over
        .as_ref()
        .map_or_else(String::new, |over| match over {
            datafusion::sql::sqlparser::ast::WindowType::WindowSpec(spec) => {
                format!(" OVER ({spec})")
            }
            datafusion::sql::sqlparser::ast::WindowType::NamedWindow(name) => {
                format!(" OVER {name}")
            }
        });
    Ok(format!(
        "count(CASE WHEN {condition} THEN 1 END){filter}{over}"
    ))
}

fn time_bucket(call: &Function) -> Result<String, String> {
    const HINT: &str =
        "hint: time_bucket(100ms, time), or date_bin(INTERVAL '1 hour', wall_time(time))";
    let args = arguments(call);
    let [width, time] = args.as_slice() else {
        return Err(format!(
            "time_bucket: expected a duration and a time\n{HINT}"
        ));
    };
    if width.trim_start().to_lowercase().starts_with("interval") {
        return Err(format!(
            "time_bucket: expected a duration, found {width}\n{HINT}"
        ));
    }
    let is_zero = width
        .trim_end_matches('L')
        .parse::<f64>()
        .is_ok_and(|width| width <= 0.0);
    if is_zero {
        return Err(format!(
            "time_bucket: expected a duration above 0, found {width}\n{HINT}"
        ));
    }
    // With fewer bits than a time, but those of the quotient are enough: it is a whole number wherever a bucket begins.
    Ok(format!(
        "(at(0) + CAST(floor(CAST(({time}) - at(0) AS DOUBLE) / ({width})) AS BIGINT) * ({width}))"
    ))
}

/// The arguments as SQL.
fn arguments(call: &Function) -> Vec<String> {
    let FunctionArguments::List(list) = &call.args else {
        return Vec::new();
    };
    let exprs = list.args.iter().filter_map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.to_string()),
        _ => None,
    });
    exprs.collect()
}

fn parsed(sql: &str) -> Result<Expr, String> {
    Parser::new(&GenericDialect {})
        .try_with_sql(sql)
        .and_then(|mut parser| parser.parse_expr())
        .map_err(|error| error.to_string())
}

/// `ORDER BY ALL` as `ORDER BY 1, 2, …`.
fn order_by_all(query: &mut Query) -> Result<(), String> {
    let Some(order_by) = &mut query.order_by else {
        return Ok(());
    };
    let options = match &order_by.kind {
        OrderByKind::All(options) => *options,
        OrderByKind::Expressions(exprs) => match exprs.as_slice() {
            [
                OrderByExpr {
                    expr: Expr::Identifier(name),
                    options,
                    ..
                },
            ] if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all") => *options,
            _ => return Ok(()),
        },
    };
    let columns = match query.body.as_ref() {
        SetExpr::Select(select) if !select.projection.iter().any(is_wildcard) => {
            select.projection.len()
        }
        _ => {
            return Err("ORDER BY ALL: the number of columns is not known\nhint: name the columns of SELECT, or use ORDER BY 1, 2".to_owned());
        }
    };
    let exprs = (1..=columns).map(|column| OrderByExpr {
        expr: Expr::value(Value::Number(column.to_string(), false)),
        options,
        with_fill: None,
    });
    order_by.kind = OrderByKind::Expressions(exprs.collect());
    Ok(())
}

fn is_wildcard(item: &SelectItem) -> bool {
    matches!(
        item,
        SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::prelude::SessionContext;

    fn check(sql: &str, expected: Result<&str, &str>) {
        let mut statement = engine::statement(&SessionContext::new().state(), sql).unwrap();
        let translated = translate(&mut statement).map(|()| statement.to_string());
        let translated = translated.map_err(|error| error.lines().next().unwrap().to_owned());
        assert_eq!(
            translated,
            expected.map(str::to_owned).map_err(str::to_owned),
            "{sql}"
        );
    }

    #[test]
    fn duckdbs_functions_and_clauses() {
        check(
            "SELECT max_by(a, b) FILTER (WHERE c) FROM t",
            Ok(
                "SELECT first_value(a ORDER BY b DESC) FILTER (WHERE (a) IS NOT NULL AND (b) IS NOT NULL AND (c)) AS \"max_by(a, b) filter (where c)\" FROM t",
            ),
        );
        check(
            "SELECT 1 + count_if(x) FROM t",
            Ok("SELECT 1 + count(CASE WHEN x THEN 1 END) FROM t"),
        );
        check(
            "SELECT list(x ORDER BY y) AS l FROM t",
            Ok("SELECT array_agg(x ORDER BY y) AS l FROM t"),
        );
        check(
            "SELECT a, b FROM t ORDER BY ALL DESC",
            Ok("SELECT a, b FROM t ORDER BY 1 DESC, 2 DESC"),
        );
        check(
            "SELECT * FROM t ORDER BY ALL",
            Err("ORDER BY ALL: the number of columns is not known"),
        );
        check(
            "SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM u), count(*), a.x, b.x FROM a, b",
            Ok(
                "SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM u) AS \"count(*)_1\", count(*) AS \"count(*)_2\", a.x, b.x FROM a, b",
            ),
        );
        check(
            "SELECT arg_max(a, b, 3) FROM t",
            Err("arg_max: expected two arguments: a value, and what is compared"),
        );
        check(
            "SELECT arg_min(a, b) OVER () FROM t",
            Err("arg_min: not a window function"),
        );
        check(
            "SELECT time_bucket(0, time) FROM t",
            Err("time_bucket: expected a duration above 0, found 0"),
        );
    }
}
