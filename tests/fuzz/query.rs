//! Reports over traces of damaged inputs and over damaged traces, run with the program.
//!
//! A report may find nothing, and may reject a trace with one line. It may not panic, be killed, print an internal
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

/// Runs all reports on a trace.
pub(crate) fn try_queries(program: &Path, trace: &Path) -> Result<(), String> {
    QUESTIONS
        .iter()
        .try_for_each(|question| try_query(program, trace, question))
}

fn try_query(program: &Path, trace: &Path, question: &[&str]) -> Result<(), String> {
    let (report, rest) = question.split_first().unwrap();
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut child = Command::new(program)
        .arg(report)
        .arg(trace)
        .args(rest)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log.reopen().unwrap())
        .spawn()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let start = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if start.elapsed() > TIME_MAX => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{report}: more than {} s", TIME_MAX.as_secs()));
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
        true => Err(format!("{report}: {status}: {text}")),
        false => Ok(()),
    }
}
