//! What is asked instead of a recording: `--list` and its sisters, `--cleanup`.

use std::io::{self, Write};

use anyhow::{Context, Result};

use crate::cli::Cli;
use crate::ftrace;
use crate::probe::{counter, definition, glob_matches, pmu_names, shown, tracepoint};
use crate::sys::tracefs::Tracefs;

/// Answers what is asked, if anything is.
pub(crate) fn answer(cli: &Cli) -> Result<bool> {
    let text = if let Some(pattern) = &cli.list {
        print(pattern).context("cannot write the list")?;
        return Ok(true);
    } else if let Some(pattern) = &cli.functions {
        shown::functions(pattern)?
    } else if let Some(function) = &cli.lines {
        shown::lines(function)?
    } else if let Some(function) = &cli.vars {
        shown::variables(function)?
    } else if cli.cleanup {
        let probes = definition::clean_up()?;
        let others = ftrace::clean_up()?;
        let tracers = match others.len() {
            0 => String::new(),
            count => format!(" and {count} tracers"),
        };
        eprintln!(
            "removed {} probes{tracers} of recorders that are gone",
            probes.len()
        );
        let removed = probes.iter().chain(&others);
        removed.map(|name| format!("{name}\n")).collect()
    } else {
        return Ok(false);
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write the list")
        }
        _ => Ok(true),
    }
}

/// Prints the events of this machine, one a line, whose name, or its part behind the colon, matches. A pattern without wildcards matches inside.
fn print(pattern: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let names = counter::names()
        .chain(pmu_names())
        .chain(tracepoint::all_names())
        .filter(|name| matches(pattern, name));
    for name in names {
        match writeln!(out, "{name}") {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
    }
    if let Err(failure) = Tracefs::open() {
        eprintln!("perfquet-record: tracepoints are not listed: {failure}");
    }
    Ok(())
}

fn matches(pattern: &str, name: &str) -> bool {
    if !pattern.contains(['*', '?', '[']) {
        return name.contains(pattern);
    }
    let behind_colon = name.split_once(':').map(|(_, behind)| behind);
    glob_matches(pattern, name) || behind_colon.is_some_and(|name| glob_matches(pattern, name))
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns() {
        for (pattern, expected) in [
            ("*", true),
            ("sched:*", true),
            ("sched_sw*", true),
            ("switch", true),
            ("irq:*", false),
            ("waking", false),
        ] {
            assert_eq!(
                matches(pattern, "sched:sched_switch"),
                expected,
                "{pattern}"
            );
        }
    }
}
