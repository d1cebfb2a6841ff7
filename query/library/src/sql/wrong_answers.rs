//! What the engine plans, but answers otherwise than SQL has it: refused, with what to write instead.
//!
//! ```text
//! a FULL JOIN b USING (k)                              k is NULL where only b has a row
//! a EXCEPT ALL b                                       rows that a has twice and b once are missing
//! array_agg(x ORDER BY y), array_agg(DISTINCT x ORDER BY x)     both have the order of the first
//! ```

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArgumentClause, FunctionArguments, JoinConstraint,
    JoinOperator, OrderByExpr, Query, Select, SetExpr, SetOperator, SetQuantifier, Visit, Visitor,
};

/// Why a SELECT, without its subqueries, would be answered wrongly.
pub(super) fn of_select(select: &Select) -> Option<&'static str> {
    let joins = select.from.iter().flat_map(|from| &from.joins);
    for join in joins {
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
