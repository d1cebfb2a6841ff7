//! A recording on another host (`--ssh`).

use anyhow::Result;

use super::Outcome;
use crate::cli::Cli;
use crate::failure::{Failure, misuse};
use crate::list;
use crate::remote;

pub(super) fn run(cli: &Cli, host: &str) -> Result<Outcome> {
    Ok(match remote::run(&request(host, cli)?)? {
        Some(ended) => Outcome::Done(Some(ended)),
        None => Outcome::Interrupted,
    })
}

/// Returns the recording on another host; fails for options that need this one.
fn request<'a>(host: &'a str, cli: &Cli) -> Result<remote::Request<'a>, Failure> {
    // The first three write several traces, the last one a file that names this command line.
    let excluded = ["rotate", "keep", "snapshot-on", "install-service"];
    let mut given = cli.placed.given.iter().map(String::as_str);
    if let Some(option) = given.find(|option| excluded.contains(option)) {
        return Err(misuse(format!("--ssh cannot be combined with --{option}"))
            .hint(format!("run: ssh {host} perfquet-record --{option} …")));
    }
    if cli.control.has_descriptors() {
        return Err(misuse(
            "--ssh cannot be combined with --control fd:N, a descriptor of this host",
        )
        .hint("use --control fifo:PATH, a FIFO of that host"));
    }
    let is_query = list::is_requested(cli);
    Ok(remote::Request {
        host,
        words: std::env::args_os().skip(1).collect(),
        output: (!is_query).then(|| cli.output_path()),
        form: cli.output.form(),
        force: cli.output.force,
    })
}
