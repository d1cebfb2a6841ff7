//! Window functions by keys over rows in the order of time, without a sort by key.
//!
//! ```text
//! lead(time) OVER (PARTITION BY tid ORDER BY time)      the last row of each thread waits for its next one
//! TimeWindow: lead(time) PARTITION BY [tid] ORDER BY [time ASC NULLS FIRST] …
//! ```
//! DataFusion sorts all rows by key and time. 4.9 million rows by thread took 1.7 s of CPU.

mod functions;
mod rows;
mod rule;
mod run;
mod running;
mod state;
mod waiting;

#[cfg(test)]
mod tests;

pub(super) use rule::rule;

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, OrderingRequirements, Partitioning, PhysicalExpr,
};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, PlanProperties,
};
use futures::StreamExt;

use super::integers::Integers;
use super::merge::ahead;
use super::replace::visit_each;
use functions::Windows;
use run::Run;

/// The operator.
#[derive(Debug, Clone)]
pub(super) struct TimeWindow {
    input: Arc<dyn ExecutionPlan>,
    windows: Arc<Windows>,
    /// The order of the rows; `None` if the functions have none.
    order: Option<LexOrdering>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl TimeWindow {
    fn new(
        input: Arc<dyn ExecutionPlan>,
        windows: Arc<Windows>,
        order: Option<LexOrdering>,
    ) -> TimeWindow {
        let fields = input.schema().fields().iter().cloned().collect::<Vec<_>>();
        let fields = fields
            .into_iter()
            .chain((windows.columns.iter()).map(|column| Arc::clone(&column.field)));
        let metadata = input.schema().metadata().clone();
        let schema = Arc::new(Schema::new_with_metadata(
            fields.collect::<Vec<_>>(),
            metadata,
        ));
        let properties = properties(&input, &windows, schema);
        TimeWindow {
            input,
            windows,
            order,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }
}

/// Rows that wait for others leave out of order; without such rows, the order of the input is kept.
fn properties(
    input: &Arc<dyn ExecutionPlan>,
    windows: &Windows,
    schema: SchemaRef,
) -> PlanProperties {
    let mut equivalence = EquivalenceProperties::new(schema);
    if windows.lead().is_none() {
        let orders = input.equivalence_properties().oeq_class().iter().cloned();
        equivalence.add_orderings(orders);
    }
    PlanProperties::new(
        equivalence,
        Partitioning::UnknownPartitioning(1),
        EmissionType::Incremental,
        Boundedness::Bounded,
    )
}

impl DisplayAs for TimeWindow {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = (self.windows.columns.iter())
            .map(|column| column.original.name())
            .collect();
        write!(f, "TimeWindow: {}", names.join(", "))
    }
}

impl ExecutionPlan for TimeWindow {
    fn name(&self) -> &'static str {
        "TimeWindow"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::SinglePartition])
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![self.order.clone().map(OrderingRequirements::from)]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![self.windows.lead().is_none()]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let order = self.order.iter().flatten().map(|key| &key.expr);
        let keys = self.windows.keyings.iter().flatten();
        visit_each(keys.chain(&self.windows.args).chain(order), visit)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let [input] = children.as_slice() else {
            let message = "a window has one input".to_owned();
            return Err(DataFusionError::Internal(message));
        };
        Ok(Arc::new(TimeWindow::new(
            Arc::clone(input),
            Arc::clone(&self.windows),
            self.order.clone(),
        )))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let input = self.input.schema();
        // Other orders are those of several columns; the planner vouches for them.
        let time = match self.order.as_ref().map(|order| order.first()) {
            Some(key) if !key.options.descending && key.options.nulls_first => {
                let kind = key.expr.data_type(&input)?;
                Integers::hold(&kind).then(|| Arc::clone(&key.expr))
            }
            _ => None,
        };
        let run = Run::new(&self.windows, time, &input, self.schema())?;
        let stream = ahead(self.input.execute(partition, Arc::clone(&context))?);
        let memory = MemoryConsumer::new("TimeWindow").register(context.memory_pool());
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let mut builder = RecordBatchReceiverStream::builder(self.schema(), 2);
        let sender = builder.tx();
        builder.spawn(async move {
            let (mut run, mut stream) = (run, stream);
            loop {
                let batch = stream.next().await.transpose()?;
                let is_last = batch.is_none();
                let ready = match batch {
                    Some(batch) if batch.num_rows() == 0 => continue,
                    Some(batch) => run.add(&batch)?,
                    None => run.end()?,
                };
                for batch in ready {
                    metrics.record_output(batch.num_rows());
                    if sender.send(Ok(batch)).await.is_err() {
                        return Ok(());
                    }
                }
                if is_last {
                    return Ok(());
                }
                if memory.try_resize(run.bytes()).is_err() {
                    run.compact()?;
                    memory.try_resize(run.bytes())?;
                }
            }
        });
        Ok(builder.build())
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
