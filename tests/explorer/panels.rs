//! Panels of a selection: each shows what its command prints.

use std::path::{Path, PathBuf};
use std::process::Command;

use perfquet_tests::{bin, kept_code, needs, root};
use serde_json::Value;

use super::server::{Server, converted};
use super::visited;

/// Samples of two threads, one each 10 ms; names that are markup.
fn samples() -> String {
    let mut text = String::new();
    for step in 0..30 {
        let (tid, stack) = match step % 3 {
            0 => (7, "\t401 next+0x1 (/bin/a)\n\t402 parse+0x2 (/bin/a)\n"),
            1 => (7, "\t403 <b>write</b>+0x3 (/bin/a)\n"),
            _ => (8, "\t401 next+0x1 (/bin/a)\n"),
        };
        text.push_str(&format!(
            "work 7/{tid} [000] 100.{:06}: 1000 cycles:\n{stack}\t404 main+0x4 (/bin/a)\n\n",
            step * 10_000
        ));
    }
    text
}

/// The tree of stacks has the weights of `flamegraph`, and follows time and threads.
#[test]
fn the_flame_graph_is_that_of_its_command() {
    let directory = tempfile::tempdir().unwrap();
    let trace = converted(directory.path(), "samples.txt", &samples());
    let server = Server::of(&[&trace]);
    for (query, stacks) in [
        (
            "from=0&to=300000000&ids=",
            [
                "main;<b>write</b> 10000",
                "main;next 10000",
                "main;parse;next 10000",
            ]
            .as_slice(),
        ),
        (
            "from=0&to=60000000&ids=7",
            &["main;<b>write</b> 2000", "main;parse;next 2000"],
        ),
        ("from=0&to=60000000&ids=8&event=cycles", &["main;next 2000"]),
    ] {
        let tree = server.get(&format!("/api/flame?trace=0&{query}"));
        let number = |column: &str, node: usize| tree[column][node].as_i64().unwrap();
        let mut found = Vec::new();
        for node in 0..tree["own"].as_array().unwrap().len() {
            let own = number("own", node);
            let (mut at, mut frames) = (node, Vec::new());
            while at > 0 {
                frames.insert(
                    0,
                    tree["names"][number("label", at) as usize]
                        .as_str()
                        .unwrap(),
                );
                at = number("parent", at) as usize;
            }
            if own > 0 {
                found.push(format!("{} {own}", frames.join(";")));
            }
        }
        found.sort();
        assert_eq!(found, stacks, "{query}");
        let command = tree["command"].as_str().unwrap();
        let words: Vec<&str> = command.split(' ').skip(1).collect();
        let output = Command::new(bin("perfquet-query"))
            .args(words)
            .arg("--folded")
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut printed: Vec<&str> = printed.lines().collect();
        printed.sort_unstable();
        assert_eq!(printed, stacks, "{command}");
    }
    let none = server.get("/api/flame?trace=0&from=5&to=6&ids=");
    assert!(!none["error"].as_str().unwrap().is_empty(), "{none}");
    let own = server.own();
    for wrong in ["of=x", "event=--sql"] {
        let (status, _, body) = server.request(
            &format!("GET /api/flame?trace=0&from=0&to=5&{wrong}"),
            &own,
            "",
        );
        assert!(
            status == 400 || body.contains("error"),
            "{wrong}: {status} {body}"
        );
    }
}

/// Stacks without times are in every panel: no range of time selects among them.
#[test]
fn traces_without_times_have_panels() {
    let directory = tempfile::tempdir().unwrap();
    let before = converted(
        directory.path(),
        "before.folded",
        "main;parse 5\nmain;write 3\n",
    );
    let after = converted(
        directory.path(),
        "after.folded",
        "main;parse 9\nmain;write 3\n",
    );
    let server = Server::of(&[&before, &after]);
    let tree = server.get("/api/flame?trace=0&from=0&to=64&ids=");
    assert_eq!(tree["total"], serde_json::json!([8, 8, 5, 3]), "{tree}");
    let panel = server.get("/api/panel?trace=0&name=functions&from=0&to=64&ids=");
    assert_eq!(
        panel["grid"]["rows"].as_array().unwrap().len(),
        3,
        "{panel}"
    );
    let changes = server.get("/api/diff?trace=0&from=0&to=64&other=1&from2=0&to2=64&ids=");
    let command = changes["command"].as_str().unwrap();
    assert!(!command.contains("time"), "{command}");
    assert!(
        !changes["grid"]["rows"].as_array().unwrap().is_empty(),
        "{changes}"
    );
}

