//! `perfquet-convert --to ddl=…`: other engines open every table of a lake and of a trace by its statements, also through a file system
//! that is not local, and answer as perfquet-query from the traces.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use perfquet_tests::{bin, needs, root};
use perfquet_trace::store::Directory;

use super::several::printed;

const READER: &str = include_str!("lake.py");

/// Engines of lake.py, the statements that they run, and what they need.
const ENGINES: [(&str, &str, &[&str]); 7] = [
    ("duckdb", "duckdb", &["DuckDB for Python"]),
    (
        "remote",
        "duckdb",
        &["DuckDB for Python", "fsspec for Python"],
    ),
    ("polars", "polars", &["Polars for Python"]),
    ("datafusion", "datafusion", &["DataFusion for Python"]),
    ("chdb", "clickhouse", &["chDB for Python"]),
    ("spark", "spark", &["PySpark with a Java runtime"]),
    (
        "delta",
        "delta",
        &["Polars for Python", "deltalake for Python"],
    ),
];

/// Inputs, below `formats/readers/src`, and the host of each: engines would take the first for a number.
const INPUTS: [(&str, &str); 4] = [
    ("perf_data/golden/user-regs.data", "001"),
    ("perf_data/golden/mono.data", "h 2=`'\"%"),
    ("trace_dat/golden/graph-events.dat", "001"),
    ("trace_dat/golden/stacktrace.dat", "h 2=`'\"%"),
];

/// Questions with the same SQL in every engine, as in lake.py, the tables that they need, and perfquet-query's SQL.
const QUESTIONS: [(&str, &[&str], &str); 7] = [
    (
        "leaf",
        &["samples", "stacks", "frames"],
        "SELECT module, count(*) AS n FROM samples JOIN stacks ON stack_id = user_stack \
         JOIN frames ON stacks.frame_id = frames.frame_id GROUP BY module",
    ),
    (
        "comm",
        &["samples"],
        "SELECT comm, count(*) AS n FROM samples GROUP BY comm",
    ),
    ("calls", &["calls"], "SELECT sum(duration) AS n FROM calls"),
    (
        "slow",
        &["calls"],
        "SELECT count(*) AS n FROM calls WHERE duration > 20000",
    ),
    (
        "switches",
        &["sched_switch"],
        "SELECT prev_comm, count(*) AS n FROM sched_switch GROUP BY prev_comm",
    ),
    (
        "kernel",
        &["mappings"],
        "SELECT count(*) AS n FROM mappings WHERE start_address >= 9223372036854775808",
    ),
    (
        "wall",
        &["samples"],
        "SELECT count(wall_time(time)) AS n FROM samples",
    ),
];
/// The engines in which lake.py asks this.
const HIGHEST: (&str, &str) = (
    "duckdb remote chdb spark datafusion",
    "SELECT address(max(start_address)) FROM mappings",
);

/// Adds a trace to a lake.
pub(crate) fn publish(trace: &str, lake: &str, partition: &str) {
    let partition = format!("--partition={partition}");
    let words = [trace, "--to", "lake", "-o", lake, &partition];
    printed("perfquet-convert", &words);
}

/// Rows that perfquet-query prints, with tabs.
fn answers(traces: &[String], sql: &str) -> Vec<String> {
    let mut arguments = vec!["sql"];
    arguments.extend(traces.iter().map(String::as_str));
    arguments.extend([sql, "--format", "csv"]);
    let text = printed("perfquet-query", &arguments);
    let mut lines: Vec<String> = text
        .lines()
        .skip(1)
        .map(|line| line.replace(',', "\t"))
        .collect();
    lines.sort();
    lines
}

/// Answers of an engine, with the statements of a lake or of a trace.
fn answers_of(
    engine: &str,
    dialect: &str,
    (path, kind): (&Path, &str),
    tables: &[String],
) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("statements");
    let input = match kind {
        "lake" => format!("lake:{}", path.display()),
        _ => path.display().to_string(),
    };
    let statements = printed(
        "perfquet-convert",
        &[&input, "--to", &format!("ddl={dialect}")],
    );
    std::fs::write(&file, statements).unwrap();
    let mut command = Command::new("python3");
    command
        .current_dir(folder.path())
        .args(["-c", READER, engine])
        .arg(&file)
        .arg(path)
        .arg(kind)
        .args(tables);
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{engine}: {stderr}");
    let found = String::from_utf8(output.stdout).unwrap();
    found
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

