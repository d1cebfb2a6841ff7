//! A pass as a table: reads its sources in the order of time, one row at a time, and emits rows.
//!
//! ```text
//! sched_switch ──┐
//! sched_waking ──┼─► machine ─► thread_states
//! threads ───────┘
//! ```
//! The sources are merged without copying their rows. Each trace has its own machine, in its own partition. Only the
//! sources, columns and rows needed for the requested columns and rows are read.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::common::spawn_buffered;
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::prelude::SessionConfig;

use super::rows::{Emits, Rows, field};
use super::selection::Selection;
use super::source::{Cursor, Row, Source};
use super::{TRACE, Traces};
use crate::engine::{Leaf, LeafExec};

/// A computation over events in the order of time.
pub(crate) trait Pass: fmt::Debug + Send + Sync {
    /// Name of the table function.
    fn name(&self) -> &'static str;

    /// The emitted columns; `id` is the type of IDs.
    fn columns(&self, id: &DataType) -> Vec<arrow::datatypes::Field>;

    /// Whether rows are emitted in the order of their first column, the time.
    fn is_in_order(&self) -> bool {
        false
    }

    /// Returns the tables to read and the computation, whose rows include all requested ones.
    fn plan(&self, selection: &Selection, tables: &Tables<'_>) -> PassPlan;
}

/// The tables that a pass can read.
pub(crate) struct Tables<'t> {
    pub(crate) catalog: &'t dyn CatalogProvider,
    pub(crate) traces: &'t Arc<Traces>,
}

impl Tables<'_> {
    /// Whether an event, as `system:event`, has a table.
    pub(crate) fn has(&self, event: &str) -> bool {
        let (system, event) = event.split_once(':').unwrap_or((event, ""));
        let schema = self.catalog.schema(system);
        schema.is_some_and(|schema| schema.table_exist(event))
    }

    /// The columns of an event's table.
    pub(crate) fn fields(&self, event: &str) -> Option<SchemaRef> {
        let (system, event) = event.split_once(':').unwrap_or((event, ""));
        let schema = self.catalog.schema(system)?;
        // Opening a table waits for nothing.
        let table = futures::executor::block_on(schema.table(event));
        Some(table.ok().flatten()?.schema())
    }

    /// The events of a system, in order.
    pub(crate) fn events_of(&self, system: &str) -> Vec<String> {
        let schema = self.catalog.schema(system);
        let mut names = schema
            .map(|schema| schema.table_names())
            .unwrap_or_default();
        names.sort();
        names
    }

    /// Whether a system has any event.
    pub(crate) fn has_system(&self, system: &str) -> bool {
        self.catalog.schema(system).is_some()
    }
}

/// The sources of a pass, and its computation.
pub(crate) struct PassPlan {
    pub(crate) sources: Vec<Source>,
    /// Creates the state for one trace.
    pub(crate) machine: Box<dyn Fn() -> Box<dyn Machine> + Send + Sync>,
}

impl PassPlan {
    pub(crate) fn new<M: Machine + 'static>(
        sources: Vec<Source>,
        machine: impl Fn() -> M + Send + Sync + 'static,
    ) -> PassPlan {
        PassPlan {
            sources,
            machine: Box::new(move || Box::new(machine())),
        }
    }
}

