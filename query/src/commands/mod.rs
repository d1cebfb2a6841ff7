//! The subcommands other than reports, one file each.

pub(crate) mod info;
mod mcp;
mod publish;
mod serve;
mod shell;
mod sql;
pub(crate) mod tables;

use anyhow::Result;
use arrow::array::RecordBatch;
use clap::{ArgMatches, Args, Command, FromArgMatches};

/// Returns the rows of a report.
pub(crate) type Rows = fn(&ArgMatches) -> Result<Vec<RecordBatch>>;

/// A subcommand: its arguments and its function. Reports have the same shape.
pub(crate) struct Subcommand {
    pub(crate) name: &'static str,
    /// Adds arguments and help.
    pub(crate) arguments: fn(Command) -> Command,
    pub(crate) run: fn(&ArgMatches) -> Result<()>,
    /// Returns the rows of a report; `None` for other subcommands.
    pub(crate) rows: Option<Rows>,
}

impl Subcommand {
    /// Returns a subcommand with the arguments of `A`.
    pub(crate) const fn new<A: Args>(
        name: &'static str,
        run: fn(&ArgMatches) -> Result<()>,
    ) -> Subcommand {
        Subcommand {
            name,
            arguments: A::augment_args,
            run,
            rows: None,
        }
    }
}

/// Returns the parsed arguments of a subcommand.
pub(crate) fn arguments<A: FromArgMatches>(matches: &ArgMatches) -> Result<A> {
    A::from_arg_matches(matches)
        .map_err(|error| perfquet::failure::Misuse(error.to_string()).into())
}

/// All subcommands other than reports, in the order of `--help`.
pub(crate) const COMMANDS: &[&Subcommand] = &[
    &sql::COMMAND,
    &shell::COMMAND,
    &tables::COMMAND,
    &info::COMMAND,
    &mcp::COMMAND,
    &serve::COMMAND,
    &publish::COMMAND,
];
