//! Function tracing where the kernel forbids or lacks it, and invalid options. Scenarios in `tests/vm` cover its
//! results.

#[allow(
    dead_code,
    unreachable_pub,
    reason = "shared by the tests of all crates"
)]
#[path = "../../tests/src/needs.rs"]
mod needs;

use std::fs;
use std::process::{Command, Output};

const TRACING: &str = "/sys/kernel/tracing";

struct Room {
    folder: tempfile::TempDir,
}

impl Room {
    fn new() -> Room {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Room { folder }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_perfquet-record"))
            .args(["-o", "t.pqt"])
            .args(arguments)
            .current_dir(self.folder.path())
            .output()
            .expect("the recorder runs")
    }

    /// Checks the exit status and the message, and that nothing remains.
    #[track_caller]
    fn fails(&self, arguments: &[&str], status: i32, sentence: &str) {
        let output = self.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{arguments:?}: {stderr}"
        );
        assert!(stderr.contains(sentence), "{arguments:?}: {stderr}");
        let left = fs::read_dir(self.folder.path()).map(Iterator::count);
        assert_eq!(left.ok(), Some(0), "{arguments:?}");
    }
}

#[test]
fn invalid_combinations_are_misuse() {
    let room = Room::new();
    for (arguments, sentence) in [
        (
            &["--max-depth", "2", "--", "true"][..],
            "--function-graph <FUNC>",
        ),
        (
            &["--function-graph", "f", "--max-depth", "0", "--", "true"],
            "0 is not in 1..",
        ),
        (
            &["--function-args", "--", "true"],
            "--function-args: requires --function, --function-graph or --kfi-config",
        ),
        (
            &["--function-graph", "f", "--function", "g", "--", "true"],
            "cannot be used with",
        ),
        (
            &["--function-graph", "f:traceoff", "--", "true"],
            "--function-graph f:traceoff: expected a function name",
        ),
        (
            &["--function", "f", "--format", "perf.data", "--", "true"],
            "--format perf.data cannot hold calls",
        ),
        (
            &["--function", "f", "--ring", "1M", "--", "true"],
            "--ring cannot keep calls",
        ),
    ] {
        room.fails(arguments, 2, sentence);
    }
}

#[test]
fn forbidden_function_tracing_is_reported() {
    let error = fs::read(format!("{TRACING}/set_ftrace_filter")).err();
    let sentence = match error.and_then(|error| error.raw_os_error()) {
        Some(libc::EPERM) => {
            "kernel lockdown forbids function tracing; tracepoints and uprobes still work"
        }
        Some(libc::ENOENT) if fs::exists(format!("{TRACING}/events")).unwrap_or(false) => {
            "this kernel was built without function tracing"
        }
        _ => {
            needs::met(&["tracefs", "a kernel without function tracing"]);
            return;
        }
    };
    let before = fs::read_dir(format!("{TRACING}/instances")).map(Iterator::count);
    let room = Room::new();
    let graph = [
        "--function-graph",
        "ksys_write",
        "--max-depth",
        "1",
        "--",
        "true",
    ];
    room.fails(&graph, 1, sentence);
    room.fails(
        &["--function", "vfs_read", "-e", "cpu-clock", "-a"],
        1,
        sentence,
    );
    let after = fs::read_dir(format!("{TRACING}/instances")).map(Iterator::count);
    assert_eq!(before.ok(), after.ok());
}

/// Reported before any kernel setting is changed.
#[test]
fn a_configuration_of_kfi_becomes_options() {
    let room = Room::new();
    let config = "# boot\nbegin\n trigger start entry do_sys_openat2\n trigger stop time 5000\n filter mintime 10\n \
        filter noints\n filter funclist vfs_read, vfs_write\n autorepeat\n logentries five\nend\n";
    let path = room.folder.path().join("kfi.conf");
    fs::write(&path, config).expect("a file");
    let output = room.run(&["-v", "--kfi-config", "kfi.conf", "--", "true"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    for line in [
        "kfi.conf:3: --start-on entry:do_sys_openat2",
        "kfi.conf:4: --stop-on time:5000us",
        "kfi.conf:5: --min-duration 10us",
        "kfi.conf:6: --context task",
        "kfi.conf:7: only 2 functions",
        "kfi.conf:8: autorepeat is not supported: one run is recorded",
        "kfi.conf:9: expected a number of rows, found \"five\"",
    ] {
        assert!(stderr.contains(line), "{line}: {stderr}");
    }
    fs::remove_file(&path).expect("the file");
    let missing = ["--kfi-config", "kfi.conf", "--", "true"];
    room.fails(&missing, 1, "cannot read kfi.conf");
    fs::write(&path, "int main;\n").expect("a file");
    let output = room.run(&["--kfi-config", "kfi.conf", "--", "true"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("kfi.conf: not a KFI configuration"),
        "{stderr}"
    );
}
