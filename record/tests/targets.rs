//! Targets of a recording: commands and their status, threads that start while attaching, users, cgroups, and the
//! exclusion of the recorder.

mod room;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use room::{NOBODY, Room, may_record, needs, users_may_record};

const SPIN: &str = "while :; do :; done";
/// Time in which each thread of starter.c writes at least once, with 2,000 of them on a busy host.
const LAST_WRITES: Duration = Duration::from_secs(1);

/// Kills its process when dropped.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Running {
        Running(command.spawn().expect("it starts"))
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn status_of_the_command_is_passed_on() {
    if !users_may_record() {
        return;
    }
    let room = Room::new();
    let folder = room.path("");
    fs::write(room.path("text"), "#!/no/such/interpreter\n").expect("a file");
    let check = |command: &[&str], status: i32, expected: &str| {
        let clock = ["-e", "cpu-clock", "--"];
        let (found, stderr) = room.run(&[&clock, command].concat());
        assert_eq!(found, Some(status), "{command:?}: {stderr}");
        assert!(stderr.contains(expected), "{command:?}: {stderr}");
    };
    check(&["true"], 0, "next: perfquet-query");
    check(&["sh", "-c", "exit 7"], 7, "ended with status 7");
    check(&["sh", "-c", "kill -9 $$"], 137, "killed by signal 9");
    check(&["/no/such"], 127, "cannot run /no/such: No such file");
    check(&["no-such"], 127, "cannot run no-such: No such file");
    check(&["./text"], 126, "cannot run ./text: Permission denied");
    check(&["/"], 126, "cannot run /: Permission denied");
    // The status of a command ended by the recorder is not reported.
    let (status, stderr) =
        room.run(&["-e", "cpu-clock", "--duration", "200ms", "--", "sleep", "9"]);
    assert_eq!(status, Some(0), "{stderr}");
    // Failures of the recorder have their own status.
    let (status, _) = room.run(&["-e", "cpu-clok", "--", "sh", "-c", "exit 7"]);
    assert_eq!(status, Some(2));
    let left: Vec<_> = fs::read_dir(folder).expect("a folder").flatten().collect();
    assert_eq!(left.len(), 2, "the trace and the text: {left:?}");
}

/// Each write of a thread has a different count, so a duplicate shows.
#[test]
fn threads_that_start_while_attaching_are_recorded_once() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    if let Some(program) = room.compile("starter.c", &["-O1"]) {
        attach_to_starter(&room, &program, &[]);
    }
}

/// A recorder that gets almost no CPU, next to a busy process; `cargo xtask starve` repeats it several hundred times.
#[test]
fn a_starved_recorder_attaches_to_each_thread_once() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    let Some(program) = room.compile("starter.c", &["-O1"]) else {
        return;
    };
    let _busy = Running::start(Command::new("sh").args(["-c", SPIN]));
    for _ in 0..3 {
        attach_to_starter(&room, &program, &["nice", "-n", "19"]);
    }
}

