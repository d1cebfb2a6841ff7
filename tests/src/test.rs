//! `cargo xtask test`: every test and lint of the workspace, then the skipped tests with reasons.
//!
//! ```text
//! ▸ all else (dev: an overflow is an error)
//!   test result: ok. 214 passed; 0 failed; …
//! …
//! skipped, and why:
//!   reads_tracepoints — needs tracefs
//! 312 passed, 0 failed, 1 skipped
//! ```
//! A test that passes only when it is repeated is listed; more than two of them fail the run. Tests whose result depends
//! on the load of the host, such as statistical comparisons of live recordings, are marked as ignored. `cargo xtask test
//! --host` runs them; do so before a release.
//!
//! DataFusion takes twenty CPU minutes to compile, so it is compiled once, in release, for the demo, the tests and the
//! benchmarks; all crates without it are tested in dev, where arithmetic overflow panics.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

use crate::{needs, place, say};
use steps::{Kind, Step};

mod steps;

/// The results of all steps.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: Vec<String>,
    skipped: Vec<(String, String)>,
    /// Failed, but passed when repeated.
    unsteady: Vec<String>,
    /// Lines `table: …` printed by tests: facts about this host.
    table: Vec<String>,
    /// Number of ignored tests.
    ignored: usize,
}

/// Which tests run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suite {
    /// Every test and lint whose result does not depend on the load of the host.
    Steady,
    /// The rest: tests marked as ignored.
    Host,
}

/// Tests that may pass only at the second attempt.
const UNSTEADY_MAX: usize = 2;

/// Runs a suite; an error if any test failed, or too many passed only when they were repeated.
pub fn run(suite: Suite) -> Result<()> {
    say::need_c_compiler()?;
    let log_path = place::target_directory().join("test.log");
    std::fs::create_dir_all(place::target_directory())?;
    let mut log = File::create(&log_path).with_context(|| format!("{}", log_path.display()))?;
    let mut tally = Tally::default();
    for step in &steps::all()? {
        if suite == Suite::Host && step.kind == Kind::Lints {
            continue;
        }
        say::step(step.title);
        run_step(step, suite, &mut tally, &mut log)?;
    }
    object(&mut tally);
    report(&tally, &log_path.display().to_string())
}

/// A test skipped for a requirement that is met has failed: its check is wrong, or the program that it asked.
fn object(tally: &mut Tally) {
    for (test, reason) in &tally.skipped {
        if let Some(objection) = needs::objection(reason) {
            tally
                .failed
                .push(format!("{test}: skipped ({reason}), but {objection}"));
        }
    }
}

fn run_step(step: &Step, suite: Suite, tally: &mut Tally, log: &mut File) -> Result<()> {
    if step.kind == Kind::Lints && !has_component(&step.arguments[0]) {
        let missing = format!("needs {0} (rustup component add {0})", step.arguments[0]);
        tally.skipped.push((step.title.to_owned(), missing));
        return Ok(());
    }
    let failed_before = tally.failed.len();
    let status = run_cargo(cargo_for_tests(step, suite), tally, log)?;
    // A step can fail without a failed test: it does not compile, or a test process was killed.
    if !status.success() && tally.failed.len() == failed_before {
        tally
            .failed
            .push(format!("cargo {} ({status})", step.arguments.join(" ")));
    } else if tally.failed.len() > failed_before {
        let failed = tally.failed.split_off(failed_before);
        try_again(step, suite, failed, tally, log)?;
    }
    Ok(())
}

fn run_cargo(mut command: Command, tally: &mut Tally, log: &mut File) -> Result<ExitStatus> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run cargo")?;
    let output = child.stdout.take().context("cargo has no output")?;
    read_results(BufReader::new(output), tally, log)?;
    Ok(child.wait()?)
}

/// Repeats a few failed tests. Recordings run on a live host, which may stall at any moment: a test that fails twice
/// has found a defect, and one that passes the second time is listed.
fn try_again(
    step: &Step,
    suite: Suite,
    failed: Vec<String>,
    tally: &mut Tally,
    log: &mut File,
) -> Result<()> {
    const FEW: usize = 4;
    if failed.len() > FEW {
        tally.failed.extend(failed);
        return Ok(());
    }
    let mut again = Tally::default();
    let mut command = cargo_for_tests(step, suite);
    command.arg("--exact").args(&failed);
    println!("  once more: {}", failed.join(", "));
    let status = run_cargo(command, &mut again, log)?;
    settle(failed, again, status.success(), tally);
    Ok(())
}

