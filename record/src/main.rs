//! `perfquet-record`: the live machine → journal → trace directory.
//!
//! ```text
//! kernel rings ─drain─► OUT.pqt/journal/perf.data ─encoder, idle priority─► OUT.pqt/TABLE/*.parquet
//! ```
//! [`run`] has the steps in their order; [`drain`] is the half that must never wait, [`encoder`] the half that may.

mod cli;
mod drain;
mod encoder;
mod failure;
mod journal;
mod list;
mod logger;
mod output;
mod own;
mod probe;
mod progress;
mod recording;
mod run;
mod sys;
mod target;

use std::process::ExitCode;

use run::Outcome;

fn main() -> ExitCode {
    let cli = cli::Cli::read();
    logger::start(cli.verbose);
    match run::run(&cli) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Interrupted) => ExitCode::from(130),
        Err(error) => {
            failure::print(&error);
            ExitCode::from(if failure::is_misuse(&error) { 2 } else { 1 })
        }
    }
}
