//! `--format perf.data`: perf and perfquet read the file alike.

mod room;
mod seen;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use room::{Room, ended, may_record};

/// Returns perf's output; `None`, with a message, without perf.
fn perf(room: &Room, arguments: &[&str]) -> Option<Output> {
    let output = Command::new("perf")
        .args(arguments)
        .current_dir(room.path(""))
        .stdin(Stdio::null())
        .output();
    if output.is_err() {
        eprintln!("skipped: needs perf");
    }
    output.ok()
}

/// Runs the recorder.
fn run(room: &Room, arguments: &[&str]) -> (Option<i32>, String) {
    let output = room.recorder().args(arguments).output();
    ended(output.expect("the recorder runs"))
}

/// In perfquet, the system is a separate field.
fn short(event: &str) -> &str {
    event.rsplit(':').next().unwrap_or(event)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Records switches, a clock and system calls of a busy shell into p.data.
fn recorded(room: &Room) {
    let script = "for i in $(seq 60); do /bin/true; done";
    let (status, stderr) = run(
        room,
        &[
            "-o",
            "p.data",
            "--format",
            "perf.data",
            "-a",
            "-g",
            "-F",
            "997",
            "-e",
            "cpu-clock",
            "-e",
            "sched:sched_switch,sched:sched_wakeup*,sched:sched_process_*",
            "-e",
            "raw_syscalls:sys_enter",
            "--",
            "sh",
            "-c",
            script,
        ],
    );
    assert_eq!(status, Some(0), "{stderr}");
    assert!(stderr.contains("next: perf report -i p.data"), "{stderr}");
}

/// Whether the file's header is that of a file, not of a pipe.
fn is_file(path: &Path) -> bool {
    let bytes = fs::read(path).expect("the recording");
    bytes.get(8..16) == Some(&104u64.to_ne_bytes())
}

#[test]
fn perf_and_perfquet_count_the_same_events() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    recorded(&room);
    let path = room.path("p.data");
    assert!(is_file(&path));
    let ours = seen::read(&path);
    assert!(ours.problems.is_empty(), "{:?}", ours.problems);
    assert!(ours.is_in_order);
    let Some(script) = perf(&room, &["script", "-i", "p.data", "-F", "event"]) else {
        return;
    };
    let (lines, complaints) = (text(&script.stdout), text(&script.stderr));
    assert!(
        script.status.success() && !complaints.contains("out of order"),
        "{complaints}"
    );
    let events = [
        "cpu-clock",
        "sched:sched_switch",
        "sched:sched_wakeup",
        "raw_syscalls:sys_enter",
    ];
    for event in events {
        let count = lines
            .lines()
            .filter(|line| line.trim().trim_end_matches(':') == event)
            .count();
        assert!(count > 0, "{event}: {complaints}");
        assert_eq!(count as u64, ours.count(short(event)), "{event}");
    }
    // The counts of perf report.
    let report = perf(
        &room,
        &[
            "report", "-i", "p.data", "--stdio", "-g", "none", "-s", "comm", "-n",
        ],
    );
    let report = text(&report.expect("perf is there").stdout);
    for event in events {
        let head = report
            .lines()
            .skip_while(|line| !line.contains(&format!("of event '{event}'")));
        let rows = head
            .skip(1)
            .skip_while(|line| line.starts_with('#') || line.is_empty());
        let counts = rows.take_while(|line| !line.trim().is_empty() && !line.starts_with('#'));
        let samples: u64 = counts
            .filter_map(|line| {
                line.split_whitespace()
                    .find_map(|word| word.parse::<u64>().ok())
            })
            .sum();
        assert_eq!(samples, ours.count(short(event)), "{event}: {report}");
    }
}

