//! One page: its commands, run one after the other in one directory.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use perfquet_tests::{bin, needs, root, skip};

use super::pattern;

/// What came of a page.
pub(crate) struct Outcome {
    /// Per differing command: where, what was expected, what was found.
    pub(crate) wrong: Vec<String>,
    /// The page with the found output in place of the differing one.
    pub(crate) updated: String,
}

/// A command of a block and what the page says of it.
struct Step<'a> {
    line_number: usize,
    command: String,
    status: i32,
    expected: Vec<&'a str>,
}

/// Runs all blocks of the page.
pub(crate) fn run(text: &str, name: &str) -> Outcome {
    let directory = tempfile::tempdir().unwrap();
    let mut outcome = Outcome {
        wrong: Vec::new(),
        updated: String::new(),
    };
    let mut needed: Option<&str> = None;
    let mut varies = false;
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        outcome.updated += line;
        outcome.updated.push('\n');
        if let Some(words) = directive(line, "with") {
            place_input(words, directory.path());
        } else if let Some(words) = directive(line, "needs") {
            needed = Some(words);
        } else if directive(line, "varies").is_some() {
            varies = true;
        } else if let Some(kind) = line.strip_prefix("```") {
            let mut block = Vec::new();
            while let Some((_, line)) = lines.next_if(|(_, line)| !line.starts_with("```")) {
                block.push(line);
            }
            let missing = needed.take().and_then(needs::missing);
            if kind != "console" {
                push_lines(&mut outcome.updated, &block);
            } else if let Some(reason) = missing {
                skip(&format!("{name}:{}: {reason}", number + 1));
                push_lines(&mut outcome.updated, &block);
            } else {
                for step in steps(&block, number + 2) {
                    run_step(&step, name, directory.path(), varies, &mut outcome);
                }
            }
            varies = false;
            if let Some((_, fence)) = lines.next() {
                outcome.updated += fence;
                outcome.updated.push('\n');
            }
        }
    }
    outcome
}

/// `<!-- NAME: WORDS -->`
fn directive<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.strip_prefix("<!-- ")?
        .strip_prefix(name)?
        .strip_prefix(": ")?
        .strip_suffix(" -->")
}

/// `PATH as NAME`, or `PATH` under its own name.
fn place_input(words: &str, directory: &Path) {
    let (path, name) = match words.split_once(" as ") {
        Some((path, name)) => (path, name.to_owned()),
        None => (
            words,
            Path::new(words)
                .file_name()
                .unwrap()
                .to_string_lossy()
                .into_owned(),
        ),
    };
    let path = root().join(path);
    std::fs::copy(&path, directory.join(name))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn steps<'a>(block: &[&'a str], first_line: usize) -> Vec<Step<'a>> {
    let mut steps: Vec<Step<'a>> = Vec::new();
    for (index, &line) in block.iter().enumerate() {
        if let Some(command) = line.strip_prefix("$ ") {
            let command = command.to_owned();
            steps.push(Step {
                line_number: first_line + index,
                command,
                status: 0,
                expected: Vec::new(),
            });
            continue;
        }
        let Some(step) = steps.last_mut() else {
            panic!("a block must start with `$ COMMAND`, found {line:?}")
        };
        if let (Some(more), true) = (line.strip_prefix("> "), step.expected.is_empty()) {
            step.command += &format!("\n{more}");
        } else if let (Some(status), true) = (line.strip_prefix("? "), step.expected.is_empty()) {
            step.status = status
                .trim()
                .parse()
                .expect("a line `? N` names an exit status");
        } else {
            step.expected.push(line);
        }
    }
    steps
}

fn run_step(step: &Step, name: &str, directory: &Path, varies: bool, outcome: &mut Outcome) {
    let (status, output) = run_command(&step.command, directory);
    let mut found: Vec<&str> = output.lines().collect();
    while found.last().is_some_and(|line| line.is_empty()) {
        found.pop();
    }
    let mut expected = step.expected.clone();
    while expected.last().is_some_and(|line| line.is_empty()) {
        expected.pop();
    }
    for (index, line) in step.command.lines().enumerate() {
        outcome.updated += if index == 0 { "$ " } else { "> " };
        outcome.updated += line;
        outcome.updated.push('\n');
    }
    if status != 0 {
        outcome.updated += &format!("? {status}\n");
    }
    let agrees = if varies {
        pattern::alike(&expected, &found)
    } else {
        pattern::matches(&expected, &found)
    };
    if status == step.status && agrees {
        push_lines(&mut outcome.updated, &step.expected);
        return;
    }
    push_lines(&mut outcome.updated, &found);
    outcome.wrong.push(format!(
        "{name}:{}: $ {}\n--- expected (status {})\n{}\n--- found (status {status})\n{}\n",
        step.line_number,
        step.command,
        step.status,
        expected.join("\n"),
        found.join("\n"),
    ));
}

/// Status and output, errors included, of a shell command that finds our programs in `PATH`.
fn run_command(command: &str, directory: &Path) -> (i32, String) {
    let programs = programs(directory);
    let path = format!(
        "{}:{}",
        programs.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let output_path = programs.join("output");
    let output = std::fs::File::create(&output_path).unwrap();
    let mut child = Command::new("sh")
        .args(["-c", command])
        .current_dir(directory)
        .env("PATH", path)
        .env("NO_COLOR", "1")
        .env("COLUMNS", "100")
        .env("LC_ALL", "C.UTF-8")
        .env("HOME", directory)
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn()
        .unwrap();
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status.code().unwrap_or(-1);
        }
        if started.elapsed() > Duration::from_secs(120) {
            let _ = child.kill();
            break -1;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let output = std::fs::read(&output_path).unwrap();
    (status, String::from_utf8_lossy(&output).into_owned())
}

/// A folder beside the session's files with links to the three programs, so that `sh` finds them by name.
fn programs(directory: &Path) -> std::path::PathBuf {
    let folder = directory.join(".programs");
    if !folder.is_dir() {
        std::fs::create_dir(&folder).unwrap();
        for name in ["perfquet-record", "perfquet-convert", "perfquet-query"] {
            std::os::unix::fs::symlink(bin(name), folder.join(name)).unwrap();
        }
    }
    folder
}

fn push_lines(text: &mut String, lines: &[&str]) {
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
}
