//! `cargo xtask corpus [DIR]`: every trace at hand against what its own tool says of it.
//!
//! The oracles are tests (`tests/oracle/`): this runs them, shows their tables, and fails if anything differs without a
//! known cause. The traces are those of `tests/corpus`, which `cargo xtask corpus --record` makes ([`record`]), and those
//! of a folder that `PERFQUET_CORPUS` names, or DIR.

mod dump;
mod record;

use anyhow::{Context, Result, bail};

use crate::{place, say};

pub use record::record;

/// Runs the oracles over the corpus, or with another folder beside it.
pub fn run(directory: Option<&str>) -> Result<()> {
    say::step("every trace against its own tool");
    let oracles = ["--quiet", "--test", "oracle", "--", "--nocapture"];
    let mut command = place::cargo_test(&oracles);
    command.arg("--test-threads=1");
    if let Some(directory) = directory {
        let directory = std::path::absolute(directory).context("cannot find the directory")?;
        command.env("PERFQUET_CORPUS", directory);
    }
    let status = command.status().context("cannot run cargo")?;
    if !status.success() {
        bail!("something differs, and no cause of it is known");
    }
    Ok(())
}
