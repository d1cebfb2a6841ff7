//! `flame((SELECT …))`: the rows of a flame graph.
//!
//! ```text
//! SELECT function, depth, self, total FROM flame((SELECT user_stack, kernel_stack, sum(duration) FROM off_cpu GROUP BY 1, 2))
//! ```
//! The last column of the query is the weight; the others are, from the outermost frame inward, IDs of stacks and texts, folded
//! (`main;read`) or a single name. Functions are merged by name and module below equal callers.

mod merge;

use std::fmt;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Statistics;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::provider_as_source;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableType};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties,
};
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, FunctionArg, FunctionArgExpr, ObjectName, TableFactor,
};
use futures::StreamExt;

use super::Function;
use crate::stacks::Forest;
use merge::{Merging, Weight, is_exact};

pub(super) const FUNCTION: Function = Function {
    usage: "flame((query))",
    about: "table of the boxes of a flame graph: flame((SELECT user_stack, sum(duration) FROM off_cpu GROUP BY 1))",
    register: |context, forest| {
        let planner = Arc::new(FlamePlanner {
            forest: Arc::clone(forest),
        });
        // Fails only in states without planners for relations, which are not ours.
        let _ = context.register_relation_planner(planner);
    },
};

const NAME: &str = "flame";

const HINT: &str =
    "hint: for example flame((SELECT user_stack, sum(duration) FROM off_cpu GROUP BY 1))";

#[derive(Debug)]
struct FlamePlanner {
    forest: Arc<Forest>,
}

impl RelationPlanner for FlamePlanner {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let TableFactor::Table {
            name,
            alias,
            args: Some(arguments),
            ..
        } = &relation
        else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        if !is_flame(name) {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        let plan = match arguments.args.as_slice() {
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] => source(argument, context)?,
            _ => return Err(wrong("expected a query in brackets")),
        };
        check(plan.schema().as_arrow())?;
        let table = FlameTable::new(plan, &self.forest);
        let plan = LogicalPlanBuilder::scan(NAME, provider_as_source(Arc::new(table)), None)?;
        let planned = PlannedRelation::new(plan.build()?, alias.clone());
        Ok(RelationPlanning::Planned(Box::new(planned)))
    }
}

fn wrong(message: &str) -> DataFusionError {
    DataFusionError::Plan(format!("{NAME}: {message}\n{HINT}"))
}

fn is_flame(name: &ObjectName) -> bool {
    match name.0.as_slice() {
        [part] => part
            .as_ident()
            .is_some_and(|name| name.value.eq_ignore_ascii_case(NAME)),
        _ => false,
    }
}

/// Plans the stacks and weights.
fn source(argument: &SqlExpr, context: &mut dyn RelationPlannerContext) -> Result<LogicalPlan> {
    match argument {
        SqlExpr::Subquery(query) => context.plan(TableFactor::Derived {
            lateral: false,
            subquery: query.clone(),
            alias: None,
            sample: None,
        }),
        other => Err(wrong(&format!(
            "expected a query in brackets, found {other}"
        ))),
    }
}

/// Rejects queries whose columns are no stacks and a weight.
fn check(schema: &Schema) -> Result<()> {
    let expected = "expected columns of stacks or texts, then a weight";
    let is_text = |kind: &DataType| {
        matches!(
            kind,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
        )
    };
    let is_stack = |kind: &DataType| kind.is_integer() || is_text(kind);
    let Some((weight, stacks)) = schema.fields().split_last() else {
        return Err(wrong(expected));
    };
    let other = stacks.iter().find(|field| !is_stack(field.data_type()));
    match other {
        Some(other) => Err(wrong(&format!(
            "column {} is no stack: {expected}",
            other.name()
        ))),
        None if stacks.is_empty() => Err(wrong(expected)),
        None if !weight.data_type().is_numeric() => Err(wrong(&format!(
            "column {} is no weight: {expected}",
            weight.name()
        ))),
        None => Ok(()),
    }
}

/// Columns of the result.
mod column {
    pub(super) const NODE_ID: usize = 0;
    pub(super) const PARENT_ID: usize = 1;
    pub(super) const DEPTH: usize = 2;
    pub(super) const FUNCTION: usize = 3;
    pub(super) const MODULE: usize = 4;
    pub(super) const SELF: usize = 5;
    pub(super) const TOTAL: usize = 6;
}

#[derive(Debug)]
struct FlameTable {
    plan: LogicalPlan,
    forest: Arc<Forest>,
    schema: SchemaRef,
}

impl FlameTable {
    fn new(plan: LogicalPlan, forest: &Arc<Forest>) -> FlameTable {
        let weight = plan.schema().fields().last();
        let kind = match weight.is_some_and(|weight| is_exact(weight.data_type())) {
            true => DataType::Int64,
            false => DataType::Float64,
        };
        let unit = weight.map(|weight| weight.metadata().clone());
        let unit = unit.unwrap_or_default();
        let weight = |name| Field::new(name, kind.clone(), false).with_metadata(unit.clone());
        let schema = Schema::new(vec![
            Field::new("node_id", DataType::Int32, false),
            Field::new("parent_id", DataType::Int32, false),
            Field::new("depth", DataType::Int32, false),
            Field::new("function", DataType::Utf8, false),
            Field::new("module", DataType::Utf8, true),
            weight("self"),
            weight("total"),
            Field::new("path", DataType::Utf8, false),
        ]);
        FlameTable {
            plan,
            forest: Arc::clone(forest),
            schema: Arc::new(schema),
        }
    }
}

