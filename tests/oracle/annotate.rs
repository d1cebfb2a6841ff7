//! Instructions with their percentages: those of `perf annotate`, for every function of a recording.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use perfquet_tests::{bin, needs, root};

/// Percentages of a function by address, in hundredths; those of 0 are left out.
type Percents = BTreeMap<String, i64>;

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Percentages in the columns of a line's percentage and address.
fn of_lines<'l>(lines: impl Iterator<Item = (&'l str, &'l str)>) -> Percents {
    let mut percents = Percents::new();
    for (percent, address) in lines {
        let hundredths = (percent.trim().parse::<f64>().unwrap() * 100.0).round() as i64;
        if hundredths > 0 {
            percents.insert(address.trim_start_matches("0x").to_owned(), hundredths);
        }
    }
    percents
}

/// Reads `   27.55 :   1273:   add    $0x1,%esi`.
fn theirs(data: &Path, function: &str) -> Percents {
    let text = output(
        Command::new("perf")
            .args([
                "annotate",
                "--stdio",
                "--stdio-color=never",
                "-s",
                function,
                "-i",
            ])
            .arg(data),
    );
    of_lines(text.lines().filter_map(|line| {
        let (percent, rest) = line.split_once(" :")?;
        let (address, _) = rest.split_once(':')?;
        let is_address = u64::from_str_radix(address.trim(), 16).is_ok();
        let is_percent = percent.trim().parse::<f64>().is_ok();
        (is_address && is_percent).then_some((percent, address.trim()))
    }))
}

fn ours(trace: &Path, function: &str, words: &[&str]) -> Percents {
    let text = output(
        Command::new(bin("perfquet-query"))
            .arg("annotate")
            .arg(trace)
            .arg(function)
            .args(["--format", "ndjson"])
            .args(words),
    );
    let rows: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let cells: Vec<(String, String)> = rows
        .iter()
        .map(|row| {
            let address = row["address"].as_str().unwrap().to_owned();
            (row["percent"].to_string(), address)
        })
        .collect();
    of_lines(
        cells
            .iter()
            .map(|(percent, address)| (percent.as_str(), address.as_str())),
    )
}

#[test]
fn percentages_are_those_of_perf() {
    if !needs::met(&["root", "perf", "cc", "objdump"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (program, data) = (
        folder.path().join("annotated"),
        folder.path().join("a.data"),
    );
    let trace = folder.path().join("a.pqt");
    output(
        Command::new("cc")
            .args(["-g", "-O2", "-o"])
            .arg(&program)
            .arg(root().join("tests/oracle/annotated.c")),
    );
    output(
        Command::new("perf")
            .args(["record", "-q", "-F", "2000", "-e", "cpu-clock", "-o"])
            .arg(&data)
            .arg(&program),
    );
    output(
        Command::new(bin("perfquet-convert"))
            .arg(&data)
            .arg("-o")
            .arg(&trace),
    );
    let functions = output(Command::new(bin("perfquet-query")).arg("sql").arg(&trace).args([
        "SELECT DISTINCT function FROM frames WHERE module LIKE '/%' AND function IS NOT NULL ORDER BY 1",
        "--format",
        "csv",
    ]));
    let (mut same, mut instructions) = (0, 0);
    for function in functions.lines().skip(1) {
        // perf prints nothing for a stub of the linkage table, and all functions for a name that two files have.
        let theirs = theirs(&data, function);
        if theirs.is_empty() || function.ends_with("@plt") {
            continue;
        }
        let ours = ours(&trace, function, &[]);
        let differences: Vec<_> = theirs
            .iter()
            .filter(|(address, percent)| {
                // Both round a percentage of the same counts.
                ours.get(*address)
                    .is_none_or(|our| (our - **percent).abs() > 1)
            })
            .collect();
        assert!(
            differences.is_empty(),
            "{function}: {differences:?}, {ours:?}"
        );
        assert_eq!(ours.len(), theirs.len(), "{function}");
        same += 1;
        instructions += theirs.len();
    }
    println!("{same} functions, {instructions} sampled instructions");
    assert!(same >= 8, "{functions}");
}
