//! `--dry-run`, and mistakes on the command line: nothing is changed.

mod room;

use std::fs;
use std::os::unix::process::CommandExt;

use room::{NOBODY, Room, may_record, needs};

/// Probes of all users.
fn probes() -> String {
    fs::read_to_string("/sys/kernel/tracing/dynamic_events").unwrap_or_default()
}

/// Options, and what the plan says of them.
const PLANS: &[(&[&str], &[&str])] = &[
    (
        &["-g", "--", "true"],
        &[
            "command     true",
            "997 samples per second",
            "kernel and user, whole",
        ],
    ),
    (
        &["-a", "-e", "sched:sched_switch", "--filter", "prev_pid > 0"],
        &[
            "sched:sched_switch: every hit, filter prev_pid > 0",
            "root for all processes, tracepoints",
        ],
    ),
    (
        &["-e", "{cpu-clock,page-faults}:S", "-F", "99", "--", "true"],
        &["event       cpu-clock, page-faults: 99 samples per second"],
    ),
    (
        &["-e", "page-faults", "-c", "7", "--", "true"],
        &["page-faults: every 7"],
    ),
    (
        &["--uprobe", "libc.so.6:malloc", "--", "true"],
        &["probe       probe_libc:malloc: p /"],
    ),
    (
        &["-a", "--profile", "--off-cpu", "--duration", "5s"],
        &[
            "aggregation profile: ",
            "aggregation off-cpu: ",
            "end         after 5s, on Ctrl-C",
        ],
    ),
    (
        &["-e", "sched:sched_switch", "--agg", "count() by comm", "-a"],
        &["aggregation sched:sched_switch: count() by comm"],
    ),
    (
        &["--stat", "task-clock", "--", "true"],
        &["counter     task-clock"],
    ),
    (
        &["-a", "--rotate", "10m", "-o", "ring"],
        &["output      ring, a directory of traces"],
    ),
    (
        &[
            "-a",
            "--keep",
            "1G",
            "--publish",
            "s3://b/lake",
            "--backlog",
            "2G",
        ],
        &["publish     each complete trace to the lake s3://b/lake, backlog up to 2048 MiB"],
    ),
    (
        &["-a", "--ring", "10s"],
        &["ring        only the last events are kept"],
    ),
    (
        &["-e", "syscalls:sys_enter_*", "-a"],
        &["event       and ", " more: every hit"],
    ),
];

#[test]
fn a_plan_changes_nothing() {
    if !may_record() || !needs::met(&["uprobes"]) {
        return;
    }
    let room = Room::new();
    let before = probes();
    for (options, expected) in PLANS {
        let mut command = room.recorder();
        let output = command.arg("--dry-run").args(*options).output();
        let output = output.expect("the recorder runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{options:?}: {errors}");
        for part in *expected {
            assert!(text.contains(part), "{options:?}: no {part:?} in\n{text}");
        }
    }
    assert_eq!(probes(), before);
    let made: Vec<_> = fs::read_dir(room.path("")).expect("a directory").collect();
    assert!(made.is_empty(), "{made:?}");
}

/// What a row of the table of exclusions names, and words that ask for it.
const WORDS: &[(&str, &str)] = &[
    ("--delay or --control", "--delay 1s"),
    ("--force", "--force"),
    ("--format perf.data", "--format perf.data"),
    (
        "--function, --function-graph or --kfi-config",
        "--function vfs_*",
    ),
    ("--keep-code", "--keep-code"),
    ("--live", "--live"),
    ("--live, of samples", "--live"),
    ("--max-cpu", "--max-cpu 5"),
    ("--max-events", "--max-events 9"),
    ("--no-inherit", "--no-inherit"),
    ("--ring", "--ring 5s"),
    ("--rotate", "--rotate 5s"),
    ("--start-on or --stop-on", "--start-on time:1s"),
    ("--stat", "--stat"),
    ("a command", "true"),
    ("a group {A,B}:S", "-e {cpu-clock,page-faults}:S"),
    ("in-kernel aggregation", "--profile"),
];

