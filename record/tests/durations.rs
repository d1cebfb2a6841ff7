//! Tests durations that programs aggregate in the kernel, of calls and between events, by comparison with the known
//! behavior of the recorded program, and with the same calls and events recorded individually.
//!
//! They need root, uprobes, BPF and a C compiler, and report missing requirements.

mod compiled;

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use perfquet_import::{ImportOptions, recover};

use compiled::{Compiled, needs};

fn room() -> Option<Compiled> {
    if !needs::met(&["bpf"]) {
        return None;
    }
    Compiled::new("called", "-O1")
}

/// Values by name and keys.
fn values(room: &Compiled) -> BTreeMap<String, f64> {
    let rows = room.rows("aggregates", &["name", "keys", "value"]);
    let value = |row: &String| {
        let (key, value) = row.rsplit_once(' ').expect("columns");
        Some((key.to_owned(), value.parse().ok()?))
    };
    rows.iter().filter_map(value).collect()
}

#[test]
fn calls_by_arguments_and_results() {
    let Some(room) = room() else { return };
    room.record(&[
        "--call",
        "./called:nap ms=%di:s32 $retval:s32",
        "--where",
        "ms > 1 && retval < 60 && duration >= 2ms",
        "--agg",
        "count(), min(duration), quantize(duration) by ms, ret",
        "--agg",
        "max(ms), sum(retval)",
    ]);
    assert_eq!(room.rows("losses", &["reason"]), Vec::<String>::new());
    let values = values(&room);
    for ms in [2, 9, 16, 23] {
        let key = format!("[{ms}, {}]", 2 * ms);
        assert_eq!(values[&format!("count() {key}")], 1.0, "{values:?}");
        let least = values[&format!("min(duration) {key}")];
        assert!(least >= f64::from(ms) * 1e6, "{values:?}");
    }
    assert_eq!(values["max(ms) []"], 23.0);
    assert_eq!(values["sum(retval) []"], 100.0);
    // Four times two values, and the sums.
    assert_eq!(values.len(), 10, "{values:?}");
    let bars = room.rows("buckets", &["low", "count"]);
    assert_eq!(bars.len(), 4, "{bars:?}");
}

#[test]
fn nested_and_recursive_calls() {
    let Some(room) = room() else { return };
    room.record(&[
        "--call",
        "./called:[dno]*",
        "--agg",
        "count(), sum(duration) by function",
        "--agg",
        "own = sum(self) by function",
    ]);
    assert_eq!(room.rows("losses", &["reason"]), Vec::<String>::new());
    let values = values(&room);
    for (function, count) in [("outer", 5.0), ("nap", 7.0), ("down", 4.0)] {
        assert_eq!(values[&format!("count() [{function}]")], count);
    }
    // The naps are not the time of their caller, and the inner calls not that of the outermost one.
    let all = (2..=30).step_by(7).sum::<i32>();
    let (outer, own) = (values["sum(duration) [outer]"], values["own [outer]"]);
    assert!(outer >= f64::from(all) * 1e6, "{values:?}");
    assert!(own < outer - f64::from(all) * 0.9e6, "{values:?}");
    assert!(values["own [down]"] <= values["sum(duration) [down]"]);
}

#[test]
fn several_calls_before_an_aggregation() {
    let Some(room) = room() else { return };
    room.record(&[
        "--call",
        "./called:outer",
        "--call",
        "./called:nap",
        "--call",
        "./called:down",
        "--agg",
        "calls = count() by function",
        "--agg",
        "own = sum(self) by function",
    ]);
    assert_eq!(room.rows("losses", &["reason"]), Vec::<String>::new());
    let values = values(&room);
    for (function, count) in [("outer", 5.0), ("nap", 7.0), ("down", 4.0)] {
        assert_eq!(values[&format!("calls [{function}]")], count, "{values:?}");
    }
    assert_eq!(values.len(), 6, "{values:?}");
    // Nothing is stored call by call.
    assert_eq!(room.rows("calls", &["function"]), Vec::<String>::new());
}

