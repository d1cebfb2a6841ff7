//! `--live`: the display on a terminal, its end by signals and closed pipes, and the terminal afterwards.

mod room;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use perfquet_trace::store::{Directory, State};
use room::{Room, Running, needs, users_may_record};

const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";
const SHOW_CURSOR: &str = "\u{1b}[?25h";

/// Longer than any step on a slow host.
const PATIENCE: Duration = Duration::from_secs(60);

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn send(signal: &str, pid: &str) {
    let sent = Command::new("kill").args([signal, pid]).status();
    assert!(sent.is_ok_and(|status| status.success()), "{signal} {pid}");
}

/// A process that computes until it is dropped.
fn busy(room: &Room) -> Option<Running> {
    let program = room.compile("busy.c", &["-O1"])?;
    Some(Running::start(Command::new(program).arg("600")))
}

fn is_complete(room: &Room) -> bool {
    let trace = Directory::open(&room.path("t.pqt")).expect("a trace");
    trace.manifest().state == State::Complete
}

/// What ends the recorder.
#[derive(Clone, Copy)]
enum End {
    Signal(&'static str),
    Keys(&'static [u8]),
}

/// Runs the recorder in a terminal of this size, sends a signal or keys once there is a display, and returns what the terminal got.
fn in_terminal(
    room: &Room,
    busy: &Running,
    size: &str,
    (variable, value): (&str, &str),
    end: End,
) -> String {
    let output = room.path("terminal");
    // Of an earlier recording.
    let _ = std::fs::remove_file(&output);
    let recorder = env!("CARGO_BIN_EXE_perfquet-record");
    let trace = room.path("t.pqt");
    let command = format!(
        "stty {size}; echo $$ > {pid}; exec {recorder} --force --live --every 200ms -p {busy} -o {trace}",
        pid = room.path("pid").display(),
        busy = busy.pid(),
        trace = trace.display(),
    );
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-f", "-c", &command]).arg(&output);
    script
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .env(variable, value);
    let mut script = script
        .stdin(match end {
            End::Signal(_) => Stdio::null(),
            End::Keys(_) => Stdio::piped(),
        })
        .stdout(Stdio::null())
        .spawn()
        .expect("script runs");
    let shown = || {
        std::fs::read(&output).map_or(String::new(), |bytes| {
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    wait_until("no display", || shown().contains("spin"));
    match end {
        End::Signal(signal) => {
            let pid = std::fs::read_to_string(room.path("pid")).expect("a pid");
            send(signal, pid.trim());
        }
        End::Keys(keys) => {
            let stdin = script.stdin.as_mut().expect("a pipe");
            stdin.write_all(keys).expect("script reads");
        }
    }
    wait_until("it does not end", || script.try_wait().unwrap().is_some());
    shown()
}

#[test]
fn q_ends_the_display() {
    if !users_may_record() || !needs::met(&["script"]) {
        return;
    }
    let room = Room::new();
    let Some(busy) = busy(&room) else {
        return;
    };
    let shown = in_terminal(
        &room,
        &busy,
        "rows 12 cols 80",
        ("A", "B"),
        End::Keys(b"xq"),
    );
    let (_, after) = shown.rsplit_once(LEAVE).expect("the terminal is restored");
    assert!(after.contains("next: perfquet-query"), "{after:?}");
    assert!(is_complete(&room));
}

#[test]
fn a_terminal_is_restored() {
    if !users_may_record() || !needs::met(&["script"]) {
        return;
    }
    let room = Room::new();
    let Some(busy) = busy(&room) else {
        return;
    };
    for signal in ["-INT", "-TERM", "-HUP"] {
        let shown = in_terminal(
            &room,
            &busy,
            "rows 12 cols 40",
            ("A", "B"),
            End::Signal(signal),
        );
        assert!(shown.contains(ENTER), "{shown:?}");
        let (_, after) = shown.rsplit_once(LEAVE).expect(signal);
        assert!(shown.contains(SHOW_CURSOR), "{shown:?}");
        // The closing line is printed below the restored screen.
        assert!(
            after.contains("next: perfquet-query"),
            "{signal}: {after:?}"
        );
        assert!(!after.contains(ENTER), "{after:?}");
        assert!(is_complete(&room), "{signal}");
        assert!(shown.contains("\u{1b}[1m"), "the heads are bold");
        for screen in shown.split("\u{1b}[H").skip(1) {
            let screen = screen.split("\u{1b}[J").next().unwrap_or_default();
            let plain = screen
                .replace("\u{1b}[K", "")
                .replace("\u{1b}[1m", "")
                .replace("\u{1b}[0m", "");
            assert!(plain.split("\r\n").count() <= 12, "{plain}");
            assert!(
                plain.lines().all(|line| line.chars().count() <= 40),
                "{plain}"
            );
        }
    }
    let shown = in_terminal(
        &room,
        &busy,
        "rows 24 cols 80",
        ("NO_COLOR", "1"),
        End::Signal("-INT"),
    );
    assert!(
        shown.contains(ENTER) && !shown.contains("\u{1b}[1m"),
        "{shown:?}"
    );
    let shown = in_terminal(
        &room,
        &busy,
        "rows 24 cols 80",
        ("TERM", "dumb"),
        End::Signal("-INT"),
    );
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
}

/// A recorder of a process that computes, with a display as text.
fn as_text(room: &Room, busy: &Running) -> Child {
    let mut recorder = room.recorder();
    recorder.args([
        "--force",
        "-o",
        "t.pqt",
        "--live",
        "--every",
        "100ms",
        "-p",
        &busy.pid(),
    ]);
    recorder.stdout(Stdio::piped()).stderr(Stdio::piped());
    recorder.spawn().expect("the recorder runs")
}

#[test]
fn a_closed_pipe_ends_a_recording_without_a_limit() {
    if !users_may_record() {
        return;
    }
    let room = Room::new();
    let Some(busy) = busy(&room) else {
        return;
    };
    let mut recorder = as_text(&room, &busy);
    let mut lines = BufReader::new(recorder.stdout.take().expect("a pipe")).lines();
    let first = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("spin")));
    assert!(first.is_some(), "spin is shown");
    drop(lines);
    wait_until("it does not end", || recorder.try_wait().unwrap().is_some());
    let output = recorder.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("next: perfquet-query"), "{stderr}");
    assert!(is_complete(&room));
}

#[test]
fn a_closed_pipe_ends_no_command() {
    if !users_may_record() {
        return;
    }
    let room = Room::new();
    let mut recorder = room.recorder();
    recorder.args(["-o", "t.pqt", "--live", "--every", "50ms", "--"]);
    recorder.args(["sh", "-c", "sleep 1; : > done"]);
    let full = File::options()
        .write(true)
        .open("/dev/full")
        .expect("/dev/full");
    let output = recorder.stdout(full).output().expect("the recorder runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(room.path("done").exists(), "{stderr}");
    assert!(is_complete(&room));
}

/// A pipe that nobody reads must not stop the recording, nor its end.
#[test]
fn a_full_pipe_stops_nothing() {
    if !users_may_record() {
        return;
    }
    let room = Room::new();
    let Some(busy) = busy(&room) else {
        return;
    };
    let mut recorder = room.recorder();
    recorder.args([
        "-o",
        "t.pqt",
        "--live",
        "--every",
        "10ms",
        "-p",
        &busy.pid(),
    ]);
    let (mut unread, full) = std::io::pipe().expect("a pipe");
    recorder.stdout(full).stderr(Stdio::piped());
    let mut child = recorder.spawn().expect("the recorder runs");
    // It holds the pipe open.
    drop(recorder);
    // 64 KiB are full after a hundred blocks.
    std::thread::sleep(Duration::from_secs(4));
    send("-INT", &child.id().to_string());
    wait_until("it does not end", || child.try_wait().unwrap().is_some());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(is_complete(&room));
    let mut text = String::new();
    unread.read_to_string(&mut text).expect("text");
    assert!(text.contains("spin"), "{text}");
}