/// `sched_switch=events/sched/sched_switch`
fn named(table: &str) -> String {
    let name = table.rsplit('/').next().unwrap_or(table);
    format!("{name}={table}")
}

fn expected_answers(traces: &[String], tables: &[String], kind: &str) -> Vec<String> {
    let has = |table: &&str| {
        tables
            .iter()
            .any(|known| known.starts_with(&format!("{table}=")))
    };
    let mut expected = Vec::new();
    for (title, needed, sql) in QUESTIONS {
        if !needed.iter().all(has) || (title == "wall" && kind == "trace") {
            continue;
        }
        let answers = answers(traces, sql);
        assert!(!answers.is_empty(), "{title}");
        expected.extend(answers.iter().map(|answer| format!("{title}\t{answer}")));
    }
    expected
        .iter()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

fn highest(traces: &[String], engine: &str, tables: &[String]) -> Option<String> {
    let (engines, sql) = HIGHEST;
    let is_asked = engines.split(' ').any(|asked| asked == engine);
    let has_mappings = tables.iter().any(|table| table == "mappings=mappings");
    (is_asked && has_mappings).then(|| format!("highest\t{}", answers(traces, sql)[0]))
}

fn import(input: &str, trace: &Path) -> String {
    let input = root().join("formats/readers/src").join(input);
    let trace = trace.display().to_string();
    let input = input.display().to_string();
    printed("perfquet-convert", &[&input, "--no-symbols", "-o", &trace]);
    trace
}

/// A directory whose name means something to SQL, patterns, shells and Python.
fn hostile(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("it's \"{name}\" `[1]` é$(x)"))
}

#[test]
fn engines_answer_from_a_lake_as_from_the_traces() {
    let folder = tempfile::tempdir().unwrap();
    let path = hostile(folder.path(), "lake");
    let lake = path.display().to_string();
    let mut rows: BTreeMap<(String, &str), u64> = BTreeMap::new();
    let mut traces = Vec::new();
    for (number, (input, host)) in INPUTS.into_iter().enumerate() {
        let path = folder.path().join(format!("{number}.pqt"));
        let trace = import(input, &path);
        let partition = format!("date=2026-11-22,host={host}");
        publish(&trace, &lake, &partition);
        let opened = Directory::open(&path).unwrap();
        *rows.entry(("traces".to_owned(), host)).or_default() += 1;
        for (name, table) in opened.tables().filter(|(_, table)| table.rows() > 0) {
            *rows.entry((name.to_owned(), host)).or_default() += table.rows();
        }
        traces.push(trace);
    }
    let mut tables: Vec<String> = rows.keys().map(|(table, _)| named(table)).collect();
    tables.dedup();
    let rows = rows.iter();
    let mut expected: Vec<String> = rows
        .map(|((table, host), count)| format!("{table}\t{host}\t{count}"))
        .collect();
    expected.extend(expected_answers(&traces, &tables, "lake"));
    for (engine, dialect, needed) in ENGINES {
        if engine != "delta" && needs::met(needed) {
            let mut expected = expected.clone();
            expected.extend(highest(&traces, engine, &tables));
            let found = answers_of(engine, dialect, (&path, "lake"), &tables);
            assert_eq!(found, expected, "{engine}");
        }
    }
}

/// The percentile of the statements' comment, in all calls of two hosts.
const P99: &str = "SELECT function, min(duration) AS p99 FROM ( \
     SELECT function, duration, sum(calls) OVER (PARTITION BY function ORDER BY duration) AS so_far, sum(calls) OVER (PARTITION BY function) AS in_all \
     FROM (SELECT function, duration, sum(calls) AS calls FROM summary_durations WHERE duration IS NOT NULL GROUP BY function, duration) AS bars \
     ) AS counted WHERE so_far >= 0.99 * in_all GROUP BY function";

