//! Import of perf.data compared with perf's own reading of the same file, and with the time that DuckDB takes to write
//! the same rows: time, CPU, peak memory; from a pipe, on one CPU and on all.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::measure::{self, Runs, median};
use super::report::Report;
use super::{Setting, require, traces};
use crate::{needs, place, say};

/// A kind of file, and its budgets.
struct Scenario {
    title: &'static str,
    record: fn(&Path) -> Result<std::path::PathBuf>,
    /// Wall time against perf script, on two idle CPUs.
    wall: f64,
    /// CPU nanoseconds per event.
    cpu_ns: f64,
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        title: "Tracepoints",
        record: traces::unpaired_perf_data,
        wall: 0.10,
        cpu_ns: 240.0,
    },
    Scenario {
        title: "Tracepoints in pairs, with calls",
        record: traces::tracepoint_perf_data,
        wall: 0.18,
        cpu_ns: 320.0,
    },
    Scenario {
        title: "Samples and sched_switch with stacks",
        record: traces::mixed_perf_data,
        wall: 0.10,
        cpu_ns: 430.0,
    },
];

/// Every kind of file, every reader.
pub(super) fn run(setting: &Setting) -> Result<Report> {
    require(&["perf", "perf events", "tracefs"])?;
    let mut report = Report::new(setting.rounds);
    for scenario in SCENARIOS {
        say::note(scenario.title);
        compare(&mut report, setting, scenario)?;
    }
    report.note("`--no-symbols`: no symbolization, as in `perf script` with these fields; `perf report` symbolizes and sorts.");
    report.note("DuckDB: `COPY` of all tables of the trace from its memory to Parquet with zstd; reading and decoding an input are not in it.");
    report.note("Busiest thread: its CPU time bounds the events per second that any number of CPUs can reach.");
    if let Some(reason) = needs::missing("DuckDB for Python") {
        report.note(&format!("DuckDB: not measured ({reason})"));
    }
    Ok(report)
}

fn row(title: &str, runs: &Runs, events: f64) -> Vec<String> {
    vec![
        title.to_owned(),
        format!("{:.2}", runs.wall()),
        format!("{:.2}", runs.cpu()),
        format!("{:.0}", runs.cpu() * 1e9 / events),
        format!("{:.0}", runs.busiest_thread() * 1e9 / events),
        format!("{:.2}", events / runs.wall() / 1e6),
        format!("{:.0}", runs.peak_bytes() / 1e6),
    ]
}

fn measured(setting: &Setting, input: &Path) -> Result<Measured> {
    let scratch = &setting.directory;
    let trace = traces::import(input, scratch)?;
    let events = traces::events(&trace)? as f64;
    let has_duckdb = needs::missing("DuckDB for Python").is_none();
    let mut found = Measured {
        events,
        ..Measured::default()
    };
    for _ in 0..setting.rounds {
        found.ours.push(measure::run(
            &mut convert(Command::new(place::bin(CONVERT)), input, input),
            scratch,
        )?);
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]).arg(place::bin(CONVERT));
        found
            .alone
            .push(measure::run(&mut convert(command, input, input), scratch)?);
        let stdin = Path::new("-");
        found.piped.push(measure::run_fed(
            &mut convert(Command::new(place::bin(CONVERT)), stdin, input),
            input,
            scratch,
        )?);
        found
            .script
            .push(measure::run(&mut perf_script(input), scratch)?);
        found
            .full_report
            .push(measure::run(&mut perf_report(input), scratch)?);
        if has_duckdb {
            found.copies.push(duckdb_copy(&trace, scratch)?);
        }
    }
    Ok(found)
}

/// The runs of the programs.
#[derive(Default)]
struct Measured {
    events: f64,
    ours: Runs,
    alone: Runs,
    piped: Runs,
    script: Runs,
    full_report: Runs,
    /// CPU time of DuckDB's copies in seconds; none without DuckDB.
    copies: Vec<f64>,
}

fn compare(report: &mut Report, setting: &Setting, scenario: &Scenario) -> Result<()> {
    let input = &(scenario.record)(&setting.directory)?;
    let Measured {
        events,
        ours,
        alone,
        piped,
        script,
        full_report,
        copies,
    } = measured(setting, input)?;
    report.scenario(
        scenario.title,
        &format!(
            "{events} events, {:.1} MB of perf.data.",
            traces::bytes(input)? as f64 / 1e6
        ),
    );
    let mut rows = vec![
        row("`perfquet-convert`", &ours, events),
        row("the same on one CPU", &alone, events),
        row("the same from a pipe", &piped, events),
        row(
            "`perf script -F comm,pid,tid,cpu,time,event,trace`",
            &script,
            events,
        ),
        row("`perf report --stdio`", &full_report, events),
    ];
    let copy = median(copies.iter().copied());
    if !copies.is_empty() {
        let mut row = vec!["–".to_owned(); rows[0].len()];
        row[0] = "DuckDB's `COPY` of the same rows".to_owned();
        row[2] = format!("{copy:.2}");
        row[3] = format!("{:.0}", copy * 1e9 / events);
        rows.push(row);
    }
    report.table(
        &[
            "reader",
            "wall s",
            "CPU s",
            "CPU ns per event",
            "of the busiest thread",
            "M events/s",
            "peak MB",
        ],
        &rows,
    );
    report.budget(
        "wall time against perf script",
        ours.wall() / script.wall(),
        scenario.wall,
    );
    report.note(&format!(
        "wall time against perf report: {:.3}",
        ours.wall() / full_report.wall()
    ));
    report.budget(
        "CPU time per event in ns",
        ours.cpu() * 1e9 / events,
        scenario.cpu_ns,
    );
    if !copies.is_empty() {
        report.budget("CPU time against DuckDB's COPY", ours.cpu() / copy, 0.7);
    }
    report.budget(
        "busiest thread, ns per event",
        ours.busiest_thread() * 1e9 / events,
        100.0,
    );
    report.note(&format!(
        "serial fraction, the busiest thread's share of the CPU time: {:.2}; on all CPUs {:.2} times as fast as on one",
        ours.busiest_thread() / ours.cpu(),
        alone.wall() / ours.wall()
    ));
    report.budget(
        "CPU time from a pipe against that from a file",
        piped.cpu() / ours.cpu(),
        1.1,
    );
    report.budget("peak memory in MB", ours.peak_bytes() / 1e6, 168.0);
    Ok(())
}

const CONVERT: &str = "perfquet-convert";

/// `command` with the arguments of an import of `from`; its output is named after `input`.
fn convert(mut command: Command, from: &Path, input: &Path) -> Command {
    command
        .arg(from)
        .args(["--force", "--no-symbols", "-o"])
        .arg(input.with_extension("pqt"));
    command
}

fn perf_script(input: &Path) -> Command {
    let mut command = Command::new("perf");
    command
        .args(["script", "-F", "comm,pid,tid,cpu,time,event,trace", "-i"])
        .arg(input);
    command
}

fn perf_report(input: &Path) -> Command {
    let mut command = Command::new("perf");
    command.args(["report", "--stdio", "-i"]).arg(input);
    command
}

/// CPU seconds in which DuckDB writes the rows of the trace.
fn duckdb_copy(trace: &Path, scratch: &Path) -> Result<f64> {
    let mut command = Command::new("python3");
    command.arg(place::root().join("tests/bench/duckdb_copy.py"));
    let run = measure::run(command.arg(trace).arg(scratch), scratch)?;
    let ms: f64 = run
        .stdout
        .trim()
        .parse()
        .context("duckdb_copy.py: expected a number")?;
    Ok(ms / 1e3)
}