#[async_trait]
impl TableProvider for FlameTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut input = state.create_physical_plan(&self.plan).await?;
        if input.output_partitioning().partition_count() > 1 {
            input = Arc::new(CoalescePartitionsExec::new(input));
        }
        let all = || (0..self.schema.fields().len()).collect();
        let projection = projection.cloned().unwrap_or_else(all);
        let schema = Arc::new(self.schema.project(&projection)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Ok(Arc::new(FlameExec {
            input,
            forest: Arc::clone(&self.forest),
            schema: Arc::clone(&self.schema),
            projection,
            properties: Arc::new(properties),
        }))
    }
}

/// Merges all rows of its input, which is planned already, and not part of the plan around it.
#[derive(Debug)]
struct FlameExec {
    input: Arc<dyn ExecutionPlan>,
    forest: Arc<Forest>,
    schema: SchemaRef,
    projection: Vec<usize>,
    properties: Arc<PlanProperties>,
}

impl DisplayAs for FlameExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlameExec: input={}", self.input.name())
    }
}

impl ExecutionPlan for FlameExec {
    fn name(&self) -> &str {
        "FlameExec"
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

    fn partition_statistics(&self, _: Option<usize>) -> Result<Arc<Statistics>> {
        let schema = self.properties.equivalence_properties().schema();
        Ok(Arc::new(Statistics::new_unknown(schema)))
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let mut rows = self.input.execute(0, Arc::clone(&context))?;
        let memory = MemoryConsumer::new(NAME).register(context.memory_pool());
        let forest = Arc::clone(&self.forest);
        let (fields, projection) = (Arc::clone(&self.schema), self.projection.clone());
        let merged = async move {
            let failed = |error: anyhow::Error| DataFusionError::External(error.into());
            let mut merging = Merging::new(&forest);
            while let Some(batch) = rows.next().await.transpose()? {
                merging.add(&batch).map_err(failed)?;
                memory.try_resize(merging.bytes())?;
            }
            merging.sort();
            boxes(&merging, &fields, &projection)
        };
        let schema = Arc::clone(self.properties.equivalence_properties().schema());
        let stream = futures::stream::once(merged);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }
}

/// The rows of the requested columns.
fn boxes(merging: &Merging<'_>, fields: &SchemaRef, projection: &[usize]) -> Result<RecordBatch> {
    let nodes = &merging.nodes;
    let weights = |weights: Vec<Weight>, kind: &DataType| -> ArrayRef {
        match kind {
            DataType::Int64 => {
                let bounded = |weight: Weight| {
                    let bounds = (i128::from(i64::MIN), i128::from(i64::MAX));
                    weight.integer.clamp(bounds.0, bounds.1) as i64
                };
                Arc::new(Int64Array::from_iter_values(
                    weights.into_iter().map(bounded),
                ))
            }
            _ => {
                let floats = weights.into_iter().map(|weight| weight.float);
                Arc::new(Float64Array::from_iter_values(floats))
            }
        }
    };
    let columns = projection.iter().map(|&number| -> ArrayRef {
        let kind = fields.field(number).data_type();
        match number {
            column::NODE_ID => Arc::new(Int32Array::from_iter_values(
                (1..=nodes.len()).map(|node| node as i32),
            )),
            column::PARENT_ID => Arc::new(Int32Array::from_iter_values(
                nodes.iter().map(|node| node.parent as i32),
            )),
            column::DEPTH => Arc::new(Int32Array::from_iter_values(
                nodes.iter().map(|node| node.depth),
            )),
            column::FUNCTION => Arc::new(StringArray::from_iter_values(
                nodes.iter().map(|node| merging.names(node).0),
            )),
            column::MODULE => Arc::new(StringArray::from_iter(
                nodes.iter().map(|node| merging.names(node).1),
            )),
            column::SELF => weights(nodes.iter().map(|node| node.own).collect(), kind),
            column::TOTAL => weights(merging.totals(), kind),
            _ => Arc::new(StringArray::from_iter_values(
                (0..nodes.len()).map(|place| path(merging, place)),
            )),
        }
    });
    let schema = Arc::new(fields.project(projection)?);
    let options = RecordBatchOptions::new().with_row_count(Some(nodes.len()));
    let columns = columns.collect();
    Ok(RecordBatch::try_new_with_options(
        schema, columns, &options,
    )?)
}

/// `main;read;vfs_read`
fn path(merging: &Merging<'_>, place: usize) -> String {
    let mut names = Vec::new();
    let mut next = Some(place);
    while let Some(node) = next.and_then(|place| merging.nodes.get(place)) {
        names.push(merging.names(node).0);
        next = (node.parent as usize).checked_sub(1);
    }
    names.reverse();
    names.join(";")
}
