//! Functions and clauses that DuckDB has and the engine lacks, as what the engine has.
//!
//! ```text
//! arg_max(comm, duration)      first_value(comm ORDER BY duration DESC) FILTER (WHERE comm IS NOT NULL AND duration IS NOT NULL)
//! time_bucket(100ms, time)     the start of the 100 ms that a time is in, counted from the start of the trace
//! a SEMI JOIN b, a ANTI JOIN b LEFT SEMI JOIN, LEFT ANTI JOIN
//! list_filter(x, y -> y > 1)   the same, with a function as the engine's parser has it in other dialects
//! FROM t, ORDER BY ALL         SELECT * FROM t, ORDER BY 1, 2, …
//! ```
//! Functions are in `functions.rs`. What needs the columns of tables is in `sql/star.rs`, what needs a plan in `sql/membership.rs`.

mod elsewhere;
mod functions;
mod order_by;
mod texts;

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, DataType, ExactNumberInfo, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArguments, Ident, JoinOperator, LambdaFunction,
    LambdaFunctionParameter, LambdaSyntax, ObjectName, OneOrManyWithParens, Query, Select,
    SelectFlavor, SelectItem, SetExpr, Subscript, TableFactor, TableWithJoins, Value, Visit,
    Visitor, VisitorMut, WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::engine;
