//! Flight recorder: snapshots on a signal, after a slow call, at a high load, and at the end.
//!
//! The tests need root, tracepoints or uprobes, and report a missing requirement.

#[allow(
    dead_code,
    unreachable_pub,
    reason = "shared by the tests of all crates"
)]
#[path = "../../tests/src/needs.rs"]
mod needs;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use perfquet_trace::store::{Directory, State};

fn recorder(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perfquet-record"));
    command.current_dir(folder);
    command
}

/// Whether the kernel allows these recordings; reports the missing requirement.
fn may_record() -> bool {
    needs::met(&["root", "tracefs", "perf events"])
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns a column of numbers.
fn numbers(trace: &Path, table: &str, column: &str) -> Vec<i64> {
    let directory = Directory::open(trace).expect("a trace directory");
    assert_eq!(directory.manifest().state, State::Complete);
    let mut numbers = Vec::new();
    for batch in directory.read(table).expect(table) {
        let batch = batch.expect("a batch");
        let column = batch.column_by_name(column).expect(column);
        numbers.extend(column.as_primitive::<Int64Type>().values());
    }
    numbers
}

fn span(times: &[i64]) -> Duration {
    let first = times.iter().min().expect("events");
    let last = times.iter().max().expect("events");
    Duration::from_nanos(last.abs_diff(*first))
}

fn wait_for(path: &Path, recorder: &mut Child) {
    let begin = Instant::now();
    let complete = || {
        let trace = Directory::open(path).ok()?;
        (trace.manifest().state == State::Complete).then_some(())
    };
    while complete().is_none() {
        assert!(
            begin.elapsed() < Duration::from_secs(110),
            "{path:?} does not come"
        );
        assert!(recorder.try_wait().unwrap().is_none(), "the recorder ended");
        thread::sleep(Duration::from_millis(20));
    }
}

fn signal(name: &str, recorder: &Child) {
    let status = Command::new("kill")
        .args([&format!("-{name}"), &recorder.id().to_string()])
        .status();
    assert!(status.is_ok_and(|status| status.success()));
}

#[test]
fn on_a_signal_and_at_the_end() {
    if !may_record() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // Traces of an earlier run are not overwritten.
    fs::write(folder.path().join("t.1.pqt"), "of another run").unwrap();
    let mut recording = recorder(folder.path())
        .args(["-e", "raw_syscalls:sys_enter", "--ring", "1s"])
        .args(["--snapshot-on", "SIGUSR1", "-o", "t.pqt", "--"])
        .args([
            "sh",
            "-c",
            ": >started; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); [ -e stop ] && exit; sleep 0.02; done",
        ])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    while !folder.path().join("started").exists() && begin.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(20));
    }
    thread::sleep(Duration::from_secs(2));
    signal("USR1", &recording);
    let snapshot = folder.path().join("t.2.pqt");
    wait_for(&snapshot, &mut recording);
    // Another signal has no effect.
    thread::sleep(Duration::from_millis(1500));
    fs::write(folder.path().join("stop"), "").unwrap();
    let output = recording.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("snapshot t.2.pqt: requested"),
        "{}",
        stderr(&output)
    );

    let table = "events/raw_syscalls/sys_enter";
    let earlier = numbers(&snapshot, table, "time");
    let last = numbers(&folder.path().join("t.pqt"), table, "time");
    // A pass over the rings takes at most a quarter of a second, longer on a busy host.
    for times in [&earlier, &last] {
        let span = span(times);
        assert!(
            span > Duration::from_millis(300) && span < Duration::from_secs(6),
            "{span:?}"
        );
    }
    assert!(earlier.iter().max() < last.iter().min());
    let comms = Directory::open(&snapshot).unwrap();
    let mut named = 0;
    for batch in comms.read(table).unwrap() {
        let batch = batch.unwrap();
        let comms = batch.column_by_name("comm").unwrap().as_string::<i32>();
        named += comms
            .iter()
            .flatten()
            .filter(|comm| *comm == "sh" || *comm == "sleep")
            .count();
    }
    assert_eq!(
        named,
        earlier.len(),
        "names come from records that are older than the events"
    );
}

