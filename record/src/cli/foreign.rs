//! Options of perf and trace-cmd that the recorder does not have: what to type instead, or why nothing is needed.

use clap::error::ErrorKind;

/// Options, and what an error says of them.
const FOREIGN: [(&[&str], &str); 17] = [
    (
        &["-k", "--clockid"],
        "times are those of the monotonic clock, as with 'perf record -k mono', and trace_info relates them to the wall clock",
    ),
    (
        &["-T", "--timestamp", "--sample-cpu", "-R", "--raw-samples"],
        "each row has its time, CPU, thread and period, and events have their fields",
    ),
    (
        &["-z", "--compression-level"],
        "the tables of a trace are always compressed",
    ),
    (
        &["-N", "--no-buildid-cache", "-B", "--no-buildid"],
        "there is no cache of build IDs: functions are named while they are recorded",
    ),
    (
        &["--kcore"],
        "functions of the kernel are named while they are recorded",
    ),
    (
        &["-W", "--weight"],
        "'-d' records weight, address and source of memory accesses",
    ),
    (
        &["--all-user", "--all-kernel"],
        "add a modifier to the event: '-e cycles:u' for user space, '-e cycles:k' for the kernel",
    ),
    (
        &["--per-thread"],
        "'-p' and '-t' record each thread, and each row names its thread",
    ),
    (
        &["--switch-events"],
        "'-e sched:sched_switch' records context switches",
    ),
    (
        &["--overwrite", "--tail-synthesize"],
        "'--ring 64M' or '--ring 30s' keeps the newest events",
    ),
    (
        &["--max-size", "--switch-max-files"],
        "'--rotate' starts a new trace by time or size, and '--keep' limits how many are kept",
    ),
    (
        &["-f"],
        "'--force' overwrites an existing trace; processes that a target starts are recorded without an option",
    ),
    (
        &["-l"],
        "'--function FUNC' records a function of the kernel, '--function-graph FUNC' also what it calls",
    ),
    (
        &["--max-graph-depth"],
        "'--max-depth N' limits the depth of '--function-graph'",
    ),
    (
        &["-s"],
        "'--stat' counts events; '--stat --per thread' counts them for each thread",
    ),
    (
        &["--no-buffering", "--aio", "--affinity", "--threads"],
        "the recorder chooses when and by which thread its buffers are read; '-m' sets their size",
    ),
    (
        &["--strict-freq"],
        "a frequency above the kernel's limit is an error without an option",
    ),
];

/// Adds a tip to an error of the command line.
pub(super) fn with_tip(error: clap::Error) -> clap::Error {
    perfquet_cli::with_tip(error, ErrorKind::UnknownArgument, |option| {
        tip(option).map(str::to_owned)
    })
}

fn tip(option: &str) -> Option<&'static str> {
    let known = FOREIGN.iter().find(|(names, _)| names.contains(&option))?;
    Some(known.1)
}

#[cfg(test)]
mod tests {
    use super::super::Cli;
    use super::super::tests::read;
    use super::*;

    #[test]
    fn options_of_other_tools_are_unknown_and_have_a_tip() {
        for (names, said) in FOREIGN {
            for name in names {
                let error = read(&format!("{name} -a")).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::UnknownArgument, "{name}");
                let text = with_tip(error).to_string();
                assert!(text.contains(&format!("tip: {said}")), "{name}: {text}");
                assert!(!text.contains("as a value"), "{name}: {text}");
            }
        }
        let error = read("--no-such-option -a").unwrap_err();
        assert!(with_tip(error).to_string().contains("as a value"));
    }

    #[test]
    fn options_in_tips_exist() {
        let command = <Cli as clap::CommandFactory>::command();
        let known = |word: &str| match word.strip_prefix("--") {
            Some(long) => command.get_arguments().any(|arg| {
                arg.get_long() == Some(long)
                    || arg
                        .get_visible_aliases()
                        .is_some_and(|names| names.contains(&long))
            }),
            None => command
                .get_arguments()
                .any(|arg| arg.get_short() == word.chars().nth(1)),
        };
        for (_, said) in FOREIGN {
            for quoted in said.split('\'').skip(1).step_by(2) {
                if quoted.starts_with("perf ") {
                    continue;
                }
                for word in quoted
                    .split_whitespace()
                    .filter(|word| word.starts_with('-'))
                {
                    assert!(known(word), "{word}");
                }
            }
        }
    }
}
