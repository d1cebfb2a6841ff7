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

/// A perf.data of more than a million tracepoint hits without stacks: entries and exits of system calls, and switches.
pub(super) fn tracepoint_perf_data(directory: &Path) -> Result<PathBuf> {
    let events = [
        "raw_syscalls:sys_enter",
        "raw_syscalls:sys_exit",
        "sched:sched_switch",
    ];
    perf_data(directory.join("tracepoints.data"), &events, "250000")
}

/// The same without calls: entries of system calls only, and switches.
pub(super) fn unpaired_perf_data(directory: &Path) -> Result<PathBuf> {
    let events = [
        "syscalls:sys_enter_write",
        "syscalls:sys_enter_read",
        "sched:sched_switch",
    ];
    perf_data(directory.join("unpaired.data"), &events, "500000")
}

/// What perf records of the whole system while the storm reads and writes.
fn perf_data(path: PathBuf, events: &[&str], repetitions: &str) -> Result<PathBuf> {
    let storm = storm()?;
    let mut command = Command::new("perf");
    command.args(["record", "-q", "-a", "-m", "32M", "-k", "CLOCK_MONOTONIC"]);
    for event in events {
        command.args(["-e", event]);
    }
    command.arg("-o").arg(&path).arg("--");
    command.arg(&storm).args(["syscalls", repetitions]);
    let directory = path.parent().context("the scratch directory")?;
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

/// Rows of samples and of all event tables.
pub(super) fn events(trace: &Path) -> Result<u64> {
    rows(trace, |name| {
        name == "samples" || name.starts_with("events/") || name.contains('.')
    })
}

/// Rows of the tables that `is_wanted`, from the manifest.
pub(super) fn rows(trace: &Path, is_wanted: impl Fn(&str) -> bool) -> Result<u64> {
    let manifest = std::fs::read_to_string(trace.join("manifest.json"))
        .with_context(|| format!("{}: no manifest", trace.display()))?;
    let manifest: serde_json::Value = serde_json::from_str(&manifest)?;
    let tables = manifest["tables"]
        .as_object()
        .context("manifest.json: no tables")?;
    let parts = tables
        .iter()
        .filter(|(name, _)| is_wanted(name))
        .filter_map(|(_, table)| table["parts"].as_array())
        .flatten();
    Ok(parts.filter_map(|part| part["rows"].as_u64()).sum())
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
