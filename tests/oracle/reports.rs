//! Reports against what other tools print of the same trace: kd's tables and trees, DTrace's drawings, folded stacks.
//!
//! The corpus holds what kd has to print of each log (`kfi/expected`, ties by name), DTrace's own expected outputs, and
//! what `stackcollapse.pl` makes of its stacks.

use std::path::{Path, PathBuf};
use std::process::Command;

use perfquet_tests::{bin, corpus};

/// What `perfquet-query` prints.
fn query(arguments: &[&str], trace: &Path) -> String {
    let output = Command::new(bin("perfquet-query"))
        .arg(arguments[0])
        .arg(trace)
        .args(&arguments[1..])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// A file of the corpus as a trace.
fn import(file: &Path, folder: &Path) -> PathBuf {
    let trace = folder.join(file.file_name().unwrap()).with_extension("pqt");
    let output = Command::new(bin("perfquet-convert"))
        .arg(file)
        .args(["--no-symbols", "-o"])
        .arg(&trace)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {errors}", file.display());
    trace
}

#[test]
fn durations_print_what_kd_prints() {
    let Some(corpus) = corpus() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    // The columns of the expected tables, in their order.
    let columns = ["-f", "Fctalsmn", "-n", "15"];
    let mut compared = 0;
    for log in ["kft-up", "kft-smp", "kft-smp64", "kft-args"] {
        let trace = import(&corpus.join(format!("kfi/{log}.lst")), folder.path());
        for (sort, name) in [("t", "time"), ("l", "local"), ("c", "count")] {
            let mut arguments = vec!["durations", "--kd-compat", "-s", sort];
            arguments.extend(columns);
            let found = words(&query(&arguments, &trace), 2);
            let expected = corpus.join(format!("kfi/expected/{log}.kd-{name}.txt"));
            let expected = words(&std::fs::read_to_string(expected).unwrap(), 1);
            assert_eq!(found, expected, "{log} by {name}");
            compared += found.len();
        }
        let trees: [(&str, &[&str]); 2] = [
            ("tree", &["durations", "--kd-compat", "-c", "-l"]),
            (
                "tree-interlaced",
                &["durations", "--kd-compat", "-c", "-l", "-i"],
            ),
        ];
        for (name, arguments) in trees {
            let path = corpus.join(format!("kfi/expected/{log}.kd-{name}.txt"));
            if let Ok(expected) = std::fs::read_to_string(path) {
                let found = query(arguments, &trace);
                assert!(found == expected, "{log}: {name} differs");
                compared += found.lines().count();
            }
        }
    }
    assert!(compared > 1000, "{compared} lines");
}

/// The words of each line behind the first `titles`.
fn words(text: &str, titles: usize) -> Vec<Vec<String>> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    text.lines().skip(titles).map(words).collect()
}

#[test]
fn distributions_are_drawn_as_dtrace_drew_them() {
    let Some(corpus) = corpus() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "linux-allquant",
        "linux-lquantize",
        "linux-multiaggs2",
        "linux-negquant",
        "linux-truncquant",
        "linux-zero",
        "toolkit-cpudists",
    ] {
        let file = corpus.join(format!("dtrace/{name}.out"));
        let trace = import(&file, folder.path());
        let expected = bars(&std::fs::read_to_string(&file).unwrap());
        assert!(!expected.is_empty(), "{name}");
        let found = bars(&query(&["hist"], &trace));
        assert_eq!(found, expected, "{name}");
    }
}

/// The lines of drawings, sorted: keys that were printed again stand where they were printed last.
fn bars(text: &str) -> Vec<String> {
    let is_bar = |line: &&str| {
        let bytes = line.as_bytes();
        bytes.get(15).is_some_and(u8::is_ascii_digit) && line.contains('|')
            || line.starts_with('-') && line.contains('|')
    };
    let mut bars: Vec<String> = text
        .lines()
        .filter(is_bar)
        .map(|line| line.trim_end().to_owned())
        .collect();
    bars.sort();
    bars
}

#[test]
fn stacks_of_dtrace_are_folded_as_stackcollapse_folds_them() {
    let Some(corpus) = corpus() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let trace = import(
        &corpus.join("dtrace/flamegraph-example-stacks.out"),
        folder.path(),
    );
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let expected = corpus.join("dtrace/flamegraph-example-stacks.folded");
    let expected = sorted(&std::fs::read_to_string(expected).unwrap());
    assert_eq!(
        sorted(&query(&["flamegraph", "--folded"], &trace)),
        expected
    );
}
