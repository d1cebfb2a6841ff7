//! SQL over ten million rows: `perfquet-query` compared with DuckDB on the same Parquet files.
//!
//! DuckDB runs in Python, which also starts perfquet-query and measures its CPU time: `tests/bench/queries.py`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::measure::{self, median};
use super::report::Report;
use super::{Setting, require, traces};
use crate::{place, say};

/// A title, a query that both dialects understand, and the budget of its ratio. Names in braces are those of tables and
/// functions in `queries.py`.
type Query = (&'static str, &'static str, f64);

/// Queries over a storm of system calls: five million entries, exits and calls.
const QUERIES: &[Query] = &[
    (
        "count by comm",
        "SELECT comm, count(*) FROM {enter} GROUP BY comm",
        1.5,
    ),
    (
        "count and sum by comm and function",
        "SELECT comm, function, count(*), sum(duration) FROM {calls} GROUP BY comm, function",
        1.5,
    ),
    (
        "count by tid and syscall",
        "SELECT tid, id, count(*) FROM {enter} GROUP BY tid, id",
        1.5,
    ),
    (
        "sum and maximum by syscall",
        "SELECT id, sum(ret), max(ret) FROM {exit} GROUP BY id",
        1.5,
    ),
    (
        "the twenty largest returns",
        "SELECT time, ret FROM {exit} ORDER BY ret DESC LIMIT 20",
        1.5,
    ),
    (
        "the twenty longest calls, five columns",
        "SELECT time, tid, comm, function, duration FROM {calls} ORDER BY duration DESC LIMIT 20",
        1.5,
    ),
    (
        "count distinct",
        "SELECT count(DISTINCT tid), count(DISTINCT id) FROM {enter}",
        1.5,
    ),
    (
        "time slice",
        "SELECT count(*) FROM {enter} WHERE time BETWEEN (SELECT min(time) FROM {enter}) + 100000000 AND (SELECT min(time) FROM {enter}) + 200000000",
        1.5,
    ),
    (
        "a thread that does not exist",
        "SELECT count(*) FROM {enter} WHERE tid = 2147483647",
        1.5,
    ),
    (
        "time between system calls by thread",
        "SELECT comm, sum(gap) FROM (SELECT comm, lead(time) OVER (PARTITION BY tid ORDER BY time) - time AS gap FROM {enter}) AS gaps GROUP BY comm",
        1.5,
    ),
    (
        "time between system calls by CPU",
        "SELECT cpu, max(gap) FROM (SELECT cpu, time - lag(time) OVER (PARTITION BY cpu ORDER BY time) AS gap FROM {enter}) AS gaps GROUP BY cpu",
        1.5,
    ),
    (
        "row number over time",
        "SELECT sum(n) FROM (SELECT row_number() OVER (ORDER BY time) AS n FROM {enter}) AS numbers",
        1.0,
    ),
    (
        "running sum over time",
        "SELECT max(total), count(*) FROM (SELECT sum(ret) OVER (ORDER BY time) AS total FROM {exit}) AS sums",
        1.0,
    ),
    (
        "running sum by CPU",
        "SELECT max(total), count(*) FROM (SELECT sum(ret) OVER (PARTITION BY cpu ORDER BY time) AS total FROM {exit}) AS sums",
        1.0,
    ),
    (
        "quantile by function",
        "SELECT function, {p99} FROM {calls} GROUP BY function",
        1.5,
    ),
    (
        "a function that was not called",
        "SELECT count(*) FROM {calls} WHERE function LIKE '%mmap%'",
        1.5,
    ),
    (
        "calls of one function",
        "SELECT count(*), sum(duration) FROM {calls} WHERE function IN ('sys_getxattr', 'syscall:191')",
        1.5,
    ),
    (
        "large joined with small",
        "SELECT sum(few.n) FROM {exit} AS exits JOIN (SELECT tid, count(*) AS n FROM {enter} GROUP BY tid) AS few ON exits.tid = few.tid",
        1.5,
    ),
    (
        "count by second and comm",
        "SELECT {second}, comm, count(*) FROM {enter} GROUP BY 1, 2",
        1.5,
    ),
];

/// Joins by time over a million calls and 100,000 switches in 60 s of 200 threads.
const JOINS: &[Query] = &[
    (
        "switches in calls, by thread",
        "SELECT count(*), sum(c.duration), sum(s.next_pid) FROM {calls} c JOIN {switches} s ON s.tid = c.tid AND s.time >= c.time AND s.time < c.time + c.duration",
        1.0,
    ),
    (
        "switches in calls, by CPU",
        "SELECT count(*), sum(c.duration), sum(s.next_pid) FROM {calls} c JOIN {switches} s ON s.cpu = c.cpu AND s.time >= c.time AND s.time < c.time + c.duration",
        1.0,
    ),
    (
        "switches in calls, by time only",
        "SELECT count(*), sum(c.duration), sum(s.next_pid) FROM {calls} c JOIN {switches} s ON s.time >= c.time AND s.time < c.time + c.duration",
        1.0,
    ),
    (
        "the last switch before each call",
        "SELECT count(*), sum(c.time - s.time) FROM {calls} c ASOF JOIN {switches} s ON c.tid = s.tid AND c.time >= s.time",
        1.0,
    ),
];