/// Adds the results of repeated tests. One that failed by more than a test, or did not run all of them, says nothing.
fn settle(failed: Vec<String>, again: Tally, is_success: bool, tally: &mut Tally) {
    let ran = again.passed + again.skipped.len() + again.failed.len();
    let is_explained = is_success || !again.failed.is_empty();
    if ran < failed.len() || !is_explained {
        tally.failed.extend(failed);
        return;
    }
    tally.passed += again.passed;
    tally.skipped.extend(again.skipped);
    tally.table.extend(again.table);
    let (failed, unsteady): (Vec<String>, Vec<String>) = failed
        .into_iter()
        .partition(|test| again.failed.contains(test));
    tally.failed.extend(failed);
    tally.unsteady.extend(unsteady);
}

fn cargo_for_tests(step: &Step, suite: Suite) -> Command {
    let mut command = place::cargo();
    command.args(&step.arguments);
    if suite == Suite::Host && step.kind == Kind::Tests {
        command.arg("--ignored");
    }
    // Random tests are the same in every run; long runs are for `cargo xtask fuzz`.
    command.env("PROPTEST_RNG_SEED", "5");
    if step.kind == Kind::Tests {
        // The programs are built by the steps above.
        command.env(
            "PERFQUET_BIN_DIR",
            place::target_directory().join("release"),
        );
    }
    command
}

