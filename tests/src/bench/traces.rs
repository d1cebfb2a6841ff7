//! The traces of the benchmarks, and queries on a finished one.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::measure;
use crate::place;

/// The workload program, built with this crate in release.
pub(crate) fn storm() -> Result<PathBuf> {
    let status = place::cargo()
        .args([
            "build",
            "--quiet",
            "--release",
            "--package",
            "perfquet-tests",
            "--bin",
            "storm",
        ])
        .status()
        .context("cannot run cargo")?;
    anyhow::ensure!(status.success(), "the workload program does not build");
    Ok(place::release("storm"))
}

/// A perf.data of about 900,000 events, switches and samples at 4 kHz with stacks, recorded by perf itself.
pub(super) fn mixed_perf_data(directory: &Path) -> Result<PathBuf> {
    let path = directory.join("mixed.data");
    let storm = storm()?;
    let mut command = Command::new("perf");
    command.args([
        "record",
        "-q",
        "-a",
        "-m",
        "16M",
        "-k",
        "CLOCK_MONOTONIC",
        "-g",
    ]);
    // One frequency for all of them would sample the switches too.
    command
        .args([
            "-e",
            "cpu-clock/freq=4000/",
            "-e",
            "sched:sched_switch",
            "-o",
        ])
        .arg(&path)
        .arg("--");
    command.arg("sh").arg("-c").arg(format!(
        "{0} switches 200000; {0} stacks 5000",
        storm.display()
    ));
    measure::run(&mut command, directory)?;
    Ok(path)
}

/// A perf.data of about a million tracepoint hits without stacks.
pub(super) fn tracepoint_perf_data(directory: &Path) -> Result<PathBuf> {
    let path = directory.join("tracepoints.data");
    let storm = storm()?;
    let mut command = Command::new("perf");
    command.args(["record", "-q", "-a", "-m", "32M", "-k", "CLOCK_MONOTONIC"]);
    command.args([
        "-e",
        "raw_syscalls:sys_enter",
        "-e",
        "raw_syscalls:sys_exit",
        "-e",
        "sched:sched_switch",
    ]);
    command
        .arg("-o")
        .arg(&path)
        .arg("--")
        .arg(&storm)
        .args(["syscalls", "250000"]);
    measure::run(&mut command, directory)?;
    Ok(path)
}

/// Imports a file; returns the trace directory.
pub(super) fn import(input: &Path, directory: &Path) -> Result<PathBuf> {
    let output = input.with_extension("pqt");
    let mut command = Command::new(place::bin("perfquet-convert"));
    command.arg(input).arg("--force").arg("-o").arg(&output);
    measure::run(&mut command, directory)?;
    Ok(output)
}

/// Rows of samples and of all event tables, from the manifest.
pub(super) fn events(trace: &Path) -> Result<u64> {
    let manifest = std::fs::read_to_string(trace.join("manifest.json"))
        .with_context(|| format!("{}: no manifest", trace.display()))?;
    let manifest: serde_json::Value = serde_json::from_str(&manifest)?;
    let tables = manifest["tables"]
        .as_object()
        .context("manifest.json: no tables")?;
    let mut rows = 0;
    for (name, table) in tables {
        if name == "samples" || name.starts_with("events/") || name.contains('.') {
            let parts = table["parts"]
                .as_array()
                .map(Vec::as_slice)
                .unwrap_or_default();
            rows += parts
                .iter()
                .filter_map(|part| part["rows"].as_u64())
                .sum::<u64>();
        }
    }
    Ok(rows)
}

/// Number of events that the trace reports as lost.
pub(super) fn lost(trace: &Path, directory: &Path) -> Result<u64> {
    let mut command = Command::new(place::bin("perfquet-query"));
    command.arg("sql").arg(trace).args([
        "SELECT coalesce(sum(count), 0) FROM losses",
        "--format",
        "csv",
    ]);
    let run = measure::run(&mut command, directory)?;
    let number = run.stdout.lines().last().unwrap_or_default();
    number
        .trim()
        .parse()
        .with_context(|| format!("losses: expected a number, found {number:?}"))
}

/// Bytes of a file, or of all files below a directory.
pub(super) fn bytes(path: &Path) -> Result<u64> {
    let metadata = std::fs::metadata(path).with_context(|| format!("{}", path.display()))?;
    if metadata.is_file() {
        return Ok(metadata.len());
    }
    let mut sum = 0;
    for entry in std::fs::read_dir(path)? {
        sum += bytes(&entry?.path())?;
    }
    Ok(sum)
}