#[test]
fn percentiles_of_summaries_are_equal_in_every_engine_and_near_the_exact_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lake");
    let lake = path.display().to_string();
    let mut traces = Vec::new();
    for (number, (input, host)) in [(INPUTS[2].0, "001"), (INPUTS[3].0, "h002")]
        .into_iter()
        .enumerate()
    {
        let trace = import(input, &folder.path().join(format!("{number}.pqt")));
        let partition = format!("--partition=date=2026-11-22,host={host}");
        let words = [
            &trace,
            "--to",
            "lake",
            "-o",
            &lake,
            "--summaries",
            &partition,
        ];
        printed("perfquet-convert", &words);
        traces.push(trace);
    }
    let opened = [format!("lake:{lake}")];
    let found = answers(&opened, P99);
    let exact = answers(
        &traces,
        "SELECT function, quantile(duration, 0.99) FROM calls WHERE duration IS NOT NULL GROUP BY function",
    );
    assert_eq!(found.len(), exact.len());
    assert!(found.len() > 10, "{found:?}");
    for (found, exact) in found.iter().zip(&exact) {
        let cells = [found, exact].map(|line| line.split_once('\t').unwrap());
        assert_eq!(cells[0].0, cells[1].0);
        let [found, exact] = cells.map(|(_, number)| number.parse::<f64>().unwrap());
        assert!(
            (found - exact).abs() * 128.0 <= exact,
            "{found} for {exact}: {cells:?}"
        );
    }
    // Sums are exact, whichever host they are of.
    let sums = |traces: &[String], sql: &str| answers(traces, sql);
    assert_eq!(
        sums(
            &opened,
            "SELECT function, sum(calls), sum(total_duration) FROM summary_durations GROUP BY function"
        ),
        sums(
            &traces,
            "SELECT function, count(*), sum(duration) FROM calls GROUP BY function"
        ),
    );
    let mut expected: Vec<String> = found.iter().map(|line| format!("p99\t{line}")).collect();
    expected.push("without\t0".to_owned());
    let tables = ["summary_durations", "traces"].map(named);
    for (engine, dialect, needed) in ENGINES {
        if needs::met(needed) {
            let found = answers_of(engine, dialect, (&path, "lake"), &tables);
            let place = found.iter().position(|line| line.starts_with("p99"));
            assert_eq!(found[place.unwrap()..], expected, "{engine}");
        }
    }
}

#[test]
fn functions_of_summaries_are_those_of_top() {
    let folder = tempfile::tempdir().unwrap();
    let lake = folder.path().join("lake").display().to_string();
    let mut traces = Vec::new();
    for (number, host) in [(0, "001"), (1, "h002")] {
        let trace = import(
            INPUTS[number].0,
            &folder.path().join(format!("{number}.pqt")),
        );
        let partition = format!("--partition=date=2026-11-22,host={host}");
        let words = [&trace, "--to", "lake", "-o", &lake, &partition];
        let words = words
            .into_iter()
            .chain((host == "001").then_some("--summaries"));
        printed("perfquet-convert", &words.collect::<Vec<_>>());
        traces.push(trace);
    }
    let sql = "SELECT sum(self_weight), sum(total_weight), function, module FROM summary_functions \
               WHERE event = (SELECT event FROM samples GROUP BY event ORDER BY count(*) DESC, event LIMIT 1) \
               GROUP BY function, module, is_kernel";
    // The lake remembers that it has summaries.
    let found = answers(&[format!("lake:{lake}")], sql);
    let mut words = vec!["top"];
    words.extend(traces.iter().map(String::as_str));
    words.extend(["-n", "0", "--format", "csv"]);
    let top = printed("perfquet-query", &words);
    let rows = top.lines().skip(1).map(|line| {
        let cells: Vec<&str> = line.splitn(3, ',').collect();
        cells[2].replace(',', "\t")
    });
    let mut expected: Vec<String> = rows.collect();
    expected.sort();
    assert!(found.len() > 1, "{found:?}");
    assert_eq!(found, expected);
}

/// Polars misreads Delta tables whose paths have `%`.
#[test]
fn delta_logs_list_the_files_of_a_lake() {
    let (engine, dialect, needed) = ENGINES[6];
    if !needs::met(needed) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lake");
    let mut traces = Vec::new();
    for (number, host) in [(1, "001"), (2, "h002")] {
        let trace = folder.path().join(format!("{number}.pqt"));
        let trace = import(INPUTS[number].0, &trace);
        let partition = format!("date=2026-11-22,host={host}");
        publish(&trace, &path.display().to_string(), &partition);
        traces.push(trace);
    }
    let tables = ["calls", "frames", "mappings", "samples", "stacks"];
    let tables = tables.map(named);
    let answers = || answers_of(engine, dialect, (&path, "lake"), &tables);
    let found = answers();
    let expected = expected_answers(&traces, &tables, "lake");
    assert!(found.ends_with(&expected), "{found:?}");
    assert!(
        found
            .iter()
            .any(|line| line.starts_with("calls\t001\t") || line.starts_with("calls\th002\t")),
        "{found:?}"
    );
    // Logs are replaced, and the lake can be written.
    let trace = folder.path().join("3.pqt");
    traces.push(import(INPUTS[0].0, &trace));
    publish(
        &traces[2],
        &path.display().to_string(),
        "date=2026-11-22,host=h003",
    );
    let found = answers();
    let expected = expected_answers(&traces, &tables, "lake");
    assert!(found.ends_with(&expected), "{found:?}");
}