/// Checks that every thread of starter.c is in the trace, with each of its writes once, from the first recorded one to
/// the last.
#[track_caller]
fn attach_to_starter(room: &Room, program: &Path, through: &[&str]) {
    let mut starter = Running::start(Command::new(program).stdout(Stdio::piped()));
    let mut lines = BufReader::new(starter.0.stdout.take().expect("a pipe")).lines();
    assert_eq!(
        lines.next().and_then(Result::ok).as_deref(),
        Some("started")
    );
    let recorder = room.recorder();
    let mut words = through.iter().map(|word| word.as_ref());
    let mut command = match words.next() {
        None => recorder,
        Some(first) => {
            let mut command = Command::new::<&std::ffi::OsStr>(first);
            let folder = recorder.get_current_dir().expect("a folder");
            command
                .current_dir(folder)
                .args(words)
                .arg(recorder.get_program());
            command
        }
    };
    let options = [
        "--force",
        "-o",
        "t.pqt",
        "-v",
        "-e",
        "syscalls:sys_enter_write",
    ];
    command.args(options).args(["-p", &starter.pid()]);
    let recording = command.stderr(Stdio::piped()).spawn().expect("it records");
    assert_eq!(lines.next().and_then(Result::ok).as_deref(), Some("all"));
    // Starting all threads takes any time on a busy host, so the recording ends after them, not after a fixed time.
    std::thread::sleep(LAST_WRITES);
    let mut interrupt = Command::new("kill");
    interrupt.args(["-INT", &recording.id().to_string()]);
    assert!(interrupt.status().is_ok_and(|status| status.success()));
    let tasks = format!("/proc/{}/task", starter.pid());
    let threads: BTreeSet<String> = fs::read_dir(tasks)
        .expect("it runs")
        .map(|task| {
            task.expect("a task")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .filter(|tid| *tid != starter.pid())
        .collect();
    let (status, stderr) = room::ended(recording.wait_with_output().expect("it ends"));
    assert_eq!(status, Some(0), "{stderr}");
    let rows = room.rows("events/syscalls/sys_enter_write", &["tid", "count"]);
    let mut written: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for row in &rows {
        let (tid, count) = row.split_once(' ').expect("two columns");
        let counts = written.entry(tid).or_default();
        counts.push(count.parse().expect("a number"));
    }
    let missed: Vec<&String> = threads
        .iter()
        .filter(|tid| !written.contains_key(tid.as_str()))
        .collect();
    assert!(threads.len() > 1500, "{}", threads.len());
    assert!(
        missed.is_empty(),
        "{missed:?} of {} are missing: {stderr}",
        threads.len()
    );
    for (tid, counts) in &mut written {
        counts.sort_unstable();
        let (first, last) = (counts[0], counts[counts.len() - 1]);
        let expected: Vec<u32> = (first..=last).collect();
        assert_eq!(*counts, expected, "thread {tid}: {stderr}");
    }
    println!(
        "{} threads, {} of them late",
        threads.len(),
        stderr.matches("started while attaching").count()
    );
}

#[test]
fn a_users_processes() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    let mut command = Command::new("sh");
    let theirs = Running::start(command.args(["-c", SPIN]).uid(NOBODY).gid(NOBODY));
    let ours = Running::start(Command::new("sh").args(["-c", SPIN]));
    for user in ["65534", "nobody"] {
        room.record(&["-u", user, "-e", "cpu-clock", "--duration", "2s"]);
        let pids: BTreeSet<String> = room.rows("samples", &["pid"]).into_iter().collect();
        assert!(pids.contains(&theirs.pid()), "{pids:?}");
        assert!(!pids.contains(&ours.pid()), "{pids:?}");
    }
    let (status, stderr) = room.run(&["-u", "no-such-user"]);
    assert_eq!(
        (status, stderr.contains("no such user")),
        (Some(2), true),
        "{stderr}"
    );
    let (status, stderr) = room.run(&["-u", "4000000000"]);
    assert_eq!(
        (status, stderr.contains("no process of user")),
        (Some(1), true),
        "{stderr}"
    );
}

#[test]
fn processes_in_a_cgroup() {
    if !may_record() {
        return;
    }
    if !needs::met(&["cgroups"]) {
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
    let root = root.expect("the cgroups that are needed");
    let name = format!("perfquet-{}", std::process::id());
    let group = Path::new(root[1]).join(&name);
    fs::create_dir(&group).expect("a group of its own");
    let room = Room::new();
    let inside = Running::start(Command::new("sh").args(["-c", SPIN]));
    let outside = Running::start(Command::new("sh").args(["-c", SPIN]));
    fs::write(group.join("cgroup.procs"), inside.pid()).expect("it moves");
    let recorded = room.run(&["-G", &name, "-e", "cpu-clock", "--duration", "2s"]);
    let samples = room.rows("samples", &["pid", "comm"]);
    // With a command, the recording lasts as long as it runs.
    let by_command = room.run(&["-G", &name, "-e", "cpu-clock", "--", "sleep", "2"]);
    let (inside_pid, outside_pid) = (inside.pid(), outside.pid());
    drop((inside, outside));
    // An ended process leaves the cgroup slightly later.
    let is_removed = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        fs::remove_dir(&group).is_ok()
    });
    assert!(is_removed, "{group:?} is not empty");
    assert_eq!(recorded.0, Some(0), "{}", recorded.1);
    assert_eq!(by_command.0, Some(0), "{}", by_command.1);
    for samples in [samples, room.rows("samples", &["pid", "comm"])] {
        assert!(samples.len() > 10, "{}", samples.len());
        let own = format!("{inside_pid} sh");
        assert!(
            samples.iter().all(|row| *row == own),
            "{outside_pid}: {samples:?}"
        );
    }
    let (status, stderr) = room.run(&["-G", "no/such", "-e", "cpu-clock"]);
    assert_eq!(
        (status, stderr.contains("no/such")),
        (Some(2), true),
        "{stderr}"
    );
}

