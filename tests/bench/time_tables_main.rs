//! Writes the trace of `time_tables.rs` with a million calls and 100,000 switches to the path given.

mod time_tables;

use std::path::PathBuf;

use anyhow::{Context, Result};

fn main() -> Result<()> {
    let path = std::env::args_os()
        .nth(1)
        .context("usage: time_tables PATH")?;
    let size = time_tables::Size {
        calls: 1_000_000,
        switches: 100_000,
        threads: 200,
        span: 60_000_000_000,
        is_odd: false,
    };
    time_tables::write(&PathBuf::from(path), size)
}
