//! The output of strace: calls and errors by name equal the table that strace itself counts, and every line is read.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use perfquet_events::event::{AggregateValue, Event, Function, Sink};
use perfquet_events::{Error, Input};
use perfquet_readers::strace::STRACE;
use perfquet_tests::{foreign_corpus, root};

/// Calls and errors by name.
type Counts = BTreeMap<String, (u64, u64)>;

#[derive(Default)]
struct Ours {
    calls: u64,
    /// Calls that returned, as strace counts.
    returned: Counts,
    /// Rows of the table of -c.
    table: Counts,
    problems: u64,
}

impl Sink for Ours {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Call(call) => {
                self.calls += 1;
                let Function::Named { name, .. } = call.function else {
                    panic!("{call:?}");
                };
                let name = String::from_utf8_lossy(name).into_owned();
                let is_error = call
                    .args
                    .last()
                    .is_some_and(|arg| arg.starts_with(b"error="));
                if call.retval.is_some() || is_error {
                    let counts = self
                        .returned
                        .entry(name.replacen("sys_", "", 1))
                        .or_default();
                    counts.0 += 1;
                    counts.1 += u64::from(is_error);
                }
            }
            Event::Aggregate(row) => {
                let name = String::from_utf8_lossy(row.keys[0]).into_owned();
                let counts = self.table.entry(name).or_default();
                let value = row.value.and_then(AggregateValue::exact);
                let count = value.map_or(0, i64::cast_unsigned);
                match row.name {
                    b"calls" => counts.0 += count,
                    b"errors" => counts.1 += count,
                    _ => {}
                }
            }
            Event::Problem(problem) => self.problems += problem.count,
            _ => {}
        }
        Ok(())
    }
}

fn read(path: &Path) -> Ours {
    let mut ours = Ours::default();
    let mut input = Input::open(path).unwrap();
    STRACE
        .read(&mut input, &mut ours)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    ours
}

fn corpus() -> Option<PathBuf> {
    Some(foreign_corpus()?.join("more/strace")).filter(|folder| folder.is_dir())
}

/// Names whose counts differ.
fn difference(ours: &Counts, expected: &Counts) -> String {
    let mut text = String::new();
    for name in ours.keys().chain(expected.keys()) {
        let (one, other) = (ours.get(name), expected.get(name));
        if one != other {
            let _ = write!(text, " {name}: {one:?}, strace {other:?};");
        }
    }
    text
}

#[test]
fn calls_are_those_that_strace_counts() {
    let ours = read(&root().join("formats/readers/src/strace/golden/summary.strace"));
    assert_eq!(difference(&ours.returned, &ours.table), "");
    let Some(folder) = corpus() else {
        return;
    };
    let table = read(&folder.join("c.txt")).table;
    let mut calls = read(&folder.join("f-ttt-T.txt")).returned;
    // In this run, a signal restarted the call once more.
    let wait = calls.get_mut("wait4").unwrap();
    *wait = (wait.0 - 1, wait.1 - 1);
    assert_eq!(difference(&calls, &table), "");
}

/// Begun calls by the text of the lines alone.
fn begun(text: &str) -> u64 {
    let is_call = |line: &&str| {
        let is_name = |word: &str| {
            let mut letters = word.chars();
            letters
                .next()
                .is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        };
        // With -r and -t, the difference is in parentheses.
        let line = line.replacen("(+", "", 1);
        let head = line.split('(').next().unwrap_or_default();
        line.contains('(')
            && !line.contains("resumed>")
            && !line.starts_with(" > ")
            && !line.contains("+++ ")
            && !line.contains("--- ")
            && head.rsplit([' ', ']', ')']).next().is_some_and(is_name)
    };
    text.lines().filter(is_call).count() as u64
}

#[test]
fn corpus_strace() {
    let Some(folder) = corpus() else {
        return;
    };
    let mut files: Vec<PathBuf> = Vec::new();
    for folder in [folder.clone(), folder.join("ff")] {
        let entries = std::fs::read_dir(folder).unwrap();
        files.extend(entries.map(|entry| entry.unwrap().path()));
    }
    files.retain(|path| path.is_file());
    files.push(folder.join("relatives/ltrace-0.7.3-f-ttt-T-S.txt"));
    files.sort();
    let mut wrong = Vec::new();
    println!(
        "{:<36} {:>6} {:>8} {:>8}",
        "file (strace)", "calls", "expected", "problems"
    );
    for path in files {
        let name = path.strip_prefix(&folder).unwrap().display().to_string();
        // Messages alone.
        if name == "attach-detach.stderr.txt" || name == "c.txt" {
            continue;
        }
        let ours = read(&path);
        let expected = begun(&std::fs::read_to_string(&path).unwrap());
        println!(
            "{name:<36} {:>6} {expected:>8} {:>8}",
            ours.calls, ours.problems
        );
        if ours.calls != expected || ours.problems > 0 {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}
