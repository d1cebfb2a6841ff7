//! The frame of the optimizer rules, and of the walk over an operator's expressions.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

/// A rule that replaces single operators, from the inputs up.
pub(super) struct Replace<T> {
    pub(super) name: &'static str,
    /// Returns the operator to use instead; `None` to keep it.
    pub(super) instead_of: fn(&Arc<dyn ExecutionPlan>) -> Result<Option<T>>,
}

impl<T> fmt::Debug for Replace<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl<T: ExecutionPlan + 'static> PhysicalOptimizerRule for Replace<T> {
    fn name(&self) -> &str {
        self.name
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let replaced = plan.transform_up(|plan| match (self.instead_of)(&plan)? {
            Some(operator) => Ok(Transformed::yes(Arc::new(operator) as _)),
            None => Ok(Transformed::no(plan)),
        });
        replaced.data()
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Visits expressions until the visitor stops.
pub(super) fn visit_each<'e>(
    exprs: impl IntoIterator<Item = &'e Arc<dyn PhysicalExpr>>,
    visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
) -> Result<TreeNodeRecursion> {
    for expr in exprs {
        if visit(expr)? == TreeNodeRecursion::Stop {
            return Ok(TreeNodeRecursion::Stop);
        }
    }
    Ok(TreeNodeRecursion::Continue)
}
