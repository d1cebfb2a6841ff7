//! Disks that fail or are full, and signals, at each operation of the converter on files: nothing wrong, nothing left.
//!
//! ```text
//! LD_PRELOAD=faults.so FAULT_AT=7 FAULT_KIND=5 perfquet-convert …     the seventh operation fails with EIO
//! ```
//! After each, the same command succeeds, and its result is that of a run without faults. Each run takes some of the operations;
//! `PERFQUET_FAULTS=all` takes every one.

#[allow(
    dead_code,
    unreachable_pub,
    reason = "shared by the tests of all crates"
)]
#[path = "../../tests/src/needs.rs"]
mod needs;

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use perfquet_trace::store::{Directory, State};

const PERF: &str = "perf_data/golden/mono.data";
const TRACE_DAT: &str = "trace_dat/golden/graph-events.dat";
const LIBRARY: &str = "faults.so";
/// Operations that fail in a usual run, of each kind.
const PLACES: usize = 4;

/// The kind of a fault, and its message.
const ERRORS: [(&str, &str); 3] = [
    ("5", "Input/output error"),
    ("F", "No space left on device"),
    ("27", "File too large"),
];
const SIGNALS: [i32; 4] = [9, 15, 1, 2];

/// A directory to work in, and the library of faults.
struct Room {
    folder: tempfile::TempDir,
    library: tempfile::TempDir,
}

impl Room {
    fn new() -> Option<Room> {
        if !needs::met(&["cc"]) {
            return None;
        }
        // In memory, if the host has such a file system: the programs sync each of thousands of files.
        let memory = Path::new("/dev/shm");
        let folder = match memory.is_dir() {
            true => tempfile::tempdir_in(memory),
            false => tempfile::tempdir(),
        };
        let folder = folder.expect("a directory");
        // Memory may be mounted without permission to execute.
        let library = tempfile::tempdir().expect("a directory");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/faults.c");
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library.path().join(LIBRARY), &source])
            .arg("-ldl")
            .status();
        assert!(compiled.is_ok_and(|status| status.success()));
        Some(Room { folder, library })
    }

    /// The directory whose operations fail.
    fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// Empties the directory.
    fn begin(&self) {
        let _ = std::fs::remove_dir_all(self.work());
        std::fs::create_dir_all(self.work().join("tmp")).expect("a directory");
    }

    fn command(&self, arguments: &[String]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perfquet-convert"));
        let work = self.work().display().to_string();
        command
            .args(arguments.iter().map(|word| word.replace('@', &work)))
            .env("TMPDIR", self.work().join("tmp"));
        command
    }

    fn run(&self, arguments: &[String]) -> Output {
        self.command(arguments).output().expect("the converter")
    }

    fn faulty(&self, arguments: &[String], at: usize, kind: &str) -> Output {
        let mut command = self.command(arguments);
        let count = self.folder.path().join("count");
        let _ = std::fs::remove_file(&count);
        command
            .env("LD_PRELOAD", self.library.path().join(LIBRARY))
            .env("FAULT_DIR", self.work())
            .env("FAULT_AT", at.to_string())
            .env("FAULT_KIND", kind)
            .env("FAULT_COUNT", &count);
        command.output().expect("the converter")
    }

    /// Number of operations of a run without faults.
    fn operations(&self, arguments: &[String]) -> usize {
        let output = self.faulty(arguments, 0, "");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        let count = std::fs::metadata(self.folder.path().join("count"));
        count.map_or(0, |count| count.len() as usize)
    }

    /// Sizes of the files below the directory; those of a trace vary.
    fn files(&self) -> BTreeMap<PathBuf, u64> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.work()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a directory").flatten() {
                let found = entry.metadata().expect("a file");
                let is_of_trace = entry.path().to_string_lossy().contains(".pqt/");
                let size = if found.is_file() && !is_of_trace {
                    found.len()
                } else {
                    0
                };
                files.insert(entry.path(), size);
                if found.is_dir() {
                    folders.push(entry.path());
                }
            }
        }
        files
    }

    /// Rows of the tables of a complete trace.
    fn rows(&self) -> Option<BTreeMap<String, u64>> {
        let trace = Directory::open(&self.work().join("x.pqt")).ok()?;
        let is_complete = trace.manifest().state == State::Complete;
        let rows = trace
            .tables()
            .map(|(name, table)| (name.to_owned(), table.rows()));
        is_complete.then(|| rows.collect())
    }
}

