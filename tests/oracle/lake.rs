//! Other engines open every table of a lake, also through a file system that is not local, and answer as from the traces.

use std::collections::BTreeMap;
use std::process::Command;

use perfquet_tests::{needs, root};
use perfquet_trace::store::Directory;

use super::several::printed;

const READER: &str = include_str!("lake.py");

/// Engines of lake.py, and what they need.
const ENGINES: [(&str, &[&str]); 5] = [
    ("duckdb", &["DuckDB for Python"]),
    ("remote", &["DuckDB for Python", "fsspec for Python"]),
    ("polars", &["Polars for Python"]),
    ("datafusion", &["DataFusion for Python"]),
    ("chdb", &["chDB for Python"]),
];

/// Inputs, below `formats/readers/src`, and the host of each.
const INPUTS: [(&str, &str); 4] = [
    ("perf_data/golden/user-regs.data", "h001"),
    ("perf_data/golden/mono.data", "h002"),
    ("trace_dat/golden/graph-events.dat", "h001"),
    ("trace_dat/golden/stacktrace.dat", "h002"),
];

/// Adds a trace to a lake.
pub(crate) fn publish(trace: &str, lake: &str, partition: &str) {
    let partition = format!("--partition={partition}");
    let words = [trace, "--to", "lake", "-o", lake, &partition];
    printed("perfquet-convert", &words);
}

#[test]
fn engines_answer_from_a_lake_as_from_the_traces() {
    let folder = tempfile::tempdir().unwrap();
    let lake = folder.path().join("lake").display().to_string();
    let mut rows: BTreeMap<(String, &str), u64> = BTreeMap::new();
    let mut traces = Vec::new();
    for (number, (input, host)) in INPUTS.into_iter().enumerate() {
        let input = root().join("formats/readers/src").join(input);
        let input = input.display().to_string();
        let path = folder.path().join(format!("{number}.pqt"));
        let trace = path.display().to_string();
        printed("perfquet-convert", &[&input, "--no-symbols", "-o", &trace]);
        let partition = format!("date=2026-11-22,host={host}");
        publish(&trace, &lake, &partition);
        let opened = Directory::open(&path).unwrap();
        *rows.entry(("traces".to_owned(), host)).or_default() += 1;
        for (name, table) in opened.tables().filter(|(_, table)| table.rows() > 0) {
            *rows.entry((name.to_owned(), host)).or_default() += table.rows();
        }
        traces.push(trace);
    }
    let rows = rows.iter();
    let mut expected: Vec<String> = rows
        .map(|((table, host), count)| format!("{table} {host} {count}"))
        .collect();
    let ask = |sql: &str| {
        let mut arguments = vec!["sql"];
        arguments.extend(traces.iter().map(String::as_str));
        arguments.extend([sql, "--format", "csv"]);
        let text = printed("perfquet-query", &arguments);
        let mut lines: Vec<String> = text
            .lines()
            .skip(1)
            .map(|line| line.replace(',', " "))
            .collect();
        lines.sort();
        lines
    };
    for (title, sql) in [
        (
            "leaf",
            "SELECT module, count(*) AS n FROM samples JOIN stacks ON stack_id = user_stack \
             JOIN frames ON stacks.frame_id = frames.frame_id GROUP BY module",
        ),
        (
            "kernel",
            "SELECT count(*) AS n FROM mappings WHERE start_address >= 9223372036854775808",
        ),
        ("calls", "SELECT sum(duration) AS n FROM calls"),
        ("wall", "SELECT count(wall_time(time)) AS n FROM samples"),
    ] {
        let answers = ask(sql);
        assert!(!answers.is_empty(), "{title}");
        expected.extend(answers.iter().map(|answer| format!("{title} {answer}")));
    }
    for (engine, needed) in ENGINES {
        if !needs::met(needed) {
            continue;
        }
        let mut command = Command::new("python3");
        let output = command
            .args(["-c", READER, engine, &lake])
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{engine}: {stderr}");
        let found = String::from_utf8(output.stdout).unwrap();
        let found: Vec<&str> = found.lines().map(str::trim_end).collect();
        let expected: Vec<&str> = expected.iter().map(|line| line.trim_end()).collect();
        assert_eq!(found, expected, "{engine}");
    }
}
