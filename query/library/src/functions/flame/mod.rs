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
use datafusion::datasource::provider_as_source;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableType};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, FunctionArg, FunctionArgExpr, ObjectName, TableFactor,
};
use futures::StreamExt;

use super::Function;
use crate::engine::{Leaf, LeafExec};
use crate::stacks::{Forest, RowStacks, StackColumns};
use merge::{Nodes, Weight, is_exact};

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

const EXAMPLE: &str = "flame((SELECT user_stack, sum(duration) FROM off_cpu GROUP BY 1))";

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
        StackColumns::check(plan.schema().as_arrow()).map_err(|error| wrong(&error))?;
        let table = FlameTable::new(plan, &self.forest);
        let plan = LogicalPlanBuilder::scan(NAME, provider_as_source(Arc::new(table)), None)?;
        let planned = PlannedRelation::new(plan.build()?, alias.clone());
        Ok(RelationPlanning::Planned(Box::new(planned)))
    }
}

fn wrong(message: &str) -> DataFusionError {
    DataFusionError::Plan(format!("{NAME}: {message}\nhint: for example {EXAMPLE}"))
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
        // Names among arguments have no table here. A table has more columns than stacks and a weight, anyway.
        SqlExpr::Identifier(_) | SqlExpr::CompoundIdentifier(_) => {
            Err(DataFusionError::Plan(format!(
                "{NAME}: expected a query in brackets, found {argument}\nhint: select stacks and a weight: {NAME}((SELECT user_stack, count(*) FROM {argument} GROUP BY 1))"
            )))
        }
        other => Err(wrong(&format!(
            "expected a query in brackets, found {other}"
        ))),
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
        let flame = Flame {
            input,
            forest: Arc::clone(&self.forest),
            fields: Arc::clone(&self.schema),
            projection,
        };
        Ok(LeafExec::plan(flame, EquivalenceProperties::new(schema), 1))
    }
}

/// Merges all rows of its input, which is planned already.
#[derive(Debug)]
struct Flame {
    input: Arc<dyn ExecutionPlan>,
    forest: Arc<Forest>,
    fields: SchemaRef,
    projection: Vec<usize>,
}

impl Leaf for Flame {
    const NAME: &'static str = "FlameExec";
    const EMISSION: EmissionType = EmissionType::Final;

    fn describe(&self, _: &SchemaRef, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "input={}", self.input.name())
    }

    fn rows(
        &self,
        _: usize,
        schema: SchemaRef,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let mut rows = self.input.execute(0, Arc::clone(&context))?;
        let memory = MemoryConsumer::new(NAME).register(context.memory_pool());
        let forest = Arc::clone(&self.forest);
        let (fields, projection) = (Arc::clone(&self.fields), self.projection.clone());
        let merged = async move {
            let failed = |error: anyhow::Error| DataFusionError::External(error.into());
            let mut stacks = RowStacks::new(&forest, Nodes::default());
            while let Some(batch) = rows.next().await.transpose()? {
                merge::add(&mut stacks, &batch).map_err(failed)?;
                memory.try_resize(stacks.bytes() + stacks.boxes.bytes())?;
            }
            stacks.boxes.sort();
            boxes(&stacks.boxes, &fields, &projection)
        };
        let stream = futures::stream::once(merged);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }
}

/// The rows of the requested columns.
fn boxes(nodes: &Nodes, fields: &SchemaRef, projection: &[usize]) -> Result<RecordBatch> {
    let all = &nodes.all;
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
                (1..=all.len()).map(|node| node as i32),
            )),
            column::PARENT_ID => Arc::new(Int32Array::from_iter_values(
                all.iter().map(|node| node.parent as i32),
            )),
            column::DEPTH => Arc::new(Int32Array::from_iter_values(
                all.iter().map(|node| node.depth),
            )),
            column::FUNCTION => Arc::new(StringArray::from_iter_values(
                all.iter().map(|node| nodes.names(node).0),
            )),
            column::MODULE => Arc::new(StringArray::from_iter(
                all.iter().map(|node| nodes.names(node).1),
            )),
            column::SELF => weights(all.iter().map(|node| node.own).collect(), kind),
            column::TOTAL => weights(nodes.totals(), kind),
            _ => Arc::new(StringArray::from_iter_values(
                (0..all.len()).map(|place| path(nodes, place)),
            )),
        }
    });
    let schema = Arc::new(fields.project(projection)?);
    let options = RecordBatchOptions::new().with_row_count(Some(all.len()));
    let columns = columns.collect();
    Ok(RecordBatch::try_new_with_options(
        schema, columns, &options,
    )?)
}

/// `main;read;vfs_read`
fn path(nodes: &Nodes, place: usize) -> String {
    let mut names = Vec::new();
    let mut next = Some(place);
    while let Some(node) = next.and_then(|place| nodes.all.get(place)) {
        names.push(nodes.names(node).0);
        next = (node.parent as usize).checked_sub(1);
    }
    names.reverse();
    names.join(";")
}
