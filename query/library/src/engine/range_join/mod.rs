//! Joins on conditions over ranges, in one pass over inputs sorted by time.
//!
//! ```text
//! calls c JOIN sched_switch s ON s.cpu = c.cpu AND s.time >= c.time AND s.time < c.time + c.duration
//! RangeJoin: kind=Inner, keys=[(cpu, cpu)], left=[time, time + duration), right=[time, time]
//! ```
//! DataFusion compares all pairs with equal keys: 10^6 calls with 10^5 switches on two CPUs take minutes.

mod condition;
mod overflow;
mod rule;
mod run;
mod spec;
mod spill;
mod sweep;

#[cfg(test)]
mod tests;

pub(super) use rule::rule;

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{JoinSide, JoinType};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, OrderingRequirements, Partitioning, PhysicalExpr,
    PhysicalSortExpr,
};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::joins::utils::{ColumnIndex, build_join_schema};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, SpillMetrics,
};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, InputDistributionRequirements,
    PlanProperties,
};

use super::merge::ahead;
use super::replace::visit_each;
use condition::Condition;
use run::{Closed, Run};
use spec::{Filter, LEFT, RIGHT, Side, SideColumn, Spec};
use sweep::Sweep;

type Keys = Vec<(Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>)>;

/// The join.
#[derive(Debug, Clone)]
pub(super) struct RangeJoin {
    inputs: [Arc<dyn ExecutionPlan>; 2],
    kind: JoinType,
    keys: Keys,
    null_is_key: bool,
    condition: Condition,
    /// The columns of the result among those of the join.
    projection: Vec<usize>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl RangeJoin {
    /// `projection`: the columns of the result among those of the join; `None` for all.
    fn new(
        inputs: [Arc<dyn ExecutionPlan>; 2],
        kind: JoinType,
        keys: Keys,
        null_is_key: bool,
        condition: Condition,
        projection: Option<Vec<usize>>,
    ) -> Result<RangeJoin> {
        let (whole, _) = columns(&inputs, kind);
        let projection = projection.unwrap_or_else(|| (0..whole.fields().len()).collect());
        let schema = Arc::new(whole.project(&projection)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(RangeJoin {
            inputs,
            kind,
            keys,
            null_is_key,
            condition,
            projection,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// The order in which a side is swept.
    fn order(start: &Arc<dyn PhysicalExpr>) -> LexOrdering {
        LexOrdering::from([PhysicalSortExpr::new(
            Arc::clone(start),
            arrow::compute::SortOptions::new(false, true),
        )])
    }

    fn spec(&self, batch_size: usize) -> Result<Spec> {
        let (_, all) = columns(&self.inputs, self.kind);
        let filter = self.condition.rest.as_ref();
        let mut needed: [Vec<usize>; 2] = [Vec::new(), Vec::new()];
        let mut place = |column: &ColumnIndex| -> Result<SideColumn> {
            let side = match column.side {
                JoinSide::Left => LEFT,
                JoinSide::Right => RIGHT,
                JoinSide::None => {
                    let message = "a range join has no column of neither side";
                    return Err(DataFusionError::Internal(message.to_owned()));
                }
            };
            let places = &mut needed[side];
            let known = places.iter().position(|&index| index == column.index);
            Ok((
                side,
                known.unwrap_or_else(|| {
                    places.push(column.index);
                    places.len() - 1
                }),
            ))
        };
        let shown = self.projection.iter().map(|&index| place(&all[index]));
        let output = shown.collect::<Result<Vec<_>>>()?;
        let filter = match filter {
            Some(filter) => Some(Filter {
                expr: Arc::clone(filter.expression()),
                columns: (filter.column_indices().iter())
                    .map(&mut place)
                    .collect::<Result<_>>()?,
                schema: Arc::clone(filter.schema()),
            }),
            None => None,
        };
        let [left, right] = needed;
        let side = |number: usize, needed: Vec<usize>| -> Result<Side> {
            let range = [&self.condition.left, &self.condition.right][number];
            let keys = self.keys.iter();
            Ok(Side {
                start: Arc::clone(&range.start),
                end: Arc::clone(&range.end),
                keys: keys
                    .map(|(left, right)| Arc::clone([left, right][number]))
                    .collect(),
                schema: Arc::new(self.inputs[number].schema().project(&needed)?),
                needed,
            })
        };
        Ok(Spec {
            kind: self.kind,
            sides: [side(LEFT, left)?, side(RIGHT, right)?],
            touching: self.condition.touching,
            null_is_key: self.null_is_key,
            filter,
            output,
            schema: self.schema(),
            // Points swept last among equal times match only earlier rows, so they need not be kept.
            first: match self.condition.left.is_point() {
                true => RIGHT,
                false => LEFT,
            },
            batch_size,
        })
    }
}

/// The columns of the join before its projection.
fn columns(inputs: &[Arc<dyn ExecutionPlan>; 2], kind: JoinType) -> (Schema, Vec<ColumnIndex>) {
    build_join_schema(&inputs[LEFT].schema(), &inputs[RIGHT].schema(), &kind)
}

impl DisplayAs for RangeJoin {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<String> = (self.keys.iter())
            .map(|(left, right)| format!("({left}, {right})"))
            .collect();
        let Condition {
            left,
            right,
            touching,
            rest,
        } = &self.condition;
        let close = |touching: bool| if touching { ']' } else { ')' };
        write!(
            f,
            "RangeJoin: kind={:?}, keys=[{}], left=[{}, {}{}, right=[{}, {}{}",
            self.kind,
            keys.join(", "),
            left.start,
            left.end,
            close(touching[1]),
            right.start,
            right.end,
            close(touching[0]),
        )?;
        match rest {
            Some(rest) => write!(f, ", filter={}", rest.expression()),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for RangeJoin {
    fn name(&self) -> &'static str {
        "RangeJoin"
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
        let order = |start| Some(OrderingRequirements::from(RangeJoin::order(start)));
        vec![
            order(&self.condition.left.start),
            order(&self.condition.right.start),
        ]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let ranges = [&self.condition.left, &self.condition.right];
        let ranges = ranges
            .into_iter()
            .flat_map(|range| [&range.start, &range.end]);
        let keys = self.keys.iter().flat_map(|(left, right)| [left, right]);
        let rest = self.condition.rest.iter().map(|filter| filter.expression());
        visit_each(ranges.chain(keys).chain(rest), visit)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let inputs: Result<[Arc<dyn ExecutionPlan>; 2], _> = children.try_into();
        let inputs =
            inputs.map_err(|_| DataFusionError::Internal("a join has two inputs".to_owned()))?;
        Ok(Arc::new(RangeJoin {
            inputs,
            metrics: ExecutionPlanMetricsSet::new(),
            ..RangeJoin::clone(&self)
        }))
    }

    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExec,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let schema = self.schema();
        let columns: Option<Vec<usize>> = (projection.expr().iter())
            .map(|shown| {
                let column = shown.expr.downcast_ref::<Column>()?;
                let is_renamed = schema.field(column.index()).name() != &shown.alias;
                (!is_renamed).then_some(self.projection[column.index()])
            })
            .collect();
        let Some(columns) = columns else {
            return Ok(None);
        };
        let narrowed = RangeJoin::new(
            self.inputs.clone(),
            self.kind,
            self.keys.clone(),
            self.null_is_key,
            self.condition.clone(),
            Some(columns),
        )?;
        Ok(Some(Arc::new(narrowed)))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let spec = Arc::new(self.spec(context.session_config().batch_size())?);
        let schema: SchemaRef = self.inputs[LEFT].schema();
        let kinds = self.keys.iter().map(|(left, _)| left.data_type(&schema));
        let kinds: Vec<DataType> = kinds.collect::<Result<_>>()?;
        let input = |side: usize| {
            let stream = self.inputs[side].execute(partition, Arc::clone(&context));
            stream.map(ahead)
        };
        let inputs = [input(LEFT)?, input(RIGHT)?];
        let mut builder = RecordBatchReceiverStream::builder(self.schema(), 2);
        let sender = builder.tx();
        let run = Run {
            sweep: Sweep::new(&spec, &kinds)?,
            inputs,
            memory: MemoryConsumer::new("RangeJoin")
                .with_can_spill(true)
                .register(context.memory_pool()),
            env: context.runtime_env(),
            metrics: BaselineMetrics::new(&self.metrics, partition),
            spill_metrics: SpillMetrics::new(&self.metrics, partition),
            send: async move |batch| sender.send(Ok(batch)).await.map_err(|_| Closed),
        };
        builder.spawn(run.run());
        Ok(builder.build())
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
