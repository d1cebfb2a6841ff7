//! Extensions of DataFusion's planner, optimizer and operators, one per file or directory.
//!
//! ```text
//! Merge            inputs in the order of time, instead of SortPreservingMergeExec
//! AsOfJoin         ASOF JOIN, which DataFusion does not have
//! RangeJoin        conditions on ranges of time, instead of HashJoinExec and NestedLoopJoinExec
//! FewGroups        GROUP BY over few values, instead of AggregateExec in its first stage
//! TimeWindow       lead, lag and the like by keys, instead of SortExec and BoundedWindowAggExec
//! Yielding         after every join, so that an interrupted query ends
//! LateProjection   columns of the rows that ORDER BY … LIMIT keeps, instead of ProjectionExec before SortExec
//! ```

mod asof_join;
mod blocks;
mod few_groups;
mod gather;
mod integers;
mod keys;
mod late_projection;
mod merge;
mod range_join;
mod relations;
mod replace;
mod span_join;
mod syntax;
#[cfg(test)]
mod test_tables;
mod time_window;
mod yielding;

pub(crate) use syntax::{statement, visit_statement};

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::error::Result;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use datafusion::prelude::{SessionConfig, SessionContext};

/// Builds a context with these operators.
pub(crate) fn context(config: SessionConfig, runtime: Arc<RuntimeEnv>) -> SessionContext {
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_default_features()
        .with_physical_optimizer_rules(rules())
        .with_query_planner(Arc::new(Planner))
        .with_relation_planners(vec![Arc::new(relations::TimeRelations)])
        .build();
    SessionContext::new_with_state(state)
}

/// DataFusion's planner, with the nodes that it does not know.
#[derive(Debug)]
struct Planner;

#[async_trait]
impl QueryPlanner for Planner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(asof_join::AsOfPlanner)])
            .create_physical_plan(plan, session)
            .await
    }
}

/// DataFusion's rules and ours. `SanityCheckPlan` must be last, to check our plans too.
fn rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = PhysicalOptimizer::new().rules;
    let last = rules.pop();
    let place = |name: &str| rules.iter().position(|rule| rule.name() == name);
    let ensure = place("EnsureRequirements").expect("DataFusion has a rule that adds sorts");
    let push = place("ProjectionPushdown").expect("DataFusion has a rule that moves projections");
    rules.insert(push, Arc::new(late_projection::rule()));
    rules.insert(ensure, Arc::new(range_join::rule()));
    rules.insert(ensure, Arc::new(time_window::rule()));
    rules.push(Arc::new(merge::rule()));
    rules.push(Arc::new(few_groups::rule()));
    rules.push(Arc::new(yielding::rule()));
    rules.extend(last);
    rules
}
