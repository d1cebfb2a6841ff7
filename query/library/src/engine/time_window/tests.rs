//! Windows compared with those of DataFusion.

use datafusion::prelude::SessionContext;

use crate::engine;
use crate::engine::test_tables::{
    FEW, Random, Shape, add_sorted, answer, batches, config, on_runtime,
};

const KEYS: &[&str] = &["k", "name", "k, name", "k % 2"];

/// Functions of this module.
const FUNCTIONS: &[&str] = &[
    "lead(e) OVER (@)",
    "lead(name) OVER (@)",
    "lead(e, 3) OVER (@)",
    "lead(e, 2, -7) OVER (@)",
    "lead(name, 1, 'none') OVER (@)",
    "lead(e, -1) OVER (@)",
    "lag(e) OVER (@)",
    "lag(name, 2) OVER (@)",
    "lag(e, 2, 5) OVER (@ ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
    "lag(CAST(e AS DOUBLE) / 2) OVER (@)",
    "lag(e, -2) OVER (@)",
    "lag(e, 0) OVER (@)",
    "lag(e) IGNORE NULLS OVER (@)",
    "lag(e, 3, 1) IGNORE NULLS OVER (@)",
    "row_number() OVER (@)",
    "first_value(e) OVER (@)",
    "first_value(name) OVER (@ ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
    "first_value(e) OVER (@ ROWS BETWEEN UNBOUNDED PRECEDING AND 3 FOLLOWING)",
    "first_value(e) IGNORE NULLS OVER (@ ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)",
    "last_value(e) IGNORE NULLS OVER (@ ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)",
    "last_value(e) OVER (@ ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)",
    "lead(e) OVER (@), lead(name) OVER (@), lag(e) OVER (@), row_number() OVER (@)",
    "lead(e) OVER (@), lag(e) OVER (PARTITION BY id % 3 ORDER BY id NULLS FIRST), row_number() OVER (PARTITION BY id % 3 ORDER BY id NULLS FIRST)",
    "count(*) OVER (@)",
    "count(e) OVER (@ ROWS UNBOUNDED PRECEDING)",
    "count(name) OVER (@)",
    "min(e) OVER (@), max(e) OVER (@), min(s) OVER (@ ROWS UNBOUNDED PRECEDING)",
    "lag(e) OVER (@), count(e) OVER (@), lead(e) OVER (@)",
    "lead(e) OVER (PARTITION BY k ORDER BY id DESC NULLS LAST)",
    "lag(e, 2, 9) OVER (PARTITION BY k ORDER BY id DESC NULLS LAST)",
];

/// Functions and frames that are left to DataFusion, among them its own sum, which wraps.
const OTHERS: &[&str] = &[
    "lead(e) IGNORE NULLS OVER (@)",
    "lead(e, 100) OVER (@)",
    "lead(e) OVER (@), lead(e, 2) OVER (@)",
    "lead(NULL) OVER (@)",
    "last_value(e) OVER (@)",
    "last_value(e) OVER (@ ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
    "first_value(e) OVER (@ ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
    "first_value(e) OVER (@ ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)",
    "first_value(e) IGNORE NULLS OVER (@)",
    "first_value(e) IGNORE NULLS OVER (@ ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING)",
    "row_number() OVER (PARTITION BY k ORDER BY id DESC NULLS LAST)",
    "lag(e) OVER (PARTITION BY k ORDER BY s, id)",
    "lag(e) OVER (PARTITION BY CAST(k AS DOUBLE) ORDER BY id NULLS FIRST)",
    "sum(e) OVER (@)",
    "max(CAST(e AS DOUBLE)) OVER (@)",
    "count(e) FILTER (WHERE s > 3) OVER (@)",
    "count(e) OVER (@ ROWS BETWEEN 3 PRECEDING AND CURRENT ROW)",
    "count(e) OVER (@ ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING)",
    "count(e) OVER (@ GROUPS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)",
    "count(e) OVER (PARTITION BY k)",
    "count(e) OVER (PARTITION BY k ORDER BY id DESC NULLS LAST)",
    "lag(e) OVER (@), avg(e) OVER (@)",
    "max(name) OVER (@)",
    "nth_value(e, 2) OVER (@)",
];

fn check(shape: Shape, seed: u64, functions: &[&str], is_ours: bool) {
    // In the order of the column id.
    let shape = Shape {
        is_sorted: false,
        ..shape
    };
    let table = batches(shape, &mut Random(seed));
    let plain = SessionContext::new();
    let ours = engine::test_tables::context(config().with_batch_size(16), Default::default());
    for context in [&plain, &ours] {
        add_sorted(context, "a", Some("id"), &table);
    }
    on_runtime(async {
        for keys in KEYS {
            for function in functions {
                let window = format!("PARTITION BY {keys} ORDER BY id NULLS FIRST");
                let sql = format!("SELECT id, {} FROM a", function.replace('@', &window));
                let (expected, _) = answer(&plain, &sql).await;
                let (found, plan) = answer(&ours, &sql).await;
                assert_eq!(plan.contains("TimeWindow"), is_ours, "{sql}\n{plan}");
                assert!(!is_ours || !plan.contains("SortExec"), "{sql}\n{plan}");
                assert!(
                    found == expected,
                    "{sql} {shape:?}\n{found:?}\n{expected:?}"
                );
            }
        }
    });
}

