//! Rings of traces: each event in one trace, limits that hold at every moment, recorders that are killed.
//!
//! The tests need root and perf events, and report a missing requirement.

mod room;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use perfquet_trace::store::{Directory, JOURNAL, State};
use room::{Room, may_record};

fn signal(name: &str, pid: u32) {
    let sent = Command::new("kill")
        .args(["-s", name, &pid.to_string()])
        .status();
    assert!(sent.is_ok());
}

/// The traces of a ring, in order. Each is complete and has no journal.
#[track_caller]
fn traces(ring: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(ring).expect("a ring").flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    for path in &paths {
        assert!(is_whole(path), "{}", path.display());
    }
    paths
}

/// Whether a trace is complete, and has no journal.
fn is_whole(path: &Path) -> bool {
    let is_complete = Directory::open(path)
        .is_ok_and(|trace| matches!(trace.manifest().state, State::Complete | State::Recovered));
    is_complete && !path.join(JOURNAL).exists()
}

fn disk_space(path: &Path) -> u64 {
    let Ok(metadata) = path.symlink_metadata() else {
        return 0;
    };
    let mut bytes = metadata.len().max(metadata.blocks() * 512);
    if metadata.is_dir() {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        bytes += entries.map(|entry| disk_space(&entry.path())).sum::<u64>();
    }
    bytes
}

