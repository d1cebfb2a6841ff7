//! Effects of signals on a recording: unrequested user signals have none, SIGQUIT acts like SIGTERM.

mod room;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use perfquet_trace::store::{Directory, State};
use room::{Room, may_record, users_may_record};

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

#[test]
fn a_limit_of_file_sizes_is_an_error() {
    if !users_may_record() {
        return;
    }
    let room = Room::new();
    let recorder = room.recorder();
    let program = recorder.get_program().to_string_lossy().into_owned();
    // In units of 512 or 1,024 bytes: more than the tables, less than the samples.
    let script = format!(
        "ulimit -f 300; exec {program} --force -o t.pqt -F 20000 -e cpu-clock -- sh -c \
         'trap \"\" XFSZ; i=0; while [ $i -lt 2000000 ]; do i=$((i+1)); done'"
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(room.path(""));
    let output = command.output().expect("a shell");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("ended early: cannot write the journal: File too large"),
        "{stderr}"
    );
    let trace = Directory::open(&room.path("t.pqt")).expect("a trace");
    assert_eq!(trace.manifest().state, State::Complete);
    // Samples have no number of hits from which their losses would follow.
    assert!(stderr.contains(" events, some lost, "), "{stderr}");
    let losses = room.rows("losses", &["count", "reason"]);
    assert_eq!(losses, ["- the recording ended early"]);
    let script = format!(
        "ulimit -f 300; exec {program} --force --format perf.data -o p.data -F 20000 -e cpu-clock -- sh -c \
         'trap \"\" XFSZ; i=0; while [ $i -lt 2000000 ]; do i=$((i+1)); done'"
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(room.path(""));
    let output = command.output().expect("a shell");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains(" events, some lost, "), "{stderr}");
    // The command is not protected from the signal.
    let script = format!(
        "ulimit -f 300; exec {program} --force -o t.pqt -e cpu-clock -- head -c 1000000 /dev/zero > large"
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(room.path(""));
    let status = command.status().expect("a shell");
    assert_eq!(status.code(), Some(128 + 25));
}

/// The limit of file sizes again: a perf.data file has as many events and losses as there were hits.
#[test]
fn what_a_perf_data_file_lacks_is_counted() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    let recorder = room.recorder();
    let program = recorder.get_program().to_string_lossy().into_owned();
    // The recorder stands still until all hits are in its rings; otherwise it might end the command.
    let script = format!(
        "ulimit -f 2000; exec {program} --force --format perf.data -o p.data -e raw_syscalls:sys_enter -- sh -c \
         'kill -STOP $PPID; dd if=/dev/zero of=/dev/null bs=1 count=50000 status=none; kill -CONT $PPID'"
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(room.path(""));
    let output = command.output().expect("a shell");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let number = |word: &str| -> u64 {
        let before = stderr.split(word).next().unwrap_or_default();
        let digits = before.rsplit(' ').next().unwrap_or_default();
        digits.replace(',', "").parse().expect("a number")
    };
    let (events, lost) = (number(" events,"), number(" lost,"));
    let is_counted = events > 1000 && lost > 1000 && events + lost > 100_000;
    assert!(is_counted, "{stderr}");
}
