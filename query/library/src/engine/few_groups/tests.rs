//! Queries with the operator and without it.

use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::prelude::SessionContext;

use crate::engine::test_tables::{self, Random, Shape, answer, config, limited, on_runtime};

const BYTES: usize = 64 << 20;

/// A context with three partitions; `is_ours` adds the rule.
fn context(is_ours: bool) -> SessionContext {
    let config = config().with_target_partitions(3);
    if is_ours {
        return test_tables::context(config, limited(BYTES));
    }
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(limited(BYTES))
        .with_default_features()
        .build();
    SessionContext::new_with_state(state)
}

/// The rows equal those of DataFusion's operator.
fn check(shape: Shape, sql: &str) {
    let batches = test_tables::batches(shape, &mut Random(7));
    let ask = |is_ours| {
        let context = context(is_ours);
        test_tables::add(&context, "t", shape, &batches);
        on_runtime(answer(&context, sql))
    };
    let ((expected, _), (found, plan)) = (ask(false), ask(true));
    assert!(plan.contains("FewGroups"), "{sql}\n{plan}");
    assert!(found.len() > 1, "{sql}: {found:?}");
    assert_eq!(found, expected, "{sql}");
}

const SOME: Shape = Shape {
    rows: 3000,
    starts: 100,
    lengths: 20,
    keys: 5,
    is_sorted: false,
};
/// More groups than the operator keeps.
const MANY: Shape = Shape {
    rows: 150_000,
    starts: 1_000_000,
    keys: 100_000,
    ..SOME
};

#[test]
fn groups_of_texts_and_integers() {
    for sql in [
        "SELECT name, count(*), sum(s), min(e), max(e) FROM t GROUP BY name",
        "SELECT k, count(s), avg(s) FROM t GROUP BY k",
        "SELECT name, k, s / 10, count(*) FROM t GROUP BY name, k, s / 10",
        "SELECT k, name, count(DISTINCT s) FROM t GROUP BY k, name",
        "SELECT DISTINCT name, k FROM t",
        "SELECT name, count(*) FILTER (WHERE s > 50), sum(e) FILTER (WHERE k = 1) FROM t GROUP BY name",
        "SELECT 'a text of one value only' AS a, k, max(name) FROM t GROUP BY 1, 2",
        "SELECT substr(name, 1 + id % 3) AS part, count(*) FROM t GROUP BY 1",
    ] {
        check(SOME, sql);
    }
}

#[test]
fn many_groups() {
    for sql in [
        "SELECT id, count(*), sum(s) FROM t GROUP BY id",
        "SELECT k, s % 7, count(*), max(e) FROM t GROUP BY k, s % 7",
        "SELECT name || CAST(id AS VARCHAR) AS text, count(*) FROM t GROUP BY 1",
    ] {
        check(MANY, sql);
    }
}