/// Recorders of traces, children of the one that rotates.
fn recorders_of(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// A directory with a program of tests/programs; `None`, with a message, if it cannot be compiled or recorded here.
fn room_with(source: &str) -> Option<(Room, PathBuf)> {
    if !may_record() {
        return None;
    }
    let room = Room::new();
    let program = room.compile(source, &["-O1"])?;
    Some((room, program))
}

/// Records the writes of a process into traces of 0.7 s.
fn writes_of(room: &Room, process: &Child) -> Child {
    let mut recorder = room.recorder();
    recorder
        .args([
            "-e",
            "syscalls:sys_enter_write",
            "--rotate",
            "700ms",
            "-o",
            "ring",
        ])
        .args(["-p", &process.id().to_string()]);
    recorder.stderr(Stdio::piped()).spawn().expect("it records")
}

#[test]
fn each_event_is_in_one_trace() {
    let Some((room, program)) = room_with("numbers.c") else {
        return;
    };
    let mut numbers = Command::new(program);
    let numbers = numbers.args(["6", "wait"]).stdin(Stdio::piped());
    let mut numbers = numbers.spawn().expect("it starts");
    let recorder = writes_of(&room, &numbers);
    let ring = room.path("ring");
    let begin = Instant::now();
    while fs::read_dir(&ring).map_or(0, Iterator::count) == 0 {
        assert!(begin.elapsed() < Duration::from_secs(110), "no trace");
        thread::sleep(Duration::from_millis(20));
    }
    let mut stdin = numbers.stdin.take().expect("a pipe");
    stdin.write_all(b"x").expect("it reads");
    thread::sleep(Duration::from_millis(2500));
    signal("USR2", recorder.id());
    numbers.wait().expect("it ends");
    // The recorder ends with its target.
    let (status, stderr) = room::ended(recorder.wait_with_output().expect("it ends"));
    assert_eq!(status, Some(0), "{stderr}");
    let mut traces_of: BTreeMap<u32, usize> = BTreeMap::new();
    let traces = traces(&room.path("ring"));
    const HITS: &str = "events/syscalls/sys_enter_write";
    // On a busy host, the last trace may begin after the last hit.
    for trace in traces.iter().filter(|trace| trace.join(HITS).exists()) {
        for count in room::rows_of_trace(trace, HITS, &["count"]) {
            *traces_of
                .entry(count.parse().expect("a number"))
                .or_default() += 1;
        }
    }
    assert!(traces.len() >= 4, "{stderr}");
    let twice: Vec<_> = traces_of
        .iter()
        .filter(|(_, traces)| **traces > 1)
        .collect();
    // The kernel stamps a hit once per recorder, so one at the boundary can have times on both sides of it.
    let boundaries = traces.len() - 1;
    assert!(twice.len() <= boundaries, "{twice:?}: {stderr}");
    let missing: Vec<u32> = (1..=12_000)
        .filter(|count| !traces_of.contains_key(count))
        .collect();
    assert!(missing.len() <= boundaries, "{missing:?}: {stderr}");
}

/// A child that started after the ring began, and its own child, whose parent has ended, are in every trace.
#[test]
fn children_stay_recorded_after_a_rotation() {
    let Some((room, program)) = room_with("numbers.c") else {
        return;
    };
    let numbers = program.display();
    // The shell in between ends after the recorder that rotates has seen it.
    let script = format!(
        "sleep 2; sh -c '{numbers} 2 & echo $! > pid; sleep 1'; while kill -0 $(cat pid); do sleep 0.1; done 2>&-"
    );
    let mut shell = Command::new("sh")
        .args(["-c", &script])
        .current_dir(room.path(""))
        .spawn()
        .expect("it starts");
    let recorder = writes_of(&room, &shell);
    shell.wait().expect("it ends");
    let (status, stderr) = room::ended(recorder.wait_with_output().expect("it ends"));
    assert_eq!(status, Some(0), "{stderr}");
    const HITS: &str = "events/syscalls/sys_enter_write";
    let traces = traces(&room.path("ring"));
    let with_hits = traces.iter().filter(|trace| trace.join(HITS).exists());
    let counts: Vec<String> = with_hits
        .flat_map(|trace| room::rows_of_trace(trace, HITS, &["count"]))
        .collect();
    let numbers: std::collections::BTreeSet<&String> = counts.iter().collect();
    assert!(traces.len() >= 4, "{stderr}");
    // A hit at a boundary may be in neither trace.
    assert!(
        numbers.len() + traces.len() >= 4_000,
        "{}: {stderr}",
        numbers.len()
    );
}

/// A child whose parent has ended before the recorder that rotates could see it is missing in one trace, which says so.
#[test]
fn children_of_ended_parents_come_back() {
    let Some((room, program)) = room_with("numbers.c") else {
        return;
    };
    let numbers = program.display();
    let script = format!(
        "sleep 1; sh -c '{numbers} 5 & echo $! > pid'; while kill -0 $(cat pid); do sleep 0.1; done 2>&-"
    );
    let mut shell = Command::new("sh")
        .args(["-c", &script])
        .current_dir(room.path(""))
        .spawn()
        .expect("it starts");
    let recorder = writes_of(&room, &shell);
    shell.wait().expect("it ends");
    let (status, stderr) = room::ended(recorder.wait_with_output().expect("it ends"));
    assert_eq!(status, Some(0), "{stderr}");
    const HITS: &str = "events/syscalls/sys_enter_write";
    let traces = traces(&room.path("ring"));
    let with_hits = traces.iter().filter(|trace| trace.join(HITS).exists());
    let counts: std::collections::BTreeSet<u32> = with_hits
        .flat_map(|trace| room::rows_of_trace(trace, HITS, &["count"]))
        .map(|count| count.parse().expect("a number"))
        .collect();
    // A hit at a boundary may be in neither trace.
    let is_whole = counts.len() + traces.len() >= 10_000;
    assert!(
        is_whole || missing_in(&traces) > 0,
        "{}: {stderr}",
        counts.len()
    );
    assert!(
        counts.range(9_000..).count() > 900,
        "{}: {stderr}",
        counts.len()
    );
}

/// Children of a thread are not found again: each trace without them says so.
#[test]
fn missing_children_of_threads_are_counted() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    let mut shell = Command::new("sh")
        .args(["-c", "sleep 1; sleep 3; :"])
        .spawn()
        .expect("it starts");
    let mut recorder = room.recorder();
    recorder
        .args([
            "-e",
            "context-switches",
            "-c",
            "1",
            "--rotate",
            "700ms",
            "-o",
            "ring",
        ])
        .args(["-t", &shell.id().to_string()]);
    let output = recorder.output().expect("it records");
    shell.wait().expect("it ends");
    let (status, stderr) = room::ended(output);
    assert_eq!(status, Some(0), "{stderr}");
    let traces = traces(&room.path("ring"));
    // The second sleep began in one trace and is missing in the next ones.
    assert!(missing_in(&traces) >= 2, "{stderr}");
    assert!(
        stderr.contains("not recorded: 1 thread started before this trace"),
        "{stderr}"
    );
}

