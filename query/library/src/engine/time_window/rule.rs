//! Which windows are computed in the order of time.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::super::replace::Replace;
use super::TimeWindow;
use super::functions::Windows;

/// Replaces windows whose input is in their order already, apart from their keys. Runs before the rule that adds the sorts
/// and merges which plans require.
pub(in crate::engine) fn rule() -> Replace<TimeWindow> {
    Replace {
        name: "time_windows",
        instead_of,
    }
}

fn instead_of(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<TimeWindow>> {
    let exprs = if let Some(window) = plan.downcast_ref::<BoundedWindowAggExec>() {
        window.window_expr()
    } else if let Some(window) = plan.downcast_ref::<WindowAggExec>() {
        window.window_expr()
    } else {
        return Ok(None);
    };
    let [input] = plan.children()[..] else {
        return Ok(None);
    };
    let has_keys = exprs.iter().all(|expr| !expr.partition_by().is_empty());
    if has_keys
        && let Some(window) = input.downcast_ref::<TimeWindow>()
        && let Some(joined) = joined(window, exprs)?
    {
        return Ok(Some(joined));
    }
    let mut windows = Windows::default();
    let Some(order) = add_all(&mut windows, exprs, input)? else {
        return Ok(None);
    };
    // Without keys, DataFusion needs no sort either.
    if !has_keys && !windows.are_faster_without_keys() {
        return Ok(None);
    }
    Ok(Some(TimeWindow::new(
        Arc::clone(input),
        Arc::new(windows),
        order,
    )))
}

/// Adds the functions of one operator of DataFusion, and returns the order that they need. `None` if one is of another kind,
/// or rows are not in that order.
fn add_all(
    windows: &mut Windows,
    exprs: &[Arc<dyn WindowExpr>],
    input: &Arc<dyn ExecutionPlan>,
) -> Result<Option<Option<LexOrdering>>> {
    let mut shared: Option<Vec<PhysicalSortExpr>> = None;
    let mut is_reversed = false;
    for expr in exprs {
        let order = expr.order_by().to_vec();
        if shared.as_ref().is_some_and(|shared| *shared != order) {
            return Ok(None);
        }
        if let Some(wanted) = LexOrdering::new(order.clone()) {
            let opposite = order.iter().map(PhysicalSortExpr::reverse);
            let opposite = LexOrdering::new(opposite).unwrap_or_else(|| wanted.clone());
            let equivalence = input.equivalence_properties();
            is_reversed = !equivalence.ordering_satisfy(wanted)?;
            if is_reversed && !equivalence.ordering_satisfy(opposite)? {
                return Ok(None);
            }
        }
        shared = Some(order);
        if !windows.add(expr, &input.schema(), is_reversed)? {
            return Ok(None);
        }
    }
    let order = shared.unwrap_or_default().into_iter();
    Ok(Some(match is_reversed {
        true => LexOrdering::new(order.map(|key| key.reverse())),
        false => LexOrdering::new(order),
    }))
}

/// One operator for the functions of two, if those of the upper one need nothing of the lower one.
fn joined(window: &TimeWindow, exprs: &[Arc<dyn WindowExpr>]) -> Result<Option<TimeWindow>> {
    let width = window.input.schema().fields().len();
    let is_independent = |expr: &Arc<dyn WindowExpr>| {
        let all = expr.all_expressions();
        let parts = [all.args, all.partition_by_exprs, all.order_by_exprs];
        let mut columns = parts.iter().flatten().flat_map(collect_columns);
        columns.all(|column| column.index() < width)
    };
    if !exprs.iter().all(is_independent) {
        return Ok(None);
    }
    let mut windows = Windows::clone(&window.windows);
    let Some(order) = add_all(&mut windows, exprs, &window.input)? else {
        return Ok(None);
    };
    if order.is_some() && window.order.is_some() && order != window.order {
        return Ok(None);
    }
    let order = order.or_else(|| window.order.clone());
    Ok(Some(TimeWindow::new(
        Arc::clone(&window.input),
        Arc::new(windows),
        order,
    )))
}