#[test]
fn strings_of_the_entry() {
    let Some(room) = needs::met(&["bpf"])
        .then(|| Compiled::new("summed", "-O1"))
        .flatten()
    else {
        return;
    };
    room.record(&[
        "--call",
        "./summed:work value=%di:s64 name=+0(%si):string $comm",
        "--where",
        "name ~ \"in*\" && comm == summed",
        "--agg",
        "count(), max(value) by name, comm",
    ]);
    assert_eq!(room.rows("losses", &["reason"]), Vec::<String>::new());
    let rows = room.rows("aggregates", &["name", "keys", "value"]);
    assert_eq!(
        rows,
        [
            "count() [inner, summed] 103.0",
            "max(value) [inner, summed] 4.611686018427388e18"
        ]
    );
}

/// Every sleep of the same time, recorded one by one, gives as many latencies of the same length.
#[test]
fn latencies_are_those_between_recorded_events() {
    let Some(room) = room() else { return };
    room.record(&[
        "-a",
        "-e",
        "syscalls:sys_enter_*nanosleep",
        "-e",
        "syscalls:sys_exit_*nanosleep",
        "--filter",
        "ret == 0",
        "--latency",
        "syscalls:sys_enter_clock_nanosleep[tid]/flags == 0/ -> syscalls:sys_exit_clock_nanosleep[tid]",
        "--where",
        "ret == 0",
        "--agg",
        "n = count(), total = sum(duration), quantize(duration) by comm",
    ]);
    assert_eq!(room.rows("losses", &["reason"]), Vec::<String>::new());
    let mut open = BTreeMap::new();
    let (mut count, mut total) = (0.0, 0.0);
    let enter = "events/syscalls/sys_enter_clock_nanosleep";
    let exit = "events/syscalls/sys_exit_clock_nanosleep";
    let mut all = Vec::new();
    for (table, is_exit) in [(enter, false), (exit, true)] {
        for row in room.rows(table, &["time", "tid", "comm"]) {
            let words: Vec<&str> = row.splitn(3, ' ').collect();
            let number = |place: usize| words[place].parse::<i64>().expect("a number");
            if words[2] == "called" {
                all.push((number(0), is_exit, number(1)));
            }
        }
    }
    all.sort_unstable();
    for (time, is_exit, tid) in all {
        match is_exit {
            false => drop(open.insert(tid, time)),
            true => {
                if let Some(begin) = open.remove(&tid) {
                    count += 1.0;
                    total += (time - begin) as f64;
                }
            }
        }
    }
    let values = values(&room);
    assert_eq!((values["n [called]"], count), (7.0, 7.0));
    let difference = (values["total [called]"] - total).abs();
    assert!(difference < total / 20.0, "{values:?} {total}");
}

