//! The overhead of being observed: a program's own CPU time alone, and under each recorder.
//!
//! Two workloads: `dd` with blocks of 4 KiB, and a storm of single bytes. Four kinds of observation: a tracepoint, a
//! uprobe, a tracepoint with stacks, a kernel function with its duration. Each observes the same location in every
//! recorder, hit once per `write`. Cases that require kprobes or trace-cmd run in a virtual machine of `cargo xtask
//! vm`, whose clock counts instructions: these figures do not depend on this host, and ignore caches. The others are
//! measured here too.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::measure::median;
use super::report::Report;
use super::significance::{LEVEL, p_value};
use super::{Setting, Skipped, require, traces};
use crate::{place, say, vm};

/// A kind of observation.
struct Way {
    title: &'static str,
    about: &'static str,
    /// Defines the probe for perf and trace-cmd.
    before: &'static str,
    after: &'static str,
    /// Recorder and command, which runs `bash work.sh`.
    recorders: [(&'static str, &'static str); 4],
    /// Whether it is possible on a kernel without kprobes.
    is_for_host: bool,
}

const WAYS: &[Way] = &[
    Way {
        title: "tracepoint",
        about: "`syscalls:sys_enter_write`; bpftrace counts, the others store each hit",
        before: "true",
        after: "true",
        recorders: [
            (
                "perfquet",
                "perfquet-record --force -o p.pqt -e syscalls:sys_enter_write -- bash work.sh",
            ),
            (
                "perf",
                "perf record -q -B -N -o p.data -e syscalls:sys_enter_write -- bash work.sh",
            ),
            (
                "bpftrace",
                "bpftrace -e 'tracepoint:syscalls:sys_enter_write { @ = count(); }' -c '/bin/bash work.sh'",
            ),
            (
                "trace-cmd",
                "trace-cmd record -q -o p.dat -e syscalls:sys_enter_write bash work.sh",
            ),
        ],
        is_for_host: true,
    },
    Way {
        title: "uprobe",
        about: "`write` of libc; bpftrace counts",
        before: "perf probe -q --del 'pqb:*' 2> /dev/null; perf probe -q -x $LIBC --add pqb:hit=write",
        after: "perf probe -q --del 'pqb:*'",
        recorders: [
            (
                "perfquet",
                "perfquet-record --force -o p.pqt --uprobe $LIBC:write -- bash work.sh",
            ),
            (
                "perf",
                "perf record -q -B -N -o p.data -e pqb:hit -- bash work.sh",
            ),
            (
                "bpftrace",
                "bpftrace -e 'uprobe:'$LIBC':write { @ = count(); }' -c '/bin/bash work.sh'",
            ),
            (
                "trace-cmd",
                "trace-cmd record -q -o p.dat -e pqb:hit bash work.sh",
            ),
        ],
        is_for_host: true,
    },
    Way {
        title: "stack",
        about: "the tracepoint with kernel and user stacks; trace-cmd has kernel stacks only, bpftrace counts the stacks",
        before: "true",
        after: "true",
        recorders: [
            (
                "perfquet",
                "perfquet-record --force -g -o p.pqt -e syscalls:sys_enter_write -- bash work.sh",
            ),
            (
                "perf",
                "perf record -q -g -B -N -o p.data -e syscalls:sys_enter_write -- bash work.sh",
            ),
            (
                "bpftrace",
                "bpftrace -e 'tracepoint:syscalls:sys_enter_write { @[kstack, ustack] = count(); }' -c '/bin/bash work.sh'",
            ),
            (
                "trace-cmd",
                "trace-cmd record -q -T -o p.dat -e syscalls:sys_enter_write bash work.sh",
            ),
        ],
        is_for_host: true,
    },
    Way {
        title: "call",
        about: "entry and return of `ksys_write`; bpftrace makes a histogram of the durations, trace-cmd has function_graph of depth 1",
        before: "perf probe -q --add pqb:entry_hit=ksys_write && perf probe -q --add pqb:exit_hit=ksys_write%return",
        after: "perf probe -q --del 'pqb:*'",
        recorders: [
            (
                "perfquet",
                "perfquet-record --force -o p.pqt --call ksys_write -- bash work.sh",
            ),
            (
                "perf",
                "perf record -q -B -N -o p.data -e 'pqb:*' -- bash work.sh",
            ),
            (
                "bpftrace",
                "bpftrace -e 'kprobe:ksys_write { @at[tid] = nsecs; } kretprobe:ksys_write /@at[tid]/ \
                 { @ = hist(nsecs - @at[tid]); delete(@at[tid]); }' -c '/bin/bash work.sh'",
            ),
            (
                "trace-cmd",
                "trace-cmd record -q -o p.dat -p function_graph -g ksys_write --max-graph-depth 1 bash work.sh",
            ),
        ],
        is_for_host: false,
    },
];