fn has_component(subcommand: &str) -> bool {
    let outcome = place::cargo()
        .args([subcommand, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    outcome.is_ok_and(|status| status.success())
}

/// Follows the output of libtest with `--show-output`: everything goes into the log, failures and totals to the screen,
/// lines `skipped: REASON` into the tally.
fn read_results(output: impl BufRead, tally: &mut Tally, log: &mut File) -> Result<()> {
    #[derive(PartialEq)]
    enum Section {
        Running,
        Successes,
        Failures,
    }
    let mut section = Section::Running;
    let mut test = String::new();
    let mut skipped_here: Vec<(String, String)> = Vec::new();
    for line in output.split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        writeln!(log, "{line}")?;
        if line == "successes:" {
            section = Section::Successes;
        } else if line == "failures:" {
            section = Section::Failures;
        } else if let Some(name) = header(&line) {
            test = name.to_owned();
        } else if let Some(reason) = line.strip_prefix("skipped: ") {
            skipped_here.push((test.clone(), reason.trim().to_owned()));
        } else if let Some(line) = line.strip_prefix("table: ") {
            tally.table.push(line.to_owned());
        } else if let Some(name) = failed_test(&line) {
            tally.failed.push(name.to_owned());
        } else if is_ignored(&line) {
            tally.ignored += 1;
        } else if let Some(passed) = passed_tests(&line) {
            section = Section::Running;
            // A test that skipped a part of itself counts as skipped, not as passed.
            let mut names: Vec<&str> = skipped_here.iter().map(|(name, _)| name.as_str()).collect();
            names.dedup();
            tally.passed += passed.saturating_sub(names.len());
            tally.skipped.append(&mut skipped_here);
            println!("  {line}");
        }
        if section == Section::Failures {
            println!("  {line}");
        }
    }
    Ok(())
}

/// `---- NAME stdout ----`
fn header(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

/// `test NAME ... FAILED`
fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

/// `test NAME ... ignored, REASON`
fn is_ignored(line: &str) -> bool {
    line.starts_with("test ") && line.contains(" ... ignored")
}

/// `test result: ok. 12 passed; 0 failed; …`
fn passed_tests(line: &str) -> Option<usize> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    counts.split_once(" passed")?.0.trim().parse().ok()
}

fn report(tally: &Tally, log_path: &str) -> Result<()> {
    println!();
    if !tally.table.is_empty() {
        println!("facilities by kernel:");
        for line in &tally.table {
            println!("  {line}");
        }
    }
    if !tally.skipped.is_empty() {
        println!("skipped, and why:");
        for (test, reason) in &tally.skipped {
            println!("  {test} — {reason}");
        }
    }
    if !tally.unsteady.is_empty() {
        println!(
            "{} failed, and passed when run once more (see {log_path}):",
            tally.unsteady.len()
        );
        for test in &tally.unsteady {
            println!("  {test}");
        }
    }
    if !tally.failed.is_empty() {
        println!("failed (everything that was printed is in {log_path}):");
        for test in &tally.failed {
            println!("  {test}");
        }
    }
    let mut skipped: Vec<&str> = tally
        .skipped
        .iter()
        .map(|(test, _)| test.as_str())
        .collect();
    skipped.dedup();
    println!(
        "{} passed, {} failed, {} skipped",
        tally.passed,
        tally.failed.len(),
        skipped.len()
    );
    if tally.ignored > 0 {
        println!(
            "{} not run, since the load of the host may decide: cargo xtask test --host",
            tally.ignored
        );
    }
    verdict(tally)
}

/// An error if any test failed, or too many passed only when they were repeated.
fn verdict(tally: &Tally) -> Result<()> {
    if !tally.failed.is_empty() {
        bail!("{} failed", tally.failed.len());
    }
    if tally.unsteady.len() > UNSTEADY_MAX {
        bail!(
            "{} passed only when they were repeated; at most {UNSTEADY_MAX} may",
            tally.unsteady.len()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_test_without_a_cause_is_a_failure() {
        let skipped = |reason: &str| {
            let mut tally = Tally::default();
            tally
                .skipped
                .push(("a::test".to_owned(), reason.to_owned()));
            object(&mut tally);
            tally.failed
        };
        // The compiler is present: it linked this test.
        let failed = skipped("needs cc");
        assert_eq!(
            failed,
            ["a::test: skipped (needs cc), but this machine has cc"]
        );
        assert_eq!(
            skipped("page.md:3: needs cc and clippy (rustup component add clippy)").len(),
            { usize::from(needs::is_there("clippy") == Some(true)) }
        );
        // Neither a carpet nor the state of the moon can be checked.
        assert!(
            skipped("needs a flying carpet")[0]
                .contains("nobody can check for \"a flying carpet\"")
        );
        assert!(skipped("the moon was full")[0].contains("no need is named"));
        // A missing requirement is a cause; one known only from a measurement is accepted.
        if needs::is_there("an event of the function tracer that is refused") == Some(false) {
            assert!(skipped("needs an event of the function tracer that is refused").is_empty());
        }
        assert!(skipped("needs machines: no QEMU: cargo xtask vm --fetch").is_empty());
    }

    #[test]
    fn each_repeated_test_has_its_own_result() {
        let settled = |passed: usize, failed: &[&str], is_success: bool| {
            let again = Tally {
                passed,
                failed: failed.iter().map(|&test| test.to_owned()).collect(),
                ..Tally::default()
            };
            let mut tally = Tally::default();
            let failed = vec!["a::one".to_owned(), "a::two".to_owned()];
            settle(failed, again, is_success, &mut tally);
            (tally.passed, tally.failed, tally.unsteady)
        };
        let names =
            |names: &[&str]| -> Vec<String> { names.iter().map(|&name| name.to_owned()).collect() };
        let (one, two, both) = (["a::one"], ["a::two"], ["a::one", "a::two"]);
        assert_eq!(settled(2, &[], true), (2, names(&[]), names(&both)));
        assert_eq!(settled(1, &one, false), (1, names(&one), names(&two)));
        assert_eq!(settled(0, &both, false), (0, names(&both), names(&[])));
        // It did not compile, or a test process was killed.
        assert_eq!(settled(0, &[], false), (0, names(&both), names(&[])));
        assert_eq!(settled(2, &[], false), (0, names(&both), names(&[])));
        assert_eq!(settled(1, &[], true), (0, names(&both), names(&[])));
    }

    #[test]
    fn a_third_repeated_test_fails_the_run() {
        let with = |unsteady: usize| {
            verdict(&Tally {
                unsteady: vec!["a::one".to_owned(); unsteady],
                ..Tally::default()
            })
        };
        assert!(with(2).is_ok());
        let error = with(3).unwrap_err().to_string();
        assert!(
            error.contains("3 passed only when they were repeated"),
            "{error}"
        );
    }

    #[test]
    fn counts_passed_failed_and_skipped_tests() {
        let output = "\nrunning 4 tests\ntest c ... ignored, live: cargo xtask test --host\ntest a::one ... ok\ntest a::two ... ok\ntest b ... FAILED\n\n\
            successes:\n\n---- a::two stdout ----\nskipped: needs tracefs\ntable: a  ok\n\n\nsuccesses:\n    a::one\n    a::two\n\n\
            failures:\n\n---- b stdout ----\nboom\n\nfailures:\n    b\n\n\
            test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s\n";
        let mut tally = Tally::default();
        let directory = tempfile::tempdir().unwrap();
        let mut log = File::create(directory.path().join("log")).unwrap();
        read_results(output.as_bytes(), &mut tally, &mut log).unwrap();
        assert_eq!((tally.passed, tally.ignored), (1, 1));
        assert_eq!(tally.failed, ["b"]);
        assert_eq!(
            tally.skipped,
            [("a::two".to_owned(), "needs tracefs".to_owned())]
        );
        assert_eq!(tally.table, ["a  ok"]);
    }
}
