//! In-kernel aggregation compared with bpftrace: overhead of the program, cost of the recorder.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::measure::{self, Run, median};
use super::report::Report;
use super::{Setting, record, require, traces};
use crate::{place, say};

/// An aggregation, and its workload.
struct Scenario {
    title: &'static str,
    about: &'static str,
    storm: [&'static str; 2],
    /// Minimum number of hits of the workload; its cost is reported per hit. 0 if there is no such number.
    hits: f64,
    /// Command line of perfquet-record.
    ours: &'static [&'static str],
    /// Program of bpftrace.
    theirs: &'static str,
    /// Table with perfquet's result.
    counted: &'static str,
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        title: "Sizes of mallocs by a uprobe",
        about: "One thread calls malloc 300 000 times; the distribution of the sizes by thread name.",
        storm: ["mallocs", "300000"],
        hits: 300_000.0,
        ours: &[
            "-a",
            "--uprobe",
            "libc.so.6:malloc bytes=%di:u64",
            "--agg",
            "quantize(bytes) by comm",
        ],
        theirs: "uprobe:LIBC:malloc { @[comm] = hist(arg0); }",
        counted: "SELECT CAST(sum(count) AS BIGINT) FROM buckets",
    },
    Scenario {
        title: "Sizes of writes by a tracepoint",
        about: "One thread reads and writes single bytes, 500 000 times each; the distribution of `count` of \
            `sys_enter_write` by thread name.",
        storm: ["syscalls", "500000"],
        hits: 500_000.0,
        ours: &[
            "-a",
            "-e",
            "syscalls:sys_enter_write",
            "--agg",
            "quantize(count) by comm",
        ],
        theirs: "tracepoint:syscalls:sys_enter_write { @[comm] = hist(args->count); }",
        counted: "SELECT CAST(sum(count) AS BIGINT) FROM buckets",
    },
    Scenario {
        title: "Stacks at 999 Hz",
        about: "Kernel and user stacks by thread name and process, counted during three seconds of work in forty \
            nested calls.",
        storm: ["stacks", "3000"],
        hits: 0.0,
        ours: &["-a", "--profile", "-F", "999"],
        theirs: "profile:hz:999 { @[comm, pid, kstack, ustack] = count(); }",
        counted: "SELECT CAST(sum(value) AS BIGINT) FROM aggregates",
    },
];

/// One recording.
struct Outcome {
    recorder_ns: f64,
    storm_ns: f64,
    wall_ns: f64,
}

/// Every scenario with both.
pub(super) fn run(setting: &Setting) -> Result<Report> {
    require(&["root", "tracefs", "bpftrace"])?;
    let storm = traces::storm()?;
    let mut report = Report::new(setting.rounds);
    for scenario in SCENARIOS {
        say::note(scenario.title);
        let (mut alone, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..setting.rounds {
            let directory = &setting.directory;
            alone.push(record::storm_alone(&storm, &scenario.storm, directory)?);
            ours.push(sum_up(scenario, &storm, &setting.directory)?);
            theirs.push(trace(scenario, &storm, &setting.directory)?);
        }
        describe(&mut report, scenario, median(alone), &ours, &theirs);
    }
    report.note("Recorder CPU: everything the recorder and its children used, start-up, symbols and Parquet included, minus the workload's own CPU time.");
    Ok(report)
}

fn sum_up(scenario: &Scenario, storm: &Path, directory: &Path) -> Result<Outcome> {
    let output = directory.join("programs.pqt");
    let mut command = Command::new(place::bin("perfquet-record"));
    command
        .args(scenario.ours)
        .arg("--force")
        .arg("-o")
        .arg(&output);
    command.arg("--").arg(storm).args(scenario.storm);
    let outcome = outcome(&measure::run(&mut command, directory)?)?;
    let queried = Command::new(place::bin("perfquet-query"))
        .arg("sql")
        .arg(&output)
        .args([scenario.counted, "--format", "csv"])
        .output()?;
    let answer = String::from_utf8_lossy(&queried.stdout).into_owned();
    let counted = answer
        .lines()
        .nth(1)
        .and_then(|line| line.parse::<f64>().ok());
    let counted = counted.with_context(|| format!("no count in {answer:?}"))?;
    ensure!(
        counted >= scenario.hits.max(1.0),
        "{}: counted {counted} of {}",
        scenario.title,
        scenario.hits
    );
    Ok(outcome)
}

fn trace(scenario: &Scenario, storm: &Path, directory: &Path) -> Result<Outcome> {
    let libc = [
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib64/libc.so.6",
        "/lib/aarch64-linux-gnu/libc.so.6",
    ];
    let libc = libc.iter().find(|path| Path::new(path).exists());
    let program = scenario
        .theirs
        .replace("LIBC", libc.context("no libc.so.6 is known")?);
    let started = format!("{} {}", storm.display(), scenario.storm.join(" "));
    let mut command = Command::new("bpftrace");
    command.args(["-e", &program, "-c", &started]);
    outcome(&measure::run(&mut command, directory)?)
}

fn outcome(run: &Run) -> Result<Outcome> {
    let storm_ns = storm_cpu(run)?;
    Ok(Outcome {
        recorder_ns: (run.cpu.as_nanos() as f64 - storm_ns).max(0.0),
        storm_ns,
        wall_ns: run.wall.as_nanos() as f64,
    })
}

/// The workload prints its own CPU time: `storm: N ns of CPU, …`.
fn storm_cpu(run: &Run) -> Result<f64> {
    let mut lines = run.stdout.lines();
    let line = lines.find_map(|line| line.split_once("storm: "));
    line.and_then(|(_, line)| line.split(' ').next()?.parse().ok())
        .context("the workload did not say what it cost")
}

fn describe(
    report: &mut Report,
    scenario: &Scenario,
    alone: f64,
    ours: &[Outcome],
    theirs: &[Outcome],
) {
    report.scenario(scenario.title, scenario.about);
    let middle = |outcomes: &[Outcome], of: fn(&Outcome) -> f64| median(outcomes.iter().map(of));
    let per_hit = |storm_ns: f64| match scenario.hits > 0.0 {
        true => format!("{:.0}", (storm_ns - alone) / scenario.hits),
        false => "–".to_owned(),
    };
    let row = |title: &str, outcomes: &[Outcome]| {
        let storm_ns = middle(outcomes, |outcome| outcome.storm_ns);
        vec![
            title.to_owned(),
            format!(
                "{:.0}",
                middle(outcomes, |outcome| outcome.recorder_ns) / 1e6
            ),
            format!("{:.0}", storm_ns / 1e6),
            per_hit(storm_ns),
            format!("{:.1}", middle(outcomes, |outcome| outcome.wall_ns) / 1e9),
        ]
    };
    let nothing = || "–".to_owned();
    report.table(
        &[
            "recorder",
            "recorder CPU ms",
            "program CPU ms",
            "the same, ns more per hit",
            "wall s",
        ],
        &[
            vec![
                "no recorder".to_owned(),
                nothing(),
                format!("{:.0}", alone / 1e6),
                nothing(),
                nothing(),
            ],
            row("bpftrace", theirs),
            row("perfquet-record", ours),
        ],
    );
    let ratio = |of: fn(&Outcome) -> f64| middle(ours, of) / middle(theirs, of);
    report.budget(
        "recorder CPU against bpftrace",
        ratio(|outcome| outcome.recorder_ns),
        1.0,
    );
    // A tenth is the noise of a shared host.
    report.budget(
        "CPU of the program against that under bpftrace",
        ratio(|outcome| outcome.storm_ns),
        1.1,
    );
}
