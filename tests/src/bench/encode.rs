//! Encoding alone: the page encoder compared with a tuned ArrowWriter, and the memory of 500 open tables.
//!
//! The comparison itself is the example `encode` (`tests/bench/encode.rs`), because it links the store.

use anyhow::{Context, Result};
use serde_json::Value;

use super::Setting;
use super::measure;
use super::report::Report;
use crate::place;

/// Runs the example, which alternates by itself.
pub(super) fn run(setting: &Setting) -> Result<Report> {
    let mut build = place::cargo();
    build.args([
        "build",
        "--quiet",
        "--release",
        "--package",
        "perfquet-tests",
        "--example",
        "encode",
    ]);
    measure::run(&mut build, &setting.directory)?;
    let program = place::release("examples/encode");
    let mut command = std::process::Command::new(program);
    let run = measure::run(command.current_dir(&setting.directory), &setting.directory)?;
    let result: Value =
        serde_json::from_str(&run.stdout).context("the example encode: expected JSON")?;

    let mut report = Report::new(5);
    report.scenario(
        "Encoding",
        "The same rows from columns in memory; CPU nanoseconds per row, minimum of all rounds. ArrowWriter gets finished batches; perfquet pushes value by value instead (column `push ns`).",
    );
    let contests: Vec<(&String, &Value)> = result
        .as_object()
        .context("an object")?
        .iter()
        .filter(|(_, value)| value.get("time_ratio").is_some())
        .collect();
    let rows: Vec<Vec<String>> = contests
        .iter()
        .map(|(name, value)| {
            let number = |key: &str| value[key].as_f64().unwrap_or(f64::NAN);
            vec![
                format!("`{name}`"),
                format!("{}", value["rows"]),
                format!("{:.0}", number("push_ns")),
                format!("{:.0}", number("encode_ns")),
                format!("{:.0}", number("arrow_ns")),
                format!("{:.2}", number("time_ratio")),
                format!("{:.2}", number("size_ratio")),
            ]
        })
        .collect();
    report.table(
        &[
            "table",
            "rows",
            "push ns",
            "encode ns",
            "ArrowWriter ns",
            "time ratio",
            "size ratio",
        ],
        &rows,
    );
    for (name, value) in contests {
        report.budget(
            &format!("{name}: time"),
            value["time_ratio"].as_f64().unwrap_or(f64::NAN),
            0.60,
        );
        report.budget(
            &format!("{name}: size"),
            value["size_ratio"].as_f64().unwrap_or(f64::NAN),
            1.02,
        );
    }
    let many = result["many_tables_bytes"].as_f64().unwrap_or(f64::NAN);
    report.budget("500 open tables of 1000 rows each, MB", many / 1e6, 64.0);
    Ok(report)
}
