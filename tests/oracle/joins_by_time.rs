//! Joins by time answered by perfquet-query and by DuckDB over the same files, which have rows without a time, negative
//! durations, equal times, and parts that overlap.

use std::path::Path;
use std::process::Command;

use perfquet_tests::needs;

use super::several::printed;
use super::time_tables::{self, Size};

const READER: &str = include_str!("joins_by_time.py");

/// Queries in both dialects: `{calls}` and `{switches}` are the tables.
const QUERIES: [&str; 14] = [
    "SELECT c.call_id, s.time FROM {calls} c JOIN {switches} s ON s.cpu = c.cpu AND s.time >= c.time AND s.time < c.time + c.duration",
    "SELECT c.call_id, s.time FROM {calls} c JOIN {switches} s ON s.tid = c.tid AND s.time BETWEEN c.time AND c.time + c.duration",
    "SELECT c.call_id, s.time, s.next_pid FROM {calls} c JOIN {switches} s ON s.time >= c.time AND s.time < c.time + c.duration",
    "SELECT c.call_id, s.time FROM {calls} c LEFT JOIN {switches} s ON s.tid = c.tid AND s.time >= c.time AND s.time < c.time + c.duration",
    "SELECT c.call_id, s.time FROM {calls} c RIGHT JOIN {switches} s ON s.cpu = c.cpu AND c.time <= s.time AND c.time + c.duration > s.time",
    "SELECT c.call_id, s.time FROM {calls} c FULL JOIN {switches} s ON s.tid = c.tid AND s.time >= c.time AND s.time < c.time + c.duration",
    "SELECT a.call_id, b.call_id FROM {calls} a JOIN {calls} b ON a.tid = b.tid AND a.call_id < b.call_id AND a.time < b.time + b.duration AND b.time < a.time + a.duration",
    "SELECT count(*), sum(c.duration) FROM {calls} c WHERE EXISTS (SELECT 1 FROM {switches} s WHERE s.cpu = c.cpu AND s.time >= c.time AND s.time < c.time + c.duration)",
    "SELECT count(*), count(c.time) FROM {calls} c WHERE NOT EXISTS (SELECT 1 FROM {switches} s WHERE s.time >= c.time AND s.time < c.time + c.duration)",
    "SELECT c.call_id, s.time FROM {calls} c ASOF JOIN {switches} s ON c.cpu = s.cpu AND c.time >= s.time",
    "SELECT c.call_id, s.time FROM {calls} c ASOF LEFT JOIN {switches} s ON c.tid = s.tid AND c.time > s.time",
    "SELECT c.call_id, s.time FROM {calls} c ASOF LEFT JOIN {switches} s ON c.tid = s.tid AND c.time <= s.time",
    "SELECT c.call_id, s.time FROM {calls} c ASOF JOIN {switches} s ON c.time < s.time",
    "SELECT c.call_id, time FROM {calls} c ASOF JOIN {switches} s USING (tid, time)",
];

/// Running aggregates of rows without a time, of equal times, and of parts that overlap.
const WINDOWS: [&str; 5] = [
    "SELECT call_id, sum(duration) OVER (PARTITION BY tid ORDER BY time NULLS FIRST) FROM {calls}",
    "SELECT call_id, sum(duration) OVER (ORDER BY time NULLS FIRST), max(duration) OVER (ORDER BY time NULLS FIRST) FROM {calls}",
    "SELECT call_id, count(duration) OVER (PARTITION BY cpu, tid ORDER BY time NULLS FIRST) FROM {calls}",
    "SELECT time, max(total) FROM (SELECT time, sum(next_pid) OVER (PARTITION BY cpu ORDER BY time NULLS FIRST ROWS UNBOUNDED PRECEDING) AS total FROM {switches}) AS sums GROUP BY time",
    "SELECT max(total), min(least) FROM (SELECT sum(CAST(next_pid AS BIGINT)) OVER (PARTITION BY tid ORDER BY time NULLS FIRST) AS total, min(CAST(next_pid AS BIGINT)) OVER (PARTITION BY tid ORDER BY time NULLS FIRST) AS least FROM {switches}) AS sums",
];

