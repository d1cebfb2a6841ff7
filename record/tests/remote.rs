//! `--ssh`: recordings on another host, here an SSH server on the same one; lost connections, full disks, hostile hosts.

mod room;
mod server;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use perfquet_trace::store::{Directory, State};
use room::{Room, ended, needs, rows_of_trace};
use server::{Server, entries, wait_until};

/// Directories of programs on the other host, without a recorder.
const PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin";

/// A server that has this recorder; `None`, with a message, if there can be none.
fn server(room: &Room) -> Option<Server> {
    may_connect().then(|| Server::start(room, &programs()))
}

/// Directories of programs, and that of this recorder.
fn programs() -> String {
    let recorder = Path::new(env!("CARGO_BIN_EXE_perfquet-record"));
    format!(
        "{PATH}:{}",
        recorder.parent().expect("a directory").display()
    )
}

fn may_connect() -> bool {
    needs::met(&["root", "tracefs", "perf events", "OpenSSH's server"])
}

fn state(trace: &Path) -> State {
    Directory::open(trace).expect("a trace").manifest().state
}

fn signal(name: &str, recorder: &Child) {
    let pid = recorder.id().to_string();
    let sent = Command::new("kill").args(["-s", name, &pid]).status();
    assert!(sent.is_ok_and(|status| status.success()), "{name}");
}