/// State of a pass within one trace.
pub(crate) trait Machine: Send {
    /// Takes the next row, which is of the source with that number. Of rows with equal times, those of the first source come first.
    fn row(&mut self, source: usize, row: Row<'_>, rows: &mut Rows) -> Result<()>;

    /// Whether no more rows are needed.
    fn is_done(&self) -> bool {
        false
    }

    /// Called after the last row, and again as long as it returns true.
    fn end(&mut self, rows: &mut Rows) -> Result<bool>;

    /// Size of the state in bytes.
    fn bytes(&self) -> usize;
}

/// A pass as a table.
#[derive(Debug)]
pub(super) struct PassTable {
    pass: Arc<dyn Pass>,
    traces: Arc<Traces>,
    schema: SchemaRef,
}

impl PassTable {
    pub(super) fn new(pass: Arc<dyn Pass>, traces: &Arc<Traces>) -> PassTable {
        let mut fields = pass.columns(&traces.id_type());
        if traces.are_several() {
            fields.push(field(TRACE, Emits::Text, &DataType::Null));
        }
        PassTable {
            pass,
            traces: Arc::clone(traces),
            schema: Arc::new(Schema::new(fields)),
        }
    }
}

#[async_trait]
impl TableProvider for PassTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    /// Filters are inexact: a pass skips what it can, and the query checks its rows.
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| match Selection::knows(filter, &self.schema) {
            true => TableProviderFilterPushDown::Inexact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(support).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(state) = state.as_any().downcast_ref::<SessionState>() else {
            let text = "a pass needs DataFusion's own session state".to_owned();
            return Err(DataFusionError::Internal(text));
        };
        // One partition per source: several would lose its order, which a merge would then have to restore.
        let config: SessionConfig = state.config().clone().with_target_partitions(1);
        let state = SessionStateBuilder::new_from_existing(state.clone())
            .with_config(config)
            .build();
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let projection = projection.unwrap_or(&all).clone();
        let options = &state.config_options().catalog;
        let catalog = state.catalog_list().catalog(&options.default_catalog);
        let catalog = catalog.ok_or_else(|| {
            DataFusionError::Internal("a pass needs the default catalog".to_owned())
        })?;
        let selection = Selection::new(&projection, filters, &self.schema);
        let tables = Tables {
            catalog: catalog.as_ref(),
            traces: &self.traces,
        };
        let plan = self.pass.plan(&selection, &tables);
        let mut partitions = Vec::new();
        for trace in self.traces.each() {
            let mut plans = Vec::with_capacity(plan.sources.len());
            let mut row_count = 0;
            for source in &plan.sources {
                let planned = source.plan(&state, trace).await?;
                let (plan, count) = planned.unzip();
                row_count += count.flatten().unwrap_or_default();
                plans.push(plan);
            }
            partitions.push(TracePlans {
                trace: trace.map(str::to_owned),
                plans,
                row_count,
            });
        }
        let schema = Arc::new(self.schema.project(&projection)?);
        let mut equivalences = EquivalenceProperties::new(schema);
        if self.pass.is_in_order()
            && let Some(time) = projection.iter().position(|&column| column == 0)
        {
            equivalences.add_ordering([PhysicalSortExpr {
                expr: Arc::new(Column::new("time", time)),
                options: SortOptions {
                    descending: false,
                    nulls_first: true,
                },
            }]);
        }
        let count = partitions.len();
        let pass = PassOfTraces {
            name: self.pass.name(),
            plan,
            schema: Arc::clone(&self.schema),
            projection,
            partitions,
        };
        Ok(LeafExec::plan(pass, equivalences, count))
    }
}

/// The sources of one trace; `None` for those that do not exist.
#[derive(Debug, Clone)]
struct TracePlans {
    trace: Option<String>,
    plans: Vec<Option<Arc<dyn ExecutionPlan>>>,
    /// Estimated number of rows in all of them.
    row_count: usize,
}

/// A pass over each trace. Its sources are planned already.
struct PassOfTraces {
    name: &'static str,
    plan: PassPlan,
    schema: SchemaRef,
    projection: Vec<usize>,
    partitions: Vec<TracePlans>,
}

impl fmt::Debug for PassOfTraces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Leaf for PassOfTraces {
    const NAME: &'static str = "PassExec";
    const EMISSION: EmissionType = EmissionType::Incremental;

    fn describe(&self, schema: &SchemaRef, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = Vec::new();
        for (number, source) in self.plan.sources.iter().enumerate() {
            let mut plans = self.partitions.iter().map(|trace| &trace.plans);
            if plans.any(|plans| plans.get(number).is_some_and(Option::is_some)) {
                names.push(source.to_string());
            }
        }
        let columns: Vec<&str> = (schema.fields().iter())
            .map(|field| field.name().as_str())
            .collect();
        write!(
            f,
            "{}, sources=[{}], columns=[{}]",
            self.name,
            names.join(", "),
            columns.join(", ")
        )
    }

    /// Estimates as many rows as events.
    fn row_count(&self, partition: Option<usize>) -> Precision<usize> {
        let partitions = match partition {
            Some(index) => &self.partitions[index..=index],
            None => &self.partitions[..],
        };
        Precision::Inexact(partitions.iter().map(|trace| trace.row_count).sum())
    }