use crate::sql::definitions::known_as;
use functions::{is_replaced_aggregate, is_translated, renamed, replacement};

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
            let is_named = |expr: &Expr| match expr {
                Expr::Function(call) if is_translated(call) => true,
                // The engine's name has no words of the subquery, and its own names of functions.
                // Nor does it have brackets.
                expr => has_list(expr) || has_own_name(expr) || has_brackets(expr),
            };
            if let SelectItem::UnnamedExpr(expr) = &*item
                && is_named(expr)
            {
                let name = as_written(expr);
                give_name(item, name);
            }
        }
        distinguish(&mut select.projection);
        select.from.iter_mut().for_each(name_sides);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::NestedJoin {
            table_with_joins, ..
        } = table
        {
            name_sides(table_with_joins);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        match order_by::rewrite(query) {
            Ok(()) => ControlFlow::Continue(()),
            Err(wrong) => {
                self.wrong = wrong;
                ControlFlow::Break(())
            }
        }
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(call) if takes_function(call) => with_lambdas(call),
            Expr::Cast { data_type, .. } => known_type(data_type),
            Expr::CompoundFieldAccess { access_chain, .. } => with_bounds(access_chain),
            Expr::AnyOp { .. } | Expr::AllOp { .. } => as_list(expr),
            Expr::BinaryOp {
                op: BinaryOperator::BitwiseXor,
                ..
            } => {
                self.wrong = "^ is a power in DuckDB and PostgreSQL, and exclusive or in C\nhint: use pow(x, y), or xor(x, y)".to_owned();
                return ControlFlow::Break(());
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::Function(call) = expr else {
            return ControlFlow::Continue(());
        };
        let name = call.name.to_string().to_lowercase();
        if let Some(known) = renamed(&name) {
            call.name = ObjectName::from(vec![Ident::new(known)]);
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

/// Whether a function, in lower case, is an aggregate here or as translated.
pub(super) fn is_aggregate(name: &str, state: &SessionState) -> bool {
    let known = renamed(name).unwrap_or(name);
    state.aggregate_functions().contains_key(known) || is_replaced_aggregate(name)
}

/// `a SEMI JOIN b` as `a LEFT SEMI JOIN b`; likewise ANTI.
fn name_sides(tables: &mut TableWithJoins) {
    for join in &mut tables.joins {
        join.join_operator = match &join.join_operator {
            JoinOperator::Semi(constraint) => JoinOperator::LeftSemi(constraint.clone()),
            JoinOperator::Anti(constraint) => JoinOperator::LeftAnti(constraint.clone()),
            _ => continue,
        };
    }
}

/// Whether a function takes another one, as `x -> x + 1`.
fn takes_function(call: &Function) -> bool {
    let name = call.name.to_string().to_lowercase();
    let ends = [
        "_transform",
        "_filter",
        "_apply",
        "any_match",
        "array_first",
        "list_first",
    ];
    ends.iter().any(|end| name.ends_with(end))
}

/// The parser reads `x -> x + 1` as an operator.
fn with_lambdas(call: &mut Function) {
    let FunctionArguments::List(list) = &mut call.args else {
        return;
    };
    for argument in &mut list.args {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = argument else {
            continue;
        };
        if let Some(lambda) = lambda(expr) {
            *expr = lambda;
        }
    }
}

/// `x -> x + 1 > 2` is read as `((x -> x) + 1) > 2`: the arrow binds more strongly than other operators.
pub(crate) fn lambda(expr: &Expr) -> Option<Expr> {
    let mut body = expr.clone();
    let mut place = &mut body;
    let name = loop {
        match place {
            Expr::BinaryOp {
                left,
                op: BinaryOperator::Arrow,
                right,
            } => match left.as_ref() {
                Expr::Identifier(name) => {
                    let name = name.clone();
                    *place = right.as_ref().clone();
                    break name;
                }
                _ => return None,
            },
            Expr::BinaryOp { left, .. }
            | Expr::Like { expr: left, .. }
            | Expr::ILike { expr: left, .. }
            | Expr::InList { expr: left, .. }
            | Expr::Between { expr: left, .. }
            | Expr::IsNull(left)
            | Expr::IsNotNull(left) => place = left,
            _ => return None,
        }
    };
    Some(Expr::Lambda(LambdaFunction {
        params: OneOrManyWithParens::One(LambdaFunctionParameter {
            name,
            data_type: None,
        }),
        body: Box::new(body),
        syntax: LambdaSyntax::Arrow,
    }))
}

/// DuckDB's names of types.
fn known_type(kind: &mut DataType) {
    match kind {
        DataType::HugeInt | DataType::UHugeInt => {
            *kind = DataType::Decimal(ExactNumberInfo::PrecisionAndScale(38, 0));
        }
        DataType::Custom(name, _) => {
            let name = name.to_string().to_lowercase();
            if [
                "timestamp_ns",
                "timestamp_us",
                "timestamp_ms",
                "timestamp_s",
            ]
            .contains(&name.as_str())
            {
                *kind =
                    DataType::Timestamp(None, datafusion::sql::sqlparser::ast::TimezoneInfo::None);
            }
        }
        _ => {}
    }
}

/// Gives columns with the name of an earlier one a number, as DuckDB does: `count(*)`, `count(*)_1`. Named columns, and those of tables,
/// keep their names.
fn distinguish(projection: &mut [SelectItem]) {
    let mut names: Vec<String> = Vec::new();
    for item in projection {
        let name = match &*item {
            SelectItem::UnnamedExpr(Expr::Identifier(name)) => known_as(name),
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(names)) => match names.last() {
                Some(name) => known_as(name),
                None => continue,
            },
            SelectItem::UnnamedExpr(expr) => name_of(expr),
            SelectItem::ExprWithAlias { alias, .. } => known_as(alias),
            _ => continue,
        };
        let count = names.iter().filter(|other| **other == name).count();
        if count > 0 {
            give_name(item, format!("{name}_{count}"));
        }
        names.push(name);
    }
}

/// Gives a name to a column that has none.
pub(crate) fn give_name(item: &mut SelectItem, name: String) {
    if let SelectItem::UnnamedExpr(expr) = item {
        let alias = Ident::with_quote('"', name);
        let expr = expr.clone();
        *item = SelectItem::ExprWithAlias { expr, alias };
    }
}

/// Whether an expression has an `x IN (SELECT …)` or the like.
fn has_list(expr: &Expr) -> bool {
    struct Lists;
    impl Visitor for Lists {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::InSubquery { .. }
                | Expr::Exists { .. }
                | Expr::AnyOp { .. }
                | Expr::AllOp { .. } => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    expr.visit(&mut Lists).is_break()
}

/// Whether an expression has parentheses that change the order of evaluation.
fn has_brackets(expr: &Expr) -> bool {
    struct Brackets;
    impl Visitor for Brackets {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Nested(inner) if matches!(**inner, Expr::BinaryOp { .. }) => {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    expr.visit(&mut Brackets).is_break()
}

/// Whether an expression has a function as an argument, or a slice.
fn has_own_name(expr: &Expr) -> bool {
    struct Own;
    impl Visitor for Own {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Lambda(_)
                | Expr::BinaryOp {
                    op: BinaryOperator::Arrow,
                    ..
                }
                | Expr::CompoundFieldAccess { .. } => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    expr.visit(&mut Own).is_break()
}

/// `x = ANY (SELECT …)` as `x IN (SELECT …)`, `x <> ALL (SELECT …)` as `x NOT IN (SELECT …)`.
fn as_list(expr: &mut Expr) {
    let (left, right, negated) = match expr {
        Expr::AnyOp {
            left,
            compare_op: BinaryOperator::Eq,
            right,
            ..
        } => (left, right, false),
        Expr::AllOp {
            left,
            compare_op: BinaryOperator::NotEq,
            right,
        } => (left, right, true),
        _ => return,
    };
    if let Expr::Subquery(subquery) = right.as_ref() {
        *expr = Expr::InSubquery {
            expr: left.clone(),
            subquery: subquery.clone(),
            negated,
        };
    }
}

/// Writes out the open ends of `x[2:]`, `x[:2]` and `x[:]`.
fn with_bounds(chain: &mut [AccessExpr]) {
    let number = |text: &str| Expr::value(Value::Number(text.to_owned(), false));
    for access in chain {
        if let AccessExpr::Subscript(Subscript::Slice {
            lower_bound,
            upper_bound,
            ..
        }) = access
        {
            lower_bound.get_or_insert_with(|| number("1"));
            // The last one.
            upper_bound.get_or_insert_with(|| number("-1"));
        }
    }
}

/// An expression as the name of a column: lower-case, except for strings.
pub(crate) fn as_written(expr: &Expr) -> String {
    let text = expr.to_string();
    let parts = text.split('\'').enumerate();
    let parts = parts.map(|(index, part)| match index % 2 {
        0 => without_marks(part).to_lowercase(),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("'")
}

/// Removes the mark of durations, `1000000L` (`sql/literals.rs`).
fn without_marks(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    let mut is_number = false;
    let mut in_name = false;
    while let Some(letter) = letters.next() {
        let ends = letters
            .peek()
            .is_none_or(|next| !next.is_alphanumeric() && *next != '_');
        if letter == 'L' && is_number && ends {
            is_number = false;
            continue;
        }
        is_number = letter.is_ascii_digit() && !in_name;
        in_name = letter.is_alphabetic() || letter == '_' || (in_name && letter.is_alphanumeric());
        result.push(letter);
    }
    result
}

/// Returns the name of an expression's column: a subquery has that of its only column.
fn name_of(expr: &Expr) -> String {
    let Expr::Subquery(query) = expr else {
        return as_written(expr);
    };
    let SetExpr::Select(select) = &*query.body else {
        return as_written(expr);
    };
    match select.projection.as_slice() {
        [SelectItem::UnnamedExpr(inner)] => name_of(inner),
        [SelectItem::ExprWithAlias { alias, .. }] => alias.value.clone(),
        _ => as_written(expr),
    }
}

fn parsed(sql: &str) -> Result<Expr, String> {
    Parser::new(&GenericDialect {})
        .try_with_sql(sql)
        .and_then(|mut parser| parser.parse_expr())
        .map_err(|error| error.to_string())
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
            "SELECT a, sum(b) / 2, c AS d FROM t GROUP BY 1, 3 ORDER BY 2 DESC, 1, 3, 9",
            Ok(
                "SELECT a, sum(b) / 2, c AS d FROM t GROUP BY 1, 3 ORDER BY sum(b) / 2 DESC, 1, 3, 9",
            ),
        );
        check(
            "SELECT a + 1 FROM t ORDER BY 1",
            Ok("SELECT a + 1 FROM t ORDER BY 1"),
        );
        check(
            "SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM u), count(*), a.x, b.x FROM a, b",
            Ok(
                "SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM u) AS \"count(*)_1\", count(*) AS \"count(*)_2\", a.x, b.x AS \"x_1\" FROM a, b",
            ),
        );
        check(
            "SELECT arg_max(a, b, 3) FROM t",
            Ok(
                "SELECT array_slice(array_agg(a ORDER BY b DESC) FILTER (WHERE (a) IS NOT NULL AND (b) IS NOT NULL), 1, 3) AS \"arg_max(a, b, 3)\" FROM t",
            ),
        );
        check(
            "SELECT arg_max(a) FROM t",
            Err("arg_max: expected a value, what is compared, and optionally a number of values"),
        );
        check(
            "SELECT a FROM t SEMI JOIN u USING (x) ANTI JOIN v ON y",
            Ok("SELECT a FROM t LEFT SEMI JOIN u USING(x) LEFT ANTI JOIN v ON y"),
        );
        check(
            "SELECT x[2:] AS a, x[:3][:] AS b FROM t WHERE x = ANY (SELECT y FROM u) AND x <> ALL (SELECT 1) AND x > ALL (SELECT 1)",
            Ok(
                "SELECT x[2:-1] AS a, x[1:3][1:-1] AS b FROM t WHERE x IN (SELECT y FROM u) AND x NOT IN (SELECT 1) AND x > ALL(SELECT 1)",
            ),
        );
        check(
            "SELECT list_filter(a, x -> x + 1 > 2) AS f, CAST(a AS HUGEINT) AS h FROM t",
            Ok("SELECT list_filter(a, x -> x + 1 > 2) AS f, CAST(a AS DECIMAL(38,0)) AS h FROM t"),
        );
        check(
            "SELECT printf('%s: %.2f%%', a, b) AS p, format('{}-{:x}', a, b) AS f FROM t",
            Ok(
                "SELECT concat((a), ': ', CAST(round(CAST(b AS DOUBLE), 2) AS DECIMAL(38,2)), '%') AS p, concat((a), '-', to_hex(b)) AS f FROM t",
            ),
        );
        check(
            "SELECT printf('%5d', a) FROM t",
            Err("printf: %5d is not supported"),
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