/// Whether a process has `text` in its command line.
fn runs(text: &str) -> bool {
    entries(Path::new("/proc")).iter().any(|process| {
        let line = fs::read(process.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(text)
    })
}

#[test]
fn a_recording_there_equals_one_here() {
    let room = Room::new();
    let Some(server) = server(&room) else {
        return;
    };
    let script =
        "for i in 1 2 3 4 5 6 7; do /bin/true; done; printf '%s|' \"$@\"; echo warned >&2; exit 3";
    let words = ["a b", "", "$HOME", "it's", "\\", "a\nb", "*", "é"];
    let record = |mut recorder: Command, trace: &str| {
        recorder.args([
            "-o",
            trace,
            "-e",
            "sched:sched_process_exec",
            "--",
            "sh",
            "-c",
            script,
            "sh",
        ]);
        let output = recorder.args(words).output().expect("it runs");
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let (status, stderr) = ended(output);
        assert_eq!(status, Some(3), "{stderr}");
        assert_eq!(
            stdout,
            words.map(|word| format!("{word}|")).concat(),
            "{stderr}"
        );
        let expected = format!(
            "warned\nperfquet-record: the command ended with status 3\n{trace}: 8 events, 0 lost, "
        );
        assert!(stderr.starts_with(&expected), "{stderr}");
        assert!(stderr.ends_with(&format!(" {trace}\n")), "{stderr}");
        assert_eq!(state(&room.path(trace)), State::Complete);
        rows_of_trace(
            &room.path(trace),
            "events/sched/sched_process_exec",
            &["filename"],
        )
    };
    let here = record(room.recorder(), "here.pqt");
    let there = record(server.recorder(&room, "there"), "there.pqt");
    assert_eq!(here.len(), 8);
    assert_eq!(there, here);
    assert!(server.left().is_empty(), "{:?}", server.left());
    let names = |trace: &str| -> Vec<String> {
        let mut names: Vec<String> = entries(&room.path(trace))
            .iter()
            .map(|path| path.file_name().expect("a name").display().to_string())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names("there.pqt"), names("here.pqt"));
    let mode = |path: &Path| path.metadata().expect("it exists").permissions().mode() & 0o777;
    assert_eq!(mode(&room.path("there.pqt")), 0o700);
    assert_eq!(mode(&room.path("there.pqt/manifest.json")), 0o600);
}

#[test]
fn other_outputs_and_queries() {
    let room = Room::new();
    let Some(server) = server(&room) else {
        return;
    };
    let run = |arguments: &[&str]| {
        let mut recorder = server.recorder(&room, "there");
        let output = recorder.args(arguments).output().expect("it runs");
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let (status, stderr) = ended(output);
        (status, stdout, stderr)
    };
    let command = ["--", "true"];
    let (status, stdout, stderr) = run(&["--list", "sched:sched_process_exec"]);
    assert_eq!(
        (status, stdout.as_str()),
        (Some(0), "sched:sched_process_exec\n"),
        "{stderr}"
    );
    let perf_data = [
        &["--format", "perf.data", "-e", "sched:sched_process_exec"][..],
        &command,
    ]
    .concat();
    let (status, _, stderr) = run(&perf_data);
    assert_eq!(status, Some(0), "{stderr}");
    assert!(fs::read(room.path("perf.data")).is_ok_and(|file| file.starts_with(b"PERFILE2")));
    let (status, _, stderr) = run(&perf_data);
    assert!(
        status == Some(1) && stderr.contains("perf.data exists"),
        "{stderr}"
    );
    let (status, _, stderr) = run(&[&["--force", "--mode", "0640"], &perf_data[..]].concat());
    assert_eq!(status, Some(0), "{stderr}");
    let mode = room
        .path("perf.data")
        .metadata()
        .expect("a file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);
    let (status, _, stderr) = run(&["-e", "sched:nothing", "--", "true"]);
    assert!(
        status == Some(2) && stderr.contains("sched:nothing"),
        "{stderr}"
    );
    let (status, _, stderr) = run(&[
        "--preset",
        "io",
        "-o",
        "/no/such/folder/t.pqt",
        "--",
        "true",
    ]);
    assert!(
        status == Some(1) && stderr.contains("cannot write to /no/such/folder"),
        "{stderr}"
    );
    for (options, message) in [
        (
            &["--rotate", "1m"][..],
            "--ssh cannot be combined with --rotate",
        ),
        (
            &["--ring", "1M", "--snapshot-on", "SIGUSR1"],
            "--ssh cannot be combined with --snapshot-on",
        ),
        (
            &["--control", "fd:0"],
            "--ssh cannot be combined with --control fd:N",
        ),
        (&["--ssh=-oProxyCommand=touch x"], "expected [USER@]HOST"),
    ] {
        let (status, _, stderr) = run(&[options, &["-a"]].concat());
        assert!(status == Some(2) && stderr.contains(message), "{stderr}");
    }
    assert!(!room.path("trace.pqt").exists());
    assert!(server.left().is_empty(), "{:?}", server.left());
}

#[test]
fn signals_here_complete_the_trace() {
    let room = Room::new();
    let Some(server) = server(&room) else {
        return;
    };
    for name in ["INT", "TERM", "HUP"] {
        let started = room.path(&format!("started-{name}"));
        let script = format!(": >{}; exec sleep 600", started.display());
        let mut recorder = server.recorder(&room, "there");
        recorder.args([
            "--force",
            "-o",
            "t.pqt",
            "-e",
            "cpu-clock",
            "--",
            "sh",
            "-c",
            &script,
        ]);
        let recorder = recorder.stderr(Stdio::piped()).spawn().expect("it runs");
        wait_until("it begins", || started.exists());
        signal(name, &recorder);
        let (status, stderr) = ended(recorder.wait_with_output().expect("it ends"));
        assert_eq!(status, Some(0), "{name}: {stderr}");
        assert!(
            stderr.contains("t.pqt: ") && stderr.ends_with(" t.pqt\n"),
            "{name}: {stderr}"
        );
        assert_eq!(state(&room.path("t.pqt")), State::Complete, "{name}");
        assert!(server.left().is_empty(), "{name}: {:?}", server.left());
    }
}

/// Ctrl-C at a terminal reaches all programs in its foreground, ssh too, unless they are kept from it.
#[test]
fn ctrl_c_at_a_terminal_completes_the_trace() {
    let room = Room::new();
    if !needs::met(&["script"]) {
        return;
    }
    let Some(server) = server(&room) else {
        return;
    };
    let started = room.path("started");
    let recorder = server.recorder(&room, "there");
    let line = format!(
        "exec {} --ssh there -o t.pqt -e cpu-clock -- sh -c ': >{}; exec sleep 600'",
        env!("CARGO_BIN_EXE_perfquet-record"),
        started.display()
    );
    let mut script = Command::new("script");
    script
        .args(["-q", "-e", "-c", &line, "/dev/null"])
        .current_dir(room.path(""));
    script.envs(
        recorder
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    script.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut script = script.spawn().expect("script runs");
    wait_until("it begins", || started.exists());
    let mut terminal = script.stdin.take().expect("piped");
    terminal.write_all(b"\x03").expect("it reads");
    let output = script.wait_with_output().expect("it ends");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert!(
        shown.contains("t.pqt: ") && shown.contains("next: perfquet-query"),
        "{shown}"
    );
    assert_eq!(state(&room.path("t.pqt")), State::Complete);
    assert!(server.left().is_empty(), "{:?}", server.left());
}

#[test]
fn a_killed_recorder_here_ends_the_one_there() {
    let room = Room::new();
    if !needs::met(&["uprobes"]) {
        return;
    }
    let (Some(server), Some(program)) = (server(&room), room.compile("probed.c", &["-O0"])) else {
        return;
    };
    let started = room.path("started");
    let script = format!(": >{}; exec sleep 600", started.display());
    let probe = format!("{}:work", program.display());
    let mut recorder = server.recorder(&room, "there");
    recorder.args(["-o", "t.pqt", "--uprobe", &probe, "--", "sh", "-c", &script]);
    let mut recorder = recorder.stderr(Stdio::null()).spawn().expect("it runs");
    wait_until("it begins", || started.exists());
    let probes = || fs::read_to_string("/sys/kernel/tracing/uprobe_events").expect("tracefs");
    let program = program.display().to_string();
    assert!(probes().contains(&program));
    signal("KILL", &recorder);
    recorder.wait().expect("it ends");
    let here = room.path("").display().to_string();
    wait_until("nothing runs there", || {
        !runs(&script) && !runs(&format!("{here}server/tmp/"))
    });
    wait_until("no probe is left", || !probes().contains(&program));
    wait_until("the connection ends", || {
        !runs(&format!("{here}server/perfquet-ssh-"))
    });
    assert!(!room.path("t.pqt").exists());
    // Nobody has it, so it is kept there.
    let kept = server.left();
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!(state(&kept[0].join("trace.pqt")), State::Complete);
}

#[test]
fn without_a_connection_nothing_is_recorded() {
    let room = Room::new();
    let Some(server) = server(&room) else {
        return;
    };
    let (status, stderr) = ended(
        server
            .recorder(&room, "stranger")
            .args(["-a"])
            .output()
            .expect("it runs"),
    );
    assert_eq!(status, Some(1), "{stderr}");
    assert!(stderr.contains("Permission denied"), "{stderr}");
    assert!(
        stderr.contains("perfquet-record: cannot connect to stranger"),
        "{stderr}"
    );
    let config = server.path("config");
    drop(server);
    let mut recorder = room.recorder();
    recorder.env("PERFQUET_SSH", format!("ssh -F {}", config.display()));
    let (status, stderr) = ended(
        recorder
            .args(["--ssh", "there", "-a"])
            .output()
            .expect("it runs"),
    );
    assert_eq!(status, Some(1), "{stderr}");
    assert!(stderr.contains("Connection refused"), "{stderr}");
    let mut recorder = room.recorder();
    recorder.env("PERFQUET_SSH", "no-such-program");
    let (status, stderr) = ended(
        recorder
            .args(["--ssh", "there", "-a"])
            .output()
            .expect("it runs"),
    );
    assert_eq!(status, Some(1), "{stderr}");
    assert!(
        stderr.contains("perfquet-record: cannot run ssh"),
        "{stderr}"
    );
    assert!(!room.path("trace.pqt").exists());
}

#[test]
fn the_recorder_is_copied_once() {
    if !may_connect() {
        return;
    }
    let room = Room::new();
    let server = Server::start(&room, PATH);
    for is_first in [true, false] {
        let mut recorder = server.recorder(&room, "there");
        recorder.args(["--force", "-e", "sched:sched_process_exec", "--", "true"]);
        let (status, stderr) = ended(recorder.output().expect("it runs"));
        assert_eq!(status, Some(0), "{stderr}");
        assert_eq!(
            stderr.contains("copying this program"),
            is_first,
            "{stderr}"
        );
        let copies = entries(&server.path("home/.cache/perfquet"));
        assert_eq!(copies.len(), 1, "{copies:?}");
        let mode = copies[0].metadata().expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}

#[test]
fn a_trace_that_has_no_room_here_stays_there() {
    let room = Room::new();
    if !needs::met(&["a private mount namespace"]) {
        return;
    }
    let Some(server) = server(&room) else {
        return;
    };
    fs::create_dir(room.path("small")).expect("a directory");
    let script =
        "mount -t tmpfs -o size=16k tmpfs small && \"$@\"; status=$?; ls -A small; exit $status";
    let recorder = server.recorder(&room, "there");
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(recorder.get_program());
    command.args(recorder.get_args()).current_dir(room.path(""));
    command.envs(
        recorder
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    command.args([
        "-o",
        "small/t.pqt",
        "-e",
        "sched:sched_process_exec",
        "--",
        "true",
    ]);
    let output = command.output().expect("it runs");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "",
        "nothing is left here"
    );
    let (status, stderr) = ended(output);
    assert_eq!(status, Some(1), "{stderr}");
    assert!(
        stderr.contains("cannot fetch the trace, which remains on there: "),
        "{stderr}"
    );
    assert!(stderr.contains("No space left on device"), "{stderr}");
    let kept = server.left();
    assert_eq!(kept.len(), 1, "{kept:?}");
    let kept = kept[0].join("trace.pqt");
    let closing = format!("there:{}: 1 event, 0 lost", kept.display());
    assert!(stderr.starts_with(&closing), "{stderr}");
    assert!(
        stderr.contains(&format!("scp -r there:{} small/t.pqt", kept.display())),
        "{stderr}"
    );
    assert_eq!(state(&kept), State::Complete);
}

/// A program in place of ssh, which runs the scripts here, but sends what it wants instead of a trace.
const FAKE: &str = r#"
for last; do :; done
bytes=${last##*count=}
script=$(dd bs=1 count="${bytes%% *}" 2>/dev/null)
case $script in
*"Sends the trace"*) printf "$STREAM" ;;
*) eval "$script" ;;
esac
"#;

#[test]
fn a_hostile_host_writes_nothing_but_traces() {
    if !needs::met(&["root", "tracefs", "perf events"]) {
        return;
    }
    let room = Room::new();
    fs::create_dir(room.path("tmp")).expect("a directory");
    fs::write(room.path("fake"), FAKE).expect("a file");
    let run = |command: &str, stream: &str| {
        let mut recorder = room.recorder();
        recorder.env("PERFQUET_SSH", command).env("STREAM", stream);
        recorder
            .env("TMPDIR", room.path("tmp"))
            .env("PATH", programs());
        recorder.args([
            "--ssh",
            "there",
            "-e",
            "sched:sched_process_exec",
            "--",
            "true",
        ]);
        ended(recorder.output().expect("it runs"))
    };
    let fake = format!("sh {}", room.path("fake").display());
    let start = "perfquet trace 0\n";
    let manifest = r#"{"version":2,"state":"complete","tables":{"t":{"folder":"t","columns":[{"name":"time","type":"int64"}],"parts":[{"file":"t/0.parquet","rows":1,"bytes":9}]}}}"#;
    for (stream, message) in [
        ("", "the connection is lost"),
        ("\\033[31mwelcome\\n", "the connection is lost"),
        ("perfquet trace x\n", "exit status"),
        (start, "the connection is lost before the end"),
        (&format!("{start}end\n"), "sent no trace"),
        (
            &format!("{start}file 1 ../x\nyend\n"),
            "unexpected data: file 1 ../x",
        ),
        (&format!("{start}file 1 /tmp/x\nyend\n"), "unexpected data"),
        (
            &format!("{start}file 1 trace.pqt/\\033[31m/../../x\nyend\n"),
            "unexpected data: file 1 trace.pqt/\\x1b[31m",
        ),
        (
            &format!("{start}file 99 trace.pqt/manifest.json\n{{}}"),
            "lost after 2 of 99 bytes",
        ),
        (
            &format!("{start}file 2 trace.pqt/manifest.json\n{{}}end\n"),
            "expected a manifest",
        ),
        (
            &format!(
                "{start}file {} trace.pqt/manifest.json\n{manifest}end\n",
                manifest.len()
            ),
            "trace.pqt/t: No such file",
        ),
    ] {
        let (status, stderr) = run(&fake, stream);
        assert_eq!(status, Some(1), "{stream}: {stderr}");
        assert!(
            stderr.contains("cannot fetch the trace") && stderr.contains(message),
            "{stream}: {stderr}"
        );
        assert!(!stderr.contains('\x1b'), "{stderr:?}");
    }
    for command in [
        "head -c 5000000 /dev/urandom; #",
        "yes perfquet system Linux; #",
        "true #",
    ] {
        let (status, stderr) = run(command, "");
        assert_eq!(status, Some(1), "{command}: {stderr}");
        assert!(
            stderr.contains("cannot connect to there"),
            "{command}: {stderr}"
        );
    }
    let mut names: Vec<_> = entries(&room.path(""))
        .into_iter()
        .filter_map(|path| path.file_name().map(|name| name.to_owned()))
        .collect();
    names.sort();
    assert_eq!(names, ["fake", "tmp"]);
}
