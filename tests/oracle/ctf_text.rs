//! The text that babeltrace2 prints of a trace has the rows of the trace: the same names, threads, CPUs, fields, calls and mappings.
//!
//! ```text
//! ust-basic/                                             shop:order tid 13176 cpu 0 number 3 who "bob" …
//! babeltrace2 ust-basic (and with other options)         the same
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use perfquet_events::event::{Event, EventType, FieldType, Sink, Value};
use perfquet_events::{Error, Input};
use perfquet_readers::ctf::CTF;
use perfquet_tests::{foreign_corpus, needs, root};

use super::ctf::{is_refused, traces};

/// A row: what it is, its time, and its fields.
#[derive(Debug, PartialEq)]
struct Row {
    what: String,
    time: Option<i64>,
    fields: BTreeMap<String, Shown>,
}

#[derive(Debug, Clone, PartialEq)]
enum Shown {
    Float(f64),
    Text(String),
}

#[derive(Default)]
struct Rows {
    types: Vec<EventType>,
    rows: Vec<Row>,
    problems: Vec<String>,
}

impl Sink for Rows {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        let (what, time, fields) = match event {
            Event::Type(of_type) => {
                self.types.push(of_type.clone());
                return Ok(());
            }
            Event::Problem(problem) => {
                self.problems.push(problem.message.to_owned());
                return Ok(());
            }
            Event::Sample(sample) => {
                let of_type = &self.types[sample.event.0 as usize];
                let named = of_type.fields.iter().enumerate();
                let fields = named.filter_map(|(place, field)| {
                    Some((
                        field.name.clone(),
                        shown(&sample.fields.value(place), field.kind)?,
                    ))
                });
                let what = format!(
                    "{}:{} {:?} pid {:?} tid {:?} cpu {:?} comm {:?} ip {:?} stacks {:?} {:?}",
                    of_type.system,
                    of_type.name,
                    of_type.kind,
                    sample.pid,
                    sample.tid,
                    sample.cpu,
                    sample.comm.map(String::from_utf8_lossy),
                    sample.ip,
                    sample.kernel_stack,
                    sample.user_stack,
                );
                (what, sample.time, fields.collect())
            }
            Event::Enter(enter) => {
                let what = format!("enter {:?} {:?}", enter.common.tid, enter.function);
                (what, enter.common.time, BTreeMap::new())
            }
            Event::Leave(leave) => {
                let what = format!("leave {:?} {:?}", leave.common.tid, leave.function);
                (what, leave.common.time, BTreeMap::new())
            }
            Event::Comm(comm) => {
                let name = String::from_utf8_lossy(comm.comm).into_owned();
                let what = format!("comm {:?} {} {name}", comm.pid, comm.tid);
                (what, comm.time, BTreeMap::new())
            }
            Event::Mapping(mapping) => {
                let path = String::from_utf8_lossy(mapping.path).into_owned();
                let what = format!(
                    "{} {:x} {:x} {path}",
                    mapping.pid, mapping.start, mapping.length
                );
                (what, mapping.time, BTreeMap::new())
            }
            Event::Switch(switch) => {
                let what = format!("switch {} to {}", switch.previous_tid, switch.next_tid);
                (what, switch.time, BTreeMap::new())
            }
            _ => return Ok(()),
        };
        self.rows.push(Row { what, time, fields });
        Ok(())
    }
}

fn shown(value: &Value<'_>, kind: FieldType) -> Option<Shown> {
    Some(Shown::Text(match value {
        Value::Null => return None,
        Value::Float(number) => return Some(Shown::Float(*number)),
        Value::Int(number) => number.to_string(),
        Value::UInt(number) => number.to_string(),
        // A text has a list of numbers.
        Value::Bytes(bytes) if kind == FieldType::Binary => format!("{bytes:?}"),
        Value::Bytes(text) => String::from_utf8_lossy(text).into_owned(),
        Value::IntList(list) => format!("{list:?}"),
        Value::UIntList(list) => format!("{list:?}"),
        other => format!("{other:?}"),
    }))
}

fn rows(name: &str, mut input: Input) -> Rows {
    let mut rows = Rows::default();
    CTF.read(&mut input, &mut rows)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    rows
}

/// Whether both are the same, as far as a text can show it.
fn is_same(trace: &Shown, text: &Shown) -> bool {
    match (trace, text) {
        // Six digits are printed; an integer has no point.
        (Shown::Float(number), Shown::Float(printed)) => {
            (number - printed).abs() <= number.abs() * 1e-5 || number.to_bits() == printed.to_bits()
        }
        (Shown::Float(number), Shown::Text(printed)) => *printed == number.to_string(),
        (Shown::Text(one), Shown::Text(other)) => one == other,
        (Shown::Text(_), Shown::Float(_)) => false,
    }
}