#[test]
fn recorder_excludes_itself() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    let options = [
        "-a",
        "-F",
        "5000",
        "-e",
        "cpu-clock,sched:sched_switch,raw_syscalls:sys_enter",
    ];
    let of_itself = |more: &[&str]| {
        let command = [
            "--",
            "sh",
            "-c",
            "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); echo; done >/dev/null",
        ];
        room.record(&[&options, more, &command].concat());
        [
            "samples",
            "events/sched/sched_switch",
            "events/raw_syscalls/sys_enter",
        ]
        .map(|table| {
            let rows = room.rows(table, &["comm"]);
            assert!(rows.iter().any(|comm| comm == "sh"), "{table}");
            rows.iter()
                .filter(|comm| *comm == "perfquet-record")
                .count()
        })
    };
    let with = of_itself(&[]);
    assert!(with[0] > 0 && with[1] > 0 && with[2] == 0, "{with:?}");
    assert_eq!(of_itself(&["--exclude-self"]), [0; 3]);
}

#[test]
fn unprivileged_user_records_own_processes() {
    if !may_record() || !users_may_record() {
        return;
    }
    let room = Room::new();
    let program = room.give_to(NOBODY);
    let theirs = Running::start(
        Command::new("sh")
            .args(["-c", SPIN])
            .uid(NOBODY)
            .gid(NOBODY),
    );
    let ours = Running::start(Command::new("sleep").arg("60"));
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command
            .current_dir(room.path(""))
            .args(["--force", "-o", "t.pqt"]);
        command.args(arguments).uid(NOBODY).gid(NOBODY);
        room::ended(command.output().expect("it runs"))
    };
    for whom in [
        ["-p", &theirs.pid()],
        ["-t", &theirs.pid()],
        ["-u", "65534"],
    ] {
        let clock = ["-g", "-e", "cpu-clock", "--duration", "1s"];
        let (status, stderr) = run(&[&whom[..], &clock].concat());
        assert_eq!(status, Some(0), "{whom:?}: {stderr}");
        let pids = room.rows("samples", &["pid"]);
        assert!(pids.contains(&theirs.pid()), "{whom:?}: {stderr}");
    }
    let (status, stderr) = run(&["-p", &ours.pid(), "-e", "cpu-clock"]);
    assert_eq!(status, Some(1), "{stderr}");
    assert!(stderr.contains("not permitted to record"), "{stderr}");
    assert!(stderr.contains("hint: "), "{stderr}");
    let mut limited = Command::new("sh");
    let script = format!(
        "ulimit -n 100; exec {} -e cpu-clock -p {}",
        program.display(),
        theirs.pid()
    );
    limited.args(["-c", &script]).uid(NOBODY).gid(NOBODY);
    let (status, stderr) = room::ended(limited.output().expect("it runs"));
    assert_eq!(status, Some(1), "{stderr}");
    assert!(
        stderr.contains("file descriptors; the limit is 100"),
        "{stderr}"
    );
}

/// As if called by sudo: everything in the trace belongs to the calling user.
#[test]
fn trace_recorded_with_sudo_belongs_to_the_caller() {
    use std::os::unix::fs::MetadataExt;
    if !may_record() {
        return;
    }
    let room = Room::new();
    let caller = NOBODY.to_string();
    for (name, options) in [
        ("t.pqt", &["--keep-raw"][..]),
        ("p.data", &["--format", "perf.data"]),
    ] {
        let mut command = room.recorder();
        command
            .args(["-e", "cpu-clock", "-o", name])
            .args(options)
            .args(["--", "true"]);
        command.env("SUDO_UID", &caller).env("SUDO_GID", &caller);
        let (status, stderr) = room::ended(command.output().expect("it runs"));
        assert_eq!(status, Some(0), "{stderr}");
        let mut waiting = vec![room.path(name)];
        let mut count = 0;
        while let Some(path) = waiting.pop() {
            let metadata = path.symlink_metadata().expect("it is there");
            assert_eq!(
                (metadata.uid(), metadata.gid()),
                (NOBODY, NOBODY),
                "{}",
                path.display()
            );
            if metadata.is_dir() {
                waiting.extend(
                    fs::read_dir(&path)
                        .expect("a folder")
                        .flatten()
                        .map(|entry| entry.path()),
                );
            }
            count += 1;
        }
        assert!(count > 5 || name == "p.data", "{count}");
    }
}
