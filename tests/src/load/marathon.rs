//! `cargo xtask marathon`: the whole system with stacks at 199 Hz and at every switch, for minutes; measures the
//! recorder's memory and journal, during the recording and at its end.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{number_of, require};
use crate::{place, say};

/// Limits for both.
const MEMORY_BUDGET_BYTES: u64 = 160 << 20;
const JOURNAL_BUDGET_BYTES: u64 = 256 << 20;

/// The maximum of each.
#[derive(Default)]
struct Peak {
    memory_bytes: u64,
    journal_bytes: u64,
}

/// Records for this many minutes.
pub fn run(arguments: &[&str]) -> Result<()> {
    let minutes = number_of(arguments, "--minutes", 30)?;
    require(&["root", "tracefs", "perf events"])?;
    let folder = place::target_directory().join("marathon");
    std::fs::create_dir_all(&folder).context("cannot create a folder")?;
    let trace = folder.join("t.pqt");
    let journal = trace.join("journal");
    let mut recorder = Command::new(place::bin("perfquet-record"))
        .args([
            "--force",
            "-a",
            "-g",
            "-F",
            "199",
            "-e",
            "cpu-clock,sched:sched_switch",
        ])
        .args(["--duration", &format!("{minutes}m"), "-o"])
        .arg(&trace)
        .spawn()
        .context("cannot run the recorder")?;
    let status_file = format!("/proc/{}/status", recorder.id());
    say::step(&format!(
        "{minutes} minutes of -a -g -F 199 with sched_switch"
    ));
    let started = Instant::now();
    let mut next_line = Duration::ZERO;
    let mut recording = Peak::default();
    let mut closing = Peak::default();
    let status = loop {
        if let Some(status) = recorder.try_wait()? {
            break status;
        }
        let elapsed = started.elapsed();
        let memory_bytes = resident(&status_file);
        let journal_bytes = allocated(&journal);
        let peak = match elapsed.as_secs() < minutes * 60 {
            true => &mut recording,
            false => &mut closing,
        };
        peak.memory_bytes = peak.memory_bytes.max(memory_bytes);
        peak.journal_bytes = peak.journal_bytes.max(journal_bytes);
        if elapsed >= next_line {
            next_line += Duration::from_secs(30);
            say::note(&format!(
                "{}: {} resident, journal {}",
                say::seconds(elapsed.as_secs()),
                say::bytes(memory_bytes),
                say::bytes(journal_bytes)
            ));
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    ensure!(status.success(), "the recorder failed");
    for (what, peak) in [("recording", &recording), ("closing", &closing)] {
        println!(
            "{what}: at most {} resident, journal {}",
            say::bytes(peak.memory_bytes),
            say::bytes(peak.journal_bytes)
        );
    }
    let memory_bytes = recording.memory_bytes.max(closing.memory_bytes);
    let journal_bytes = recording.journal_bytes.max(closing.journal_bytes);
    ensure!(
        memory_bytes <= MEMORY_BUDGET_BYTES && journal_bytes <= JOURNAL_BUDGET_BYTES,
        "over budget: {} of memory, {} of journal",
        say::bytes(MEMORY_BUDGET_BYTES),
        say::bytes(JOURNAL_BUDGET_BYTES)
    );
    Ok(())
}

fn resident(status_file: &str) -> u64 {
    let status = std::fs::read_to_string(status_file).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Disk usage of the files in a directory, without holes.
fn allocated(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    files
        .filter_map(|file| Some(file.metadata().ok()?.blocks() * 512))
        .sum()
}
