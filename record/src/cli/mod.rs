//! The command line, modeled on perf's: the options by topic, and what their order says.
//!
//! An option that one kind of probe or one room needs is declared there; [`crate::plan`] checks and interprets all of them.

mod events;
mod foreign;
mod help;
mod in_kernel;
mod listing;
mod output;
mod placed;
mod retention;
mod sampling;
mod target;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser};
use perfquet_events::event::Contexts;

use crate::control;
use crate::failure::Failure;
use crate::ftrace;
use crate::output::closing_line::Next;
use crate::preset;
use crate::selection::CallOptions;
use crate::trigger::TriggerOptions;

pub(crate) use placed::ProbeRequest;

/// Headings of `--help`.
const WHAT: &str = "Events and probes";
const CALLS: &str = "Calls and triggers";
const BOOT: &str = "Boot";
const FILTERS: &str = "Filters";
const SUMS: &str = "In-kernel aggregation";
const WHOM: &str = "Target";
const SAMPLING: &str = "Samples and stacks";
const FLIGHT: &str = "Flight recorder";
const OUTPUT: &str = "Output";
const LISTS: &str = "Listing and cleanup";

/// Record events, probes, calls and sampled stacks into a trace directory
#[derive(Debug, Parser)]
#[command(name = "perfquet-record", version, after_help = help::EXAMPLES, args_override_self = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) events: events::EventOptions,
    #[command(flatten, next_help_heading = CALLS)]
    pub(crate) functions_traced: ftrace::FunctionOptions,
    #[command(flatten, next_help_heading = CALLS)]
    pub(crate) calls: CallOptions,
    #[command(flatten, next_help_heading = CALLS)]
    pub(crate) triggers: TriggerOptions,
    #[command(flatten, next_help_heading = CALLS)]
    pub(crate) control: control::ControlOptions,
    #[command(flatten, next_help_heading = BOOT)]
    pub(crate) boot: ftrace::BootOptions,
    #[command(flatten)]
    pub(crate) in_kernel: in_kernel::InKernelOptions,
    #[command(flatten)]
    pub(crate) target: target::TargetArguments,
    #[command(flatten)]
    pub(crate) sampling: sampling::SamplingOptions,
    #[command(flatten)]
    pub(crate) retention: retention::RetentionOptions,
    #[command(flatten)]
    pub(crate) output: output::OutputOptions,
    #[command(flatten)]
    pub(crate) listing: listing::ListingOptions,
    #[command(flatten)]
    pub(crate) verbosity: Verbosity,
    /// Command to run and record, with its children
    #[arg(trailing_var_arg = true, value_name = "COMMAND", help_heading = None::<&str>)]
    pub(crate) command: Vec<OsString>,
    #[arg(skip)]
    pub(crate) placed: placed::Placed,
}

/// How much is printed.
#[derive(Debug, Clone, Args)]
pub(crate) struct Verbosity {
    /// Verbose output; -vv for more
    #[arg(short, long, action = clap::ArgAction::Count, help_heading = None::<&str>)]
    pub(crate) verbose: u8,
    /// Print nothing but errors
    ///
    /// Losses are in the tables losses and problems, as always.
    #[arg(short = 'q', long = "quiet", conflicts_with = "verbose", help_heading = None::<&str>)]
    pub(crate) is_quiet: bool,
}

impl Cli {
    /// Reads the command line; exits after `--help`, `--version` and errors.
    pub(crate) fn read() -> Cli {
        let matches = perfquet_cli::with_width(Cli::command()).try_get_matches();
        let read = matches.and_then(|matches| Cli::of(&matches));
        read.unwrap_or_else(|error| foreign::with_tip(error).exit())
    }

    /// Takes the values of the options, in their order.
    pub(crate) fn of(matches: &ArgMatches) -> Result<Cli, clap::Error> {
        let mut cli = Cli::from_arg_matches(matches)?;
        cli.placed = placed::Placed::of(&cli, matches);
        Ok(cli)
    }

    /// Puts the options of the presets before the words of the command line; exits after errors.
    pub(crate) fn with_presets(self, words: impl Iterator<Item = OsString>) -> Cli {
        match self.events.presets.is_empty() || self.target.remote.host().is_some() {
            true => self,
            false => self
                .read_with_presets(words)
                .unwrap_or_else(|error| error.exit()),
        }
    }

    fn read_with_presets(
        &self,
        mut words: impl Iterator<Item = OsString>,
    ) -> Result<Cli, clap::Error> {
        let program = words.next();
        let names = self.events.presets.iter().map(String::as_str);
        let words = program
            .into_iter()
            .chain(preset::options(names))
            .chain(words);
        let matches = Cli::command().try_get_matches_from(words)?;
        let mut cli = Cli::of(&matches)?;
        if cli.has_no_target() {
            cli.target.all_cpus = true;
        }
        if let Some(preset) = preset::system_wide(self.events.presets.iter().map(String::as_str)) {
            cli.record_other_threads(preset);
        }
        Ok(cli)
    }

    /// Records the whole system for a preset whose events also occur in other threads than the command's: on Linux 6.1,
    /// kernel workers issue the command's block requests.
    fn record_other_threads(&mut self, preset: &str) {
        if self.target.all_cpus || self.target.cpus.is_some() {
            return;
        }
        if !self.target.names_tasks() {
            log::warn!(
                "--preset {preset}: recording the whole system, since its events occur in other threads, too"
            );
            self.target.all_cpus = true;
        } else {
            log::warn!(
                "--preset {preset}: events in other threads than the target's, such as kernel workers, are not recorded"
            );
        }
    }

