//! CTF: every event that babeltrace2 prints, with its time and its fields.
//!
//! ```text
//! [1795361589.713534] shop:order: { cpu_id = 0 }, { vpid = 13171 }, { number = 0, who = "bob", color = ( "RED" : container = 0 ) }
//! ```
//! Kernel events of LTTng have other names here (`sched:sched_switch`). So for each name of babeltrace2 there must be one of ours with exactly the same
//! times, and the other way round.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use perfquet_events::event::{Event, EventType, Fact, FieldType, Sink, Value};
use perfquet_events::{Error, Input};
use perfquet_readers::ctf::CTF;
use perfquet_tests::{bin, foreign_corpus, needs, root};

/// A value as both print it.
type Text = String;

#[derive(Debug, Clone, PartialEq)]
struct Row {
    name: String,
    /// Nanoseconds since 1970, or of a clock without that.
    time: Option<i64>,
    fields: BTreeMap<String, Text>,
}

/// Our events.
#[derive(Default)]
struct Ours {
    types: Vec<EventType>,
    rows: Vec<Row>,
    offset: i64,
    /// Events that became states of threads and mappings.
    states: usize,
    lost: u64,
    lost_packets: usize,
    problems: usize,
}

impl Ours {
    fn row(&mut self, name: String, time: Option<i64>, fields: BTreeMap<String, Text>) {
        let time = time.map(|time| time + self.offset);
        self.rows.push(Row { name, time, fields });
    }
}

impl Sink for Ours {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Fact(Fact::WallOffset(offset)) => self.offset = offset,
            Event::Type(of_type) => self.types.push(of_type.clone()),
            Event::Sample(sample) => {
                let of_type = &self.types[sample.event.0 as usize];
                let fields = of_type.fields.iter().enumerate();
                let fields = fields.filter_map(|(place, field)| {
                    let text = shown(&sample.fields.value(place), field.kind)?;
                    Some((field.name.clone(), text))
                });
                let (name, fields) = (
                    format!("{}:{}", of_type.system, of_type.name),
                    fields.collect(),
                );
                self.row(name, sample.time, fields);
            }
            Event::Enter(enter) => self.row("entry".into(), enter.common.time, BTreeMap::new()),
            Event::Leave(leave) => self.row("exit".into(), leave.common.time, BTreeMap::new()),
            Event::Comm(_) | Event::Fork(_) | Event::Exit(_) | Event::Mapping(_) => {
                self.states += 1;
            }
            Event::Loss(loss) if loss.reason == "packet lost" => self.lost_packets += 1,
            Event::Loss(loss) => self.lost += loss.count.unwrap_or(0),
            Event::Problem(_) => self.problems += 1,
            _ => {}
        }
        Ok(())
    }
}

/// A value as babeltrace2 prints it, except that numbers are decimal; `None` if it prints it in another way.
fn shown(value: &Value<'_>, kind: FieldType) -> Option<Text> {
    Some(match value {
        Value::Int(number) => number.to_string(),
        Value::UInt(number) => number.to_string(),
        Value::Bytes(text) if kind == FieldType::Text => {
            let text = std::str::from_utf8(text).ok()?;
            // Variants and their labels, arrays as JSON.
            format!("{text:?}")
        }
        Value::IntList(numbers) => format!("{numbers:?}"),
        Value::UIntList(numbers) => format!("{numbers:?}"),
        _ => return None,
    })
}

