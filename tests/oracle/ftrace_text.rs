//! ftrace's text: the number of events per name in the corpus, counted here by simple means; the kernel's counts of its
//! ring buffers; and the known content of downloaded files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use perfquet_events::event::{Event, Sink, Stack};
use perfquet_events::{Error, Guess, Input};
use perfquet_readers::ftrace_text::FTRACE_TEXT;
use perfquet_tests::{corpora, foreign_corpus, root};

/// Number of events per name.
type Names = BTreeMap<String, u64>;

/// The output of a reader.
#[derive(Default)]
struct Ours {
    types: Vec<String>,
    names: Names,
    /// Stacks below events.
    stacks: u64,
    lost: u64,
    /// Data, header, blank, losses, problems.
    lines: Vec<u64>,
    problems: Vec<String>,
}

impl Sink for Ours {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        let mut count = |name: &str| *self.names.entry(name.to_owned()).or_default() += 1;
        match event {
            Event::Type(event) => self.types.push(event.name.clone()),
            Event::Sample(sample) => {
                count(&self.types[sample.event.0 as usize]);
                let stacks = [sample.kernel_stack, sample.user_stack];
                let are_there = stacks.iter().filter(|stack| !matches!(stack, Stack::None));
                self.stacks += are_there.count() as u64;
            }
            // A graph whose lines are all of one depth does not show which one.
            Event::Call(call) if call.depth.is_none() && call.duration.is_none() => {
                count("(function)")
            }
            Event::Call(_) => count("(leaf)"),
            Event::Enter(_) => count("(enter)"),
            Event::Leave(_) => count("(leave)"),
            Event::Switch(_) => count("(switch)"),
            Event::Aggregate(_) => count("(aggregate)"),
            Event::Loss(loss) => self.lost += loss.count.unwrap_or(0),
            Event::Problem(problem) => self.problems.push(problem.message.to_owned()),
            Event::Fact(fact) => self.note_lines(&format!("{fact:?}")),
            _ => {}
        }
        Ok(())
    }
}

impl Ours {
    fn note_lines(&mut self, fact: &str) {
        if fact.contains("ftrace.lines") {
            let numbers = fact.split(|letter: char| !letter.is_ascii_digit());
            let numbers = numbers.filter_map(|digits| digits.parse().ok());
            self.lines = numbers.skip(1).collect();
        }
    }
}

/// Counts by the form of the lines.
fn counted(text: &str) -> Names {
    let mut names = Names::new();
    let is_graph = text.contains("FUNCTION CALLS");
    for line in text.lines().map(str::trim_end) {
        let is_header = line.starts_with('#') || line.starts_with("cpus=");
        let name = if is_header || line.is_empty() || line.contains("EVENTS") {
            None
        } else if is_graph && line.contains('|') {
            graph_name(line, true)
        } else {
            match headed(line) {
                Some(payload) => event_name(payload),
                // In a report, all events have heads; other lines are frames and continuation lines of texts.
                None if text.starts_with("cpus=") => None,
                None => graph_name(line, is_graph),
            }
        };
        if let Some(name) = name {
            *names.entry(name).or_default() += 1;
        }
    }
    names
}

/// The part after `[cpu] … time: `, after `us: `, or after `ms): `.
fn headed(line: &str) -> Option<&str> {
    let colon = line.match_indices(": ").find(|(place, _)| {
        let before = &line[..*place];
        let time = before
            .rsplit([' ', ']'])
            .find(|word| !word.is_empty())
            .unwrap_or("");
        let time = time.trim_end_matches(['+', '!', '#', '*', '@', '$']);
        let is_time = time
            .trim_end_matches("us")
            .chars()
            .all(|c| c.is_ascii_digit() || c == '.');
        let has_head = before.contains("] ")
            || before.contains("[")
            || time.ends_with("us")
            || before.contains("-");
        !time.is_empty() && (is_time && has_head || time.ends_with("ms)"))
    })?;
    let payload = line[colon.0 + 2..].trim_start();
    Some(match payload.strip_prefix("(+") {
        Some(rest) => rest
            .split_once(')')
            .map_or(payload, |(_, rest)| rest.trim_start()),
        None => payload,
    })
}

