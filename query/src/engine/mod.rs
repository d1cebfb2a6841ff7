//! What perfquet adds to DataFusion's planner, optimizer and operators, one operator a file.
//!
//! ```text
//! Merge        inputs in the order of time, instead of SortPreservingMergeExec
//! RangeJoin    conditions on ranges of time, instead of HashJoinExec and NestedLoopJoinExec
//! ```

mod blocks;
mod integers;
mod keys;
mod merge;
mod range_join;

use std::sync::Arc;

use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::{SessionConfig, SessionContext};

/// Builds a context with these operators.
pub(crate) fn context(config: SessionConfig, runtime: Arc<RuntimeEnv>) -> SessionContext {
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_default_features()
        .with_physical_optimizer_rules(rules())
        .build();
    SessionContext::new_with_state(state)
}

/// DataFusion's rules and ours. `SanityCheckPlan` stays the last one, and checks our plans, too.
fn rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = PhysicalOptimizer::new().rules;
    let last = rules.pop();
    let ensure = rules
        .iter()
        .position(|rule| rule.name() == "EnsureRequirements");
    let ensure = ensure.expect("DataFusion has a rule that adds sorts");
    rules.insert(ensure, Arc::new(range_join::RangeJoins));
    rules.push(Arc::new(merge::MergeByOneNumber));
    rules.extend(last);
    rules
}
