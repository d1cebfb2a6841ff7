//! `-p NAME`, `--no-inherit` and `--quiet`: the processes that are recorded, and the messages that are printed.

mod room;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use room::{Room, Running, may_record};

/// Starts processes that fork a child each time they have spun; ends them when dropped.
struct Spinning(Vec<Running>);

impl Spinning {
    fn start(program: &Path, count: usize) -> Spinning {
        let script = "while :; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; (:); done";
        let start = |_| Running::start(Command::new(program).args(["-c", script]));
        Spinning((0..count).map(start).collect())
    }

    fn pids(&self) -> BTreeSet<String> {
        self.0.iter().map(Running::pid).collect()
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
fn containers_by_the_beginning_of_their_id() {
    if !may_record() || !room::needs::met(&["cgroups"]) {
        return;
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut mounts = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    let root = mounts.find(|words| match words[2] {
        "cgroup" => words[3].contains("perf_event"),
        kind => kind == "cgroup2",
    });
    let id = format!("{:0>64x}", u64::from(std::process::id()) | 0xfeed_0000_0000);
    let id: String = id.chars().rev().collect();
    let parent = Path::new(root.expect("the cgroups that are needed")[1])
        .join(format!("perfquet-containers-{}", std::process::id()));
    let group = parent.join(format!("docker-{id}.scope"));
    fs::create_dir_all(&group).expect("a new cgroup");
    let room = Room::new();
    let inside = Spinning::start("/bin/sh".as_ref(), 1);
    let outside = Spinning::start("/bin/sh".as_ref(), 1);
    let pid = inside.pids().into_iter().next().expect("one");
    fs::write(group.join("cgroup.procs"), &pid).expect("it moves");
    let clock = ["-e", "cpu-clock", "--duration", "1s"];
    let recorded = room.run(&[&["--container", &id[..12]], &clock[..]].concat());
    let counted = {
        let pids = sampled(&room);
        let counted = room.run(&[
            "--stat",
            "cpu-clock",
            "--container",
            &id,
            "--duration",
            "300ms",
        ]);
        let rows = room.rows("counts", &["event", "cgroup"]);
        (pids, counted, rows)
    };
    let others = outside.pids();
    drop((inside, outside));
    for path in [&group, &parent] {
        let is_removed = (0..100).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            fs::remove_dir(path).is_ok()
        });
        assert!(is_removed, "{path:?} is not empty");
    }
    let (pids, counted, rows) = counted;
    assert_eq!(recorded.0, Some(0), "{}", recorded.1);
    assert!(pids.contains(&pid) && pids.is_disjoint(&others), "{pids:?}");
    assert_eq!(counted.0, Some(0), "{}", counted.1);
    assert_eq!(rows, [format!("cpu-clock {}", group.display())]);
    let (status, stderr) = room.run(&["--container", "no-such-container"]);
    assert_eq!(status, Some(2), "{stderr}");
    assert!(
        stderr.contains("no running container or unit has this name or ID"),
        "{stderr}"
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