/// Compares a trace with its text; returns the numbers of rows, of equal values, and of those that only the trace has.
fn compare(name: &str, trace: &Rows, text: &Rows, is_several: bool) -> (usize, usize, usize) {
    assert_eq!(
        text.rows.len(),
        trace.rows.len(),
        "{name}: {:?}",
        text.problems
    );
    let first = |rows: &Rows| rows.rows.iter().find_map(|row| row.time).unwrap_or(0);
    let (start, text_start) = (first(trace), first(text));
    let (mut equal, mut missing) = (0, 0);
    for (one, other) in trace.rows.iter().zip(&text.rows) {
        // The name of the tracer is not printed.
        let tracer = other
            .what
            .strip_prefix("ctf:")
            .and_then(|event| one.what.split_once(event));
        assert!(
            one.what == other.what || tracer.is_some(),
            "{name}: {} {}",
            one.what,
            other.what
        );
        let since = |time: Option<i64>, start: i64| time.map(|time| time - start);
        let times = since(one.time, start).zip(since(other.time, text_start));
        // Of several traces with one clock, LTTng has measured the distance to real time several times; we use the first.
        let is_near = times.is_none_or(|(time, other)| (time - other).abs() <= 1000);
        let is_equal = since(one.time, start) == since(other.time, text_start);
        assert!(
            is_equal || (is_several && is_near),
            "{name}: {} {times:?}",
            one.what
        );
        for (field, value) in &other.fields {
            match one.fields.get(field) {
                Some(wanted) => {
                    let is_cut = matches!(value, Shown::Text(text) if text.contains('\u{fffd}'));
                    assert!(
                        is_cut || is_same(wanted, value),
                        "{name}: {}: {field}: {wanted:?}, {value:?}",
                        one.what
                    );
                    equal += 1;
                }
                None => panic!(
                    "{name}: {}: {field} is not in the trace: {value:?}, {:?}",
                    one.what, one.fields
                ),
            }
        }
        missing += one
            .fields
            .keys()
            .filter(|field| !other.fields.contains_key(*field))
            .count();
    }
    (trace.rows.len(), equal, missing)
}

fn printed(path: &Path, options: &[&str]) -> Input {
    let output = Command::new("babeltrace2")
        .args(options)
        .arg(path)
        .output()
        .unwrap();
    Input::from_bytes("text", &output.stdout).unwrap()
}

/// Traces without times are not recognized; those of several clocks or hosts are other tests' work.
fn has_times(trace: &Rows) -> bool {
    trace.rows.iter().any(|row| row.time.is_some())
}

#[test]
fn texts_of_babeltrace_have_the_rows_of_their_traces() {
    if !needs::met(&["babeltrace2"]) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let mut all: Vec<(String, PathBuf)> = traces(scratch.path());
    for golden in ["kernel", "program", "functions"] {
        let folder = scratch.path().join(format!("golden-{golden}"));
        std::fs::create_dir(&folder).unwrap();
        let archive = root().join(format!("formats/readers/src/ctf/golden/{golden}.tar"));
        let status = Command::new("tar")
            .arg("-xf")
            .arg(archive)
            .arg("-C")
            .arg(&folder)
            .status();
        assert!(status.unwrap().success());
        all.push((golden.to_owned(), folder));
    }
    let options: [&[&str]; 5] = [
        &[],
        &["--clock-seconds"],
        &["--clock-seconds", "--no-delta"],
        &["--clock-date", "--clock-gmt"],
        &["--names=all", "--fields=all"],
    ];
    let mut count = 0;
    for (name, path) in all {
        // An event of a program without a system: in the text, it looks like one of the kernel.
        if is_refused(&name) || name == "bt-sequence" {
            continue;
        }
        let trace = rows(&name, Input::open(&path).unwrap());
        if !has_times(&trace) {
            continue;
        }
        let is_several = Input::open(&path)
            .unwrap()
            .files_below("metadata")
            .unwrap()
            .len()
            > 1;
        for options in options {
            let text = rows(&name, printed(&path, options));
            let name = format!("{name} {}", options.join(" "));
            let (rows, equal, missing) = compare(&name, &trace, &text, is_several);
            println!("{name:<70} {rows:>6} rows {equal:>7} values, {missing} only in the trace");
            count += rows;
        }
    }
    assert!(count > 0);
}

/// The texts of the corpus are of one trace, printed by three versions with other options.
#[test]
fn texts_of_the_corpus_have_the_rows_of_one_trace() {
    let Some(corpus) = foreign_corpus().map(|corpus| corpus.join("more")) else {
        return;
    };
    if !corpus.join("ctf-text").is_dir() {
        return;
    }
    let trace = rows(
        "ust-basic",
        Input::open(&corpus.join("ctf/own/ust-basic")).unwrap(),
    );
    for name in [
        "bt1-default",
        "bt2-clock-date",
        "bt2-clock-seconds",
        "bt2-default",
        "bt2-n-all-f-all",
        "bt2-no-delta",
    ] {
        let path = corpus.join(format!("ctf-text/{name}.txt"));
        let text = rows(name, Input::open(&path).unwrap());
        let (rows, equal, missing) = compare(name, &trace, &text, false);
        println!("{name:<20} {rows:>3} rows {equal:>4} values, {missing} only in the trace");
    }
    let refused = |name: &str| {
        let mut input = Input::open(&corpus.join(format!("ctf-text/{name}.txt"))).unwrap();
        let error = CTF.read(&mut input, &mut Rows::default()).unwrap_err();
        error.to_string()
    };
    assert!(refused("bt2-details-head").contains("sink.text.details"));
    assert!(refused("bt2-n-none").contains("hint: print the trace with"));
    let cycles = rows(
        "cycles",
        Input::open(&corpus.join("ctf-text/bt2-clock-cycles.txt")).unwrap(),
    );
    assert!(!has_times(&cycles) && cycles.rows.len() == trace.rows.len());
    assert_eq!(cycles.problems.len(), 1);
}
