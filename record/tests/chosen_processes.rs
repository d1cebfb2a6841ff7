//! `-p NAME`, `--no-inherit` and `--quiet`: the processes that are recorded, and the messages that are printed.

mod room;

use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Command};

use room::{Room, may_record};

/// Starts processes that fork a child each time they have spun; ends them when dropped.
struct Spinning(Vec<Child>);

impl Spinning {
    fn start(program: &std::path::Path, count: usize) -> Spinning {
        let script = "while :; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; (:); done";
        let spawn = |_| Command::new(program).args(["-c", script]).spawn();
        Spinning(
            (0..count)
                .map(spawn)
                .map(|child| child.expect("it starts"))
                .collect(),
        )
    }

    fn pids(&self) -> BTreeSet<String> {
        self.0.iter().map(|child| child.id().to_string()).collect()
    }
}

impl Drop for Spinning {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn sampled(room: &Room) -> BTreeSet<String> {
    room.rows("samples", &["pid"]).into_iter().collect()
}

#[test]
fn processes_by_name() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    // The comm has 15 bytes, the executable more.
    let program = room.path(&format!("spinning-program-{}", std::process::id()));
    fs::copy("/bin/sh", &program).expect("a copy");
    let name = program
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    let running = Spinning::start(&program, 2);
    let _others = Spinning::start("/bin/sh".as_ref(), 1);
    let clock = ["-e", "cpu-clock", "--duration", "1s"];
    let stderr = room.record(&[&["-p", &name], &clock[..]].concat());
    assert!(
        stderr.contains(&format!("-p {name}: recording 2 processes: ")),
        "{stderr}"
    );
    let pids = sampled(&room);
    assert!(pids.is_superset(&running.pids()), "{pids:?}");
    // All others are children, which have the name as well.
    let comms: BTreeSet<String> = room.rows("samples", &["comm"]).into_iter().collect();
    assert_eq!(comms, BTreeSet::from([name[..15].to_owned()]));

    // The program may be replaced while it runs.
    fs::remove_file(&program).expect("it is there");
    let first = running.pids().into_iter().next().expect("two");
    let both = format!("{first},{name}");
    room.record(&[&["-p", &both], &clock[..]].concat());
    assert!(sampled(&room).is_superset(&running.pids()));

    let wrong = name.replace("spinning", "spining");
    let (status, stderr) = room.run(&["-p", &wrong, "-e", "cpu-clock"]);
    assert_eq!(status, Some(2), "{stderr}");
    assert!(
        stderr.contains(&format!("-p {wrong}: no running process has this name")),
        "{stderr}"
    );
    assert!(stderr.contains(&name), "{stderr}");
}

#[test]
fn children_are_excluded() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    let running = Spinning::start("/bin/sh".as_ref(), 1);
    let pid = running.pids().into_iter().next().expect("one");
    let forks = [
        "-e",
        "cpu-clock,sched:sched_process_exit",
        "--duration",
        "1s",
    ];
    let exited = || room.rows("events/sched/sched_process_exit", &["tid"]);
    room.record(&[&["-p", &pid], &forks[..]].concat());
    assert!(!exited().is_empty());
    room.record(&[&["-i", "-p", &pid], &forks[..]].concat());
    assert_eq!(sampled(&room), running.pids());
    assert!(!room.path("t.pqt/events/sched/sched_process_exit").exists() || exited().is_empty());
    // Of a command, only its first thread.
    let script = "(i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done); i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let command = ["-e", "cpu-clock", "--", "sh", "-c", script];
    room.record(&command);
    assert_eq!(sampled(&room).len(), 2);
    room.record(&[&["--no-inherit"], &command[..]].concat());
    assert_eq!(sampled(&room).len(), 1);
    let refused = |arguments: &[&str], expected: &str| {
        let (status, stderr) = room.run(arguments);
        assert_eq!(status, Some(2), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    };
    refused(&["-i", "-a"], "--no-inherit: requires a command");
    refused(
        &[
            "-i",
            "-p",
            &pid,
            "-e",
            "sched:sched_switch",
            "--agg",
            "count()",
        ],
        "--no-inherit cannot be combined with in-kernel aggregation",
    );
}

#[test]
fn quiet_recorder_prints_errors_only() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    let script = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; exit 3";
    for arguments in [
        &["-q", "-e", "cpu-clock", "--", "sh", "-c", script][..],
        &["--quiet", "-e", "cycles", "--", "sh", "-c", script],
    ] {
        assert_eq!(room.run(arguments), (Some(3), String::new()));
        assert!(!sampled(&room).is_empty());
    }
    let (status, stderr) = room.run(&["-q", "-e", "cpu-clok", "--", "true"]);
    assert_eq!(status, Some(2));
    assert!(
        stderr.starts_with("perfquet-record: no event cpu-clok\nhint: "),
        "{stderr}"
    );
}
