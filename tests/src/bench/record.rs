//! Recording compared with `perf record`: cost of the recorder per event, losses, overhead of the traced program.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::measure::{self, Run, median};
use super::report::Report;
use super::{Setting, require, traces};
use crate::{place, say};

/// The recorded events, and the workload.
struct Scenario {
    title: &'static str,
    about: &'static str,
    events: &'static [&'static str],
    storm: [&'static str; 2],
    /// Repetitions of the workload; its CPU time is reported per repetition.
    repetitions: f64,
    /// Recorder CPU per stored event, raw against `perf record`, and with Parquet against `perf record -z`.
    budget: f64,
    parquet_budget: Option<f64>,
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        title: "Syscall storm",
        about: "`-a -e syscalls:sys_enter_write -e syscalls:sys_enter_read` while one thread reads and writes single bytes, 500 000 times each.",
        events: &[
            "-e",
            "syscalls:sys_enter_write",
            "-e",
            "syscalls:sys_enter_read",
        ],
        storm: ["syscalls", "500000"],
        repetitions: 500_000.0,
        budget: 0.12,
        parquet_budget: Some(0.25),
    },
    Scenario {
        title: "Stacks at 4 kHz",
        about: "`-a -g -F 4000 -e cpu-clock` during three seconds of work in forty nested calls.",
        events: &["-g", "-F", "4000", "-e", "cpu-clock"],
        storm: ["stacks", "3000"],
        repetitions: 1.0,
        budget: 1.0,
        parquet_budget: None,
    },
    Scenario {
        title: "Scheduler storm",
        about: "`-a -e sched:sched_switch -e sched:sched_wakeup` while two threads pass a byte, 100 000 round trips.",
        events: &["-e", "sched:sched_switch", "-e", "sched:sched_wakeup"],
        storm: ["switches", "100000"],
        repetitions: 100_000.0,
        budget: 1.0,
        parquet_budget: None,
    },
];

/// The recorder.
#[derive(Clone, Copy)]
struct Recorder {
    title: &'static str,
    program: &'static str,
    options: &'static [&'static str],
    extension: &'static str,
}

const RECORDERS: &[Recorder] = &[
    Recorder {
        title: "perf record",
        program: "perf",
        options: &["record", "-q", "-a"],
        extension: "perf.data",
    },
    Recorder {
        title: "perf record -z",
        program: "perf",
        options: &["record", "-q", "-a", "-z"],
        extension: "perf.z.data",
    },
    Recorder {
        title: "perfquet-record, raw (`--format perf.data`)",
        program: "perfquet-record",
        options: &["-a", "--force", "--format", "perf.data"],
        extension: "pq.data",
    },
    Recorder {
        title: "perfquet-record, with Parquet",
        program: "perfquet-record",
        options: &["-a", "--force"],
        extension: "pqt",
    },
];

/// One recording.
struct Outcome {
    recorder_ns: f64,
    storm_ns: f64,
    stored: f64,
    lost: f64,
    bytes: f64,
}

/// Every scenario with every recorder.
pub(super) fn run(setting: &Setting) -> Result<Report> {
    require(&["perf", "perf events", "tracefs"])?;
    let storm = traces::storm()?;
    let mut report = Report::new(setting.rounds);
    for scenario in SCENARIOS {
        say::note(scenario.title);
        let mut alone = Vec::new();
        let mut outcomes: Vec<Vec<Outcome>> = RECORDERS.iter().map(|_| Vec::new()).collect();
        for _ in 0..setting.rounds {
            alone.push(storm_alone(&storm, &scenario.storm, &setting.directory)?);
            for (recorder, outcomes) in RECORDERS.iter().zip(&mut outcomes) {
                outcomes.push(record(recorder, scenario, &storm, &setting.directory)?);
            }
        }
        describe(&mut report, scenario, median(alone), &outcomes);
    }
    report.note("Recorder CPU: everything the recorder and its children used, start-up included, minus the workload's own CPU time.");
    report.note("Lost: events that the kernel reports as lost (PERF_RECORD_LOST, LOST_SAMPLES, PERF_FORMAT_LOST), summed over all events.");
    Ok(report)
}