const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";
const WORKLOADS: [&str; 2] = ["dd", "storm"];
const BARE: &str = "bare";
/// Linux version in the virtual machine.
const KERNEL: &str = "6.12";
/// Number of writes of each workload: here, and in the virtual machine.
const HOST_WRITES: u32 = 200_000;
const MACHINE_WRITES: u32 = 10_000;

/// CPU time of one workload in one run, as reported to its parent.
struct Time {
    way: String,
    recorder: String,
    workload: String,
    ms: f64,
}

/// Both parts.
pub(super) fn run(setting: &Setting) -> Result<Report> {
    require(&["perf", "root", "tracefs"])?;
    let storm = traces::storm()?;
    let mut report = Report::new(setting.rounds);
    say::note("here");
    let has_bpftrace = say::has("bpftrace");
    let recorders: Vec<&str> = ["perfquet", "perf", "bpftrace"]
        .into_iter()
        .filter(|name| *name != "bpftrace" || has_bpftrace)
        .collect();
    let directory = setting.directory.join("probe-effect");
    std::fs::create_dir_all(&directory)?;
    let ways: Vec<&Way> = WAYS.iter().filter(|way| way.is_for_host).collect();
    let times = on_host(&ways, &recorders, &storm, &directory, setting.rounds)?;
    describe(
        &mut report,
        "On this host",
        HOST_WRITES,
        &ways,
        &recorders,
        &times,
    );
    say::note(&format!("in a machine with Linux {KERNEL}"));
    let recorders = ["perfquet", "perf", "bpftrace", "trace-cmd"];
    let ways: Vec<&Way> = WAYS.iter().collect();
    match in_machine(&ways, &recorders, &storm, setting.rounds) {
        Ok(times) => {
            let title =
                format!("In an emulated machine, Linux {KERNEL}: instructions, at 2 ns each");
            describe(
                &mut report,
                &title,
                MACHINE_WRITES,
                &ways,
                &recorders,
                &times,
            );
        }
        Err(error) => report.note(&format!("no machine: {error:#}")),
    }
    report.note("CPU time of the workload alone, user and system, as reported to its parent; each cell: ratio to bare, nanoseconds added per write, p.");
    report
        .note("perf runs without its build ID cache (`-B -N`), which it fills after the workload.");
    report.note(&format!(
        "p: exact rank-sum test (Mann and Whitney) of the rounds against bare; above {LEVEL} it counts as no effect."
    ));
    for way in WAYS {
        report.note(&format!("{}: {}.", way.title, way.about));
    }
    Ok(report)
}

/// The script run by every recorder; the label is in the environment, the times go to a separate file.
fn work(writes: u32) -> String {
    format!(
        "TIMEFORMAT='%3U %3S'\n\
         measure() {{ name=$1; shift; spent=$({{ time \"$@\" > /dev/null 2>&1 || echo failed; }} 2>&1); echo \"$LABEL $name\" $spent >> times; }}\n\
         measure dd dd if=/dev/zero of=/dev/null bs=4k count={writes}\n\
         measure storm ./storm syscalls {writes}\n"
    )
}

