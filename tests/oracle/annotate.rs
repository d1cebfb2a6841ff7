//! Instructions with their percentages: those of `perf annotate`, for every function of a recording.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use perfquet_tests::{bin, kept_code, needs, root};

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

/// A golden recording of a function whose code changed.
#[test]
fn kept_code_is_shown_with_its_origin() {
    let folder = tempfile::tempdir().unwrap();
    let trace = kept_code::trace(folder.path());
    let annotated = |words: &[&str]| {
        let mut command = Command::new(bin("perfquet-query"));
        command.arg("annotate").arg(&trace).args(words);
        output(command.env("LC_ALL", "C.UTF-8"))
    };
    // The list says 16 bytes.
    let text = annotated(&[]);
    let expected = "\
countdown: 100.00% of cpu-clock:u, 25 samples
  /tmp/perf-13887.map, 9 instructions
  code kept by the recorder at 3.013 s
  the code changed while it was recorded (2 versions): 24 samples before then may be of earlier code
   48.00  7fa8c4d4f040 ╭► dec     %rdi
   52.00  7fa8c4d4f043 │  nop
          7fa8c4d4f044 ╰─ jne     7fa8c4d4f040
          7fa8c4d4f046    ret
";
    assert!(text.starts_with(expected), "{text}");
    // Of the samples that are selected, none precedes the last version.
    let text = annotated(&["--time", "3.02s.."]);
    assert!(text.contains("(2 versions): 0 samples before"), "{text}");
    // Rows of other formats have the same instructions.
    let rows = annotated(&["--format", "csv"]);
    assert!(rows.contains(",0x7fa8c4d4f043,nop,52.0,"), "{rows}");
    let lines = Command::new(bin("perfquet-query"))
        .arg("annotate")
        .arg(&trace)
        .args(["--by", "line"])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&lines.stderr).into_owned();
    assert!(
        error.contains("is not shown: it has no source lines"),
        "{error}"
    );
}

/// What was kept of a program that was removed is what the program has.
#[test]
fn kept_code_is_that_of_the_file() {
    if !needs::met(&["root", "perf events", "cc"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (here, kept) = (folder.path().join("here"), folder.path().join("kept"));
    std::fs::create_dir(&kept).unwrap();
    output(
        Command::new("cc")
            // perf's cache of the user has the program of the other test.
            .args([
                "-g",
                "-O2",
                "-Wl,--build-id=0x6b6570742d636f64656b6570742d636f64650000",
                "-o",
            ])
            .arg(&here)
            .arg(root().join("tests/oracle/annotated.c")),
    );
    std::fs::copy(&here, kept.join("here")).unwrap();
    let trace = folder.path().join("a.pqt");
    let script = format!("{0} & sleep 0.3; rm {0}; wait", here.display());
    output(
        Command::new(bin("perfquet-record"))
            .args(["--keep-code", "-F", "2000", "-e", "cpu-clock", "-o"])
            .arg(&trace)
            .args(["--", "sh", "-c", &script]),
    );
    let functions = output(Command::new(bin("perfquet-query")).arg("sql").arg(&trace).args([
        "SELECT DISTINCT function FROM frames WHERE module LIKE '%/here' AND function IS NOT NULL ORDER BY 1",
        "--format",
        "csv",
    ]));
    let mut same = 0;
    for function in functions
        .lines()
        .skip(1)
        .filter(|name| !name.ends_with("@plt"))
    {
        let of_kept = ours(&trace, function, &["--module", "here"]);
        let symbols = ["--module", "here", "--symbols", kept.to_str().unwrap()];
        let of_file = ours(&trace, function, &symbols);
        // A function that libraries have too may not have been sampled here.
        assert_eq!(of_kept, of_file, "{function}");
        same += usize::from(!of_kept.is_empty());
    }
    assert!(same >= 5, "{functions}");
    let mut command = Command::new(bin("perfquet-query"));
    let text = output(
        command
            .arg("annotate")
            .arg(&trace)
            .args(["--module", "here"]),
    );
    let notes = text.lines().nth(2).unwrap_or_default();
    assert!(
        notes.starts_with("  code kept by the recorder at "),
        "{text}"
    );
}
