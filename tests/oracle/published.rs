//! Lakes that are written to an object store answer as those in directories, whoever else writes, is killed, or fails.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use perfquet_tests::{bin, needs, root};

use super::lake::publish;
use super::lake_traces::{REPORTS, difference, traces_and_lake};
use super::objects::{Fault, Server, files_below};
use super::remote::{asked, run};
use super::several::printed;

pub(super) const NEW: &str = "s3://bucket/new";
pub(super) const LAKE: &str = "lake:s3://bucket/new";
const COUNTS: &str = "SELECT value, (SELECT count(*) FROM events), (SELECT sum(period) FROM samples) \
                      FROM trace_info WHERE name = 'host'";
const EVENTS: &str = "SELECT trace, event, count(*), min(time), max(time) FROM events GROUP BY ALL";

/// The converter, about to publish in the store.
fn publishing(server: &Server, traces: &[&str], words: &[&str]) -> Command {
    let mut command = server.command(&bin("perfquet-convert"));
    command.args(traces).args(["--to", "lake", "-o", NEW]);
    command.args(words).stderr(Stdio::piped());
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Publishes, and returns the closing line.
fn published(server: &Server, traces: &[&str], words: &[&str]) -> String {
    let output = publishing(server, traces, words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    said(&output)
}

fn counts(server: &Server, sql: &str) -> (bool, Vec<String>) {
    let words = [sql, "--format", "csv"];
    asked(server, "sql", &[LAKE.to_owned()], &words)
}

/// Files of the store, below the lake.
fn files(folder: &Path) -> BTreeSet<String> {
    let (new, mut names) = (folder.join("new"), Vec::new());
    if new.exists() {
        files_below(&new, &new, &mut names);
    }
    names.into_iter().collect()
}

/// Every file belongs to a trace, and every trace has its files: none is there twice, none of a killed writer.
pub(super) fn assert_whole(folder: &Path) {
    let found = files(folder);
    let mut expected = BTreeSet::from(["_perfquet/lake.json".to_owned()]);
    for name in found
        .iter()
        .filter(|name| name.starts_with("_perfquet/traces/"))
    {
        let text = std::fs::read(folder.join("new").join(name)).unwrap();
        let record: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert!(
            record["claim"].is_null() && record["leftover"].is_null(),
            "{record}"
        );
        expected.insert(name.clone());
        for file in record["files"].as_array().unwrap() {
            expected.insert(file["path"].as_str().unwrap().to_owned());
        }
    }
    let differing: Vec<&String> = found.symmetric_difference(&expected).collect();
    assert!(differing.is_empty(), "{differing:?}");
}

/// Values of `--partition` as in [`traces_and_lake`].
fn partition(number: usize) -> String {
    format!("--partition=date=2026-11-2{},host=h{number}", number / 4)
}

#[test]
fn a_lake_is_published_in_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let (traces, local) = traces_and_lake(folder.path());
    let server = Server::start(folder.path());
    for (number, trace) in traces.iter().enumerate() {
        let text = published(&server, &[trace], &[&partition(number)]);
        assert!(
            text.contains("s3://bucket/new: 1 trace published, "),
            "{text}"
        );
    }
    assert_whole(folder.path());
    // Rows, reports and selections are those of a lake in a directory.
    let check = |select: &str, command: &str, words: &[&str]| {
        let expected = asked(&server, command, &[format!("{local}{select}")], words);
        let found = asked(&server, command, &[format!("{LAKE}{select}")], words);
        let differing = difference(&found.1, &expected.1);
        assert!(
            found == expected,
            "{select} {command} {words:?}: {differing}"
        );
    };
    for sql in [
        COUNTS,
        EVENTS,
        "SELECT * FROM samples",
        "SELECT * FROM my_event",
        "SELECT * FROM frames",
    ] {
        check("", "sql", &[sql, "--format", "csv"]);
        check(
            "?host=h[0-3]&date=2026-11-20",
            "sql",
            &[sql, "--format", "csv"],
        );
    }
    for report in REPORTS {
        let mut words = report[1..].to_vec();
        words.extend(["--format", "csv"]);
        check("", report[0], &words);
    }
    // `traces` after the rows, the record first and last.
    let first = server.take_requests();
    let written: Vec<&String> = first
        .iter()
        .filter(|line| line.starts_with("PUT"))
        .collect();
    let place = |text: &str| written.iter().position(|line| line.contains(text)).unwrap();
    let (record, row) = (
        "PUT new/_perfquet/traces/0-",
        "PUT new/traces/date=2026-11-20/host=h0/",
    );
    assert!(place(record) < place("PUT new/samples/"));
    assert!(place("PUT new/samples/") < place(row));
    assert!(place("PUT new/_perfquet/manifests/0-") < place(row));
    let last = written.iter().rposition(|line| line.contains(record));
    assert!(last.unwrap() > place(row));
    // Again, nothing is written.
    let text = published(&server, &[&traces[0]], &[&partition(0)]);
    assert!(
        text.contains("0 traces published, 1 trace unchanged"),
        "{text}"
    );
    let again = server.take_requests();
    assert!(
        again.iter().all(|line| line.starts_with("GET")),
        "{again:?}"
    );
    // To another host: no file of the former place stays.
    published(
        &server,
        &[&traces[0]],
        &["--partition=date=2026-11-19,host=h9"],
    );
    assert_whole(folder.path());
    check("?host=h[1-8]", "sql", &[COUNTS, "--format", "csv"]);
    let moved = counts(&server, "SELECT count(*) FROM samples");
    let all = asked(
        &server,
        "sql",
        std::slice::from_ref(&local),
        &["SELECT count(*) FROM samples", "--format", "csv"],
    );
    assert_eq!(moved, all);
    refusals(&server, &traces[0]);
    removal(&server, folder.path());
}

fn refusals(server: &Server, trace: &str) {
    let refused = |words: &[&str], expected: &str| {
        let output = run(server, "perfquet-convert", words);
        let text = said(&output);
        assert!(
            !output.status.success() && text.contains(expected),
            "{words:?}: {text}"
        );
    };
    let to = ["--to", "lake", "-o"];
    let words = |url: &'static str| [trace, to[0], to[1], to[2], url];
    refused(
        &[&words(NEW)[..], &["--compact"]].concat(),
        "--compact: files of a lake in an object store cannot be merged",
    );
    refused(
        &[&words(NEW)[..], &["--partition", "host"]].concat(),
        "expected the keys of the lake, date,host",
    );
    refused(
        &words("s3://bucket/0.pqt"),
        "s3://bucket/0.pqt: expected a lake or nothing, found",
    );
    refused(
        &words("https://host/lake"),
        "expected a path or the URL of an object store",
    );
    refused(
        &[trace, "-o", NEW, "--to", "perfetto"],
        "only --to lake writes to object stores",
    );
    let web = run(
        server,
        "perfquet-query",
        &["publish", "http://127.0.0.1:9/x", "--clean"],
    );
    assert!(
        said(&web).contains("cannot be written over HTTP"),
        "{web:?}"
    );
    let none = run(server, "perfquet-query", &["publish", NEW]);
    assert!(
        said(&none).contains("expected a lake to copy, --retain or --clean"),
        "{none:?}"
    );
    // Without the program that uploads.
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("perfquet-convert");
    std::fs::copy(bin("perfquet-convert"), &alone).unwrap();
    let mut command = server.command(&alone);
    let output = command
        .args(words(NEW))
        .env("PATH", "/none")
        .output()
        .unwrap();
    let text = said(&output);
    assert!(
        text.contains("cannot start perfquet-query") && text.contains("hint: install"),
        "{text}"
    );
    std::fs::write(folder.path().join("perfquet-query"), "#!/bin/sh\nexit 2\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path().join("perfquet-query"), mode).unwrap();
    let output = server.command(&alone).args(words(NEW)).output().unwrap();
    let text = said(&output);
    assert!(
        text.contains("hint: use a perfquet-query of version"),
        "{text}"
    );
}

/// `--retain` and `--clean`.
fn removal(server: &Server, folder: &Path) {
    let before = files(folder);
    let stray = "samples/date=2026-11-20/host=h0/0-1f.9a.parquet";
    std::fs::create_dir_all(folder.join("new").join(stray).parent().unwrap()).unwrap();
    std::fs::write(folder.join("new").join(stray), "x").unwrap();
    std::fs::write(folder.join("new/README"), "x").unwrap();
    let clean = |time: &'static str| {
        server.set_modified(time);
        let output = run(server, "perfquet-query", &["publish", NEW, "--clean"]);
        assert!(output.status.success(), "{output:?}");
        said(&output)
    };
    let text = clean("2999-01-01T00:00:00.000Z");
    assert!(
        text.contains("1 file without a trace kept, less than a day old, 1 other file kept"),
        "{text}"
    );
    assert!(files(folder).contains(stray));
    let text = clean("2001-01-01T00:00:00.000Z");
    assert!(
        text.contains("1 file of killed writers removed, 1 other file kept"),
        "{text}"
    );
    std::fs::remove_file(folder.join("new/README")).unwrap();
    assert_eq!(files(folder), before);
    let text = published(server, &[], &["--retain", "1d"]);
    assert!(text.contains("traces removed"), "{text}");
    let left = files(folder);
    let is_record = |name: &&String| !name.starts_with("_perfquet/traces/");
    let left: Vec<&String> = left.iter().filter(is_record).collect();
    assert_eq!(left, ["_perfquet/lake.json"]);
    let none = counts(server, COUNTS);
    assert!(
        !none.0
            && none
                .1
                .join(" ")
                .contains("no matching traces among 0 traces"),
        "{none:?}"
    );
}

/// A writer that is killed, with its child, while the server keeps a request.
fn kill_at(server: &Server, mut command: Command, moment: usize) -> bool {
    server.take_requests();
    server.fail("", moment, Fault::Silence);
    // Both in one group of processes; the child has its own, and ends with its input.
    let mut child: Child = command.process_group(0).spawn().unwrap();
    let since = Instant::now();
    let is_over = loop {
        if child.try_wait().unwrap().is_some() {
            break true;
        }
        if server.requests_with("") > moment {
            std::thread::sleep(Duration::from_millis(20));
            break child.try_wait().unwrap().is_some();
        }
        assert!(since.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    };
    let uploader = children(child.id());
    if moment.is_multiple_of(2) {
        let _ = child.kill();
    } else {
        // The program that uploads, alone.
        for id in &uploader {
            let _ = Command::new("kill").args(["-9", id]).status();
        }
    }
    child.wait().unwrap();
    let since = Instant::now();
    while uploader
        .iter()
        .any(|id| Path::new("/proc").join(id).join("exe").exists())
    {
        assert!(
            since.elapsed() < Duration::from_secs(20),
            "the child outlives its parent"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    server.recover();
    is_over
}

/// IDs of the children of a process.
fn children(process: u32) -> Vec<String> {
    let mut text = String::new();
    let path = format!("/proc/{process}/task/{process}/children");
    let read = File::open(path).and_then(|mut file| file.read_to_string(&mut text));
    read.map_or_else(
        |_| Vec::new(),
        |_| text.split_whitespace().map(str::to_owned).collect(),
    )
}

#[test]
fn killed_writers_in_a_store_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (traces, _) = traces_and_lake(folder.path());
    let server = Server::start(folder.path());
    let temporary = folder.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    published(&server, &[&traces[3]], &[&partition(3)]);
    let start = |words: &[&str]| {
        let mut command = publishing(&server, &[&traces[0]], words);
        command.env("TMPDIR", &temporary).stderr(Stdio::null());
        command
    };
    let mut moments = 0;
    // A new trace, then one that moves to another host.
    for words in [
        partition(0),
        "--partition=date=2026-11-19,host=h9".to_owned(),
    ] {
        let words = [words.as_str()];
        let before = counts(&server, COUNTS);
        assert!(before.0, "{before:?}");
        let mut seen = Vec::new();
        for moment in 0.. {
            let is_over = kill_at(&server, start(&words), moment);
            seen.push(counts(&server, COUNTS));
            if is_over {
                break;
            }
            moments += 1;
        }
        // What the last one left is removed by whoever publishes the trace, or finds it published.
        assert!(start(&words).status().unwrap().success());
        let after = counts(&server, COUNTS);
        assert!(after.0 && after != before);
        let wrong = seen
            .iter()
            .filter(|seen| **seen != before && **seen != after);
        assert_eq!(wrong.count(), 0, "{seen:?}");
        assert_whole(folder.path());
    }
    assert!(moments >= 25, "{moments}");
    let left: Vec<_> = std::fs::read_dir(&temporary).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn writers_in_a_store_that_meet_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (traces, _) = traces_and_lake(folder.path());
    let server = Server::start(folder.path());
    // The same traces by several writers, also with other contents.
    let mut writers = Vec::new();
    for round in 0..3 {
        for number in [1, 2, 3] {
            let elsewhere = format!("--partition=date=2026-11-2{round},host=x{round}");
            let words = if number == 3 {
                elsewhere
            } else {
                partition(number)
            };
            writers.push(
                publishing(&server, &[&traces[number]], &[&words])
                    .spawn()
                    .unwrap(),
            );
        }
    }
    for writer in writers {
        let output = writer.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    assert_whole(folder.path());
    let count = |sql| asked(&server, "sql", &traces[1..4], &[sql, "--format", "csv"]);
    let sql = "SELECT trace, count(*), sum(period) FROM samples GROUP BY ALL";
    assert_eq!(counts(&server, sql), count(sql));
    assert_eq!(counts(&server, EVENTS), count(EVENTS));
}

#[test]
fn a_store_that_fails_is_asked_again_within_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let (traces, _) = traces_and_lake(folder.path());
    let server = Server::start(folder.path());
    let all: Vec<&str> = traces[..4].iter().map(String::as_str).collect();
    let down = || {
        Fault::Status(
            "503 Slow Down",
            "<Error><Code>SlowDown</Code></Error>".to_owned(),
        )
    };
    server.fail_every(3, down());
    let text = published(&server, &all, &["--partition=date=2026-11-20,host=h0"]);
    assert!(text.contains("4 traces published"), "{text}");
    server.recover();
    assert_whole(folder.path());
    let expected = asked(&server, "sql", &traces[..4], &[EVENTS, "--format", "csv"]);
    assert_eq!(counts(&server, EVENTS), expected);
    // It fails for good: the lake is as before, and the program ends in words.
    for (text, fault) in [
        ("PUT new/samples", down()),
        ("PUT new/_perfquet/traces", down()),
        (
            "PUT",
            Fault::Status(
                "403 Forbidden",
                "<Error><Code>AccessDenied</Code></Error>".to_owned(),
            ),
        ),
        ("GET", Fault::Cut),
    ] {
        server.fail(text, 0, fault);
        let since = Instant::now();
        let words = ["--partition=date=2026-11-20,host=h9"];
        let output = publishing(&server, &all[..1], &words).output().unwrap();
        server.recover();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(said(&output).contains("s3://bucket/new"), "{output:?}");
        assert!(since.elapsed() < Duration::from_secs(90), "{text}");
        assert_eq!(counts(&server, EVENTS), expected, "{text}");
    }
    published(&server, &all[..1], &["--partition=date=2026-11-20,host=h9"]);
    assert_whole(folder.path());
    assert_eq!(counts(&server, EVENTS), expected);
}

#[test]
fn a_lake_in_a_directory_is_copied_incrementally() {
    let folder = tempfile::tempdir().unwrap();
    let lake = folder.path().join("local");
    let input = root().join("formats/readers/src/perf_data/golden/user-regs.data");
    let trace = folder.path().join("a.pqt").display().to_string();
    printed(
        "perfquet-convert",
        &[input.to_str().unwrap(), "--no-symbols", "-o", &trace],
    );
    publish(&trace, lake.to_str().unwrap(), "date=2026-11-20,host=h0");
    let server = Server::start(folder.path());
    // A file that needs several pieces.
    let mut names = Vec::new();
    files_below(&lake, &lake, &mut names);
    let samples = names
        .iter()
        .find(|name| name.starts_with("samples/"))
        .unwrap();
    let small = std::fs::metadata(lake.join(samples)).unwrap().len();
    let large: Vec<u8> = (0..21_000_003_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    File::create(lake.join(samples))
        .unwrap()
        .write_all(&large)
        .unwrap();
    let record = names
        .iter()
        .find(|name| name.starts_with("_perfquet/traces/"))
        .unwrap();
    let text = std::fs::read_to_string(lake.join(record)).unwrap();
    let entry = format!("{samples}\",\"bytes\":");
    let text = text.replace(
        &format!("{entry}{small}"),
        &format!("{entry}{}", large.len()),
    );
    std::fs::write(lake.join(record), text).unwrap();
    let copy = || {
        let words = ["publish", lake.to_str().unwrap(), NEW];
        let output = run(&server, "perfquet-query", &words);
        assert!(output.status.success(), "{output:?}");
        said(&output)
    };
    let text = copy();
    assert!(
        text.contains("1 trace published") && text.contains("20."),
        "{text}"
    );
    assert_whole(folder.path());
    let stored = files(folder.path());
    let stored = stored
        .iter()
        .find(|name| name.starts_with("samples/"))
        .unwrap();
    assert!(std::fs::read(folder.path().join("new").join(stored)).unwrap() == large);
    let pieces = server.take_requests();
    let pieces = pieces
        .iter()
        .filter(|line| line.contains("partNumber"))
        .count();
    assert_eq!(pieces, 3);
    assert!(copy().contains("0 traces published, 1 trace unchanged; "));
    // Merged files have rows of several traces.
    let words = [
        &trace,
        "--to",
        "lake",
        "-o",
        lake.to_str().unwrap(),
        "--partition",
        "date=2026-11-21,host=h0",
    ];
    printed("perfquet-convert", &words);
    let other = folder.path().join("b.pqt").display().to_string();
    printed(
        "perfquet-convert",
        &[&trace, "--to", "pqtz", "-o", &format!("{other}z")],
    );
    publish(
        &format!("{other}z"),
        lake.to_str().unwrap(),
        "date=2026-11-21,host=h0",
    );
    printed(
        "perfquet-convert",
        &["--to", "lake", "-o", lake.to_str().unwrap(), "--compact"],
    );
    let output = run(
        &server,
        "perfquet-query",
        &["publish", lake.to_str().unwrap(), NEW],
    );
    assert!(
        said(&output).contains("which --compact has merged"),
        "{output:?}"
    );
}

/// Engines of stores.py and what they need.
const ENGINES: [(&str, &[&str]); 4] = [
    ("duckdb", &["DuckDB for Python", "fsspec for Python"]),
    ("polars", &["Polars for Python"]),
    ("datafusion", &["DataFusion for Python"]),
    ("clickhouse", &["chDB for Python"]),
];

#[test]
fn engines_open_a_lake_in_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let (traces, _) = traces_and_lake(folder.path());
    let server = Server::start(folder.path());
    for (number, trace) in traces.iter().enumerate().take(2) {
        published(&server, &[trace], &[&partition(number)]);
    }
    let statements = |dialect: &str| {
        let mut command = server.command(&bin("perfquet-convert"));
        command.args([LAKE, "--to", &format!("ddl={dialect}")]);
        command.output().unwrap()
    };
    let count = |table: &&str| {
        let sql = format!("SELECT count(*) AS n FROM {table}");
        let (answered, lines) = counts(&server, &sql);
        assert!(answered, "{table}: {lines:?}");
        let rows = lines.iter().find_map(|line| line.parse::<u64>().ok());
        let rows = rows.filter(|rows| *rows > 0);
        format!("{table}\t{}", rows.unwrap())
    };
    let tables = ["samples", "frames", "threads", "mappings"];
    let expected: Vec<String> = tables.iter().map(count).collect();
    for (engine, needed) in ENGINES {
        if !needs::met(needed) {
            continue;
        }
        let output = statements(engine);
        let text = said(&output);
        assert!(output.status.success(), "{engine}: {text}");
        let file = folder.path().join(engine);
        std::fs::write(&file, output.stdout).unwrap();
        let mut command = server.command(Path::new("python3"));
        command.args(["-c", include_str!("stores.py"), engine]);
        command.arg(&file).arg(folder.path()).args(tables);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{engine}: {}", said(&output));
        let found = String::from_utf8(output.stdout).unwrap();
        assert_eq!(found.lines().collect::<Vec<_>>(), expected, "{engine}");
    }
    // Names of the other engines for the same place.
    for (dialect, place) in [
        ("spark", "(path 's3a://bucket/new/samples')"),
        ("trino", "external_location = 's3://bucket/new/samples'"),
    ] {
        let text = String::from_utf8(statements(dialect).stdout).unwrap();
        assert!(text.contains(place), "{text}");
        assert!(
            text.contains("perfquet-query sql lake:s3://bucket/new "),
            "{text}"
        );
    }
    let text = said(&statements("delta"));
    assert!(text.contains("expected a lake in a directory"), "{text}");
}