/// All queries, in alternation.
pub(super) fn run(setting: &Setting) -> Result<Report> {
    require(&["perf events", "tracefs", "DuckDB for Python"])?;
    let trace = ten_million(&setting.directory)?;
    let by_time = time_tables(&setting.directory)?;
    let times = ask_both(setting, &[(&trace, QUERIES), (&by_time, JOINS)])?;

    let mut report = Report::new(setting.rounds);
    report.scenario(
        "Queries",
        &format!(
            "{} rows of raw_syscalls, {:.0} MB. CPU milliseconds; perfquet: the whole process, minus that of `SELECT 1`.",
            traces::events(&trace)?,
            traces::bytes(&trace)? as f64 / 1e6
        ),
    );
    let (queries, joins) = times.queries.split_at(QUERIES.len());
    let ratios = compare(&mut report, QUERIES, queries);
    report.scenario(
        "Joins by time",
        "A million calls and 100,000 switches in 60 s of 200 threads. DuckDB is asked once if it takes more than 5 s.",
    );
    let of_joins = compare(&mut report, JOINS, joins);
    report.budget("geometric mean of the queries' ratios", mean(&ratios), 1.0);
    let all = [ratios, of_joins].concat();
    report.budget("the same with the joins by time", mean(&all), 1.0);
    report.budget(
        "start to end of `SELECT 1`, wall ms",
        median(times.start.iter().copied()),
        12.0,
    );
    let program = std::fs::metadata(place::bin("perfquet-query"))?;
    report.budget("size of the program, MB", program.len() as f64 / 1e6, 100.0);
    for (words, limit) in [("info", 50.0), ("top", 1000.0), ("findings", 1000.0)] {
        let mut walls = Vec::new();
        for _ in 0..setting.rounds {
            let mut command = Command::new(place::bin("perfquet-query"));
            walls.push(
                measure::run(command.arg(words).arg(&trace), &setting.directory)?
                    .wall
                    .as_secs_f64()
                    * 1e3,
            );
        }
        report.budget(&format!("`{words}`, wall ms"), median(walls), limit);
    }
    Ok(report)
}

/// Adds a table of both engines' medians. Returns their ratios.
fn compare(report: &mut Report, queries: &[Query], times: &[Pair]) -> Vec<f64> {
    let mut rows = Vec::new();
    let mut ratios = Vec::new();
    for ((title, _, budget), time) in queries.iter().zip(times) {
        let (duckdb, ours) = (
            median(time.duckdb.iter().copied()),
            median(time.ours.iter().copied()),
        );
        // Below ten milliseconds, the start of a process dominates.
        let ratio = ours.max(10.0) / duckdb.max(10.0);
        ratios.push(ratio);
        let verdict = match ratio <= *budget {
            true => "kept",
            false => "**missed**",
        };
        rows.push(vec![
            (*title).to_owned(),
            format!("{duckdb:.0}"),
            format!("{ours:.0}"),
            format!("{ratio:.2}"),
            format!("≤ {budget}: {verdict}"),
        ]);
    }
    report.table(&["query", "DuckDB", "perfquet", "ratio", "budget"], &rows);
    ratios
}

/// The geometric mean.
fn mean(ratios: &[f64]) -> f64 {
    (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp()
}

/// Records a syscall storm of ten million events once; the recording is kept for the next run.
fn ten_million(directory: &Path) -> Result<PathBuf> {
    let trace = directory.join("ten-million.pqt");
    if trace.join("manifest.json").is_file()
        && traces::events(&trace).is_ok_and(|rows| rows >= 9_500_000)
    {
        return Ok(trace);
    }
    say::note("recording ten million events");
    let storm = traces::storm()?;
    let mut command = Command::new(place::bin("perfquet-record"));
    command.args([
        "-a",
        "--force",
        "-m",
        "64M",
        "-e",
        "raw_syscalls:sys_enter",
        "-e",
        "raw_syscalls:sys_exit",
        "-o",
    ]);
    command
        .arg(&trace)
        .arg("--")
        .arg(storm)
        .args(["syscalls", "2500000"]);
    measure::run(&mut command, directory)?;
    Ok(trace)
}

/// Generates the trace for joins by time with the example of that name: the same rows every time.
fn time_tables(directory: &Path) -> Result<PathBuf> {
    let trace = directory.join("time-tables.pqt");
    let mut build = place::cargo();
    build.args(["build", "--quiet", "--release", "--package"]);
    build.args(["perfquet-tests", "--example", "time_tables"]);
    measure::run(&mut build, directory)?;
    let program = place::release("examples/time_tables");
    measure::run(Command::new(program).arg(&trace), directory)?;
    Ok(trace)
}

/// CPU milliseconds per query and round, as reported by the script.
#[derive(serde::Deserialize)]
struct Times {
    queries: Vec<Pair>,
    /// Wall milliseconds of perfquet's `SELECT 1`.
    start: Vec<f64>,
}

#[derive(serde::Deserialize)]
struct Pair {
    duckdb: Vec<f64>,
    ours: Vec<f64>,
}

fn ask_both(setting: &Setting, traces: &[(&Path, &[Query])]) -> Result<Times> {
    let queries: Vec<(&Path, &str)> = (traces.iter())
        .flat_map(|(trace, queries)| queries.iter().map(|(_, query, _)| (*trace, *query)))
        .collect();
    let mut command = Command::new("python3");
    command.arg(place::root().join("tests/bench/queries.py"));
    command
        .arg(place::bin("perfquet-query"))
        .arg(setting.rounds.to_string())
        .arg(serde_json::to_string(&queries)?);
    let run = measure::run(&mut command, &setting.directory)?;
    serde_json::from_str(&run.stdout).context("queries.py: expected JSON")
}
