//! Options that exclude each other.
//!
//! They are found in the command line alone, before anything is written to the kernel. docs/recording.md has the same table.

use crate::cli::Cli;
use crate::failure::{Failure, misuse};
use crate::output::Format;

/// What a command line may ask for, as far as other options exclude it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Aggregation,
    Command,
    Control,
    Force,
    FunctionTracing,
    Group,
    KeepCode,
    Live,
    MaxCpu,
    MaxEvents,
    NoInherit,
    PerfData,
    Ring,
    Rotate,
    Stat,
    Triggers,
}

const DROP_ONE: &str = "drop one";

/// A wish, those that it excludes, and the hint.
const EXCLUSIONS: &[(Wish, &[Wish], &str)] = &[
    (
        Wish::NoInherit,
        &[Wish::Aggregation, Wish::FunctionTracing],
        "drop --no-inherit",
    ),
    (
        Wish::Control,
        &[Wish::FunctionTracing, Wish::Triggers],
        "drop them, or use --start-on time:TIME",
    ),
    (
        Wish::Ring,
        &[Wish::Aggregation],
        "drop --ring, or --agg, --latency, --profile and --off-cpu",
    ),
    (
        Wish::Ring,
        &[Wish::Triggers],
        "use --snapshot-on with --ring",
    ),
    (Wish::Ring, &[Wish::MaxEvents], DROP_ONE),
    // The first sample of a cut trace would have all that was counted before.
    (Wish::Group, &[Wish::Ring, Wish::Triggers], DROP_ONE),
    (Wish::MaxCpu, &[Wish::Ring, Wish::PerfData], DROP_ONE),
    (Wish::KeepCode, &[Wish::Ring, Wish::PerfData], DROP_ONE),
    (Wish::Stat, &[Wish::Ring, Wish::PerfData], DROP_ONE),
    // The journal has other events than the trace, or comes too late.
    (
        Wish::Live,
        &[
            Wish::Ring,
            Wish::Triggers,
            Wish::MaxEvents,
            Wish::FunctionTracing,
        ],
        DROP_ONE,
    ),
    (
        Wish::Rotate,
        &[Wish::Command],
        "start the command, then record it with -p PID, or use -a",
    ),
    (
        Wish::Rotate,
        &[
            Wish::Ring,
            Wish::Triggers,
            Wish::MaxEvents,
            Wish::FunctionTracing,
            Wish::Force,
            Wish::Control,
            Wish::PerfData,
            Wish::Live,
            Wish::Group,
        ],
        DROP_ONE,
    ),
];

impl Wish {
    fn name(self) -> &'static str {
        match self {
            Wish::Aggregation => "in-kernel aggregation",
            Wish::Command => "a command",
            Wish::Control => "--delay or --control",
            Wish::Force => "--force",
            Wish::FunctionTracing => "--function, --function-graph or --kfi-config",
            Wish::Group => "a group {A,B}:S",
            Wish::KeepCode => "--keep-code",
            Wish::Live => "--live",
            Wish::MaxCpu => "--max-cpu",
            Wish::MaxEvents => "--max-events",
            Wish::NoInherit => "--no-inherit",
            Wish::PerfData => "--format perf.data",
            Wish::Ring => "--ring",
            Wish::Rotate => "--rotate",
            Wish::Stat => "--stat",
            Wish::Triggers => "--start-on or --stop-on",
        }
    }

    fn is_in(self, cli: &Cli) -> bool {
        match self {
            Wish::Aggregation => cli.aggregates(),
            Wish::Command => !cli.command.is_empty(),
            Wish::Control => cli.control.are_given(),
            Wish::Force => cli.output.force,
            Wish::FunctionTracing => cli.functions_traced.is_requested(),
            Wish::Group => cli.events.names.iter().any(|event| event.contains('{')),
            Wish::KeepCode => cli.sampling.keep_code,
            Wish::Live => cli.displays_samples(),
            Wish::MaxCpu => cli.sampling.cpu_limit.is_given(),
            Wish::MaxEvents => cli.calls.max_events.is_some(),
            Wish::NoInherit => cli.target.options.excludes_children,
            Wish::PerfData => cli.output.format == Format::PerfData,
            Wish::Ring => cli.retention.flight.limit().is_some(),
            Wish::Rotate => cli.retention.rotation.are_given(),
            Wish::Stat => cli.events.stat.is_requested(),
            Wish::Triggers => cli.triggers.is_requested(),
        }
    }
}

/// Fails for the first pair of options that exclude each other.
pub(crate) fn check(cli: &Cli) -> Result<(), Failure> {
    cli.retention.rotation.check()?;
    let pairs = EXCLUSIONS
        .iter()
        .filter(|(wish, _, _)| wish.is_in(cli))
        .flat_map(|(wish, others, hint)| others.iter().map(move |other| (wish, other, hint)));
    for (wish, other, hint) in pairs {
        if other.is_in(cli) {
            let message = format!("{} cannot be combined with {}", wish.name(), other.name());
            return Err(misuse(message).hint(*hint));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Words that ask for it, besides `-a`.
    fn words(wish: Wish) -> &'static str {
        match wish {
            Wish::Aggregation => "--profile",
            Wish::Command => "true",
            Wish::Control => "--delay 1s",
            Wish::Force => "--force",
            Wish::FunctionTracing => "--function vfs_*",
            Wish::Group => "-e {cpu-clock,page-faults}:S",
            Wish::KeepCode => "--keep-code",
            Wish::Live => "--live",
            Wish::MaxCpu => "--max-cpu 5",
            Wish::MaxEvents => "--max-events 9",
            Wish::NoInherit => "--no-inherit",
            Wish::PerfData => "--format perf.data",
            Wish::Ring => "--ring 5s",
            Wish::Rotate => "--rotate 5s",
            Wish::Stat => "--stat",
            Wish::Triggers => "--start-on time:1s",
        }
    }

    #[test]
    fn every_pair_is_refused_in_either_order() {
        let commands = |wish| usize::from(wish == Wish::Command);
        for (wish, others, hint) in EXCLUSIONS {
            for other in *others {
                let mut pair = [*wish, *other];
                for _ in 0..2 {
                    pair.reverse();
                    // A command comes last.
                    let mut ordered = pair;
                    ordered.sort_by_key(|wish| commands(*wish));
                    let [one, two] = ordered.map(words);
                    let line = format!("perfquet-record -a {one} {two}");
                    let matches = Cli::command()
                        .try_get_matches_from(line.split(' '))
                        .unwrap_or_else(|error| panic!("{line}: {error}"));
                    let cli = Cli::of(&matches).expect("options");
                    let failure = check(&cli).expect_err(&line);
                    let message = failure.to_string();
                    assert!(message.contains(wish.name()), "{line}: {message}");
                    assert!(message.contains(other.name()), "{line}: {message}");
                    assert_eq!(failure.hint_text(), Some(*hint), "{line}");
                }
            }
        }
    }

    #[test]
    fn docs_have_the_same_table() {
        let docs = include_str!("../../../docs/recording.md");
        for (wish, others, _) in EXCLUSIONS {
            for other in *others {
                let row = docs.lines().find(|line| {
                    let mut cells = line.split('|').skip(1);
                    let first = cells.next().unwrap_or_default();
                    let second = cells.next().unwrap_or_default();
                    let first = first.trim().replace('`', "");
                    (first == wish.name() || first == format!("{}, of samples", wish.name()))
                        && second.replace('`', "").contains(other.name())
                });
                assert!(row.is_some(), "{} | {}", wish.name(), other.name());
            }
        }
    }
}
