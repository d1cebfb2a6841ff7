//! Answers compared with those of a comparison of all rows.

use datafusion::prelude::SessionContext;

use crate::engine::test_tables::{
    FEW, Random, Shape, add, answer, batches, config, limited, on_runtime,
};
use crate::engine::{self, statement};

/// Compares every comparison and kind of join.
fn check(shapes: [Shape; 2], seed: u64) {
    let mut random = Random(seed);
    let tables = shapes.map(|shape| batches(shape, &mut random));
    let plain = SessionContext::new();
    let asof = engine::test_tables::context(config().with_batch_size(16), Default::default());
    for context in [&plain, &asof] {
        add(context, "a", shapes[0], &tables[0]);
        add(context, "b", shapes[1], &tables[1]);
    }
    on_runtime(async {
        for (sign, order) in [(">=", "DESC"), (">", "DESC"), ("<=", "ASC"), ("<", "ASC")] {
            for keys in ["", "a.k = b.k AND ", "a.k = b.k AND a.name = b.name AND "] {
                for (kind, form) in [("JOIN", "ASOF JOIN"), ("LEFT JOIN", "ASOF LEFT JOIN")] {
                    let sql =
                        format!("SELECT a.id, a.name, b.s FROM a {form} b ON {keys}a.s {sign} b.s");
                    let (found, plan) = answer(&asof, &sql).await;
                    assert!(plan.contains("AsOfJoin"), "{plan}");
                    let sql = format!(
                        "SELECT id, name, t FROM (SELECT a.id, a.name, b.s AS t, \
                         row_number() OVER (PARTITION BY a.id ORDER BY b.s {order}) AS place \
                         FROM a {kind} b ON {keys}a.s {sign} b.s) WHERE place = 1"
                    );
                    let (expected, _) = answer(&plain, &sql).await;
                    assert_eq!(found, expected, "{sql} {shapes:?} {seed}");
                }
            }
        }
    });
}

#[test]
fn rows_are_the_nearest() {
    let unsorted = Shape {
        is_sorted: false,
        ..FEW
    };
    let dense = Shape { starts: 7, ..FEW };
    let empty = Shape { rows: 0, ..FEW };
    check([FEW, FEW], 1);
    check([FEW, unsorted], 2);
    check([dense, dense], 3);
    check([empty, FEW], 4);
    check([FEW, empty], 5);
}

#[test]
fn all_forms_are_planned() {
    let context = engine::test_tables::context(config(), Default::default());
    let mut random = Random(6);
    let table = batches(FEW, &mut random);
    add(&context, "a", FEW, &table);
    add(&context, "b", FEW, &table);
    on_runtime(async {
        let on = "SELECT a.id, b.id FROM a ASOF LEFT JOIN b ON a.k = b.k AND a.s >= b.s";
        let (expected, _) = answer(&context, on).await;
        for same in [
            "SELECT a.id, b.id FROM a ASOF LEFT JOIN b USING (k, s)",
            "SELECT a.id, b.id FROM a ASOF JOIN b MATCH_CONDITION (b.s <= a.s) ON b.k = a.k",
            "SELECT a.id, b.id FROM a ASOF JOIN b MATCH_CONDITION (a.s >= b.s) USING (k)",
        ] {
            let (found, _) = answer(&context, same).await;
            assert_eq!(found, expected, "{same}");
        }
        // Columns of USING are those of the left table.
        let (rows, _) = answer(&context, "SELECT * FROM a ASOF JOIN b USING (k, s) LIMIT 1").await;
        // Numbers and names of six words: id, s, e, k, name, and id, e, name.
        assert_eq!(rows[0].split(' ').count(), 4 + 6 + 2 + 6, "{rows:?}");
        // A condition on the right table does not choose among its rows.
        let narrow = "SELECT a.id FROM a ASOF JOIN b ON a.s > b.s WHERE b.id % 2 = 0";
        let wide = "SELECT id FROM (SELECT a.id, b.id AS other FROM a ASOF JOIN b ON a.s > b.s) WHERE other % 2 = 0";
        assert_eq!(
            answer(&context, narrow).await.0,
            answer(&context, wide).await.0
        );
    });
}

#[test]
fn the_result_is_in_the_order_of_the_left_table() {
    let context = engine::test_tables::context(config(), Default::default());
    let mut random = Random(7);
    let table = batches(FEW, &mut random);
    add(&context, "a", FEW, &table);
    add(&context, "b", FEW, &table);
    on_runtime(async {
        let sql = "SELECT a.s, b.id FROM a ASOF JOIN b ON a.s >= b.s ORDER BY a.s NULLS FIRST";
        let (_, plan) = answer(&context, sql).await;
        assert!(!plan.contains("SortExec"), "{plan}");
    });
}

#[test]
fn other_conditions_are_errors() {
    let context = engine::test_tables::context(config(), Default::default());
    let mut random = Random(8);
    let table = batches(FEW, &mut random);
    add(&context, "a", FEW, &table);
    add(&context, "b", FEW, &table);
    on_runtime(async {
        for wrong in [
            "a.k = b.k",
            "a.s >= b.s AND a.e >= b.e",
            "a.s >= b.s OR a.k = b.k",
            "a.s >= b.s AND a.k <> b.k",
            "a.s >= b.s AND a.k = 3",
            "a.s >= 3",
        ] {
            let state = context.state();
            let sql = format!("SELECT 1 FROM a ASOF JOIN b ON {wrong}");
            let plan = state
                .statement_to_plan(statement(&state, &sql).unwrap())
                .await;
            let error = plan.unwrap_err().to_string();
            assert!(error.contains("ASOF JOIN: expected"), "{wrong}: {error}");
        }
    });
}

/// Memory is that of one row for each key.
#[test]
fn many_rows_need_little_memory() {
    let shape = Shape {
        rows: 50_000,
        starts: 1_000_000,
        lengths: 5,
        keys: 50,
        is_sorted: true,
    };
    let mut random = Random(9);
    let table = batches(shape, &mut random);
    let context = engine::test_tables::context(config(), limited(1 << 20));
    add(&context, "a", shape, &table);
    add(&context, "b", shape, &table);
    on_runtime(async {
        let sql = "SELECT count(*), count(b.id) FROM a ASOF LEFT JOIN b ON a.k = b.k AND a.s > b.s";
        let (found, _) = answer(&context, sql).await;
        assert!(found[0].starts_with("50000 "), "{found:?}");
    });
}
