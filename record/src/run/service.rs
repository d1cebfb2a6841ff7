//! A service that records from the start of the host on (`--install-service`).

use std::path::Path;

use anyhow::Result;

use super::{Outcome, ring};
use crate::cli::Cli;
use crate::failure::misuse;
use crate::service;

/// Writes a service for these options, or for those of the packages if there are none.
pub(super) fn run(cli: &Cli, folder: &Path) -> Result<Outcome> {
    let has_options = std::env::args_os().len() > 2;
    if has_options {
        if !cli.retention.rotation.are_given() {
            return Err(misuse("--install-service: requires --rotate or --keep")
                .hint("add --rotate 10m --keep 24h: a service records until it is stopped")
                .into());
        }
        // What a recording would refuse is refused here.
        let request = ring::request(cli)?;
        if request.destination.is_some_and(|it| !it.is_absolute()) {
            return Err(misuse(
                "--install-service: requires --publish with an absolute path or a URL",
            )
            .hint("add the path of the directory")
            .into());
        }
    }
    service::install(folder, std::env::args_os(), cli.output.path.as_deref())?;
    Ok(Outcome::Done(None))
}