/// The rows of babeltrace2, and what it reports as lost.
fn theirs(path: &Path) -> (Vec<Row>, String) {
    let output = Command::new("babeltrace2")
        .args(["--clock-seconds", "--no-delta", "--fields", "emf"])
        .arg(path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    (
        rows(&text),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

fn rows(text: &str) -> Vec<Row> {
    text.lines().map(parse).collect()
}

fn parse(line: &str) -> Row {
    let (time, rest) = match line.strip_prefix('[') {
        Some(rest) => {
            let (time, rest) = rest.split_once("] ").unwrap();
            let (seconds, nanoseconds) = time.split_once('.').unwrap();
            let seconds: i64 = seconds.parse().unwrap();
            let nanoseconds: i64 = nanoseconds.parse().unwrap();
            (Some(seconds * 1_000_000_000 + nanoseconds), rest)
        }
        None => (None, line),
    };
    // In stored texts: the host, and the process.
    let rest = match rest.strip_prefix("vm:shop:(") {
        Some(rest) => rest.split_once(") ").unwrap().1,
        None => rest,
    };
    let (name, scopes) = rest
        .split_once(": {")
        .unwrap_or((rest.trim_end_matches([':', ' ']), ""));
    let mut fields = BTreeMap::new();
    // The last scope has the fields.
    let scopes = format!("{{{scopes}");
    let last = parts(&scopes).into_iter().next_back().unwrap_or_default();
    let last = last.trim().trim_start_matches('{').trim_end_matches('}');
    for part in parts(last) {
        if let Some((name, value)) = part.trim().split_once(" = ")
            && let Some(value) = value_of(value)
        {
            fields.insert(name.to_owned(), value);
        }
    }
    Row {
        name: name.to_owned(),
        time,
        fields,
    }
}

/// Splits at commas outside of brackets and strings.
fn parts(text: &str) -> Vec<String> {
    let (mut parts, mut part, mut depth) = (Vec::new(), String::new(), 0);
    let (mut is_text, mut is_escaped) = (false, false);
    for letter in text.chars() {
        if is_text {
            part.push(letter);
            is_text = letter != '"' || is_escaped;
            is_escaped = letter == '\\' && !is_escaped;
            continue;
        }
        match letter {
            '"' => is_text = true,
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(std::mem::take(&mut part));
                continue;
            }
            _ => {}
        }
        part.push(letter);
    }
    parts.push(part);
    parts
}

fn number(text: &str) -> Option<String> {
    match text.strip_prefix("0x") {
        Some(digits) => Some(u64::from_str_radix(digits, 16).ok()?.to_string()),
        None => Some(text.parse::<i128>().ok()?.to_string()),
    }
}

fn value_of(text: &str) -> Option<Text> {
    if text.starts_with('"') {
        // Only escapes that Rust's have, too; lines of it may end inside of a character.
        let is_plain = !text.get(1..text.len() - 1)?.contains(['\\', '\u{fffd}']);
        return is_plain.then(|| format!("{:?}", &text[1..text.len() - 1]));
    }
    // ( "RED" : container = 0 )
    if let Some((_, rest)) = text.split_once("container = ") {
        return number(rest.trim_end_matches([' ', ')']));
    }
    if let Some(list) = text.strip_prefix('[') {
        let list = list.trim_end_matches(']').trim();
        let elements = parts(list)
            .into_iter()
            .filter(|part| !part.trim().is_empty());
        let elements: Option<Vec<String>> = elements
            .map(|part| number(part.split_once("] = ")?.1.trim()))
            .collect();
        return Some(format!("[{}]", elements?.join(", ")));
    }
    number(text)
}

/// The times of each name, as a sorted list of lists.
fn times(rows: &[Row]) -> Vec<(Vec<Option<i64>>, String)> {
    let mut by_name: BTreeMap<&str, Vec<Option<i64>>> = BTreeMap::new();
    for row in rows {
        by_name.entry(&row.name).or_default().push(row.time);
    }
    let mut lists: Vec<(Vec<Option<i64>>, String)> = by_name
        .into_iter()
        .map(|(name, mut times)| {
            times.sort_unstable();
            (times, name.to_owned())
        })
        .collect();
    lists.sort();
    lists
}

/// Compares the events of a directory; returns their number and that of compared values.
fn compare(name: &str, path: &Path) -> (usize, usize) {
    let (theirs, stderr) = theirs(path);
    compare_with(name, path, theirs, &stderr)
}

fn compare_with(name: &str, path: &Path, mut theirs: Vec<Row>, stderr: &str) -> (usize, usize) {
    let mut ours = Ours::default();
    CTF.read(&mut Input::open(path).unwrap(), &mut ours)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    // perf's records of threads and mappings.
    let all = theirs.len();
    let is_state = |row: &Row| {
        row.name.starts_with("perf_")
            && matches!(
                row.name.as_str(),
                "perf_comm" | "perf_fork" | "perf_exit" | "perf_mmap" | "perf_mmap2"
            )
    };
    theirs.retain(|row| !is_state(row));
    if all > theirs.len() {
        assert_eq!(ours.states, all - theirs.len(), "{name}");
    }
    assert_eq!(ours.rows.len(), theirs.len(), "{name}: {stderr}");
    assert!(
        ours.rows.is_sorted_by_key(|row| row.time),
        "{name}: events are not in the order of time"
    );
    // Of several traces with one clock, LTTng has measured the distance to real time several times; we use the first.
    let folders = Input::open(path).unwrap().files_below("metadata").unwrap();
    let allowed = if folders.len() > 1 { 1000 } else { 0 };
    let (our_times, their_times) = (times(&ours.rows), times(&theirs));
    for ((one, our_name), (other, their_name)) in our_times.iter().zip(&their_times) {
        let shifts = one
            .iter()
            .zip(other)
            .map(|(one, other)| Some((*one)? - (*other)?));
        let most = shifts.map(|shift| shift.unwrap_or(0).abs()).max();
        assert!(
            one.len() == other.len() && most.unwrap_or(0) <= allowed,
            "{name}: {our_name} has other times than {their_name}: {most:?} ns"
        );
    }
    assert_eq!(our_times.len(), their_times.len(), "{name}");
    let lost = |what: &str| {
        let lines = stderr.lines().filter(|line| line.contains(what));
        let counts = lines.filter_map(|line| {
            let (_, rest) = line.split_once("Tracer discarded ")?;
            rest.split(' ').next()?.parse::<u64>().ok()
        });
        counts.sum::<u64>()
    };
    assert_eq!(ours.lost, lost(" event"), "{name}: {stderr}");
    // Without a predecessor it does not report what is missing.
    assert!(
        ours.lost_packets > 0 || lost(" packet") == 0,
        "{name}: {stderr}"
    );
    // The names of events with the same times.
    let names = their_times.iter().zip(&our_times);
    let names = names.map(|((_, theirs), (_, ours))| (theirs.as_str(), ours.as_str()));
    let names: BTreeMap<&str, &str> = names.collect();
    (theirs.len(), values(name, &ours.rows, &theirs, &names))
}

/// Compares the fields of events whose time and name tell them apart; returns the number of equal values.
fn values(name: &str, ours: &[Row], theirs: &[Row], names: &BTreeMap<&str, &str>) -> usize {
    let mut by_key: BTreeMap<(&str, Option<i64>), Option<&Row>> = BTreeMap::new();
    for row in ours {
        let is_new = !by_key.contains_key(&(row.name.as_str(), row.time));
        by_key.insert((&row.name, row.time), is_new.then_some(row));
    }
    let mut count = 0;
    for row in theirs {
        let time = row.time;
        let Some(Some(our)) = by_key.get(&(names[row.name.as_str()], time)) else {
            continue;
        };
        for (field, value) in &row.fields {
            let (field, value) = match row.name.starts_with("sched_") {
                true => of_kernel(field, value),
                false => (field.as_str(), value.clone()),
            };
            // Lengths have no column.
            if let Some(found) = our.fields.get(field) {
                assert_eq!(*found, value, "{name}: {} {field} at {time:?}", row.name);
                count += 1;
            }
        }
    }
    count
}

/// A field of a scheduler event of LTTng as the kernel has it.
fn of_kernel<'f>(field: &'f str, value: &Text) -> (&'f str, Text) {
    let name = match field {
        "prev_tid" => "prev_pid",
        "next_tid" => "next_pid",
        "tid" => "pid",
        "child_tid" => "child_pid",
        "parent_tid" => "parent_pid",
        "pid" => "tgid",
        "child_pid" => "child_tgid",
        "parent_pid" => "parent_tgid",
        other => other,
    };
    match field.ends_with("prio") {
        true => (name, (value.parse::<i64>().unwrap() + 100).to_string()),
        false => (name, value.clone()),
    }
}

/// Traces that babeltrace2 refuses.
pub(crate) fn is_refused(name: &str) -> bool {
    name.starts_with("bt-fail") || name.contains("CTF2") || name.contains("ctf2")
}

/// The traces of the corpus, unpacked.
pub(crate) fn traces(scratch: &Path) -> Vec<(String, PathBuf)> {
    let Some(folder) = foreign_corpus().map(|corpus| corpus.join("more/ctf")) else {
        return Vec::new();
    };
    let mut traces = Vec::new();
    for part in ["own", "public"] {
        let Ok(entries) = std::fs::read_dir(folder.join(part)) else {
            continue;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            match name.strip_suffix(".tar.xz") {
                Some(name) => {
                    let unpacked = scratch.join(name);
                    std::fs::create_dir(&unpacked).unwrap();
                    let status = Command::new("tar")
                        .arg("-xf")
                        .arg(&path)
                        .arg("-C")
                        .arg(&unpacked)
                        .status();
                    assert!(status.unwrap().success());
                    traces.push((name.to_owned(), unpacked));
                }
                None => traces.push((name, path)),
            }
        }
    }
    traces.sort();
    traces
}

#[test]
fn corpus_ctf() {
    if !needs::met(&["babeltrace2"]) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let (mut events, mut compared) = (0, 0);
    for (name, path) in traces(scratch.path()) {
        if is_refused(&name) {
            continue;
        }
        let (rows, values) = compare(&name, &path);
        println!("{name:<40} {rows:>7} events {values:>7} values");
        events += rows;
        compared += values;
    }
    assert!(
        events == 0 || compared > 1000,
        "{events} events, {compared} values"
    );
}

/// babeltrace2 reads version 2 since 2.1, whose texts are in the corpus.
#[test]
fn corpus_version_2() {
    let scratch = tempfile::tempdir().unwrap();
    let expected = foreign_corpus().map(|corpus| corpus.join("more/ctf/expected"));
    for (name, path) in traces(scratch.path()) {
        if !name.contains("CTF2") && !name.contains("ctf2") {
            continue;
        }
        let stored = expected.as_ref().unwrap();
        let stored = ["txt", "txt.xz"].map(|end| stored.join(format!("{name}.{end}")));
        let Some(text) = stored.iter().find(|path| path.exists()) else {
            // It refuses the earlier form.
            let mut ours = Ours::default();
            CTF.read(&mut Input::open(&path).unwrap(), &mut ours)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(!ours.rows.is_empty() && ours.problems == 0, "{name}");
            continue;
        };
        let text = Input::open(text).unwrap().whole().unwrap().unwrap();
        let lost = match name.as_str() {
            "lttng216-ctf2-lost" => "Tracer discarded 13789 events",
            "tc-CTF2-7.0-ev-disc-no-ts-begin-end" => "Tracer discarded 17 events",
            _ => "",
        };
        let text = String::from_utf8_lossy(&text);
        let (rows, values) = compare_with(&name, &path, rows(&text), lost);
        println!("{name:<40} {rows:>7} events {values:>7} values");
    }
}

#[test]
fn golden_files_are_what_babeltrace_prints() {
    if !needs::met(&["babeltrace2"]) {
        return;
    }
    let golden = root().join("formats/readers/src/ctf/golden");
    for name in ["types", "program", "functions"] {
        let scratch = tempfile::tempdir().unwrap();
        let status = Command::new("tar")
            .arg("-xf")
            .arg(golden.join(format!("{name}.tar")))
            .arg("-C")
            .arg(scratch.path())
            .status();
        assert!(status.unwrap().success());
        let (rows, _) = compare(name, scratch.path());
        assert!(rows > 3, "{name}: {rows}");
    }
}

#[test]
fn exported_traces_come_back() {
    let scratch = tempfile::tempdir().unwrap();
    let convert = |input: &Path, to: &[&str], output: &Path| {
        let output = Command::new(bin("perfquet-convert"))
            .arg(input)
            .args(to)
            .arg("-o")
            .arg(output)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let counts = |trace: &Path| {
        let sql = "SELECT event, count(*) AS n, min(time), max(time) FROM events GROUP BY 1 UNION ALL
                   SELECT function, count(*), min(time), max(time) FROM calls WHERE entry_seen AND exit_seen GROUP BY 1 ORDER BY 1";
        let output = Command::new(bin("perfquet-query"))
            .arg("sql")
            .arg(trace)
            .args([sql, "--format", "csv"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for input in [
        "trace_dat/golden/graph-events.dat",
        "perf_data/golden/user-regs.data",
        "ctf/golden/program.tar",
    ] {
        let input = root().join("formats/readers/src").join(input);
        let folder = scratch.path().join(input.file_name().unwrap());
        std::fs::create_dir(&folder).unwrap();
        let (one, ctf, other) = (
            folder.join("a.pqt"),
            folder.join("a.ctf"),
            folder.join("b.pqt"),
        );
        convert(&input, &[], &one);
        convert(&one, &["--to", "ctf"], &ctf);
        convert(&ctf, &[], &other);
        let expected = counts(&one);
        assert!(expected.lines().count() > 1, "{expected}");
        assert_eq!(counts(&other), expected, "{}", input.display());
    }
}
