//! `cargo xtask fuzz --minutes N`: the damaged-input test of every reader, for as long as one likes.

use anyhow::{Context, Result, bail};

use crate::{place, say};

/// Runs the fuzz program for so many minutes. `cargo test` runs the same program for some seconds.
pub fn run(minutes: u64) -> Result<()> {
    say::step(&format!(
        "damaged inputs for every reader, for {minutes} min"
    ));
    let status = place::cargo()
        .args([
            "test",
            "--release",
            "--package",
            "perfquet-tests",
            "--test",
            "fuzz",
            "--",
            "--nocapture",
        ])
        .env("PERFQUET_FUZZ_SECONDS", (minutes * 60).to_string())
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("a reader failed; the seed to repeat it with is printed above");
    }
    Ok(())
}