/// One round: every kind of observation, alone and under every recorder.
fn round(ways: &[&Way], recorders: &[&str]) -> Vec<String> {
    let mut commands = Vec::new();
    for way in ways {
        let title = way.title;
        commands.push(format!("LIBC={LIBC}; {}", way.before));
        commands.push(format!("export LABEL='{title} {BARE}'; bash work.sh"));
        for (name, command) in &way.recorders {
            if recorders.contains(name) {
                commands.push(format!(
                    "LIBC={LIBC}; export LABEL='{title} {name}'; {command} > output 2>&1 || {{ cat output; exit 1; }}"
                ));
            }
        }
        commands.push(format!("LIBC={LIBC}; {}; rm -rf p.*", way.after));
    }
    commands
}

fn on_host(
    ways: &[&Way],
    recorders: &[&str],
    storm: &Path,
    directory: &Path,
    rounds: usize,
) -> Result<Vec<Time>> {
    std::fs::write(directory.join("work.sh"), work(HOST_WRITES))?;
    std::fs::copy(storm, directory.join("storm"))?;
    let _ = std::fs::remove_file(directory.join("times"));
    let recorder = place::bin("perfquet-record");
    let path = format!(
        "{}:{}",
        recorder.parent().unwrap_or(Path::new("")).display(),
        std::env::var("PATH").unwrap_or_default()
    );
    for _ in 0..rounds {
        for command in round(ways, recorders) {
            let output = Command::new("bash")
                .args(["-c", &command])
                .current_dir(directory)
                .env("PATH", &path)
                .stdin(Stdio::null())
                .output()?;
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text).into_owned();
            ensure!(output.status.success(), "{command}: {text}");
        }
    }
    times(directory)
}

fn in_machine(ways: &[&Way], recorders: &[&str], storm: &Path, rounds: usize) -> Result<Vec<Time>> {
    if let Some(program) = recorders[1..].iter().find(|name| !say::has(name)) {
        return Err(Skipped(format!("needs {program}")).into());
    }
    let files = vec![
        ("work.sh".to_owned(), work(MACHINE_WRITES).into_bytes()),
        ("storm".to_owned(), std::fs::read(storm)?),
    ];
    let commands: Vec<String> = (0..rounds).flat_map(|_| round(ways, recorders)).collect();
    let job = vm::Job {
        name: "probe-effect".to_owned(),
        programs: ["dd", "perf", "bpftrace", "trace-cmd"]
            .map(str::to_owned)
            .to_vec(),
        files,
        commands,
        clock: vm::Clock::Instructions { cpus: 1 },
    };
    let done = vm::run_job(&job, KERNEL, Some(&place::bin("perfquet-record")))?;
    for (command, (status, output)) in job.commands.iter().zip(&done.results) {
        ensure!(*status == 0, "{command}: status {status}: {output}");
    }
    times(&done.directory)
}

/// `tracepoint perf dd 0.020 0.134`
fn times(directory: &Path) -> Result<Vec<Time>> {
    let path = directory.join("times");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let time = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [way, recorder, workload, user, system] = words[..] else {
            return None;
        };
        let seconds = user.parse::<f64>().ok()? + system.parse::<f64>().ok()?;
        Some(Time {
            way: way.to_owned(),
            recorder: recorder.to_owned(),
            workload: workload.to_owned(),
            ms: seconds * 1000.0,
        })
    };
    text.lines()
        .map(|line| time(line).with_context(|| format!("a workload failed: {line:?}")))
        .collect()
}

