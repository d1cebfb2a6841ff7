//! `perfquet-convert --to ddl=duckdb`: in DuckDB, the views have the rows that perfquet-query has. The expected rows are those of
//! `tests/sql`, which perfquet-query is tested with.

use std::path::Path;
use std::process::{Command, Output};

use perfquet_tests::{bin, needs, root};

use super::several::printed;

const READER: &str = include_str!("duckdb.py");

/// Tests of views and functions, whose queries are DuckDB's SQL too, and the number of queries in each.
const TESTS: [(&str, usize); 11] = [
    ("call_tree", 4),
    ("cpu_frequency", 1),
    ("cpu_idle", 1),
    ("distributions", 2),
    ("events", 4),
    ("latest_aggregates", 3),
    ("list_syntax", 6),
    ("pivot", 13),
    ("recorded_events", 2),
    ("subqueries", 12),
    ("trace_times", 2),
];

fn convert(arguments: &[&str]) -> Output {
    let mut command = Command::new(bin("perfquet-convert"));
    command.args(arguments).output().unwrap()
}

/// The statements of a trace, and the lines that say what they create.
fn statements(trace: &str) -> (String, String) {
    let output = convert(&[trace, "--to", "ddl=duckdb"]);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let said = text(output.stderr);
    assert!(output.status.success(), "{said}");
    (text(output.stdout), said)
}

/// Runs the queries of a test in DuckDB; returns their number.
fn run(test: &Path, folder: &Path) -> usize {
    let text = std::fs::read_to_string(test).unwrap();
    let input = text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("# trace: "));
    let input = root().join(input.unwrap()).display().to_string();
    // A name that means something to DuckDB and to SQL.
    let trace = folder.join("it's [1]*.pqt").display().to_string();
    printed(
        "perfquet-convert",
        &[&input, "--no-symbols", "-f", "-o", &trace],
    );
    let file = folder.join("statements.sql");
    std::fs::write(&file, statements(&trace).0).unwrap();
    let mut command = Command::new("python3");
    command.args(["-c", READER]).arg(file).arg(test);
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", test.display());
    String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

#[test]
fn views_have_equal_rows() {
    if !needs::met(&["DuckDB for Python"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, queries) in TESTS {
        let test = root().join("tests/sql").join(name).with_extension("slt");
        assert_eq!(run(&test, folder.path()), queries, "{name}");
    }
}

#[test]
fn views_that_duckdb_lacks_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.pqt").display().to_string();
    let input = root().join("tests/sql/sched.trace").display().to_string();
    printed("perfquet-convert", &[&input, "-o", &trace]);
    let (sql, said) = statements(&trace);
    assert!(
        sql.contains("-- No view off_cpu: follows every thread"),
        "{sql}"
    );
    assert!(
        sql.contains("SELECT * FROM off_cpu' --format parquet > off_cpu.parquet"),
        "{sql}"
    );
    let of_threads = said
        .lines()
        .find(|line| line.contains("follows every thread"));
    for view in ["off_cpu", "thread_states", "runqueue_waits", "wakeups"] {
        assert!(of_threads.unwrap().contains(view), "{said}");
    }
    let unrecorded = said
        .lines()
        .find(|line| line.contains("events not recorded"));
    assert!(unrecorded.unwrap().contains("cpu_idle"), "{said}");
}

#[test]
fn statements_need_a_trace_and_all_of_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.pqt").display().to_string();
    let input = root().join("tests/sql/sched.trace").display().to_string();
    printed("perfquet-convert", &[&input, "-o", &trace]);
    let check = |arguments: &[&str], expected: &str| {
        let output = convert(&[arguments, &["--to", "ddl=duckdb"]].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{arguments:?}"
        );
        assert!(said.contains(expected), "{said}");
    };
    check(&[&trace, "--time", "1s..2s"], "--time cannot be used");
    check(
        &[&trace, "--event", "sched_switch"],
        "--event cannot be used",
    );
    check(&[&trace, "--where", "cpu = 1"], "--where cannot be used");
    check(&[&input], "expected a trace directory");
}