fn input(name: &str) -> String {
    let readers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../formats/readers/src");
    readers.join(name).display().to_string()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Runs a command with every fault; `prepare` comes before each of them. `@` is the directory.
fn check(prepare: &[&[String]], arguments: &[String]) {
    let Some(room) = Room::new() else { return };
    let begin = || {
        room.begin();
        for arguments in prepare {
            assert!(room.run(arguments).status.success(), "{arguments:?}");
        }
    };
    begin();
    let before = room.rows();
    let operations = room.operations(arguments);
    let (files, rows) = (room.files(), room.rows());
    let step = match std::env::var_os("PERFQUET_FAULTS") {
        Some(_) => 1,
        None => operations.div_ceil(PLACES),
    };
    let errors = ERRORS.map(|(kind, message)| (kind.to_owned(), Some(message)));
    let signals = SIGNALS.map(|signal| (format!("S{signal}"), None));
    for (index, (kind, message)) in errors.into_iter().chain(signals).enumerate() {
        // Other operations for each kind.
        for at in (1 + index % step..=operations).step_by(step) {
            begin();
            let output = room.faulty(arguments, at, &kind);
            let stderr = String::from_utf8_lossy(&output.stderr);
            let place = format!("{arguments:?}: {kind} at {at} of {operations}: {stderr}");
            match (message, output.status.code()) {
                (None, _) => {
                    let signal = output.status.signal().map(|signal| format!("S{signal}"));
                    assert_eq!(signal.as_deref(), Some(kind.as_str()), "{place}");
                }
                // Only leftovers could not be removed, or there was another way.
                (Some(_), Some(0)) => assert_eq!(room.rows(), rows, "{place}"),
                (Some(message), code) => {
                    assert_eq!(code, Some(1), "{place}");
                    assert!(stderr.contains(message), "{place}");
                    assert!(!stderr.contains("panicked"), "{place}");
                }
            }
            // What has the name of the output is the earlier one, or complete, or says that it is not.
            let found = room.rows();
            assert!(
                found.is_none() || found == rows || found == before,
                "{place}"
            );
            let mut again = arguments.to_vec();
            if !again.iter().any(|word| word == "--force") {
                again.push("--force".to_owned());
            }
            let output = room.run(&again);
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{place}, then {stderr}");
            assert_eq!(room.rows(), rows, "{place}");
            let mut left = room.files();
            // An empty directory is removed some minutes later: its process may only have created it.
            left.retain(|path, _| !path.to_string_lossy().contains("/tmp/perfquet-passing-"));
            assert_eq!(left, files, "{place}");
        }
    }
}

#[test]
fn a_new_trace_is_complete_or_says_that_it_is_not() {
    check(
        &[],
        &words(&[&input(PERF), "--no-symbols", "-o", "@/x.pqt"]),
    );
}

#[test]
fn a_trace_that_is_replaced_stays_until_the_new_one_is_complete() {
    let import = |name| words(&[&input(name), "--no-symbols", "-o", "@/x.pqt"]);
    let mut over = import(PERF);
    over.push("--force".to_owned());
    check(&[&import(TRACE_DAT)], &over);
}

#[test]
fn exports_are_complete_or_absent() {
    let import = words(&[&input(TRACE_DAT), "--no-symbols", "-o", "@/x.pqt"]);
    for to in ["csv", "arrow", "perf-script", "speedscope"] {
        check(
            &[&import],
            &words(&["@/x.pqt", "--to", to, "-o", "@/export"]),
        );
    }
}

#[test]
fn exports_of_files_leave_no_trace() {
    check(
        &[],
        &words(&[&input(PERF), "--to", "csv", "-o", "@/export"]),
    );
}

#[test]
fn exports_to_names_that_are_not_utf8_have_their_size() {
    use std::os::unix::ffi::OsStrExt as _;
    let folder = tempfile::tempdir().expect("a directory");
    let name = folder
        .path()
        .join(std::ffi::OsStr::from_bytes(b"a\xffb.txt"));
    let output = Command::new(env!("CARGO_BIN_EXE_perfquet-convert"))
        .args([&input(PERF), "--to", "perf-script", "-o"])
        .arg(&name)
        .output()
        .expect("the converter");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let size = std::fs::metadata(&name).expect("an export").len();
    assert!(size > 1024 && stderr.contains(" KiB"), "{size}: {stderr}");
}
