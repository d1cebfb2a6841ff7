//! What comes back when an export is imported again.

use std::path::Path;

use perfquet_events::Input;
use perfquet_import::{ImportOptions, import};
use perfquet_trace::store::Directory;
use perfquet_trace::tables;

use super::batch::BatchRow;
use super::{EXPORTERS, Exporter, Output, Selection, Source, Tally};

/// A call that the trace does not see end, around and before others; calls that are open at the end; a return without an entry.
const OPEN: &str = "# tracer: function_graph
#
#     TIME        CPU  TASK/PID         DURATION                  FUNCTION CALLS
#      |          |     |    |           |   |                     |   |   |   |
  100.000000 |   0)   dd-10    |               |  outer() {
  100.000005 |   0)   dd-10    |   3.000 us    |    set();
  100.000010 |   0)   dd-10    |               |    inner() {
  100.000015 |   0)   dd-10    |   1.000 us    |      leaf();
  100.000020 |   0)   dd-10    |               |      deep() {
  100.000030 |   0)   dd-10    |   1.000 us    |    next();
  100.000050 |   0)   dd-10    | + 50.000 us   |  } /* outer */
  100.000060 |   0)   dd-10    |               |  last() {
  100.000062 |   0)   dd-10    |   1.000 us    |    leaf();
";

/// Calls that begin when another of the same function ends, and two that overlap.
const TOUCHING: &str = r#"[{"name":"A","ph":"X","pid":1,"tid":1,"ts":0,"dur":100},
{"name":"A","ph":"X","pid":1,"tid":1,"ts":10,"dur":18},
{"name":"A","ph":"X","pid":1,"tid":1,"ts":28,"dur":52},
{"name":"B","ph":"X","pid":1,"tid":1,"ts":200,"dur":20},
{"name":"C","ph":"X","pid":1,"tid":1,"ts":210,"dur":30},
{"name":"D","ph":"X","pid":1,"tid":1,"ts":212,"dur":3}]"#;

/// A return without an entry, after calls that have ended.
const UNSEEN: &str = r#"[{"ph":"B","pid":1,"tid":2,"ts":500,"name":"C"},{"ph":"B","pid":1,"tid":2,"ts":600,"name":"D"},
{"ph":"E","pid":1,"tid":2,"ts":700},{"ph":"E","pid":1,"tid":2,"ts":900},{"ph":"E","pid":1,"tid":2,"ts":950}]"#;

/// Calls that reach out of another by less than a microsecond.
const OVERHANG: &str = r#"[{"ph":"X","pid":1,"tid":3,"ts":1001,"dur":2,"name":"B"},{"ph":"X","pid":1,"tid":3,"ts":1001,"dur":1,"name":"C"},
{"ph":"X","pid":1,"tid":3,"ts":1002.5,"dur":1,"name":"D"}]"#;

fn imported(input: Input, trace: &Path) {
    import(vec![input], trace, ImportOptions::default()).unwrap();
}

/// Function, caller, depth, duration, self time, and what was seen of each call.
fn calls(trace: &Path) -> Vec<String> {
    let trace = Directory::open(trace).unwrap();
    let mut calls = Vec::new();
    for batch in trace.read(tables::calls::NAME).unwrap() {
        for row in BatchRow::all(&batch.unwrap()) {
            calls.push(format!(
                "{:?} {:?} {:?} {:?} {:?} {:?} {:?}",
                row.text("function"),
                row.text("caller"),
                row.i32("depth"),
                row.i64("duration"),
                row.i64("self_time"),
                row.bool("entry_seen"),
                row.bool("exit_seen")
            ));
        }
    }
    calls
}

/// Exports a trace, and imports that again.
fn again(exporter: &Exporter, trace: &Path, folder: &Path) -> Vec<String> {
    let output = folder.join(format!("a.{}", exporter.name));
    let trace = Directory::open(trace).unwrap();
    let source = Source::open(&trace, &Selection::default(), Default::default(), &|_| {}).unwrap();
    let mut tally = Tally::default();
    match exporter.output {
        Output::Directory { write, .. } => {
            std::fs::create_dir(&output).unwrap();
            write(&source, &output, &mut tally).unwrap();
        }
        Output::File { write, .. } | Output::Text { write } => {
            let mut file = std::fs::File::create(&output).unwrap();
            write(&source, &mut file, &mut tally).unwrap();
        }
        Output::Timeline { write, .. } => {
            let mut file = std::fs::File::create(&output).unwrap();
            write(std::slice::from_ref(&source), &mut file, &mut tally).unwrap();
        }
        _ => unreachable!("{}", exporter.name),
    }
    let imported_again = folder.join(format!("{}.pqt", exporter.name));
    imported(Input::open(&output).unwrap(), &imported_again);
    calls(&imported_again)
}

