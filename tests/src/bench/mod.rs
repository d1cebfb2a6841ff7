//! `cargo xtask bench`.
use anyhow::Result;
/// placeholder
pub fn run(_arguments: &[&str]) -> Result<()> {
    Ok(())
}
