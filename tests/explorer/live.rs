//! Recordings that still run, the end of the server, traces of another host.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use perfquet_tests::{bin, needs};

use super::server::{Server, converted};
use super::{browsed, switches};

/// Waits until this is true.
fn wait(seconds: u64, what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(seconds);
    while !is_so() {
        assert!(Instant::now() < end, "{what}: not within {seconds} s");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn program(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// A recording that ends while the server runs is shown as a whole, to requests and in the page.
#[test]
fn a_running_recording_is_followed() {
    let directory = tempfile::tempdir().unwrap();
    let complete = converted(directory.path(), "switches.trace", &switches());
    let trace = directory.path().join("live.pqt");
    let mut recorder = Command::new(bin("perfquet-record"))
        .args(["-F", "500", "-e", "cpu-clock", "-o"])
        .arg(&trace)
        .args([
            "--",
            "sh",
            "-c",
            "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; sleep 5",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait(20, "a trace", || trace.join("manifest.json").exists());
    let server = Server::of(&[&complete, &trace]);
    let meta = || server.get("/api/meta")["traces"][1].clone();
    assert_eq!(meta()["is_complete"], false);
    let sql = "SELECT count(*) FROM samples WHERE trace = 'live'";
    if needs::met(&["Chromium with puppeteer"]) {
        let steps = [
            "open trace=1",
            "wait #facts.live",
            "text #facts",
            "text footer",
            "wait #facts:not(.live)",
            "rows",
            "text #facts",
        ];
        let found = browsed(&server.address, &steps.map(str::to_owned));
        assert_eq!(found.len(), steps.len(), "{found:?}");
        // None of its few samples is in a complete part.
        assert_eq!(found[2], "still being recorded", "{found:?}");
        assert!(found[3].contains("nothing to show yet"), "{found:?}");
        assert!(found[5].contains(" samples"), "{found:?}");
        assert!(!found[6].contains("still"), "{found:?}");
    }
    assert!(recorder.wait().unwrap().success());
    wait(20, "the whole trace", || meta()["is_complete"] == true);
    assert!(meta()["rows"].as_i64().unwrap() > 50, "{}", meta());
    assert!(server.rows(sql)[0][0].as_i64().unwrap() > 50);
    let length = meta()["length"].as_i64().unwrap();
    let panel = server.get(&format!("/api/flame?trace=1&from=0&to={length}&ids="));
    assert!(panel["total"][0].as_i64().unwrap() > 0, "{panel}");
}

/// A server that opened the browser ends after the last tab was closed, unless it shall stay.
#[test]
fn a_server_ends_with_its_last_tab() {
    let directory = tempfile::tempdir().unwrap();
    let trace = converted(directory.path(), "switches.trace", &switches());
    program(&directory.path().join("xdg-open"), "#!/bin/sh\nexit 0\n");
    let path = format!(
        "{}:{}",
        directory.path().display(),
        std::env::var("PATH").unwrap()
    );
    let started = |words: &[&str]| {
        let mut command = Command::new(bin("perfquet-query"));
        command
            .arg("serve")
            .arg(&trace)
            .args(words)
            .env("PATH", &path)
            .env("DISPLAY", ":77")
            .env("XDG_CACHE_HOME", directory.path());
        Server::spawned(&mut command)
    };
    let (mut ends, mut stays, mut unopened) = (
        started(&[]),
        started(&["--keep"]),
        started(&["--no-browser"]),
    );
    for server in [&ends, &stays, &unopened] {
        let own = server.own();
        let post = |query: &str, headers: &str| {
            server
                .request(&format!("POST /api/tab?{query}"), headers, "")
                .0
        };
        assert_eq!(
            post(
                "id=a&open=1",
                &format!("Host: 127.0.0.1:{}\r\n", server.port)
            ),
            403
        );
        assert_eq!(
            post(
                "id=a&open=1",
                &format!("{own}Origin: http://evil.example\r\n")
            ),
            403
        );
        assert_eq!(post("id=a", &own), 400);
        assert_eq!(server.request("GET /api/tab?id=a&open=1", &own, "").0, 405);
        assert_eq!(post("id=a&open=1", &own), 200);
        assert_eq!(post("id=a&open=0", &own), 200);
    }
    wait(40, "the end of the server", || {
        ends.child.try_wait().unwrap().is_some()
    });
    assert!(ends.child.wait().unwrap().success());
    assert_eq!(stays.child.try_wait().unwrap(), None);
    assert_eq!(unopened.child.try_wait().unwrap(), None);
}

/// Passes connections to a port on to another one, as `ssh -L` does.
fn forward(from: u16, to: u16) {
    let listener = TcpListener::bind(("127.0.0.1", from)).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let other = TcpStream::connect(("127.0.0.1", to)).unwrap();
            let ends = (stream.try_clone().unwrap(), other.try_clone().unwrap());
            let copy = |mut from: TcpStream, mut to: TcpStream| {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(std::net::Shutdown::Write);
            };
            std::thread::spawn(move || copy(stream, other));
            std::thread::spawn(move || copy(ends.1, ends.0));
        }
    });
}

/// Traces of another host: no word of the user is in a command line for a shell, and the server there ends with ours.
#[test]
fn traces_of_another_host_are_tunneled() {
    let directory = tempfile::tempdir().unwrap();
    let trace = converted(directory.path(), "switches.trace", &switches());
    let hostile = directory.path().join("it's $(touch injected) \"&.pqt");
    std::fs::rename(&trace, &hostile).unwrap();
    let log = directory.path().join("log");
    let bins = bin("perfquet-query");
    let bins = Path::new(&bins).parent().unwrap().display().to_string();
    program(
        &directory.path().join("ssh"),
        &format!(
            "#!/bin/sh\nfor word in \"$@\"; do echo \"$word\"; done > '{}'\nwhile [ \"$1\" != -- ]; do shift; done\nshift 2\nPATH={bins}:$PATH exec sh -c \"$*\"\n",
            log.display()
        ),
    );
    let path = format!(
        "{}:{}",
        directory.path().display(),
        std::env::var("PATH").unwrap()
    );
    let command = |host: &str| {
        let mut command = Command::new(bin("perfquet-query"));
        command
            .args(["serve", "--no-browser", &format!("--ssh={host}")])
            .arg(&hostile);
        command
            .env("PATH", &path)
            .env("XDG_CACHE_HOME", directory.path())
            .env_remove("PERFQUET_SSH")
            .current_dir(directory.path());
        command
    };
    let mut server = Server::spawned(&mut command("--host"));
    assert_eq!(server.rows("SELECT count(*) FROM sched_switch")[0][0], 900);
    let words = std::fs::read_to_string(&log).unwrap();
    let words: Vec<&str> = words.lines().collect();
    let port = server.port;
    assert!(
        words.contains(&format!("127.0.0.1:{port}:127.0.0.1:{port}").as_str()),
        "{words:?}"
    );
    // An option, were it not after `--`.
    let place = words.iter().position(|word| *word == "--").unwrap();
    assert_eq!(words[place + 1], "--host");
    assert!(
        words[place + 2].starts_with("exec sh -c 'eval \"$(dd bs=1 count="),
        "{words:?}"
    );
    assert!(!words.join(" ").contains("it's"), "{words:?}");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    wait(20, "the end of the other server", || {
        TcpStream::connect(("127.0.0.1", port)).is_err()
    });
    assert!(!directory.path().join("injected").exists());
    // Where both hosts are this one, the server has another port than the browser.
    let mut server = Server::spawned(&mut command("me@localhost"));
    let words = std::fs::read_to_string(&log).unwrap();
    let here = format!("127.0.0.1:{}:127.0.0.1:", server.port);
    let there = words.lines().find_map(|word| word.strip_prefix(&here));
    let there: u16 = there.unwrap().parse().unwrap();
    assert_ne!(there, server.port);
    forward(server.port, there);
    assert_eq!(server.rows("SELECT count(*) FROM sched_switch")[0][0], 900);
    let direct =
        format!("GET /api/meta HTTP/1.1\r\nHost: 127.0.0.1:{there}\r\nConnection: close\r\n\r\n");
    assert_eq!(server.raw(&direct).0, 403);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    // Whatever else the other host prints is not opened.
    program(
        &directory.path().join("ssh"),
        "#!/bin/sh\necho 'http://evil.example/?token=0123456789abcdef0123456789abcdef'\n",
    );
    let output = command("other").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        error.contains("expected an address of perfquet-query"),
        "{error}"
    );
    program(&directory.path().join("ssh"), "#!/bin/sh\nexit 255\n");
    let error = command("other").output().unwrap().stderr;
    assert!(String::from_utf8_lossy(&error).contains("other: no server was started"));
}
