//! One recording as text and as a binary file: both give the same number of events per name, and the same columns.
//!
//! Next to each perf.data of corpus/perf-data is its output of `perf script`, next to each trace.dat of
//! corpus/trace-cmd that of `trace-cmd report`. A column only in the binary file is absent from the text
//! (`__syscall_nr`, padding); one only in the text would have another name there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use perfquet_events::event::{Event, EventKind, EventType, Sample, Sink, Value};
use perfquet_events::{Error, Format, Input};
use perfquet_import::{ImportOptions, import};
use perfquet_readers::ftrace_text::FTRACE_TEXT;
use perfquet_readers::perf_data::PERF_DATA;
use perfquet_readers::perf_script::PERF_SCRIPT;
use perfquet_readers::trace_dat::TRACE_DAT;
use perfquet_tests::{corpora, foreign_corpus, root};

/// Columns and their values, as text.
type Row = BTreeMap<String, String>;

/// Events by name: count and columns.
#[derive(Default)]
struct Found {
    types: Vec<String>,
    declared: Vec<EventType>,
    /// Values of each event's columns, hit by hit.
    rows: BTreeMap<String, Vec<Row>>,
    counts: BTreeMap<String, u64>,
    columns: BTreeMap<String, BTreeSet<String>>,
    /// Last values of counters, by ID.
    values: BTreeMap<u64, u64>,
}

impl Sink for Found {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Type(event) => {
                // perf's own records are not printed as events.
                let name = match event.kind {
                    EventKind::Recorder => String::new(),
                    _ => event.name.clone(),
                };
                let columns = self.columns.entry(name.clone()).or_default();
                columns.extend(event.fields.iter().map(|field| field.name.clone()));
                self.declared.push(event.clone());
                self.types.push(name);
            }
            Event::Sample(sample) => {
                let name = self.types[sample.event.0 as usize].clone();
                let row = self.row(sample);
                self.rows.entry(name.clone()).or_default().push(row);
                // A sample of a group is printed once for each member.
                match sample.read {
                    [] => *self.counts.entry(name).or_default() += 1,
                    read => {
                        for member in read {
                            // perf prints those that grew.
                            let last = self.values.insert(member.id.unwrap_or(0), member.value);
                            if member.value <= last.unwrap_or(0) {
                                continue;
                            }
                            let event = member.event.unwrap_or(sample.event);
                            let name = self.types[event.0 as usize].clone();
                            *self.counts.entry(name).or_default() += 1;
                        }
                    }
                }
            }
            // A leaf of a graph is an entry and an exit in the binary file.
            Event::Call(call) if call.depth.is_some() => {
                *self.counts.entry("(enter)".into()).or_default() += 1;
                *self.counts.entry("(leave)".into()).or_default() += 1;
            }
            Event::Call(_) => *self.counts.entry("(call)".into()).or_default() += 1,
            Event::Enter(_) => *self.counts.entry("(enter)".into()).or_default() += 1,
            Event::Leave(_) => *self.counts.entry("(leave)".into()).or_default() += 1,
            _ => {}
        }
        Ok(())
    }
}

impl Found {
    /// The values of a hit, with thread and time.
    fn row(&self, sample: &Sample<'_>) -> Row {
        let mut row = Row::new();
        let mut put = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                row.insert(name.to_owned(), value);
            }
        };
        put("(time)", sample.time.map(|time| time.to_string()));
        put("(tid)", sample.tid.map(|tid| tid.to_string()));
        put("(cpu)", sample.cpu.map(|cpu| cpu.to_string()));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let event = &self.declared[sample.event.0 as usize];
        for (place, field) in event.fields.iter().enumerate() {
            put(
                &field.name,
                match sample.fields.value(place) {
                    Value::Int(value) => Some(value.to_string()),
                    Value::UInt(value) => Some(value.to_string()),
                    Value::Bytes(bytes) => Some(text(bytes)),
                    _ => None,
                },
            );
        }
        row
    }
}

/// Whether the first time is the second in microseconds: trace-cmd rounds, perf truncates.
fn is_rounded(text: &str, binary: &str) -> bool {
    let number = |text: &str| text.parse::<i64>().unwrap();
    (number(text) - number(binary)).abs() < 1000
}

/// Columns with differing values, the number of differences, and an example: perfquet's and the tool's.
fn other_values(ours: &Found, theirs: &Found, name: &str) -> Vec<String> {
    let mut others: BTreeMap<&String, (u64, String)> = BTreeMap::new();
    let rows = |found: &Found| found.rows.get(name).cloned().unwrap_or_default();
    let (ours, theirs) = (rows(ours), rows(theirs));
    for (one, other) in ours.iter().zip(&theirs) {
        for (column, value) in one {
            let Some(their) = other.get(column).filter(|their| *their != value) else {
                continue;
            };
            if column == "(time)" && is_rounded(value, their) {
                continue;
            }
            let seen = others.entry(column).or_default();
            seen.0 += 1;
            seen.1 = format!("{value:?} instead of {their:?}");
        }
    }
    let others = others.into_iter();
    others
        .map(|(column, (count, example))| {
            format!("{name}: column {column}: {count} values, {example}")
        })
        .collect()
}

