//! Recordings of this host, read like files from another one.
//!
//! The tests need root and tracefs, and report a missing requirement.

#[allow(
    dead_code,
    unreachable_pub,
    reason = "shared by the tests of all crates"
)]
#[path = "../../tests/src/needs.rs"]
mod needs;
mod rows;
mod seen;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use perfquet_events::Input;
use perfquet_import::{ImportOptions, import, recover};
use perfquet_trace::count::grouped;
use perfquet_trace::store::{Directory, State};

use seen::{Seen, read, read_journal};

/// Number of blocks: `dd` reads and writes single bytes, so the trace has this many system calls with a count of 1.
const STORM: u64 = 100_000;
const STORM_FILTER: &str = "fd == 1 && count == 1";
const STORM_EVENT: &[&str] = &["-e", "syscalls:sys_enter_write", "--filter", STORM_FILTER];

fn recorder() -> Command {
    Command::new(env!("CARGO_BIN_EXE_perfquet-record"))
}

/// Whether system-wide tracepoints can be recorded here.
fn may_record() -> bool {
    needs::met(&["root", "tracefs", "perf events"])
}

fn has(tool: &str) -> bool {
    needs::met(&[tool])
}

/// A journal in a temporary directory.
struct Trace {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Trace {
    fn new() -> Trace {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("t.data");
        Trace {
            _folder: folder,
            path,
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = recorder();
        command.args(["--format", "perf.data", "-o"]);
        command.arg(&self.path).args(arguments);
        command
    }

    /// Records, expects success, and returns stderr and the recorded data.
    fn record(&self, arguments: &[&str]) -> (String, Seen) {
        let output = self.command(arguments).output().expect("the recorder runs");
        let stderr = text(&output);
        assert!(output.status.success(), "{arguments:?}: {stderr}");
        (stderr, read(&self.path))
    }

    /// Records `dd` with this many blocks of one byte.
    fn record_storm(&self, options: &[&str], count: u64) -> (String, Seen) {
        let count = format!("count={count}");
        let dd = [
            "--",
            "dd",
            "if=/dev/zero",
            "of=/dev/null",
            "bs=1",
            "status=none",
            &count,
        ];
        self.record(&[options, &dd].concat())
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn every_write_of_a_storm_is_there() {
    if !may_record() {
        return;
    }
    let (stderr, seen) = Trace::new().record_storm(STORM_EVENT, STORM);
    assert_eq!(seen.count("sys_enter_write"), STORM, "{stderr}");
    assert!(stderr.contains("100,000 events, 0 lost"), "{stderr}");
    assert_eq!(
        (seen.lost, seen.problems.len()),
        (0, 0),
        "{:?}",
        seen.problems
    );
    assert!(seen.samples.iter().all(|sample| sample.comm() == "dd"));
    let event = seen
        .types
        .iter()
        .find(|event| event.name == "sys_enter_write");
    let event = event.expect("the event is declared");
    assert_eq!(event.filter.as_deref(), Some(STORM_FILTER));
    assert!(event.fields.iter().any(|field| field.name == "count"));
    assert!(seen.is_in_order);
}

#[test]
fn stored_and_lost_add_up_to_all_events() {
    if !may_record() {
        return;
    }
    let reads = [
        "-e",
        "syscalls:sys_enter_read",
        "--filter",
        "fd == 0 && count == 1 && COMM == \"dd\"",
    ];
    let writes = [
        "-e",
        "syscalls:sys_enter_write",
        "--filter",
        "fd == 1 && count == 1 && COMM == \"dd\"",
    ];
    // The drain is faster than a storm, so the recorder, which is the shell's parent, is stopped.
    let dd = "dd if=/dev/zero of=/dev/null bs=1 status=none count=500000";
    let script = format!("kill -STOP $PPID; {dd}; kill -CONT $PPID");
    let command = ["--", "sh", "-c", &script];
    let options = [&["-m", "8K"][..], &writes, &reads, &command].concat();
    let (stderr, seen) = Trace::new().record(&options);
    if !needs::met(&["PERF_FORMAT_LOST"]) {
        return;
    }
    assert!(seen.knows_losses(), "{stderr}");
    assert!(seen.lost > 0, "rings of 8 KiB lost nothing: {stderr}");
    // The kernel counts every record that did not fit, even one that is not a hit (kernel/events/ring_buffer.c,
    // __perf_output_begin), so the sum may be one higher.
    let check = |count: u64, expected: u64| {
        assert!(
            (expected..=expected + 2).contains(&count),
            "{count}: {stderr}"
        );
    };
    check(seen.samples.len() as u64 + seen.lost, 10 * STORM);
    // Both share a ring; the kernel counts each separately.
    check(seen.count_with_lost("sys_enter_write"), 5 * STORM);
    check(seen.count_with_lost("sys_enter_read"), 5 * STORM);
    // The side-band has a separate ring, so a storm cannot lose a mapping.
    assert!(
        seen.mappings
            .iter()
            .any(|mapping| mapping.path.ends_with("/dd"))
    );
}

#[test]
fn starts_names_mappings_and_ends_of_all_processes() {
    if !may_record() {
        return;
    }
    let script = "for i in 1 2 3 4 5 6 7; do /bin/sleep 0.001; done";
    let options = [
        "-e",
        "cpu-clock",
        "-F",
        "max",
        "-g",
        "--",
        "sh",
        "-c",
        script,
    ];
    let (stderr, seen) = Trace::new().record(&options);
    let execs = seen
        .comms
        .iter()
        .filter(|comm| comm.exec && comm.comm == "sleep");
    let tids: Vec<i32> = execs.map(|comm| comm.tid).collect();
    assert_eq!(tids.len(), 7, "{stderr}");
    for tid in tids {
        assert!(seen.forks.contains(&tid), "{tid} has no start");
        assert!(seen.exits.contains(&tid), "{tid} has no end");
        let mut own = seen.mappings.iter().filter(|mapping| mapping.pid == tid);
        assert!(
            own.any(|mapping| mapping.path.ends_with("/sleep")),
            "{tid} has no program"
        );
    }
    let kernel = seen.mappings.iter().find(|mapping| mapping.pid == -1);
    assert!(kernel.is_some_and(|kernel| kernel.path.starts_with("[kernel.kallsyms]")));
    assert_eq!(
        seen.facts.get("clock").map(String::as_str),
        Some("monotonic")
    );
}

#[test]
fn system_recording_excludes_the_recorders_writes() {
    if !may_record() {
        return;
    }
    let options = ["-a", "-e", "raw_syscalls:sys_enter,sched:sched_switch"];
    let (stderr, seen) = Trace::new().record_storm(&options, 20_000);
    let of = |comm: &str| {
        seen.samples_of("sys_enter")
            .filter(|sample| sample.comm() == comm)
            .count()
    };
    assert!(of("dd") >= 40_000, "{stderr}");
    assert_eq!(
        of("perfquet-record"),
        0,
        "own system calls are in the trace"
    );
    assert!(seen.count("sched_switch") > 0);
    // Existing processes: this test.
    let own_pid = std::process::id() as i32;
    let own_comm = seen.comms.iter().find(|comm| comm.tid == own_pid);
    assert!(
        own_comm.is_some_and(|comm| comm.time.is_none()),
        "{own_pid} is missing"
    );
    let program = std::env::current_exe().expect("our own path");
    let mut own_maps = seen
        .mappings
        .iter()
        .filter(|mapping| mapping.pid == own_pid);
    assert!(own_maps.any(|mapping| Path::new(&mapping.path) == program));
}

#[test]
fn wildcards_open_all_that_match() {
    if !may_record() {
        return;
    }
    let (_, seen) = Trace::new().record(&["-a", "-e", "sched:sched_w*", "--", "sleep", "0.3"]);
    let listed = recorder()
        .args(["--list", "sched:sched_w*"])
        .output()
        .expect("it lists");
    let expected = String::from_utf8_lossy(&listed.stdout).lines().count();
    let declared = seen
        .types
        .iter()
        .filter(|event| event.system == "sched")
        .count();
    assert!(expected >= 3);
    assert_eq!(declared, expected);
    assert!(seen.count("sched_waking") > 0);
}

#[test]
fn patterns_of_events_of_ftrace_alone_are_refused() {
    if !may_record() || !needs::met(&["an event of the function tracer that is refused"]) {
        return;
    }
    let trace = Trace::new();
    for pattern in ["ftrace:*", "ftrace:f*"] {
        let mut command = trace.command(&["-a", "-e", pattern, "--force", "--", "true"]);
        let output = command.output().expect("it runs");
        let stderr = text(&output);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("cannot record ftrace:f"), "{stderr}");
    }
}

#[test]
fn interrupted_recordings_are_whole() {
    if !may_record() {
        return;
    }
    for signal in ["INT", "TERM"] {
        let trace = Trace::new();
        let mut recording = start(&trace, &["-a", "-e", "sched:sched_switch"]);
        send(signal, &recording);
        let status = recording.wait().expect("it ends");
        assert_eq!(status.code(), Some(0), "SIG{signal}");
        let seen = read(&trace.path);
        assert!(seen.count("sched_switch") > 0);
        assert!(seen.problems.is_empty(), "{:?}", seen.problems);
    }
}

#[test]
fn a_killed_recorder_leaves_a_readable_journal() {
    if !may_record() {
        return;
    }
    let trace = Trace::new();
    let mut recording = start(&trace, &["-a", "-e", "sched:sched_switch"]);
    send("KILL", &recording);
    recording.wait().expect("it ends");
    let seen = read(&trace.path);
    assert!(seen.count("sched_switch") > 0);
    assert!(
        seen.problems.len() <= 1,
        "at most a cut end: {:?}",
        seen.problems
    );
}

#[test]
fn running_process() {
    if !may_record() {
        return;
    }
    let mut shell = Command::new("sh")
        .args(["-c", "while :; do /bin/sleep 0.01; done"])
        .spawn()
        .expect("a shell");
    let pid = shell.id();
    let options = [
        "-p",
        &pid.to_string(),
        "-e",
        "raw_syscalls:sys_enter",
        "--duration",
        "1s",
    ];
    let (_, seen) = Trace::new().record(&options);
    shell.kill().expect("it can be killed");
    shell.wait().expect("it ends");
    // The shell, and its children.
    assert!(seen.samples.iter().any(|sample| sample.tid == pid as i32));
    assert!(seen.samples.iter().any(|sample| sample.comm() == "sleep"));
    assert!(
        seen.samples
            .iter()
            .all(|sample| ["sh", "sleep"].contains(&sample.comm()))
    );
}

#[test]
fn a_trace_directory_has_every_event() {
    if !may_record() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("t.pqt");
    let dd = [
        "dd",
        "if=/dev/zero",
        "of=/dev/null",
        "bs=1",
        "status=none",
        "count=100000",
    ];
    for keep in [&[][..], &["--keep-raw", "--force"]] {
        let mut command = recorder();
        command.arg("-o").arg(&path).args(STORM_EVENT).args(keep);
        let output = command
            .arg("--")
            .args(dd)
            .output()
            .expect("the recorder runs");
        let stderr = text(&output);
        assert!(output.status.success(), "{stderr}");
        assert!(stderr.contains("100,000 events, 0 lost"), "{stderr}");
        let trace = Directory::open(&path).expect("a trace directory");
        assert_eq!(trace.manifest().state, State::Complete);
        let written = trace.table("events/syscalls/sys_enter_write");
        assert_eq!(written.map(|table| table.rows()), Some(STORM));
        assert_eq!(path.join("journal").exists(), !keep.is_empty());
        assert!(!folder.path().join("t.pqt.old").exists());
    }
    assert_eq!(
        read(&path.join("journal/perf.data")).count("sys_enter_write"),
        STORM
    );
}

#[test]
fn side_band_records_are_not_counted_as_events() {
    if !may_record() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("t.pqt");
    // Nothing calls swapoff, but processes start, each with its namespaces.
    let options = ["-a", "-e", "syscalls:sys_enter_swapoff", "-o"];
    let work = ["--", "sh", "-c", "for i in 1 2 3; do /bin/true; done"];
    let output = recorder().args(options).arg(&path).args(work).output();
    let stderr = text(&output.expect("the recorder runs"));
    assert!(stderr.contains("t.pqt: 0 events, 0 lost"), "{stderr}");
    let trace = Directory::open(&path).expect("a trace directory");
    let namespaces = trace.table("events/perf/namespaces");
    assert!(namespaces.is_some_and(|table| table.rows() > 0));
}

#[test]
fn full_disk_is_reported() {
    if !may_record() {
        return;
    }
    if !needs::met(&["a private mount namespace"]) {
        return;
    }
    let disk = Disk::of_mib(8).expect("a small tmpfs");
    let dd = "dd if=/dev/zero of=/dev/null bs=1 status=none count=1000000";
    for format in ["pqt", "perf.data"] {
        let path = disk.path().join(format);
        let output = recorder()
            .args(["--format", format, "-o"])
            .arg(&path)
            .args(STORM_EVENT)
            .args(["--", "sh", "-c", dd])
            .output();
        let output = output.expect("the recorder runs");
        let stderr = text(&output);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(
            stderr.contains("the recording ended early: cannot write the journal"),
            "{stderr}"
        );
        for untrue in ["nothing is lost", "is whole", "is complete", ", 0 lost"] {
            assert!(!stderr.contains(untrue), "{untrue:?} in {stderr}");
        }
        // Data that could not be written is lost, and counted as far as the disk had room.
        let journal = match format {
            "pqt" => path.join("journal/perf.data"),
            _ => path.clone(),
        };
        if journal.exists() {
            let seen = read(&journal);
            let stored = seen.count("sys_enter_write");
            assert!(stored > 1000 && stored < 1_000_000, "{stored}: {stderr}");
            assert!(seen.lost > 0, "{stderr}");
        }
        let gone = match path.is_dir() {
            true => fs::remove_dir_all(&path),
            false => fs::remove_file(&path),
        };
        gone.expect("room for the next");
    }
}

/// Tables written beside a recording that ends early have what its journal has, losses included.
#[test]
fn tables_of_a_truncated_journal_are_complete() {
    if !may_record() {
        return;
    }
    // Without the signal, a write past the limit of 16 MiB fails like on a full disk.
    let limited = "trap '' XFSZ; ulimit -f 32768; exec \"$0\" \"$@\"";
    let dd = "dd if=/dev/zero of=/dev/null bs=1 status=none count=3000000";
    for _ in 0..3 {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (trace, whole) = (folder.path().join("t.pqt"), folder.path().join("whole.pqt"));
        let output = Command::new("sh")
            .args(["-c", limited, env!("CARGO_BIN_EXE_perfquet-record")])
            .args(["--keep-raw", "-o"])
            .arg(&trace)
            .args(STORM_EVENT)
            .args(["--", "sh", "-c", dd])
            .output();
        let stderr = text(&output.expect("the recorder runs"));
        assert!(stderr.contains("cannot write the journal"), "{stderr}");
        let journal = Input::open(&trace.join("journal/perf.data")).unwrap();
        let imported = import(vec![journal], &whole, ImportOptions::default());
        let counts = imported.unwrap().counts;
        assert!(counts.lost > 0, "{stderr}");
        let recorded = grouped(counts.events - counts.of_recorder);
        let closing = format!("{recorded} events, {} lost", grouped(counts.lost));
        assert!(stderr.contains(&closing), "{closing:?} in {stderr}");
        let rows = |trace: &Path| -> Vec<(String, u64)> {
            let trace = Directory::open(trace).unwrap();
            let tables = trace
                .tables()
                .map(|(name, table)| (name.to_owned(), table.rows()));
            tables.collect()
        };
        let losses = |trace: &Path| rows::rows_of(trace, "losses", &["time", "event", "count"]);
        assert_eq!(rows(&trace), rows(&whole));
        assert_eq!(losses(&trace), losses(&whole));
    }
}

/// A file system in memory, unmounted at the end.
struct Disk(tempfile::TempDir);

impl Disk {
    fn of_mib(size: u32) -> Option<Disk> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let size = format!("size={size}M");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(folder.path())
            .status();
        mounted
            .is_ok_and(|status| status.success())
            .then(|| Disk(folder))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// The files of a killed recorder become a whole trace with every event of the journal.
#[test]
fn trace_of_a_killed_recorder_is_completed() {
    if !may_record() {
        return;
    }
    let mut roughly = 0;
    for signals in [&["KILL"][..], &["INT", "INT"]] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("t.pqt");
        let dd = [
            "dd",
            "if=/dev/zero",
            "of=/dev/null",
            "bs=1",
            "status=none",
            // This process outlives a killed recorder.
            "count=5000000",
        ];
        let recording = recorder()
            .args(["-e", "syscalls:sys_enter_*", "-o"])
            .arg(&path)
            .arg("--")
            .args(dd)
            .stderr(Stdio::null())
            .spawn();
        let mut recording = recording.expect("the recorder runs");
        let journal = path.join("journal/perf.data");
        wait_for_bytes(&journal, 60 << 20);
        for signal in signals {
            send(signal, &recording);
            std::thread::sleep(Duration::from_millis(30));
        }
        let status = recording.wait().expect("it ends");
        if status.success() {
            // The encoder was so close that the second Ctrl-C came too late; nothing is left to complete.
            let trace = Directory::open(&path).expect("a trace directory");
            assert_eq!(trace.manifest().state, State::Complete);
            continue;
        }
        roughly += 1;
        if signals.len() > 1 {
            assert_eq!(status.code(), Some(130), "as by Ctrl-C");
        }
        let held = read_journal(&path);
        let held = held.count("sys_enter_read") + held.count("sys_enter_write");
        assert!(held > 100_000, "{held}");
        recover(&path, ImportOptions::default()).expect("it is completed");
        let trace = Directory::open(&path).expect("a trace directory");
        assert_eq!(trace.manifest().state, State::Recovered);
        let written = ["read", "write"].map(|name| {
            let table = trace.table(&format!("events/syscalls/sys_enter_{name}"));
            table.map_or(0, |table| table.rows())
        });
        assert_eq!(written.iter().sum::<u64>(), held);
    }
    assert!(roughly > 0);
}

fn wait_for_bytes(path: &Path, bytes: u64) {
    let deadline = Instant::now() + Duration::from_secs(300);
    while fs::metadata(path).map_or(0, |metadata| metadata.len()) < bytes {
        assert!(Instant::now() < deadline, "{}: too short", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn perf_opens_the_journal() {
    if !may_record() || !has("perf") {
        return;
    }
    let trace = Trace::new();
    trace.record_storm(STORM_EVENT, 1000);
    let output = Command::new("perf")
        .arg("script")
        .arg("-i")
        .arg(&trace.path)
        .output();
    let output = output.expect("perf runs");
    let script = String::from_utf8_lossy(&output.stdout);
    let lines = script
        .lines()
        .filter(|line| line.contains("syscalls:sys_enter_write: "));
    assert_eq!(lines.count(), 1000, "{}", text(&output));
    assert!(
        script.contains("count: 0x00000001"),
        "fields are decoded: {script:.500}"
    );
}

#[test]
fn errors_have_a_next_step() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let check = |arguments: &[&str], code: i32, expected: &[&str]| {
        let output = recorder()
            .current_dir(folder.path())
            .args(arguments)
            .output();
        let output = output.expect("the recorder runs");
        let stderr = text(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        for part in expected {
            assert!(
                stderr.contains(part),
                "{arguments:?}: expected {part:?} in {stderr}"
            );
        }
    };
    check(
        &[],
        2,
        &[
            "nothing to record",
            "hint: run: perfquet-record -g -- COMMAND",
        ],
    );
    check(
        &["-e", "cycels", "--", "true"],
        2,
        &["no event cycels", "hint: use cycles"],
    );
    check(
        &["-F", "999999999", "--", "true"],
        2,
        &["the kernel allows", "hint: "],
    );
    check(&["-p", "2147483647"], 2, &["no process 2147483647"]);
    check(
        &["--filter", "x", "--", "true"],
        2,
        &["--filter: no event or probe precedes it"],
    );
    if !may_record() {
        return;
    }
    check(
        &["-e", "sched:sched_swich", "-a"],
        2,
        &["hint: use sched:sched_switch"],
    );
    let filter = [
        "-e",
        "sched:sched_switch",
        "--filter",
        "nonsense == 1",
        "--",
        "true",
    ];
    check(
        &filter,
        2,
        &["no field nonsense", "nonsense == 1", "prev_pid"],
    );
    let missing = ["-e", "cpu-clock", "--", "/no/such/program"];
    check(
        &missing,
        127,
        &["cannot run /no/such/program: No such file"],
    );
    assert!(
        !folder.path().join("trace.pqt").exists(),
        "a failed recording leaves nothing"
    );
    fs::create_dir(folder.path().join("trace.pqt")).expect("a folder");
    check(
        &["-e", "cpu-clock", "--", "true"],
        1,
        &["trace.pqt exists", "hint: use --force"],
    );
}

#[test]
fn unprivileged_user_learns_the_missing_permission() {
    const NOBODY: u32 = 65534;
    if !may_record() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    // The repository may be inaccessible to other users, so the program is copied to an accessible directory.
    let program = folder.path().join("perfquet-record");
    fs::copy(env!("CARGO_BIN_EXE_perfquet-record"), &program).expect("a copy");
    std::os::unix::fs::chown(folder.path(), Some(NOBODY), Some(NOBODY)).expect("root may");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command
            .current_dir(folder.path())
            .args(arguments)
            .uid(NOBODY)
            .gid(NOBODY);
        let output = command.output().expect("it runs");
        (output.status.code(), text(&output))
    };
    let level = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let level: i32 = level.trim().parse().unwrap_or(2);
    let (code, stderr) = run(&["-a", "-e", "cpu-clock", "--", "true"]);
    if level >= 1 {
        assert_eq!(code, Some(1), "{stderr}");
        assert!(
            stderr.contains(&format!("kernel.perf_event_paranoid is {level}")),
            "{stderr}"
        );
        assert!(
            stderr.contains("hint: run as root, grant CAP_PERFMON"),
            "{stderr}"
        );
    }
    let (code, stderr) = run(&["-e", "sched:sched_switch", "--", "true"]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stderr.contains("cannot read /sys/kernel/tracing") && stderr.contains("hint: "),
        "{stderr}"
    );
    if level <= 2 {
        let own = [
            "-e",
            "cpu-clock",
            "-g",
            "--format",
            "perf.data",
            "-o",
            "own.data",
            "--",
        ];
        let spin = [
            "sh",
            "-c",
            "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done",
        ];
        let (code, stderr) = run(&[&own[..], &spin].concat());
        assert_eq!(code, Some(0), "{stderr}");
        let seen = read(&folder.path().join("own.data"));
        assert!(!seen.samples.is_empty(), "{stderr}");
    }
    let (code, stderr) = run(&["-m", "1G", "-e", "cpu-clock:u", "--", "true"]);
    if code != Some(0) {
        assert!(
            stderr.contains("exceed locked memory") && stderr.contains("hint: use a smaller -m"),
            "{stderr}"
        );
    }
}

/// Starts a recording, and waits until its journal has more than the head.
#[expect(clippy::zombie_processes, reason = "the caller ends it and waits")]
fn start(trace: &Trace, arguments: &[&str]) -> Child {
    let mut command = trace.command(arguments);
    let recording = command
        .stderr(Stdio::null())
        .spawn()
        .expect("the recorder runs");
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut last = 0;
    loop {
        let length = fs::metadata(&trace.path).map_or(0, |metadata| metadata.len());
        if last > 4096 && length > last {
            return recording;
        }
        last = length;
        assert!(Instant::now() < deadline, "no journal after 120 s");
        std::thread::sleep(Duration::from_millis(400));
    }
}

fn send(signal: &str, recording: &Child) {
    let pid = recording.id().to_string();
    let sent = Command::new("kill").args(["-s", signal, &pid]).status();
    assert!(sent.expect("kill runs").success());
}
