//! A directory with a program to record, and the contents of its trace.

#![allow(dead_code, reason = "no test file uses all of it")]

#[allow(
    dead_code,
    unreachable_pub,
    reason = "shared by the tests of all crates"
)]
#[path = "../../../tests/src/needs.rs"]
pub(crate) mod needs;
#[path = "../rows/mod.rs"]
mod rows;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use perfquet_trace::store::Directory;

use rows::rows_of;

const DYNAMIC_EVENTS: &str = "/sys/kernel/tracing/dynamic_events";

pub(crate) struct Compiled {
    pub(crate) folder: tempfile::TempDir,
    program: &'static str,
}

impl Compiled {
    /// Compiles `tests/programs/PROGRAM.c`; `None` if it cannot be probed here.
    pub(crate) fn new(program: &'static str, optimization: &str) -> Option<Compiled> {
        if !needs::met(&["root", "uprobes", "cc"]) {
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
        let compiled = Command::new("cc")
            .args(["-g", "-no-pie", optimization, "-o"])
            .arg(folder.path().join(program))
            .arg(programs.join(format!("{program}.c")))
            .status();
        assert!(compiled.is_ok_and(|status| status.success()), "{program}.c");
        Some(Compiled { folder, program })
    }

    /// Path of the trace written by [`Compiled::record`].
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("t.pqt")
    }

    /// Definitions in the program that still exist.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let text = fs::read_to_string(DYNAMIC_EVENTS).unwrap_or_default();
        let folder = self.folder.path().display().to_string();
        let ours = text.lines().filter(|line| line.contains(&folder));
        ours.map(str::to_owned).collect()
    }

    /// Runs the recorder.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_perfquet-record"))
            .args(["--force", "-o", "t.pqt"])
            .args(arguments)
            .current_dir(self.folder.path())
            .output()
            .expect("the recorder runs")
    }

    /// Records the program; returns the recorder's messages.
    #[track_caller]
    pub(crate) fn record(&self, arguments: &[&str]) -> String {
        let program = format!("./{}", self.program);
        let output = self.run(&[arguments, &["--", &program]].concat());
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {stderr}");
        assert_eq!(self.leftovers(), Vec::<String>::new(), "{stderr}");
        stderr
    }

    /// Returns columns of a table, separated by spaces; NULL is "-".
    #[track_caller]
    pub(crate) fn rows(&self, table: &str, columns: &[&str]) -> Vec<String> {
        self.rows_of(&self.path(), table, columns)
    }

    /// Returns columns of another trace.
    #[track_caller]
    pub(crate) fn rows_of(&self, path: &Path, table: &str, columns: &[&str]) -> Vec<String> {
        rows_of(path, table, columns)
    }

    /// A fact of the manifest.
    pub(crate) fn fact(&self, name: &str) -> Option<String> {
        let trace = Directory::open(&self.path()).expect("a trace directory");
        trace.manifest().facts.other.get(name).cloned()
    }
}
