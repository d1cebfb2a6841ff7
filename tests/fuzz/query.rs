//! Reports and exports of traces of damaged inputs and of damaged traces, run with the programs.
//!
//! A report or export may find nothing, and may reject a trace with one line. It may not panic, be killed, print an internal
//! error, or run for longer than a minute.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const TIME_MAX: Duration = Duration::from_secs(60);

/// The reports run on each trace.
const QUESTIONS: [&[&str]; 5] = [
    &["top"],
    &["calls"],
    &["durations"],
    &["info"],
    &["sql", "SELECT count(*) FROM problems"],
];

/// The formats to which each trace is exported.
const EXPORTS: [&str; 10] = [
    "perfetto",
    "firefox",
    "pprof",
    "speedscope",
    "chrome",
    "ctf",
    "folded",
    "perf-script",
    "csv",
    "arrow",
];

/// Runs all reports on a trace.
pub(crate) fn try_queries(program: &Path, trace: &Path) -> Result<(), String> {
    QUESTIONS.iter().try_for_each(|question| {
        let (report, rest) = question.split_first().unwrap();
        try_command(
            report,
            Command::new(program).arg(report).arg(trace).args(rest),
        )
    })
}

/// Exports a trace to all formats.
pub(crate) fn try_exports(program: &Path, trace: &Path) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    EXPORTS.iter().try_for_each(|format| {
        let mut command = Command::new(program);
        command.arg(trace).args(["--to", format, "-o"]);
        try_command(format, command.arg(folder.path().join(format)))
    })
}

fn try_command(what: &str, command: &mut Command) -> Result<(), String> {
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log.reopen().unwrap())
        .spawn()
        .map_err(|error| format!("{command:?}: {error}"))?;
    let start = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if start.elapsed() > TIME_MAX => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{what}: more than {} s", TIME_MAX.as_secs()));
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let text = std::fs::read(log.path()).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let is_wrong = !matches!(status.code(), Some(0..=2))
        || text.contains("panicked")
        || text.to_lowercase().contains("internal error");
    match is_wrong {
        true => Err(format!("{what}: {status}: {text}")),
        false => Ok(()),
    }
}
