//! perfquet-convert: imports trace files into a trace directory, and exports a trace directory to another tool's
//! format.
//!
//! Exit codes are chosen only here: 0 success, 1 failure (or read errors, with `--strict`), 2 misuse. An interrupt ends
//! the process by its signal, which a shell shows as 130.

mod cli;
mod closing_line;
mod destination;
mod export;
mod from_lake;
mod interrupt;
mod misuse;
mod passing;
mod progress;
mod run;
mod timeline;

use std::io;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use perfquet_cli::terminal;
use perfquet_trace::symbols;

use cli::Arguments;
use misuse::Misuse;
use run::Outcome;

fn main() -> ExitCode {
    // The program starts itself as a child that reads debug info and may be killed.
    if symbols::serve_lines(std::env::args_os()) {
        return ExitCode::SUCCESS;
    }
    if let Some(status) = perfquet_cli::write_documents(Arguments::command) {
        return status;
    }
    let matches = perfquet_cli::with_width(Arguments::command()).get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    terminal::set_program("perfquet-convert");
    terminal::set_quiet(arguments.quiet);
    perfquet_cli::logger::start(arguments.verbose, terminal::log);
    perfquet_cli::outlive_file_limits();
    match run::run(&arguments) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Problems) => ExitCode::from(1),
        // The reader closed the pipe: `perfquet-convert --to folded a.pqt | head`.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::fail(terminal::sentence(error.chain()), run::hints(&error));
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
