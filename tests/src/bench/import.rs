//! Import of perf.data compared with perf's own reading of the same file: time, CPU, peak memory.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::measure::{self, Run, median};
use super::report::Report;
use super::{Setting, require, traces};
use crate::place;

/// Both kinds of file, every reader.
pub(super) fn run(setting: &Setting) -> Result<Report> {
    require(&["perf", "perf events", "tracefs"])?;
    let mut report = Report::new(setting.rounds);
    let mixed = traces::mixed_perf_data(&setting.directory)?;
    let tracepoints = traces::tracepoint_perf_data(&setting.directory)?;
    compare(&mut report, setting, "Tracepoints", &tracepoints)?;
    compare(
        &mut report,
        setting,
        "Samples and sched_switch with stacks",
        &mixed,
    )?;
    report.note("`--no-symbols`: no symbolization, as in `perf script` with these fields; `perf report` symbolizes and sorts.");
    Ok(report)
}

/// Builds the command that reads an input.
type Contestant = fn(&Path) -> Command;

fn compare(report: &mut Report, setting: &Setting, title: &str, input: &Path) -> Result<()> {
    let trace = traces::import(input, &setting.directory)?;
    let events = traces::events(&trace)? as f64;
    let contestants: [(&str, Contestant); 3] = [
        ("perfquet-convert", convert),
        (
            "perf script -F comm,pid,tid,cpu,time,event,trace",
            perf_script,
        ),
        ("perf report --stdio", perf_report),
    ];
    let mut runs: Vec<Vec<Run>> = contestants.iter().map(|_| Vec::new()).collect();
    for _ in 0..setting.rounds {
        for ((_, command), runs) in contestants.iter().zip(&mut runs) {
            runs.push(measure::run(&mut command(input), &setting.directory)?);
        }
    }
    let wall = |runs: &[Run]| median(runs.iter().map(|run| run.wall.as_secs_f64()));
    let cpu = |runs: &[Run]| median(runs.iter().map(|run| run.cpu.as_secs_f64()));
    let peak = |runs: &[Run]| median(runs.iter().map(|run| run.peak_bytes as f64));
    let rows: Vec<Vec<String>> = contestants
        .iter()
        .zip(&runs)
        .map(|((title, _), runs)| {
            vec![
                format!("`{title}`"),
                format!("{:.2}", wall(runs)),
                format!("{:.2}", cpu(runs)),
                format!("{:.0}", cpu(runs) * 1e9 / events),
                format!("{:.0}", peak(runs) / 1e6),
            ]
        })
        .collect();
    report.scenario(
        title,
        &format!(
            "{events} events, {:.1} MB of perf.data.",
            traces::bytes(input)? as f64 / 1e6
        ),
    );
    report.table(
        &["reader", "wall s", "CPU s", "CPU ns per event", "peak MB"],
        &rows,
    );
    let [ours, script, full_report] = runs.as_slice() else {
        return Ok(());
    };
    report.budget(
        "wall time against perf script",
        wall(ours) / wall(script),
        0.1,
    );
    report.note(&format!(
        "wall time against perf report: {:.3}",
        wall(ours) / wall(full_report)
    ));
    report.budget(
        "CPU time per event in ns",
        cpu(ours) * 1e9 / events,
        if title == "Tracepoints" { 250.0 } else { 400.0 },
    );
    report.budget("peak memory in MB", peak(ours) / 1e6, 268.0);
    Ok(())
}

fn convert(input: &Path) -> Command {
    let mut command = Command::new(place::bin("perfquet-convert"));
    command
        .arg(input)
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