#[test]
fn when_a_call_was_slow() {
    if !may_record() || !needs::met(&["uprobes", "cc"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/slow.c");
    let compiled = Command::new("cc")
        .args(["-O1", "-o"])
        .arg(folder.path().join("slow"))
        .arg(source)
        .status();
    assert!(compiled.is_ok_and(|status| status.success()), "slow.c");
    let output = recorder(folder.path())
        .args(["-e", "raw_syscalls:sys_enter", "--ring", "20s,64M"])
        .args([
            "--snapshot-on",
            "slow:./slow:work>50ms",
            "-o",
            "t.pqt",
            "--",
            "./slow",
        ])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let path: PathBuf = folder.path().join("t.1.pqt");
    assert!(
        stderr(&output).contains("snapshot t.1.pqt: ./slow:work took "),
        "{}",
        stderr(&output)
    );
    let durations = numbers(&path, "calls", "duration");
    let slow = durations
        .iter()
        .filter(|duration| **duration > 50_000_000)
        .count();
    // On a busy host, an earlier call may have been slow.
    assert!(slow >= 1);
    assert!(durations.len() > 1, "the calls before the slow one");
    let all = numbers(&folder.path().join("t.pqt"), "calls", "duration");
    assert!(all.len() >= 300, "{}", all.len());
}

#[test]
fn when_the_load_was_high() {
    if !may_record() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // The shell of the command runs all the time; the second condition can hold on no host of these days.
    let mut recording = busy(
        folder.path(),
        "20s",
        "t.pqt",
        &[
            "--snapshot-on",
            "runqueue>0.5 for 2s",
            "--trigger",
            "runqueue>1000000",
        ],
    );
    let snapshot = folder.path().join("t.1.pqt");
    wait_for(&snapshot, &mut recording);
    // The load stays high, which is no reason for another one.
    thread::sleep(Duration::from_secs(3));
    fs::write(folder.path().join("stop"), "").unwrap();
    let output = recording.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let reason = "snapshot t.1.pqt: runqueue>0.5 for 2s: ";
    assert!(stderr(&output).contains(reason), "{}", stderr(&output));
    assert!(!folder.path().join("t.2.pqt").exists());
    let times = numbers(&snapshot, "events/raw_syscalls/sys_enter", "time");
    assert!(span(&times) > Duration::from_millis(1500), "before it");
}

/// Events lost until the end, after which no record says so: the command outranks the recorder on its CPU.
#[test]
fn losses_up_to_the_end_are_counted() {
    if !may_record() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = env!("CARGO_BIN_EXE_perfquet-record");
    let script = format!(
        "exec taskset -c 0 {program} --ring 64M -m 8K -e syscalls:sys_enter_write -o t.pqt -- \
         chrt -f 90 dd if=/dev/zero of=/dev/null bs=1 count=30000 status=none"
    );
    let output = Command::new("sh")
        .args(["-c", &script])
        .current_dir(folder.path())
        .output()
        .expect("a shell");
    assert!(output.status.success(), "{}", stderr(&output));
    let trace = folder.path().join("t.pqt");
    let rows = numbers(&trace, "events/syscalls/sys_enter_write", "time").len() as i64;
    let lost: i64 = numbers(&trace, "losses", "count").into_iter().sum();
    assert_eq!(rows + lost, 30_000, "{}", stderr(&output));
}

#[test]
fn loads_that_cannot_be_watched_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (load, reason) in [
        ("cpu>100%", "expected a percentage below 100"),
        ("cpu>90", "as in cpu>90%"),
        ("runqueue>8%", "expected a number of threads"),
        ("psi.disk>1%", "expected psi.cpu, psi.io"),
        ("cpu>90% for 5", "expected a unit"),
    ] {
        let output = recorder(folder.path())
            .args(["--ring", "1s", "--snapshot-on", load, "--", "true"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{load}");
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
    }
    if !needs::met(&["root"]) {
        return;
    }
    // A kernel without pressure stall information, as this process sees it.
    let program = env!("CARGO_BIN_EXE_perfquet-record");
    let hidden = format!(
        "mount -t tmpfs none /proc/pressure 2>/dev/null; \
         exec {program} --ring 1s --snapshot-on 'psi.io>10%' -e cpu-clock -- true"
    );
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &hidden])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("this kernel has no /proc/pressure/io"),
        "{}",
        stderr(&output)
    );
    assert!(!folder.path().join("trace.pqt").exists());
}

#[test]
fn invalid_options_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let output = recorder(folder.path()).args(arguments).output().unwrap();
        (output.status.code(), stderr(&output))
    };
    let (status, text) = run(&["--snapshot-on", "SIGUSR1", "--", "true"]);
    assert_eq!(status, Some(2));
    assert!(text.contains("--ring"), "{text}");
    let (status, text) = run(&["--ring", "often", "--", "true"]);
    assert_eq!(status, Some(2));
    assert!(text.contains("such as 30s or 64M"), "{text}");
    let (status, text) = run(&["--ring", "1s", "--snapshot-on", "SIGKILL", "--", "true"]);
    assert_eq!(status, Some(2));
    assert!(text.contains("slow:FUNC>TIME"), "{text}");
    if may_record() {
        fs::create_dir(folder.path().join("trace.pqt")).unwrap();
        let (status, text) = run(&["--ring", "1s", "--", "true"]);
        assert_eq!(status, Some(1));
        assert!(text.contains("trace.pqt exists"), "{text}");
    }
}

