//! Windows that calls overlap: the rows are those of every call, but what ends before is not read.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use perfquet_tests::bin;
use perfquet_tests::random::Random;

use super::import;

/// Calls of a microsecond, and a few that are long.
fn calls() -> String {
    let mut text = "# tracer: function_graph\n#\n".to_owned();
    let mut random = Random(3);
    for step in 0..400_000_u64 {
        let time = 100_000_000 + step * 10 + random.below(4);
        let duration = match step % 100_000 {
            5_000 => "900000.250 us".to_owned(),
            _ => format!("{}.{:03} us", random.below(3), step % 1000),
        };
        let (seconds, micros) = (time / 1_000_000, time % 1_000_000);
        let cpu = if duration.starts_with('9') { 1 } else { 0 };
        let _ = writeln!(
            text,
            " {seconds}.{micros:06} |  {cpu}) {duration:>13} |  f{}();",
            step % 7
        );
    }
    text
}

fn sql(trace: &Path, text: &str) -> String {
    let output = Command::new(bin("perfquet-query"))
        .arg("sql")
        .arg(trace)
        .args(["--format", "csv", text])
        .output()
        .unwrap();
    assert!(output.status.success(), "{text}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn overlapping_calls_are_found_without_reading_all() {
    let directory = tempfile::tempdir().unwrap();
    let input = directory.path().join("calls.trace");
    std::fs::write(&input, calls()).unwrap();
    let trace = directory.path().join("calls.pqt");
    import(&input, &trace).unwrap();
    let ends = sql(
        &trace,
        "SELECT min(time) AS first, max(time) AS last FROM calls",
    );
    let ends = ends.lines().nth(1).unwrap();
    let (first, last) = ends.split_once(',').unwrap();
    let (first, last): (i64, i64) = (first.parse().unwrap(), last.parse().unwrap());
    let mut random = Random(9);
    let mut seen = 0;
    for round in 0..12 {
        let from = first + random.below((last - first) as u64) as i64;
        let to = from + [1, 20_000, 3_000_000][round % 3];
        for (begins, sum) in [
            (format!("time < {to}"), format!("time + duration > {from}")),
            (format!("{to} > time"), format!("{from} <= duration + time")),
        ] {
            let count = |condition: &str| {
                sql(
                    &trace,
                    &format!(
                        "SELECT count(*), min(time), sum(duration) FROM calls WHERE {begins} AND {condition}"
                    ),
                )
            };
            // No statistics say anything of this one.
            let comparison = if sum.contains("<=") { ">=" } else { ">" };
            let every = count(&format!("(time + duration) - {from} {comparison} 0"));
            assert_eq!(count(&sum), every, "{begins} AND {sum}");
            seen += usize::from(!every.contains("\n0,"));
        }
    }
    assert!(seen > 6, "{seen}");
    let late = last - 1_000_000;
    let scanned = |condition: &str| {
        let plan = sql(
            &trace,
            &format!("EXPLAIN ANALYZE SELECT count(*), max(function) FROM calls WHERE {condition}"),
        );
        let bytes = plan.split("bytes_scanned=").nth(1).unwrap();
        let bytes = bytes.split([',', ']']).next().unwrap().trim();
        let (number, unit) = bytes.split_once(' ').unwrap_or((bytes, ""));
        let factor = match unit {
            "K" => 1e3,
            "M" => 1e6,
            "" => 1.0,
            _ => panic!("{bytes}"),
        };
        number.parse::<f64>().unwrap() * factor
    };
    let (some, all) = (
        scanned(&format!("time + duration > {late}")),
        scanned(&format!("(time + duration) - {late} > 0")),
    );
    assert!(some < all * 0.6, "{some} of {all}");
}
