//! Command line of perfquet-convert. The doc comments are the help text.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Parser};
use perfquet_cli::{paths, quantity};
use perfquet_events::Format;
use perfquet_readers::FORMATS;
use perfquet_trace::normalize::TimeRange;

use crate::export::lake::Partition;
use crate::export::{Condition, EXPORTERS, Exporter};

const EXAMPLES: &str = "\
Examples:
  # Import a file as perf.pqt
  perfquet-convert perf.data
  # Import from a pipe
  perf record -o - -- make | perfquet-convert - -o make.pqt
  # Import the files of one recording into one trace
  perfquet-convert perf.data.* -o all.pqt
  # Import a recording from another host with its symbols
  perfquet-convert boot.data --symbols System.map --symbols /mnt/target
  # Import the output of a D script
  perfquet-convert out.txt --from dtrace --script net.d
  # Symbolize an existing trace
  perfquet-convert perf.pqt --symbols vmlinux
  # Complete the trace of a killed recorder
  perfquet-convert killed.pqt
  # Export folded stacks
  perfquet-convert perf.pqt --to folded -o stacks.folded
  # Export two seconds of one process
  perfquet-convert perf.pqt --to folded --time 3s..5s --where \"comm = 'dd'\"
  # Export two traces on one timeline
  perfquet-convert host.pqt guest.pqt --to perfetto -o both.pftrace
  # Add traces to the lake of a fleet, and drop those older than 30 days
  perfquet-convert h001.pqt h002.pqt --to lake -o /srv/lake --retain 30d
  # Add a trace to a lake in a bucket, with credentials from the environment
  perfquet-convert h001.pqt --to lake -o s3://bucket/lake
  # Export a trace of a lake
  perfquet-convert 'lake:/srv/lake?host=h001&date=2026-11-22' --to perfetto
  # Write statements that open a lake in Spark
  perfquet-convert lake:/srv/lake --to ddl=spark -o lake.sql";

