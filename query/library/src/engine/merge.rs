//! Merges inputs sorted by one number, usually `time`: overlapping parts, several traces, UNION ALL.
//!
//! ```text
//! input 1   10 20 30 40 50 60      output   10 20 30 | 35 | 40 50 60
//! input 2            35
//! ```
//! DataFusion's merge copies every row. Inputs of a trace rarely alternate, so this merge returns slices of its inputs and
//! copies only short ones. Unsorted input is an error, since operators above would return wrong results for it.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::{concat_batches, interleave_record_batch};
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{LexOrdering, PhysicalExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, PlanProperties,
};
use futures::StreamExt;

use super::integers::Integers;
use super::replace::Replace;

/// Replaces DataFusion's merge where rows are ordered by one number.
pub(super) fn rule() -> Replace<Merge> {
    Replace {
        name: "merge_by_one_number",
        instead_of: Merge::instead_of,
    }
}

/// The merge of the partitions of one input.
#[derive(Debug, Clone)]
pub(super) struct Merge {
    input: Arc<dyn ExecutionPlan>,
    /// One number, ascending, NULL first.
    order: LexOrdering,
    fetch: Option<usize>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl Merge {
    fn instead_of(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Merge>> {
        let Some(merge) = plan.downcast_ref::<SortPreservingMergeExec>() else {
            return Ok(None);
        };
        let input = merge.input();
        let [key] = merge.expr().as_ref() else {
            return Ok(None);
        };
        let fits = !key.options.descending
            && key.options.nulls_first
            && Integers::hold(&key.expr.data_type(&input.schema())?)
            // Computed once more, random() has other values.
            && !is_volatile(&key.expr)
            && input.output_partitioning().partition_count() > 1;
        Ok(fits.then(|| Merge {
            input: Arc::clone(input),
            order: merge.expr().clone(),
            fetch: merge.fetch(),
            properties: Arc::clone(merge.properties()),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }
}

impl DisplayAs for Merge {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Merge: [{}]", self.order)?;
        match self.fetch {
            Some(rows) => write!(f, ", fetch={rows}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for Merge {
    fn name(&self) -> &'static str {
        "Merge"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::UnspecifiedDistribution])
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        visit(&self.order.first().expr)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let [input] = children.as_slice() else {
            return Err(DataFusionError::Internal(
                "a merge has one input".to_owned(),
            ));
        };
        Ok(Arc::new(Merge {
            input: Arc::clone(input),
            metrics: ExecutionPlanMetricsSet::new(),
            ..Merge::clone(&self)
        }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let count = self.input.output_partitioning().partition_count();
        let inputs: Result<Vec<Input>> = (0..count)
            .map(|number| {
                let stream = self.input.execute(number, Arc::clone(&context))?;
                Ok(Input::new(ahead(stream)))
            })
            .collect();
        let merging = Merging {
            schema: self.schema(),
            inputs: inputs?,
            has_begun: false,
            key: Arc::clone(&self.order.first().expr),
            batch_size: context.session_config().batch_size(),
            pending: Pending::default(),
            wanted: self.fetch,
            metrics: BaselineMetrics::new(&self.metrics, partition),
        };
        let batches = futures::stream::try_unfold(merging, |mut merging| async move {
            let batch = merging.next().await?;
            Ok(batch.map(|batch| (batch, merging)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            batches,
        )))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// Runs a stream in a separate task, some batches ahead of its reader.
pub(super) fn ahead(mut stream: SendableRecordBatchStream) -> SendableRecordBatchStream {
    let mut builder = RecordBatchReceiverStream::builder(stream.schema(), 2);
    let sender = builder.tx();
    builder.spawn(async move {
        while let Some(batch) = stream.next().await {
            // The reader is gone, so nobody needs the rest.
            if sender.send(batch).await.is_err() {
                break;
            }
        }
        Ok(())
    });
    builder.build()
}

/// The error for rows that violate the order declared by their plan.
pub(super) fn out_of_order(key: &Arc<dyn PhysicalExpr>) -> DataFusionError {
    DataFusionError::Execution(format!(
        "rows are not in the order of {key}, which the trace declares\nhint: import the trace again"
    ))
}

/// One input and its current batch.
struct Input {
    stream: SendableRecordBatchStream,
    batch: Option<(RecordBatch, Integers)>,
    /// Number of NULLs at the beginning of the batch.
    nulls: usize,
    row: usize,
    /// Index of the batch among the pending ones.
    slot: Option<usize>,
    last: Option<Key>,
}

/// A value; NULL comes first.
type Key = Option<i64>;

impl Input {
    fn new(stream: SendableRecordBatchStream) -> Input {
        Input {
            stream,
            batch: None,
            nulls: 0,
            row: 0,
            slot: None,
            last: None,
        }
    }

    /// Reads the next batch that has rows.
    async fn advance(&mut self, key: &Arc<dyn PhysicalExpr>) -> Result<()> {
        (self.batch, self.row, self.slot) = (None, 0, None);
        while let Some(batch) = self.stream.next().await.transpose()? {
            if batch.num_rows() == 0 {
                continue;
            }
            let values = key.evaluate(&batch)?.into_array(batch.num_rows())?;
            let keys = Integers::of(&values)?;
            self.nulls = keys.leading_nulls().ok_or_else(|| out_of_order(key))?;
            let last = batch.num_rows() - 1;
            self.batch = Some((batch, keys));
            if self.last.is_some_and(|last| last > self.key(0)) {
                return Err(out_of_order(key));
            }
            self.last = Some(self.key(last));
            break;
        }
        Ok(())
    }

    fn is_used_up(&self) -> bool {
        let rows = self.batch.as_ref().map(|(batch, _)| batch.num_rows());
        rows.is_some_and(|rows| self.row >= rows)
    }

    fn key(&self, row: usize) -> Key {
        let (_, keys) = self.batch.as_ref()?;
        (row >= self.nulls).then(|| keys.values[row])
    }

    /// The first row, from the current one on, that comes after `limit`.
    fn end(&self, limit: Option<(Key, bool)>) -> usize {
        let Some((_, keys)) = &self.batch else {
            return self.row;
        };
        let Some((limit, equal_too)) = limit else {
            return keys.len();
        };
        let is_before = |row: usize| {
            let key = (row >= self.nulls).then(|| keys.values[row]);
            key < limit || (equal_too && key == limit)
        };
        // Exponential search: inputs usually alternate after a few rows or not at all.
        let (mut low, mut step) = (self.row, 1);
        while low + step < keys.len() && is_before(low + step) {
            low += step;
            step *= 2;
        }
        let mut high = (low + step).min(keys.len());
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            match is_before(middle) {
                true => low = middle,
                false => high = middle,
            }
        }
        high
    }
}

/// Runs of rows for the next batch.
#[derive(Default)]
struct Pending {
    batches: Vec<RecordBatch>,
    /// Index of the batch, first row, number of rows.
    runs: Vec<(usize, usize, usize)>,
    rows: usize,
}

impl Pending {
    /// Runs that are shorter on average are copied row by row; longer ones are sliced.
    const SHORT: usize = 16;

    fn add(&mut self, batch: usize, first: usize, rows: usize) {
        self.rows += rows;
        match self.runs.last_mut() {
            Some(last) if last.0 == batch && last.1 + last.2 == first => last.2 += rows,
            _ => self.runs.push((batch, first, rows)),
        }
    }

    fn take(&mut self, schema: &SchemaRef) -> Result<RecordBatch> {
        let pending = std::mem::take(self);
        let slice = |&(batch, first, rows): &(usize, usize, usize)| {
            pending.batches[batch].slice(first, rows)
        };
        if let [only] = pending.runs.as_slice() {
            return Ok(slice(only));
        }
        if pending.rows / pending.runs.len().max(1) >= Pending::SHORT {
            let slices: Vec<RecordBatch> = pending.runs.iter().map(slice).collect();
            return Ok(concat_batches(schema, &slices)?);
        }
        let mut places = Vec::with_capacity(pending.rows);
        for &(batch, first, rows) in &pending.runs {
            places.extend((first..first + rows).map(|row| (batch, row)));
        }
        let batches: Vec<&RecordBatch> = pending.batches.iter().collect();
        Ok(interleave_record_batch(&batches, &places)?)
    }
}

/// The state of the merge.
struct Merging {
    schema: SchemaRef,
    inputs: Vec<Input>,
    has_begun: bool,
    key: Arc<dyn PhysicalExpr>,
    batch_size: usize,
    pending: Pending,
    /// Number of rows still wanted; `None` without a limit.
    wanted: Option<usize>,
    metrics: BaselineMetrics,
}

impl Merging {
    /// The next batch; `None` after the last row.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        if !self.has_begun {
            self.has_begun = true;
            for input in &mut self.inputs {
                input.advance(&self.key).await?;
            }
        }
        while self.wanted != Some(0) {
            let Some((first, limit)) = self.first() else {
                break;
            };
            let input = &mut self.inputs[first];
            let end = input.end(limit);
            let rows = end - input.row;
            // Return a run that does not fit as its own batch, so that whole input batches are not copied.
            if self.pending.rows > 0 && self.pending.rows + rows > self.batch_size {
                return self.taken();
            }
            let batch = match input.slot {
                Some(slot) => slot,
                None => {
                    let (batch, _) = input.batch.as_ref().expect("the first input has a batch");
                    self.pending.batches.push(batch.clone());
                    self.pending.batches.len() - 1
                }
            };
            input.slot = Some(batch);
            self.pending.add(batch, input.row, rows);
            input.row = end;
            if input.is_used_up() {
                input.advance(&self.key).await?;
            }
            let is_enough = self
                .wanted
                .is_some_and(|wanted| self.pending.rows >= wanted);
            if self.pending.rows >= self.batch_size || is_enough {
                return self.taken();
            }
        }
        match self.pending.rows {
            0 => Ok(None),
            _ => self.taken(),
        }
    }

    /// The input with the first row, and how far it goes: up to the first row of another one, whose equal rows come
    /// first if it has the lower number.
    fn first(&self) -> Option<(usize, Option<(Key, bool)>)> {
        let heads = self.inputs.iter().enumerate();
        let heads = heads.filter(|(_, input)| input.batch.is_some());
        let mut first: Option<(Key, usize)> = None;
        let mut second: Option<(Key, usize)> = None;
        for (number, input) in heads {
            let head = Some((input.key(input.row), number));
            if first.is_none() || head < first {
                second = first;
                first = head;
            } else if second.is_none() || head < second {
                second = head;
            }
        }
        let (_, number) = first?;
        Some((number, second.map(|(key, other)| (key, number < other))))
    }

    fn taken(&mut self) -> Result<Option<RecordBatch>> {
        let mut batch = self.pending.take(&self.schema)?;
        for input in &mut self.inputs {
            input.slot = None;
        }
        if let Some(wanted) = &mut self.wanted {
            batch = batch.slice(0, batch.num_rows().min(*wanted));
            *wanted -= batch.num_rows();
        }
        self.metrics.record_output(batch.num_rows());
        Ok(Some(batch))
    }
}

#[cfg(test)]
mod tests;
