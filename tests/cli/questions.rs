//! docs/questions.md: its programs are not installed everywhere, so its queries run on a small trace with the events of all recordings.
//! They must end well and print the columns shown.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use perfquet_tests::{bin, root};

/// Samples, switches, requests of disks, locks, system calls, processes, allocations and calls.
const INPUTS: [&str; 8] = [
    "tests/corpus/perf-data/6.12/cpu-clock-g.data",
    "tests/sql/sched.trace",
    "tests/sql/block_io.trace",
    "tests/sql/locks.trace",
    "tests/sql/system_calls.trace",
    "tests/sql/forks.trace",
    "tests/sql/probed_allocations.txt",
    "formats/readers/src/trace_dat/golden/graph-events.dat",
];

const FAULT: &str = "# tracer: nop\n x-7 [000] .... 1.000000: page_fault_user: address=0x10f ip=0x10f error_code=0x14\n";

/// Columns that are printed only if they have values.
const OPTIONAL: [&str; 3] = ["unknown", "errors", "interrupt"];

/// A command of the page, and the columns that it shows.
struct Question {
    command: String,
    columns: Vec<String>,
}

fn questions(page: &str) -> Vec<Question> {
    let mut found = Vec::new();
    for block in page.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap_or_default();
        let mut lines = block.lines().peekable();
        while let Some(line) = lines.next() {
            let Some(command) = line.strip_prefix("$ perfquet-query ") else {
                continue;
            };
            let mut command = command.to_owned();
            while let Some(more) = lines.peek().and_then(|line| line.strip_prefix("> ")) {
                command += " ";
                command += more;
                lines.next();
            }
            let shown: Vec<&str> = lines.clone().collect();
            let rule = shown.iter().position(|line| line.starts_with('─'));
            let head = rule.and_then(|rule| shown.get(rule.checked_sub(1)?));
            let columns = head.map_or("", |head| head).split_whitespace();
            found.push(Question {
                command,
                columns: columns.map(str::to_owned).collect(),
            });
        }
    }
    found
}

/// The command for another trace: threads, functions and times are those of the page's recordings.
fn adapted(command: &str, trace: &Path) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut is_value = false;
    for word in command.split(' ') {
        if std::mem::take(&mut is_value) {
            continue;
        }
        is_value = matches!(word, "--comm" | "--time");
        if !is_value {
            words.push(match word.strip_suffix(".pqt") {
                Some(_) => trace.display().to_string(),
                None => word.to_owned(),
            });
        }
    }
    words.join(" ")
}

#[test]
fn questions_are_answered_on_a_small_trace() {
    let directory = tempfile::tempdir().unwrap();
    let fault = directory.path().join("fault.trace");
    std::fs::write(&fault, FAULT).unwrap();
    let trace = directory.path().join("all.pqt");
    let inputs: Vec<PathBuf> = INPUTS.iter().map(|input| root().join(input)).collect();
    let imported = Command::new(bin("perfquet-convert"))
        .args(inputs)
        .arg(fault)
        .arg("--no-symbols")
        .arg("-o")
        .arg(&trace)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&imported.stderr);
    assert!(imported.status.success(), "{stderr}");
    let page = std::fs::read_to_string(root().join("docs/questions.md")).unwrap();
    let questions = questions(&page);
    assert_eq!(questions.len(), 16);
    let mut wrong = Vec::new();
    for Question { command, columns } in questions {
        let line = format!(
            "{} {}",
            bin("perfquet-query").display(),
            adapted(&command, &trace)
        );
        let output = Command::new("sh")
            .args(["-c", &line])
            .env("COLUMNS", "110")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        // The small trace has no row for some conditions.
        if stderr.contains("no matching ") {
            continue;
        }
        let stdout = String::from_utf8_lossy(&output.stdout);
        let head: Vec<&str> = stdout
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        let missing: Vec<&String> = columns
            .iter()
            .filter(|column| {
                !OPTIONAL.contains(&column.as_str()) && !head.contains(&column.as_str())
            })
            .collect();
        if !output.status.success() || columns.is_empty() || !missing.is_empty() {
            wrong.push(format!("{command}: missing {missing:?}\n{stderr}{stdout}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
