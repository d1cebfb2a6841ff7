//! The state of one partition.

use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{
    AggregateExec, AggregateMode, aggregate_expressions, evaluate_many,
};

use super::groups::Groups;

/// More groups are passed on, so that their memory is bounded.
const MOST_GROUPS: usize = 1 << 16;
/// If fewer than this part of the rows share a group with others, rows are passed on without grouping, as DataFusion does.
const MOST_GROUPS_PER_ROW: f64 = 0.8;

/// Groups and their aggregates.
pub(super) struct Run {
    schema: SchemaRef,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    functions: Vec<Arc<AggregateFunctionExpr>>,
    arguments: Vec<Vec<Arc<dyn PhysicalExpr>>>,
    filters: Vec<Option<Arc<dyn PhysicalExpr>>>,
    accumulators: Vec<Box<dyn GroupsAccumulator>>,
    groups: Groups,
    group_of_row: Vec<usize>,
    /// Rows since the groups were last passed on.
    rows: usize,
    /// Whether rows are passed on without grouping.
    is_through: bool,
    batch_size: usize,
}

impl Run {
    /// `aggregate` is an [`AggregateExec`].
    pub(super) fn new(aggregate: &Arc<dyn ExecutionPlan>, batch_size: usize) -> Result<Run> {
        let Some(aggregate) = aggregate.downcast_ref::<AggregateExec>() else {
            let message = format!("expected an aggregation, found {}", aggregate.name());
            return Err(DataFusionError::Internal(message));
        };
        let keys: Vec<Arc<dyn PhysicalExpr>> = aggregate.group_expr().input_exprs();
        let input = aggregate.input().schema();
        let kinds: Result<Vec<_>> = keys.iter().map(|key| key.data_type(&input)).collect();
        let functions = aggregate.aggr_expr().to_vec();
        let mode = AggregateMode::Partial;
        Ok(Run {
            schema: aggregate.schema(),
            arguments: aggregate_expressions(&functions, &mode, keys.len())?,
            filters: aggregate.filter_expr().to_vec(),
            accumulators: accumulators(&functions)?,
            groups: Groups::new(&kinds?),
            group_of_row: Vec::new(),
            rows: 0,
            is_through: false,
            batch_size,
            keys,
            functions,
        })
    }

    /// Adds rows. Returns what can be passed on.
    pub(super) fn add(&mut self, batch: &RecordBatch) -> Result<Vec<RecordBatch>> {
        let rows = batch.num_rows();
        let keys = (self.keys.iter()).map(|key| key.evaluate(batch)?.into_array(rows));
        let keys: Vec<ArrayRef> = keys.collect::<Result<_>>()?;
        let arguments = evaluate_many(&self.arguments, batch)?;
        let filter = |filter: &Option<Arc<dyn PhysicalExpr>>| -> Result<Option<BooleanArray>> {
            let Some(filter) = filter else {
                return Ok(None);
            };
            let array = filter.evaluate(batch)?.into_array(rows)?;
            Ok(Some(array.as_boolean().clone()))
        };
        let filters: Vec<Option<BooleanArray>> =
            self.filters.iter().map(filter).collect::<Result<_>>()?;
        if self.is_through {
            return self.ungrouped(keys, &arguments, &filters);
        }
        self.groups.number(&keys, &mut self.group_of_row)?;
        let count = self.groups.count();
        for (place, accumulator) in self.accumulators.iter_mut().enumerate() {
            let filter = filters.get(place).and_then(Option::as_ref);
            accumulator.update_batch(&arguments[place], &self.group_of_row, filter, count)?;
        }
        self.rows += rows;
        if count < MOST_GROUPS {
            return Ok(Vec::new());
        }
        self.is_through = count as f64 > MOST_GROUPS_PER_ROW * self.rows as f64;
        self.emit()
    }

    /// Each row as a group.
    fn ungrouped(
        &self,
        keys: Vec<ArrayRef>,
        arguments: &[Vec<ArrayRef>],
        filters: &[Option<BooleanArray>],
    ) -> Result<Vec<RecordBatch>> {
        let mut columns = keys;
        for (place, accumulator) in self.accumulators.iter().enumerate() {
            let filter = filters.get(place).and_then(Option::as_ref);
            columns.extend(accumulator.convert_to_state(&arguments[place], filter)?);
        }
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        Ok(vec![batch])
    }

    /// Returns all groups with their states, and begins anew.
    pub(super) fn emit(&mut self) -> Result<Vec<RecordBatch>> {
        let count = self.groups.count();
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut columns = self.groups.keys()?;
        for accumulator in &mut self.accumulators {
            columns.extend(accumulator.state(EmitTo::All)?);
        }
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        self.accumulators = accumulators(&self.functions)?;
        self.groups.clear();
        self.rows = 0;
        let starts = (0..count).step_by(self.batch_size.max(1));
        let slice = |start: usize| batch.slice(start, self.batch_size.min(count - start));
        Ok(starts.map(slice).collect())
    }

    /// Memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        let accumulators: usize = self.accumulators.iter().map(|each| each.size()).sum();
        let rows = self.group_of_row.capacity() * size_of::<usize>();
        accumulators + self.groups.bytes() + rows
    }
}

fn accumulators(
    functions: &[Arc<AggregateFunctionExpr>],
) -> Result<Vec<Box<dyn GroupsAccumulator>>> {
    let each = functions.iter();
    each.map(|function| function.create_groups_accumulator())
        .collect()
}
