//! Effects of signals on a recording: unrequested user signals have none, SIGQUIT acts like SIGTERM.

mod room;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use perfquet_trace::store::{Directory, State};
use room::{Room, users_may_record};

fn send(name: &str, recorder: &Child) {
    let pid = recorder.id().to_string();
    let sent = Command::new("kill")
        .args([&format!("-{name}"), &pid])
        .status();
    assert!(sent.is_ok_and(|status| status.success()), "{name}");
}

/// A recorder whose command has started.
fn recording(room: &Room) -> Child {
    let mut recorder = room.recorder();
    recorder.args(["--force", "-o", "t.pqt", "-e", "cpu-clock", "--"]);
    recorder.args(["sh", "-c", ": > started; exec sleep 60"]);
    let recorder = recorder
        .stderr(Stdio::piped())
        .spawn()
        .expect("the recorder runs");
    let begin = Instant::now();
    while !room.path("started").exists() {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "it does not begin"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    recorder
}

#[test]
fn unrequested_signals_are_ignored_and_sigquit_finishes() {
    if !users_may_record() {
        return;
    }
    for end in ["QUIT", "TERM", "INT"] {
        let room = Room::new();
        let mut recorder = recording(&room);
        for unasked in ["USR1", "USR2"] {
            send(unasked, &recorder);
            std::thread::sleep(Duration::from_millis(300));
            assert!(recorder.try_wait().unwrap().is_none(), "{unasked} ended it");
        }
        send(end, &recorder);
        let output = recorder.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{end}: {stderr}");
        assert!(stderr.contains("next: perfquet-query"), "{end}: {stderr}");
        let trace = Directory::open(&room.path("t.pqt")).expect("a trace");
        assert_eq!(trace.manifest().state, State::Complete, "{end}");
    }
}
