//! Unreadable output: stderr and stdout closed, broken, full. No program panics, results that could not be written are
//! an error, and the status of a recorded command is kept.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use perfquet_tests::{bin, needs, root, skip};

/// The state of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    /// A pipe closed by its reader: `2>&1 | head -1`.
    Broken,
    /// `2>&-`
    Closed,
    /// `2>/dev/full`
    Full,
}

const ALL: [Stream; 3] = [Stream::Broken, Stream::Closed, Stream::Full];

/// One command, in a directory with `small.folded` and `a.pqt`.
struct Case {
    program: &'static str,
    arguments: &'static [&'static str],
    status: i32,
    /// Whether it has a result.
    prints: bool,
}

const fn case(
    program: &'static str,
    arguments: &'static [&'static str],
    status: i32,
    prints: bool,
) -> Case {
    Case {
        program,
        arguments,
        status,
        prints,
    }
}

const CASES: &[Case] = &[
    case("perfquet-record", &[], 2, false),
    case("perfquet-record", &["--nonsense"], 2, false),
    case("perfquet-record", &["--list", "cycles"], 0, true),
    case("perfquet-record", &["--list", "nosuchevent"], 2, false),
    case(
        "perfquet-convert",
        &["-v", "small.folded", "--force", "-o", "b.pqt"],
        0,
        false,
    ),
    case("perfquet-convert", &["nothing.data"], 1, false),
    case("perfquet-convert", &["--nonsense"], 2, false),
    case("perfquet-convert", &["a.pqt", "--to", "folded"], 0, true),
    case("perfquet-query", &["info", "a.pqt"], 0, true),
    case("perfquet-query", &["top", "a.pqt"], 0, true),
    case(
        "perfquet-query",
        &["top", "a.pqt", "--where", "1 = 2"],
        0,
        false,
    ),
    case("perfquet-query", &["hist", "a.pqt"], 2, false),
    case("perfquet-query", &["calls", "a.pqt"], 1, false),
    case("perfquet-query", &["tables", "a.pqt"], 0, true),
    case("perfquet-query", &["flamegraph", "a.pqt"], 0, true),
    case("perfquet-query", &["report", "a.pqt"], 0, true),
    case(
        "perfquet-query",
        &["sql", "a.pqt", "SELECT 1 WHERE 1 = 2"],
        0,
        false,
    ),
    case(
        "perfquet-query",
        &["sql", "a.pqt", "SELECT * FROM samples", "--format", "csv"],
        0,
        true,
    ),
    case(
        "perfquet-query",
        &["sql", "a.pqt", "SELECT * FROM samples", "--format", "json"],
        0,
        true,
    ),
    case(
        "perfquet-query",
        &[
            "sql",
            "a.pqt",
            "SELECT * FROM samples",
            "--format",
            "parquet",
        ],
        0,
        true,
    ),
    case(
        "perfquet-query",
        &["sql", "a.pqt", "SELECT * FROM samples", "--format", "arrow"],
        0,
        true,
    ),
    case(
        "perfquet-query",
        &["sql", "a.pqt", "SELECT nonsense"],
        1,
        false,
    ),
    case("perfquet-query", &["--nonsense"], 2, false),
];

/// The status of a command with one stream in the given state.
fn status(
    folder: &Path,
    program: &str,
    arguments: &[&str],
    number: u8,
    stream: Stream,
) -> Option<i32> {
    let mut command = match stream {
        Stream::Closed => {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("exec \"$0\" \"$@\" {number}>&-")]);
            shell.arg(bin(program));
            shell
        }
        Stream::Broken | Stream::Full => Command::new(bin(program)),
    };
    let end = match stream {
        Stream::Closed => Stdio::null(),
        Stream::Full => File::options()
            .write(true)
            .open("/dev/full")
            .expect("every Linux has it")
            .into(),
        Stream::Broken => {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            drop(reader);
            writer.into()
        }
    };
    command.args(arguments).current_dir(folder);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    match number {
        1 => command.stdout(end),
        _ => command.stderr(end),
    };
    command.status().expect("it runs").code()
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let sample = root().join("formats/readers/src/folded/golden/austin.folded");
    std::fs::copy(sample, folder.path().join("small.folded")).expect("a sample");
    let made = Command::new(bin("perfquet-convert"))
        .args(["small.folded", "-o", "a.pqt"])
        .current_dir(folder.path())
        .status();
    assert!(made.expect("it runs").success());
    folder
}