/// Every pair of docs/recording.md, with a probe in front: the kernel would not let this user define it, and is not asked.
#[test]
fn every_pair_that_is_excluded_is_found_before_probes_are_defined() {
    if !may_record() || !needs::met(&["uprobes"]) {
        return;
    }
    let docs = include_str!("../../docs/recording.md");
    let table = docs
        .split("| option | cannot be combined with |")
        .nth(1)
        .expect("the table");
    let words = |name: &str| {
        let known = WORDS.iter().find(|(known, _)| *known == name);
        known.unwrap_or_else(|| panic!("no words for {name:?}")).1
    };
    let room = Room::new();
    let program = room.give_to(NOBODY);
    let mut pairs = 0;
    for row in table.lines().skip(2).take_while(|row| row.starts_with('|')) {
        let cells: Vec<String> = row
            .split('|')
            .map(|cell| cell.trim().replace('`', ""))
            .collect();
        for other in cells[2].split("; ") {
            // A command comes last.
            let mut options = [words(&cells[1]), words(other)];
            options.sort_by_key(|words| *words == "true");
            let mut command = std::process::Command::new(&program);
            command
                .current_dir(room.path(""))
                .args(["-a", "--uprobe", "libc.so.6:malloc"])
                .args(options.iter().flat_map(|words| words.split(' ')))
                .uid(NOBODY)
                .gid(NOBODY);
            let (status, stderr) = room::ended(command.output().expect("the recorder runs"));
            assert_eq!(status, Some(2), "{options:?}: {stderr}");
            assert!(
                stderr.contains(" cannot be combined with "),
                "{options:?}: {stderr}"
            );
            pairs += 1;
        }
    }
    assert!(pairs >= 27, "{pairs} pairs");
}

/// The kernel would not let this user define the probe: the mistake is found first.
#[test]
fn mistakes_are_found_before_probes_are_defined() {
    if !may_record() || !needs::met(&["uprobes"]) {
        return;
    }
    let room = Room::new();
    let program = room.give_to(NOBODY);
    let mistakes: &[(&[&str], &str)] = &[
        (
            &["--stat", "--ring", "10s", "--", "true"],
            "--stat cannot be combined with --ring",
        ),
        (
            &["--ring", "5s", "--max-events", "3", "--", "true"],
            "cannot be combined with --max-events",
        ),
        (&["--every", "1s", "--", "true"], "--every: requires"),
        (&["--max-cpu", "5", "--", "true"], "--max-cpu: requires"),
        (
            &["-c", "100", "--", "true"],
            "-c: applies only to counters and clocks",
        ),
        (&["-C", "4096", "--", "true"], "CPU 4096 is not online"),
        (
            &["-F", "100000000", "--", "true"],
            "-F 100000000: the kernel allows",
        ),
        (&["-e", "cpu-clok", "--", "true"], "no event cpu-clok"),
        (
            &["-e", "cpu-clock", "--filter", "a > 1", "--", "true"],
            "is not a tracepoint",
        ),
        (&["-d", "--", "true"], "require a counter or clock"),
        (&["-o", ".", "--", "true"], "exists"),
    ];
    for (options, expected) in mistakes {
        let mut command = std::process::Command::new(&program);
        command
            .current_dir(room.path(""))
            .args(["--uprobe", "libc.so.6:malloc"]);
        let output = command.args(*options).uid(NOBODY).gid(NOBODY).output();
        let (status, stderr) = room::ended(output.expect("the recorder runs"));
        assert!(matches!(status, Some(1 | 2)), "{options:?}: {stderr}");
        assert!(stderr.contains(expected), "{options:?}: {stderr}");
    }
}

/// The kernel lists and opens them, but they never have a hit.
#[test]
fn events_that_only_ftrace_sees_are_refused() {
    if !may_record() || !needs::met(&["root", "tracefs"]) {
        return;
    }
    let room = Room::new();
    for option in ["-e", "--stat"] {
        let mut command = room.recorder();
        command.args([option, "ftrace:print", "--", "true"]);
        let (status, stderr) = room::ended(command.output().expect("the recorder runs"));
        assert_eq!(status, Some(2), "{option}: {stderr}");
        let expected = "cannot record ftrace:print: the kernel passes it to ftrace only";
        assert!(stderr.contains(expected), "{option}: {stderr}");
    }
    let output = room.recorder().args(["--list", "ftrace:*"]).output();
    let listed = String::from_utf8(output.expect("the recorder runs").stdout).expect("text");
    assert!(!listed.contains("ftrace:print"), "{listed}");
}
