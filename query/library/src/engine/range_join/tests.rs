//! Joins compared with those of DataFusion, which compares all pairs.

use std::sync::Arc;

use datafusion::prelude::SessionContext;

use crate::engine;
use crate::engine::test_tables::{
    FEW, Random, Shape, add, answer, batches, config, limited, on_runtime,
};

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

/// Compares all kinds of joins with DataFusion's own.
fn check(shapes: [Shape; 2], seed: u64, memory: Option<usize>) {
    let mut random = Random(seed);
    let tables = shapes.map(|shape| batches(shape, &mut random));
    let plain = SessionContext::new();
    let config = config().with_batch_size(16);
    let env = memory.map_or_else(Default::default, limited);
    let ours = engine::test_tables::context(config, env);
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
    let context = engine::test_tables::context(config(), Arc::clone(&env));
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
    let context = engine::test_tables::context(config(), Default::default());
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
    let context = engine::test_tables::context(config(), Default::default());
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
