//! Joins compared with those of DataFusion, which compares all pairs.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringViewArray};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::datasource::MemTable;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::physical_plan::collect;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::prelude::{SessionConfig, SessionContext, col};

use crate::engine;

/// Small pseudo-random numbers, the same in every run.
pub(in crate::engine) struct Random(pub(in crate::engine) u64);

impl Random {
    pub(in crate::engine) fn below(&mut self, limit: u64) -> u64 {
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
struct Shape {
    rows: u64,
    /// Starts are below.
    starts: u64,
    /// Lengths are below; some ranges end before they start.
    lengths: u64,
    keys: u64,
    is_sorted: bool,
}

/// Batches with the columns id, s, e, k, name.
fn batches(shape: Shape, random: &mut Random) -> Vec<RecordBatch> {
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

fn add(context: &SessionContext, name: &str, shape: Shape, batches: &[RecordBatch]) {
    let table = MemTable::try_new(batches[0].schema(), vec![batches.to_vec()]).unwrap();
    let table = match shape.is_sorted {
        true => table.with_sort_order(vec![vec![col("s").sort(true, true)]]),
        false => table,
    };
    context.register_table(name, Arc::new(table)).unwrap();
}

/// The rows of an answer as sorted lines, and the plan with its metrics.
async fn answer(context: &SessionContext, sql: &str) -> (Vec<String>, String) {
    let frame = context.sql(sql).await.unwrap();
    let plan = frame.create_physical_plan().await.unwrap();
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
fn config() -> SessionConfig {
    let config = SessionConfig::new().with_target_partitions(1);
    config.with_sort_spill_reservation_bytes(0)
}

fn limited(bytes: usize) -> Arc<RuntimeEnv> {
    let pool = Arc::new(GreedyMemoryPool::new(bytes));
    RuntimeEnvBuilder::new()
        .with_memory_pool(pool)
        .build_arc()
        .unwrap()
}

const CONDITIONS: &[&str] = &[
    "b.s >= a.s AND b.s < a.e",
    "a.s BETWEEN b.s AND b.e",
    "a.s < b.e AND b.s < a.e",
    "a.s <= b.e AND b.s <= a.e",
    "a.s <= b.e AND b.s < a.e AND a.id % 5 <> b.id % 3",
    "b.s >= a.s AND b.s <= a.s + 3",
    "a.e > b.s AND a.s < b.s + 4 AND a.name = b.name",
];

const KEYS: &[&str] = &[
    "",
    " AND a.k = b.k",
    " AND a.k = b.k AND a.name = b.name",
    " AND a.k IS NOT DISTINCT FROM b.k",
];

/// Left and right columns, as far as a kind of join has them.
const KINDS: &[(&str, &str)] = &[
    ("JOIN", "a.id, b.id, a.name, b.e"),
    ("LEFT JOIN", "a.id, b.id, b.name"),
    ("RIGHT JOIN", "a.id, b.id, a.name"),
    ("FULL JOIN", "a.id, b.id, a.e"),
    ("LEFT SEMI JOIN", "a.id, a.name"),
    ("LEFT ANTI JOIN", "a.id, a.s"),
    ("RIGHT SEMI JOIN", "b.id, b.name"),
    ("RIGHT ANTI JOIN", "b.id, b.s"),
];

fn on_runtime<T>(future: impl Future<Output = T>) -> T {
    let builder = &mut tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(future)
}

/// Compares all kinds of joins with DataFusion's own.
fn check(shapes: [Shape; 2], seed: u64, memory: Option<usize>) {
    let mut random = Random(seed);
    let tables = shapes.map(|shape| batches(shape, &mut random));
    let plain = SessionContext::new();
    let config = config().with_batch_size(16);
    let env = memory.map_or_else(Default::default, limited);
    let ours = engine::context(config, env);
    for context in [&plain, &ours] {
        add(context, "a", shapes[0], &tables[0]);
        add(context, "b", shapes[1], &tables[1]);
    }
    let mut spills = 0;
    on_runtime(async {
        for condition in CONDITIONS {
            for keys in KEYS {
                for (kind, columns) in KINDS {
                    let sql = format!("SELECT {columns} FROM a {kind} b ON {condition}{keys}");
                    let (expected, _) = answer(&plain, &sql).await;
                    let (found, plan) = answer(&ours, &sql).await;
                    spills += usize::from(!plan.contains("spill_count=0"));
                    // A few rows are not worth a sort.
                    let is_few = shapes
                        .iter()
                        .any(|shape| shape.rows < 64 && !shape.is_sorted);
                    assert!(is_few || plan.contains("RangeJoin"), "{sql}\n{plan}");
                    assert!(
                        expected == found,
                        "{sql} {shapes:?} {seed}\n{expected:?}\n{found:?}"
                    );
                }
                let sql = format!("SELECT count(*) FROM a JOIN b ON {condition}{keys}");
                let (expected, _) = answer(&plain, &sql).await;
                let (found, _) = answer(&ours, &sql).await;
                assert_eq!(expected, found, "{sql}");
            }
        }
    });
    assert!(
        memory.is_none() || spills > 50,
        "{spills} joins used the disk"
    );
}

const FEW: Shape = Shape {
    rows: 150,
    starts: 100,
    lengths: 20,
    keys: 5,
    is_sorted: true,
};

#[test]
fn rows_are_those_of_datafusion() {
    check([FEW, FEW], 1, None);
    let unsorted = Shape {
        is_sorted: false,
        ..FEW
    };
    check([unsorted, FEW], 2, None);
    // Many equal starts; long ranges; one key.
    let dense = Shape { starts: 7, ..FEW };
    let long = Shape {
        lengths: 1000,
        keys: 1,
        ..FEW
    };
    check([dense, long], 3, None);
    check([long, unsorted], 4, None);
}

#[test]
fn empty_inputs() {
    let empty = Shape { rows: 0, ..FEW };
    check([empty, FEW], 5, None);
    check([FEW, empty], 6, None);
    check([empty, empty], 7, None);
}

#[test]
fn what_does_not_fit_into_memory_goes_to_disk() {
    let long = Shape {
        rows: 400,
        lengths: 300,
        ..FEW
    };
    check([long, FEW], 8, Some(8_000));
    check([FEW, long], 9, Some(8_000));
    check([long, long], 10, Some(8_000));
}

#[test]
fn the_limit_is_kept_and_used() {
    let shape = Shape {
        rows: 20_000,
        starts: 100_000,
        lengths: 100_000,
        keys: 1000,
        is_sorted: true,
    };
    let mut random = Random(11);
    let table = batches(shape, &mut random);
    let env = limited(1 << 18);
    let context = engine::context(config(), Arc::clone(&env));
    add(&context, "a", shape, &table);
    add(&context, "b", shape, &table);
    let sql =
        "SELECT count(*), sum(a.id - b.id) FROM a JOIN b ON a.k = b.k AND a.s < b.e AND b.s < a.e";
    on_runtime(async {
        let (found, plan) = answer(&context, sql).await;
        let join = plan.lines().find(|line| line.contains("RangeJoin"));
        let join = join.unwrap_or_default();
        assert!(!join.contains("spill_count=0"), "{plan}");
        let plain = SessionContext::new();
        add(&plain, "a", shape, &table);
        add(&plain, "b", shape, &table);
        let (expected, _) = answer(&plain, sql).await;
        assert_eq!(found, expected);
    });
    assert!(env.disk_manager.used_disk_space() == 0);
}

#[test]
fn inputs_with_a_false_order_are_an_error() {
    let unsorted = Shape {
        is_sorted: false,
        ..FEW
    };
    let mut random = Random(12);
    let table = batches(unsorted, &mut random);
    let context = engine::context(config(), Default::default());
    add(&context, "a", FEW, &table);
    add(&context, "b", FEW, &table);
    let sql = "SELECT count(*) FROM a JOIN b ON a.s < b.e AND b.s < a.e";
    let error = on_runtime(async {
        let frame = context.sql(sql).await.unwrap();
        frame.collect().await.unwrap_err().to_string()
    });
    assert!(error.contains("not in the order of s"), "{error}");
}

#[test]
fn other_joins_stay_as_they_are() {
    let context = engine::context(config(), Default::default());
    let mut random = Random(13);
    let table = batches(FEW, &mut random);
    add(&context, "a", FEW, &table);
    add(&context, "b", FEW, &table);
    on_runtime(async {
        for sql in [
            "SELECT count(*) FROM a JOIN b ON a.k = b.k",
            "SELECT count(*) FROM a JOIN b ON a.s < b.e",
            "SELECT count(*) FROM a JOIN b ON a.s < b.e AND a.e < b.s",
            "SELECT count(*) FROM a JOIN b ON a.s < b.e AND b.s < a.e + random()",
            "SELECT count(*) FROM a JOIN b ON a.s < b.e OR b.s < a.e",
            "SELECT count(*) FROM a WHERE k NOT IN (SELECT k FROM b)",
        ] {
            let (_, plan) = answer(&context, sql).await;
            assert!(!plan.contains("RangeJoin"), "{sql}\n{plan}");
        }
    });
}
