//! `cargo xtask demo`: from a fresh clone to a flame graph of this host.
//!
//! The recorder is built first, in three to five minutes on two cores. The query tool takes far longer, because of
//! DataFusion; so the demo records that build. If it is already built, a small crate is compiled into a temporary
//! directory.

mod builder;
mod estimate;
mod results;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{needs, place, say};
use builder::Builder;

/// The scope that the demo may record, which depends on privileges.
enum Rights {
    /// Every CPU, kernel and user, with scheduler events.
    System,
    /// Only processes that the demo starts itself; with the reason.
    OwnProcesses(String),
}

/// The whole demonstration.
pub fn run(arguments: &[&str]) -> Result<()> {
    let seconds = parse(arguments)?;
    say::need_c_compiler()?;
    // Check before building: a rejection after minutes would be annoying.
    let rights = rights()?;
    let directory = place::target_directory().join("demo");
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;

    say::step("building the recorder and the converter (3 to 5 minutes the first time)");
    build(&["perfquet-record", "perfquet-convert"])?;

    let trace = directory.join("demo.pqt");
    let mut builder = Builder::start(&directory)?;
    match rights {
        Rights::System => record_system(&trace, &mut builder, seconds)?,
        Rights::OwnProcesses(reason) => {
            say::note(&format!("recording only processes of this user: {reason}"));
            say::note(
                "hint: to record the whole system, run as root: sudo -E env \"PATH=$PATH\" cargo xtask demo",
            );
            record_own(&trace, &directory, seconds)?;
        }
    }
    if !builder.is_done() {
        results::show_first(&trace)?;
    }
    builder.finish()?;
    results::show(&trace, &directory)
}

fn parse(arguments: &[&str]) -> Result<u64> {
    match arguments {
        [] => Ok(10),
        ["--seconds", number] => number
            .parse()
            .ok()
            .filter(|&seconds| seconds > 0)
            .with_context(|| format!("--seconds: expected a number above 0, found {number:?}")),
        _ => bail!("usage: cargo xtask demo [--seconds N]"),
    }
}

/// Builds programs at once: the second one's crates are downloaded and compiled beside the first one's.
fn build(packages: &[&str]) -> Result<()> {
    let packages = packages.iter().flat_map(|package| ["--package", package]);
    let arguments: Vec<&str> = ["build", "--release"].into_iter().chain(packages).collect();
    let status = place::cargo()
        .args(&arguments)
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!(
            "cargo {} failed, see above\n\
             hint: perfquet needs Rust 1.95 or newer (rustup update stable) and, once, the network for its dependencies",
            arguments.join(" ")
        );
    }
    Ok(())
}

/// Checks the kernel's settings, not the recorder: the recorder would explain the same with less context.
fn rights() -> Result<Rights> {
    if needs::is_root() {
        return Ok(Rights::System);
    }
    let level = needs::perf_event_paranoid()
        .context("this kernel has no perf events (CONFIG_PERF_EVENTS)")?;
    // Debian's own level 3: no perf events at all without privileges.
    if level >= 3 {
        bail!(
            "this user may not record anything here: kernel.perf_event_paranoid is {level}\n\
             hint: sudo sysctl kernel.perf_event_paranoid=1, or as root: sudo -E env \"PATH=$PATH\" cargo xtask demo"
        )
    }
    Ok(Rights::OwnProcesses(format!(
        "not root, and kernel.perf_event_paranoid is {level}"
    )))
}

fn record_system(trace: &Path, builder: &mut Builder, seconds: u64) -> Result<()> {
    say::step(&format!(
        "recording the whole system for {seconds} s: {}",
        builder.what()
    ));
    builder.wait_until_busy();
    let mut events = vec!["-a", "-g", "-F", "997"];
    if has_scheduler_events() {
        events.extend(["-e", "sched:sched_switch", "-e", "sched:sched_wakeup"]);
    } else {
        say::note(
            "no scheduler events: the recorder cannot read the tracepoints (perfquet-record --list says why)",
        );
    }
    let duration = format!("{seconds}s");
    events.extend(["--duration", &duration]);
    record(trace, &events, &[])
}

/// Asks the recorder, which mounts tracefs if it is not mounted.
fn has_scheduler_events() -> bool {
    Command::new(place::release("perfquet-record"))
        .args(["--list", "sched:sched_switch"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn record_own(trace: &Path, directory: &Path, seconds: u64) -> Result<()> {
    say::step(&format!("recording a compiler run for {seconds} s"));
    let workload = builder::scratch_build(directory, seconds);
    record(trace, &["-g", "-F", "997", "-e", "cpu-clock:u"], &workload)
}

/// Runs the recorder, and prints its command line.
fn record(trace: &Path, options: &[&str], workload: &[String]) -> Result<()> {
    let program = place::release("perfquet-record");
    let mut command = Command::new(&program);
    command.args(options).arg("--force").arg("-o").arg(trace);
    let mut shown = format!(
        "perfquet-record {} -o {}",
        options.join(" "),
        shorten(trace).display()
    );
    if !workload.is_empty() {
        command.arg("--").args(workload);
        shown += " -- cargo build …";
    }
    say::command_line(&shown);
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot run {}", program.display()))?;
    if !status.success() && !trace.join("manifest.json").is_file() {
        bail!("the recorder failed ({status}); see its output above");
    }
    Ok(())
}

/// The path relative to the current directory, if that is shorter.
fn shorten(path: &Path) -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(&here).unwrap_or(path).to_path_buf()
}

/// Interval between two checks of a running build.
const LOOK_EVERY: Duration = Duration::from_millis(500);
