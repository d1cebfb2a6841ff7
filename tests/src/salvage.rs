//! `cargo xtask salvage`: the share of damaged recordings that is kept, as the table of docs/dev/salvage.md.

use anyhow::{Context, Result, bail};

use crate::{place, say};

/// Damages every recording at every place. `cargo test` does the same with some of them.
pub fn run() -> Result<()> {
    say::step("recordings of all kinds, damaged at 24 places in four ways each");
    let status = place::cargo_test(&["--test", "salvage", "--", "--nocapture"])
        .env("PERFQUET_SALVAGE", "all")
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("damage loses more than it should; see above");
    }
    Ok(())
}
