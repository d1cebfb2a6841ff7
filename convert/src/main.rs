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
            terminal::fail(sentence(&error), run::hints(&error));
            match error.downcast_ref::<Misuse>() {
                Some(_) => ExitCode::from(2),
                None => ExitCode::from(1),
            }
        }
    }
}

/// Joins the error and its causes, without repetitions.
fn sentence(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = without_number(&cause.to_string());
        if text.contains(&cause) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause);
    }
    text
}

/// Drops the error number from "no such file (os error 2)".
fn without_number(text: &str) -> String {
    match text.split_once(" (os error ") {
        Some((before, after)) => {
            let after = after.split_once(')').map_or("", |(_, after)| after);
            format!("{before}{after}")
        }
        None => text.to_owned(),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn a_cause_is_printed_once() {
        let missing = io::Error::from_raw_os_error(2);
        let error = perfquet_events::Error::io("a.data")(missing);
        let error = Err::<(), _>(error).context("cannot import").unwrap_err();
        assert_eq!(
            sentence(&error),
            "cannot import: a.data: No such file or directory"
        );
    }
}
