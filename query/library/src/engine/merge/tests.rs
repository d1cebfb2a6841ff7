//! Merges compared with those of DataFusion.

use super::*;
use arrow::array::{ArrayRef, AsArray, Int64Array, StringViewArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use datafusion::config::ConfigOptions;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::PhysicalSortExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::collect;
use datafusion::physical_plan::expressions::Column;
use datafusion::prelude::SessionContext;

fn batch(times: &[Option<i64>], text: &str) -> RecordBatch {
    let times: ArrayRef = Arc::new(Int64Array::from(times.to_vec()));
    let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values(
        (0..times.len()).map(|row| format!("{text} row {row} of the input")),
    ));
    RecordBatch::try_from_iter_with_nullable([("time", times, true), ("text", texts, false)])
        .unwrap()
}

/// Merges partitions, each a list of batches, by DataFusion and by ours.
fn merged(
    inputs: &[Vec<RecordBatch>],
    fetch: Option<usize>,
    ours: bool,
) -> Result<Vec<RecordBatch>> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("time", DataType::Int64, true),
        Field::new("text", DataType::Utf8View, false),
    ]));
    let order = LexOrdering::from([PhysicalSortExpr::new(
        Arc::new(Column::new("time", 0)),
        arrow::compute::SortOptions::new(false, true),
    )]);
    let source = MemorySourceConfig::try_new(inputs, schema, None)?
        .try_with_sort_information(vec![order.clone()])?;
    let source = DataSourceExec::from_data_source(source);
    let merge = SortPreservingMergeExec::new(order, source)
        .with_fetch(fetch)
        // Otherwise equal rows come in any order.
        .with_round_robin_repartition(false);
    let mut plan: Arc<dyn ExecutionPlan> = Arc::new(merge);
    if ours {
        plan = rule().optimize(plan, &ConfigOptions::default())?;
        assert_eq!(plan.name(), "Merge");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    runtime.block_on(collect(plan, SessionContext::new().task_ctx()))
}

fn check(inputs: &[Vec<RecordBatch>]) {
    for fetch in [None, Some(0), Some(1), Some(7), Some(100_000)] {
        let rows = |batches: Vec<RecordBatch>| {
            batches
                .first()
                .map(|first| concat_batches(&first.schema(), &batches).unwrap())
                .filter(|rows| rows.num_rows() > 0)
        };
        let expected = rows(merged(inputs, fetch, false).unwrap());
        let found = rows(merged(inputs, fetch, true).unwrap());
        assert_eq!(expected, found);
    }
}

#[test]
fn rows_are_those_of_datafusion() {
    let some = |times: &[i64]| times.iter().copied().map(Some).collect::<Vec<_>>();
    check(&[vec![], vec![]]);
    check(&[
        vec![
            batch(&some(&[1, 5, 5, 9]), "a"),
            batch(&[], "a"),
            batch(&some(&[9, 10]), "b"),
        ],
        vec![
            batch(&[None, None, Some(5)], "c"),
            batch(&some(&[5, 6, 20]), "d"),
        ],
        vec![batch(&[None], "e")],
    ]);
    // Long runs and short ones, over the sizes of batches.
    let every = |step: i64, from: i64, count: i64| {
        some(&(0..count).map(|row| from + row * step).collect::<Vec<_>>())
    };
    check(&[
        vec![
            batch(&every(1, 0, 8192), "a"),
            batch(&every(1, 8192, 8192), "b"),
        ],
        vec![batch(&every(1, 16_384, 8192), "c")],
        vec![batch(&every(5000, 1, 4), "d")],
    ]);
    check(&[
        vec![batch(&every(2, 0, 9000), "a")],
        vec![batch(&every(2, 1, 9000), "b")],
        vec![batch(&every(3, 0, 5000), "c")],
    ]);
}

#[test]
fn whole_batches_are_passed_on() {
    let times: Vec<Option<i64>> = (0..8192).map(Some).collect();
    let later: Vec<Option<i64>> = (8192..16_384).map(Some).collect();
    let inputs = [vec![batch(&times, "a")], vec![batch(&later, "b")]];
    let found = merged(&inputs, None, true).unwrap();
    let is_same = |found: &RecordBatch, given: &RecordBatch| {
        let values = |batch: &RecordBatch| {
            batch
                .column(0)
                .as_primitive::<Int64Type>()
                .values()
                .as_ptr()
        };
        values(found) == values(given)
    };
    assert!(is_same(&found[0], &inputs[0][0]) && is_same(&found[1], &inputs[1][0]));
}

#[test]
fn inputs_out_of_order_are_an_error() {
    for unsorted in [
        vec![batch(&[Some(5), Some(4)], "a")],
        vec![batch(&[Some(5), None], "a")],
        vec![batch(&[Some(5)], "a"), batch(&[Some(4)], "a")],
    ] {
        let inputs = [unsorted, vec![batch(&[Some(1)], "b")]];
        let error = merged(&inputs, None, true).unwrap_err().to_string();
        assert!(error.contains("not in the order of time"), "{error}");
    }
}