/// Clicks and keys in the flame graph zoom, the address has where; functions lead to their code, or to why there is none.
#[test]
fn the_flame_graph_zooms_and_leads_to_code() {
    if !needs::met(&["Chromium with puppeteer"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let trace = converted(directory.path(), "samples.txt", &samples());
    let server = Server::of(&[&trace]);
    let steps = [
        ("open tab=selection&panel=flame graph", None),
        ("wait #flame canvas", None),
        ("text #frame", Some("all · 30,000, 100.00% · self 0, 0.00%")),
        // Children are in the order of their names: the last third is parse.
        (
            "point #flame canvas 1200 45",
            Some("tab=selection&panel=flame graph&zoom=main;parse"),
        ),
        (
            "text #frame",
            Some("parse · 10,000, 33.33% · self 0, 0.00%"),
        ),
        ("press ArrowDown", None),
        (
            "press Enter",
            Some("tab=selection&panel=flame graph&zoom=main;parse;next"),
        ),
        (
            "press Escape",
            Some("tab=selection&panel=flame graph&zoom=main;parse"),
        ),
        (
            "press c",
            Some("tab=selection&panel=code&zoom=main;parse&code=parse"),
        ),
        ("wait #content .command", None),
        (
            "text #content pre",
            Some(
                "no sample of cycles is in a function with a name hint: name them first with: perfquet-convert TRACE --symbols PATH",
            ),
        ),
        ("open tab=selection", None),
        ("wait #content .grid", None),
        (
            "push #content tbody tr:first-child button",
            Some("tab=selection&panel=code&code=next&module=/bin/a"),
        ),
        ("open tab=selection&panel=flame graph&of=off_cpu", None),
        ("wait #content pre", None),
        ("open tab=selection&panel=flame graph&q=write", None),
        ("wait #flame canvas", None),
        ("size 1000 dark", Some("overflow 0")),
    ];
    visited(&server, &steps);
}

/// The head has the events and the length of `info`, without the recorder's notes; the critical path asks for one thread.
#[test]
fn heads_agree_with_info_and_critical_paths_are_of_one_thread() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("q.pqt");
    let input = root().join("formats/readers/src/perf_data/golden/quiet.data");
    let mut convert = Command::new(bin("perfquet-convert"));
    let converted = convert.arg("-q").arg(input).arg("-o").arg(&trace).status();
    assert!(converted.unwrap().success());
    let mut info = Command::new(bin("perfquet-query"));
    let info = info.arg("info").arg(&trace).output().unwrap();
    let info = String::from_utf8(info.stdout).unwrap();
    let events = info.lines().find_map(|line| line.strip_prefix("events "));
    let server = Server::of(&[&trace]);
    let head = &server.get("/api/meta")["traces"][0];
    assert_eq!(
        Some(head["events"].to_string().as_str()),
        events.map(str::trim),
        "{info}"
    );
    assert_eq!(
        (&head["events"], &head["calls"]),
        (&Value::from(3), &Value::from(0))
    );
    assert!(head["recorded"].as_i64().unwrap() > 2_000_000_000, "{head}");
    for ids in ["", "7,8"] {
        let path = format!("/api/panel?trace=0&name=critical%20path&from=0&to=1000&ids={ids}");
        let panel = server.get(&path);
        let error = panel["error"].as_str().unwrap();
        assert!(error.ends_with("select a single thread"), "{error}");
    }
}

/// A recording of a program with a hot function, `mix`.
fn recorded(directory: &Path, events: &[&str]) -> PathBuf {
    let program = directory.join("program");
    let compiled = Command::new("cc")
        .args(["-O1", "-g", "-o"])
        .arg(&program)
        .arg(root().join("tests/oracle/annotated.c"))
        .status();
    assert!(compiled.unwrap().success());
    let trace = directory.join("a.pqt");
    let mut record = Command::new(bin("perfquet-record"));
    record.args(["-F", "997"]);
    for event in events {
        record.args(["-e", event]);
    }
    let recorded = record.arg("-o").arg(&trace).arg("--").arg(&program);
    let recorded = recorded.output().unwrap();
    assert!(recorded.status.success(), "{recorded:?}");
    trace
}

/// The lines of a panel with code, which are those that its command prints.
fn lines_of_command(code: &Value) -> &[Value] {
    let command = code["command"].as_str().unwrap();
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    let output = Command::new(bin("perfquet-query"))
        .args(words)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = code["lines"].as_array().unwrap();
    let text: Vec<&str> = lines.iter().map(|line| line[1].as_str().unwrap()).collect();
    assert_eq!(text, printed.lines().collect::<Vec<_>>(), "{command}");
    lines
}

/// The panel of a function's code has the lines that `annotate` prints, with their shares.
#[test]
fn code_is_that_of_annotate() {
    let directory = tempfile::tempdir().unwrap();
    let trace = recorded(directory.path(), &["cpu-clock"]);
    let server = Server::of(&[&trace]);
    let length = server.get("/api/meta")["traces"][0]["length"]
        .as_i64()
        .unwrap();
    for by in ["", "&by=line"] {
        let code = server.get(&format!(
            "/api/code?trace=0&from=0&to={length}&ids=&function=mix{by}"
        ));
        let lines = lines_of_command(&code);
        let shares = lines.iter().filter_map(|line| line[0].as_f64());
        let sum: f64 = shares.sum();
        assert!((sum - 100.0).abs() < 2.0, "{by}: {sum}");
    }
    let missing = server.get(&format!(
        "/api/code?trace=0&from=0&to={length}&ids=&function=--all"
    ));
    let error = missing["error"].as_str().unwrap();
    assert!(
        error.contains("no sample is in a function --all"),
        "{missing}"
    );
    assert!(
        missing["command"].as_str().unwrap().ends_with(" -- --all"),
        "{missing}"
    );
}

/// Code that the recorder kept has its origin.
#[test]
fn kept_code_is_that_of_annotate() {
    let directory = tempfile::tempdir().unwrap();
    let trace = kept_code::trace(directory.path());
    let server = Server::of(&[&trace]);
    let length = server.get("/api/meta")["traces"][0]["length"]
        .as_i64()
        .unwrap();
    let code = server.get(&format!(
        "/api/code?trace=0&from=0&to={length}&ids=&function=countdown"
    ));
    let lines = lines_of_command(&code);
    let origin = "  code kept by the recorder at 3.013 s";
    assert!(lines.iter().any(|line| line[1] == origin), "{code}");
}

/// Code and functions are of the events that one chooses: one, or several side by side.
#[test]
fn code_is_of_the_chosen_events() {
    let directory = tempfile::tempdir().unwrap();
    let trace = recorded(directory.path(), &["cpu-clock", "task-clock"]);
    let server = Server::of(&[&trace]);
    let tracks = server.get("/api/tracks?trace=0");
    let mut sampled: Vec<String> = serde_json::from_value(tracks["sampled"].clone()).unwrap();
    sampled.sort();
    assert_eq!(sampled, ["cpu-clock", "task-clock"]);
    let length = server.get("/api/meta")["traces"][0]["length"]
        .as_i64()
        .unwrap();
    let range = format!("trace=0&from=0&to={length}&ids=");
    for events in [
        ["task-clock"].as_slice(),
        &["cpu-clock", "task-clock"],
        &["task-clock", "cpu-clock"],
    ] {
        let chosen: String = events
            .iter()
            .map(|event| format!("&event={event}"))
            .collect();
        let code = server.get(&format!("/api/code?{range}&function=mix{chosen}"));
        let text = lines_of_command(&code)[0][1].as_str().unwrap().to_owned();
        let heading: Vec<usize> = events
            .iter()
            .map(|event| text.find(&format!("% of {event}")).unwrap())
            .collect();
        assert!(heading.is_sorted(), "{text}");
    }
    let functions = server.get(&format!(
        "/api/panel?{range}&name=functions&event=task-clock"
    ));
    let command = functions["command"].as_str().unwrap();
    assert!(command.contains("--event=task-clock"), "{command}");
    let many = "&event=a".repeat(9);
    let (status, _, _) = server.request(
        &format!("GET /api/code?{range}&function=mix{many}"),
        &server.own(),
        "",
    );
    assert_eq!(status, 400);
    if !needs::met(&["Chromium with puppeteer"]) {
        return;
    }
    let steps = [
        ("open tab=selection&ev=task-clock", None),
        ("wait #content .grid", None),
        ("text #sampled [aria-pressed=true]", Some("task-clock")),
        ("open tab=selection&panel=code&code=mix&ev=task-clock", None),
        ("wait #content .code", None),
        (
            "push #sampled [aria-pressed=false]",
            Some("tab=selection&panel=code&code=mix&ev=task-clock&ev=cpu-clock"),
        ),
        ("wait #content .code", None),
        ("open tab=selection&panel=flame graph&of=task-clock", None),
        ("wait #flame canvas", None),
    ];
    visited(&server, &steps);
}

/// Two times of a trace, and two traces, are compared as `diff` does; a link shows the same.
// One function, because the page shows what was compared before.
#[test]
fn comparisons_are_those_of_diff() {
    let directory = tempfile::tempdir().unwrap();
    let trace = converted(directory.path(), "samples.txt", &samples());
    let other = converted(
        directory.path(),
        "other.txt",
        &samples().replace("parse", "read"),
    );
    let server = Server::of(&[&trace, &other]);
    for query in [
        "trace=0&from=0&to=150000000&other=0&from2=150000000&to2=300000000&ids=&by=&metric=&per=",
        "trace=0&from=0&to=100000000&other=0&from2=100000000&to2=300000000&ids=7&by=comm&metric=&per=second",
        "trace=0&from=0&to=300000000&other=1&from2=0&to2=300000000&ids=&by=function&metric=total&per=total",
    ] {
        let found = server.get(&format!("/api/diff?{query}"));
        let command = found["command"].as_str().unwrap();
        let words: Vec<&str> = command.split(' ').skip(1).collect();
        let output = Command::new(bin("perfquet-query"))
            .args(words)
            .args(["--format", "ndjson"])
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let rows = found["grid"]["rows"].as_array().unwrap();
        assert_eq!(rows.len(), printed.lines().count(), "{command}");
        assert!(!rows.is_empty(), "{command}");
        let columns = found["grid"]["columns"].as_array().unwrap();
        for (row, line) in rows.iter().zip(printed.lines()) {
            let line: Value = serde_json::from_str(line).unwrap();
            for (column, cell) in columns.iter().zip(row.as_array().unwrap()) {
                if cell.is_number() || cell.is_string() {
                    assert_eq!(
                        line[column["name"].as_str().unwrap()],
                        *cell,
                        "{command}: {line}"
                    );
                }
            }
        }
    }
    let own = server.own();
    for wrong in [
        "other=9",
        "other=0&by=x",
        "other=0&metric=--sql",
        "other=0&from2=9&to2=3",
    ] {
        let line = format!("GET /api/diff?trace=0&from=0&to=9&from2=0&to2=9&{wrong}");
        let line = if wrong.contains("from2") {
            line.replace("&from2=0&to2=9", "")
        } else {
            line
        };
        assert_eq!(server.request(&line, &own, "").0, 400, "{wrong}");
    }
    if !needs::met(&["Chromium with puppeteer"]) {
        return;
    }
    let steps = [
        ("open s=0s..150ms", None),
        (
            "press b",
            Some("s=0s..150ms&tab=selection&panel=compare&base=0:0s..150ms"),
        ),
        (
            "open s=150ms..300ms&tab=selection&panel=compare&base=0:0s..150ms&per=total",
            None,
        ),
        ("wait #content .grid", None),
        (
            "text #before",
            Some("before: samples, 0s to 150ms (150.000 ms)"),
        ),
        (
            "open trace=1&tab=selection&panel=compare&base=0:0s..290ms",
            None,
        ),
        ("wait #content .grid", None),
        // Of another set of traces.
        ("open tab=selection&panel=compare&base=7:0s..1ms", None),
        ("wait #before", None),
        (
            "text #before",
            Some("before: none yet: select a time and keep it, then select another one"),
        ),
        ("size 800 dark", Some("overflow 0")),
    ];
    visited(&server, &steps);
}