fn by_duckdb(trace: &Path, query: &str) -> Vec<String> {
    let mut command = Command::new("python3");
    command.args(["-c", READER]).arg(trace).arg(query);
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{query}\n{stderr}");
    sorted(&String::from_utf8_lossy(&output.stdout))
}

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn named(query: &str) -> String {
    let query = query.replace("{calls}", "calls");
    query.replace("{switches}", "sched_switch")
}

fn small(path: &Path) {
    let size = Size {
        calls: 4000,
        switches: 900,
        threads: 20,
        span: 1_000_000,
        is_odd: true,
    };
    time_tables::write(path, size).unwrap();
}

#[test]
fn duckdb_has_the_same_rows() {
    if !needs::met(&["DuckDB for Python"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.pqt");
    small(&trace);
    let path = trace.display().to_string();
    for query in QUERIES.into_iter().chain(WINDOWS) {
        let ours = printed(
            "perfquet-query",
            &["sql", &path, &named(query), "--format", "csv"],
        );
        let rows = ours.split_once('\n').map_or("", |(_, rows)| rows);
        let (ours, theirs) = (sorted(rows), by_duckdb(&trace, query));
        assert!(
            ours.len() > 2 || query.contains("count(*") || query.contains("max(total), min"),
            "{query}: {ours:?}"
        );
        assert!(
            ours == theirs,
            "{query}\n{} rows, DuckDB has {}",
            ours.len(),
            theirs.len()
        );
    }
}

#[test]
fn nothing_is_sorted_again() {
    let folder = tempfile::tempdir().unwrap();
    let traces = ["a.pqt", "b.pqt"].map(|name| folder.path().join(name));
    traces.iter().for_each(|trace| small(trace));
    let [one, other] = traces.each_ref().map(|trace| trace.display().to_string());
    let plan = |arguments: &[&str], query: &str| {
        let query = format!("EXPLAIN {}", named(query));
        printed(
            "perfquet-query",
            &[&["sql"], arguments, &[&query, "--format", "csv"]].concat(),
        )
    };
    let backwards = QUERIES
        .iter()
        .filter(|query| !query.contains("<= s.time") && !query.contains("c.time < s.time"));
    let all = backwards.chain(&WINDOWS).copied().chain([
        "SELECT * FROM {calls} ORDER BY time",
        "SELECT time FROM {switches} ORDER BY time LIMIT 5",
    ]);
    for query in all {
        for arguments in [&[one.as_str()][..], &[one.as_str(), other.as_str()][..]] {
            let plan = plan(arguments, query);
            assert!(plan.contains("Merge: [time"), "{query}\n{plan}");
            assert!(!plan.contains("SortExec"), "{query}\n{plan}");
            let is_window = WINDOWS.contains(&query);
            assert_eq!(plan.contains("TimeWindow"), is_window, "{query}\n{plan}");
        }
    }
}

/// Pieces add up to the time that both last; no row without a time or a duration has any.
#[test]
fn pieces_of_span_join_are_what_ranges_share() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.pqt");
    small(&trace);
    let path = trace.display().to_string();
    let ask = |query: &str| printed("perfquet-query", &["sql", &path, query, "--format", "csv"]);
    let pieces = ask(
        "SELECT count(*) AS n, sum(duration) AS total, min(duration) AS least FROM span_join(calls, calls, tid)",
    );
    let ranges = ask(
        "SELECT count(*) AS n, sum(shared) AS total, min(shared) AS least FROM ( \
         SELECT least(a.time + a.duration, b.time + b.duration) - greatest(a.time, b.time) AS shared \
         FROM calls a CROSS JOIN calls b WHERE a.tid = b.tid AND a.duration >= 0 AND b.duration >= 0 \
         AND a.time < b.time + greatest(b.duration, 1) AND b.time < a.time + greatest(a.duration, 1))",
    );
    assert_eq!(pieces, ranges);
    assert!(pieces.ends_with(",0\n"), "{pieces}");
}
