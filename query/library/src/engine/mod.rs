//! Extensions of DataFusion's planner, optimizer and operators, one per file or directory.
//!
//! ```text
//! Merge            inputs in the order of time, instead of SortPreservingMergeExec
//! AsOfJoin         ASOF JOIN, which DataFusion does not have
//! RangeJoin        conditions on ranges of time, instead of HashJoinExec and NestedLoopJoinExec
//! FewGroups        GROUP BY over few values, instead of AggregateExec in its first stage
//! TimeWindow       lead, lag and the like by keys, instead of SortExec and BoundedWindowAggExec
//! Yielding         after every join, so that an interrupted query ends
//! Distinct         count(*) beside count(DISTINCT x), instead of one set of all values
//! NarrowTop        scans of few numbers for ORDER BY … LIMIT, without a filter on rows
//! TextFilter       conditions on one text column, once for each distinct text
//! LateProjection   columns of the rows that ORDER BY … LIMIT keeps, instead of ProjectionExec before SortExec
//! ```

mod asof_join;
mod blocks;
pub(crate) mod codes;
mod distinct;
mod few_groups;
mod gather;
mod integers;
mod keys;
mod late_projection;
mod merge;
mod narrow_top;
pub(crate) mod per_text;
mod pivot;
mod precedence;
mod range_join;
mod relations;
mod replace;
mod source_exec;
mod span_join;
mod spelling;
mod syntax;
#[cfg(test)]
mod test_tables;
mod text_filter;
mod time_window;
mod yielding;

pub(crate) use pivot::{PIVOT, UNPIVOT};
pub(crate) use source_exec::{Leaf, LeafExec};
pub(crate) use syntax::{statement, visit_statement};

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use datafusion::prelude::SessionContext;

/// Adds these operators to a context, once.
///
/// # Errors
///
/// The context lacks the rules of DataFusion between which ours belong.
pub(crate) fn extend(context: &SessionContext) -> Result<()> {
    let state = context.state_ref();
    let mut state = state.write();
    let ours = yielding::rule();
    let is_ours = |rule: &Rule| rule.name() == ours.name();
    if state.physical_optimizers().iter().any(is_ours) {
        return Ok(());
    }
    let rules = with_ours(state.physical_optimizers().to_vec())?;
    let planner = Planner {
        others: Arc::clone(state.query_planner()),
    };
    let mut relations = state.relation_planners().to_vec();
    relations.insert(0, Arc::new(relations::TimeRelations));
    *state = SessionStateBuilder::new_from_existing(state.clone())
        .with_physical_optimizer_rules(rules)
        .with_query_planner(Arc::new(planner))
        .with_relation_planners(relations)
        .build();
    drop(state);
    context.add_optimizer_rule(Arc::new(distinct::CountsBesideDistinct));
    Ok(())
}

/// The planner of a context, and DataFusion's for plans with nodes that only we know.
#[derive(Debug)]
struct Planner {
    others: Arc<dyn QueryPlanner + Send + Sync>,
}

#[async_trait]
impl QueryPlanner for Planner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !asof_join::is_in(plan)? {
            return self.others.create_physical_plan(plan, session).await;
        }
        DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(asof_join::AsOfPlanner)])
            .create_physical_plan(plan, session)
            .await
    }
}

type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// The rules of a context and ours. `SanityCheckPlan` stays last, to check our plans too.
fn with_ours(mut rules: Vec<Rule>) -> Result<Vec<Rule>> {
    let place = |rules: &[Rule], name: &str| {
        let place = rules.iter().position(|rule| rule.name() == name);
        place.ok_or_else(|| {
            DataFusionError::Configuration(format!("the context has no optimizer rule {name}"))
        })
    };
    let push = place(&rules, "ProjectionPushdown")?;
    rules.insert(push, Arc::new(late_projection::rule()));
    let ensure = place(&rules, "EnsureRequirements")?;
    rules.insert(ensure, Arc::new(range_join::rule()));
    rules.insert(ensure, Arc::new(time_window::rule()));
    let check = place(&rules, "SanityCheckPlan")?;
    let last: [Rule; 5] = [
        Arc::new(text_filter::rule()),
        Arc::new(narrow_top::rule()),
        Arc::new(merge::rule()),
        Arc::new(few_groups::rule()),
        Arc::new(yielding::rule()),
    ];
    rules.splice(check..check, last);
    Ok(rules)
}