#[test]
fn perf_sched_reads_the_file_and_features_are_present() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    recorded(&room);
    let Some(timehist) = perf(&room, &["sched", "timehist", "-i", "p.data"]) else {
        return;
    };
    let (rows, complaints) = (text(&timehist.stdout), text(&timehist.stderr));
    assert!(timehist.status.success(), "{complaints}");
    assert!(
        rows.lines()
            .filter(|line| line.contains(" sh[") || line.contains(" true["))
            .count()
            > 10,
        "{rows}\n{complaints}"
    );
    assert!(!complaints.contains("callchains"), "{complaints}");
    let latency = perf(&room, &["sched", "latency", "-i", "p.data"]).expect("perf is there");
    assert!(
        latency.status.success() && text(&latency.stdout).contains("TOTAL:"),
        "{}",
        text(&latency.stderr)
    );
    let header = perf(&room, &["report", "-i", "p.data", "--header-only"]).expect("perf is there");
    let header = text(&header.stdout);
    for feature in [
        "# hostname : ",
        "# os release : ",
        "# arch : ",
        "# nrcpus online : ",
        "# cmdline : ",
        "# event : name = cpu-clock",
        "# event : name = sched:sched_switch",
        "# time of first sample : ",
    ] {
        assert!(header.contains(feature), "{feature}: {header}");
    }
    let missing = header
        .lines()
        .find(|line| line.starts_with("# missing features:"))
        .unwrap_or_default();
    for feature in [
        "TRACING_DATA",
        "BUILD_ID",
        "EVENT_DESC",
        "SAMPLE_TIME",
        "HOSTNAME",
        "CMDLINE",
        "NRCPUS",
    ] {
        assert!(!missing.contains(feature), "{missing}");
    }
    let list = perf(&room, &["buildid-list", "-i", "p.data"]).expect("perf is there");
    assert!(
        text(&list.stdout)
            .lines()
            .any(|line| line.contains("libc.so")),
        "{}",
        text(&list.stdout)
    );
}

#[test]
fn perf_lock_reads_contention() {
    let has_events = Path::new("/sys/kernel/tracing/events/lock/contention_begin").exists();
    if !may_record() || !has_events {
        eprintln!("skipped: needs lock:contention_begin");
        return;
    }
    let room = Room::new();
    let (status, stderr) = run(
        &room,
        &[
            "-o",
            "l.data",
            "--format",
            "perf.data",
            "-a",
            "-g",
            "-e",
            "lock:contention_begin,lock:contention_end",
            "--",
            "sh",
            "-c",
            "for i in 1 2 3 4; do (seq 20000 > /dev/null; find /proc/self > /dev/null) & done; wait",
        ],
    );
    assert_eq!(status, Some(0), "{stderr}");
    let ours = seen::read(&room.path("l.data"));
    let Some(script) = perf(&room, &["script", "-i", "l.data", "-F", "event"]) else {
        return;
    };
    let hits = text(&script.stdout)
        .lines()
        .filter(|line| line.contains("lock:contention_begin"))
        .count();
    assert_eq!(hits as u64, ours.count("contention_begin"));
    let contention = perf(&room, &["lock", "contention", "-i", "l.data"]).expect("perf is there");
    assert!(contention.status.success(), "{}", text(&contention.stderr));
}

#[test]
fn file_of_a_killed_recorder_is_readable() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    let mut recorder = room.recorder();
    recorder.args([
        "-o",
        "k.data",
        "--format",
        "perf.data",
        "-e",
        "raw_syscalls:sys_enter",
        "--",
    ]);
    recorder.args(["sh", "-c", "while :; do [ -e stop ] && exit; done"]);
    let mut recorder = recorder
        .stderr(Stdio::null())
        .spawn()
        .expect("the recorder runs");
    let path = room.path("k.data");
    let begin = Instant::now();
    while fs::metadata(&path).map_or(0, |metadata| metadata.len()) < 4 << 20 {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "it does not grow"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    recorder.kill().expect("it runs");
    recorder.wait().expect("it ends");
    fs::write(room.path("stop"), "").unwrap();
    assert!(!is_file(&path));
    let ours = seen::read(&path);
    let count = ours.count("sys_enter");
    assert!(
        count > 1000,
        "{count}: {:?} {:?}",
        ours.types,
        ours.problems
    );
    let Some(script) = perf(&room, &["script", "-i", "k.data", "-F", "event"]) else {
        return;
    };
    assert!(
        text(&script.stdout).lines().count() > 1000,
        "{}",
        text(&script.stderr)
    );
}

#[test]
fn full_disk_leaves_a_pipe_format_file() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    let disk = room.path("disk");
    fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=4m", "none"])
        .arg(&disk)
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("skipped: needs a private mount namespace");
        return;
    }
    let (status, stderr) = run(
        &room,
        &[
            "-o",
            "disk/p.data",
            "--format",
            "perf.data",
            "-e",
            "raw_syscalls:sys_enter",
            "--",
            "sh",
            "-c",
            "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); : > /dev/null; done",
        ],
    );
    let ours = seen::read(&disk.join("p.data"));
    let _ = Command::new("umount").arg("-l").arg(&disk).status();
    assert_eq!(status, Some(1), "{stderr}");
    assert!(stderr.contains("No space left on device"), "{stderr}");
    assert!(ours.count("sys_enter") > 1000, "{stderr}");
}
