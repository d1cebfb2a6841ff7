//! `--stat`: counted events, beside what perf and the recorder itself count for the same work.

mod room;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use room::{Room, may_record, needs};

/// Columns of `counts` that the tests look at.
const COLUMNS: [&str; 6] = ["event", "count", "cpu", "tid", "since", "time"];

/// Counts by event, added up over all rows.
fn sums(room: &Room) -> BTreeMap<String, i64> {
    let mut sums = BTreeMap::new();
    for row in room.rows("counts", &["event", "count"]) {
        let (event, count) = row.split_once(' ').expect("two columns");
        if let Ok(count) = count.parse::<i64>() {
            *sums.entry(event.to_owned()).or_default() += count;
        }
    }
    sums
}

/// numbers.c calls write() 2,000 times per second of its argument.
const WRITES: &str = "syscalls:sys_enter_write";

/// CPUs are busy for at most all of the time.
#[test]
fn a_clock_of_the_system_is_at_most_all_cpus() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    for options in [&["-a"][..], &["-a", "--every", "20ms", "--live"]] {
        let stat = [
            "--stat",
            "task-clock,cpu-clock",
            "--",
            "sh",
            "-c",
            "sleep 0.3",
        ];
        let stderr = room.record(&[options, &stat].concat());
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
        let shown = stderr.lines().filter_map(|line| {
            let (before, _) = line.split_once(" CPUs")?;
            before.split_whitespace().next_back()?.parse::<f64>().ok()
        });
        let shown: Vec<f64> = shown.collect();
        assert!(!shown.is_empty(), "{stderr}");
        assert!(
            shown.iter().all(|shown| *shown <= cpus as f64 + 0.005),
            "{stderr}"
        );
    }
}

#[test]
fn exact_counts_of_a_command() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    if room.compile("numbers.c", &["-O1"]).is_none() {
        return;
    }
    for options in [
        &[][..],
        &["--per", "cpu"],
        &["--per", "thread"],
        &["--every", "200ms"],
        &["-C", "0-1"],
    ] {
        let events = ["--stat", "syscalls:sys_enter_write,page-faults"];
        let stderr = room.record(&[&events, options, &["--", "./numbers", "1"]].concat());
        let sums = sums(&room);
        assert_eq!(sums[WRITES], 2000, "{options:?}: {stderr}");
        assert!(
            (10..1000).contains(&sums["page-faults"]),
            "{options:?}: {sums:?}"
        );
        assert!(stderr.contains("counts of "), "{stderr}");
        assert!(
            stderr.contains("; next: perfquet-query info t.pqt"),
            "{stderr}"
        );
    }
    // Children are counted, unless they are excluded.
    let script = ["--", "sh", "-c", "./numbers 1; true"];
    let count = |options: &[&str]| {
        room.record(&[&["--stat", WRITES], options, &script].concat());
        sums(&room)[WRITES]
    };
    assert_eq!((count(&[]), count(&["--no-inherit"])), (2000, 0));
    // While the events are recorded, too.
    room.record(&["-e", WRITES, "--stat", WRITES, "--", "./numbers", "1"]);
    assert_eq!(sums(&room)[WRITES], 2000);
    assert_eq!(
        room.rows("events/syscalls/sys_enter_write", &["count"])
            .len(),
        2000
    );
}

/// Software events of the same command, by perf stat.
#[test]
fn counts_equal_those_of_perf_stat() {
    if !may_record() || !needs::met(&["perf"]) {
        return;
    }
    let room = Room::new();
    let script =
        "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; /bin/ls / >/dev/null; (exit 3)";
    let events = "task-clock,page-faults,raw_syscalls:sys_enter,sched:sched_process_fork";
    let ours = || {
        room.run(&["--stat", events, "--", "sh", "-c", script]);
        sums(&room)
    };
    let theirs = || -> BTreeMap<String, i64> {
        let output = Command::new("perf")
            .args(["stat", "-x", ";", "-e", events, "sh", "-c", script])
            // A shell asks for its directory if $PWD is another; perf adds one to PATH, hence /bin/ls.
            .current_dir(room.path(""))
            .output()
            .expect("perf runs");
        String::from_utf8_lossy(&output.stderr)
            .lines()
            .filter_map(|line| {
                let words: Vec<&str> = line.split(';').collect();
                let value = words.first()?.parse::<f64>().ok()?;
                // perf prints clocks in milliseconds.
                let scale = if words.get(1) == Some(&"msec") {
                    1e6
                } else {
                    1.0
                };
                Some(((*words.get(2)?).to_owned(), (value * scale) as i64))
            })
            .collect()
    };
    let (mut lowest, mut highest) = (BTreeMap::new(), BTreeMap::new());
    for _ in 0..5 {
        for (event, count) in theirs() {
            let low = lowest.entry(event.clone()).or_insert(count);
            *low = count.min(*low);
            let high = highest.entry(event).or_insert(count);
            *high = count.max(*high);
        }
    }
    let ours = ours();
    println!("perf: {lowest:?} to {highest:?}, ours: {ours:?}");
    assert_eq!(ours.len(), 4);
    // A signal restarts a system call now and then.
    for (exact, more) in [
        ("raw_syscalls:sys_enter", 2),
        ("sched:sched_process_fork", 0),
    ] {
        let range = lowest[exact] - more..=highest[exact] + more;
        assert!(range.contains(&ours[exact]), "{exact}");
    }
    let is_near = |event: &str, share: f64| {
        let (low, high) = (lowest[event] as f64, highest[event] as f64);
        let ours = ours[event] as f64;
        ours >= low * (1.0 - share) && ours <= high * (1.0 + share)
    };
    assert!(is_near("page-faults", 0.02) && is_near("task-clock", 0.5));
}

