//! perfquet-convert: trace files become a trace directory, and a trace directory becomes another tool's file.
//!
//! The exit code is chosen here and nowhere else: 0 done, 1 failed (or problems, with `--strict`), 2 misuse; an
//! interrupt ends the process as the signal does, which a shell shows as 130.

mod cli;
mod closing;
mod export;
mod logger;
mod progress;
mod run;
mod terminal;
mod time;

use std::io;
use std::process::ExitCode;

use clap::Parser;

use cli::Arguments;
use run::{Misuse, Outcome};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    logger::start(arguments.verbose);
    match run::run(&arguments) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Problems) => ExitCode::from(1),
        // Whoever read our output has seen enough: `perfquet-convert --to folded a.pqt | head`.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::say(&format!("{:#}", error));
            for hint in run::hints(&error) {
                terminal::hint(&hint);
            }
            match error.downcast_ref::<Misuse>() {
                Some(_) => ExitCode::from(2),
                None => ExitCode::from(1),
            }
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
