//! Other engines open every table of ten traces with the types of docs/files.md, and give the same results for five
//! queries.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use perfquet_tests::{needs, root};
use perfquet_trace::store::{ColumnType, Directory};

use super::several::printed;

const READER: &str = include_str!("engines.py");

/// Inputs of ten kinds, below `formats/readers/src`.
const INPUTS: [&str; 10] = [
    "perf_data/golden/mono.data",
    "perf_data/golden/switch-events.data",
    "perf_data/golden/user-regs.data",
    "perf_data/golden/namespaces.data",
    "ftrace_text/golden/function.trace",
    "ftrace_text/golden/graph.report",
    "ftrace_text/golden/fields.trace",
    "bpftrace/golden/maps.txt",
    "dtrace/golden/distributions.out",
    "folded/golden/dd.folded",
];

/// The questions of engines.py; addresses are unsigned here.
const QUESTIONS: [(&str, &str); 5] = [
    (
        "samples",
        "SELECT comm, count(*) AS n FROM samples GROUP BY comm",
    ),
    (
        "times",
        "SELECT count(time) AS n, min(time) AS first, max(time) AS last FROM samples",
    ),
    (
        "modules",
        "SELECT module, count(*) AS n, max(depth) AS deepest \
         FROM stacks JOIN frames ON stacks.frame_id = frames.frame_id GROUP BY module",
    ),
    (
        "kernel",
        "SELECT count(*) AS n, min(start_address) AS first FROM mappings \
         WHERE start_address >= 9223372036854775808",
    ),
    (
        "calls",
        "SELECT function, count(*) AS n, sum(duration) AS total FROM calls GROUP BY function",
    ),
];

/// A type as engines see it.
fn type_name(kind: ColumnType) -> &'static str {
    match kind {
        ColumnType::Bits => "int64",
        ColumnType::BitsList => "list<int64>",
        kind => kind.as_str(),
    }
}

/// What an engine should print about a trace.
fn expected(number: usize, path: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let trace = Directory::open(path).unwrap();
    for (name, table) in trace.tables().filter(|(_, table)| !table.parts.is_empty()) {
        for column in &table.columns {
            let kind = type_name(column.kind);
            lines.push(format!("{number} {name}.{} {kind}", column.name));
        }
        lines.push(format!("{number} {name} {} rows", table.rows()));
    }
    let path = path.display().to_string();
    for (name, question) in QUESTIONS {
        let text = printed(
            "perfquet-query",
            &["sql", &path, question, "--format", "csv"],
        );
        let mut rows: Vec<String> = text.lines().skip(1).map(|row| answer(name, row)).collect();
        rows.sort();
        lines.push(format!("{number} {name}: {}", rows.join(" ")));
    }
    lines.sort();
    lines
}

/// A row as engines.py prints it, which knows signed addresses only.
fn answer(question: &str, row: &str) -> String {
    let mut text = String::new();
    for (index, cell) in row.split(',').enumerate() {
        let gap = if index > 0 { "|" } else { "" };
        match cell.parse::<u64>() {
            Ok(address) if question == "kernel" => write!(text, "{gap}{}", address as i64),
            _ => write!(text, "{gap}{}", cell.trim_matches('"')),
        }
        .unwrap();
    }
    text
}

fn check(need: &str, module: &str) {
    if !needs::met(&[need]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut all = Vec::new();
    let mut command = Command::new("python3");
    command.args(["-c", READER, module]);
    for (number, input) in INPUTS.iter().enumerate() {
        let input = root().join("formats/readers/src").join(input);
        let trace = folder.path().join(format!("{number}.pqt"));
        let (input, output) = (input.display().to_string(), trace.display().to_string());
        printed("perfquet-convert", &[&input, "--no-symbols", "-o", &output]);
        let lines = expected(number, &trace).into_iter();
        // Spark has no unsigned types, and takes the next larger signed ones.
        all.extend(lines.map(|line| {
            match module {
                "pyspark" => line
                    .replace(" uint8", " int16")
                    .replace(" uint16", " int32"),
                _ => line,
            }
        }));
        command.arg(&trace);
    }
    let output = command.current_dir(folder.path()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{module}: {stderr}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut found: Vec<&str> = text.lines().map(str::trim_end).collect();
    found.sort_unstable();
    let mut all: Vec<&str> = all.iter().map(|line| line.trim_end()).collect();
    all.sort_unstable();
    for (found, expected) in found.iter().zip(&all) {
        assert_eq!(found, expected, "{module}");
    }
    assert_eq!(found.len(), all.len(), "{module}: lines");
}

#[test]
fn duckdb_gives_equal_results() {
    check("DuckDB for Python", "duckdb");
}

#[test]
fn polars_gives_equal_results() {
    check("Polars for Python", "polars");
}

#[test]
fn pandas_gives_equal_results() {
    check("pandas for Python", "pandas");
}

#[test]
fn datafusion_for_python_gives_equal_results() {
    check("DataFusion for Python", "datafusion");
}

#[test]
fn clickhouse_gives_equal_results() {
    check("chDB for Python", "chdb");
}

#[test]
fn spark_gives_equal_results() {
    check("PySpark with a Java runtime", "pyspark");
}