    /// Whether neither a target nor a command is given.
    fn has_no_target(&self) -> bool {
        let is_of_tasks = self.target.names_tasks() || !self.command.is_empty();
        !self.target.all_cpus && self.target.cpus.is_none() && !is_of_tasks
    }

    /// Whether anything is aggregated in the kernel.
    pub(crate) fn aggregates(&self) -> bool {
        let is_summed = |request: &ProbeRequest| !request.aggregations.is_empty();
        let has_latencies = !self.in_kernel.latencies.is_empty();
        self.in_kernel.bpf.report().is_some()
            || has_latencies
            || self.placed.requests.iter().any(is_summed)
    }

    /// Whether --live shows functions and threads, because there are no aggregates or counts to print.
    pub(crate) fn displays_samples(&self) -> bool {
        self.in_kernel.bpf.is_live() && !self.aggregates() && !self.events.stat.is_requested()
    }

    /// Returns the query to suggest first.
    pub(crate) fn next(&self) -> Next {
        let is_summed = |request: &ProbeRequest| !request.aggregations.is_empty();
        if let Some(report) = self.in_kernel.bpf.report()
            && self.placed.requests.iter().all(is_summed)
        {
            return Next::Aggregates(report);
        }

        match self.calls.calls.is_empty() {
            true => Next::Top,
            false => Next::Durations,
        }
    }

    /// Applies the KFI configuration as if given by options; explicit options take precedence.
    pub(crate) fn apply_kfi(&mut self) -> Result<(), Failure> {
        if self.target.remote.host().is_some() {
            return Ok(()); // its files are on that host
        }
        let Some(kfi) = self.functions_traced.read_kfi()? else {
            return Ok(());
        };
        let calls = &mut self.calls;
        calls.min_duration = calls.min_duration.or(kfi.min_duration);
        calls.max_duration = calls.max_duration.or(kfi.max_duration);
        calls.max_events = calls.max_events.or(kfi.max_events);
        let context = kfi.context.and_then(|text| Contexts::parse(text).ok());
        calls.context = calls.context.or(context);
        self.triggers
            .add(kfi.start_on.as_deref(), kfi.stop_on.as_deref())
    }

    /// Returns the output path.
    pub(crate) fn output_path(&self) -> PathBuf {
        let requested = self
            .target
            .remote
            .output()
            .or(self.retention.rotation.segment());
        requested
            .or(self.output.path.as_deref())
            .unwrap_or_else(|| Path::new(self.output.format.usual_name()))
            .to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn read(line: &str) -> Result<Cli, clap::Error> {
        let words = std::iter::once("perfquet-record").chain(line.split_whitespace());
        let matches = Cli::command().try_get_matches_from(words)?;
        Cli::of(&matches)
    }

    #[test]
    fn clap_agrees_and_help_fits_80_columns() {
        Cli::command().debug_assert();
        assert_eq!(perfquet_cli::wide_lines(Cli::command()), [""; 0]);
    }

    #[test]
    fn time_requires_a_unit() {
        for option in ["--duration", "--min-duration", "--max-duration"] {
            let text = read(&format!("{option} 5 -a")).unwrap_err().to_string();
            assert!(text.contains("ns, us, ms, s, m or h"), "{option}: {text}");
            assert!(read(&format!("{option} 5ms -a")).is_ok());
        }
        for line in [
            "--off-cpu=5 -a",
            "--start-on time:5 -a",
            "--stop-on time:5 -a",
            "--ring 5s --snapshot-on slow:f>5 -a",
        ] {
            let text = read(line).unwrap_err().to_string();
            assert!(text.contains("ns, us, ms, s, m or h"), "{line}: {text}");
        }
        assert!(read("--ring 64 -a").is_err());
    }

    #[test]
    fn command_keeps_its_options() {
        let cli = read("-g -- ls -l --filter x").unwrap();
        assert_eq!(cli.command, ["ls", "-l", "--filter", "x"]);
        assert!(cli.in_kernel.filters.is_empty());
    }

    #[test]
    fn presets_come_before_other_options() {
        let with = |line: &str| {
            let words = || std::iter::once("perfquet-record").chain(line.split_whitespace());
            let cli = read(line).unwrap();
            cli.read_with_presets(words().map(OsString::from)).unwrap()
        };
        let cli = with("--preset fleet -F 49 --agg max(duration)");
        assert_eq!(
            (cli.sampling.frequency.as_deref(), cli.target.all_cpus),
            (Some("49"), true)
        );
        let counts: Vec<_> = cli
            .placed
            .requests
            .iter()
            .map(|request| request.aggregations.len())
            .collect();
        assert_eq!(counts, [1, 2]);
        let cli = with("--preset runqlat -p 7");
        assert_eq!(
            (cli.target.all_cpus, &cli.target.pids[..]),
            (false, &["7".to_owned()][..])
        );
        assert!(!with("--preset off-cpu -- sleep 1").target.all_cpus);
        assert!(with("--preset io -- sleep 1").target.all_cpus);
        assert!(!with("--preset io -p 7").target.all_cpus);
        assert!(read("--preset nothing").is_err());
    }
}