/// The recorder of a trace whose target has ended since the ring began has nothing to record, which is no error.
#[test]
fn a_target_that_ends_before_the_next_trace_is_no_error() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    let run = |more: &[&str]| {
        let mut recorder = room.recorder();
        recorder
            .args(["--segment", "ring/2.pqt", "-e", "context-switches"])
            .args(["-p", "4194304", "-o", "ring"])
            .args(more);
        let ended = recorder.stdin(Stdio::null()).output().expect("it runs");
        room::ended(ended)
    };
    assert_eq!(run(&["--follows"]), (Some(0), String::new()));
    // The first trace of a ring.
    let (status, stderr) = run(&[]);
    assert_eq!(status, Some(2), "{stderr}");
    assert!(stderr.contains("no process 4194304"), "{stderr}");
    assert!(!room.path("ring").exists());
}

/// The traces after the end of one of several threads have the others.
#[test]
fn a_thread_that_ends_leaves_the_others_recorded() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    let start = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).spawn().expect("it starts")
    };
    let mut short = start("sleep 1");
    let mut long = start("i=0; while [ $i -lt 40 ]; do sleep 0.1; i=$((i+1)); done");
    let tids = format!("{},{}", short.id(), long.id());
    let mut recorder = room.recorder();
    recorder
        .args(["-e", "context-switches", "-c", "1", "-t", &tids])
        .args(["--rotate", "700ms", "-o", "ring"]);
    let output = recorder.output().expect("it records");
    short.wait().expect("it ends");
    long.wait().expect("it ends");
    let (status, stderr) = room::ended(output);
    assert_eq!(status, Some(0), "{stderr}");
    assert!(!stderr.contains("no thread"), "{stderr}");
    let traces = traces(&room.path("ring"));
    let of_long = |trace: &&PathBuf| {
        let tids = room::rows_of_trace(trace, "samples", &["tid"]);
        tids.contains(&long.id().to_string())
    };
    // On a busy host, the last trace may begin after the last switch.
    let with_samples = traces.iter().filter(of_long).count();
    assert!(
        with_samples + 1 >= traces.len() && traces.len() >= 4,
        "{stderr}"
    );
}

/// While one recorder follows another, the kernel marks page faults for one with the ID of the other.
#[test]
fn page_faults_are_in_the_traces_of_a_ring() {
    let Some((room, program)) = room_with("faulting.c") else {
        return;
    };
    let script = format!(
        "i=0; while [ $i -lt 12 ]; do {}; i=$((i+1)); done",
        program.display()
    );
    let mut shell = Command::new("sh")
        .args(["-c", &script])
        .spawn()
        .expect("it starts");
    let mut recorder = room.recorder();
    recorder
        .args([
            "-e",
            "page-faults",
            "-c",
            "1",
            "-p",
            &shell.id().to_string(),
        ])
        .args(["--rotate", "300ms", "-o", "ring"]);
    let output = recorder.output().expect("it records");
    shell.wait().expect("it ends");
    let (status, stderr) = room::ended(output);
    assert_eq!(status, Some(0), "{stderr}");
    for trace in traces(&room.path("ring")) {
        let problems = room::rows_of_trace(&trace, "problems", &["count", "message"]);
        assert!(problems.is_empty(), "{problems:?}: {stderr}");
    }
}

/// Number of traces that lack tasks of the last one.
fn missing_in(traces: &[PathBuf]) -> usize {
    let says = |trace: &&PathBuf| {
        let losses = room::rows_of_trace(trace, "losses", &["count", "reason"]);
        losses.iter().any(|row| row.starts_with("- not recorded: "))
    };
    traces.iter().filter(says).count()
}

