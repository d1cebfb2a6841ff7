//! `cargo xtask fuzz --minutes N`: damaged inputs for every reader and the whole way behind it, damaged traces for every
//! report, for as long as one likes.
//!
//! The library is built so that it counts which edges of its code a case goes over (`tests/fuzz/instrument.sh`): a
//! case that goes a new way is changed further. LLVM's counters work on stable Rust, so neither AFL nor a
//! nightly compiler is needed.

use anyhow::{Context, Result, bail};

use crate::{place, say};

/// Runs the fuzz program for so many minutes. `cargo test` runs the same program for some seconds.
pub fn run(minutes: u64) -> Result<()> {
    say::step(&format!(
        "damaged inputs and damaged traces, for {minutes} min"
    ));
    // Built by the ordinary compiler, before the other one is named.
    let query = place::bin("perfquet-query");
    let programs = query.parent().context("a program lies in a directory")?;
    // In the tests' profile, where an overflow panics.
    let status = place::cargo_test(&["--test", "fuzz", "--", "--nocapture", "--test-threads=1"])
        .env(
            "RUSTC_WORKSPACE_WRAPPER",
            place::root().join("tests/fuzz/instrument.sh"),
        )
        .env("PERFQUET_BIN_DIR", programs)
        .env("PERFQUET_FUZZ_SECONDS", (minutes * 60).to_string())
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("a damaged input made it fail; the seed to repeat it with is printed above");
    }
    Ok(())
}
