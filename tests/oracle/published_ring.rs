//! `perfquet-record --publish`: every trace of a ring arrives in the lake, none twice, whatever fails or is killed meanwhile.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use perfquet_tests::{bin, needs};

use super::objects::{Fault, Server, with_settings};
use super::published::{LAKE, NEW, assert_whole};
use super::remote::asked;

/// A process to record, until it is dropped.
struct Busy(Child);

impl Busy {
    fn start() -> Busy {
        let mut command = Command::new("sh");
        Busy(command.args(["-c", "while :; do :; done"]).spawn().unwrap())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The recorder of a ring of short traces.
fn recorder(folder: &Path, busy: &Busy, port: u16, place: &str, duration: &str) -> Command {
    let mut command = with_settings(Command::new(bin("perfquet-record")), port);
    command
        .args(["-e", "cpu-clock", "-F", "199", "-p"])
        .arg(busy.0.id().to_string())
        .args(["--rotate", "1s", "--duration", duration, "--publish", place])
        .arg("-o")
        .arg(folder.join("ring"))
        .env("TMPDIR", folder)
        .stderr(Stdio::piped());
    command
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The traces of the ring.
fn ring(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder.join("ring")).unwrap().flatten();
    let paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    let paths = paths.iter().map(|path| path.display().to_string());
    let mut traces: Vec<String> = paths.filter(|path| path.ends_with(".pqt")).collect();
    traces.sort();
    traces
}

/// Records until all traces of the ring are published: on a busy host, the time after a recording may be too short for that.
fn publish_all(folder: &Path, busy: &Busy, port: u16, place: &str) {
    for attempt in 0.. {
        let text = said(&recorder(folder, busy, port, place, "1s").output().unwrap());
        let count = ring(folder).len();
        let expected = format!("{place}: {count} traces published, 0 waiting, 0 dropped");
        if text.contains(&expected) {
            return;
        }
        assert!(
            attempt < 10 && text.contains(", 0 dropped"),
            "{expected}: {text}"
        );
    }
}

#[test]
fn traces_of_a_ring_arrive_once() {
    if !needs::met(&["root", "perf events"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let busy = Busy::start();
    // Nobody listens at first.
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let text = said(&recorder(folder, &busy, port, NEW, "4s").output().unwrap());
    let waiting = ring(folder).len();
    assert!(waiting >= 3, "{text}");
    let expected = format!("{NEW}: 0 traces published, {waiting} waiting, 0 dropped\nnext: ");
    assert!(text.contains(&expected), "{text}");
    assert!(text.contains("waiting; trying again"), "{text}");
    let root = folder.join("bucket");
    fs::create_dir(&root).unwrap();
    let server = Server::start_at(&root, port);
    publish_all(folder, &busy, port, NEW);
    let check = || {
        const COUNTS: &str =
            "SELECT trace, count(*), sum(period), min(time) FROM samples GROUP BY ALL";
        let words = [COUNTS, "--format", "csv"];
        let found = asked(&server, "sql", &[LAKE.to_owned()], &words);
        let expected = asked(&server, "sql", &ring(folder), &words);
        assert!(expected.0 && found == expected, "{found:?}\n{expected:?}");
        assert_whole(&root);
    };
    check();
    // Killed while traces wait for a server that is down.
    let down = "<Error><Code>SlowDown</Code></Error>".to_owned();
    server.fail("PUT", 0, Fault::Status("503 Slow Down", down));
    server.take_requests();
    let known = ring(folder).len();
    let mut second = recorder(folder, &busy, port, NEW, "60s").spawn().unwrap();
    let since = Instant::now();
    while server.requests_with("PUT ") == 0 || ring(folder).len() < known + 3 {
        assert!(since.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(10));
    }
    second.kill().unwrap();
    second.wait().unwrap();
    server.recover();
    let queue = fs::read_to_string(folder.join("ring/.publish.json")).unwrap();
    assert!(!queue.contains("\"waiting\":[]"), "{queue}");
    // Its converter may still be at work, and is left alone.
    publish_all(folder, &busy, port, NEW);
    check();
    // A directory is another place, which has none of them.
    let lake = folder.join("lake").display().to_string();
    publish_all(folder, &busy, port, &lake);
    // The orphan removes its directory, too.
    let since = Instant::now();
    loop {
        let left = fs::read_dir(folder).unwrap().flatten();
        let mut left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        left.sort();
        if left == ["bucket", "lake", "ring"] {
            break;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "{left:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn what_cannot_be_published_is_refused_before_recording() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |program: &Path, words: &[&str], code: i32, expected: &str| {
        let mut command = Command::new(program);
        let output = command
            .args(words)
            .current_dir(folder.path())
            .env("PATH", "/none")
            .output();
        let output = output.unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(code) && text.contains(expected),
            "{words:?}: {text}"
        );
    };
    let own = bin("perfquet-record");
    refused(
        &own,
        &["-a", "--publish", "lake"],
        2,
        "--publish: requires --rotate or --keep\nhint: add --rotate 10m",
    );
    refused(
        &own,
        &["-a", "--ring", "1M", "--publish", "lake"],
        2,
        "--publish: requires --rotate or --keep",
    );
    refused(
        &own,
        &["-a", "--rotate", "1m", "--publish", "http://h/lake"],
        2,
        "expected a path or the URL of an object store",
    );
    refused(
        &own,
        &["-a", "--rotate", "1m", "--backlog", "1G"],
        2,
        "--publish",
    );
    let service = [
        "--install-service=.",
        "-a",
        "--rotate",
        "1m",
        "-o",
        "/x",
        "--publish",
        "lake",
    ];
    refused(
        &own,
        &service,
        2,
        "requires --publish with an absolute path or a URL",
    );
    let alone = folder.path().join("perfquet-record");
    fs::copy(&own, &alone).unwrap();
    let pid = std::process::id().to_string();
    let words = [
        "-p",
        &pid,
        "--rotate",
        "1m",
        "-o",
        "ring",
        "--publish",
        "lake",
    ];
    refused(
        &alone,
        &words,
        1,
        "--publish: no perfquet-convert beside this program or in PATH\nhint: install",
    );
    fs::write(folder.path().join("perfquet-convert"), "").unwrap();
    let words = ["-p", &pid, "--rotate", "1m", "-o", "ring", "--publish", NEW];
    refused(
        &alone,
        &words,
        1,
        "--publish: no perfquet-query beside this program or in PATH",
    );
}
