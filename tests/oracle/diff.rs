//! Tests `diff` on programs with known changes: a slower function, a renamed function, and none.

use std::path::{Path, PathBuf};
use std::process::Command;

use perfquet_tests::{bin, needs, root};

/// Runs per build: five against five can be divided in 252 ways.
const RUNS: usize = 5;

/// Compiles a program; returns `None`, and reports it, if it cannot be compiled or sampled.
fn compiled(folder: &Path, name: &str, options: &[&str]) -> Option<PathBuf> {
    if !needs::met(&["perf events"]) {
        return None;
    }
    // The file names differ, as between builds: functions match nevertheless.
    let program = folder.join(name);
    let status = Command::new("cc")
        // Functions stay in the order of the source: its comment says why.
        .args(["-O1", "-fno-toplevel-reorder", "-o"])
        .arg(&program)
        .args(options)
        .arg(root().join("tests/oracle/compared.c"))
        .status()
        .unwrap();
    assert!(status.success());
    Some(program)
}

fn record(program: &Path, trace: &Path) {
    let output = Command::new(bin("perfquet-record"))
        // Leaf functions have no frame pointer, so frame-pointer stacks would lack their callers.
        .args(["--call-graph", "dwarf", "-F", "1997"])
        .args(["-e", "cpu-clock:u", "-o"])
        .arg(trace)
        .arg("--")
        .arg(program)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Records two programs alternately, so that changes on the host affect both.
fn record_both(folder: &Path, before: &Path, after: &Path) {
    for run in 0..RUNS {
        for (side, program) in [("before", before), ("after", after)] {
            record(program, &folder.join(format!("{side}-{run}.pqt")));
        }
    }
}

/// Returns the rows of a comparison as JSON values.
fn diff(folder: &Path, arguments: &[&str]) -> Vec<serde_json::Value> {
    let output = Command::new(bin("perfquet-query"))
        .current_dir(folder)
        .arg("diff")
        .args(arguments)
        .args(["--format", "json", "-n", "0"])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    rows.as_array().unwrap().clone()
}

fn significant(rows: &[serde_json::Value]) -> Vec<&str> {
    let significant = rows.iter().filter(|row| row["significant"] == true);
    significant
        .map(|row| row["function"].as_str().unwrap())
        .collect()
}

#[test]
#[ignore = "live recordings beside whatever else runs: cargo xtask test --host"]
fn the_slower_function_is_significant() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let Some(old) = compiled(folder, "old", &["-DHASH_STEPS=1"]) else {
        return;
    };
    let new = compiled(folder, "new", &["-DHASH_STEPS=2", "-DRENAMED"]).unwrap();
    record_both(folder, &old, &new);
    let rows = diff(folder, &["before-*.pqt", "after-*.pqt"]);
    // On a busy host, others may be, too; that they are not otherwise is tested with recorded numbers.
    assert!(significant(&rows).contains(&"hash"), "{rows:#?}");
    assert_eq!(rows[0]["function"], "hash", "{rows:#?}");
    assert_eq!(rows[0]["module"], "old → new");
    let named = |name: &str| rows.iter().any(|row| row["function"] == name);
    assert!(named("sort_all → order_all"), "{rows:#?}");

    // A single recording of each is tested too; on a noisy host, nothing need be significant.
    let rows = diff(folder, &["before-0.pqt", "after-0.pqt"]);
    let hash = rows.iter().find(|row| row["function"] == "hash");
    let hash = hash.expect("a row of each function");
    assert!(hash["p"].is_number(), "{rows:#?}");
    assert!(hash["change"].as_i64() > Some(0), "{rows:#?}");

    // A trace compared with itself.
    let rows = diff(folder, &["before-0.pqt", "before-0.pqt"]);
    assert!(significant(&rows).is_empty(), "{rows:#?}");
    assert!(rows.iter().all(|row| row["change"] == 0), "{rows:#?}");

    // Runs of the same program.
    let rows = diff(folder, &["before-[0123].pqt", "before-[1234].pqt"]);
    assert!(significant(&rows).is_empty(), "{rows:#?}");
}
