//! `ORDER BY ALL`, and numbers of columns that DataFusion does not resolve.
//!
//! ```text
//! ORDER BY ALL                                           ORDER BY 1, 2, …
//! SELECT a, sum(b) / 2 FROM t GROUP BY a ORDER BY 2      … ORDER BY sum(b) / 2
//! ```

use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, Value,
};

/// Rewrites the ORDER BY of a query.
pub(super) fn rewrite(query: &mut Query) -> Result<(), String> {
    order_by_all(query)?;
    order_by_numbers(query);
    Ok(())
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

/// Replaces the number of a column without a name by its expression, where rows are grouped: DataFusion would take the
/// name that it gives to the expression for the name of a column below.
fn order_by_numbers(query: &mut Query) {
    let (Some(order_by), SetExpr::Select(select)) = (&mut query.order_by, query.body.as_ref())
    else {
        return;
    };
    let OrderByKind::Expressions(exprs) = &mut order_by.kind else {
        return;
    };
    if !is_grouped(select) || select.projection.iter().any(is_wildcard) {
        return;
    }
    for OrderByExpr { expr, .. } in exprs {
        let Expr::Value(value) = &*expr else {
            continue;
        };
        let Value::Number(number, _) = &value.value else {
            continue;
        };
        let place = number.parse::<usize>().ok();
        let item = place.and_then(|place| select.projection.get(place.checked_sub(1)?));
        match item {
            Some(SelectItem::UnnamedExpr(
                Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_),
            )) => {}
            Some(SelectItem::UnnamedExpr(column)) => *expr = column.clone(),
            _ => {}
        }
    }
}

fn is_grouped(select: &Select) -> bool {
    match &select.group_by {
        GroupByExpr::All(_) => true,
        GroupByExpr::Expressions(exprs, _) => !exprs.is_empty(),
    }
}

fn is_wildcard(item: &SelectItem) -> bool {
    matches!(
        item,
        SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)
    )
}
