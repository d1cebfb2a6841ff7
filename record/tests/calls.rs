//! Calls of a program compiled here: arguments and return values, nesting, recursion, limits of the duration.
//!
//! The tests need root, uprobes and a C compiler, and report a missing requirement.

mod compiled;

use perfquet_events::Input;
use perfquet_import::{ImportOptions, import};
use perfquet_trace::store::Directory;

use compiled::Compiled;

fn room(optimization: &str) -> Option<Compiled> {
    Compiled::new("called", optimization)
}

#[test]
fn entry_and_return_are_one_row() {
    let Some(room) = room("-O0") else { return };
    let stderr = room.record(&["--call", "./called:nap ms $retval:s32"]);
    assert!(stderr.contains("7 calls, 0 lost"), "{stderr}");
    let columns = [
        "function",
        "args",
        "retval",
        "entry_seen",
        "exit_seen",
        "context",
        "depth",
    ];
    let expected =
        [1, 2, 9, 16, 23, 30, 1].map(|ms| format!("nap [ms={ms}] {} true true task 0", 2 * ms));
    assert_eq!(room.rows("calls", &columns), expected);
    let durations = room.rows("calls", &["duration"]);
    for (duration, ms) in durations.iter().zip([1, 2, 9, 16, 23, 30, 1]) {
        let ns: i64 = duration.parse().expect("a duration");
        assert!(ns >= ms * 1_000_000, "{ns} ns for {ms} ms");
    }
    let modules = room.rows("calls", &["module"]);
    assert!(
        modules.iter().all(|module| module.ends_with("/called")),
        "{modules:?}"
    );
    // The hits have no table, but are counted.
    let types = room.rows("event_types", &["system", "event", "table_name", "rows"]);
    for edge in ["call_called nap  7", "call_called nap__return  7"] {
        assert!(types.contains(&edge.to_owned()), "{types:?}");
    }
    let trace = Directory::open(&room.path()).expect("a trace");
    let names: Vec<_> = trace.manifest().tables.keys().collect();
    assert!(!names.iter().any(|name| name.contains("nap")), "{names:?}");
}

#[test]
fn nested_and_recursive_calls() {
    let Some(room) = room("-O1") else { return };
    room.record(&[
        "--call",
        "./called:outer $retval:string",
        "--call",
        "./called:[dn]*",
    ]);
    let rows = room.rows("calls", &["function", "depth", "caller", "args", "retval"]);
    let nested: Vec<&str> = rows.iter().map(String::as_str).collect();
    let outer = "outer 0 - [ret=\"done\"] -";
    assert_eq!(
        nested.iter().filter(|row| **row == outer).count(),
        5,
        "{rows:?}"
    );
    assert_eq!(
        nested
            .iter()
            .filter(|row| **row == "nap 1 outer - -")
            .count(),
        5,
        "{rows:?}"
    );
    let down: Vec<&&str> = nested
        .iter()
        .filter(|row| row.starts_with("down"))
        .collect();
    let expected = [
        "down 0 - - -",
        "down 1 down - -",
        "down 2 down - -",
        "down 3 down - -",
    ];
    assert_eq!(down, expected.iter().collect::<Vec<_>>());
    // Time in nested calls is not self time of the outer one.
    for row in room.rows("calls", &["function", "duration", "self_time"]) {
        let words: Vec<&str> = row.split(' ').collect();
        let number = |word: &str| word.parse::<i64>().expect("a number");
        if words[0] == "outer" {
            assert!(number(words[1]) - number(words[2]) >= 1_000_000, "{row}");
        }
    }
}

