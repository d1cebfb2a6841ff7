//! SQL over ten million rows: `perfquet-query` compared with DuckDB on the same Parquet files.
//!
//! DuckDB runs in Python, which also starts perfquet-query and measures its CPU time: `tests/bench/queries.py`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::measure::{self, median};
use super::report::Report;
use super::{Setting, Skipped, require, traces};
use crate::{place, say};

/// A query in both dialects; `{enter}` and `{exit}` are placeholders for the two large tables.
const QUERIES: &[(&str, &str, f64)] = &[
    (
        "count by comm",
        "SELECT comm, count(*) FROM {enter} GROUP BY comm",
        2.0,
    ),
    (
        "count by tid and syscall",
        "SELECT tid, id, count(*) FROM {enter} GROUP BY tid, id",
        2.0,
    ),
    (
        "sum and maximum by syscall",
        "SELECT id, sum(ret), max(ret) FROM {exit} GROUP BY id",
        2.0,
    ),
    (
        "the twenty largest returns",
        "SELECT time, ret FROM {exit} ORDER BY ret DESC LIMIT 20",
        2.0,
    ),
    (
        "count distinct",
        "SELECT count(DISTINCT tid), count(DISTINCT id) FROM {enter}",
        2.0,
    ),
    (
        "time slice",
        "SELECT count(*) FROM {enter} WHERE time BETWEEN (SELECT min(time) FROM {enter}) + 100000000 AND (SELECT min(time) FROM {enter}) + 200000000",
        2.0,
    ),
    (
        "a thread that does not exist",
        "SELECT count(*) FROM {enter} WHERE tid = 2147483647",
        3.0,
    ),
    (
        "time between system calls",
        "SELECT comm, sum(gap) FROM (SELECT comm, lead(time) OVER (PARTITION BY tid ORDER BY time) - time AS gap FROM {enter}) AS gaps GROUP BY comm",
        2.0,
    ),
    (
        "large joined with small",
        "SELECT sum(few.n) FROM {exit} AS exits JOIN (SELECT tid, count(*) AS n FROM {enter} GROUP BY tid) AS few ON exits.tid = few.tid",
        4.0,
    ),
];

/// All queries, in alternation.
pub(super) fn run(setting: &Setting) -> Result<Report> {
    require(&["perf events", "tracefs"])?;
    let python = Command::new("python3")
        .args(["-c", "import duckdb"])
        .output();
    if !python.is_ok_and(|output| output.status.success()) {
        return Err(Skipped("needs DuckDB for Python (pip install duckdb)".to_owned()).into());
    }
    let trace = ten_million(&setting.directory)?;
    let rows = traces::events(&trace)?;
    let times = ask_both(setting, &trace)?;

    let mut report = Report::new(setting.rounds);
    report.scenario(
        "Queries",
        &format!("{rows} rows of raw_syscalls, {:.0} MB. CPU milliseconds; perfquet: the whole process, minus that of `SELECT 1`.", traces::bytes(&trace)? as f64 / 1e6),
    );
    let mut shown = Vec::new();
    let mut ratios = Vec::new();
    for ((title, _, budget), time) in QUERIES.iter().zip(&times.queries) {
        let (duckdb, ours) = (
            median(time.duckdb.iter().copied()),
            median(time.ours.iter().copied()),
        );
        // Below ten milliseconds, the start of a process dominates.
        let ratio = ours.max(10.0) / duckdb.max(10.0);
        ratios.push(ratio);
        let verdict = if ratio <= *budget {
            "kept"
        } else {
            "**missed**"
        };
        shown.push(vec![
            (*title).to_owned(),
            format!("{duckdb:.0}"),
            format!("{ours:.0}"),
            format!("{ratio:.2}"),
            format!("≤ {budget}: {verdict}"),
        ]);
    }
    report.table(&["query", "DuckDB", "perfquet", "ratio", "budget"], &shown);
    let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
    report.budget("geometric mean of the ratios", mean, 1.3);
    report.budget(
        "start to end of `SELECT 1`, wall ms",
        median(times.start.iter().copied()),
        100.0,
    );
    for (words, limit) in [("info", 50.0), ("top", 1000.0)] {
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

fn ask_both(setting: &Setting, trace: &Path) -> Result<Times> {
    let queries: Vec<&str> = QUERIES.iter().map(|(_, query, _)| *query).collect();
    let mut command = Command::new("python3");
    command.arg(place::root().join("tests/bench/queries.py"));
    command
        .arg(place::bin("perfquet-query"))
        .arg(trace)
        .arg(setting.rounds.to_string());
    command.arg(serde_json::to_string(&queries)?);
    let run = measure::run(&mut command, &setting.directory)?;
    serde_json::from_str(&run.stdout).context("queries.py: expected JSON")
}
