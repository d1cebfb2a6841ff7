//! The target, the CPUs and the rate that the options name.

use crate::cli::Cli;
use crate::failure::{Failure, misuse};
use crate::process_names;
use crate::recording::DEFAULT_FREQUENCY_HZ;
use crate::sys::{host, privileges, procfs};
use crate::target::Target;

/// Returns the target; fails if several exclude each other.
pub(crate) fn target(cli: &Cli) -> Result<Target, Failure> {
    let is_system = cli.target.all_cpus;
    let named = cli.target.options.target()?;
    let chosen = [
        is_system,
        !cli.target.pids.is_empty(),
        !cli.target.tids.is_empty(),
        named.is_some(),
    ];
    if chosen.into_iter().filter(|&is_chosen| is_chosen).count() > 1 {
        return Err(misuse("choose one of -a, -p, -t, -u, -G and --container"));
    }
    if cli.target.options.excludes_children {
        let is_of_tasks = cli.target.names_tasks() || !cli.command.is_empty();
        if is_system || !is_of_tasks || named.as_ref().is_some_and(Target::is_of_cpus) {
            return Err(
                misuse("--no-inherit: requires a command, -p, -t or -u").hint("drop --no-inherit")
            );
        }
    }
    if let Some(named) = named {
        // With whole CPUs, the command only sets the duration, as with -a.
        if !cli.command.is_empty() && !named.is_of_cpus() {
            return Err(misuse("a command cannot be combined with -u"));
        }
        return Ok(named);
    }
    if !cli.target.pids.is_empty() || !cli.target.tids.is_empty() {
        if !cli.command.is_empty() {
            return Err(misuse("a command cannot be combined with -p or -t"));
        }
        if !cli.target.pids.is_empty() {
            let pids = process_names::pids_of(&cli.target.pids);
            return pids.map(|pids| match cli.retention.rotation.family(&pids) {
                Some(family) => Target::Family(family),
                None => Target::Processes(pids),
            });
        }
        let mut tids = cli.target.tids.clone();
        // Those that have ended since the ring began are in the earlier traces.
        if cli.retention.rotation.is_following() && tids.iter().any(|&tid| procfs::is_alive(tid)) {
            tids.retain(|&tid| procfs::is_alive(tid));
        }
        return Ok(Target::Threads(tids));
    }
    match (is_system, cli.command.is_empty()) {
        (true, _) => Ok(Target::System),
        (false, false) => Ok(Target::Command),
        (false, true) if cli.target.cpus.is_some() => Ok(Target::System),
        (false, true) => Err(misuse("nothing to record: expected a command, -a or -p")
            .hint("run: perfquet-record -g -- COMMAND, or use -a for the whole system, or -p PID")),
    }
}

/// Returns the CPUs to record on.
pub(crate) fn cpus(cli: &Cli) -> Result<Vec<u32>, Failure> {
    let online = host::online_cpus();
    let Some(list) = &cli.target.cpus else {
        return Ok(online);
    };
    let chosen = host::parse_cpus(list)
        .ok_or_else(|| misuse(format!("-C {list}: expected CPUs such as 0-3,8")))?;
    match chosen.iter().find(|cpu| !online.contains(cpu)) {
        Some(cpu) => Err(misuse(format!("-C {list}: CPU {cpu} is not online"))
            .hint(format!("use online CPUs: {online:?}"))),
        None => Ok(chosen),
    }
}

/// Returns the samples per second, if given.
pub(crate) fn frequency_hz(cli: &Cli) -> Result<Option<u64>, Failure> {
    let Some(text) = &cli.sampling.frequency else {
        return Ok(None);
    };
    let most = privileges::perf_sysctl("max_sample_rate").and_then(|rate| u64::try_from(rate).ok());
    if text == "max" {
        return Ok(Some(most.unwrap_or(DEFAULT_FREQUENCY_HZ)));
    }
    let frequency = match text.parse() {
        Ok(frequency) if frequency > 0 => frequency,
        _ => {
            return Err(misuse(format!(
                "-F {text}: expected a number of samples per second, or max"
            )));
        }
    };
    match most {
        Some(most) if frequency > most => Err(misuse(format!(
            "-F {frequency}: the kernel allows {most} samples per second (kernel.perf_event_max_sample_rate)"
        ))
        .hint("use -F max, or raise it: sysctl kernel.perf_event_max_sample_rate")),
        _ => Ok(Some(frequency)),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn targets() {
        let found = |line: &str| {
            let words = std::iter::once("perfquet-record").chain(line.split_whitespace());
            let matches = Cli::command().try_get_matches_from(words).unwrap();
            target(&Cli::of(&matches).unwrap()).map_err(|failure| failure.to_string())
        };
        assert_eq!(found("-a"), Ok(Target::System));
        assert_eq!(found("-a -- sleep 1"), Ok(Target::System));
        assert_eq!(found("-g -- ls -l -a"), Ok(Target::Command));
        assert_eq!(found("ls -l"), Ok(Target::Command));
        assert_eq!(found("-C 0"), Ok(Target::System));
        assert_eq!(found("-p 1,2"), Ok(Target::Processes(vec![1, 2])));
        assert_eq!(found("-t 7"), Ok(Target::Threads(vec![7])));
        assert_eq!(
            found("-p 1 -a"),
            Err("choose one of -a, -p, -t, -u, -G and --container".into())
        );
        assert_eq!(
            found("-g"),
            Err("nothing to record: expected a command, -a or -p".into())
        );
    }
}
