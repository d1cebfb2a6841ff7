//! Opens exports with the programs that they are written for, and compares counts. Prints the results as tables.

mod chrome;
mod ctf;
mod firefox;
mod inputs;
mod matrix;
mod perfetto;
mod pprof;
mod round_trips;
mod speedscope;
mod tables;
mod timeline;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use perfquet_tests::bin;

use crate::several::printed;

/// Exports a trace; returns the stderr of the converter.
fn export(trace: &str, format: &str, output: &Path, options: &[&str]) -> String {
    let output = Command::new(bin("perfquet-convert"))
        .args([trace, "--to", format, "-f", "-o"])
        .arg(output)
        .args(options)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{trace} --to {format}: {stderr}");
    stderr
}

/// Returns the count before a noun in a line of the converter's stderr: "a.x: 1,417 samples, 3 loss records; …".
fn reported_count(line: &str, noun: &str) -> u64 {
    let line = line.lines().next().unwrap_or_default();
    let parts = line.split([';', ':']).flat_map(|part| part.split(", "));
    let counts = parts.filter_map(|part| {
        let (count, rest) = part.trim().split_once(' ')?;
        let rest = rest.strip_prefix(noun)?;
        let is_noun = rest.is_empty() || rest.starts_with(['s', ' ']);
        is_noun.then(|| count.replace(',', "").parse::<u64>().ok())?
    });
    counts.sum()
}

/// Returns the number of rows that an export omitted because they have no timestamp, from the converter's stderr.
fn untimed(stderr: &str, noun: &str) -> u64 {
    let lines = stderr.lines();
    let lines = lines.filter(|line| line.contains("omitted: without a timestamp"));
    lines.map(|line| reported_count(line, noun)).sum()
}

/// The weight of each sampled event: its periods, or the number of its samples where one has no period.
const WEIGHTS: &str = "SELECT event AS name, CAST(CASE WHEN count(period) = count(*) THEN sum(period) ELSE count(*) END AS BIGINT) AS n \
    FROM samples GROUP BY event";

/// Returns the first two columns of the result of an SQL query.
fn counts(trace: &str, question: &str) -> BTreeMap<String, u64> {
    let text = printed(
        "perfquet-query",
        &["sql", trace, question, "--format", "json"],
    );
    let rows: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let mut counts = BTreeMap::new();
    for row in rows.as_array().into_iter().flatten() {
        let name = row["name"].as_str().unwrap_or_default().to_owned();
        counts.insert(name, row["n"].as_u64().unwrap());
    }
    counts
}
