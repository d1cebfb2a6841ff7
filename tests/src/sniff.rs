//! `cargo xtask sniff DIR...`: files that are no traces, each of which must be refused.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::{place, say};

/// Tries every file below the directories, and fails if one is taken for a trace.
pub fn run(directories: &[&str]) -> Result<()> {
    say::step(&format!("every file of {}", directories.join(", ")));
    let paths: Vec<PathBuf> = directories
        .iter()
        .map(std::path::absolute)
        .collect::<Result<_, _>>()
        .context("cannot find the directory")?;
    let paths: OsString = std::env::join_paths(paths).context("a path with a colon")?;
    let filter = ["--test", "oracle", "--", "sniffing::other", "--nocapture"];
    let status = place::cargo_test(&filter)
        .env("PERFQUET_SNIFF", paths)
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("files without a trace are recognized; see above");
    }
    Ok(())
}
