//! The options of perfquet-convert. The doc comments are the help text.

use std::path::PathBuf;

use clap::{ArgAction, Parser};
use perfquet_formats::import::TimeRange;
use perfquet_formats::{FORMATS, Format};

use crate::export::{EXPORTERS, Exporter};
use crate::{size, time};

const EXAMPLES: &str = "\
Examples:
  perfquet-convert perf.data                        makes perf.pqt
  perf record -o - -- make | perfquet-convert - -o make.pqt
  perfquet-convert old/*.data -o all.pqt            several inputs, one behind the other
  perfquet-convert boot.data --symbols System.map --symbols /mnt/target
  perfquet-convert perf.pqt --symbols vmlinux       gives a trace names again
  perfquet-convert dead.pqt                         completes what a dead recorder left
  perfquet-convert perf.pqt --to folded -o stacks.folded
  perfquet-convert out.txt --from dtrace --script net.d";

/// Imports trace files into a trace directory of Parquet tables, and exports it.
///
/// The format of an input is recognized by its content; .gz, .xz and .zst are read as they are. What cannot be read is
/// counted in the table `problems`.
#[derive(Parser)]
#[command(name = "perfquet-convert", version, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Files to import, `-` for standard input; or a trace directory: to complete, to name again, to export
    #[arg(value_name = "INPUT", required_unless_present = "list")]
    pub(crate) inputs: Vec<PathBuf>,

    /// Trace directory to make [default: the first input's name with .pqt, here]; with --to, the file
    #[arg(short, long, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,

    /// Format of the inputs, where it is not recognized (--list names them)
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    pub(crate) from: Option<&'static Format>,

    /// Export to another tool's format instead (--list names them)
    #[arg(long, value_name = "EXPORTER", value_parser = exporter)]
    pub(crate) to: Option<&'static Exporter>,

    /// Keep only what happened in this time after the first event: 1.2s..1.5s, ..500ms, 2m..
    #[arg(long, value_name = "RANGE", value_parser = time::range)]
    pub(crate) time: Option<TimeRange>,

    /// Where names come from: a System.map, kallsyms or vmlinux, or a directory of programs (may be repeated)
    #[arg(long, value_name = "PATH")]
    pub(crate) symbols: Vec<PathBuf>,

    /// D script that printed the inputs: names and functions of aggregations, providers (dtrace's output)
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,

    /// Look for no names: frames keep module and offset
    #[arg(long, conflicts_with_all = ["symbols", "lines"])]
    pub(crate) no_symbols: bool,

    /// Source files, lines and inlined functions too (slow, needs debugging information)
    #[arg(long)]
    pub(crate) lines: bool,

    /// Replace the output if it exists; the older one stays until the new one is whole
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Keep the journal of a trace that is completed
    #[arg(long)]
    pub(crate) keep_raw: bool,

    /// Exit with 1 if anything could not be read
    #[arg(long)]
    pub(crate) strict: bool,

    /// Maximum size of temporary files for packed and piped inputs [default: 16G]
    ///
    /// Formats that are read in any order (perf.data files, trace.dat, texts) are unpacked to an unlinked file in TMPDIR.
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    pub(crate) max_temporary: Option<u64>,

    /// List formats and exporters
    #[arg(long)]
    pub(crate) list: bool,

    /// Say more: what has no name and why (-v), what is tried (-vv)
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_options_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_wrong_format_names_the_right_ones() {
        let refused = Arguments::try_parse_from(["x", "a", "--from", "nothing"]).err();
        assert!(refused.unwrap().to_string().contains("expected one of:"));
    }
}