#[test]
fn mistakes_are_explained() {
    let Some(room) = room() else { return };
    for (arguments, expected) in [
        (
            &["--call", "./called:nap", "--agg", "sum(ms)"][..],
            "nap has no ms",
        ),
        (
            &["--call", "./called:nap", "--agg", "count() by duration"],
            "duration cannot be a key",
        ),
        (
            &[
                "--call",
                "./called:nap",
                "--where",
                "self > 1",
                "--agg",
                "count()",
            ],
            "self cannot be compared",
        ),
        (
            &[
                "--call",
                "./called:nap",
                "--where",
                "duration > 1parsec",
                "--agg",
                "count()",
            ],
            "\"1parsec\" is no number",
        ),
        (
            &["--latency", "sched:sched_switch"],
            "expected START[KEY] -> END[KEY]",
        ),
        (
            &[
                "--latency",
                "sched:sched_wakeup[pid] -> sched:sched_switch[cpu,next_pid]",
            ],
            "different numbers of keys",
        ),
        (
            &[
                "--latency",
                "sched:sched_wakeup[comm] -> sched:sched_switch[next_comm]",
            ],
            "comm is a string",
        ),
        (
            &["--latency", "cpu-clock[tid] -> sched:sched_switch[tid]"],
            "cpu-clock is not a tracepoint",
        ),
    ] {
        let output = room.run(&[arguments, &["--", "./called"]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}

/// Aggregates read at intervals: each hit is in one of them, and in the totals.
#[test]
fn every_hit_is_in_one_interval() {
    let Some(room) = room() else { return };
    let output = room.run(&[
        "-e",
        "syscalls:sys_enter_write",
        "--agg",
        "n = count(), s = sum(count), quantize(count) by comm",
        "--every",
        "10ms",
        "--live",
        "--",
        "dd",
        "if=/dev/zero",
        "of=/dev/null",
        "bs=1000",
        "count=300000",
        "status=none",
    ]);
    assert!(output.status.success());
    assert_eq!(room.rows("losses", &["reason"]), Vec::<String>::new());
    let rows = room.rows("aggregates", &["name", "value", "since", "time"]);
    let rows: Vec<Vec<&str>> = rows.iter().map(|row| row.split(' ').collect()).collect();
    let of = |name: &str, is_total: bool| {
        let rows = rows.iter().filter(move |row| row[0] == name);
        let rows = rows.filter(move |row| (row[2] == "-") == is_total);
        rows.map(|row| row[1].parse::<f64>().expect("a value"))
            .collect::<Vec<f64>>()
    };
    for (name, all) in [("n", 3e5), ("s", 3e8)] {
        let intervals = of(name, false);
        assert!(intervals.len() > 3, "{rows:?}");
        assert_eq!(intervals.iter().sum::<f64>(), all);
        let totals = of(name, true);
        assert!(totals.is_sorted(), "{totals:?}");
        assert_eq!(totals.last(), Some(&all));
    }
    // One period begins where the one before ended.
    let mut periods: Vec<(&str, &str)> = rows
        .iter()
        .filter(|row| row[0] == "n" && row[2] != "-")
        .map(|row| (row[2], row[3]))
        .collect();
    periods.sort_unstable();
    assert!(
        periods.windows(2).all(|pair| pair[0].1 <= pair[1].0),
        "{periods:?}"
    );
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        shown.contains("\nafter 0.") || shown.contains("\nafter 1."),
        "{shown}"
    );
    assert!(shown.contains("\nquantize(count) dd\n"), "{shown}");
    assert!(
        shown
            .lines()
            .any(|line| line.starts_with("comm ") && line.ends_with(" n")),
        "{shown}"
    );
}

/// A recorder that is killed leaves the intervals until then, and totals of them.
#[test]
fn intervals_survive_a_kill() {
    let Some(room) = room() else { return };
    let mut recorder = Command::new(env!("CARGO_BIN_EXE_perfquet-record"))
        .args(["-a", "-e", "sched:sched_switch", "--agg", "count() by cpu"])
        .args(["--every", "20ms", "--force", "-o", "t.pqt"])
        .current_dir(room.folder.path())
        .spawn()
        .expect("the recorder runs");
    let journal = room.path().join("journal/perf.data");
    let begin = Instant::now();
    let is_read = || {
        let bytes = fs::read(&journal).unwrap_or_default();
        bytes.windows(7).filter(|text| text == b"count()").count() > 20
    };
    while !is_read() {
        assert!(
            begin.elapsed().as_secs() < 60,
            "no aggregates in the journal"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    recorder.kill().expect("it runs");
    let _ = recorder.wait();
    recover(&room.path(), ImportOptions::default()).expect("it is completed");
    let rows = room.rows("aggregates", &["since"]);
    let totals = rows.iter().filter(|since| *since == "-").count();
    assert!(totals > 0 && rows.len() > 10, "{rows:?}");
}
