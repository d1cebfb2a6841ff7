//! `cargo xtask corpus [DIR]`: compares every available trace with the output of its own tool.
//!
//! The oracles are tests (`tests/oracle/`): this runs them, prints their tables, and fails on any difference without a
//! known cause. The traces are those of `tests/corpus`, built by `cargo xtask corpus --record` ([`record`]), and those
//! of a directory given by `PERFQUET_CORPUS` or DIR.

mod dump;
mod record;

use anyhow::{Context, Result, bail};

use crate::{place, say};

pub use record::record;

/// Runs the oracles over the corpus, and over another directory if given.
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
        bail!("unexplained differences");
    }
    Ok(())
}
