//! perfquet-query: queries trace directories with SQL, and prints tables, reports and images.
//!
//! ```text
//! Cli ─► Subcommand ─► Session (traces, catalog, functions, views) ─► Answer ─► render ─► stdout
//!                                                                              rows ─► record batches
//! ```
//! As a library, it has the program's [`main`], the [`rows`] of reports, and rows in the formats of the program. Tables, views and
//! functions are the crate `perfquet`.

#[macro_use]
mod message;
mod text;

mod call_values;
mod commands;
mod counters;
mod filter;
mod limits;
mod losses;
mod misplaced;
mod render;
mod report;
mod reports;
mod rows;
mod settings;
mod signals;
mod thread_states;
mod totals;
mod wakeups;

use std::io::ErrorKind;
use std::process::ExitCode;

use arrow::error::ArrowError;
use clap::{ArgMatches, Command};
use parquet::errors::ParquetError;

use perfquet::failure::{Interrupted, Misuse};
use perfquet_cli::terminal;

use crate::commands::{COMMANDS, Subcommand};
use crate::reports::REPORTS;

pub use rows::{cells, columns, formatted, plain, plain_schema, reports, rows, run, tables};

/// Runs the program on the command line of the process.
///
/// Exit codes: 0 success, 1 failure, 2 misuse, 130 interrupted. They are chosen only here.
pub fn main() -> ExitCode {
    if perfquet_trace::symbols::serve_lines(std::env::args_os()) {
        return ExitCode::SUCCESS;
    }
    if let Some(status) = perfquet_cli::write_documents(command) {
        return status;
    }
    perfquet_trace::store::watch_readers();
    terminal::set_program("perfquet-query");
    perfquet_cli::logger::start(0, |_, text| message::put(text));
    perfquet_cli::outlive_file_limits();
    let matches = match perfquet_cli::with_width(command()).try_get_matches() {
        Ok(matches) => matches,
        Err(error) => {
            let error = misplaced::with_tip(error);
            // A closed stdout is not a failure of `--help`.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    match run_subcommand(&matches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let code = if error.is::<Interrupted>() {
                130
            } else if error.is::<Misuse>() {
                2
            } else {
                1
            };
            say!("perfquet-query: {}", terminal::sentence(error.chain()));
            ExitCode::from(code)
        }
    }
}

fn subcommands() -> impl Iterator<Item = &'static Subcommand> {
    COMMANDS.iter().chain(REPORTS).copied()
}

/// Builds the command line from the lists of commands and reports.
fn command() -> Command {
    let command = Command::new("perfquet-query")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Query trace directories with SQL, reports and flame graphs")
        .after_help(
            "Examples:
  # Summarize a trace
  perfquet-query info a.pqt
  # List the hottest functions
  perfquet-query top a.pqt
  # Run an SQL query
  perfquet-query sql a.pqt 'SELECT comm, count(*) FROM samples GROUP BY 1'
  # Draw a flame graph
  perfquet-query flamegraph a.pqt -o a.svg
  # Explore a trace in an SQL shell
  perfquet-query shell a.pqt",
        )
        .subcommand_required(true)
        .arg_required_else_help(true);
    let add = |command: Command, sub: &Subcommand| {
        command.subcommand((sub.arguments)(Command::new(sub.name)))
    };
    subcommands().fold(command, add)
}

fn run_subcommand(matches: &ArgMatches) -> anyhow::Result<()> {
    signals::watch()?;
    let (name, matches) = matches.subcommand().expect("clap demands a subcommand");
    let mut all = subcommands();
    let subcommand = all
        .find(|sub| sub.name == name)
        .expect("clap knows only those of the lists");
    (subcommand.run)(matches)
}

/// Whether the reader of stdout closed the pipe, as `head` does.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<std::io::Error>();
        let arrow = cause.downcast_ref::<ArrowError>();
        let kind = match (io, arrow, cause.downcast_ref::<ParquetError>()) {
            (Some(error), _, _) => Some(error.kind()),
            (_, Some(ArrowError::IoError(_, error)), _) => Some(error.kind()),
            (_, _, Some(ParquetError::External(error))) => error
                .downcast_ref::<std::io::Error>()
                .map(std::io::Error::kind),
            _ => None,
        };
        kind == Some(ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    /// Checks for conflicting options, missing values, wrong defaults.
    #[test]
    fn the_command_line_is_sound_and_help_fits_80_columns() {
        super::command().debug_assert();
        assert_eq!(perfquet_cli::wide_lines(super::command()), [""; 0]);
    }

    #[test]
    fn every_subcommand_has_a_description_and_an_example() {
        for sub in super::command().get_subcommands() {
            assert!(sub.get_about().is_some(), "{}", sub.get_name());
            let help = sub
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(help.contains("perfquet-query "), "{}", sub.get_name());
        }
    }
}