fn describe(
    report: &mut Report,
    title: &str,
    writes: u32,
    ways: &[&Way],
    recorders: &[&str],
    times: &[Time],
) {
    report.scenario(title, &format!("Each workload writes {writes} times."));
    let of = |way: &Way, recorder: &str, workload: &str| -> Vec<f64> {
        let fits = |time: &&Time| {
            time.way == way.title && time.recorder == recorder && time.workload == workload
        };
        times.iter().filter(fits).map(|time| time.ms).collect()
    };
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    for way in ways {
        for workload in WORKLOADS {
            let bare = of(way, BARE, workload);
            let base = median(bare.iter().copied());
            let mut row = vec![
                way.title.to_owned(),
                workload.to_owned(),
                format!("{base:.0}"),
            ];
            for recorder in recorders {
                row.push(effect(&bare, &of(way, recorder, workload), writes));
            }
            rows.push(row);
            let (ours, perfs) = (of(way, "perfquet", workload), of(way, "perf", workload));
            let ratio = median(ours.iter().copied()) / median(perfs.iter().copied());
            let p = p_value(&ours, &perfs);
            notes.push(format!("{} {workload} {ratio:.3} (p {p:.3})", way.title));
        }
    }
    let mut heading = vec!["way", "workload", "bare ms"];
    heading.extend(recorders);
    report.table(&heading, &rows);
    report.note(&format!(
        "CPU time under perfquet against that under perf: {}",
        notes.join(", ")
    ));
}

/// `1.16×, +530 ns, p 0.008`, or a note that it is missing.
fn effect(bare: &[f64], observed: &[f64], writes: u32) -> String {
    if observed.is_empty() {
        return "–".to_owned();
    }
    let (base, with) = (
        median(bare.iter().copied()),
        median(observed.iter().copied()),
    );
    let p = p_value(bare, observed);
    let added_ns = (with - base) * 1e6 / f64::from(writes);
    match p <= LEVEL {
        true => format!("{:.2}×, {added_ns:+.0} ns, p {p:.3}", with / base),
        false => format!("none shown ({:.2}×, p {p:.3})", with / base),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_or_none() {
        let bare = [10.0, 10.1, 10.2, 10.3, 10.4];
        let slower = [12.0, 12.1, 12.2, 12.3, 12.4];
        assert_eq!(effect(&bare, &slower, 1000), "1.20×, +2000 ns, p 0.008");
        assert_eq!(effect(&bare, &bare, 1000), "none shown (1.00×, p 1.000)");
        assert_eq!(effect(&bare, &[], 1000), "–");
    }

    #[test]
    fn a_round_has_every_recorder_once() {
        let ways: Vec<&Way> = WAYS.iter().collect();
        let commands = round(&ways, &["perfquet", "trace-cmd"]);
        assert_eq!(commands.len(), WAYS.len() * 5);
        assert!(
            commands
                .iter()
                .all(|command| !command.contains("perf record"))
        );
    }

    #[test]
    fn work_reports_the_time_of_its_parts() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("work.sh"), work(10)).unwrap();
        // Any command that takes two arguments.
        std::os::unix::fs::symlink("/bin/echo", directory.path().join("storm")).unwrap();
        let run = || {
            let status = Command::new("bash")
                .arg("work.sh")
                .current_dir(directory.path())
                .env("LABEL", "way recorder")
                .status()
                .unwrap();
            assert!(status.success());
        };
        run();
        let times = times(directory.path()).unwrap();
        let labels: Vec<&str> = times.iter().map(|time| time.workload.as_str()).collect();
        assert_eq!(labels, WORKLOADS);
        assert!(
            times
                .iter()
                .all(|time| time.ms >= 0.0 && time.recorder == "recorder")
        );
        // A workload that fails has no time.
        std::fs::remove_file(directory.path().join("storm")).unwrap();
        std::fs::write(directory.path().join("storm"), "not a program").unwrap();
        run();
        let error = super::times(directory.path()).err().unwrap();
        assert!(error.to_string().contains(" failed\""), "{error}");
    }
}
