//! What the engine plans, but answers otherwise than SQL has it: refused, with what to write instead.
//!
//! ```text
//! a FULL JOIN b USING (k)                              k is NULL where only b has a row
//! a EXCEPT ALL b                                       rows that a has twice and b once are missing
//! array_agg(x ORDER BY y), array_agg(DISTINCT x ORDER BY x)     both have the order of the first
//! FROM a PREWHERE x, FROM a PARTITION (p)                       the clause is ignored
//! a JOIN b                                              every row of a with every row of b
//! x SIMILAR TO 'a%'                                     another pattern in PostgreSQL than in DuckDB, and a third one here
//! wall_time(time) AT TIME ZONE 'Europe/Berlin'          the same digits with another zone, which is another time
//! ```

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArgumentClause, FunctionArguments, GroupByExpr,
    JoinConstraint, JoinOperator, OrderByExpr, Query, Select, SetExpr, SetOperator, SetQuantifier,
    TableFactor, UnaryOperator, Visit, Visitor,
};

/// Why a SELECT, without its subqueries, would be answered wrongly.
pub(super) fn of_select(select: &Select) -> Option<&'static str> {
    if let Some(ignored) = ignored(select) {
        return Some(ignored);
    }
    let joins = select.from.iter().flat_map(|from| &from.joins);
    for join in joins {
        let is_inner = matches!(
            &join.join_operator,
            JoinOperator::Join(JoinConstraint::None) | JoinOperator::Inner(JoinConstraint::None)
        );
        let is_lateral = matches!(
            &join.relation,
            TableFactor::Derived { lateral: true, .. }
                | TableFactor::Function { lateral: true, .. }
                | TableFactor::UNNEST { .. }
        );
        if is_inner && !is_lateral {
            return Some(
                "the JOIN has no condition\nhint: add ON a.x = b.x, or write CROSS JOIN for every pair of rows",
            );
        }
        let (JoinOperator::Right(on) | JoinOperator::RightOuter(on) | JoinOperator::FullOuter(on)) =
            &join.join_operator
        else {
            continue;
        };
        if matches!(on, JoinConstraint::Using(_) | JoinConstraint::Natural) {
            return Some(
                "RIGHT and FULL JOIN with USING, and NATURAL ones, are not supported\nhint: use ON a.x = b.x, and coalesce(a.x, b.x) for the joined column",
            );
        }
    }
    let mut orders = Orders::default();
    let _ = select.projection.visit(&mut orders);
    let first = orders.all.first();
    let differ = orders.all.iter().any(|order| Some(order) != first);
    (orders.has_distinct && differ).then_some(
        "an aggregate with DISTINCT and ORDER BY beside one with another order is not supported\nhint: use array_sort(array_agg(DISTINCT x)), or a subquery for one of them",
    )
}

/// Why a clause of a SELECT would be ignored.
fn ignored(select: &Select) -> Option<&'static str> {
    if select.prewhere.is_some() {
        return Some("PREWHERE is not supported\nhint: use WHERE");
    }
    if !select.connect_by.is_empty() {
        return Some("CONNECT BY is not supported\nhint: use WITH RECURSIVE");
    }
    let modifiers = match &select.group_by {
        GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers) => modifiers,
    };
    if !modifiers.is_empty() {
        return Some(
            "GROUP BY … WITH is not supported\nhint: use GROUP BY ROLLUP (x), CUBE (x) or GROUPING SETS (…)",
        );
    }
    if select.into.is_some() {
        return Some("SELECT INTO is not supported\nhint: use CREATE TABLE name AS SELECT …");
    }
    select.value_table_mode.is_some().then_some(
        "SELECT AS STRUCT and AS VALUE are not supported\nhint: use named_struct('x', x)",
    )
}

/// Why a clause of a table would be ignored.
pub(super) fn of_table(table: &TableFactor) -> Option<&'static str> {
    let TableFactor::Table {
        alias,
        with_hints,
        version,
        with_ordinality,
        partitions,
        json_path,
        sample,
        index_hints,
        ..
    } = table
    else {
        return None;
    };
    let is_alias = |word: &str| {
        let alias = alias.as_ref().map(|alias| &alias.name);
        alias
            .is_some_and(|name| name.quote_style.is_none() && name.value.eq_ignore_ascii_case(word))
    };
    if sample.is_some() {
        return Some("TABLESAMPLE is not supported\nhint: use WHERE random() < 0.1");
    }
    if version.is_some() {
        return Some("FOR SYSTEM_TIME is not supported\nhint: use WHERE time BETWEEN …");
    }
    if !partitions.is_empty() {
        return Some("PARTITION (…) is not supported\nhint: use WHERE");
    }
    // The parser takes the word for the name of the table.
    if is_alias("positional") {
        return Some(
            "POSITIONAL JOIN is not supported\nhint: join on row_number() OVER (ORDER BY time)",
        );
    }
    (*with_ordinality || json_path.is_some() || !with_hints.is_empty() || !index_hints.is_empty()).then_some(
        "this clause of a table is not supported\nhint: leave out WITH (…), WITH ORDINALITY, paths of JSON, and hints of indexes",
    )
}

/// Why an expression would be answered wrongly.
pub(super) fn of_expr(expr: &Expr) -> Option<&'static str> {
    match expr {
        Expr::SimilarTo { .. } => Some(
            "SIMILAR TO has other patterns in PostgreSQL than in DuckDB\nhint: use LIKE 'perf%', or ~ '^(perf.*)$'",
        ),
        Expr::AtTimeZone { .. } => Some(
            "AT TIME ZONE is not supported: times are UTC\nhint: add the difference: wall_time(time) + INTERVAL '1 hour'",
        ),
        Expr::Collate { .. } => {
            Some("COLLATE is not supported\nhint: use lower(comm), or upper(comm)")
        }
        Expr::UnaryOp {
            op: UnaryOperator::BitwiseNot,
            ..
        } => Some("~x is not supported\nhint: use xor(x, -1)"),
        _ => None,
    }
}

/// Why the set operations of a query, without those of subqueries, would be answered wrongly.
pub(super) fn of_sets(body: &SetExpr) -> Option<&'static str> {
    let mut rest = vec![body];
    while let Some(body) = rest.pop() {
        let SetExpr::SetOperation {
            op,
            set_quantifier,
            left,
            right,
        } = body
        else {
            continue;
        };
        let is_all = matches!(
            set_quantifier,
            SetQuantifier::All | SetQuantifier::AllByName
        );
        if is_all && !matches!(op, SetOperator::Union) {
            return Some(
                "EXCEPT ALL and INTERSECT ALL are not supported\nhint: use EXCEPT or INTERSECT, or compare SELECT x, count(*) … GROUP BY x of both",
            );
        }
        rest.extend([&**left, &**right]);
    }
    None
}

/// The orders of aggregates, outside of subqueries.
#[derive(Default)]
struct Orders {
    depth: usize,
    all: Vec<Vec<OrderByExpr>>,
    has_distinct: bool,
}

impl Visitor for Orders {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        let Expr::Function(Function {
            args: FunctionArguments::List(list),
            over: None,
            ..
        }) = expr
        else {
            return ControlFlow::Continue(());
        };
        let order = list.clauses.iter().find_map(|clause| match clause {
            FunctionArgumentClause::OrderBy(order) => Some(order),
            _ => None,
        });
        if let (0, Some(order)) = (self.depth, order) {
            self.all.push(order.clone());
            self.has_distinct |= list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
        }
        ControlFlow::Continue(())
    }
}
