//! Exports, opened by the programs that they are for. Their counts are compared with ours, and printed as tables.

mod inputs;
mod perfetto;
mod pprof;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use perfquet_tests::bin;

use crate::several::printed;

/// Exports a trace; returns what the converter told about it.
fn export(trace: &str, format: &str, output: &Path, options: &[&str]) -> String {
    let output = Command::new(bin("perfquet-convert"))
        .args([trace, "--to", format, "-f", "-o"])
        .arg(output)
        .args(options)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{trace} --to {format}: {told}");
    told
}

/// The count before a noun in what the converter told: "1,417 samples".
fn told_count(told: &str, noun: &str) -> u64 {
    let words: Vec<&str> = told.split_whitespace().collect();
    let is_noun = |word: &str| word.trim_end_matches([',', ';']).trim_end_matches('s') == noun;
    let place = words.iter().position(|word| is_noun(word));
    place.map_or(0, |place| {
        words[place - 1].replace(',', "").parse().unwrap_or(0)
    })
}

/// The first two columns of an answer in SQL.
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