/// Recorders that can write no more than 32 KiB: what the first one leaves is warned of, and the last one decides.
#[test]
fn the_last_recorder_decides_about_the_status() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    let recorder = room.recorder();
    let program = recorder.get_program().to_string_lossy().into_owned();
    for (limit, expected) in [("64", Some(1)), ("unlimited", Some(0))] {
        let script = format!(
            "ulimit -f {limit}; exec {program} -a -e cpu-clock -F 9999 --rotate 1s --duration 2500ms -o {limit}"
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(room.path(""));
        let output = command.output().expect("a shell");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), expected, "{limit}: {stderr}");
    }
}

#[test]
fn killed_recorders_leave_whole_traces_within_the_limit() {
    const KILLS: u64 = 50;
    const MOST_BYTES: u64 = 16 << 20;
    if !may_record() {
        return;
    }
    let room = Room::new();
    let ring = room.path("ring");
    let start = |rotate: &str| -> Child {
        let mut recorder = room.recorder();
        recorder
            .args([
                "-a",
                "-e",
                "cpu-clock",
                "-F",
                "997",
                "--rotate",
                rotate,
                "--keep",
                "16M",
                "-o",
                "ring",
            ])
            .stderr(Stdio::null());
        recorder.spawn().expect("it records")
    };
    let check = || {
        let bytes = disk_space(&ring);
        assert!(bytes <= MOST_BYTES, "{bytes} bytes");
    };
    for kill in 0..KILLS {
        let mut recorder = start("300ms");
        let end = Instant::now() + Duration::from_millis(50 + kill * 137 % 1100);
        while Instant::now() < end {
            check();
            thread::sleep(Duration::from_millis(20));
        }
        let children = recorders_of(recorder.id());
        // The recorder that rotates first, last, or alone.
        match kill % 3 {
            0 => children.iter().for_each(|&child| signal("KILL", child)),
            1 => {
                signal("KILL", recorder.id());
                children.iter().for_each(|&child| signal("KILL", child));
            }
            _ => signal("KILL", recorder.id()),
        }
        signal("KILL", recorder.id());
        recorder.wait().expect("it ends");
    }
    // Completes what the killed ones left, at idle priority: new traces every 300 ms would leave it no CPU time on a slow host.
    let entries = fs::read_dir(&ring).expect("a ring").flatten();
    let left: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    let mut recorder = start("2s");
    let begin = Instant::now();
    let waits = || left.iter().any(|path| path.exists() && !is_whole(path));
    while begin.elapsed() < Duration::from_secs(3)
        || (waits() && begin.elapsed() < Duration::from_secs(600))
    {
        check();
        thread::sleep(Duration::from_millis(50));
    }
    signal("INT", recorder.id());
    assert_eq!(recorder.wait().expect("it ends").code(), Some(0));
    check();
    let traces = traces(&ring);
    assert!(traces.len() > 3, "{traces:?}");
    let samples = traces
        .iter()
        .map(|trace| room::rows_of_trace(trace, "samples", &["time"]).len());
    assert!(samples.filter(|&samples| samples > 0).count() > 3);
}

#[test]
fn rings_reject_what_they_cannot_do() {
    let room = Room::new();
    let check = |arguments: &[&str], expected: &str| {
        let mut recorder = room.recorder();
        let output = recorder.args(arguments).output().expect("it runs");
        let (status, stderr) = room::ended(output);
        assert_eq!(status, Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
    };
    check(&["--rotate", "1m", "--", "true"], "combined with a command");
    check(
        &["-a", "--rotate", "1m", "--ring", "1M"],
        "combined with --ring",
    );
    check(&["-a", "--keep", "24h"], "requires --rotate");
    check(&["-a", "--keep", "1M"], "at least 16 MiB");
    check(&["-a", "--rotate", "soon"], "expected a time or a size");
    check(&["--rotate", "1m"], "nothing to record");
    check(&["-p", "4194304", "--rotate", "1m"], "no process 4194304");
    assert_eq!(fs::read_dir(room.path("")).expect("a folder").count(), 0);
}
