//! Traces in a context that its owner configured.

use std::path::{Path, PathBuf};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use datafusion::prelude::{SessionConfig, SessionContext};
use perfquet::Traces;
use perfquet_events::Input;
use perfquet_import::{ImportOptions, import};

/// Imports a sample of the readers into `directory`.
fn imported(directory: &Path, sample: &str) -> PathBuf {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../formats/readers/src");
    let input = Input::open(&golden.join(sample)).unwrap();
    let name = Path::new(sample).file_stem().unwrap();
    let output = directory.join(name).with_extension("pqt");
    import(vec![input], &output, ImportOptions::default()).unwrap();
    output
}

async fn number(context: &SessionContext, sql: &str) -> i64 {
    let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
    batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

#[tokio::test]
async fn views_functions_and_own_tables_are_in_one_context() {
    let directory = tempfile::tempdir().unwrap();
    let trace = imported(directory.path(), "strace/golden/threads.strace");
    // Nothing depends on the names of catalog and schema.
    let config = SessionConfig::new().with_default_catalog_and_schema("mine", "tables");
    let context = SessionContext::new_with_config(config);
    let own = "CREATE TABLE samples AS VALUES (1), (2), (3)";
    context.sql(own).await.unwrap().collect().await.unwrap();
    Traces::open(&[trace]).unwrap().register(&context).unwrap();
    assert_eq!(number(&context, "SELECT count(*) FROM samples").await, 3);
    let calls = number(&context, "SELECT count(*) FROM calls").await;
    assert!(calls > 0);
    assert_eq!(
        number(&context, "SELECT count(*) FROM syscalls").await,
        calls
    );
    let unfinished = "SELECT count(*) FROM calls WHERE duration(duration) IS NULL";
    let none = "SELECT count(*) FROM calls WHERE duration IS NULL";
    assert_eq!(
        number(&context, unfinished).await,
        number(&context, none).await
    );
}

#[tokio::test]
async fn literals_and_asof_joins_are_planned_by_the_library() {
    let directory = tempfile::tempdir().unwrap();
    let trace = imported(directory.path(), "strace/golden/threads.strace");
    let context = SessionContext::new();
    Traces::open(&[trace]).unwrap().register(&context).unwrap();
    let all = number(&context, "SELECT count(*) FROM calls").await;
    for sql in [
        "SELECT count(*) FROM calls WHERE duration < 1000s OR duration IS NULL",
        "SELECT count(*) FROM calls c ASOF JOIN calls d ON c.tid = d.tid AND c.time >= d.time",
    ] {
        let frame = perfquet::plan(&context, sql).await.unwrap();
        let batches = frame.collect().await.unwrap();
        let count = batches[0].column(0).as_primitive::<Int64Type>().value(0);
        assert_eq!(count, all, "{sql}");
    }
    let wrong = perfquet::plan(&context, "SELECT nme FROM calls").await;
    let text = wrong.unwrap_err().to_string();
    assert!(text.starts_with("no column nme in calls"), "{text}");
}

#[tokio::test]
async fn other_traces_replace_those_before() {
    let directory = tempfile::tempdir().unwrap();
    let first = imported(directory.path(), "strace/golden/threads.strace");
    let second = imported(directory.path(), "strace/golden/stacks.strace");
    let context = SessionContext::new();
    let mut counts = Vec::new();
    for paths in [vec![&first], vec![&second], vec![&first, &second]] {
        let traces = Traces::open(&paths).unwrap();
        traces.register(&context).unwrap();
        counts.push(number(&context, "SELECT count(*) FROM calls").await);
    }
    assert!(counts[0] != counts[1]);
    assert_eq!(counts[2], counts[0] + counts[1]);
    let traces = "SELECT count(DISTINCT trace) FROM calls";
    assert_eq!(number(&context, traces).await, 2);
}