#[test]
fn system_processes_and_pauses() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    let Some(program) = room.compile("numbers.c", &["-O1"]) else {
        return;
    };
    // A CPU has as much clock as time passes.
    room.record(&[
        "--stat",
        "cpu-clock",
        "--per",
        "cpu",
        "-C",
        "0,1",
        "--every",
        "250ms",
        "--duration",
        "1s",
    ]);
    let rows = room.rows("counts", &COLUMNS);
    assert!(rows.len() >= 8, "{rows:?}");
    for row in &rows {
        let words: Vec<&str> = row.split(' ').collect();
        let number = |place: usize| words[place].parse::<f64>().expect("a number");
        let elapsed = number(5) - number(4);
        assert!(["0", "1"].contains(&words[2]) && words[3] == "-", "{row}");
        if elapsed < 100_000_000.0 {
            continue; // the last period
        }
        // Reading follows the clock by little; a busy host may delay it.
        assert!((number(1) / elapsed - 1.0).abs() < 0.2, "{row}");
    }
    // Nothing is counted before the delay is over.
    let mut numbers = Command::new(program).arg("3").spawn().expect("it starts");
    let pid = numbers.id().to_string();
    let time = ["--delay", "300ms", "--duration", "500ms"];
    room.record(
        &[
            &time,
            &["--stat", WRITES, "-p", &pid, "--per", "thread"][..],
        ]
        .concat(),
    );
    let _ = numbers.kill();
    let _ = numbers.wait();
    let rows = room.rows("counts", &["count", "tid", "comm"]);
    let (count, of) = rows[0].split_once(' ').expect("three columns");
    let count: i64 = count.parse().expect("a number");
    assert!(
        (100..1100).contains(&count) && of == format!("{pid} numbers"),
        "{rows:?}"
    );
}

/// Breakpoints at a variable count and record each access.
#[test]
fn accesses_to_a_variable() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    let Some(program) = room.compile("watched.c", &["-O1", "-no-pie"]) else {
        return;
    };
    let symbols = Command::new("nm").arg(&program).output().expect("nm runs");
    let symbols = String::from_utf8_lossy(&symbols.stdout).into_owned();
    let line = symbols
        .lines()
        .find(|line| line.ends_with(" watched"))
        .expect("a symbol");
    let address = &line[..16];
    // The kernel clears the memory at exec.
    let writes = format!("mem:0x{address}/4:w:u");
    let all = format!("mem:0x{address}:rw:u");
    room.record(&[
        "--stat",
        &format!("{writes},{all},page-faults"),
        "--",
        "./watched",
    ]);
    let sums = sums(&room);
    assert_eq!((sums[&writes], sums[&all]), (100, 150));
    room.record(&[
        "-e",
        &format!("{writes},sched:sched_process_exit"),
        "--",
        "./watched",
    ]);
    let samples = room.rows("samples", &["event", "comm"]);
    assert_eq!(samples.len(), 100, "{samples:?}");
    assert_eq!(samples[0], format!("{writes} watched"));
    let (status, stderr) = room.run(&["-e", "mem:main:w", "--", "./watched"]);
    assert_eq!(status, Some(2), "{stderr}");
    assert!(
        stderr.contains("expected a hexadecimal address, found \"main\""),
        "{stderr}"
    );
}

