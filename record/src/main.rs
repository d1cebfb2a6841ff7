//! `perfquet-record`: records the running system into a journal and a trace directory.
//!
//! ```text
//! kernel rings ─drain─► OUT.pqt/journal/perf.data ─encoder, idle priority─► OUT.pqt/TABLE/*.parquet
//! ```
//! [`run`] has the steps in order. [`drain`] must never wait; [`output::encoder`] may.

mod added_records;
mod boot;
mod bpf;
mod cli;
mod control;
mod cpu_limit;
mod drain;
mod failure;
mod flight;
mod ftrace;
mod journal;
mod kept_code;
mod lifecycle;
mod limit;
mod list;
mod live;
mod mapped_files;
mod output;
mod periods;
mod plan;
mod preset;
mod probe;
mod process_names;
mod process_states;
mod recorded;
mod recording;
mod remote;
mod rotation;
mod run;
mod runtimes;
mod selection;
mod self_exclusion;
mod service;
mod shared_hits;
mod side_band;
mod sieve;
mod stat;
mod switch;
mod sys;
mod target;
mod trigger;
mod user_stacks;

use std::process::ExitCode;

use perfquet_cli::terminal;
use run::Outcome;

fn main() -> ExitCode {
    if let Some(status) = perfquet_cli::write_documents(<cli::Cli as clap::CommandFactory>::command)
    {
        return status;
    }
    sys::memory::give_back();
    let mut cli = cli::Cli::read();
    terminal::set_program("perfquet-record");
    terminal::set_quiet(cli.verbosity.is_quiet);
    perfquet_cli::logger::start(cli.verbosity.verbose, terminal::log);
    cli = cli.with_presets(std::env::args_os());
    let read = cli.apply_kfi().map_err(anyhow::Error::new);
    match read.and_then(|()| run::run(&cli)) {
        Ok(Outcome::Done(ended)) => ExitCode::from(ended.map_or(0, |ended| ended.status())),
        Ok(Outcome::Interrupted) => ExitCode::from(130),
        Err(error) => {
            failure::print(&error);
            ExitCode::from(failure::status_of(&error))
        }
    }
}
