//! The operator of an ASOF JOIN. Its result is in the order of the left table.

use std::fmt;
use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, OrderingRequirements, Partitioning, PhysicalExpr,
    PhysicalSortExpr,
};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, PlanProperties,
};
use futures::StreamExt;

use super::super::merge::ahead;
use super::super::replace::visit_each;
use super::sweep::{Need, Side, Sweep};
use super::{Direction, Matches};

type Pair = (Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>);

/// The operator.
#[derive(Debug, Clone)]
pub(super) struct AsOfJoin {
    inputs: [Arc<dyn ExecutionPlan>; 2],
    times: Pair,
    keys: Vec<Pair>,
    direction: Direction,
    matches: Matches,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl AsOfJoin {
    pub(super) fn new(
        inputs: [Arc<dyn ExecutionPlan>; 2],
        times: Pair,
        keys: Vec<Pair>,
        direction: Direction,
        matches: Matches,
        schema: SchemaRef,
    ) -> Result<AsOfJoin> {
        let properties = properties(&inputs[0], schema);
        Ok(AsOfJoin {
            inputs,
            times,
            keys,
            direction,
            matches,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    fn order(&self, time: &Arc<dyn PhysicalExpr>) -> OrderingRequirements {
        let options = match self.direction.is_forward {
            true => SortOptions::new(true, false),
            false => SortOptions::new(false, true),
        };
        let order = LexOrdering::from([PhysicalSortExpr::new(Arc::clone(time), options)]);
        OrderingRequirements::from(order)
    }
}

/// The left table's columns come first and its rows keep their order, so its orderings also hold for the result.
fn properties(left: &Arc<dyn ExecutionPlan>, schema: SchemaRef) -> PlanProperties {
    let mut equivalence = EquivalenceProperties::new(schema);
    let orders = left.equivalence_properties().oeq_class().iter().cloned();
    equivalence.add_orderings(orders);
    PlanProperties::new(
        equivalence,
        Partitioning::UnknownPartitioning(1),
        EmissionType::Incremental,
        Boundedness::Bounded,
    )
}

impl DisplayAs for AsOfJoin {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.keys.iter();
        let keys: Vec<String> = keys
            .map(|(left, right)| format!("({left}, {right})"))
            .collect();
        let sign = match (self.direction.is_forward, self.direction.or_equal) {
            (false, true) => ">=",
            (false, false) => ">",
            (true, true) => "<=",
            (true, false) => "<",
        };
        write!(
            f,
            "AsOfJoin: kind={:?}, keys=[{}], {} {sign} {}",
            self.matches.kind(),
            keys.join(", "),
            self.times.0,
            self.times.1
        )
    }
}

impl ExecutionPlan for AsOfJoin {
    fn name(&self) -> &'static str {
        "AsOfJoin"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![
            Distribution::SinglePartition,
            Distribution::SinglePartition,
        ])
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        let (left, right) = &self.times;
        vec![Some(self.order(left)), Some(self.order(right))]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true, false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let pairs = std::iter::once(&self.times).chain(&self.keys);
        visit_each(pairs.flat_map(|(left, right)| [left, right]), visit)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let inputs: Result<[Arc<dyn ExecutionPlan>; 2], _> = children.try_into();
        let inputs =
            inputs.map_err(|_| DataFusionError::Internal("a join has two inputs".to_owned()))?;
        let properties = properties(&inputs[0], self.schema());
        Ok(Arc::new(AsOfJoin {
            inputs,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
            ..AsOfJoin::clone(&self)
        }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let kinds = self.keys.iter();
        let kinds = kinds.map(|(left, _)| left.data_type(&self.inputs[0].schema()));
        let kinds: Vec<DataType> = kinds.collect::<Result<_>>()?;
        let side = |time: &Arc<dyn PhysicalExpr>, number: usize| Side {
            time: Arc::clone(time),
            keys: (self.keys.iter())
                .map(|(left, right)| Arc::clone([left, right][number]))
                .collect(),
        };
        let sweep = Sweep::new(
            [side(&self.times.0, 0), side(&self.times.1, 1)],
            &kinds,
            self.direction,
            self.matches,
            self.schema(),
            self.inputs[1].schema(),
        )?;
        let input = |number: usize| {
            let stream = self.inputs[number].execute(partition, Arc::clone(&context));
            stream.map(ahead)
        };
        let inputs = [input(0)?, input(1)?];
        let memory = MemoryConsumer::new("AsOfJoin").register(context.memory_pool());
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let mut builder = RecordBatchReceiverStream::builder(self.schema(), 2);
        let sender = builder.tx();
        builder.spawn(run(sweep, inputs, memory, metrics, async move |batch| {
            sender.send(Ok(batch)).await.is_ok()
        }));
        Ok(builder.build())
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// Runs the join to its end, or until the consumer stops.
async fn run(
    mut sweep: Sweep,
    [mut left, mut right]: [SendableRecordBatchStream; 2],
    memory: MemoryReservation,
    metrics: BaselineMetrics,
    mut send: impl AsyncFnMut(arrow::array::RecordBatch) -> bool,
) -> Result<()> {
    loop {
        let need = sweep.advance()?;
        for batch in std::mem::take(&mut sweep.ready) {
            metrics.record_output(batch.num_rows());
            if !send(batch).await {
                return Ok(());
            }
        }
        match need {
            Need::Left => match next(&mut left).await? {
                Some(batch) => sweep.take_left(batch)?,
                None => return Ok(()),
            },
            Need::Right => sweep.take_right(next(&mut right).await?)?,
        }
        if memory.try_resize(sweep.bytes()).is_err() {
            sweep.shrink()?;
            memory.try_resize(sweep.bytes())?;
        }
    }
}

/// The next batch that has rows.
async fn next(stream: &mut SendableRecordBatchStream) -> Result<Option<arrow::array::RecordBatch>> {
    while let Some(batch) = stream.next().await.transpose()? {
        if batch.num_rows() > 0 {
            return Ok(Some(batch));
        }
    }
    Ok(None)
}