#[test]
fn an_unprivileged_user_counts_own_processes() {
    if !may_record() || !room::users_may_record() {
        return;
    }
    let room = Room::new();
    let program = room.give_to(room::NOBODY);
    let mut command = Command::new(program);
    command
        .current_dir(room.path(""))
        .uid(room::NOBODY)
        .gid(room::NOBODY);
    command.args([
        "-o",
        "t.pqt",
        "--stat",
        "page-faults,context-switches",
        "--",
        "ls",
        "/",
    ]);
    let (status, stderr) = room::ended(command.output().expect("it runs"));
    assert_eq!(status, Some(0), "{stderr}");
    let rows = room.rows("counts", &["event", "count", "error"]);
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").expect("a number");
    if paranoid.trim().parse::<i32>().expect("a number") < 2 {
        return; // The kernel is included.
    }
    assert!(
        rows[0].starts_with("page-faults:u ") && !rows[0].starts_with("page-faults:u 0 "),
        "{rows:?}"
    );
    assert_eq!(
        rows[1],
        "context-switches - not permitted: occurs in the kernel"
    );
    assert_eq!(
        stderr.matches("not permitted to count").count(),
        1,
        "{stderr}"
    );
}

#[test]
fn events_that_cannot_be_counted_are_named() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    // No CPU has this one.
    let stderr = room.record(&["--stat", "node-prefetch-misses,page-faults", "--", "true"]);
    let rows = room.rows("counts", &["event", "count", "error"]);
    let unsupported = rows
        .iter()
        .find(|row| row.starts_with("node-prefetch-misses "));
    let unsupported = unsupported.expect("a row");
    if unsupported.starts_with("node-prefetch-misses - not supported: ") {
        assert!(stderr.contains("not counted"), "{stderr}");
    } else {
        println!("this host has node-prefetch-misses");
    }
    assert!(
        rows.iter().any(|row| row.starts_with("page-faults ")),
        "{rows:?}"
    );
    let check = |arguments: &[&str], expected: &str| {
        let (status, stderr) = room.run(arguments);
        assert_eq!(status, Some(2), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    };
    check(&["--stat", "page-fault", "--", "true"], "use page-faults");
    check(
        &["--stat", "{page-faults", "--", "true"],
        "expected '}' after the group",
    );
    check(
        &["--stat", "page-faults", "--per", "thread", "-a"],
        "--per thread: requires",
    );
    check(
        &["--stat", "--ring", "1s", "-a"],
        "--stat cannot be combined with --ring",
    );
    check(&["--per", "cpu", "-a"], "--stat");
    // A group is counted as a whole.
    room.record(&[
        "--stat",
        "{task-clock,page-faults},context-switches",
        "--",
        "true",
    ]);
    assert_eq!(sums(&room).len(), 3);
    room.record(&["--stat", "--", "true"]);
    assert_eq!(room.rows("counts", &["event"]).len(), 8);
}

/// The kernel counts a clock whole, whatever the modifier.
#[test]
fn clocks_count_all_time() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    let stderr = room.record(&[
        "--stat",
        "cpu-clock:u,task-clock:k,page-faults:u",
        "--",
        "true",
    ]);
    let rows = room.rows("counts", &["event", "count", "unit", "error"]);
    for (row, name) in rows.iter().zip(["cpu-clock:u", "task-clock:k"]) {
        let expected = format!("{name} - ns not supported: the kernel counts all time");
        assert!(row.starts_with(&expected), "{rows:?}");
    }
    assert!(rows[2].starts_with("page-faults:u "), "{rows:?}");
    assert!(stderr.contains("-e samples it"), "{stderr}");
    // Tracepoints to which the kernel adds times.
    room.record(&["--stat", "sched:sched_stat_runtime", "--", "true"]);
    let rows = room.rows("counts", &["unit"]);
    assert_eq!(rows, ["ns"]);
}

#[test]
fn an_event_of_the_kernel_only_needs_permission() {
    if !may_record() || !needs::met(&["kernel.perf_event_paranoid of 2"]) {
        return;
    }
    let room = Room::new();
    let program = room.give_to(room::NOBODY);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command
            .current_dir(room.path(""))
            .uid(room::NOBODY)
            .gid(room::NOBODY)
            .args(["--force", "-o", "t.pqt"])
            .args(arguments);
        room::ended(command.output().expect("it runs"))
    };
    let (status, stderr) = run(&["-e", "cpu-clock:k", "--", "true"]);
    assert_eq!(status, Some(1), "{stderr}");
    assert!(!stderr.contains(":k:u"), "{stderr}");
    let (status, stderr) = run(&["--stat", "page-faults:k,task-clock", "--", "true"]);
    assert_eq!(status, Some(0), "{stderr}");
    let rows = room.rows("counts", &["event", "error"]);
    assert_eq!(rows[0], "page-faults:k not permitted: occurs in the kernel");
    assert_eq!(rows[1], "task-clock -");
    assert!(!stderr.contains("user space only"), "{stderr}");
}