fn event_name(payload: &str) -> Option<String> {
    let end = payload
        .find(|letter: char| !letter.is_ascii_alphanumeric() && !"_.".contains(letter))
        .unwrap_or(payload.len());
    let (name, rest) = payload.split_at(end);
    let syscall = name.strip_prefix("sys_").unwrap_or(name);
    let is_stack = payload.starts_with("<stack")
        || payload.starts_with("<user")
        || matches!(name, "kernel_stack" | "user_stack");
    if is_stack {
        return None;
    }
    Some(match name {
        "funcgraph_entry" if rest.contains(';') => "(leaf)".into(),
        "funcgraph_entry" => "(enter)".into(),
        "funcgraph_exit" => "(leave)".into(),
        "function" => "(function)".into(),
        "tracing_mark_write" | "print" => "print".into(),
        _ if payload.contains(" <-") && !rest.starts_with(':') => "(function)".into(),
        _ if rest.starts_with('(') && name.starts_with("sys_") => format!("sys_enter_{syscall}"),
        _ if rest.starts_with(" -> ") => format!("sys_exit_{syscall}"),
        _ if rest.is_empty() || rest.starts_with('(') => "(function)".into(),
        "" if payload.contains("inner/outer") => "hwlat".into(),
        "" if payload.contains("timer_latency") => "timerlat".into(),
        "" if payload.contains(" buf: ") => "raw_data".into(),
        _ if payload.contains("==> [") => "context_switch".into(),
        _ if payload.contains("+ [") && rest.starts_with(':') => "wakeup".into(),
        _ if rest.starts_with(',') => "blk".into(),
        _ if rest.starts_with(':') => name.to_owned(),
        _ if name.parse::<u64>().is_ok() => "osnoise".into(),
        _ => "text".into(),
    })
}

fn graph_name(line: &str, is_graph: bool) -> Option<String> {
    if line.trim_start().starts_with("=>") || line.contains("-----") {
        return None;
    }
    if line.contains("   =>   ") || line.contains("  =>  ") {
        return Some("(switch)".into());
    }
    if line.contains(" type: ") {
        return Some("raw".into());
    }
    if line.contains(",") && line.ends_with(']') && line.contains('+') {
        return Some("blk".into());
    }
    let content = line
        .rsplit_once("|  ")
        .map_or(line, |(_, content)| content)
        .trim_start();
    let content = match content.split_once(") ") {
        Some((cpu, rest)) if cpu.trim().parse::<u32>().is_ok() => rest.trim_start(),
        _ => content,
    };
    if let Some(comment) = content.strip_prefix("/* ") {
        let comment = comment.trim_end_matches("*/").trim();
        let name = event_name(comment)?;
        return Some(if matches!(&*name, "(function)" | "text") {
            "print".into()
        } else {
            name
        });
    }
    if content.starts_with('}') {
        return Some("(leave)".into());
    }
    if content.contains(") {") {
        return Some("(enter)".into());
    }
    if content.contains(");") {
        return Some("(leaf)".into());
    }
    (!is_graph).then(|| event_name(content)).flatten()
}

fn read(path: &Path) -> Ours {
    let mut ours = Ours::default();
    FTRACE_TEXT
        .read(&mut Input::open(path).unwrap(), &mut ours)
        .unwrap_or_else(|error| panic!("{error}"));
    ours
}

