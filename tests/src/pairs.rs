//! `cargo xtask pairs`: recordings of every two options together, each read by perf, too.

use anyhow::{Context, Result, bail};

use crate::{place, say};

/// Records every case of `record/tests/pairs.rs`, or those with these numbers. `cargo test` records some of them.
pub fn run(numbers: &[&str]) -> Result<()> {
    say::step("every event kind × stacks × target × output × one more option, in pairs");
    let cases = match numbers {
        [] => "all".to_owned(),
        numbers => numbers.join(","),
    };
    let arguments = ["--test", "pairs", "options_in_pairs", "--", "--nocapture"];
    let status = place::cargo_test(&arguments)
        .env("PERFQUET_PAIRS", cases)
        .env("PERFQUET_PAIRS_RECORDER", place::bin("perfquet-record"))
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("recordings are wrong; cargo xtask pairs NUMBER... repeats them");
    }
    Ok(())
}
