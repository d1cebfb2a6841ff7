//! The rule that turns joins into range joins.

use std::sync::Arc;

use datafusion::common::{JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::{
    ExecutionPlan, ExecutionPlanProperties, StatisticsArgs, StatisticsContext,
};

use super::super::keys;
use super::super::replace::Replace;
use super::condition::{Condition, conditions};
use super::spec::{LEFT, RIGHT};
use super::{Keys, RangeJoin};

/// Replaces hash joins and nested loops whose filter has a condition on ranges. Runs before the rule that adds the sorts
/// and merges which plans require.
pub(in crate::engine) fn rule() -> Replace<RangeJoin> {
    Replace {
        name: "range_joins",
        instead_of,
    }
}

/// An input with at most this many rows is compared with every row of the other, which is cheaper than sorting the other.
const FEW_ROWS: usize = 64;

fn instead_of(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<RangeJoin>> {
    if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        let projection = join.projection().as_ref().map(|columns| columns.to_vec());
        return range_join(
            [join.left(), join.right()],
            *join.join_type(),
            Vec::new(),
            false,
            join.filter(),
            projection,
        );
    }
    let Some(join) = plan.downcast_ref::<HashJoinExec>() else {
        return Ok(None);
    };
    // `x NOT IN (…)` with three-valued logic.
    if join.null_aware || join.fetch().is_some() {
        return Ok(None);
    }
    let keys: Keys = join.on().to_vec();
    for (left, right) in &keys {
        let kind = left.data_type(&join.left().schema())?;
        if !keys::Keys::hold(&kind) || kind != right.data_type(&join.right().schema())? {
            return Ok(None);
        }
    }
    let projection = join.projection.as_ref().map(|columns| columns.to_vec());
    range_join(
        [join.left(), join.right()],
        *join.join_type(),
        keys,
        join.null_equality() == NullEquality::NullEqualsNull,
        join.filter(),
        projection,
    )
}

fn range_join(
    inputs: [&Arc<dyn ExecutionPlan>; 2],
    kind: JoinType,
    keys: Keys,
    null_is_key: bool,
    filter: Option<&JoinFilter>,
    projection: Option<Vec<usize>>,
) -> Result<Option<RangeJoin>> {
    let Some(filter) = filter else {
        return Ok(None);
    };
    if matches!(kind, JoinType::LeftMark | JoinType::RightMark) {
        return Ok(None);
    }
    let mut best: Option<(usize, Condition)> = None;
    for condition in conditions(filter)? {
        let mut unsorted = 0;
        for (input, range) in [
            (inputs[LEFT], &condition.left),
            (inputs[RIGHT], &condition.right),
        ] {
            let order = RangeJoin::order(&range.start);
            let is_sorted = input.equivalence_properties().ordering_satisfy(order)?;
            unsorted += usize::from(!is_sorted);
        }
        if best.as_ref().is_none_or(|(least, _)| unsorted < *least) {
            best = Some((unsorted, condition));
        }
    }
    let Some((unsorted, condition)) = best else {
        return Ok(None);
    };
    if unsorted > 0 && (has_few_rows(inputs[LEFT])? || has_few_rows(inputs[RIGHT])?) {
        return Ok(None);
    }
    let inputs = inputs.map(Arc::clone);
    RangeJoin::new(inputs, kind, keys, null_is_key, condition, projection).map(Some)
}

/// Whether an input is known to have only a few rows.
fn has_few_rows(input: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let statistics = StatisticsContext::new().compute(input.as_ref(), &StatisticsArgs::new())?;
    let rows = statistics.num_rows.get_value();
    Ok(rows.is_some_and(|&rows| rows <= FEW_ROWS))
}