#[test]
fn closed_stderr_changes_no_status() {
    let folder = folder();
    for case in CASES {
        for stream in ALL {
            let found = status(folder.path(), case.program, case.arguments, 2, stream);
            let (program, arguments) = (case.program, case.arguments);
            assert_eq!(
                found,
                Some(case.status),
                "{program} {arguments:?}: stderr {stream:?}"
            );
        }
    }
}

#[test]
fn unwritable_result_is_an_error_and_closed_pipe_is_not() {
    let folder = folder();
    for case in CASES.iter().filter(|case| case.prints) {
        for (stream, expected) in [(Stream::Broken, 0), (Stream::Full, 1)] {
            let found = status(folder.path(), case.program, case.arguments, 1, stream);
            let (program, arguments) = (case.program, case.arguments);
            assert_eq!(
                found,
                Some(expected),
                "{program} {arguments:?}: stdout {stream:?}"
            );
        }
        // Rust opens /dev/null in its place: the output is discarded as the caller intended.
        let found = status(
            folder.path(),
            case.program,
            case.arguments,
            1,
            Stream::Closed,
        );
        assert_eq!(
            found,
            Some(0),
            "{} {:?}: stdout closed",
            case.program,
            case.arguments
        );
    }
    for program in ["perfquet-record", "perfquet-convert", "perfquet-query"] {
        for option in ["--help", "--version"] {
            for stream in ALL {
                let found = status(folder.path(), program, &[option], 1, stream);
                assert!(
                    matches!(found, Some(0 | 1)),
                    "{program} {option}: stdout {stream:?}: {found:?}"
                );
            }
        }
    }
}

/// A picture or page that is interrupted leaves neither a part of it nor its temporary file, and says so once.
#[test]
fn interrupted_output_leaves_no_file() {
    let folder = folder();
    for (name, signal, expected) in [("INT", 2, Some(130)), ("TERM", 15, None)] {
        for report in ["report", "flamegraph"] {
            let path = folder.path().join("interrupted");
            let interrupted = (0..20).any(|_| {
                let _ = std::fs::remove_file(&path);
                let mut query = Command::new(bin("perfquet-query"));
                query.args([report, "a.pqt", "-o", "interrupted"]);
                query.current_dir(folder.path()).stderr(Stdio::piped());
                let running = query.spawn().expect("it runs");
                let id = running.id().to_string();
                while !path.exists() && temporary(folder.path()) == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let sent = Command::new("kill").args(["-s", name, &id]).status();
                assert!(sent.expect("kill runs").success(), "{report}: gone before");
                let output = running.wait_with_output().expect("it ends");
                assert_eq!(temporary(folder.path()), 0, "{report}: {name}");
                if output.status.success() {
                    // The signal came too late.
                    return false;
                }
                assert!(!path.exists(), "{report}: {name}");
                assert_eq!(output.status.code(), expected, "{report}: {name}");
                if expected.is_none() {
                    assert_eq!(output.status.signal(), Some(signal), "{report}");
                } else {
                    let said = String::from_utf8_lossy(&output.stderr).into_owned();
                    assert_eq!(said, "perfquet-query: interrupted\n", "{report}");
                }
                true
            });
            assert!(interrupted, "{report}: never in time");
        }
    }
}

/// Number of unfinished files.
fn temporary(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names
        .filter(|name| name.to_string_lossy().starts_with(".interrupted."))
        .count()
}

#[test]
fn status_of_the_recorded_command_survives() {
    if let Some(missing) = needs::missing("perf events") {
        skip(&missing);
        return;
    }
    let folder = folder();
    for (command, expected) in [("exit 7", 7), ("exit 0", 0), ("kill -9 $$", 137)] {
        for stream in ALL {
            let arguments = [
                "-vv",
                "--force",
                "-e",
                "cpu-clock",
                "--",
                "sh",
                "-c",
                command,
            ];
            let found = status(folder.path(), "perfquet-record", &arguments, 2, stream);
            assert_eq!(found, Some(expected), "{command}: stderr {stream:?}");
        }
    }
    let arguments = ["--force", "-e", "cpu-clock", "--", "no-such-program"];
    for stream in ALL {
        let found = status(folder.path(), "perfquet-record", &arguments, 2, stream);
        assert_eq!(found, Some(127), "stderr {stream:?}");
    }
}
