//! `ORDER BY … LIMIT`: computes the columns of the rows that remain, instead of those of all rows.
//!
//! ```text
//! SELECT stack_text(kernel_stack), duration FROM calls ORDER BY duration DESC LIMIT 20
//!
//! LateProjection: stack_text(kernel_stack), duration          20 rows per partition
//!   SortExec: duration DESC, fetch=20
//!     DataSourceExec: kernel_stack, duration                  all rows
//! ```
//! DataFusion computes them before it sorts, even in the scan: texts about the longest of 5 million calls took 2.9 s.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan,
    InputDistributionRequirements, PlanProperties, ReplaceChildrenOptions,
};

use super::replace::Replace;

/// Replaces sorts with a limit. Runs before the rule that moves projections into scans.
pub(super) fn rule() -> Replace<LateProjection> {
    Replace {
        name: "late_projection",
        instead_of: LateProjection::instead_of,
    }
}

/// A projection that no rule moves below the sort again.
#[derive(Debug, Clone)]
pub(super) struct LateProjection {
    projection: Arc<dyn ExecutionPlan>,
}

impl LateProjection {
    fn instead_of(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<LateProjection>> {
        let Some(sort) = plan.downcast_ref::<SortExec>() else {
            return Ok(None);
        };
        let Some(projection) = sort.input().downcast_ref::<ProjectionExec>() else {
            return Ok(None);
        };
        let exprs = projection.expr();
        let is_computed =
            |expr: &Arc<dyn PhysicalExpr>| !expr.is::<Column>() && !expr.is::<Literal>();
        let fits = sort.fetch().is_some()
            && exprs.iter().any(|column| is_computed(&column.expr))
            // random() has other values if it is called for other rows.
            && !exprs.iter().any(|column| is_volatile(&column.expr));
        let Some(keys) = fits.then(|| keys_below(sort.expr(), projection)).flatten() else {
            return Ok(None);
        };
        let below = SortExec::new(keys, Arc::clone(projection.input()))
            .with_fetch(sort.fetch())
            .with_preserve_partitioning(sort.preserve_partitioning());
        // A new projection of the same expressions would lack what a view says of its columns, such as their units.
        let projection = Arc::clone(sort.input()).replace_children(
            vec![Arc::new(below)],
            ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute),
        )?;
        Ok((projection.schema() == sort.schema()).then_some(LateProjection { projection }))
    }
}

/// The sort keys as columns of the projection's input; `None` if a key is computed: it would be computed twice.
fn keys_below(keys: &LexOrdering, projection: &ProjectionExec) -> Option<LexOrdering> {
    let below = |key: &PhysicalSortExpr| {
        let column = key.expr.downcast_ref::<Column>()?;
        let expr = &projection.expr().get(column.index())?.expr;
        expr.is::<Column>()
            .then(|| PhysicalSortExpr::new(Arc::clone(expr), key.options))
    };
    let keys: Option<Vec<_>> = keys.iter().map(below).collect();
    LexOrdering::new(keys?)
}

impl DisplayAs for LateProjection {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LateProjection: ")?;
        match self.projection.downcast_ref::<ProjectionExec>() {
            Some(projection) => projection.fmt_as(kind, f),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for LateProjection {
    fn name(&self) -> &'static str {
        "LateProjection"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.projection.properties()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.projection.input_distribution_requirements()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.projection.maintains_input_order()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.projection.children()
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.projection.apply_expressions(visit)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        Ok(Arc::new(LateProjection {
            projection: Arc::clone(&self.projection).replace_children(children, options)?,
        }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.projection.execute(partition, context)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.projection.metrics()
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::test_tables::context;
    use crate::engine::test_tables::{self, Random, Shape, answer, config, limited, on_runtime};

    const SHAPE: Shape = Shape {
        rows: 300,
        starts: 10_000,
        lengths: 20,
        keys: 5,
        is_sorted: false,
    };

    /// The rows and the plan.
    fn ask(sql: &str) -> (Vec<String>, String) {
        let context = context(config(), limited(64 << 20));
        let batches = test_tables::batches(SHAPE, &mut Random(7));
        test_tables::add(&context, "t", SHAPE, &batches);
        on_runtime(answer(&context, sql))
    }

    #[test]
    fn columns_are_computed_after_the_limit() {
        for columns in [
            "name || CAST(id AS VARCHAR), s",
            "s, s + e AS sum, name",
            "upper(name)",
            "1, s, s AS again, -e",
        ] {
            let limited =
                format!("SELECT {columns} FROM t ORDER BY s DESC NULLS LAST, id LIMIT 10");
            let (found, plan) = ask(&limited);
            assert!(plan.contains("LateProjection"), "{limited}\n{plan}");
            let first = "SELECT id FROM t ORDER BY s DESC NULLS LAST, id LIMIT 10";
            let (expected, plan) = ask(&format!("SELECT {columns} FROM t WHERE id IN ({first})"));
            assert!(!plan.contains("LateProjection"), "{plan}");
            assert_eq!(found, expected, "{limited}");
            assert_eq!(found.len(), 10, "{limited}");
        }
    }

    #[test]
    fn other_projections_stay_below() {
        for sql in [
            "SELECT s + e AS sum, name FROM t ORDER BY sum LIMIT 10",
            "SELECT random() AS x, s FROM t ORDER BY s LIMIT 10",
            "SELECT name, s FROM t ORDER BY s LIMIT 10",
            "SELECT upper(name), s FROM t ORDER BY s",
        ] {
            let (found, plan) = ask(sql);
            assert!(!plan.contains("LateProjection"), "{sql}\n{plan}");
            assert!(found.len() >= 10, "{sql}");
        }
    }
}
