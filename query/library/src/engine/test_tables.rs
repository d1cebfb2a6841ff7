//! Tables with ranges of time for tests of operators: NULLs, equal times, ranges that end before they start.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringViewArray};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::datasource::MemTable;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::physical_plan::collect;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::prelude::{SessionConfig, SessionContext, col};

/// Small pseudo-random numbers, the same in every run.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn or_null(&mut self, value: impl FnOnce(&mut Random) -> i64) -> Option<i64> {
        (self.below(12) > 0).then(|| value(self))
    }
}

/// The kinds of ranges in a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) rows: u64,
    /// Starts are below.
    pub(super) starts: u64,
    /// Lengths are below; some ranges end before they start.
    pub(super) lengths: u64,
    pub(super) keys: u64,
    pub(super) is_sorted: bool,
}

/// Batches with the columns id, s, e, k, name.
pub(super) fn batches(shape: Shape, random: &mut Random) -> Vec<RecordBatch> {
    let mut rows = Vec::new();
    for id in 0..shape.rows {
        let start = random.or_null(|random| random.below(shape.starts) as i64);
        let length = random.or_null(|random| {
            let length = random.below(shape.lengths) as i64;
            if random.below(8) == 0 {
                -length
            } else {
                length
            }
        });
        let key = random.or_null(|random| random.below(shape.keys) as i64);
        let end = start.zip(length).map(|(start, length)| start + length);
        rows.push((id as i64, start, end, key.map(|key| key as i32)));
    }
    if shape.is_sorted {
        rows.sort_by_key(|row| row.1);
    }
    let mut found = Vec::new();
    let mut rest = rows.as_slice();
    loop {
        let (rows, after) = rest.split_at(rest.len().min(random.below(40) as usize));
        let name = |key: Option<i32>| key.map(|key| format!("the name of the key {}", key % 3));
        let columns: [(&str, ArrayRef); 5] = [
            (
                "id",
                Arc::new(Int64Array::from_iter(rows.iter().map(|row| Some(row.0)))),
            ),
            (
                "s",
                Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.1))),
            ),
            (
                "e",
                Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.2))),
            ),
            (
                "k",
                Arc::new(Int32Array::from_iter(rows.iter().map(|row| row.3))),
            ),
            (
                "name",
                Arc::new(StringViewArray::from_iter(
                    rows.iter().map(|row| name(row.3)),
                )),
            ),
        ];
        let columns = columns
            .into_iter()
            .map(|(name, column)| (name, column, true));
        found.push(RecordBatch::try_from_iter_with_nullable(columns).unwrap());
        rest = after;
        if rest.is_empty() {
            return found;
        }
    }
}

pub(super) fn add(context: &SessionContext, name: &str, shape: Shape, batches: &[RecordBatch]) {
    add_sorted(context, name, shape.is_sorted.then_some("s"), batches);
}

/// Adds a table in the order of a column.
pub(super) fn add_sorted(
    context: &SessionContext,
    name: &str,
    column: Option<&str>,
    batches: &[RecordBatch],
) {
    let table = MemTable::try_new(batches[0].schema(), vec![batches.to_vec()]).unwrap();
    let order = column.map(|column| vec![col(column).sort(true, true)]);
    let table = table.with_sort_order(order.into_iter().collect());
    context.register_table(name, Arc::new(table)).unwrap();
}

/// The rows of an answer as sorted lines, and the plan with its metrics.
pub(super) async fn answer(context: &SessionContext, sql: &str) -> (Vec<String>, String) {
    let state = context.state();
    let statement = super::statement(&state, sql).unwrap();
    let plan = state.statement_to_plan(statement).await;
    let plan = plan.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let plan = state.create_physical_plan(&plan).await;
    let plan = plan.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let batches = collect(Arc::clone(&plan), context.task_ctx()).await;
    let shown = DisplayableExecutionPlan::with_metrics(plan.as_ref());
    let plan = shown.indent(false).to_string();
    let batches = batches.unwrap_or_else(|error| panic!("{sql}: {error}\n{plan}"));
    let options = FormatOptions::default().with_null("-");
    let mut lines = Vec::new();
    for batch in &batches {
        let columns: Vec<_> = (batch.columns().iter())
            .map(|column| ArrayFormatter::try_new(column, &options).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            let cells = columns.iter().map(|column| column.value(row).to_string());
            lines.push(cells.collect::<Vec<_>>().join(" "));
        }
    }
    lines.sort();
    (lines, plan)
}

/// One partition: tables in memory lose their order when they are divided.
pub(super) fn config() -> SessionConfig {
    let config = SessionConfig::new().with_target_partitions(1);
    config.with_sort_spill_reservation_bytes(0)
}

pub(super) fn limited(bytes: usize) -> Arc<RuntimeEnv> {
    let pool = Arc::new(GreedyMemoryPool::new(bytes));
    RuntimeEnvBuilder::new()
        .with_memory_pool(pool)
        .build_arc()
        .unwrap()
}

pub(super) fn on_runtime<T>(future: impl Future<Output = T>) -> T {
    let builder = &mut tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(future)
}

pub(super) const FEW: Shape = Shape {
    rows: 150,
    starts: 100,
    lengths: 20,
    keys: 5,
    is_sorted: true,
};

/// A context with our operators.
pub(crate) fn context(config: SessionConfig, runtime: Arc<RuntimeEnv>) -> SessionContext {
    let context = SessionContext::new_with_config_rt(config, runtime);
    super::extend(&context).unwrap();
    context
}
