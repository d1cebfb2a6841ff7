//! Operators that have no inputs in the plan around them: table functions, and passes, whose inputs are planned apart.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};

/// What such an operator does.
pub(crate) trait Leaf: fmt::Debug + Send + Sync + 'static {
    /// Name of the operator.
    const NAME: &'static str;
    /// When rows come.
    const EMISSION: EmissionType;

    /// Writes the details that EXPLAIN shows after the name; `schema` has the requested columns.
    fn describe(&self, schema: &SchemaRef, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// The number of rows in a partition, or in all. Without an estimate, a join could load the larger side into memory.
    fn row_count(&self, _: Option<usize>) -> Precision<usize> {
        Precision::Absent
    }

    /// Starts a partition; `schema` has the requested columns.
    fn rows(
        &self,
        partition: usize,
        schema: SchemaRef,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream>;
}

/// A [`Leaf`] as an operator.
#[derive(Debug)]
pub(crate) struct LeafExec<L> {
    leaf: L,
    properties: Arc<PlanProperties>,
}

impl<L: Leaf> LeafExec<L> {
    /// `equivalences` have the requested columns, and their order.
    pub(crate) fn plan(
        leaf: L,
        equivalences: EquivalenceProperties,
        partitions: usize,
    ) -> Arc<dyn ExecutionPlan> {
        let properties = PlanProperties::new(
            equivalences,
            Partitioning::UnknownPartitioning(partitions),
            L::EMISSION,
            Boundedness::Bounded,
        );
        Arc::new(LeafExec {
            leaf,
            properties: Arc::new(properties),
        })
    }

    fn schema(&self) -> &SchemaRef {
        self.properties.equivalence_properties().schema()
    }
}

impl<L: Leaf> DisplayAs for LeafExec<L> {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", L::NAME)?;
        self.leaf.describe(self.schema(), f)
    }
}

impl<L: Leaf> ExecutionPlan for LeafExec<L> {
    fn name(&self) -> &str {
        L::NAME
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(self.schema());
        statistics.num_rows = self.leaf.row_count(partition);
        Ok(Arc::new(statistics))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.leaf
            .rows(partition, Arc::clone(self.schema()), context)
    }
}