#[test]
fn rows_are_those_of_datafusion() {
    check(FEW, 1, FUNCTIONS, true);
    let long = Shape { rows: 2000, ..FEW };
    check(long, 2, FUNCTIONS, true);
    let many_keys = Shape {
        rows: 2000,
        keys: 1500,
        ..FEW
    };
    check(many_keys, 3, FUNCTIONS, true);
    check(Shape { rows: 0, ..FEW }, 4, FUNCTIONS, true);
    check(FEW, 5, OTHERS, false);
}

/// Rows of the same time, NULL among them, count together in the default frame, also where batches end between them.
#[test]
fn rows_of_the_same_time_count_together() {
    for (seed, starts, keys) in [(9, 40, 3), (10, 4, 2), (11, 1, 1), (12, 5000, 20)] {
        let shape = Shape {
            rows: 3000,
            starts,
            keys,
            is_sorted: true,
            ..FEW
        };
        let table = batches(shape, &mut Random(seed));
        let plain = SessionContext::new();
        let ours = engine::test_tables::context(config().with_batch_size(16), Default::default());
        for context in [&plain, &ours] {
            add_sorted(context, "a", Some("s"), &table);
        }
        on_runtime(async {
            for keys in ["", "PARTITION BY k", "PARTITION BY name, k"] {
                for function in [
                    "count(*) OVER (@)",
                    "count(e) OVER (@), max(e) OVER (@)",
                    "min(e) OVER (@ RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)",
                ] {
                    let window = format!("{keys} ORDER BY s NULLS FIRST");
                    let sql = format!("SELECT id, {} FROM a", function.replace('@', &window));
                    let (expected, _) = answer(&plain, &sql).await;
                    let (found, plan) = answer(&ours, &sql).await;
                    assert!(plan.contains("TimeWindow"), "{sql}\n{plan}");
                    assert!(!plan.contains("SortExec"), "{sql}\n{plan}");
                    assert!(found == expected, "{sql} {shape:?}");
                }
            }
        });
    }
}

#[test]
fn the_order_stays_where_no_row_waits() {
    let shape = Shape {
        is_sorted: false,
        ..FEW
    };
    let table = batches(shape, &mut Random(6));
    let context = engine::test_tables::context(config(), Default::default());
    add_sorted(&context, "a", Some("id"), &table);
    on_runtime(async {
        let over = "OVER (PARTITION BY k ORDER BY id NULLS FIRST)";
        for (function, is_sorted) in [
            ("lag(e)", false),
            ("row_number()", false),
            ("lead(e)", true),
        ] {
            let sql = format!("SELECT id, {function} {over} FROM a ORDER BY id NULLS FIRST");
            let (_, plan) = answer(&context, &sql).await;
            assert_eq!(plan.contains("SortExec"), is_sorted, "{plan}");
        }
    });
}

#[test]
fn windows_over_windows() {
    let shape = Shape {
        is_sorted: false,
        ..FEW
    };
    let table = batches(shape, &mut Random(7));
    let plain = SessionContext::new();
    let ours = engine::test_tables::context(config().with_batch_size(16), Default::default());
    for context in [&plain, &ours] {
        add_sorted(context, "a", Some("id"), &table);
    }
    let over = "OVER (PARTITION BY k ORDER BY id NULLS FIRST)";
    on_runtime(async {
        for sql in [
            format!("SELECT id, lag(n) {over} FROM (SELECT *, row_number() {over} AS n FROM a)"),
            format!("SELECT id, lead(n) {over} FROM (SELECT *, lag(e) {over} AS n FROM a)"),
            format!(
                "SELECT k, count(*), sum(n) FROM (SELECT k, lead(e) {over} - e AS n FROM a) GROUP BY k"
            ),
            format!("SELECT id FROM (SELECT id, row_number() {over} AS n FROM a) WHERE n = 1"),
            format!(
                "SELECT id, n FROM (SELECT id, e, lead(e) {over} AS n FROM a) WHERE n > e LIMIT 1000"
            ),
        ] {
            let (expected, _) = answer(&plain, &sql).await;
            let (found, _) = answer(&ours, &sql).await;
            assert_eq!(found, expected, "{sql}");
        }
    });
}

#[test]
fn a_false_order_is_an_error() {
    let table = batches(
        Shape {
            is_sorted: false,
            ..FEW
        },
        &mut Random(8),
    );
    let context = engine::test_tables::context(config(), Default::default());
    add_sorted(&context, "a", Some("s"), &table);
    let sql = "SELECT lag(e) OVER (PARTITION BY k ORDER BY s NULLS FIRST) FROM a";
    let error = on_runtime(async {
        let frame = context.sql(sql).await.unwrap();
        frame.collect().await.unwrap_err().to_string()
    });
    assert!(error.contains("not in the order of s"), "{error}");
}
