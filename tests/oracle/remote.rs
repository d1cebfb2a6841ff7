//! Traces and lakes behind URLs answer as local ones, read what they need, and fail in words, within bounds.

use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use perfquet_tests::bin;

use super::lake_traces::{REPORTS, difference, traces_and_lake};
use super::objects::{Fault, Server};
use super::several::printed;

pub(super) fn run(server: &Server, program: &str, words: &[&str]) -> Output {
    let mut command = server.command(&bin(program));
    command.args(words).output().unwrap()
}

/// Success, and sorted lines: the order of rows without ORDER BY is undefined.
pub(super) fn asked(
    server: &Server,
    command: &str,
    traces: &[String],
    words: &[&str],
) -> (bool, Vec<String>) {
    let mut all = vec![command];
    all.extend(traces.iter().map(String::as_str));
    all.extend(words);
    let output = run(server, "perfquet-query", &all);
    let success = output.status.success();
    let text = if success {
        output.stdout
    } else {
        output.stderr
    };
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    if !success {
        lines.retain(|line| !line.contains(".pqt"));
    }
    (success, lines)
}

fn failure(server: &Server, words: &[&str]) -> String {
    let output = run(server, "perfquet-query", words);
    assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

const EVENTS: &str = "SELECT trace, event, count(*), min(time), max(time) FROM events GROUP BY ALL";

#[test]
fn traces_behind_urls_answer_as_local_ones() {
    let folder = tempfile::tempdir().unwrap();
    let (traces, _) = traces_and_lake(folder.path());
    let server = Server::start(folder.path());
    let name = |trace: &String| {
        Path::new(trace)
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    };
    let s3: Vec<String> = traces
        .iter()
        .map(|trace| format!("s3://bucket/{}", name(trace)))
        .collect();
    let web: Vec<String> = traces
        .iter()
        .map(|trace| server.url(&name(trace)))
        .collect();
    let mut compared = 0;
    let mut check = |remote: &[String], command: &str, words: &[&str]| {
        let expected = asked(&server, command, &traces, words);
        let found = asked(&server, command, remote, words);
        assert!(
            found == expected,
            "{command} {words:?}: {}",
            difference(&found.1, &expected.1)
        );
        compared += 1;
    };
    for sql in [
        EVENTS,
        "SELECT * FROM samples",
        "SELECT * FROM frames",
        "SELECT * FROM sched_switch ORDER BY time LIMIT 7",
        "SELECT * FROM my_event WHERE name LIKE '%x%'",
        "SELECT * FROM syscalls",
        "SELECT * FROM thread_states",
        "SELECT stack_text(coalesce(user_stack, kernel_stack)), count(*) FROM samples GROUP BY ALL",
    ] {
        check(&s3, "sql", &[sql, "--format", "csv"]);
        check(&web, "sql", &[sql, "--format", "csv"]);
    }
    for report in REPORTS {
        let mut words = report[1..].to_vec();
        words.extend(["--format", "csv"]);
        check(&s3, report[0], &words);
    }
    check(
        &["s3://bucket/*.pqt".to_owned()],
        "sql",
        &[EVENTS, "--format", "csv"],
    );
    check(
        &["s3://bucket/[0-9].pqt".to_owned()],
        "top",
        &["--format", "csv"],
    );
    // Beside local ones, as sides of a comparison, and twice.
    let mixed: Vec<String> = (0..traces.len())
        .map(|index| if index % 2 == 0 { &traces } else { &s3 }[index].clone())
        .collect();
    check(&mixed, "sql", &[EVENTS, "--format", "csv"]);
    assert!(compared > 40);
    let diff = |before: &str, after: &str| {
        run(
            &server,
            "perfquet-query",
            &["diff", before, after, "--format", "csv"],
        )
        .stdout
    };
    let expected = diff(&traces[0], &traces[3]);
    assert!(!expected.is_empty());
    assert_eq!(diff(&traces[0], &s3[3]), expected);
    assert_eq!(diff(&web[0], &s3[3]), expected);
    let twice = run(
        &server,
        "perfquet-query",
        &["sql", &s3[0], &s3[0], EVENTS, "--format", "csv"],
    );
    assert!(String::from_utf8_lossy(&twice.stderr).contains("given twice, opened once"));
    // A report page.
    let page = folder.path().join("page.html").display().to_string();
    let output = run(&server, "perfquet-query", &["report", &s3[0], "-o", &page]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn archives_behind_urls_are_read_in_ranges() {
    let folder = tempfile::tempdir().unwrap();
    let (traces, _) = traces_and_lake(folder.path());
    let archive = folder.path().join("0.pqtz").display().to_string();
    printed(
        "perfquet-convert",
        &[&traces[0], "--to", "pqtz", "-o", &archive],
    );
    let server = Server::start(folder.path());
    let top = |trace: &str| asked(&server, "top", &[trace.to_owned()], &["--format", "csv"]);
    let expected = top(&traces[0]);
    assert!(expected.0);
    assert_eq!(top("s3://bucket/0.pqtz"), expected);
    let ranges = server.take_requests();
    assert!(
        ranges.iter().all(|line| line.contains("bytes=")),
        "{ranges:?}"
    );
    // With what must not be shown.
    let signed = format!("{}?X-Signature=hidden", server.url("0.pqtz"))
        .replace("http://", "http://me:secret@");
    assert_eq!(top(&signed), expected);
    let info = run(&server, "perfquet-query", &["info", &signed]);
    let text = format!("{:?}{:?}", info.stdout, info.stderr);
    assert!(info.status.success());
    assert!(String::from_utf8_lossy(&info.stdout).contains("/bucket/0.pqtz"));
    assert!(!text.contains("hidden") && !text.contains("secret"));
    assert!(
        server
            .take_requests()
            .iter()
            .any(|line| line.contains("X-Signature=hidden"))
    );
    // A server without ranges, such as Python's.
    server.fail("GET", 0, Fault::Whole);
    assert_eq!(top(&server.url("0.pqtz")), expected);
    assert_eq!(top(&server.url("0.pqt")), expected);
}

#[test]
fn a_lake_in_a_store_reads_what_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let (traces, local) = traces_and_lake(folder.path());
    let server = Server::start(folder.path());
    let lake = "lake:s3://bucket/lake";
    for (command, words) in [
        ("sql", vec![EVENTS, "--format", "csv"]),
        ("sql", vec!["SELECT * FROM my_event", "--format", "csv"]),
        ("top", vec!["--format", "csv"]),
        ("durations", vec!["--by", "trace", "--format", "csv"]),
    ] {
        let expected = asked(&server, command, std::slice::from_ref(&local), &words);
        assert!(expected.0);
        assert_eq!(
            asked(&server, command, &[lake.to_owned()], &words),
            expected
        );
    }
    // One host: no file of another.
    server.take_requests();
    let one = asked(
        &server,
        "sql",
        &[format!("{lake}?host=h0")],
        &["SELECT count(*) FROM samples", "--format", "csv"],
    );
    assert_eq!(
        one,
        asked(
            &server,
            "sql",
            &traces[..1],
            &["SELECT count(*) FROM samples", "--format", "csv"]
        )
    );
    let requests = server.take_requests();
    let read: Vec<&String> = requests
        .iter()
        .filter(|line| !line.contains("list-type"))
        .collect();
    let of_others = read
        .iter()
        .filter(|line| line.contains("host=") && !line.contains("host=h0/"));
    assert_eq!(of_others.count(), 0, "{requests:?}");
    let count = |text: &str| read.iter().filter(|line| line.contains(text)).count();
    assert_eq!(
        (count("_perfquet/traces/"), count("_perfquet/manifests/")),
        (1, 1),
        "{requests:?}"
    );
    // The number of rows is in the manifest.
    assert_eq!(count("lake/samples/"), 0, "{requests:?}");
    let sum = "SELECT sum(period) FROM samples";
    asked(
        &server,
        "sql",
        &[format!("{lake}?host=h0")],
        &[sum, "--format", "csv"],
    );
    let requests = server.take_requests();
    let files: Vec<&String> = requests
        .iter()
        .filter(|line| line.contains(".parquet"))
        .collect();
    assert_eq!(files.len(), 1, "{requests:?}");
    assert!(files[0].contains("samples/date=2026-11-20/host=h0/"));
    let web = failure(&server, &["top", &format!("lake:{}", server.url("lake"))]);
    assert!(web.contains("cannot be listed over HTTP"), "{web}");
}

/// One function, because its cases are about one server.
#[test]
fn servers_that_fail_are_named_within_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let (traces, _) = traces_and_lake(folder.path());
    let server = Server::start(folder.path());
    let query = |trace: &str| {
        let since = Instant::now();
        let text = failure(&server, &["sql", trace, "SELECT sum(period) FROM samples"]);
        assert!(since.elapsed() < Duration::from_secs(30), "{text}");
        assert!(text.len() < 1_000 && !text.contains('\x1b'), "{text}");
        text
    };
    let expect = |trace: &str, words: &[&str]| {
        let text = query(trace);
        for word in words {
            assert!(text.contains(word), "{word}: {text}");
        }
    };
    let (trace, part) = ("s3://bucket/0.pqt", "GET 0.pqt/samples/");
    let xml =
        |code: &str| format!("<Error><Code>{code}</Code><Message>no\x1b[2J way</Message></Error>");
    expect(
        "s3://bucket/none.pqt",
        &["s3://bucket/none.pqt: expected a trace directory, found no manifest.json"],
    );
    expect(&server.url("none.pqtz"), &["none.pqtz: not found"]);
    expect("s3://bucket/none*.pqt", &["no matching traces"]);
    expect(
        &server.url("*.pqt"),
        &["patterns need a list of the directory, which HTTP does not have"],
    );
    expect("s3://bucket/lake", &["lakes as lake:URL"]);
    for (text, before) in [("manifest.json", 0), (part, 0)] {
        server.fail(
            text,
            before,
            Fault::Status("403 Forbidden", xml("AccessDenied")),
        );
        expect(
            trace,
            &[
                "s3://bucket/0.pqt",
                "access denied (403 Forbidden AccessDenied: no [2J way)",
                "hint: check AWS_ACCESS_KEY_ID",
            ],
        );
        server.fail(
            text,
            before,
            Fault::Status("503 Slow Down", xml("SlowDown")),
        );
        expect(trace, &["503", "SlowDown"]);
        server.fail(text, before, Fault::Status("500 Oops", "x".repeat(1 << 20)));
        expect(trace, &["500"]);
        server.fail(
            text,
            before,
            Fault::Redirect("file:///etc/passwd".to_owned()),
        );
        query(trace);
        server.fail(text, before, Fault::Redirect(server.url("0.pqt/again")));
        query(trace);
        server.fail(text, before, Fault::Garbage);
        query(trace);
        server.fail(text, before, Fault::Endless);
        query(trace);
        server.fail(text, before, Fault::Cut);
        query(trace);
    }
    server.fail(
        "manifest.json",
        0,
        Fault::Status("404 Not Found", xml("NoSuchBucket")),
    );
    expect(trace, &["manifest.json: no such bucket"]);
    server.fail(
        "manifest.json",
        0,
        Fault::Status("301 Moved Permanently", xml("PermanentRedirect")),
    );
    expect(
        trace,
        &["the bucket is in another region", "hint: set AWS_REGION"],
    );
    // A part that was replaced by a shorter one.
    server.recover();
    let samples = folder.path().join("0.pqt/samples");
    let file = std::fs::read_dir(samples)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let content = std::fs::read(&file).unwrap();
    std::fs::write(&file, &content[1..]).unwrap();
    expect(
        trace,
        &[
            "expected a file of",
            "as in the manifest",
            "hint: open it again",
        ],
    );
    std::fs::write(&file, &content).unwrap();
    // One answer that is lost is asked for again.
    server.fail(part, 1_000, Fault::Cut);
    assert_eq!(
        asked(&server, "top", &[trace.to_owned()], &["--format", "csv"]),
        asked(&server, "top", &traces[..1], &["--format", "csv"])
    );
    // Nobody listens.
    let down = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut command = server.command(&bin("perfquet-query"));
    command.env("AWS_ENDPOINT_URL", format!("http://{down}"));
    let output = command.args(["info", trace]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("onnection refused"), "{text}");
}
