//! Targets of a recording: commands and their status, threads that start while attaching, users, cgroups, and the
//! exclusion of the recorder.

mod room;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use room::{NOBODY, Room, Running, may_record, needs, users_may_record};

const SPIN: &str = "while :; do :; done";

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

/// Each write of a thread has a different count, so a duplicate shows. `cargo xtask starve` does this several hundred times, with a
/// recorder that gets almost no CPU.
#[test]
fn threads_that_start_while_attaching_are_recorded_once() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    if let Some(program) = room.compile("starter.c", &["-O1"]) {
        attach_to_starter(&room, &program);
    }
}

/// Checks that every thread of starter.c is in the trace, with each of its writes once, from the first recorded one to
/// the last. Nothing here depends on time: the recording ends once it has begun and each thread has written since.
#[track_caller]
fn attach_to_starter(room: &Room, program: &Path) {
    let mut starter = Running::start(Command::new(program).stdout(Stdio::piped()));
    let mut lines = BufReader::new(starter.0.stdout.take().expect("a pipe")).lines();
    assert_eq!(
        lines.next().and_then(Result::ok).as_deref(),
        Some("started")
    );
    let (mut commands, mut answers) = (fifo(room, "commands"), fifo(room, "answers"));
    let mut command = room.recorder();
    let options = [
        "--force",
        "-o",
        "t.pqt",
        "-v",
        "-e",
        "syscalls:sys_enter_write",
        "--control",
        "fifo:commands,answers",
    ];
    command.args(options).args(["-p", &starter.pid()]);
    let mut recording = command.stderr(Stdio::piped()).spawn().expect("it records");
    assert_eq!(lines.next().and_then(Result::ok).as_deref(), Some("all"));
    // Answered once the recording has begun.
    commands.write_all(b"ping\n").expect("a FIFO");
    let mut answer = [0; 4];
    while answers.read(&mut answer).is_err() {
        if recording.try_wait().expect("our child").is_some() {
            let (status, stderr) = room::ended(recording.wait_with_output().expect("it ended"));
            panic!("{status:?}: {stderr}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(&answer, b"ack\n");
    let threads = writers(&starter.pid());
    // A write comes between two sleeps.
    while writers(&starter.pid())
        .iter()
        .any(|(tid, sleeps)| sleeps - threads.get(tid).unwrap_or(&0) < 2)
    {
        std::thread::sleep(Duration::from_millis(50));
    }
    commands.write_all(b"stop\n").expect("a FIFO");
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
        .keys()
        .filter(|tid| !written.contains_key(tid.as_str()))
        .collect();
    assert!(threads.len() > 1500, "{}", threads.len());
    assert!(
        missed.is_empty(),
        "{missed:?} of {} are missing: {stderr}",
        threads.len()
    );
    // What the kernel had no room for is counted.
    let lost = room.rows("losses", &["count"]);
    let lost: u32 = lost
        .iter()
        .filter_map(|count| count.parse::<u32>().ok())
        .sum();
    let mut absent = 0;
    for (tid, counts) in &mut written {
        counts.sort_unstable();
        let (first, last) = (counts[0], counts[counts.len() - 1]);
        let distinct: BTreeSet<u32> = counts.iter().copied().collect();
        assert_eq!(distinct.len(), counts.len(), "thread {tid}: {counts:?}");
        absent += last - first + 1 - counts.len() as u32;
    }
    assert!(absent <= lost, "{absent} absent, {lost} lost: {stderr}");
    println!(
        "{} threads, {} of them late, {absent} writes absent, {lost} lost",
        threads.len(),
        stderr.matches("started while attaching").count()
    );
}

/// Makes a FIFO, and opens both of its ends; reads do not wait.
fn fifo(room: &Room, name: &str) -> File {
    let path = room.path(name);
    if !path.exists() {
        let made = Command::new("mkfifo").arg(&path).status();
        assert!(made.is_ok_and(|status| status.success()));
    }
    let mut options = File::options();
    options.custom_flags(libc::O_NONBLOCK);
    options.read(true).write(true).open(path).expect("a FIFO")
}

/// The threads of starter.c that write, with the number of times that each has slept.
fn writers(pid: &str) -> BTreeMap<String, u64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    tasks
        .map(|task| {
            let task = task.expect("a task");
            let status = fs::read_to_string(task.path().join("status")).expect("it runs");
            let sleeps = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            let sleeps = sleeps.and_then(|count| count.trim().parse().ok());
            let tid = task.file_name().to_string_lossy().into_owned();
            (tid, sleeps.expect("a number"))
        })
        .filter(|(tid, _)| tid != pid)
        .collect()
}

/// The columns of the threads of a process.
fn about(room: &Room, pid: &str) -> BTreeSet<String> {
    let columns = ["pid", "exit_code", "cmdline", "cgroup"];
    let rows = room.rows("threads", &columns).into_iter();
    let prefix = format!("{pid} ");
    rows.filter_map(|row| row.strip_prefix(&prefix).map(str::to_owned))
        .collect()
}

#[test]
fn processes_have_command_lines_and_cgroups() {
    if !users_may_record() {
        return;
    }
    let room = Room::new();
    let clock = ["-e", "cpu-clock"];
    // Of a command, and of a program that it executes.
    let script = "sleep 0.7 & echo $$ $!; wait; exit 3";
    let arguments = [&clock[..], &["--", "sh", "-c", script]].concat();
    let mut command = room.recorder();
    command.args(["--force", "-o", "t.pqt"]).args(arguments);
    let output = command.output().expect("it runs");
    let pids = String::from_utf8_lossy(&output.stdout).into_owned();
    let (shell, sleep) = pids.trim().split_once(' ').expect("two PIDs");
    let expected = format!("3 sh -c {script} /");
    let found = about(&room, shell);
    assert!(
        found.first().is_some_and(|row| row.starts_with(&expected)),
        "{found:?}"
    );
    let found = about(&room, sleep);
    assert!(
        found
            .first()
            .is_some_and(|row| row.starts_with("- sleep 0.7 /")),
        "{found:?}"
    );
    // One that ends at once.
    let (_, stderr) = room.run(&[&clock[..], &["--", "true", "a", "b"]].concat());
    let rows = room.rows("threads", &["comm", "exit_code", "cmdline"]);
    assert!(
        rows.contains(&"true 0 true a b".to_owned()),
        "{rows:?}: {stderr}"
    );
    // A killed one, as a shell reports it.
    room.run(&[&clock[..], &["--", "sh", "-c", "kill -9 $$"]].concat());
    let rows = room.rows("threads", &["exit_code"]);
    assert!(rows.contains(&"137".to_owned()), "{rows:?}");
    // Of a process that existed.
    let theirs = Running::start(Command::new("sleep").arg("61.5"));
    let options = ["-p", &theirs.pid(), "--duration", "300ms"];
    room.record(&[&clock[..], &options].concat());
    let found = about(&room, &theirs.pid());
    assert!(
        found
            .first()
            .is_some_and(|row| row.starts_with("- sleep 61.5 /")),
        "{found:?}"
    );
    assert!(!room.path("t.pqt/open_files").exists());
}

#[test]
fn files_that_were_open_before_are_recorded_with_system_calls() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    let own_file = File::open(room.path("")).expect("a folder");
    let theirs = Running::start(Command::new("sleep").arg("60").stdin(own_file));
    let calls = "raw_syscalls:sys_enter,raw_syscalls:sys_exit";
    room.record(&["-e", calls, "-p", &theirs.pid(), "--duration", "300ms"]);
    let rows = room.rows("open_files", &["pid", "fd", "path"]);
    let expected = format!("{} 0 {}", theirs.pid(), room.path("").display());
    let expected = expected.trim_end_matches('/').to_owned();
    assert!(rows.contains(&expected), "{rows:?}");
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

/// The kernel stops recording a process that executes a program with more privileges than its user; the recorder reports it.
#[test]
fn programs_with_privileges_are_reported_as_not_recorded() {
    if !may_record() || !users_may_record() {
        return;
    }
    let room = Room::new();
    let program = room.give_to(NOBODY);
    for (name, mode) in [
        ("plain", 0o755),
        ("privileged", 0o4755),
        ("unreadable", 0o711),
    ] {
        let path = room.path(name);
        let mut copy = Command::new("cp");
        let copied = copy.args(["/bin/true".as_ref(), path.as_os_str()]);
        assert!(copied.status().is_ok_and(|status| status.success()));
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(&path, mode).expect("root may");
    }
    let script = "./plain; ./privileged; ./privileged; ./unreadable; ./plain";
    let mut command = Command::new(&program);
    command
        .current_dir(room.path(""))
        .args(["-o", "t.pqt", "-e", "cpu-clock", "--", "sh", "-c", script])
        .uid(NOBODY)
        .gid(NOBODY);
    let (status, stderr) = room::ended(command.output().expect("it runs"));
    assert_eq!(status, Some(0), "{stderr}");
    assert!(stderr.contains(", some lost, "), "{stderr}");
    assert!(
        stderr.contains("2 programs not recorded after exec"),
        "{stderr}"
    );
    let reasons = room.rows("losses", &["reason"]);
    let of = |name: &str| {
        reasons
            .iter()
            .filter(|reason| reason.contains(name))
            .count()
    };
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    assert_eq!(
        (of("privileged (2 times)"), of("unreadable, ")),
        (1, 1),
        "{reasons:?}"
    );
    // When they ended is not known.
    let ends = room.rows("threads", &["comm", "end_time"]);
    let known = |row: &&String| !row.ends_with(" -");
    let mut known: Vec<&str> = ends
        .iter()
        .filter(known)
        .map(|row| row.split(' ').next().unwrap_or(""))
        .collect();
    known.sort_unstable();
    assert_eq!(known, ["plain", "plain", "sh"], "{ends:?}");
    // Recordings of whole CPUs have all of them.
    let user = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    room.record(
        &[
            &["-a", "-e", "cpu-clock", "--"],
            &user[..],
            &["./privileged"],
        ]
        .concat(),
    );
    let reasons = room.rows("losses", &["reason"]);
    let of_program = |reason: &String| reason.contains("after its exec");
    assert!(!reasons.iter().any(of_program), "{reasons:?}");
    let ends = room.rows("threads", &["comm", "end_time"]);
    assert!(
        ends.iter()
            .any(|row| row.starts_with("privileged ") && !row.ends_with(" -")),
        "{ends:?}"
    );
    let of_start = room.rows("mappings", &["path", "time"]);
    let is_mapped = |row: &String| row.contains("/privileged ") && !row.ends_with(" -");
    assert!(of_start.iter().any(is_mapped));
}