/// Import trace files into a trace directory, or export it to another format
///
/// The input format is detected from the content; .gz, .xz and .zst are decompressed. Unreadable data is listed in the
/// table `problems`.
// One struct, because each field is an option with its help.
#[derive(Parser)]
#[command(name = "perfquet-convert", version, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Trace files to import, - for stdin; or trace directories
    ///
    /// Several files become one trace if they have one clock, host, kernel and boot; otherwise import each apart. A time that none of
    /// them recorded is in losses as paused and resumed.
    ///
    /// A trace directory is completed if its recorder was killed, symbolized with --symbols, --lines or --debuginfod, or exported with --to.
    /// Several trace directories, or an alignment of perfquet-query align, are exported on one timeline by --to perfetto and --to chrome.
    /// With --to, also a trace of a lake: lake:DIR?host=PATTERN&date=PATTERN&trace=PATTERN, where each condition is optional.
    #[arg(value_name = "INPUT", value_parser = paths::read(), required_unless_present_any = ["list", "retain", "compact"])]
    pub(crate) inputs: Vec<PathBuf>,

    /// Output path [default: name of the first input with .pqt]
    ///
    /// A trace directory, or with --to a file: compressed if its name ends in .gz, - for stdout. With --to, the default is stdout
    /// for text formats, otherwise the name of the input with the extension of the format. With --to lake, also s3://BUCKET/LAKE, gs://
    /// or az://, written by perfquet-query, which must be installed beside this program or in PATH.
    #[arg(short, long, value_name = "PATH", value_parser = paths::written_or_stored())]
    pub(crate) output: Option<PathBuf>,

    /// Input format [default: detected]; --list prints all
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    pub(crate) from: Option<&'static Format>,

    /// Export to the format of another tool; --list prints all
    #[arg(long, value_name = "FORMAT", value_parser = exporter)]
    pub(crate) to: Option<&'static Exporter>,

    /// Keys of a lake's directories, with or without value [default: date,host]
    ///
    /// Such as date=2026-11-22,host=h001. Without a value, the key is that of the trace. All traces of a lake have the same keys.
    #[arg(long, value_name = "KEYS", value_parser = Partition::parse, requires = "to")]
    pub(crate) partition: Option<Partition>,

    /// Remove traces from the lake that were recorded more than DAYS ago, such as 30d
    #[arg(long, value_name = "DAYS", value_parser = days, requires = "to")]
    pub(crate) retain: Option<Duration>,

    /// Merge the small files of a lake, those of each table and partition
    ///
    /// A partition is rewritten as a whole, and only if no other process changes it at the same time.
    #[arg(long, requires = "to")]
    pub(crate) compact: bool,

    /// Write small tables with sums and histograms of each trace to the lake, by hour
    ///
    /// Functions, stacks, durations of calls, and losses: summary_functions, summary_stacks, summary_durations, summary_losses. A lake that has
    /// them once gets them for every trace that is published later.
    #[arg(long, requires = "to")]
    pub(crate) summaries: bool,

    /// Keep only this time range, from the first event, such as 1.2s..1.5s
    ///
    /// Either end may be missing: ..500ms, 2m...
    #[arg(long, value_name = "RANGE", value_parser = time_range)]
    pub(crate) time: Option<TimeRange>,

    /// Export only these events (cycles, sched:*); repeatable or comma-separated
    ///
    /// `calls` selects the table of calls.
    #[arg(long, value_name = "EVENT", value_delimiter = ',', requires = "to")]
    pub(crate) event: Vec<String>,

    /// Export only rows matching this condition, such as "cpu = 3 AND comm = 'dd'"
    ///
    /// Comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, ILIKE and IS NULL, as in SQL. Durations may have a unit: 500us. A column that a
    /// table lacks is NULL: "duration > 1ms" exports only calls, "duration IS NULL OR duration > 1ms" everything but short calls.
    ///
    /// Compared with a time, a duration counts from the first event, as in --time: "time > 5s". A number without a unit is a time of the
    /// trace's clock in nanoseconds, as in the tables.
    #[arg(long = "where", value_name = "EXPR", value_parser = Condition::parse, requires = "to")]
    pub(crate) condition: Option<Condition>,

    /// System.map, kallsyms, vmlinux or directory with symbols; repeatable
    #[arg(long, value_name = "PATH")]
    pub(crate) symbols: Vec<PathBuf>,

    /// D script that produced the dtrace output
    ///
    /// The script supplies the providers, and the names and actions of aggregations, which dtrace does not print.
    #[arg(long, value_name = "PATH")]
    pub(crate) script: Option<PathBuf>,

    /// Skip symbolization; frames keep module and offset
    #[arg(long, conflicts_with_all = ["symbols", "lines"])]
    pub(crate) no_symbols: bool,

    /// Add source lines and inlined functions (slow; requires debug info)
    #[arg(long)]
    pub(crate) lines: bool,

    /// Fetch missing programs and debug info from the servers in DEBUGINFOD_URLS
    ///
    /// Into the cache of debuginfod's client, by curl. Servers are asked only for files of frames that have no name, and with
    /// --lines for debug info.
    #[arg(long, conflicts_with = "no_symbols")]
    pub(crate) debuginfod: bool,

    /// Overwrite an existing output
    ///
    /// The old output stays until the new one is complete.
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Keep the journal after completing a trace
    #[arg(long)]
    pub(crate) keep_raw: bool,

    /// Exit with status 1 on any read error
    #[arg(long)]
    pub(crate) strict: bool,

    /// Maximum size of temporary files for compressed or piped input [default: 16G]
    ///
    /// Formats that require random access (perf.data files, trace.dat, text) are decompressed to an unlinked file in TMPDIR.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) max_temporary: Option<u64>,

    /// List input and output formats
    #[arg(long)]
    pub(crate) list: bool,

    /// Verbose output: why frames have no name; -vv for more
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Print nothing but errors
    ///
    /// Losses are in the tables losses and problems, as always.
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
}

fn format(name: &str) -> Result<&'static Format, String> {
    let names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
    FORMATS
        .iter()
        .find(|format| format.name == name)
        .copied()
        .ok_or_else(|| format!("expected one of: {}", names.join(", ")))
}

fn exporter(name: &str) -> Result<&'static Exporter, String> {
    let names: Vec<&str> = EXPORTERS.iter().map(|exporter| exporter.name).collect();
    EXPORTERS
        .iter()
        .find(|exporter| exporter.name == name)
        .copied()
        .ok_or_else(|| format!("expected one of: {}", names.join(", ")))
}

fn time_range(text: &str) -> Result<TimeRange, String> {
    quantity::time_range(text).map(|(start, end)| TimeRange { start, end })
}

fn days(text: &str) -> Result<Duration, String> {
    let days = text
        .strip_suffix('d')
        .and_then(|days| days.parse::<u32>().ok());
    days.map(|days| Duration::from_secs(u64::from(days) * 86_400))
        .ok_or_else(|| "expected a number of days such as 30d".to_owned())
}

fn size(text: &str) -> Result<u64, String> {
    quantity::size_bytes(text, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn options_are_consistent_and_help_fits_80_columns() {
        Arguments::command().debug_assert();
        assert_eq!(perfquet_cli::wide_lines(Arguments::command()), [""; 0]);
    }

    #[test]
    fn error_for_a_wrong_format_lists_the_formats() {
        let refused = Arguments::try_parse_from(["x", "a", "--from", "nothing"]).err();
        assert!(refused.unwrap().to_string().contains("expected one of:"));
    }
}