fn files(corpus: &Path, folder: &str, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![corpus.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                folders.push(path);
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The names whose counts differ, with the differences.
fn difference(ours: &Names, expected: &Names) -> String {
    let mut text = String::new();
    let all: std::collections::BTreeSet<&String> = ours.keys().chain(expected.keys()).collect();
    for name in all {
        let (one, other) = (
            ours.get(name).unwrap_or(&0),
            expected.get(name).unwrap_or(&0),
        );
        if one != other {
            let _ = write!(text, " {name}: {one} instead of {other}");
        }
    }
    text
}

#[test]
fn corpus_ftrace_text_by_name() {
    let mut wrong = Vec::new();
    for corpus in corpora() {
        let mut paths = files(&corpus, "ftrace", &[".trace", ".trace_pipe"]);
        paths.extend(files(&corpus, "trace-cmd", &[".report", "show-graph.txt"]));
        assert!(paths.len() >= 60, "{} files", paths.len());
        by_name(&corpus, &paths, &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Compares the counts of names of each file.
fn by_name(corpus: &Path, paths: &[PathBuf], wrong: &mut Vec<String>) {
    println!(
        "{:<52} {:>7} {:>8}  difference",
        "file (ftrace-text)", "rows", "expected"
    );
    for path in paths {
        let file = path.strip_prefix(corpus).unwrap().display().to_string();
        // A list of addresses and names is not a trace.
        if file.ends_with(".f.report") {
            continue;
        }
        let bytes = std::fs::read(path).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let ours = read(path);
        let expected = counted(&text);
        let mut wrongs = difference(&ours.names, &expected);
        let lines = text.lines().count() as u64;
        if ours.lines.iter().sum::<u64>() != lines {
            let _ = write!(wrongs, " lines: {:?} instead of {lines}", ours.lines);
        }
        if (FTRACE_TEXT.sniff)(Input::open(path).unwrap().head()) == Guess::No {
            wrongs.push_str(" not recognized");
        }
        // Truncated files state more entries than they have; some state that an event was not printed.
        for problem in &ours.problems {
            let is_known = problem.contains("entries, as in the header")
                || problem.contains("that trace-cmd could print");
            if !is_known {
                let _ = write!(wrongs, " problem: {problem}");
            }
        }
        let sum = |names: &Names| names.values().sum::<u64>();
        println!(
            "{file:<52} {:>7} {:>8} {wrongs}",
            sum(&ours.names),
            sum(&expected)
        );
        if !wrongs.is_empty() {
            wrong.push(format!("{file}:{wrongs}"));
        }
    }
}

/// The kernel's counts of events in each ring buffer, and of overwritten ones: `STATS` next to the texts.
///
/// ```text
/// overrun.trace cpu0 entries: 340
/// overrun.trace cpu0 overrun: 902
/// ```
#[test]
fn corpus_ftrace_text_facts() {
    as_the_kernel_counts();
    if let Some(corpus) = foreign_corpus() {
        as_listed(&corpus);
    }
}

fn as_the_kernel_counts() {
    let folder = root().join("tests/corpus/ftrace");
    let mut wrong = Vec::new();
    let mut compared = 0;
    for stats in files(&folder, "", &["STATS"]) {
        let mut expected: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for line in std::fs::read_to_string(&stats).unwrap().lines() {
            let [file, _cpu, what, count] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            let count: u64 = count.parse().unwrap();
            let of = expected.entry(file.to_owned()).or_default();
            match what {
                "entries:" => of.0 += count,
                _ => of.1 += count,
            }
        }
        for (file, (entries, overwritten)) in expected {
            let ours = read(&stats.with_file_name(&file));
            // A stack that follows an event is an entry of the ring buffer too.
            let events = ours.names.values().sum::<u64>() + ours.stacks;
            println!(
                "{file:<40} {events:>6} {entries:>6} {:>6} {overwritten:>6}",
                ours.lost
            );
            if (events, ours.lost) != (entries, overwritten) {
                wrong.push(format!(
                    "{}: {events} events and {} lost, the kernel counts {entries} and {overwritten}",
                    stats.with_file_name(file).display(),
                    ours.lost
                ));
            }
            compared += 1;
        }
    }
    assert!(compared >= 15, "{compared} files");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A number in the facts of README-text.md.
fn fact(facts: &str, name: &str) -> Option<u64> {
    let (_, rest) = facts.split_once(&format!("\"{name}\": "))?;
    let end = rest.find(|letter: char| !letter.is_ascii_digit())?;
    rest[..end].parse().ok()
}

/// Lines that README-text.md does not count, and the reasons.
const OTHER_LINES: &[(&str, i64, &str)] = &[
    ("tracecmd-ks2-default.txt", 316, FRAMES),
    ("tracecmd-ks2-rawts.txt", 316, FRAMES),
    ("tracecmd-ks2-t.txt", 316, FRAMES),
    ("tracecmd-ks2-tsdiff.txt", 316, FRAMES),
];
const FRAMES: &str = "frames of stacks, in the first column";

/// Compares collected files with the facts in README-text.md.
fn as_listed(corpus: &Path) {
    let readme = std::fs::read_to_string(corpus.join("README-text.md")).unwrap();
    let mut wrong = Vec::new();
    let mut count = 0;
    println!(
        "{:<46} {:>7} {:>8}  difference",
        "file (ftrace-text)", "data", "expected"
    );
    for row in readme
        .lines()
        .filter(|row| row.starts_with("| ftrace-legacy/"))
    {
        let file = row[2..].split(' ').next().unwrap();
        let ours = read(&corpus.join(file));
        let known = [
            "event_lines",
            "stack_frame_lines",
            "latency_lines",
            "leaves",
            "opens",
            "closes",
            "task_switches",
        ];
        let expected: u64 = known.iter().filter_map(|name| fact(row, name)).sum();
        let data = ours.lines[0];
        let mut wrongs = String::new();
        let other = OTHER_LINES.iter().find(|(name, ..)| file.ends_with(name));
        let (allowed, cause) = other.map_or((0, ""), |(_, lines, cause)| (*lines, *cause));
        let difference = data as i64 - expected as i64;
        // Of some files the facts are lines only.
        if expected > 0 && difference != allowed {
            let _ = write!(wrongs, " UNEXPLAINED: {difference} lines");
        }
        if let Some(lines) = fact(row, "lines")
            && ours.lines.iter().sum::<u64>() != lines
        {
            let _ = write!(wrongs, " {:?} of {lines} lines", ours.lines);
        }
        let overwritten = fact(row, "written")
            .zip(fact(row, "in_buffer"))
            .map_or(0, |(all, kept)| all - kept);
        let lost = overwritten + fact(row, "lost_events").unwrap_or(0);
        if ours.lost != lost {
            let _ = write!(wrongs, " {} lost instead of {lost}", ours.lost);
        }
        println!(
            "{file:<46} {data:>7} {expected:>8} {wrongs}{cause} {:?}",
            ours.problems.first()
        );
        if !wrongs.is_empty() {
            wrong.push(format!("{file}:{wrongs}"));
        }
        count += 1;
    }
    assert!(count > 40, "{count} files");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
