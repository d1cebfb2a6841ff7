//! What a trace says of when it was recorded: also before its first event, and after its last one.

mod room;

use std::path::Path;
use std::process::{Command, Stdio};

use perfquet_events::Input;
use perfquet_import::{ImportOptions, import};
use perfquet_trace::recorded::{KnownBy, Recorded};
use perfquet_trace::store::Directory;
use room::{Room, may_record, users_may_record};

const MS: i64 = 1_000_000;

/// When t.pqt was recorded, as its recorder says.
#[track_caller]
fn recorded(trace: &Path) -> Recorded {
    let trace = Directory::open(trace).expect("a trace");
    let facts = &trace.manifest().facts.other;
    let fact = |name: &str| facts.get(name).map(String::as_str);
    let tables = trace.manifest().tables.values();
    let events = tables.filter_map(|table| table.time_range());
    let events = events.reduce(|all, next| (all.0.min(next.0), all.1.max(next.1)));
    let recorded = Recorded::of(fact, events).expect("a length");
    assert_eq!(recorded.known_by, KnownBy::Recorder);
    recorded
}

/// An event that does not occur.
const QUIET: &str = "syscalls:sys_enter_acct";

#[test]
fn quiet_time_is_part_of_a_recording() {
    if !users_may_record() {
        return;
    }
    let room = Room::new();
    // The command begins after a moment, and ends before its shell.
    let command = "sleep 0.1; true; sleep 0.1";
    room.record(&["-e", "page-faults", "--", "sh", "-c", command]);
    let of_command = recorded(&room.path("t.pqt"));
    assert!(of_command.length() >= 200 * MS, "{of_command:?}");
    for row in room.rows("samples", &["time"]) {
        let time: i64 = row.parse().expect("a time");
        assert!((of_command.begin()..=of_command.end()).contains(&time));
    }
    let mut sleeper = Command::new("sleep")
        .arg("60")
        .stdin(Stdio::null())
        .spawn()
        .expect("sleep runs");
    let pid = sleeper.id().to_string();
    let of_process = [
        "-e",
        "page-faults",
        "-p",
        pid.as_str(),
        "--duration",
        "200ms",
    ];
    room.record(&of_process);
    let without_delay = recorded(&room.path("t.pqt"));
    assert!(without_delay.length() >= 200 * MS, "{without_delay:?}");
    // What precedes the delay is not recorded.
    let delayed = [&of_process[..], &["--delay", "700ms"]].concat();
    let before = std::time::Instant::now();
    room.record(&delayed);
    let whole = before.elapsed();
    let with_delay = recorded(&room.path("t.pqt"));
    assert!(i128::from(with_delay.length()) + 700_000_000 <= whole.as_nanos() as i128);
    sleeper.kill().expect("it runs");
    sleeper.wait().expect("it ends");
}

/// If other threads are recorded, too, the recording begins when its events are enabled, not when the command starts: otherwise, shares of
/// its length are too large.
#[test]
fn every_sample_of_a_system_is_in_the_recorded_time() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    let stat = ["--stat", "cpu-clock"];
    for options in [&[][..], &["-g"], &stat, &["--call", "libc.so.6:malloc"]] {
        let whole = [
            options,
            &["-a", "-e", "cpu-clock", "-F", "999", "--", "sleep", "0.1"],
        ]
        .concat();
        room.record(&whole);
        let length = recorded(&room.path("t.pqt"));
        let times: Vec<i64> = room
            .rows("samples", &["time"])
            .iter()
            .map(|row| row.parse().expect("a time"))
            .collect();
        assert!(!times.is_empty());
        let outside = times
            .iter()
            .filter(|time| !(length.begin()..=length.end()).contains(*time));
        assert_eq!(outside.count(), 0, "{options:?}: {length:?}");
    }
}

#[test]
fn traces_of_a_ring_follow_each_other() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    let mut recorder = room.recorder();
    recorder.args([
        "-a",
        "-e",
        QUIET,
        "--rotate",
        "300ms",
        "-o",
        "ring",
        "--duration",
        // The next recorder may take a second to be ready on a busy host.
        "4s",
    ]);
    let (status, stderr) = room::ended(recorder.output().expect("the recorder runs"));
    assert_eq!(status, Some(0), "{stderr}");
    let mut traces: Vec<_> = std::fs::read_dir(room.path("ring"))
        .expect("a ring")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "pqt"))
        .collect();
    traces.sort();
    assert!(traces.len() > 1, "{stderr}");
    let all: Vec<Recorded> = traces.iter().map(|trace| recorded(trace)).collect();
    for (one, next) in all.iter().zip(&all[1..]) {
        assert_eq!(next.begin(), one.end() + 1, "{all:?}");
    }
}

#[test]
fn a_perf_data_file_says_when_it_was_recorded() {
    if !users_may_record() {
        return;
    }
    let room = Room::new();
    let mut recorder = room.recorder();
    recorder.args([
        "--format",
        "perf.data",
        "-o",
        "perf.data",
        "-e",
        "page-faults",
    ]);
    recorder.args(["--", "sh", "-c", "true; sleep 0.2"]);
    let (status, stderr) = room::ended(recorder.output().expect("the recorder runs"));
    assert_eq!(status, Some(0), "{stderr}");
    let input = Input::open(&room.path("perf.data")).expect("a file");
    let options = ImportOptions::default();
    import(vec![input], &room.path("imported.pqt"), options).expect("an import");
    let imported = recorded(&room.path("imported.pqt"));
    assert!(imported.length() >= 200 * MS, "{imported:?}");
}

/// The kernel's events have the clock of the host, whatever the namespace of the recorder.
#[test]
fn a_time_namespace_loses_no_event() {
    if !may_record() || !room::needs::met(&["time namespaces"]) {
        return;
    }
    let room = Room::new();
    let wall = || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        i64::try_from(since.expect("after 1970").as_nanos()).expect("before 2262")
    };
    for offset in ["100000", "-1000"] {
        let before = wall();
        let mut command = Command::new("unshare");
        command
            .current_dir(room.path("."))
            .args(["-T", "--monotonic", offset])
            .arg(env!("CARGO_BIN_EXE_perfquet-record"))
            .args([
                "--force",
                "-o",
                "t.pqt",
                "-e",
                "syscalls:sys_enter_getppid",
                "--",
            ])
            .args(["perl", "-e", "getppid for 1..500"]);
        let (status, stderr) = room::ended(command.output().expect("it runs"));
        assert_eq!(status, Some(0), "{stderr}");
        let rows = room.rows("events/syscalls/sys_enter_getppid", &["time"]);
        assert_eq!(rows.len(), 500, "{offset}: {stderr}");
        let trace = Directory::open(&room.path("t.pqt")).expect("a trace");
        let wall_offset = trace.manifest().facts.wall_offset.expect("an offset");
        let first: i64 = rows[0].parse().expect("a time");
        let at = first + wall_offset;
        assert!((before..=wall()).contains(&at), "{offset}: {at}");
    }
}