#[test]
fn duration_limits() {
    let Some(room) = room("-O1") else { return };
    let calls = ["--call", "./called:nap", "--call", "./called:outer"];
    let limits = ["--min-duration", "9ms", "--keep-raw"];
    // On a busy host, a short nap may take long: 12 calls in total, 8 of which are always long.
    let stderr = room.record(&[&calls[..], &limits].concat());
    let rows = room.rows("calls", &["duration"]);
    assert!(
        rows.iter()
            .all(|ns| ns.parse::<i64>().is_ok_and(|ns| ns >= 9_000_000))
    );
    let filtered = 12 - rows.len();
    assert!(rows.len() >= 8, "{rows:?}");
    if filtered > 0 {
        let shown = format!("{} calls, {filtered} filtered, 0 lost", rows.len());
        assert!(stderr.contains(&shown), "{stderr}");
        let losses = room.rows("losses", &["count", "reason"]);
        assert_eq!(
            losses,
            [format!("{filtered} filtered: calls shorter than 9ms")]
        );
    }
    // The journal has the same calls: a recovery gives the same rows.
    let again = room.folder.path().join("again.pqt");
    let journal = Input::open(&room.path().join("journal/perf.data")).expect("a journal");
    import(vec![journal], &again, ImportOptions::default()).expect("the journal is read");
    assert_eq!(room.rows_of(&again, "calls", &["duration"]), rows);
    let fact = room.fact("record.selection");
    assert_eq!(fact.as_deref(), Some("min_duration=9000000"));

    let stderr = room.record(&[&calls[..], &["--max-duration", "8ms"]].concat());
    let rows = room.rows("calls", &["duration"]);
    assert!(
        rows.iter()
            .all(|ns| ns.parse::<i64>().is_ok_and(|ns| ns <= 8_000_000))
    );
    assert!(
        stderr.contains(&format!("{} filtered, 0 lost", 12 - rows.len())),
        "{stderr}"
    );
    // The enclosing calls were too long, so the inner calls have no caller.
    let both = [
        &calls[..],
        &["--min-duration", "9ms", "--max-duration", "20ms"],
    ]
    .concat();
    room.record(&both);
    let parents = room.rows("calls", &["function", "parent_id"]);
    let ids = room.rows("calls", &["call_id"]);
    for row in &parents {
        let parent = row.split(' ').nth(1).expect("a parent");
        assert!(
            parent == "-" || ids.iter().any(|id| id == parent),
            "{parents:?}"
        );
    }
}

/// Whether BPF programs can be loaded here; the recorder must then use them.
fn may_load_programs(room: &Compiled) -> bool {
    if !compiled::needs::met(&["bpf"]) {
        return false;
    }
    let stderr = room.record(&["-v", "--call", "./called:nap", "--min-duration", "1us"]);
    assert!(
        stderr.contains("calls are paired in the kernel"),
        "{stderr}"
    );
    true
}

#[test]
fn calls_paired_in_the_kernel_equal_calls_paired_on_import() {
    let Some(room) = room("-O1") else { return };
    if !may_load_programs(&room) {
        return;
    }
    let calls = [
        "-v",
        "--call",
        "./called:nap ms=%di:s32 again=%di:x8 $retval:s32",
        "--call",
        "./called:outer",
        "--call",
        "./called:down n=%di:s64 $retval:u64",
        "--min-duration",
        "1ns",
    ];
    let columns = [
        "function",
        "module",
        "caller",
        "depth",
        "args",
        "retval",
        "entry_seen",
        "exit_seen",
        "context",
        "comm",
    ];
    let in_process = room.record(&[&calls[..], &["--context", "task"]].concat());
    assert!(!in_process.contains("in the kernel"), "{in_process}");
    let mut expected = room.rows("calls", &columns);
    let stderr = room.record(&calls);
    assert!(
        stderr.contains("calls are paired in the kernel"),
        "{stderr}"
    );
    assert!(stderr.contains("16 calls, 0 lost"), "{stderr}");
    let mut rows = room.rows("calls", &columns);
    // Recursive calls end innermost first, so their rows have another order.
    expected.sort();
    rows.sort();
    assert_eq!(rows, expected);
    assert!(
        rows.iter().any(|row| row.contains("[n=0] 0 true")),
        "{rows:?}"
    );
    assert!(
        rows.iter()
            .any(|row| row.contains("[ms=30, again=0x1e] 60 true")),
        "{rows:?}"
    );
    // Nested calls name their caller, and are not part of its self time.
    let numbers = |columns: &[&str]| -> Vec<Vec<i64>> {
        let rows = room.rows("calls", columns);
        let row = |row: &String| {
            row.split(' ')
                .map(|word| word.parse().unwrap_or(0))
                .collect()
        };
        rows.iter().map(row).collect()
    };
    let all = numbers(&["call_id", "parent_id", "duration", "self_time", "time"]);
    for row in &all {
        let children: Vec<_> = all.iter().filter(|child| child[1] == row[0]).collect();
        let inside: i64 = children.iter().map(|child| child[2]).sum();
        assert_eq!(row[2] - inside, row[3], "{all:?}");
        let is_inside =
            |child: &&Vec<i64>| child[4] >= row[4] && child[4] + child[2] <= row[4] + row[2];
        assert!(children.iter().all(is_inside), "{all:?}");
    }
    let parents = all.iter().filter(|row| row[1] != 0).count();
    assert_eq!(parents, 5 + 3, "{all:?}");
    // Triggers, and arguments that a BPF program cannot fetch.
    let triggers = [
        "--start-on",
        "entry:./called:begin",
        "--stop-on",
        "entry:./called:end",
    ];
    let nap = [
        "-v",
        "--call",
        "./called:nap ms=%di:s32",
        "--min-duration",
        "1us",
    ];
    room.record(&[&nap[..], &triggers].concat());
    let naps = ["[ms=2]", "[ms=9]", "[ms=16]", "[ms=23]", "[ms=30]"];
    assert_eq!(room.rows("calls", &["args"]), naps);
    let memory = [
        "-v",
        "--call",
        "./called:nap top=+0(%sp):u64",
        "--min-duration",
        "1us",
    ];
    let stderr = room.record(&memory);
    assert!(stderr.contains("paired in user space"), "{stderr}");
    assert_eq!(room.rows("calls", &["args"]).len(), 7);
}