fn read(format: &Format, path: &Path) -> Result<Found, Error> {
    let mut found = Found::default();
    format.read(&mut Input::open(path)?, &mut found)?;
    found.counts.remove("");
    Ok(found)
}

/// Part of the file's name, the difference, and the reason.
const DIFFERENCES: &[(&str, &str, &str)] = &[
    (
        "",
        "sched_switch: column prev_state",
        "the text has letters, of which the numbers depend on the kernel",
    ),
    (
        "",
        "hrtimer_expire_entry: column function",
        "the text has the name, the file the address",
    ),
    (
        "",
        "print: column ip",
        "the text has the name, the file the address",
    ),
    (
        "clock-uptime.report",
        "sys_enter_write: column (time)",
        "trace-cmd prints ticks as if they were microseconds",
    ),
    (
        "date.report",
        "sys_enter_write: column (time)",
        "the text has the time of day, the file its distance from the clock",
    ),
    (
        "tsc2nsec.report",
        "sys_enter_write",
        "times below zero: trace-cmd takes them for the latest",
    ),
    (
        "7.3/events.report",
        "sys_enter_write: column __buf_val",
        "trace-cmd prints bytes past the end of the string",
    ),
];

fn compare(text: (&Format, &Path), binary: (&Format, &Path), file: &str, wrong: &mut Vec<String>) {
    let ours = read(text.0, text.1).unwrap();
    let theirs = match read(binary.0, binary.1) {
        Ok(found) => found,
        Err(error) => {
            println!("{file:<44} not compared: {error}");
            return;
        }
    };
    let names: BTreeSet<&String> = ours.counts.keys().chain(theirs.counts.keys()).collect();
    let mut differences = Vec::new();
    for name in names {
        let count = |found: &Found| found.counts.get(name).copied().unwrap_or(0);
        if count(&ours) != count(&theirs) {
            differences.push(format!(
                "{name}: {} events instead of {}",
                count(&ours),
                count(&theirs)
            ));
        }
        let columns = |found: &Found| found.columns.get(name).cloned().unwrap_or_default();
        if count(&ours) == count(&theirs) {
            differences.extend(other_values(&ours, &theirs, name));
        }
        // Columns added by the text reader.
        let added = ["message", "sample_period", "clock_value", "buffer"];
        let (of_text, of_binary) = (columns(&ours), columns(&theirs));
        let others: Vec<&String> = of_text
            .difference(&of_binary)
            .filter(|column| !added.contains(&column.as_str()) && !of_binary.is_empty())
            .collect();
        if !others.is_empty() {
            differences.push(format!(
                "{name}: columns {others:?} are not among {of_binary:?}"
            ));
        }
    }
    let sum = |found: &Found| found.counts.values().sum::<u64>();
    println!(
        "{file:<44} {:>7} {:>8}  {}",
        sum(&ours),
        sum(&theirs),
        differences.join("; ")
    );
    for difference in differences {
        let is_known = DIFFERENCES
            .iter()
            .any(|(name, event, _)| file.contains(name) && difference.starts_with(event));
        if !is_known {
            wrong.push(format!("{file}: {difference}"));
        }
    }
}

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn corpus_perf_script_text() {
    let mut wrong = Vec::new();
    println!(
        "{:<44} {:>7} {:>8}  difference",
        "file (perf-script)", "rows", "expected"
    );
    for corpus in corpora() {
        let texts = files(&corpus.join("perf-data"), ".script");
        assert!(texts.len() >= 30, "{} texts", texts.len());
        for path in texts {
            let file = path.strip_prefix(&corpus).unwrap().display().to_string();
            let binary = path.with_extension("data");
            compare(
                (&PERF_SCRIPT, &path),
                (&PERF_DATA, &binary),
                &file,
                &mut wrong,
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every report with its trace file, and its name in the corpus.
fn reports() -> Vec<(String, PathBuf, PathBuf)> {
    let mut reports = Vec::new();
    for corpus in corpora() {
        let before = reports.len();
        for path in files(&corpus.join("trace-cmd"), ".report") {
            let file = path.strip_prefix(&corpus).unwrap().display().to_string();
            let binary = path.with_extension("dat");
            if binary.is_file() {
                reports.push((file, path, binary));
            }
        }
        assert!(
            reports.len() - before >= 25,
            "{} reports",
            reports.len() - before
        );
    }
    reports
}

#[test]
fn corpus_trace_cmd_report_text() {
    let mut wrong = Vec::new();
    println!(
        "{:<44} {:>7} {:>8}  difference",
        "file (ftrace-text)", "rows", "expected"
    );
    for (file, text, binary) in reports() {
        compare(
            (&FTRACE_TEXT, &text),
            (&TRACE_DAT, &binary),
            &file,
            &mut wrong,
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Calls are the same from both: as many rows, of the same functions.
#[test]
fn corpus_calls_of_text() {
    let mut wrong = Vec::new();
    println!(
        "{:<44} {:>7} {:>8}  difference",
        "file (ftrace-text)", "calls", "expected"
    );
    for (file, text, binary) in reports() {
        if !file.contains("graph") && !file.contains("function") {
            continue;
        }
        let (text, dat) = (calls(&text), calls(&binary));
        println!("{file:<44} {text:>7} {dat:>8}");
        if text != dat {
            wrong.push(format!("{file}: {text} calls instead of {dat}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Rows of `calls` after an import.
fn calls(path: &Path) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let options = ImportOptions::default();
    let report = import(
        vec![Input::open(path).unwrap()],
        &folder.path().join("t.pqt"),
        options,
    );
    report.unwrap().rows.get("calls").copied().unwrap_or(0)
}

/// The same buffer printed twice: the trace option `fields` prints the names in the kernel's format files.
#[test]
fn corpus_ftrace_text_fields() {
    for corpus in corpora() {
        let twice = [
            ("ftrace/6.12/twice.trace", "ftrace/6.12/twice-fields.trace"),
            (
                "ftrace-legacy/linux618-allevents.txt",
                "ftrace-legacy/linux618-allevents-fields.txt",
            ),
        ];
        let is_there = |(of_formats, _): &&(&str, &str)| corpus.join(of_formats).is_file();
        let (of_formats, of_fields) = twice.iter().find(is_there).expect("a ring printed twice");
        let ours = read(&FTRACE_TEXT, &corpus.join(of_formats)).unwrap();
        let fields = read(&FTRACE_TEXT, &corpus.join(of_fields)).unwrap();
        let mut compared = 0;
        for (name, columns) in &ours.columns {
            let Some(of_kernel) = fields.columns.get(name) else {
                continue;
            };
            compared += 1;
            let others: Vec<&String> = columns.difference(of_kernel).collect();
            assert!(
                others.is_empty() || PRINTED_OTHERWISE.contains(&name.as_str()),
                "{of_formats}: {name}: {others:?} are not among {of_kernel:?}"
            );
        }
        println!("{of_formats}: {compared} events");
        assert!(compared >= 5, "{of_formats}: {compared} events");
    }
}

/// Events that print values computed from their fields: the address of a page number, bytes of pages, a time
/// difference, parts of a mask.
const PRINTED_OTHERWISE: &[&str] = &[
    "kmalloc",
    "mm_filemap_fault",
    "mm_filemap_get_pages",
    "mm_filemap_map_pages",
    "mm_page_alloc",
    "mm_page_free",
    "mm_page_free_batched",
    "timer_start",
];

/// README-text.md: samples of the downloaded texts; each head has its stack below.
const COLLECTED: &[(&str, u64)] = &[
    ("inferno-empty-line.txt", 2),
    ("inferno-go-stacks.txt", 5),
    ("inferno-single-event.txt", 1),
    ("inferno-single-line-stacks.txt", 2),
    ("inferno-weird-stack-line.txt", 2),
    ("linux618-ps-cpu-default.txt", 150),
    ("linux618-ps-cpu-min.txt", 150),
    ("linux618-ps-tp-stacks.txt", 107),
    ("perf-cycles-instructions-01.txt", 444),
    ("perf-dd-stacks-01.txt", 11),
    ("perf-java-faults-01.txt", 23),
    ("perf-js-stacks-01.txt", 2),
    ("perf-mirageos-stacks-01.txt", 53),
    ("perf-numa-stacks-01.txt", 200),
];

/// Texts alone: those of the corpus, where each unindented line is a sample, and downloaded ones.
#[test]
fn corpus_perf_script_collected() {
    let mut texts: Vec<(PathBuf, u64)> = Vec::new();
    for path in files(&root().join("tests/corpus/perf-data"), ".script") {
        let text = std::fs::read_to_string(&path).unwrap();
        let is_sample = |line: &&str| !line.is_empty() && !line.starts_with('\t');
        let samples = text.lines().filter(is_sample).count() as u64;
        if samples > 0 {
            texts.push((path, samples));
        }
    }
    assert!(texts.len() >= 30, "{} texts", texts.len());
    if let Some(corpus) = foreign_corpus() {
        let folder = corpus.join("folded/perf-script");
        texts.extend(
            COLLECTED
                .iter()
                .map(|(file, samples)| (folder.join(file), *samples)),
        );
    }
    let mut wrong = Vec::new();
    for (path, samples) in &texts {
        let file = path.file_name().unwrap().to_string_lossy();
        let found = read(&PERF_SCRIPT, path).unwrap();
        let count: u64 = found.counts.values().sum();
        let guess = (PERF_SCRIPT.sniff)(Input::open(path).unwrap().head());
        println!("{file:<44} {count:>7} {samples:>8}  {guess:?}");
        if count != *samples || guess == perfquet_events::Guess::No {
            wrong.push(format!(
                "{file}: {count} samples instead of {samples}, {guess:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