/// Starts a recorder with `--ring`, and a shell that makes system calls until a file "stop" exists.
fn busy(folder: &Path, ring: &str, output: &str, more: &[&str]) -> Child {
    recorder(folder)
        .args(["-e", "raw_syscalls:sys_enter", "--ring", ring, "-o", output])
        .args(more)
        .args([
            "--",
            "sh",
            "-c",
            ": >started; while :; do [ -e stop ] && exit; done",
        ])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn wait_for_pieces(journal: &Path, last: &str) {
    let begin = Instant::now();
    let is_there = || {
        let names = fs::read_dir(journal).into_iter().flatten().flatten();
        names
            .map(|entry| entry.file_name())
            .any(|name| name.to_string_lossy().as_ref() >= last)
    };
    while !is_there() {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "{last} does not come"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn killed_flight_recorder_leaves_its_last_events() {
    if !may_record() {
        return;
    }
    for (format, folder_of_memory) in [("pqt", "t"), ("perf.data", "t.ring")] {
        let folder = tempfile::tempdir().unwrap();
        let mut recording = busy(folder.path(), "2s", "t", &["--format", format]);
        let trace = folder.path().join(folder_of_memory);
        // At most 32 files are kept, plus part of the current pass.
        wait_for_pieces(&trace.join("journal"), "ring.0000000040");
        recording.kill().unwrap();
        recording.wait().unwrap();
        fs::write(folder.path().join("stop"), "").unwrap();
        let pieces = fs::read_dir(trace.join("journal")).unwrap().count();
        assert!(
            (2..60).contains(&pieces),
            "{pieces} files: the oldest are gone"
        );

        let options = perfquet_import::ImportOptions::default();
        let report = perfquet_import::recover(&trace, options).expect("it is completed");
        assert!(report.counts.events > 0);
        let directory = Directory::open(&trace).unwrap();
        assert_eq!(directory.manifest().state, State::Recovered);
        let (mut times, mut named, mut rows) = (Vec::new(), 0, 0);
        for batch in directory.read("events/raw_syscalls/sys_enter").unwrap() {
            let batch = batch.unwrap();
            times.extend(
                batch
                    .column_by_name("time")
                    .unwrap()
                    .as_primitive::<Int64Type>()
                    .values(),
            );
            let comms = batch.column_by_name("comm").unwrap().as_string::<i32>();
            named += comms.iter().flatten().filter(|comm| *comm == "sh").count();
            rows += batch.num_rows();
        }
        let span = span(&times);
        // On a busy host, the last two seconds may consist of a single long pass.
        assert!(span < Duration::from_secs(20), "{span:?}");
        assert_eq!(
            named, rows,
            "names come from records that are older than the events"
        );
    }
}

#[test]
fn ring_files_are_removed_at_the_end() {
    if !may_record() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (more, left) in [(&[][..], false), (&["--keep-raw"], true)] {
        let _ = fs::remove_file(folder.path().join("stop"));
        let arguments = [&["--force"], more].concat();
        let recording = busy(folder.path(), "300ms,64M", "t.pqt", &arguments);
        let journal = folder.path().join("t.pqt/journal");
        wait_for_pieces(&journal, "ring.0000000010");
        fs::write(folder.path().join("stop"), "").unwrap();
        let output = recording.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(
            !numbers(
                &folder.path().join("t.pqt"),
                "events/raw_syscalls/sys_enter",
                "time"
            )
            .is_empty()
        );
        let files: Vec<_> = fs::read_dir(&journal)
            .into_iter()
            .flatten()
            .flatten()
            .collect();
        let names: Vec<_> = files.iter().map(|entry| entry.file_name()).collect();
        match left {
            true => assert_eq!(names, ["perf.data"]),
            false => assert!(names.is_empty(), "{names:?}"),
        }
    }
    // A perf.data output leaves no other files.
    let _ = fs::remove_file(folder.path().join("stop"));
    let recording = busy(folder.path(), "300ms", "t.data", &["--format", "perf.data"]);
    wait_for_pieces(
        &folder.path().join("t.data.ring/journal"),
        "ring.0000000004",
    );
    fs::write(folder.path().join("stop"), "").unwrap();
    let output = recording.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(folder.path().join("t.data").is_file());
    assert!(!folder.path().join("t.data.ring").exists());
}
