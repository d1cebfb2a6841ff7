//! Import of trace.dat compared with `trace-cmd report`, and of texts by the megabyte.
//!
//! Many hosts do not let trace-cmd record (lockdown, containers): then it records in a virtual machine of `cargo xtask
//! vm`, and the file is read here.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::measure::{self, Runs};
use super::report::Report;
use super::{Setting, require, traces};
use crate::{place, vm};

/// Texts by the megabyte; and a trace.dat, if trace-cmd may record.
pub(super) fn run(setting: &Setting) -> Result<Report> {
    require(&["perf", "perf events"])?;
    let mut report = Report::new(setting.rounds);
    match trace_dat(setting).or_else(|_| trace_dat_of_machine()) {
        Ok(dat) => binary(&mut report, setting, &dat)?,
        Err(error) => {
            let message = format!("{error:#}");
            let reason = message.lines().last().unwrap_or_default().trim();
            report.note(&format!(
                "trace.dat: not measured, trace-cmd cannot record here ({reason})"
            ));
        }
    }
    let ftrace = setting.directory.join("ftrace.txt");
    write_ftrace_text(&ftrace)?;
    let script = setting.directory.join("script.txt");
    let data = traces::mixed_perf_data(&setting.directory)?;
    let printed = Command::new("perf")
        .arg("script")
        .arg("-i")
        .arg(&data)
        .stdout(std::fs::File::create(&script)?)
        .status()?;
    anyhow::ensure!(printed.success(), "perf script failed");
    report.scenario(
        "Text",
        "The whole import into tables. Megabytes of text per second of CPU time, all threads together.",
    );
    let mut rows = Vec::new();
    let mut speeds = Vec::new();
    for (title, path) in [
        ("ftrace: sched, irq, timer, system calls", ftrace),
        ("perf script with stacks", script),
    ] {
        let runs = repeated(setting, || convert(&path))?;
        let bytes = traces::bytes(&path)? as f64;
        let (cpu, peak) = (runs.cpu(), runs.peak_bytes());
        let events = traces::events(&path.with_extension("pqt"))?;
        rows.push(vec![
            title.to_owned(),
            format!("{:.1}", bytes / 1e6),
            events.to_string(),
            format!("{cpu:.2}"),
            format!("{:.0}", bytes / 1e6 / cpu),
            format!("{:.0}", peak / 1e6),
        ]);
        speeds.push((title, cpu / (bytes / 1e8), peak));
    }
    report.table(
        &["text of", "MB", "events", "CPU s", "MB/s", "peak MB"],
        &rows,
    );
    for (title, seconds, peak) in speeds {
        report.budget(&format!("{title}: CPU seconds for 100 MB"), seconds, 1.0);
        report.budget(&format!("{title}: peak memory in MB"), peak / 1e6, 168.0);
    }
    Ok(report)
}

/// A hundred megabytes of kernel output: its few hundred lines repeated, a second later each time.
fn write_ftrace_text(path: &Path) -> Result<()> {
    const BYTES: usize = 100_000_000;
    let golden = place::root().join("formats/readers/src/ftrace_text/golden/events-6.1.trace");
    let text = std::fs::read_to_string(&golden)?;
    let is_event = |line: &&str| !line.starts_with('#') && time_of(line).is_some();
    let events: Vec<&str> = text.lines().filter(is_event).collect();
    anyhow::ensure!(!events.is_empty(), "{}: no events", golden.display());
    let mut out = std::io::BufWriter::new(std::fs::File::create(path)?);
    for line in text.lines().take_while(|line| line.starts_with('#')) {
        writeln!(out, "{line}")?;
    }
    let (mut written, mut later) = (0, 0);
    while written < BYTES {
        for line in &events {
            if let Some((place, seconds)) = time_of(line) {
                let (before, after) = line.split_at(place);
                let rest = &after[after.find('.').unwrap_or(0)..];
                let line = format!("{before}{}{rest}\n", seconds + later);
                out.write_all(line.as_bytes())?;
                written += line.len();
            }
        }
        later += 1;
    }
    out.flush()?;
    Ok(())
}

