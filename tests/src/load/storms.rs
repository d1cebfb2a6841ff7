//! `cargo xtask storms`: a storm of system calls recorded at default settings beside 20 busy processes. Nothing may be lost.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Busy, number_of, require};
use crate::{place, say};

const BUSY: usize = 20;
/// Reads and writes of one round.
const REPETITIONS: u64 = 400_000;

/// Runs it this many times.
pub fn run(arguments: &[&str]) -> Result<()> {
    let rounds = number_of(arguments, "--rounds", 100)?;
    require(&["root", "tracefs"])?;
    let folder = place::target_directory().join("storms");
    std::fs::create_dir_all(&folder).context("cannot create a folder")?;
    let recorder = place::bin("perfquet-record");
    let storm = crate::bench::storm()?;
    let _busy = Busy::start(BUSY)?;
    say::step(&format!("{rounds} storms beside {BUSY} busy processes"));
    let mut lossy = 0;
    for number in 1..=rounds {
        let recorded = Command::new(&recorder)
            .args([
                "--force",
                "-a",
                "-e",
                "syscalls:sys_enter_write,syscalls:sys_enter_read",
                "-o",
            ])
            .arg(folder.join("t.pqt"))
            .arg("--")
            .arg(&storm)
            .args(["syscalls", &REPETITIONS.to_string()])
            .output()
            .context("cannot run the recorder")?;
        let stderr = String::from_utf8_lossy(&recorded.stderr).into_owned();
        ensure!(recorded.status.success(), "the recorder failed: {stderr}");
        let line = stderr.lines().find(|line| line.contains(" events, "));
        let line = line.with_context(|| format!("no closing line: {stderr}"))?;
        lossy += u64::from(!line.contains(", 0 lost"));
        say::note(&format!("{number}: {line}"));
    }
    ensure!(lossy == 0, "{lossy} of {rounds} rounds lost events");
    println!("{rounds} rounds, none lost anything");
    Ok(())
}