#[test]
fn engines_answer_from_a_trace_as_perfquet_query() {
    let folder = tempfile::tempdir().unwrap();
    for input in [
        "perf_data/golden/user-regs.data",
        "trace_dat/golden/graph-events.dat",
    ] {
        let path = hostile(folder.path(), &input.replace('/', "_"));
        let trace = vec![import(input, &path)];
        let opened = Directory::open(&path).unwrap();
        let with_rows = opened.tables().filter(|(_, table)| table.rows() > 0);
        let counts: Vec<(String, u64)> = with_rows
            .map(|(name, table)| (name.to_owned(), table.rows()))
            .collect();
        let tables: Vec<String> = counts.iter().map(|(table, _)| named(table)).collect();
        let mut expected: Vec<String> = counts
            .iter()
            .map(|(table, count)| format!("{table}\t{count}"))
            .collect();
        expected.extend(expected_answers(&trace, &tables, "trace"));
        for (engine, dialect, needed) in ENGINES {
            if ["remote", "delta"].contains(&engine) || !needs::met(needed) {
                continue;
            }
            let mut expected = expected.clone();
            expected.extend(highest(&trace, engine, &tables));
            let found = answers_of(engine, dialect, (&path, "trace"), &tables);
            assert_eq!(found, expected, "{engine}: {input}");
        }
    }
}

/// Trino does not run here.
#[test]
fn statements_for_trino_can_be_parsed() {
    if !needs::met(&["sqlglot for Python"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let lake = hostile(folder.path(), "lake").display().to_string();
    let trace = import(INPUTS[2].0, &folder.path().join("t.pqt"));
    publish(&trace, &lake, "date=2026-11-22,host=h001");
    let statements = printed(
        "perfquet-convert",
        &[&format!("lake:{lake}"), "--to", "ddl=trino"],
    );
    let parse = "import sys, sqlglot\n\
         found = [s for s in sqlglot.parse(sys.argv[1], dialect='trino') if s]\n\
         print(sum(s.key == 'create' and bool(s.find(sqlglot.exp.ColumnDef)) for s in found))";
    let output = Command::new("python3")
        .args(["-c", parse, &statements])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let tables = Directory::open(&folder.path().join("t.pqt")).unwrap();
    let tables = tables
        .tables()
        .filter(|(_, table)| table.rows() > 0)
        .count()
        + 1;
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        tables.to_string()
    );
}

#[test]
fn statements_are_refused_where_they_would_be_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let lake = folder.path().join("lake {a}\\b").display().to_string();
    let path = folder.path().join("t.pqt");
    let trace = import(INPUTS[2].0, &path);
    publish(&trace, &lake, "date=2026-11-22,host=h001");
    let check = |input: &str, dialect: &str, expected: &str| {
        let output = Command::new(bin("perfquet-convert"))
            .args([input, "--to", dialect])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{said}"
        );
        assert!(said.contains(expected), "{said}");
    };
    check(
        &format!("lake:{lake}"),
        "ddl=clickhouse",
        "expected a path without *, ?, { and }",
    );
    check(
        &format!("lake:{lake}"),
        "ddl=duckdb",
        "expected a path without a backslash",
    );
    check(
        &format!("lake:{lake}?host=h001"),
        "ddl=spark",
        "host, date and trace cannot be used",
    );
    check(&trace, "ddl=delta", "expected a lake");
    check(&trace, "ddl=trino", "expected a lake");
    std::fs::copy(
        path.join("calls/00000.parquet"),
        path.join("calls/copy.parquet"),
    )
    .unwrap();
    check(&trace, "ddl=spark", "copy.parquet: not a part of the trace");
}