#[track_caller]
fn check(text: &str) {
    check_formats(
        text,
        &["perfetto", "chrome", "firefox", "speedscope", "ctf"],
    );
}

#[track_caller]
fn check_formats(text: &str, formats: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("a.pqt");
    imported(Input::from_bytes("test", text.as_bytes()).unwrap(), &trace);
    let expected = calls(&trace);
    for &name in formats {
        let exporter = EXPORTERS.iter().find(|exporter| exporter.name == name);
        let found = again(exporter.unwrap(), &trace, folder.path());
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn calls_without_an_end_enclose_the_same_calls() {
    check(OPEN);
}

#[test]
fn returns_without_an_entry_take_no_time_from_calls_before_them() {
    check(UNSEEN);
}

/// Not by CTF: its calls have a depth, of which a format with rounded times would have it, too.
#[test]
fn calls_that_reach_out_of_another_take_what_is_inside() {
    check_formats(OVERHANG, &["perfetto", "chrome", "firefox", "speedscope"]);
}

/// Exports keep the recorded scope, on which thread states depend, and the architecture, which gives system calls their names.
#[test]
fn scope_and_architecture_come_back() {
    let text = r#"{"otherData":{"exporter":"perfquet 0.1.0","start_ns":"5","architecture":"x86_64","scope":"process 7","command_line":"perf record -p 7"},
"traceEvents":[{"ph":"X","pid":7,"tid":7,"ts":0,"dur":2,"name":"A"}]}"#;
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("a.pqt");
    imported(Input::from_bytes("test", text.as_bytes()).unwrap(), &trace);
    let facts = |trace: &Path| {
        let trace = Directory::open(trace).unwrap();
        let facts = &trace.manifest().facts;
        let scope = facts.other.get("scope").cloned();
        [
            facts.architecture.clone(),
            facts.command_line.clone(),
            scope,
        ]
        .map(Option::unwrap)
    };
    let expected = ["x86_64", "perf record -p 7", "process 7"];
    assert_eq!(facts(&trace), expected);
    for name in ["chrome", "ctf"] {
        let exporter = EXPORTERS.iter().find(|exporter| exporter.name == name);
        again(exporter.unwrap(), &trace, folder.path());
        assert_eq!(
            facts(&folder.path().join(format!("{name}.pqt"))),
            expected,
            "{name}"
        );
    }
}

/// The name of a process is kept beside that of its first thread.
#[test]
fn names_of_processes_and_threads_come_back() {
    let text = r#"[{"ph":"M","pid":1,"tid":1,"name":"thread_name","args":{"name":"CrMain"}},
{"ph":"M","pid":1,"tid":1,"name":"process_name","args":{"name":"Browser"}},
{"ph":"M","pid":1,"tid":2,"name":"thread_name","args":{"name":"worker"}},
{"ph":"X","pid":1,"tid":2,"ts":0,"dur":2,"name":"A"},{"ph":"X","pid":1,"tid":1,"ts":1,"dur":2,"name":"A"}]"#;
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("a.pqt");
    imported(Input::from_bytes("test", text.as_bytes()).unwrap(), &trace);
    let names = |trace: &Path| {
        let trace = Directory::open(trace).unwrap();
        let mut names = Vec::new();
        for batch in trace.read(tables::threads::NAME).unwrap() {
            for row in BatchRow::all(&batch.unwrap()) {
                names.push(format!("{:?} {:?}", row.i32("tid"), row.text("comm")));
            }
        }
        names.sort();
        let facts = &trace.manifest().facts.other;
        names.extend(facts.get("chrome.process_name.1").cloned());
        names
    };
    let expected = names(&trace);
    assert_eq!(
        expected,
        [
            r#"Some(1) Some("CrMain")"#,
            r#"Some(2) Some("worker")"#,
            "Browser"
        ]
    );
    let chrome = EXPORTERS.iter().find(|exporter| exporter.name == "chrome");
    again(chrome.unwrap(), &trace, folder.path());
    assert_eq!(names(&folder.path().join("chrome.pqt")), expected);
}

#[test]
fn calls_that_touch_or_overlap_nest_in_the_same_way() {
    check(TOUCHING);
}