/// Offset of a line's time, and its seconds: "…  123.456789: sched_switch: …".
fn time_of(line: &str) -> Option<(usize, u64)> {
    let end = line.find(": ")?;
    let place = line[..end].rfind(' ')? + 1;
    let (seconds, micros) = line[place..end].split_once('.')?;
    (micros.len() == 6).then_some(())?;
    Some((place, seconds.parse().ok()?))
}

fn binary(report: &mut Report, setting: &Setting, input: &Path) -> Result<()> {
    let (mut ours, mut theirs) = (Runs::default(), Runs::default());
    for _ in 0..setting.rounds {
        ours.push(measure::run(&mut convert(input), &setting.directory)?);
        let mut report = Command::new("trace-cmd");
        report.arg("report").arg(input);
        theirs.push(measure::run(&mut report, &setting.directory)?);
    }
    let events = traces::events(&input.with_extension("pqt"))? as f64;
    let row = |title: &str, runs: &Runs| {
        vec![
            format!("`{title}`"),
            format!("{:.2}", runs.wall()),
            format!("{:.2}", runs.cpu()),
            format!("{:.0}", runs.cpu() * 1e9 / events),
            format!("{:.0}", runs.peak_bytes() / 1e6),
        ]
    };
    report.scenario(
        "trace.dat",
        &format!(
            "{events} events of system calls and scheduling, {:.1} MB.",
            traces::bytes(input)? as f64 / 1e6
        ),
    );
    report.table(
        &["reader", "wall s", "CPU s", "CPU ns per event", "peak MB"],
        &[
            row("perfquet-convert", &ours),
            row("trace-cmd report", &theirs),
        ],
    );
    report.budget(
        "CPU time against trace-cmd report",
        ours.cpu() / theirs.cpu(),
        1.0 / 8.0,
    );
    report.budget("peak memory in MB", ours.peak_bytes() / 1e6, 168.0);
    Ok(())
}

/// Arguments of trace-cmd; `storm` is the workload program.
fn recording(output: &str, storm: &str, repetitions: u32) -> Vec<String> {
    let repetitions = repetitions.to_string();
    [
        ["record", "-q", "-b", "65536", "-C", "mono"].as_slice(),
        &["-e", "raw_syscalls:sys_enter"],
        &["-e", "raw_syscalls:sys_exit"],
        &["-e", "sched:sched_switch"],
        &["-o", output, storm, "syscalls", &repetitions],
    ]
    .concat()
    .into_iter()
    .map(str::to_owned)
    .collect()
}

/// About a million events.
fn trace_dat(setting: &Setting) -> Result<PathBuf> {
    const OUTPUT: &str = "storm.dat";
    let storm = traces::storm()?.display().to_string();
    let mut command = Command::new("trace-cmd");
    command
        .args(recording(OUTPUT, &storm, 250_000))
        .current_dir(&setting.directory);
    measure::run(&mut command, &setting.directory)?;
    Ok(setting.directory.join(OUTPUT))
}

/// More than a million events, recorded in a virtual machine.
fn trace_dat_of_machine() -> Result<PathBuf> {
    const KERNEL: &str = "6.12";
    const OUTPUT: &str = "storm.dat";
    let job = vm::Job {
        name: "trace-dat".to_owned(),
        programs: vec!["trace-cmd".to_owned()],
        files: vec![("storm".to_owned(), std::fs::read(traces::storm()?)?)],
        commands: vec![format!(
            "trace-cmd {}",
            recording(OUTPUT, "./storm", 300_000).join(" ")
        )],
        clock: vm::Clock::Hosts,
    };
    let done = vm::run_job(&job, KERNEL, None)?;
    let recorded = done.results.first().context("the machine ran nothing")?;
    anyhow::ensure!(recorded.0 == 0, "{}", recorded.1);
    Ok(done.directory.join(OUTPUT))
}

fn repeated(setting: &Setting, command: impl Fn() -> Command) -> Result<Runs> {
    let mut runs = Runs::default();
    for _ in 0..setting.rounds {
        runs.push(measure::run(&mut command(), &setting.directory)?);
    }
    Ok(runs)
}

fn convert(input: &Path) -> Command {
    let mut command = Command::new(place::bin("perfquet-convert"));
    command
        .arg(input)
        .args(["--force", "--no-symbols", "-o"])
        .arg(input.with_extension("pqt"));
    command
}
