//! A directory to record in, and the programs to record.

#![allow(dead_code, reason = "no test file uses all of it")]

#[allow(
    dead_code,
    unreachable_pub,
    reason = "shared by the tests of all crates"
)]
#[path = "../../../tests/src/needs.rs"]
pub(crate) mod needs;
#[path = "../rows/mod.rs"]
mod rows;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

pub(crate) use rows::rows_of;

/// An unprivileged user.
pub(crate) const NOBODY: u32 = 65534;

/// A process that is killed when this is dropped.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    #[track_caller]
    pub(crate) fn start(command: &mut Command) -> Running {
        Running(command.spawn().expect("it starts"))
    }

    pub(crate) fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A temporary folder.
pub(crate) struct Room {
    folder: tempfile::TempDir,
}

impl Room {
    pub(crate) fn new() -> Room {
        Room {
            folder: tempfile::tempdir().expect("a temporary folder"),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Compiles a program of tests/programs; `None`, with a message, if there is no compiler.
    pub(crate) fn compile(&self, source: &str, options: &[&str]) -> Option<PathBuf> {
        if !needs::met(&["cc"]) {
            return None;
        }
        let program = self.path(source.strip_suffix(".c").expect("a C program"));
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
        let compiled = Command::new("cc")
            .args(options)
            .arg("-o")
            .args([&program, &folder.join(source)])
            .arg("-lpthread")
            .status();
        assert!(compiled.is_ok_and(|status| status.success()), "{source}");
        Some(program)
    }

    /// Gives the directory to another user, with a copy of the recorder.
    pub(crate) fn give_to(&self, user: u32) -> PathBuf {
        let program = self.path("perfquet-record");
        // By another process: a test in another thread may fork while a file is open for writing, and would keep it busy.
        let copied = Command::new("cp")
            .args([
                env!("CARGO_BIN_EXE_perfquet-record").as_ref(),
                program.as_os_str(),
            ])
            .status();
        assert!(copied.is_ok_and(|status| status.success()), "a copy");
        std::os::unix::fs::chown(self.folder.path(), Some(user), Some(user)).expect("root may");
        program
    }

    pub(crate) fn recorder(&self) -> Command {
        self.recorder_at(Path::new(env!("CARGO_BIN_EXE_perfquet-record")))
    }

    /// The optimized recorder, if `PERFQUET_BIN_DIR` names its directory, as in `cargo xtask test`.
    pub(crate) fn fast_recorder(&self) -> Command {
        match std::env::var_os("PERFQUET_BIN_DIR") {
            Some(directory) => self.recorder_at(&Path::new(&directory).join("perfquet-record")),
            None => self.recorder(),
        }
    }

    fn recorder_at(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        // Files with the same build IDs in perf's cache of the user would have names, too.
        command
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path());
        command
    }

    /// Waits until a recorder has written this much into the journal of t.pqt: then it records.
    #[track_caller]
    pub(crate) fn wait_for_journal(&self, recorder: &mut Child, bytes: u64) {
        while self.journal_bytes() < bytes {
            assert!(recorder.try_wait().expect("a child").is_none());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Length of the journal of t.pqt; 0 if there is none.
    pub(crate) fn journal_bytes(&self) -> u64 {
        let journal = self.path("t.pqt/journal/perf.data");
        std::fs::metadata(journal).map_or(0, |found| found.len())
    }

    /// Records into t.pqt; returns the status and stderr.
    pub(crate) fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = self.recorder();
        command.args(["--force", "-o", "t.pqt"]).args(arguments);
        ended(command.output().expect("the recorder runs"))
    }

    /// Records into t.pqt, which must succeed.
    #[track_caller]
    pub(crate) fn record(&self, arguments: &[&str]) -> String {
        let (status, stderr) = self.run(arguments);
        assert_eq!(status, Some(0), "{arguments:?}: {stderr}");
        stderr
    }

    /// Returns columns of a table of t.pqt, one string per row; NULL is "-".
    #[track_caller]
    pub(crate) fn rows(&self, table: &str, columns: &[&str]) -> Vec<String> {
        rows_of(&self.path("t.pqt"), table, columns)
    }
}

/// Returns columns of a table of any trace, as [`Room::rows`]; nothing if the trace does not have the table.
pub(crate) fn rows_of_trace(trace: &Path, table: &str, columns: &[&str]) -> Vec<String> {
    match trace.join(table).exists() {
        true => rows_of(trace, table, columns),
        false => Vec::new(),
    }
}

pub(crate) fn ended(output: Output) -> (Option<i32>, String) {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), stderr)
}

/// Waits until a process has used this much CPU time, at most two minutes.
#[track_caller]
pub(crate) fn wait_for_cpu_time(pid: u32, least: Duration) {
    let begin = Instant::now();
    // On Linux, the clock ticks of /proc are hundredths of a second.
    while cpu_ticks(pid) * 10 < least.as_millis() {
        assert!(begin.elapsed() < Duration::from_secs(120), "process {pid}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn cpu_ticks(pid: u32) -> u128 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may contain anything.
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    let times = fields.split(' ').skip(11).take(2);
    times.filter_map(|time| time.parse::<u128>().ok()).sum()
}

/// Peak memory in KiB; `None` after the end.
pub(crate) fn peak_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    peak.split_whitespace().next()?.parse().ok()
}

/// Whether system-wide recording is allowed here.
pub(crate) fn may_record() -> bool {
    needs::met(&["root", "tracefs", "perf events"])
}

/// Whether an unprivileged user may record their own processes.
pub(crate) fn users_may_record() -> bool {
    needs::met(&["perf events of a plain user"])
}