#[test]
fn max_events_limits_calls() {
    let Some(room) = room("-O1") else { return };
    room.record(&["--call", "./called:nap ms=%di:s32", "--max-events", "3"]);
    assert_eq!(
        room.rows("calls", &["args"]),
        ["[ms=1]", "[ms=2]", "[ms=9]"]
    );
    room.record(&["--uprobe", "./called:nap", "--max-events", "2"]);
    assert_eq!(room.rows("events/probe_called/nap", &["tid"]).len(), 2);
    let output = room.run(&[
        "-a",
        "--call",
        "./called:nap",
        "--max-events",
        "4",
        "--",
        "./called",
    ]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(room.rows("calls", &["call_id"]).len(), 4);
}

#[test]
fn in_one_context() {
    let Some(room) = room("-O1") else { return };
    let stderr = room.record(&["--call", "./called:nap", "--context", "irq,softirq"]);
    assert!(stderr.contains("7 filtered"), "{stderr}");
    let losses = room.rows("losses", &["count", "reason"]);
    assert_eq!(losses, ["7 filtered: calls in another context"]);
    room.record(&["--call", "./called:nap", "--context", "task"]);
    assert_eq!(room.rows("calls", &["call_id"]).len(), 7);
}

/// The arguments of the calls of nap, in order.
fn naps(room: &Compiled) -> Vec<String> {
    room.rows("calls", &["args"])
}

#[test]
fn from_one_trigger_to_another() {
    let Some(room) = room("-O1") else { return };
    let nap = ["--call", "./called:nap ms=%di:s32"];
    let record = |options: &[&str]| room.record(&[&nap[..], options].concat());
    // One nap of 1 ms precedes begin(); its second call is followed by another one, and then by the second call of
    // end().
    let stderr = record(&["--start-on", "entry:./called:begin"]);
    assert!(!stderr.contains("did not fire"), "{stderr}");
    let all = [
        "[ms=2]", "[ms=9]", "[ms=16]", "[ms=23]", "[ms=30]", "[ms=1]",
    ];
    assert_eq!(naps(&room), all);
    let by = room.fact("record.started_by").expect("a trigger");
    assert!(by.starts_with("entry:./called:begin by called "), "{by}");
    let started: i64 = room
        .fact("record.started_at")
        .expect("a time")
        .parse()
        .expect("a time");
    let first = room.rows("calls", &["time"]);
    assert!(first[0].parse::<i64>().is_ok_and(|time| time > started));

    record(&[
        "--start-on",
        "entry:./called:begin",
        "--stop-on",
        "entry:./called:end",
    ]);
    assert_eq!(naps(&room), all[..5]);
    let by = room.fact("record.stopped_by").expect("a trigger");
    assert!(by.starts_with("entry:./called:end by called "), "{by}");

    // Starts with the first call of outer(): the first of several triggers decides.
    let starts = [
        "--start-on",
        "exit:./called:outer",
        "--start-on",
        "entry:./called:end",
    ];
    record(
        &[
            &starts[..],
            &["--stop-on", "exit:./called:end", "--keep-raw"],
        ]
        .concat(),
    );
    assert_eq!(naps(&room), all[1..5]);
    // A recovery gives the same rows.
    let again = room.folder.path().join("again.pqt");
    let journal = Input::open(&room.path().join("journal/perf.data")).expect("a journal");
    import(vec![journal], &again, ImportOptions::default()).expect("the journal is read");
    assert_eq!(room.rows_of(&again, "calls", &["args"]), naps(&room));

    record(&["--stop-on", "entry:./called:begin"]);
    assert_eq!(naps(&room), ["[ms=1]"]);
    // Other kinds of events too.
    let naps = ["-e", "syscalls:sys_enter_clock_nanosleep"];
    room.record(&[&naps[..], &["--start-on", "entry:./called:end"]].concat());
    let table = "events/syscalls/sys_enter_clock_nanosleep";
    assert_eq!(room.rows(table, &["tid"]).len(), 1);
}

#[test]
fn from_one_time_to_another() {
    let Some(room) = room("-O1") else { return };
    let nap = ["--call", "./called:nap ms=%di:s32"];
    // About 80 ms in total: nothing is cut off at either end.
    room.record(&[&nap[..], &["--stop-on", "time:60s"]].concat());
    assert_eq!(naps(&room).len(), 7);
    assert_eq!(room.fact("record.stop_on").as_deref(), Some("time:60s"));
    room.record(&[&nap[..], &["--start-on", "time:60s"]].concat());
    assert_eq!(naps(&room).len(), 0);
    let trigger = ["--start-on", "exit:./called:nap", "--stop-on", "time:30ms"];
    room.record(&[&nap[..], &trigger].concat());
    let started: i64 = room
        .fact("record.started_at")
        .expect("a time")
        .parse()
        .expect("a time");
    let times = room.rows("calls", &["time"]);
    let is_within = |time: &String| {
        let time: i64 = time.parse().expect("a time");
        (started..started + 30_000_000).contains(&time)
    };
    assert!(times.iter().all(is_within), "{started}: {times:?}");
    // The whole system until the time has elapsed.
    let before = std::time::Instant::now();
    let command = ["-a", "--stop-on", "time:300ms", "--", "sleep", "600"];
    let output = room.run(&[&nap[..], &command].concat());
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(before.elapsed() < std::time::Duration::from_secs(200));
}

/// Both in the kernel and on import.
#[test]
fn calls_that_never_return_are_reported() {
    let Some(room) = room("-O1") else { return };
    let call = ["--call", "libc.so.6:exit", "--min-duration", "1ns"];
    // Calls with arguments that a program cannot fetch are paired in user space.
    for more in [&[][..], &["--call", "./called:nap text=+0($stack):u64"]] {
        room.record(&[&call[..], more].concat());
        let returned = room.rows("calls", &["function"]);
        assert!(returned.iter().all(|name| name == "nap"), "{returned:?}");
        let losses = room.rows("losses", &["reason", "count"]);
        assert_eq!(
            losses,
            ["filtered: calls of unknown duration 1"],
            "{more:?}"
        );
    }
}

/// With stacks, records have an address before their time.
#[test]
fn triggers_work_with_stacks() {
    let Some(room) = room("-O1") else { return };
    let before = std::time::Instant::now();
    let output = room.run(&[
        "-g",
        "-e",
        "raw_syscalls:sys_enter",
        "--start-on",
        "entry:./called:begin",
        "--stop-on",
        "time:300ms",
        "--",
        "sh",
        "-c",
        "./called; exec sleep 600",
    ]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(
        before.elapsed() < std::time::Duration::from_secs(200),
        "{stderr}"
    );
    assert!(
        !room
            .rows("events/raw_syscalls/sys_enter", &["time"])
            .is_empty()
    );
}

#[test]
fn trigger_that_does_not_fire_is_reported() {
    let Some(room) = room("-O1") else { return };
    let stderr = room.record(&[
        "--call",
        "./called:nap",
        "--start-on",
        "exit:./called:never",
    ]);
    assert!(
        stderr.contains("exit:./called:never: it did not fire"),
        "{stderr}"
    );
    assert_eq!(naps(&room).len(), 0);
    let by = room.fact("record.started_by");
    assert_eq!(by.as_deref(), Some("no trigger fired"));
    let stderr = room.record(&[
        "--call",
        "./called:nap",
        "--stop-on",
        "entry:./called:never",
    ]);
    assert!(
        stderr.contains("did not fire before the recording ended"),
        "{stderr}"
    );
    assert_eq!(naps(&room).len(), 7);
    let both = ["entry:./called:nap", "entry:./called:nap"];
    let wrong = [
        "--start-on",
        both[0],
        "--stop-on",
        both[1],
        "--",
        "./called",
    ];
    let output = room.run(&wrong);
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        stderr.contains("starts and stops the trace at the same time"),
        "{stderr}"
    );
}

#[test]
fn invalid_options_are_explained() {
    let Some(room) = room("-O0") else { return };
    let nap = "./called:nap";
    for (arguments, expected) in [
        (vec!["--call", "./called:nab"], "use nap,"),
        (
            vec!["--call", "./called:nap+4"],
            "--call does not support an offset or line",
        ),
        (vec!["--call", "./called:nap missing"], "use one of: ms"),
        (
            vec!["--call", nap, "--filter", "ms > 1"],
            "is a call, not an event",
        ),
        (
            vec!["--call", nap, "--context", "tusk"],
            "no context \"tusk\"",
        ),
        (
            vec!["--call", nap, "--min-duration", "fast"],
            "expected a time",
        ),
        (
            vec![
                "--call",
                nap,
                "--min-duration",
                "2s",
                "--max-duration",
                "1s",
            ],
            "--min-duration exceeds --max-duration",
        ),
    ] {
        let output = room.run(&[&arguments[..], &["--", "./called"]].concat());
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
        assert_eq!(room.leftovers(), Vec::<String>::new(), "{arguments:?}");
    }
}