fn record(
    recorder: &Recorder,
    scenario: &Scenario,
    storm: &Path,
    directory: &Path,
) -> Result<Outcome> {
    let output = directory.join(format!("storm.{}", recorder.extension));
    let program = if recorder.program == "perf" {
        "perf".into()
    } else {
        place::bin(recorder.program)
    };
    let mut command = Command::new(program);
    command
        .args(recorder.options)
        .args(scenario.events)
        .arg("-o")
        .arg(&output);
    command.arg("--").arg(storm).args(scenario.storm);
    let run = measure::run(&mut command, directory)?;
    let storm_ns = storm_cpu(&run)?;
    let trace = if output.is_dir() {
        output.clone()
    } else {
        traces::import(&output, directory)?
    };
    Ok(Outcome {
        recorder_ns: (run.cpu.as_nanos() as f64 - storm_ns).max(0.0),
        storm_ns,
        stored: traces::events(&trace)? as f64,
        lost: traces::lost(&trace, directory)? as f64,
        bytes: traces::bytes(&output)? as f64,
    })
}

/// The CPU time of the workload without a recorder, in nanoseconds.
pub(super) fn storm_alone(storm: &Path, arguments: &[&str], directory: &Path) -> Result<f64> {
    storm_cpu(&measure::run(
        Command::new(storm).args(arguments),
        directory,
    )?)
}

/// The workload prints its own CPU time: `storm: N ns of CPU, …`.
fn storm_cpu(run: &Run) -> Result<f64> {
    let line = run
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("storm: "));
    line.and_then(|line| line.split(' ').next()?.parse().ok())
        .context("the workload did not say what it cost")
}

fn describe(report: &mut Report, scenario: &Scenario, alone: f64, outcomes: &[Vec<Outcome>]) {
    report.scenario(scenario.title, scenario.about);
    let middle = |outcomes: &[Outcome], of: fn(&Outcome) -> f64| median(outcomes.iter().map(of));
    let per_event = |outcomes: &[Outcome]| {
        median(
            outcomes
                .iter()
                .map(|outcome| outcome.recorder_ns / outcome.stored.max(1.0)),
        )
    };
    let mut rows = vec![vec![
        "no recorder".to_owned(),
        "–".into(),
        "–".into(),
        "–".into(),
        "–".into(),
        format!("{:.0}", alone / scenario.repetitions),
        "–".into(),
    ]];
    for (recorder, outcomes) in RECORDERS.iter().zip(outcomes) {
        let worst = outcomes
            .iter()
            .map(|outcome| outcome.lost)
            .fold(0.0, f64::max);
        rows.push(vec![
            recorder.title.to_owned(),
            format!(
                "{:.0}",
                middle(outcomes, |outcome| outcome.recorder_ns) / 1e6
            ),
            format!("{:.0}", per_event(outcomes)),
            format!("{:.0}", middle(outcomes, |outcome| outcome.stored)),
            format!(
                "{:.0} / {worst:.0}",
                middle(outcomes, |outcome| outcome.lost)
            ),
            format!(
                "{:.0}",
                middle(outcomes, |outcome| outcome.storm_ns) / scenario.repetitions
            ),
            format!("{:.1}", middle(outcomes, |outcome| outcome.bytes) / 1e6),
        ]);
    }
    report.table(
        &[
            "recorder",
            "recorder CPU ms",
            "ns per stored event",
            "events stored",
            "lost: median / worst",
            "program CPU ns per repetition",
            "MB",
        ],
        &rows,
    );
    let [perf, perf_z, raw, parquet] = outcomes else {
        return;
    };
    report.budget(
        "recorder CPU per event, raw, against perf record",
        per_event(raw) / per_event(perf),
        scenario.budget,
    );
    let what = "recorder CPU per event, with Parquet, against perf record -z";
    let ratio = per_event(parquet) / per_event(perf_z);
    match scenario.parquet_budget {
        Some(budget) => report.budget(what, ratio, budget),
        None => report.note(&format!("{what}: {ratio:.3}")),
    }
    report.note(&format!(
        "the same per recording, with the events that perf's own writes cause: {:.3}",
        middle(parquet, |outcome| outcome.recorder_ns)
            / middle(perf_z, |outcome| outcome.recorder_ns)
    ));
    report.budget(
        "events lost, worst round, as a share",
        raw.iter()
            .chain(parquet)
            .map(|outcome| outcome.lost / (outcome.lost + outcome.stored).max(1.0))
            .fold(0.0, f64::max),
        0.0,
    );
    let slowdown = |outcomes: &[Outcome]| middle(outcomes, |outcome| outcome.storm_ns) / alone;
    // A tenth is the noise of a shared host.
    report.budget(
        "slowdown of the program against that under perf record",
        slowdown(raw) / slowdown(perf),
        1.1,
    );
}
