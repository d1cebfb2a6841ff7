//! A ring of traces, which processes of their own record (`--rotate`, `--keep`).

use anyhow::Result;

use super::Outcome;
use crate::cli::Cli;
use crate::failure::Failure;
use crate::plan::{exclusions, target};
use crate::rotation::{self, End, Request};

pub(super) fn run(cli: &Cli) -> Result<Outcome> {
    Ok(match rotation::run(&request(cli)?)? {
        End::Done(ended) => Outcome::Done(ended),
        End::Interrupted => Outcome::Interrupted,
    })
}

/// Returns the ring of traces; fails for options that it excludes.
pub(super) fn request(cli: &Cli) -> Result<Request, Failure> {
    exclusions::check(cli)?;
    let target = target::target(cli)?;
    // What does not exist is reported before anything is created.
    target.places(None, &target::cpus(cli)?)?;
    Ok(Request {
        path: cli.output.path.clone().unwrap_or_else(|| "traces".into()),
        limits: cli.retention.rotation.limits()?,
        target,
        keeps_journals: cli.output.keep_raw,
        duration: cli.output.duration,
        destination: cli.retention.rotation.destination(),
    })
}
