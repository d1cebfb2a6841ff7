//! In-kernel aggregation, compared with the known calls of a program, and with the same hits recorded individually.
//!
//! The tests need root, uprobes, BPF and a C compiler, and report a missing requirement.

#[allow(
    dead_code,
    unreachable_pub,
    reason = "shared by the tests of all crates"
)]
#[path = "../../tests/src/needs.rs"]
mod needs;
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rows::rows_of;

/// Arguments with which `summed` calls `work`.
fn values() -> Vec<i64> {
    let thrice = (0..100).flat_map(|value| [value; 3]);
    thrice.chain([-1, -1000, 1 << 62]).collect()
}

struct Room {
    folder: tempfile::TempDir,
}

impl Room {
    /// A directory with the program; `None` if it cannot be tested here.
    fn new() -> Option<Room> {
        if !needs::met(&["root", "uprobes", "bpf", "cc"]) {
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/summed.c");
        // With frame pointers, for stacks.
        let compiled = Command::new("cc")
            .args(["-O1", "-fno-omit-frame-pointer", "-no-pie", "-o"])
            .arg(folder.path().join("summed"))
            .arg(source)
            .status();
        assert!(compiled.is_ok_and(|status| status.success()), "summed.c");
        Some(Room { folder })
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.recorder(arguments)
            .output()
            .expect("the recorder runs")
    }

    fn recorder(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perfquet-record"));
        command
            .args(["--force", "-o", "t.pqt"])
            .args(arguments)
            .current_dir(self.folder.path());
        command
    }

    /// Records, and checks that no probes remain.
    #[track_caller]
    fn record(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {stderr}");
        let left = fs::read_to_string("/sys/kernel/tracing/dynamic_events").unwrap_or_default();
        let folder = self.folder.path().display().to_string();
        assert!(!left.contains(&folder), "{left}");
        stderr
    }

    /// Columns of a table, row by row.
    #[track_caller]
    fn rows(&self, table: &str, columns: &[&str]) -> Vec<String> {
        rows_of(&self.folder.path().join("t.pqt"), table, columns)
    }

    /// Aggregates the program's calls of `work`.
    #[track_caller]
    fn aggregate(&self, aggregation: &str) -> Vec<String> {
        let probe = "./summed:work value=%di:s64 name=+0(%si):string";
        let mut options = vec!["--uprobe", probe, "--agg", aggregation];
        if aggregation.contains("stack") {
            // Which stacks are walked by tables depends on when these were loaded.
            options.extend(["--call-graph", "fp"]);
        }
        options.extend(["--", "./summed"]);
        self.record(&options);
        assert_eq!(self.rows("losses", &["reason"]), Vec::<String>::new());
        assert_eq!(self.rows("problems", &["message"]), Vec::<String>::new());
        self.rows("aggregates", &["name", "action", "keys", "value"])
    }

    /// Bars as [low, high) with their counts.
    fn bars(&self) -> Vec<(Option<i64>, Option<i64>, i64)> {
        let number = |cell: &str| cell.parse().ok();
        let bars = self.rows("buckets", &["low", "high", "count"]);
        bars.iter()
            .map(|bar| {
                let mut cells = bar.split(' ');
                let mut next = || cells.next().and_then(number);
                (next(), next(), next().expect("a count"))
            })
            .collect()
    }
}

#[test]
fn every_action_has_the_known_value() {
    let Some(room) = Room::new() else { return };
    let values = values();
    let (count, sum) = (values.len() as f64, values.iter().sum::<i64>());
    let mean = sum as f64 / count;
    for (action, expected) in [
        ("count()", count),
        ("sum(value)", sum as f64),
        ("avg(value)", mean),
        ("min(value)", -1000.0),
        ("max(value)", (1i64 << 62) as f64),
    ] {
        let name = &action[..action.find('(').expect("brackets")];
        let found = room.aggregate(action);
        assert_eq!(found, [format!("{action} {name} [] {expected:?}")]);
    }
    let found = room.aggregate("stddev(value)");
    let found: f64 = found[0]
        .rsplit(' ')
        .next()
        .and_then(|cell| cell.parse().ok())
        .expect("a value");
    let variance = values
        .iter()
        .map(|&value| (value as f64 - mean).powi(2))
        .sum::<f64>()
        / count;
    assert!(
        (found / variance.sqrt() - 1.0).abs() < 1e-9,
        "{found} {}",
        variance.sqrt()
    );
}

#[test]
fn bars_count_the_values_in_their_range() {
    let Some(room) = Room::new() else { return };
    for (action, fewest) in [
        ("quantize(value)", 10),
        ("lquantize(value, 0, 50, 5)", 12),
        ("lquantize(value, -10, 1000, 100)", 4),
        ("llquantize(value, 10, 0, 2, 10)", 20),
        ("llquantize(value, 2, 3, 5, 2)", 6),
    ] {
        let rows = room.aggregate(action);
        assert_eq!(rows.len(), 1, "{action}");
        let bars = room.bars();
        assert!(bars.len() >= fewest, "{action}: {bars:?}");
        for &(low, high, count) in &bars {
            let is_inside = |value: &&i64| {
                low.is_none_or(|low| **value >= low) && high.is_none_or(|high| **value < high)
            };
            let expected = values().iter().filter(is_inside).count() as i64;
            assert_eq!(count, expected, "{action}: [{low:?}, {high:?})");
        }
        let total: i64 = bars.iter().map(|bar| bar.2).sum();
        assert_eq!(total, values().len() as i64, "{action}");
    }
}

#[test]
fn keys_of_every_kind() {
    let Some(room) = Room::new() else { return };
    assert_eq!(
        room.aggregate("calls = count() by name, comm"),
        [
            "calls count [inner, summed] 103.0",
            "calls count [outer, summed] 200.0"
        ]
    );
    let by_value = room.aggregate("count() by value");
    assert_eq!(by_value.len(), 103);
    assert!(
        by_value.contains(&"count() count [-1000] 1.0".to_owned()),
        "{by_value:?}"
    );
    assert!(
        by_value.contains(&"count() count [42] 3.0".to_owned()),
        "{by_value:?}"
    );
    // Counts by CPU, process and thread add up to the total.
    let by_place = room.aggregate("count() by cpu, pid, tid");
    let total: f64 = by_place
        .iter()
        .filter_map(|row| row.rsplit(' ').next()?.parse::<f64>().ok())
        .sum();
    assert_eq!(total, 303.0);
    // User stacks: main calls two functions, which call work at six places.
    assert_eq!(room.aggregate("count() by ustack").len(), 6);
    let functions = room.rows("frames", &["function"]);
    // At the first instruction of a function there is no frame yet, so its caller is missing.
    for expected in ["work", "main"] {
        assert!(
            functions.iter().any(|name| name == expected),
            "{functions:?}"
        );
    }
    // Two probes at the same time, distinguished by name.
    room.record(&[
        "--uprobe",
        "./summed:*er",
        "--agg",
        "count() by probe, comm",
        "--",
        "./summed",
    ]);
    assert_eq!(
        room.rows("aggregates", &["keys", "value"]),
        [
            "[probe_summed:inner, summed] 103.0",
            "[probe_summed:outer, summed] 200.0"
        ]
    );
}

#[test]
fn aggregates_equal_those_of_recorded_hits() {
    let Some(room) = Room::new() else { return };
    // In the same run, one probe is recorded and one aggregated.
    let probe = "./summed:work value=%di:s64";
    room.record(&[
        "--uprobe",
        probe,
        "--uprobe",
        probe,
        "--agg",
        "sum(value) by tid",
        "--",
        "./summed",
    ]);
    let mut expected: BTreeMap<String, i64> = BTreeMap::new();
    for row in room.rows("events/probe_summed/work", &["tid", "value"]) {
        let (tid, value) = row.split_once(' ').expect("two columns");
        *expected.entry(tid.to_owned()).or_default() += value.parse::<i64>().expect("a number");
    }
    let expected: Vec<String> = expected
        .iter()
        .map(|(tid, sum)| format!("[{tid}] {:?}", *sum as f64))
        .collect();
    assert_eq!(room.rows("aggregates", &["keys", "value"]), expected);
}

#[test]
fn target_selection_in_the_kernel() {
    let Some(room) = Room::new() else { return };
    let probe = ["--uprobe", "./summed:work", "--agg", "count() by pid"];
    // Another process of the same program is not counted.
    let mut other = Command::new("./summed")
        .arg("wait")
        .stdin(Stdio::piped())
        .current_dir(room.folder.path())
        .spawn()
        .expect("the program runs");
    // A command and its children.
    let printed = room.record(&[&probe[..], &["--", "./summed", "fork"]].concat());
    let mut counts = room.rows("aggregates", &["value"]);
    counts.sort();
    assert_eq!(counts, ["1.0", "10.0"], "{printed}");
    // Nothing of a shell before its exec, but all its children.
    let printed =
        room.record(&[&probe[..], &["--", "sh", "-c", "./summed fork; ./summed"]].concat());
    let mut counts = room.rows("aggregates", &["value"]);
    counts.sort();
    assert_eq!(counts, ["1.0", "10.0", "303.0"], "{printed}");
    // One process of two.
    let pid = other.id().to_string();
    let mut recorder = room.recorder(&[&probe[..], &["-p", &pid, "--duration", "60s"]].concat());
    recorder.stderr(Stdio::piped());
    let recorder = recording(recorder, room.folder.path());
    // A process other than the recorded one.
    let status = Command::new("./summed")
        .current_dir(room.folder.path())
        .status();
    assert!(status.is_ok_and(|status| status.success()));
    other
        .stdin
        .take()
        .expect("a pipe")
        .write_all(b"x")
        .expect("it reads");
    assert!(other.wait().is_ok_and(|status| status.success()));
    // The recording ends with the process.
    let output = recorder.wait_with_output().expect("it ends");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(
        room.rows("aggregates", &["keys", "value"]),
        [format!("[{pid}] 10.0")]
    );
}

/// Starts a recorder, and returns when it records.
fn recording(mut recorder: Command, folder: &Path) -> Child {
    let made = Command::new("mkfifo")
        .args(["commands", "answers"])
        .current_dir(folder)
        .status();
    assert!(made.is_ok_and(|status| status.success()));
    recorder.args(["--control", "fifo:commands,answers"]);
    let recorder = recorder.spawn().expect("the recorder runs");
    // A recorder that fails opens no FIFO, and the shell would wait.
    let script = "exec 3<>answers; echo ping >commands; read answer <&3; [ \"$answer\" = ack ]";
    let answered = Command::new("timeout")
        .args(["110", "sh", "-c", script])
        .current_dir(folder)
        .status();
    assert!(answered.is_ok_and(|status| status.success()), "no answer");
    recorder
}

#[test]
fn losses_for_lack_of_space_are_reported() {
    let Some(room) = Room::new() else { return };
    let probe = "./summed:work value=%di:s64";
    room.record(&[
        "--uprobe",
        probe,
        "--agg",
        "count() by value",
        "--",
        "./summed",
        "many",
    ]);
    let kept: usize = room.rows("aggregates", &["value"]).len();
    let lost = room.rows("losses", &["count", "reason"]);
    assert_eq!(
        lost,
        [format!("{} count(): no room in the map", 20_000 - kept)]
    );
    // An unreadable string is not counted as an empty one.
    let probe = "./summed:work text=+0(%di):string";
    room.record(&[
        "--uprobe",
        probe,
        "--agg",
        "count() by text",
        "--",
        "./summed",
    ]);
    let lost = room.rows("losses", &["count", "reason"]);
    assert_eq!(lost, ["303 count(): memory that could not be read"]);
}

#[test]
fn tracepoints_and_clocks() {
    let Some(room) = Room::new() else { return };
    let dd = [
        "--",
        "dd",
        "if=/dev/zero",
        "of=/dev/null",
        "bs=1000",
        "count=1234",
        "status=none",
    ];
    let writes = ["-e", "syscalls:sys_enter_write", "--agg"];
    room.record(&[&writes[..], &["sum(count) by comm, fd"], &dd].concat());
    assert_eq!(
        room.rows("aggregates", &["keys", "value"]),
        ["[dd, 1] 1234000.0"]
    );
    // Hundreds of tracepoints share one program, and are distinguished.
    let all = ["-e", "syscalls:sys_enter_*", "--agg"];
    room.record(&[&all[..], &["count() by comm, probe"], &dd].concat());
    let calls = room.rows("aggregates", &["keys", "value"]);
    for expected in [
        "[dd, syscalls:sys_enter_write] 1234.0",
        "[dd, syscalls:sys_enter_exit_group] 1.0",
    ] {
        assert!(calls.iter().any(|row| row == expected), "{calls:?}");
    }
    // By frame pointers: which stacks are walked by tables depends on when these were loaded.
    let by_stack = ["count() by stack", "--call-graph", "fp"];
    room.record(&[&writes[..], &by_stack, &dd].concat());
    assert_eq!(room.rows("aggregates", &["value"]), ["1234.0"]);
    let stacks = room.rows("aggregates", &["kernel_stack", "user_stack"]);
    assert!(!stacks[0].contains('-'), "{stacks:?}");
    // Every stack of a sampled command is present, and their counts add up to the samples.
    room.record(&[
        "--profile",
        "-F",
        "1000",
        "--",
        "sh",
        "-c",
        "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done",
    ]);
    let profile = room.rows("aggregates", &["name", "keys", "value"]);
    assert!(
        profile.iter().all(|row| row.starts_with("profile [sh, ")),
        "{profile:?}"
    );
    assert!(!profile.is_empty());
}

/// The kernel aggregates exactly the hits that match a filter, with any combination of numbers and strings.
#[test]
fn only_hits_matching_the_filter_are_aggregated() {
    let Some(room) = Room::new() else { return };
    let probe = "./summed:work value=%di:s64 small=%di:u8 name=+0(%si):string";
    let all: Vec<(i64, &str)> = values()
        .into_iter()
        .enumerate()
        .map(|(place, value)| {
            let is_outer = place < 300 && place % 3 < 2;
            (value, if is_outer { "outer" } else { "inner" })
        })
        .collect();
    let expected = |is_chosen: fn(i64, &str) -> bool| {
        let chosen = all.iter().filter(|(value, name)| is_chosen(*value, name));
        chosen.count()
    };
    for (filter, count) in [
        ("value < 10", expected(|value, _| value < 10)),
        (
            "value >= -1 && value <= 0x10",
            expected(|value, _| (-1..=16).contains(&value)),
        ),
        (
            "name == \"outer\" && !(value & 1)",
            expected(|value, name| name == "outer" && value % 2 == 0),
        ),
        (
            "name ~ \"in*\" || value > 97 && value != 99",
            expected(|value, name| name == "inner" || value > 97 && value != 99),
        ),
        (
            "name != outer && small == 255",
            expected(|value, name| name != "outer" && value as u8 == 255),
        ),
        ("COMM == \"summed\" && CPU < 4096", all.len()),
        ("COMM == \"summe\" || common_pid == 0", 0),
    ] {
        let command = ["--uprobe", probe, "--filter", filter, "--agg", "count()"];
        room.record(&[&command[..], &["--", "./summed"]].concat());
        assert_eq!(room.rows("losses", &["reason"]), Vec::<String>::new());
        let found = match count {
            0 => Vec::new(),
            count => vec![format!("{count}.0")],
        };
        assert_eq!(room.rows("aggregates", &["value"]), found, "{filter}");
    }
    // Fields of a tracepoint, some of them strings; both filters must match.
    let command = [
        "-e",
        "sched:sched_process_exec",
        "--filter",
        "filename ~ \"./sum*\"",
        "--filter",
        "pid == old_pid || pid > 0",
        "--agg",
        "count() by filename",
        "--",
        "sh",
        "-c",
        "./summed; ./summed; true",
    ];
    let output = room.run(&command);
    assert_eq!(
        output.status.code(),
        Some(2),
        "a field on the right is none"
    );
    let mut command = command;
    command[5] = "pid > 0";
    room.record(&command);
    let rows = room.rows("aggregates", &["keys", "value"]);
    assert_eq!(rows, ["[./summed] 2.0"]);
}

/// Aggregating a tracepoint does not affect other recorders of it.
#[test]
fn others_record_the_same_tracepoint() {
    let Some(room) = Room::new() else { return };
    let inner = format!(
        "{} -o inner.pqt -e sched:sched_process_exec --agg 'count()' -- sh -c './summed; ./summed; true'",
        env!("CARGO_BIN_EXE_perfquet-record")
    );
    room.record(&["-e", "sched:sched_process_exec", "--", "sh", "-c", &inner]);
    let rows = room.rows("events/sched/sched_process_exec", &["filename"]);
    let programs = rows.iter().filter(|name| *name == "./summed").count();
    assert_eq!(programs, 2, "{rows:?}");
}

#[test]
fn invalid_options_are_explained() {
    let Some(room) = Room::new() else { return };
    for (arguments, expected) in [
        (
            &["--uprobe", "./summed:work", "--agg", "sum(value)"][..],
            "has no field value",
        ),
        (
            &["--uprobe", "./summed:work x=%di:s64", "--agg", "sum(y)"],
            "the fields: x",
        ),
        (
            &[
                "--uprobe",
                "./summed:work x=+0(%si):string",
                "--agg",
                "sum(x)",
            ],
            "x is a string",
        ),
        (
            &[
                "--uprobe",
                "./summed:work x=%di:s64",
                "--agg",
                "sum(x) by a b",
            ],
            "has no field a b",
        ),
        (&["--agg", "count()"], "no event or probe precedes it"),
        (
            &["-e", "cpu-clock", "--agg", "sum(x)"],
            "cpu-clock has no fields",
        ),
        (
            &[
                "-e",
                "sched:sched_switch",
                "--filter",
                "prev_comm > 1",
                "--agg",
                "count()",
            ],
            "prev_comm >: a text is compared by ==, != or ~",
        ),
        (
            &["-e", "cpu-clock", "--filter", "x == 1", "--agg", "count()"],
            "--filter x == 1: cpu-clock has no fields",
        ),
        (
            &[
                "-e",
                "sched:sched_switch",
                "--agg",
                "lquantize(prev_pid, 5, 1, 1)",
            ],
            "expected 1 to 65535 steps",
        ),
    ] {
        let output = room.run(&[arguments, &["--", "./summed"]].concat());
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
    }
}

/// A thread that another CPU wakes while it leaves its own has the state with which it went to sleep.
#[test]
fn waits_have_their_reason_whenever_they_end() {
    let Some(room) = Room::new() else { return };
    if !needs::met(&["Linux 6.12"]) {
        return;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/pingpong.c");
    let compiled = Command::new("cc")
        .args(["-O1", "-o"])
        .arg(room.folder.path().join("pingpong"))
        .arg(source)
        .arg("-lpthread")
        .status();
    assert!(compiled.is_ok_and(|status| status.success()), "pingpong.c");
    room.record(&["--off-cpu", "--", "./pingpong", "20000"]);
    let mut reasons = BTreeMap::<String, u64>::new();
    for keys in room.rows("aggregates", &["keys"]) {
        let reason = keys.split(", ").nth(2).expect("the reason");
        *reasons.entry(reason.to_owned()).or_default() += 1;
    }
    assert!(reasons.contains_key("interruptible"), "{reasons:?}");
    assert!(!reasons.contains_key("other"), "{reasons:?}");
}

/// Nanoseconds by name and process.
type Times = BTreeMap<(String, i64), f64>;

/// The switches recorded individually at the same time give the same times.
#[test]
fn off_cpu_time_equals_that_between_switches() {
    let Some(room) = Room::new() else { return };
    let mut seen = String::new();
    // A host that stalls between the readings of the two clocks gives different times, but not in every attempt.
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    for attempt in 0..4 {
        let (found, expected) = off_cpu_by_process(&room, attempt % cpus);
        // If the file is in memory, dd may never wait.
        let sleeping = found.iter().filter(|((comm, _), _)| comm == "sleep");
        let slept: Vec<f64> = sleeping.map(|(_, time)| *time).collect();
        assert_eq!(slept.len(), 7, "{found:?}");
        // The timer starts slightly before the switch.
        assert!(slept.iter().all(|time| *time >= 0.049e9), "{slept:?}");
        assert!(slept.iter().sum::<f64>() >= 0.59e9, "{slept:?}");
        let functions = room.rows("frames", &["function"]);
        assert!(
            functions.iter().any(|name| name.contains("nanosleep")),
            "{functions:?}"
        );
        assert!(
            !functions.iter().any(|name| name.contains("bpf_trace_run")),
            "{functions:?}"
        );
        if expected.is_empty() {
            continue;
        }
        let differing = expected.iter().find(|(key, time)| {
            let found = found.get(*key).copied().unwrap_or(0.0);
            (found - *time).abs() >= 2e6_f64.max(*time / 50.0)
        });
        let Some((key, time)) = differing else { return };
        seen += &format!("{key:?}: {:?} {time}\n", found.get(key));
    }
    assert_eq!(seen, "");
    println!("skipped: needs switches from idle tasks");
}

/// The time that `sleep` and `dd` were off the CPU by name and process, as aggregated in the kernel and as computed
/// from the recorded switches. The name is that at the switch. Other processes may sleep too, so only those of the test
/// count; and only processes with a switch in after every switch out, because in some virtual machines the kernel
/// reports neither to perf nor to ftrace the switches from the idle task of one CPU.
fn off_cpu_by_process(room: &Room, cpu: usize) -> (Times, Times) {
    let work = "for time in 0.3 0.05 0.05 0.05 0.05 0.05 0.05; do sleep $time & echo $!; wait $!; done >pids; \
                dd if=/dev/zero of=f bs=1M count=8 conv=fsync status=none & echo $! >>pids; wait $!";
    room.record(&[
        "-a",
        "--off-cpu",
        "-e",
        "sched:sched_switch",
        "--filter",
        "prev_comm == \"sleep\" || next_comm == \"sleep\" || prev_comm == \"dd\" || next_comm == \"dd\"",
        "--",
        "taskset",
        "-c",
        &cpu.to_string(),
        "sh",
        "-c",
        work,
    ]);
    assert_eq!(room.rows("losses", &["reason"]), Vec::<String>::new());
    let mut off = BTreeMap::<i64, (i64, String)>::new();
    let mut hidden = BTreeSet::new();
    let mut expected = Times::new();
    let columns = ["time", "prev_pid", "prev_state", "next_pid", "prev_comm"];
    for row in room.rows("events/sched/sched_switch", &columns) {
        // Names may contain spaces.
        let cells: Vec<&str> = row.splitn(5, ' ').collect();
        let number = |place: usize| cells[place].parse::<i64>().expect("a number");
        const DEAD: i64 = 0x10 | 0x20;
        let since = (number(0), cells[4].to_owned());
        if off.insert(number(1), since).is_some() {
            hidden.insert(number(1));
        }
        if number(2) & DEAD != 0 {
            off.remove(&number(1));
        }
        if let Some((since, comm)) = off.remove(&number(3))
            && ["sleep", "dd"].contains(&comm.as_str())
        {
            *expected.entry((comm, number(3))).or_default() += (number(0) - since) as f64;
        }
    }
    let mut found = Times::new();
    for row in room.rows("aggregates", &["keys", "value"]) {
        let (keys, value) = row
            .strip_prefix('[')
            .and_then(|row| row.rsplit_once("] "))
            .expect("keys");
        let keys: Vec<&str> = keys.split(", ").collect();
        if ["sleep", "dd"].contains(&keys[0]) {
            let key = (keys[0].to_owned(), keys[1].parse().expect("a process"));
            *found.entry(key).or_default() += value.parse::<f64>().expect("nanoseconds");
        }
    }
    let own = fs::read_to_string(room.folder.path().join("pids")).expect("pids");
    let is_own = |pid: i64| own.lines().any(|line| line.parse() == Ok(pid));
    found.retain(|(_, pid), _| is_own(*pid));
    expected.retain(|(_, pid), _| is_own(*pid) && !hidden.contains(pid));
    (found, expected)
}