    fn rows(
        &self,
        partition: usize,
        schema: SchemaRef,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let plans = &self.partitions[partition];
        let mut cursors = Vec::with_capacity(plans.plans.len());
        for (source, plan) in self.plan.sources.iter().zip(&plans.plans) {
            let cursor = match plan {
                Some(plan) => {
                    // Decoded in another thread, a batch ahead.
                    let rows = plan.execute(0, Arc::clone(&context))?;
                    Some(Cursor::new(spawn_buffered(rows, 1), source))
                }
                None => None,
            };
            cursors.push(cursor);
        }
        let memory = MemoryConsumer::new(self.name).register(context.memory_pool());
        let run = Run {
            cursors,
            machine: (self.plan.machine)(),
            rows: Rows::new(&self.schema, &self.projection, plans.trace.as_deref())?,
            memory,
            is_done: false,
        };
        let batches = futures::stream::try_unfold(run, |mut run| async move {
            Ok(run.next().await?.map(|batch| (batch, run)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

/// A pass over one trace.
struct Run {
    /// `None` for sources that do not exist.
    cursors: Vec<Option<Cursor>>,
    machine: Box<dyn Machine>,
    rows: Rows,
    memory: MemoryReservation,
    is_done: bool,
}

impl Run {
    /// Returns the next rows; `None` after the last ones.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        while !self.is_done {
            for cursor in self.cursors.iter_mut().flatten() {
                cursor.fill().await?;
            }
            self.memory.try_resize(self.machine.bytes())?;
            if self.machine.is_done() || !self.merge()? {
                let mut has_more = true;
                while has_more && !self.rows.is_full() {
                    has_more = self.machine.end(&mut self.rows)?;
                }
                self.is_done = !has_more;
            }
            if self.rows.is_full() {
                break;
            }
        }
        self.rows.take()
    }

    /// Passes rows in time order to the machine, until a source must be read or the batch is full. Returns false after the
    /// last row.
    fn merge(&mut self) -> Result<bool> {
        // The next row of each source, the first one in front: its time, and the number of the source, which decides among
        // equal times.
        let heads = self.cursors.iter().enumerate();
        let heads = heads.filter_map(|(source, cursor)| Some((cursor.as_ref()?.time()?, source)));
        let mut heads: Vec<(i64, usize)> = heads.collect();
        heads.sort_unstable();
        while let Some(&(_, source)) = heads.first() {
            let limit = heads.get(1).copied();
            let Some(Some(cursor)) = self.cursors.get_mut(source) else {
                return Ok(false);
            };
            while let Some(time) = cursor.time() {
                if limit.is_some_and(|limit| limit < (time, source)) {
                    break;
                }
                self.machine.row(source, cursor.row(time), &mut self.rows)?;
                cursor.advance();
                if self.rows.is_full() {
                    return Ok(true);
                }
            }
            match cursor.time() {
                Some(time) => {
                    let next = (time, source);
                    let mut place = 0;
                    while let Some(&head) = heads.get(place + 1)
                        && head < next
                    {
                        heads[place] = head;
                        place += 1;
                    }
                    heads[place] = next;
                }
                // Its next row may come before those of the others.
                None => return Ok(true),
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::{MemoryPool, UnboundedMemoryPool};

    use super::super::rows::ROWS;
    use super::*;

    /// Emits `count` rows at the end, in pieces of `at_once`.
    struct AtEnd {
        count: usize,
        at_once: usize,
    }

    impl Machine for AtEnd {
        fn row(&mut self, _: usize, _: Row<'_>, _: &mut Rows) -> Result<()> {
            Ok(())
        }

        fn end(&mut self, rows: &mut Rows) -> Result<bool> {
            let piece = self.count.min(self.at_once);
            for _ in 0..piece {
                rows.integer(0, Some(7));
                rows.end_row();
            }
            // Not subtracted: a second call after the last rows would emit them again.
            let has_more = self.count > piece;
            if has_more {
                self.count -= piece;
            }
            Ok(has_more)
        }

        fn bytes(&self) -> usize {
            0
        }
    }

    #[test]
    fn rows_at_the_end_are_emitted_once() {
        let field = field("time", Emits::Int64, &DataType::Int32);
        let schema = Arc::new(Schema::new(vec![field]));
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        for (count, at_once) in [(3, 3), (ROWS, ROWS), (3 * ROWS, 3 * ROWS), (3 * ROWS, 1000)] {
            let mut run = Run {
                cursors: Vec::new(),
                machine: Box::new(AtEnd { count, at_once }),
                rows: Rows::new(&schema, &[0], None).unwrap(),
                memory: MemoryConsumer::new("test").register(&pool),
                is_done: false,
            };
            let mut found = 0;
            while let Some(batch) = futures::executor::block_on(run.next()).unwrap() {
                found += batch.num_rows();
                assert!(found <= count, "{count} in pieces of {at_once}");
            }
            assert_eq!(found, count);
        }
    }
}
